"use strict";
// The page's data: what was recorded, as columns, and the lives of blocks and segments made from it.

const ACTION = { alloc: 0, requested: 1, completed: 2, segment: 3, segmentFree: 4, map: 5, unmap: 6, oom: 7, snapshot: 8, annotate: 9 };
const NO_STACK = 0xffffffff;
const NEVER = 0xffffffff;

/** The bytes behind a base64 text, unpacked. */
async function unpack(text) {
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

/** Numbers that grow as they are pushed: plain arrays of half a million objects would be slow to collect. */
class Column {
  constructor(Type) { this.Type = Type; this.items = new Type(1024); this.length = 0; }
  push(value) {
    if (this.length === this.items.length) {
      const more = new this.Type(this.length * 2);
      more.set(this.items);
      this.items = more;
    }
    this.items[this.length++] = value;
  }
  done() { return this.items.subarray(0, this.length); }
}

/** One device's events (or those of pinned memory). */
class Track {
  constructor(meta, columns) {
    Object.assign(this, meta, columns);
    this.count = this.action.length;
    this.lives();
    this.totals();
    this.ranges = [];
  }

  /** Takes over the annotated ranges of its device: [name, device, begins, microseconds]. */
  annotate(annotations) {
    const open = [];
    for (const [name, device, begins, time] of annotations) {
      if (device !== this.device) continue;
      const at = this.after(time - this.first);
      if (begins) {
        const range = { name, from: at, to: this.count - 1, depth: open.length };
        open.push(range);
        this.ranges.push(range);
      } else {
        const which = open.findLastIndex((range) => range.name === name);
        if (which >= 0) open.splice(which, 1)[0].to = at;
      }
    }
  }

  /** The first event that is not before a time. */
  after(time) {
    let low = this.before, high = this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.time[middle] < time) low = middle + 1; else high = middle;
    }
    return low;
  }

  /** For each block and segment from when to when it lived; `NEVER` for one that is never given back. */
  lives() {
    const begin = new Column(Uint32Array), requested = new Column(Uint32Array), end = new Column(Uint32Array);
    const open = new Map();
    const segBegin = new Column(Uint32Array), segEnd = new Column(Uint32Array);
    const segAddr = new Column(Float64Array), segSize = new Column(Float64Array);
    const segments = new Map();
    const closeSegment = (at, addr, size) => {
      // A stretch that is unmapped may be a part of what was mapped, or reach over several.
      for (const [start, i] of [...(size === segSize.items[segments.get(addr)] ? [[addr, segments.get(addr)]] : segments)]) {
        const length = segSize.items[i];
        if (start >= addr + size || start + length <= addr) continue;
        segEnd.items[i] = at;
        segments.delete(start);
        if (start < addr) openSegment(at, start, addr - start, i);
        if (start + length > addr + size) openSegment(at, addr + size, start + length - addr - size, i);
      }
    };
    const origin = new Column(Uint32Array);
    const openSegment = (at, addr, size, of) => {
      segments.set(addr, segBegin.length);
      origin.push(of === undefined ? at : origin.items[of]);
      segBegin.push(at); segEnd.push(NEVER); segAddr.push(addr); segSize.push(size);
    };
    const { action, addr, size } = this;
    this.failed = [];
    for (let at = 0; at < this.count; at++) {
      switch (action[at]) {
        case ACTION.alloc: {
          const old = open.get(addr[at]);
          if (old !== undefined) { if (requested.items[old] === NEVER) requested.items[old] = at; end.items[old] = at; }
          open.set(addr[at], begin.length);
          begin.push(at); requested.push(NEVER); end.push(NEVER);
          break;
        }
        case ACTION.requested: {
          const i = open.get(addr[at]);
          if (i === undefined) break;
          requested.items[i] = at;
          if (!this.completions) { end.items[i] = at; open.delete(addr[at]); }
          break;
        }
        case ACTION.completed: {
          const i = open.get(addr[at]);
          if (i === undefined) break;
          if (requested.items[i] === NEVER) requested.items[i] = at;
          end.items[i] = at;
          open.delete(addr[at]);
          break;
        }
        case ACTION.segment: case ACTION.map: openSegment(at, addr[at], size[at]); break;
        case ACTION.segmentFree: case ACTION.unmap: closeSegment(at, addr[at], size[at]); break;
        case ACTION.oom: this.failed.push(at); break;
      }
    }
    this.blocks = { begin: begin.done(), requested: requested.done(), end: end.done(), count: begin.length };
    this.segs = { begin: segBegin.done(), end: segEnd.done(), addr: segAddr.done(), size: segSize.done(), origin: origin.done(), count: segBegin.length };
  }

  /** Bytes allocated and reserved after each event, and where they were at their peak. */
  totals() {
    const { action, size, addr, count } = this;
    const allocated = new Float64Array(count), reserved = new Float64Array(count);
    const delta = new Float64Array(count);
    const { begin, requested } = this.blocks;
    for (let i = 0; i < this.blocks.count; i++) {
      delta[begin[i]] += size[begin[i]];
      if (requested[i] !== NEVER) delta[requested[i]] -= size[begin[i]];
    }
    let now = 0, held = 0, peak = -1, peakReserved = 0;
    this.peakAt = 0;
    for (let at = 0; at < count; at++) {
      now += delta[at];
      if (action[at] === ACTION.segment || action[at] === ACTION.map) held += size[at];
      else if (action[at] === ACTION.segmentFree || action[at] === ACTION.unmap) held -= size[at];
      allocated[at] = now;
      reserved[at] = held;
      if (now > peak) { peak = now; this.peakAt = at; }
      if (held > peakReserved) peakReserved = held;
    }
    this.allocated = allocated;
    this.reserved = reserved;
    this.peak = Math.max(peak, 0);
    this.peakReserved = peakReserved;
  }

  /** Calls `each` with every block in its user's hands, or waited for, after event `at`. */
  live(at, each) {
    const { begin, requested, end, count } = this.blocks;
    for (let i = 0; i < count && begin[i] <= at; i++) if (end[i] > at) each(i, requested[i] <= at);
  }

  blockSize(i) { return this.size[this.blocks.begin[i]]; }
  blockStack(i) { return this.stack[this.blocks.begin[i]]; }
}

