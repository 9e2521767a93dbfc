"""The conformance suite on the real driver, in several runs, so that one that dies leaves the others."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rows import FAIL, FOLDER, PASS, PATIENCE, SHORT, Rows

PROGRAM = str(FOLDER / "anyaccel")
# Cases of one run, about.
MOST = 45
# Runs at a time: cases start a device and let go of it, which is most of their time on a card.
TOGETHER = 4 if (os.cpu_count() or 1) >= 8 else 1
# Cases that count what is free, take all of it, or look at the clock.
ALONE = frozenset("caching limits memory peers pinned pools progress reuse statistics telemetry time virtual_memory".split())
# Kept short: the whole suite is run elsewhere on the driver that a dry run has.
SHORT_GROUPS = ("discovery", "memory", "copy", "events", "kernels")


def sizes() -> dict[str, int]:
    """Beginnings of the names of cases, and how many there are of each."""
    command = [PROGRAM, "cts", "--list", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60 * PATIENCE, check=True)
    names = {name for promise in json.loads(done.stdout)["promises"] for name in promise["cases"]}
    counts = Counter(name.partition(".")[0] for name in names)
    return {name: count for name, count in sorted(counts.items()) if not SHORT or name in SHORT_GROUPS}


def groups(counts: dict[str, int], most: int) -> list[list[str]]:
    """What is run together."""
    together: list[list[str]] = []
    total = most
    for name, count in counts.items():
        if total + count > most:
            together.append([])
            total = 0
        together[-1].append(name)
        total += count
    return together


def report(rows: Rows, name: str, document: dict[str, Any]) -> None:
    counts: Counter[str] = Counter()
    for part in document["reports"]:
        counts.update(case["verdict"] for case in part["cases"])
        problems = list(part["complaints"])
        if part["absent"]:
            problems.append(f"no device: {part['absent']}")
        for problem in problems:
            rows.add(name, FAIL, str(problem))
        for case in part["cases"]:
            if case["verdict"] in ("fail", "stale"):
                why = case.get("reason") or f"{case.get('rule')}: expected {case.get('expected')}, seen {case.get('seen')}"
                rows.add(case["id"], FAIL, " ".join(str(why).split())[:300])
    text = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    rows.add(name, PASS if document["ok"] and counts["pass"] else FAIL, text, **counts)


def run(rows: Rows, together: list[str], end: float) -> dict[str, Any] | None:
    name = " ".join(together)
    left = end - time.monotonic()
    if left < 5:
        rows.add(name, FAIL, "no time left")
        return None
    command = [PROGRAM, "cts", "--backend", "cuda", "--require", "cuda", "--timeout", str(round(30 * PATIENCE)), "--json"]
    command += [part for group in together for part in ("--filter", f"{group}.*")]
    log = rows.out / f"conformance-{together[0]}.stderr"
    with log.open("w") as errors, rows.part(name):
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=left)
        except subprocess.TimeoutExpired:
            rows.add(name, FAIL, f"still running after {left:.0f} s")
            return None
        try:
            document: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            said = " ".join((done.stdout + log.read_text()).split())[-300:]
            rows.add(name, FAIL, f"exit status {done.returncode}: {said}")
            return None
        report(rows, name, document)
        return document
    return None


def main(seconds: float) -> None:
    rows = Rows("conformance")
    # Before the section is ended, so that what is still running becomes a row.
    end = time.monotonic() + seconds - 4
    counts = sizes()
    shared = groups({name: count for name, count in counts.items() if name not in ALONE}, MOST)
    alone = groups({name: count for name, count in counts.items() if name in ALONE}, MOST)
    with ThreadPoolExecutor(TOGETHER) as runs:
        documents = list(runs.map(lambda together: run(rows, together, end), shared))
    documents += [run(rows, together, end) for together in alone]
    rows.details("conformance", [document for document in documents if document])


if __name__ == "__main__":
    os.environ.setdefault("RUST_BACKTRACE", "1")
    main(float(sys.argv[1]))
