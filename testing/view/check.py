#!/usr/bin/env python3
"""Opens pages of `anyaccel view` in headless Chromium and checks what a person would: that nothing is said on the
console, that the numbers are those of `anyaccel memory`, that every view draws, and that the keys work.

Usage: check.py ANYACCEL SNAPSHOT... [--pictures FOLDER] [--chromium PROGRAM]
"""

import argparse
import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Runs in the page once it is drawn, as a person at the keyboard would, and leaves what it saw in the document.
PROBE = """
<pre id="probe"></pre>
<script>
(async () => {
  const seen = { errors: [] };
  try {
    for (let i = 0; i < 400 && !document.documentElement.dataset.drawn; i++) await new Promise((go) => setTimeout(go, 20));
    const page = window.memoryHistory;
    const press = (key, target = document) => target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    const inked = (id) => {
      const canvas = document.getElementById(id);
      const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      const colours = new Set();
      for (let i = 0; i < data.length; i += 4 * 97) if (data[i + 3]) colours.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
      return colours.size;
    };
    seen.tracks = page.history.tracks.map((track) => ({
      device: track.device, name: track.name, peak: track.peak, peakAt: track.peakAt - track.before, reserved: track.peakReserved,
      before: track.before, events: track.count - track.before, failed: track.failed.length, blocks: track.blocks.count,
      allocated: track.count ? track.allocated[track.count - 1] : 0, held: track.count ? track.reserved[track.count - 1] : 0,
    }));
    seen.card = document.getElementById("peak-allocated").textContent;
    seen.spelled = bytes(page.track.peak);
    const canvas = document.getElementById("time-canvas");
    press("2");
    seen.tab = page.tab;
    seen.focus = document.activeElement.id;
    seen.time = page.track.count ? inked("time-canvas") : 0;
    if (page.track.count) {
      press("p");
      seen.atPeak = page.moment === page.track.peakAt;
      press("ArrowUp", canvas);
      seen.chosen = page.chosen;
      seen.told = document.getElementById("time-detail").textContent;
      const width = page.timeline.to - page.timeline.from;
      press("+", canvas);
      seen.zoomed = page.timeline.to - page.timeline.from < width;
      press("0", canvas);
      seen.whole = page.timeline.to - page.timeline.from;
      const before = page.moment;
      page.setMoment(0);
      canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", shiftKey: true, bubbles: true }));
      seen.oneOn = page.moment;
      page.setMoment(before);
    }
    press("3");
    seen.flame = document.querySelectorAll("#flame button").length;
    seen.flameBytes = page.flame.tree ? page.flame.tree.bytes : 0;
    seen.liveBytes = 0;
    page.track.live(page.moment, (i, waited) => { if (!waited) seen.liveBytes += page.track.blockSize(i); });
    press("4");
    seen.map = document.getElementById("map-sum").textContent;
    seen.segments = page.map.rows.length;
    const state = page.map.state();
    seen.outside = state.outside;
    seen.overfull = state.segments.filter((s) => s.used > s.size).length;
    press("5");
    seen.oom = document.getElementById("panel-oom").textContent;
    press("Escape");
    seen.cleared = page.chosen === null;
    const search = document.getElementById("search");
    search.value = "forward";
    search.dispatchEvent(new Event("input"));
    seen.found = document.getElementById("found").textContent;
    document.getElementById("theme").click();
    seen.theme = document.documentElement.dataset.theme;
    page.drawAll();
    window.dispatchEvent(new Event("beforeprint"));
    seen.printed = [...document.querySelectorAll(".panel")].filter((panel) => !panel.hidden).length;
    window.dispatchEvent(new Event("afterprint"));
    seen.afterwards = [...document.querySelectorAll(".panel")].filter((panel) => !panel.hidden).length;
  } catch (error) {
    seen.errors.push(String(error && error.stack || error));
  }
  document.getElementById("probe").textContent = JSON.stringify(seen);
})();
</script>
</body>
"""


