"use strict";
// Bytes by stack: callers above what they call, as wide as their bytes.

/** So many boxes are made at most; what is narrower is left out and said so. */
const MOST_BOXES = 2500;

class Flame {
  constructor(page) {
    this.page = page;
    this.host = document.getElementById("flame");
    this.detail = document.getElementById("flame-detail");
    this.of = document.getElementById("flame-of");
    this.of.addEventListener("change", () => { this.root = null; this.draw(); });
    document.getElementById("flame-up").addEventListener("click", () => { this.root = null; this.layOut(); });
    this.host.addEventListener("keydown", (event) => this.key(event));
    this.root = null;
  }

  /** Bytes of each stack. */
  sums() {
    const { track, moment } = this.page;
    const sums = new Map();
    const add = (i) => sums.set(track.blockStack(i), (sums.get(track.blockStack(i)) || 0) + track.blockSize(i));
    if (this.of.value === "all") for (let i = 0; i < track.blocks.count; i++) add(i);
    else if (this.of.value === "never") {
      for (let i = 0; i < track.blocks.count; i++) if (track.blocks.requested[i] === NEVER) add(i);
    } else track.live(this.of.value === "peak" ? track.peakAt : moment, (i, waited) => { if (!waited) add(i); });
    return sums;
  }

  draw() {
    const { history } = this.page;
    const tree = { name: "everything", frame: -1, bytes: 0, children: new Map(), parent: null };
    for (const [stack, n] of this.sums()) {
      let node = tree;
      node.bytes += n;
      const frames = history.frames(stack);
      const path = frames.length ? frames.slice().reverse() : [stack === NO_STACK ? -2 : -3];
      for (const frame of path) {
        if (!node.children.has(frame)) {
          const name = frame === -2 ? "no stack recorded" : frame === -3 ? "empty stack" : history.meta.frames[frame];
          node.children.set(frame, { name, frame, bytes: 0, children: new Map(), parent: node });
        }
        node = node.children.get(frame);
        node.bytes += n;
      }
    }
    this.tree = tree;
    this.root = this.again(this.root) || tree;
    this.layOut();
  }

  /** The node of the new tree at the place of a node of the old one. */
  again(node) {
    if (!node) return null;
    if (!node.parent) return this.tree;
    return this.again(node.parent)?.children.get(node.frame);
  }

  layOut() {
    this.root = this.root || this.tree;
    const width = this.host.clientWidth;
    if (!width) return;
    const boxes = [];
    const above = [];
    for (let node = this.root.parent; node; node = node.parent) above.unshift(node);
    above.forEach((node, depth) => boxes.push({ node, depth, x: 0, w: width }));
    let level = [{ node: this.root, x: 0, w: width }];
    let depth = above.length, left = 0;
    while (level.length && boxes.length < MOST_BOXES) {
      const next = [];
      for (const place of level) {
        boxes.push({ ...place, depth });
        let x = place.x;
        for (const child of [...place.node.children.values()].sort((a, b) => b.bytes - a.bytes)) {
          const w = (child.bytes / Math.max(place.node.bytes, 1)) * place.w;
          if (w >= 2) next.push({ node: child, x, w }); else left++;
          x += w;
        }
      }
      level = next;
      depth++;
    }
    this.boxes = boxes;
    this.host.style.height = `${depth * 20 + 4}px`;
    const { matching, search } = this.page;
    const want = search.toLowerCase();
    this.host.replaceChildren(...boxes.map(({ node, depth: row, x, w }, at) => {
      const box = make("button", { type: "button", role: "treeitem", tabindex: node === this.root ? "0" : "-1", "aria-level": String(row + 1) });
      box.style.cssText = `left:${x}px;top:${row * 20}px;width:${Math.max(w - 1, 1)}px;background:${node.frame < 0 ? "hsl(0 0% 72%)" : colour(node.frame)}`;
      if (matching && !node.name.toLowerCase().includes(want)) box.classList.add("dim");
      box.textContent = w > 30 ? node.name : "";
      box.setAttribute("aria-label", `${node.name}, ${bytes(node.bytes)}`);
      box.title = `${node.name}\n${bytes(node.bytes)}`;
      box.dataset.at = at;
      box.addEventListener("click", () => { this.root = node; this.layOut(); this.host.querySelector('[tabindex="0"]').focus(); });
      box.addEventListener("focus", () => this.tell(node));
      box.addEventListener("pointerenter", () => this.tell(node));
      return box;
    }));
    this.left = left;
    this.tell(this.root);
  }

  tell(node) {
    const share = this.tree.bytes ? ((100 * node.bytes) / this.tree.bytes).toFixed(1) : "0.0";
    const hidden = this.left ? ` ${count(this.left)} boxes are too narrow to show: choose one to see what is below it.` : "";
    this.detail.replaceChildren(make("b", {}, node.name), ` — ${bytes(node.bytes)}, ${share} % of ${bytes(this.tree.bytes)}.${hidden}`);
  }

  key(event) {
    const at = Number(document.activeElement?.dataset?.at);
    const box = this.boxes?.[at];
    if (!box) return;
    const row = (depth) => this.boxes.map((b, i) => [b, i]).filter(([b]) => b.depth === depth);
    const overlaps = ([b]) => b.x < box.x + box.w && b.x + b.w > box.x;
    const siblings = row(box.depth);
    const place = siblings.findIndex(([, i]) => i === at);
    const next = {
      ArrowRight: () => siblings[place + 1], ArrowLeft: () => siblings[place - 1],
      ArrowDown: () => row(box.depth + 1).find(overlaps), ArrowUp: () => row(box.depth - 1).find(overlaps),
    }[event.key];
    if (!next) return;
    event.preventDefault();
    const found = next();
    if (found) this.host.children[found[1]].focus();
  }
}
