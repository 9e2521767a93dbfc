"use strict";
// What holds the views together: the chosen device, moment, allocation and search.

const TABS = [["summary", "Summary"], ["time", "Over time"], ["flame", "Flame graph"], ["map", "Segments"], ["oom", "Out of memory"]];

class Page {
  constructor(history) {
    this.history = history;
    this.track = history.tracks.reduce((most, track) => (track.peak > most.peak ? track : most), history.tracks[0]);
    this.moment = 0;
    this.chosen = null;
    this.search = "";
    this.matching = null;
    this.tab = "summary";
    this.head();
    this.timeline = new Timeline(this);
    this.flame = new Flame(this);
    this.map = new SegmentMap(this);
    this.summary = new Summary(this);
    this.listen();
    this.setTrack(this.track);
    this.open(TABS.some(([id]) => id === location.hash.slice(1)) ? location.hash.slice(1) : "summary", false);
  }

  head() {
    const { meta } = this.history;
    document.title = `${meta.title}: memory history`;
    document.getElementById("title").textContent = meta.title;
    document.getElementById("subtitle").textContent = meta.subtitle;
    const select = document.getElementById("track");
    select.replaceChildren(...this.history.tracks.map((track, at) => make("option", { value: String(at) }, track.name)));
    select.value = String(this.history.tracks.indexOf(this.track));
    select.addEventListener("change", () => this.setTrack(this.history.tracks[Number(select.value)]));
    document.getElementById("track-label").hidden = this.history.tracks.length < 2;
    document.getElementById("tabs").replaceChildren(...TABS.map(([id, name]) =>
      make("button", { type: "button", role: "tab", id: `tab-${id}`, "aria-controls": `panel-${id}` }, name)));
  }

  setTrack(track) {
    this.track = track;
    this.chosen = null;
    this.moment = track.failed.length ? track.failed[0] : track.peakAt;
    this.timeline.reset();
    this.map.picked = null;
    this.flame.root = null;
    this.summary.draw();
    this.say();
    this.draw();
  }