def chromium_run(program, arguments):
    with tempfile.TemporaryDirectory() as profile:
        command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                   f"--user-data-dir={profile}", "--window-size=1300,1000", "--virtual-time-budget=60000", "--enable-logging=stderr"]
        done = subprocess.run(command + arguments, capture_output=True, timeout=300, check=True)
    said = [line for line in done.stderr.decode(errors="replace").splitlines() if "CONSOLE" in line]
    return done.stdout.decode(errors="replace"), said


def check(program, anyaccel, snapshot, folder, pictures):
    page = folder / f"{snapshot.name}.html"
    subprocess.run([anyaccel, "view", snapshot, "-o", page], check=True, stdout=subprocess.DEVNULL)
    report = json.loads(subprocess.run([anyaccel, "memory", "--json", snapshot], check=True, capture_output=True).stdout)
    text = page.read_text()
    links = re.findall(r"""(?:src|href)=["'](?!data:)[^"']*|https?://[^\s"'<]*""", text[: text.index('id="meta"')] + text[text.rindex("<script>"):])
    assert not links, f"the page reaches outside: {links}"
    probed = folder / f"{snapshot.name}.probe.html"
    probed.write_text(text.replace("</body>\n", PROBE))
    dom, said = chromium_run(program, ["--dump-dom", probed.as_uri()])
    assert not said, f"said on the console: {said}"
    seen = json.loads(html.unescape(re.search(r'<pre id="probe">(.*?)</pre>', dom, re.S).group(1)))
    assert not seen["errors"], seen["errors"]
    assert seen["card"] == seen["spelled"], seen
    by_device = {track["device"]: track for track in seen["tracks"]}
    for device in report["devices"]:
        track = by_device.get(device["device"])
        if track is None:
            assert device["events"] == 0, device
            continue
        assert track["peak"] == device["peak_allocated"], (track, device["peak_allocated"])
        if device["peak_event"] is not None:
            assert track["peakAt"] == device["peak_event"], (track, device["peak_event"])
        assert track["reserved"] == device["peak_reserved"], (track, device["peak_reserved"])
        assert track["allocated"] == device["end"]["allocated"], (track, device["end"]["allocated"])
        assert track["held"] == device["end"]["reserved"], (track, device["end"]["reserved"])
        assert (track["events"], track["failed"]) == (device["events"], device["ooms"]), track
    shown = max(seen["tracks"], key=lambda track: track["peak"])
    assert (seen["tab"], seen["focus"]) == ("time", "time-canvas"), seen
    if shown["blocks"]:
        assert seen["time"] > 3, "the chart is empty"
        assert seen["atPeak"] and seen["zoomed"] and seen["oneOn"] == min(1, shown["before"] + shown["events"] - 1), seen
        assert seen["chosen"] is not None and "at 0x" in seen["told"], seen
        assert seen["flame"] >= 2 and seen["flameBytes"] == seen["liveBytes"], seen
        assert seen["segments"] >= 1 and seen["overfull"] == 0 and seen["outside"] == 0, seen
    assert ("No request failed" in seen["oom"]) == (shown["failed"] == 0), seen["oom"]
    assert seen["cleared"] and "stacks" in seen["found"] and seen["theme"] == "dark", seen
    assert (seen["printed"], seen["afterwards"]) == (5, 1), seen
    if pictures:
        for view in ["summary", "time", "flame", "map", "oom"]:
            picture = pictures / f"{snapshot.name.split('.pickle')[0]}.{view}.png"
            chromium_run(program, [f"--screenshot={picture}", f"{page.as_uri()}#{view}"])
    print(f"{snapshot.name}: {page.stat().st_size >> 10} KiB, {shown['events']} events, peak {seen['card']}, as reported", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("anyaccel")
    parser.add_argument("snapshot", nargs="+", type=pathlib.Path)
    parser.add_argument("--pictures", type=pathlib.Path, help="keep a picture of every view here")
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("chromium-browser"))
    given = parser.parse_args()
    if not given.chromium:
        sys.exit("check.py: there is no chromium: install it, or name one with --chromium")
    if given.pictures:
        given.pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for snapshot in given.snapshot:
            check(given.chromium, given.anyaccel, snapshot, pathlib.Path(folder), given.pictures)
    print(f"{len(given.snapshot)} pages checked")


if __name__ == "__main__":
    main()
