"use strict";
// Where each allocation lies in the stack of all that live: the newest on top, and what lies above one that ends sinks.

/** So many steps down are kept at most; with more, fewer allocations get a shape of their own. */
const MOST_STEPS = 2500000;

class Layout {
  /** `track` with as many of its largest allocations as can be drawn; the rest is one band on top of them. */
  constructor(track) {
    this.track = track;
    const order = Array.from({ length: track.blocks.count }, (_, i) => i);
    order.sort((a, b) => track.blockSize(b) - track.blockSize(a) || a - b);
    for (let most = Math.min(order.length, 12000); ; most = Math.floor(most / 2)) {
      if (this.place(order.slice(0, most), most <= 200)) break;
    }
  }

  /** Lays out the chosen ones; false if that takes too many steps. */
  place(chosen, whatever) {
    const { track } = this;
    const { begin, requested, count: blocks } = track.blocks;
    const wanted = new Uint8Array(blocks);
    for (const i of chosen) wanted[i] = 1;
    const ends = new Map();
    for (const i of chosen) {
      if (requested[i] === NEVER) continue;
      if (!ends.has(requested[i])) ends.set(requested[i], []);
      ends.get(requested[i]).push(i);
    }
    const start = new Map();
    for (const i of chosen) start.set(begin[i], i);
    const shapes = new Map();
    const stack = [];
    let top = 0, steps = 0;
    const chosenTotal = new Float64Array(track.count);
    for (let at = 0; at < track.count; at++) {
      for (const i of ends.get(at) || []) {
        const where = stack.lastIndexOf(i);
        const size = track.blockSize(i);
        stack.splice(where, 1);
        for (let above = where; above < stack.length; above++) {
          const shape = shapes.get(stack[above]);
          const low = shape.low[shape.low.length - 1];
          shape.at.push(at);
          shape.low.push(low - size);
        }
        steps += stack.length - where;
        if (steps > MOST_STEPS && !whatever) return false;
        top -= size;
      }
      const i = start.get(at);
      if (i !== undefined) {
        stack.push(i);
        shapes.set(i, { at: [at], low: [top] });
        top += track.blockSize(i);
      }
      chosenTotal[at] = top;
    }
    this.shapes = shapes;
    this.chosen = chosen.length;
    this.chosenTotal = chosenTotal;
    this.order = chosen.slice().sort((a, b) => begin[a] - begin[b]);
    return true;
  }

  /** The last of a shape's steps that is not after `at`. */
  step(shape, at) {
    let low = 0, high = shape.at.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (shape.at[middle] <= at) low = middle; else high = middle - 1;
    }
    return low;
  }

  /** How far from the bottom an allocation lies at a moment of its life. */
  low(i, at) {
    const shape = this.shapes.get(i);
    return shape.low[this.step(shape, at)];
  }

  /** The drawn allocations that live at a moment, from the bottom up. */
  at(at) {
    const { begin, requested } = this.track.blocks;
    const live = [];
    for (const i of this.order) {
      if (begin[i] > at) break;
      if (requested[i] > at) live.push(i);
    }
    return live;
  }
}