  listen() {
    const search = document.getElementById("search");
    search.addEventListener("input", () => this.find(search.value.trim()));
    const tabs = document.getElementById("tabs");
    tabs.addEventListener("click", (event) => { if (event.target.id?.startsWith("tab-")) this.open(event.target.id.slice(4), false); });
    tabs.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      const at = TABS.findIndex(([id]) => id === this.tab);
      this.open(TABS[(at + by + TABS.length) % TABS.length][0], true);
    });
    document.getElementById("theme").addEventListener("click", () => {
      document.documentElement.dataset.theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      this.draw();
    });
    const keys = document.getElementById("keys");
    keys.addEventListener("click", () => {
      const help = document.getElementById("help");
      help.hidden = !help.hidden;
      keys.setAttribute("aria-expanded", String(!help.hidden));
    });
    document.addEventListener("keydown", (event) => this.key(event));
    let waiting = 0;
    new ResizeObserver(() => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(() => this.draw()); }).observe(document.querySelector("main"));
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", () => { document.documentElement.dataset.theme = dark.matches ? "dark" : "light"; this.draw(); });
    addEventListener("beforeprint", () => {
      this.before = document.documentElement.dataset.theme;
      document.documentElement.dataset.theme = "light";
      for (const [id] of TABS) document.getElementById(`panel-${id}`).hidden = false;
      this.drawAll();
    });
    addEventListener("afterprint", () => {
      document.documentElement.dataset.theme = this.before;
      this.open(this.tab, false);
    });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target instanceof Element && event.target.matches("input, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const act = {
      "/": () => document.getElementById("search").focus(),
      p: () => this.setMoment(this.track.peakAt),
      o: () => {
        const next = this.track.failed.find((at) => at > this.moment) ?? this.track.failed[0];
        if (next !== undefined) this.setMoment(next);
      },
      Escape: () => this.choose(null),
    }[event.key] || (TABS[Number(event.key) - 1] && (() => this.open(TABS[Number(event.key) - 1][0], true)));
    if (!act) return;
    event.preventDefault();
    act();
  }

  open(tab, focus) {
    this.tab = tab;
    for (const [id] of TABS) {
      const button = document.getElementById(`tab-${id}`);
      button.setAttribute("aria-selected", String(id === tab));
      button.tabIndex = id === tab ? 0 : -1;
      document.getElementById(`panel-${id}`).hidden = id !== tab;
    }
    if (focus) (document.querySelector(`#panel-${tab} canvas[tabindex]`) || document.getElementById(`tab-${tab}`)).focus();
    this.draw();
  }

  /** Draws what can be seen. */
  draw() {
    if (this.tab === "time") this.timeline.draw();
    else if (this.tab === "flame") this.flame.draw();
    else if (this.tab === "map") this.map.draw();
  }

  drawAll() {
    this.timeline.draw();
    this.flame.draw();
    this.map.draw();
  }

  setMoment(at) {
    this.moment = Math.min(Math.max(Math.round(at), 0), Math.max(this.track.count - 1, 0));
    this.say();
    if (this.tab === "time") this.timeline.follow();
    else this.draw();
  }

  choose(i) {
    this.chosen = i;
    this.timeline.tell(i);
    if (this.tab === "time") this.timeline.drawOver();
    else this.draw();
  }

  find(text) {
    this.search = text;
    this.matching = this.history.search(text);
    const found = document.getElementById("found");
    if (!this.matching) found.textContent = "";
    else {
      let blocks = 0, n = 0;
      this.track.live(this.moment, (i, waited) => {
        const stack = this.track.blockStack(i);
        if (!waited && stack !== NO_STACK && this.matching[stack]) { blocks++; n += this.track.blockSize(i); }
      });
      const stacks = this.matching.reduce((sum, hit) => sum + hit, 0);
      found.textContent = `${count(stacks)} stacks; at the moment ${count(blocks)} blocks, ${bytes(n)}`;
    }
    this.draw();
  }

  /** The moment in words. */
  say() {
    const { track, moment } = this;
    const line = document.getElementById("moment");
    if (!track.count) { line.textContent = "Nothing was recorded."; return; }
    const names = ["allocation of", "given back:", "free again:", "segment taken:", "segment given back:", "mapped", "unmapped", "OUT OF MEMORY: asked for", "snapshot:", "named:"];
    const when = moment < track.before ? "before the recording" : `${((track.time[moment] - track.time[track.before]) / 1000).toFixed(3)} ms`;
    line.textContent = `Moment: event ${count(moment)} of ${count(track.count)} (${when}), ${names[track.action[moment]]} ${bytes(track.size[moment])}. `
      + `Allocated ${bytes(track.allocated[moment])}, reserved ${bytes(track.reserved[moment])}.`;
  }

  stackList(stack) {
    const { history, search } = this;
    const want = search.toLowerCase();
    const frames = history.frames(stack);
    if (!frames.length) return make("p", { class: "soft" }, history.headline(stack));
    return make("ol", { class: "stack" }, ...frames.map((frame) => {
      const item = make("li", {}, history.meta.frames[frame]);
      if (want && history.lower[frame].includes(want)) item.classList.add("hit");
      return item;
    }));
  }

  /** An allocation in words. */
  describe(i) {
    const { track, history } = this;
    const { begin, requested, end } = track.blocks;
    const pool = history.meta.pools[track.pool[begin[i]]];
    const stream = track.streams[track.stream[begin[i]]];
    const until = requested[i] === NEVER ? "never given back" : `given back at event ${count(requested[i])}`;
    const waited = end[i] !== NEVER && end[i] > requested[i] + 1 ? `, free again at ${count(end[i])} (a stream used it)` : "";
    const where = `${stream ? `, stream ${stream}` : ""}${pool[0] || pool[1] ? `, private pool (${pool[0]}, ${pool[1]})` : ""}`;
    const since = begin[i] < track.before ? "from before the recording" : `handed out at event ${count(begin[i])}`;
    return [make("b", {}, bytes(track.blockSize(i))), ` at 0x${track.addr[begin[i]].toString(16)}${where}: ${since}, ${until}${waited}.`, this.stackList(track.blockStack(i))];
  }
}

async function main() {
  const began = performance.now();
  document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  try {
    if (!window.DecompressionStream) throw new Error("this browser is too old to unpack the page's data (it lacks DecompressionStream)");
    const page = new Page(await History.load());
    window.memoryHistory = page;
    requestAnimationFrame(() => requestAnimationFrame(() => {
      document.documentElement.dataset.drawn = (performance.now() - began).toFixed(0);
    }));
  } catch (error) {
    document.querySelector("main").prepend(make("p", { class: "fault", role: "alert" }, `The history can't be shown: ${error.message}.`));
    throw error;
  }
}

main();
