"use strict";
// The segments at a moment: their blocks, the free gaps between them, and who keeps a segment from being given back.

class SegmentMap {
  constructor(page) {
    this.page = page;
    this.canvas = document.getElementById("map-canvas");
    this.slider = document.getElementById("map-at");
    this.order = document.getElementById("map-order");
    this.detail = document.getElementById("map-detail");
    this.picked = null;
    this.slider.addEventListener("input", () => this.page.setMoment(Number(this.slider.value)));
    this.order.addEventListener("change", () => this.draw());
    this.canvas.addEventListener("click", (event) => {
      const row = this.rows.find((r) => event.offsetY >= r.y && event.offsetY < r.y + r.h);
      this.pick(row ? row.key : null);
    });
    this.canvas.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
      event.preventDefault();
      const at = this.rows.findIndex((row) => row.key === this.picked);
      const next = at < 0 ? 0 : Math.min(Math.max(at + (event.key === "ArrowDown" ? 1 : -1), 0), this.rows.length - 1);
      if (this.rows[next]) this.pick(this.rows[next].key);
    });
  }

  /** Segments at the moment, each with its blocks; neighbouring stretches of a growable segment are one. */
  state() {
    const { track, moment } = this.page;
    const { segs } = track;
    const segments = [];
    for (let s = 0; s < segs.count && segs.begin[s] <= moment; s++) {
      if (segs.end[s] <= moment) continue;
      const event = segs.origin[s];
      segments.push({ addr: segs.addr[s], size: segs.size[s], stream: track.streams[track.stream[event]], pool: track.pool[event],
        growable: track.action[event] === ACTION.map, blocks: [], used: 0 });
    }
    segments.sort((a, b) => a.addr - b.addr);
    const merged = [];
    for (const segment of segments) {
      const last = merged[merged.length - 1];
      if (last && last.growable && segment.growable && last.addr + last.size === segment.addr && last.stream === segment.stream) last.size += segment.size;
      else merged.push(segment);
    }
    let outside = 0;
    track.live(moment, (i, waited) => {
      const addr = track.addr[track.blocks.begin[i]];
      let low = 0, high = merged.length - 1;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (merged[middle].addr <= addr) low = middle; else high = middle - 1;
      }
      const segment = merged[low];
      if (!segment || addr < segment.addr || addr >= segment.addr + segment.size) { outside++; return; }
      segment.blocks.push({ i, addr, size: track.blockSize(i), waited });
      segment.used += track.blockSize(i);
    });
    for (const segment of merged) segment.blocks.sort((a, b) => a.addr - b.addr);
    return { segments: merged, outside };
  }

  draw() {
    const { track, moment, history } = this.page;
    this.slider.max = String(Math.max(track.count - 1, 0));
    this.slider.value = String(moment);
    this.slider.setAttribute("aria-valuetext", `event ${moment}`);
    const { segments, outside } = this.state();
    const total = segments.reduce((sum, s) => sum + s.size, 0);
    const used = segments.reduce((sum, s) => sum + s.used, 0);
    const idle = segments.filter((s) => !s.blocks.length).reduce((sum, s) => sum + s.size, 0);
    const largest = segments.reduce((most, s) => Math.max(most, ...this.gaps(s).map((gap) => gap.size)), 0);
    document.getElementById("map-sum").textContent = `${count(segments.length)} segments, ${bytes(total)}: ${bytes(used)} in blocks, `
      + `${bytes(total - used - idle)} free but held by blocks beside, ${bytes(idle)} in whole segments that are free. Largest gap ${bytes(largest)}.`
      + (outside ? ` ${count(outside)} blocks lie in segments that the recording does not know.` : "");
    const by = { free: (s) => -(s.size - s.used), addr: (s) => s.addr, size: (s) => -s.size }[this.order.value];
    this.paint(segments.slice().sort((a, b) => by(a) - by(b) || a.addr - b.addr));
    const pools = history.meta.pools.length > 1 ? "; P: a private pool" : "";
    document.getElementById("map-legend").textContent = `A row is a segment, as long as its bytes; pale is free, colours are stacks, striped waits for a stream${pools}.`;
    this.tell();
  }

  gaps(segment) {
    const gaps = [];
    let at = segment.addr;
    for (const block of segment.blocks) {
      if (block.addr > at) gaps.push({ addr: at, size: block.addr - at });
      at = Math.max(at, block.addr + block.size);
    }
    if (at < segment.addr + segment.size) gaps.push({ addr: at, size: segment.addr + segment.size - at });
    return gaps;
  }

  paint(segments) {
    const { page, canvas } = this;
    const h = segments.length > 60 ? 11 : 17;
    // Browsers refuse canvases beyond some height: what does not fit is said below.
    const most = Math.min(segments.length, Math.floor(12000 / (h + 3)));
    canvas.style.height = `${Math.max(most * (h + 3) + 4, 40)}px`;
    const width = canvas.clientWidth;
    if (!width) { this.rows = []; return; }
    const context = page.timeline.prepare(canvas);
    const style = getComputedStyle(document.documentElement);
    const left = 150;
    const longest = segments.reduce((most, s) => Math.max(most, s.size), 1);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.rows = [];
    segments.slice(0, most).forEach((segment, at) => {
      const y = at * (h + 3) + 2;
      // Small segments keep a width that can be seen.
      const w = Math.max((segment.size / longest) * (width - left - 4), 24);
      const x = (addr) => left + ((addr - segment.addr) / segment.size) * w;
      this.rows.push({ y, h: h + 3, key: segment.addr, segment });
      context.fillStyle = style.getPropertyValue("--gap");
      context.fillRect(left, y, w, h);
      for (const block of segment.blocks) {
        const stack = page.track.blockStack(block.i);
        const bw = Math.max(x(block.addr + block.size) - x(block.addr), 0.7);
        context.fillStyle = colour(stack, page.matching && !page.matching[stack]);
        context.fillRect(x(block.addr), y, bw, h);
        if (block.waited) for (let s = 0; s < bw; s += 5) { context.fillStyle = style.getPropertyValue("--ground"); context.fillRect(x(block.addr) + s, y, 2, h); }
        if (block.i === page.chosen) { context.strokeStyle = style.getPropertyValue("--mark"); context.lineWidth = 2; context.strokeRect(x(block.addr), y + 1, bw, h - 2); }
      }
      context.strokeStyle = style.getPropertyValue(segment.addr === this.picked ? "--accent" : "--line");
      context.lineWidth = segment.addr === this.picked ? 2 : 1;
      context.strokeRect(left, y, w, h);
      context.fillStyle = style.getPropertyValue("--soft");
      const tags = `${segment.growable ? "growable " : ""}${segment.pool ? "P " : ""}${segment.stream ? `stream ${segment.stream} ` : ""}`;
      context.textAlign = "right";
      context.fillText(`${tags}${bytes(segment.size)}`, left - 8, y + h / 2);
    });
    this.hidden = segments.length - most;
  }

  pick(key) {
    this.picked = key;
    this.draw();
  }

  /** Tells what is in the picked segment, the largest first: whoever stays keeps all of it. */
  tell() {
    const row = this.rows?.find((r) => r.key === this.picked);
    if (!row) {
      this.detail.replaceChildren(this.hidden ? `${count(this.hidden)} more segments are not drawn. Choose a segment to see who holds it.` : "Choose a segment to see who holds it.");
      return;
    }
    const { segment } = row;
    const { track, history } = this.page;
    const gaps = this.gaps(segment).sort((a, b) => b.size - a.size);
    const free = gaps.reduce((sum, gap) => sum + gap.size, 0);
    const head = make("p", {}, make("b", {}, `${bytes(segment.size)} at 0x${segment.addr.toString(16)}`),
      segment.blocks.length
        ? `: ${count(segment.blocks.length)} blocks keep ${bytes(free)} of it from anybody who needs more than ${bytes(gaps[0]?.size || 0)} at once.`
        : ": free as a whole.");
    const sums = new Map();
    for (const block of segment.blocks) {
      const stack = track.blockStack(block.i);
      const old = sums.get(stack) || { bytes: 0, blocks: 0, since: block.i };
      sums.set(stack, { bytes: old.bytes + block.size, blocks: old.blocks + 1, since: Math.min(old.since, block.i) });
    }
    const rows = [...sums].sort((a, b) => b[1].bytes - a[1].bytes).slice(0, 12).map(([stack, sum]) =>
      make("tr", {}, make("td", { class: "n" }, bytes(sum.bytes)), make("td", { class: "n" }, count(sum.blocks)),
        make("td", { class: "n" }, count(track.blocks.begin[sum.since])), make("td", {}, history.headline(stack))));
    this.detail.replaceChildren(head);
    if (rows.length) {
      this.detail.append(make("table", {}, make("thead", {}, make("tr", {}, make("th", { class: "n" }, "bytes"), make("th", { class: "n" }, "blocks"),
        make("th", { class: "n" }, "since event"), make("th", {}, "held by"))), make("tbody", {}, ...rows)));
    }
  }
}