/** Everything on the page. */
class History {
  static async load() {
    const meta = JSON.parse(document.getElementById("meta").textContent);
    const bytes = await unpack(document.getElementById("columns").textContent.trim());
    return new History(meta, bytes);
  }

  constructor(meta, bytes) {
    this.meta = meta;
    let at = 0;
    const take = (Type, n) => {
      const part = new Type(bytes, at, n);
      at += Math.ceil((n * Type.BYTES_PER_ELEMENT) / 8) * 8;
      return part;
    };
    this.tracks = meta.tracks.map((track) => {
      const n = track.length;
      return new Track(track, {
        addr: take(Float64Array, n), size: take(Float64Array, n), time: take(Float64Array, n),
        stack: take(Uint32Array, n), stream: take(Uint16Array, n), pool: take(Uint16Array, n), action: take(Uint8Array, n),
      });
    });
    for (const track of this.tracks) track.annotate(meta.annotations);
    this.lower = meta.frames.map((text) => text.toLowerCase());
  }

  /** Frames of a stack, innermost first. */
  frames(stack) { return stack === NO_STACK ? [] : this.meta.stacks[stack]; }

  /** What to call a stack in one line. */
  headline(stack) { return stack === NO_STACK ? "no stack recorded" : this.meta.lines[stack]; }

  /** Stacks with a frame that contains the text; null for no text. */
  search(text) {
    if (!text) return null;
    const want = text.toLowerCase();
    const frames = this.lower.map((frame) => frame.includes(want));
    return this.meta.stacks.map((stack) => stack.some((frame) => frames[frame]));
  }
}

function bytes(n) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  let value = Math.abs(n);
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit++; }
  if (unit === 0) return `${n} ${n === 1 ? "byte" : "bytes"}`;
  return `${n < 0 ? "-" : ""}${value.toFixed(2)} ${units[unit]}`;
}

function count(n) { return n.toLocaleString("en-US"); }

/** An element with text and attributes; children are elements or strings. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") element.className = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** A colour for a number, the same wherever it stands. */
function colour(n, dim) {
  if (n === NO_STACK) return dim ? "oklch(70% 0 0 / .2)" : "oklch(74% 0 0)";
  const hue = (n * 137.508 + 205) % 360;
  const light = 72 + ((n * 7) % 4) * 4;
  return dim ? `oklch(${light}% .05 ${hue} / .2)` : `oklch(${light}% .13 ${hue})`;
}
