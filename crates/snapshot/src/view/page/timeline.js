"use strict";
// Memory over time: one shape an allocation, on one canvas; what is chosen and the moment on a second one above it.

class Timeline {
  constructor(page) {
    this.page = page;
    this.canvas = document.getElementById("time-canvas");
    this.over = document.getElementById("time-over");
    this.detail = document.getElementById("time-detail");
    this.layouts = new Map();
    this.hovered = null;
    this.listen();
  }

  get track() { return this.page.track; }

  get layout() {
    if (!this.layouts.has(this.track)) this.layouts.set(this.track, new Layout(this.track));
    return this.layouts.get(this.track);
  }

  /** Shows all of the track. */
  reset() {
    this.from = 0;
    this.to = Math.max(this.track.count - 1, 1);
    this.hovered = null;
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan((event.deltaX / canvas.clientWidth) * (this.to - this.from));
      else this.zoom(Math.exp(event.deltaY * 0.0016), this.eventAt(event.offsetX));
    }, { passive: false });
    let drag = null;
    canvas.addEventListener("pointerdown", (event) => {
      drag = { x: event.clientX, from: this.from, to: this.to, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (drag) {
        const by = ((drag.x - event.clientX) / canvas.clientWidth) * (drag.to - drag.from);
        drag.moved = drag.moved || Math.abs(event.clientX - drag.x) > 3;
        if (drag.moved) this.show(drag.from + by, drag.to + by);
      } else {
        this.hovered = this.hit(event.offsetX, event.offsetY);
        this.drawOver();
        this.tell(this.hovered ?? this.page.chosen);
      }
    });
    canvas.addEventListener("pointerup", (event) => {
      if (drag && !drag.moved) {
        this.page.choose(this.hit(event.offsetX, event.offsetY));
        this.page.setMoment(Math.round(this.eventAt(event.offsetX)));
      }
      drag = null;
    });
    canvas.addEventListener("pointerleave", () => {
      this.hovered = null;
      this.drawOver();
      this.tell(this.page.chosen);
    });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const { page } = this;
    const one = event.shiftKey ? 1 : Math.max(1, Math.round((this.to - this.from) / 100));
    const keys = {
      ArrowLeft: () => page.setMoment(page.moment - one),
      ArrowRight: () => page.setMoment(page.moment + one),
      ArrowUp: () => this.neighbour(1),
      ArrowDown: () => this.neighbour(-1),
      PageUp: () => this.pan(-(this.to - this.from) * 0.8),
      PageDown: () => this.pan((this.to - this.from) * 0.8),
      Home: () => page.setMoment(Math.ceil(this.from)),
      End: () => page.setMoment(Math.floor(this.to)),
      "+": () => this.zoom(0.6, page.moment),
      "=": () => this.zoom(0.6, page.moment),
      "-": () => this.zoom(1 / 0.6, page.moment),
      "0": () => { this.reset(); this.draw(); },
    };
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  }

  /** Chooses the drawn allocation above or below the chosen one at the moment. */
  neighbour(by) {
    const live = this.layout.at(this.page.moment);
    if (!live.length) return;
    const at = live.indexOf(this.page.chosen);
    const next = at < 0 ? (by > 0 ? 0 : live.length - 1) : Math.min(Math.max(at + by, 0), live.length - 1);
    this.page.choose(live[next]);
  }

  show(from, to) {
    const last = Math.max(this.track.count - 1, 1);
    const width = Math.min(Math.max(to - from, 8), last);
    this.from = Math.min(Math.max(from, 0), last - width);
    this.to = this.from + width;
    this.draw();
  }

  zoom(by, about) {
    const at = Math.min(Math.max(about, this.from), this.to);
    this.show(at - (at - this.from) * by, at + (this.to - at) * by);
  }

  pan(by) { this.show(this.from + by, this.to + by); }

  /** Brings the moment into sight. */
  follow() {
    const { moment } = this.page;
    if (moment < this.from || moment > this.to) this.show(moment - (this.to - this.from) / 2, moment + (this.to - this.from) / 2);
    else this.drawOver();
  }

  get width() { return this.canvas.clientWidth; }
  get height() { return this.canvas.clientHeight; }
  get left() { return 76; }
  get bottom() { return this.height - 24; }
  x(at) { return this.left + ((at - this.from) / (this.to - this.from)) * (this.width - this.left); }
  y(n) { return this.bottom - (n / this.ceiling) * (this.bottom - 8); }
  eventAt(x) { return this.from + ((x - this.left) / (this.width - this.left)) * (this.to - this.from); }

  /** The allocation under a point of the canvas, or null. */
  hit(x, y) {
    if (x < this.left || y > this.bottom) return null;
    const at = Math.min(Math.max(Math.floor(this.eventAt(x)), 0), this.track.count - 1);
    const n = ((this.bottom - y) / (this.bottom - 8)) * this.ceiling;
    for (const i of this.layout.at(at)) {
      const low = this.layout.low(i, at);
      if (n >= low && n < low + this.track.blockSize(i)) return i;
    }
    return null;
  }

  prepare(canvas) {
    const scale = window.devicePixelRatio || 1;
    const [w, h] = [Math.round(canvas.clientWidth * scale), Math.round(canvas.clientHeight * scale)];
    if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
    return context;
  }

  draw() {
    if (!this.width || !this.track.count) return;
    const { track, layout, page } = this;
    const context = this.prepare(this.canvas);
    // Bars of ranges need room above the highest point.
    const bars = track.ranges.reduce((most, range) => Math.max(most, Math.min(range.depth, 4) + 1), 0);
    this.ceiling = this.highest() * (1.04 + bars * 0.05) || 1;
    this.axes(context);
    context.save();
    context.beginPath();
    context.rect(this.left, 0, this.width - this.left, this.bottom);
    context.clip();
    this.band(context);
    context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--ground");
    context.lineWidth = 0.6;
    for (const i of layout.order) {
      if (track.blocks.begin[i] > this.to) break;
      if (track.blocks.requested[i] < this.from) continue;
      const stack = track.blockStack(i);
      context.fillStyle = colour(stack, page.matching && !page.matching[stack]);
      this.trace(context, i);
      context.fill();
      // Neighbours of one stack are told apart where there is room.
      if (this.y(0) - this.y(track.blockSize(i)) > 3) context.stroke();
    }
    this.line(context, track.reserved, "--soft");
    this.ranges(context);
    context.restore();
    this.drawOver();
    this.legend();
  }

  highest() {
    let most = 0;
    const to = Math.min(Math.ceil(this.to), this.track.count - 1);
    for (let at = Math.floor(this.from); at <= to; at++) {
      if (this.track.allocated[at] > most) most = this.track.allocated[at];
      if (this.track.reserved[at] > most) most = this.track.reserved[at];
    }
    return most;
  }

  /** The outline of an allocation, its steps thinned to half a pixel. */
  trace(context, i) {
    const { track, layout } = this;
    const { begin, requested } = track.blocks;
    const shape = layout.shapes.get(i);
    const size = track.blockSize(i);
    const end = Math.min(requested[i] === NEVER ? track.count : requested[i], this.to + 1);
    const first = layout.step(shape, Math.max(begin[i], this.from));
    const points = [];
    let x = this.x(Math.max(begin[i], this.from - 1)), y = shape.low[first];
    points.push(x, y);
    for (let s = first + 1; s < shape.at.length && shape.at[s] < end; s++) {
      const next = this.x(shape.at[s]);
      if (next - x < 0.5) { points[points.length - 1] = shape.low[s]; y = shape.low[s]; continue; }
      points.push(next, y, next, shape.low[s]);
      x = next;
      y = shape.low[s];
    }
    points.push(Math.max(this.x(end), points[0] + 0.5), y);
    context.beginPath();
    for (let p = 0; p < points.length; p += 2) context.lineTo(points[p], this.y(points[p + 1]));
    for (let p = points.length - 2; p >= 0; p -= 2) context.lineTo(points[p], this.y(points[p + 1] + size));
    context.closePath();
  }

  /** The small allocations that have no shape of their own, as one band on top. */
  band(context) {
    const { track, layout } = this;
    if (layout.chosen === track.blocks.count) return;
    context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--line");
    this.columns((x, width, from, to) => {
      let low = Infinity, high = 0;
      for (let at = from; at <= to; at++) {
        if (layout.chosenTotal[at] < low) low = layout.chosenTotal[at];
        if (track.allocated[at] > high) high = track.allocated[at];
      }
      if (high > low) context.fillRect(x, this.y(high), width, this.y(low) - this.y(high));
    });
  }

  /** Calls `each` for every column of pixels with its events. */
  columns(each) {
    for (let x = this.left; x < this.width; x++) {
      const from = Math.max(0, Math.floor(this.eventAt(x)));
      const to = Math.min(this.track.count - 1, Math.max(from, Math.ceil(this.eventAt(x + 1)) - 1));
      if (from <= to) each(x, 1.2, from, to);
    }
  }

  line(context, values, ink) {
    context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue(ink);
    context.lineWidth = 1.2;
    context.setLineDash([5, 3]);
    context.beginPath();
    this.columns((x, _, from, to) => {
      let high = 0;
      for (let at = from; at <= to; at++) if (values[at] > high) high = values[at];
      context.lineTo(x, this.y(high));
    });
    context.stroke();
    context.setLineDash([]);
  }

  /** Annotated ranges of the program, as bars along the top. */
  ranges(context) {
    const style = getComputedStyle(document.documentElement);
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "left";
    context.textBaseline = "middle";
    for (const { name, from, to, depth } of this.track.ranges) {
      if (to < this.from || from > this.to || depth > 4) continue;
      const [x, end, y] = [Math.max(this.x(from), this.left), this.x(to), depth * 16];
      context.fillStyle = style.getPropertyValue("--raised");
      context.strokeStyle = style.getPropertyValue("--line");
      context.lineWidth = 1;
      context.fillRect(x, y, Math.max(end - x, 1), 14);
      context.strokeRect(x + 0.5, y + 0.5, Math.max(end - x, 1), 14);
      if (end - x < 30) continue;
      context.save();
      context.beginPath();
      context.rect(x, y, end - x, 14);
      context.clip();
      context.fillStyle = style.getPropertyValue("--ink");
      context.fillText(name, x + 4, y + 8);
      context.restore();
    }
  }

  axes(context) {
    const style = getComputedStyle(document.documentElement);
    context.font = "12px system-ui, sans-serif";
    context.fillStyle = style.getPropertyValue("--soft");
    context.strokeStyle = style.getPropertyValue("--line");
    context.lineWidth = 1;
    const unit = 2 ** Math.max(0, Math.floor(Math.log2(this.ceiling / 4)));
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (let n = 0; n <= this.ceiling; n += unit) {
      const y = Math.round(this.y(n)) + 0.5;
      context.beginPath();
      context.moveTo(this.left, y);
      context.lineTo(this.width, y);
      context.stroke();
      context.fillText(bytes(n).replace(".00", ""), this.left - 8, y);
    }
    context.textBaseline = "top";
    const every = Math.max(1, Number(((this.to - this.from) / 6).toPrecision(1)));
    for (let at = Math.ceil(this.from / every) * every; at <= this.to; at += every) {
      const label = count(Math.round(at));
      const x = this.x(at);
      context.textAlign = x > this.width - 40 ? "right" : "center";
      context.fillText(label, x, this.bottom + 6);
    }
  }

  drawOver() {
    if (!this.width || !this.track.count) return;
    const context = this.prepare(this.over);
    const style = getComputedStyle(document.documentElement);
    context.save();
    context.beginPath();
    context.rect(this.left, 0, this.width - this.left, this.bottom + 2);
    context.clip();
    for (const [i, ink] of [[this.page.chosen, "--mark"], [this.hovered, "--ink"]]) {
      if (i === null || !this.layout.shapes.has(i)) continue;
      this.trace(context, i);
      context.fillStyle = colour(this.track.blockStack(i));
      context.strokeStyle = style.getPropertyValue(ink);
      context.lineWidth = 2;
      context.fill();
      context.stroke();
    }
    for (const at of this.track.failed) this.mark(context, at, style.getPropertyValue("--warn"), [2, 3]);
    this.mark(context, this.page.moment, style.getPropertyValue("--mark"), []);
    context.restore();
  }

  mark(context, at, ink, dash) {
    const x = this.x(at);
    context.strokeStyle = ink;
    context.lineWidth = 1.5;
    context.setLineDash(dash);
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, this.bottom);
    context.stroke();
    context.setLineDash([]);
  }

  legend() {
    const { track, layout } = this;
    const rest = track.blocks.count - layout.chosen;
    const small = rest ? ` The ${count(rest)} smallest of ${count(track.blocks.count)} are the grey band on top.` : "";
    const failed = track.failed.length ? " Dotted lines: requests that failed." : "";
    const ranges = track.ranges.length ? " Bars on top: ranges that the program named." : "";
    document.getElementById("time-legend").textContent =
      `Bytes asked for, by event. A colour is a stack; dashed: bytes reserved.${ranges}${failed}${small}`;
  }

  /** Tells of an allocation below the chart. */
  tell(i) {
    if (i === null || i === undefined) this.detail.replaceChildren();
    else this.detail.replaceChildren(...this.page.describe(i));
  }
}
