"use strict";
// The findings in words and tables: the same numbers as `anyaccel memory` prints.

// A count and its noun, or the noun alone.
const noun = (n, one, more) => (n === 1 ? one : more);
const counted = (n, one, more) => `${count(n)} ${noun(n, one, more)}`;

class Summary {
  constructor(page) {
    this.page = page;
    this.panel = document.getElementById("panel-summary");
    this.oom = document.getElementById("panel-oom");
  }

  draw() {
    const { track, history } = this.page;
    this.panel.replaceChildren(this.cards(), ...this.caveats(), ...this.lists(), this.settings());
    this.oom.replaceChildren(...this.failures());
    const tab = document.getElementById("tab-oom");
    tab.textContent = track.failed.length ? `Out of memory (${count(track.failed.length)})` : "Out of memory";
    if (history.meta.notes.length) this.panel.append(make("h2", {}, "The file"), make("ul", {}, ...history.meta.notes.map((note) => make("li", {}, note))));
  }

  card(id, value, what) { return make("div", { class: "card" }, make("b", { id }, value), make("span", {}, what)); }

  cards() {
    const { track } = this.page;
    const { findings } = track;
    const last = Math.max(track.count - 1, 0);
    const cards = [
      this.card("peak-allocated", bytes(track.peak), `allocated at the peak, event ${count(track.peakAt)}`),
      this.card("peak-reserved", bytes(track.peakReserved), "reserved at most"),
      this.card("end-allocated", bytes(track.count ? track.allocated[last] : 0), "allocated at the end"),
      this.card("end-reserved", bytes(track.count ? track.reserved[last] : 0), "reserved at the end"),
    ];
    if (findings) {
      cards.push(
        this.card("requests", count(findings.churn.requests), `${noun(findings.churn.requests, "request", "requests")}, ${bytes(findings.churn.bytes)} in all`),
        this.card("largest-gap", findings.end.largest ? bytes(findings.end.largest.size) : "none", "largest free run at the end"),
        this.card("failed", count(findings.ooms), `${noun(findings.ooms, "request", "requests")} failed`),
      );
    }
    if (track.total) cards.push(this.card("total", bytes(track.total), "memory of the device"));
    return make("div", { class: "cards" }, ...cards);
  }

  caveats() {
    const { track } = this.page;
    const { findings } = track;
    const said = [];
    const say = (n, one, more) => { if (n) said.push(counted(n, one, more)); };
    say(track.dropped, "older event did not fit into the recorder's ring.", "older events did not fit into the recorder's ring.");
    if (findings?.error) said.push(findings.error);
    if (findings?.caveats) {
      say(findings.caveats.missing_frees, "block is handed out again without having been given back: that free is missing.", "blocks are handed out again without having been given back: those frees are missing.");
      say(findings.caveats.waiting_blocks, "block waited for a stream after it was given back.", "blocks waited for a stream after they were given back.");
    }
    say(track.before, "block or segment was there before the recording.", "blocks and segments were there before the recording.");
    if (!said.length) return [];
    return [make("ul", { class: "soft" }, ...said.map((line) => make("li", {}, line)))];
  }

  stackCell(frames, line) {
    const cell = make("td", {});
    const text = line || (frames === null ? "no stack recorded" : frames[0] || "empty stack");
    if (!frames || frames.length < 2) { cell.append(text); return cell; }
    cell.append(make("details", {}, make("summary", {}, text), make("ol", { class: "stack" }, ...frames.map((frame) => make("li", {}, frame)))));
    return cell;
  }

  /** A table: a heading, columns of [name, what to print of a row], and the rows' stacks. */
  table(id, heading, words, columns, rows) {
    if (!rows.length) return [];
    const head = make("tr", {}, ...columns.map(([name]) => make("th", { class: "n" }, name)), make("th", {}, "stack"));
    const body = rows.slice(0, 20).map((row) =>
      make("tr", {}, ...columns.map(([, value]) => make("td", { class: "n" }, value(row))), this.stackCell(row.stack, row.line)));
    return [make("h2", {}, heading), make("p", { class: "soft" }, words), make("table", { id }, make("thead", {}, head), make("tbody", {}, ...body))];
  }

  lists() {
    const { findings } = this.page.track;
    if (!findings || findings.error) return [];
    const sum = findings.never_freed;
    const size = ["bytes", (row) => bytes(row.bytes)];
    const blocks = ["blocks", (row) => count(row.blocks)];
    return [
      ...this.table("holders", "Who holds memory at the peak", "Bytes asked for, by stack.", [size, blocks], findings.holders),
      ...this.table("kept", "Never given back", `${counted(sum.blocks, "block", "blocks")}, ${bytes(sum.bytes)}. Those that pile up from quarter to quarter come first: they may leak.`,
        [size, blocks, ["by quarter", (row) => row.quarters.map(count).join(" ")], ["piles up", (row) => (row.grows ? "yes" : "")]], sum.stacks),
      ...this.table("churn", "Who asks most often", "Short lives of equal sizes are cheap; of sizes that differ a little they break memory up.",
        [["requests", (row) => count(row.requests)], size, ["events alive", (row) => row.lifetime_events.toFixed(1)]], findings.churn.stacks),
      ...this.table("pins", "Who pins free memory at the end", `${bytes(findings.end.free)} in ${counted(findings.end.gaps, "free run", "free runs")}; each run is shared between the blocks beside it.`,
        [size, ["runs", (row) => count(row.gaps)]], findings.end.pins),
    ];
  }

  settings() {
    const { settings } = this.page.history.meta;
    if (!settings.length) return make("p", {});
    const rows = settings.map(([name, value]) => make("tr", {}, make("td", {}, name), make("td", {}, value)));
    return make("div", {}, make("h2", {}, "The allocator's settings"), make("table", {}, make("tbody", {}, ...rows)));
  }

  failures() {
    const { track } = this.page;
    if (!track.failed.length) return [make("p", {}, "No request failed in this recording.")];
    const stories = track.findings?.out_of_memory || [];
    const told = stories.map((story) => {
      const go = make("button", { type: "button" }, "Show this moment");
      go.addEventListener("click", () => {
        this.page.setMoment(story.event + track.before);
        this.page.open("map", true);
      });
      return make("div", { class: "fault" }, make("ul", { class: "words" }, ...story.words.map((line) => make("li", {}, line))), go);
    });
    const more = track.failed.length - told.length;
    if (more > 0) told.push(make("p", {}, `${count(more)} more ${noun(more, "request", "requests")} failed: events ${track.failed.slice(told.length, told.length + 50).map(count).join(", ")}.`));
    return told;
  }
}
