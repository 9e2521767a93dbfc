"""The conformance suite on the real driver, in several runs, so that one that dies leaves the others."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from typing import Any

from rows import FAIL, FOLDER, PASS, PATIENCE, SHORT, Rows

PROGRAM = str(FOLDER / "anyaccel")
# Cases of one run, about.
MOST = 60
# Kept short: the whole suite is run elsewhere on the driver that a dry run has.
SHORT_GROUPS = ("discovery", "memory", "copy", "events", "kernels")


def groups() -> list[list[str]]:
    """Beginnings of the names of cases, in groups that are run together."""
    done = subprocess.run([PROGRAM, "cts", "--list", "--json"], capture_output=True, text=True, timeout=60 * PATIENCE, check=True)
    names = {name for promise in json.loads(done.stdout)["promises"] for name in promise["cases"]}
    sizes = Counter(name.partition(".")[0] for name in names)
    if SHORT:
        sizes = Counter({name: size for name, size in sizes.items() if name in SHORT_GROUPS})
    together: list[list[str]] = []
    total = MOST
    for name in sorted(sizes):
        if total + sizes[name] > MOST:
            together.append([])
            total = 0
        together[-1].append(name)
        total += sizes[name]
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


def main(seconds: float) -> None:
    rows = Rows("conformance")
    end = time.monotonic() + seconds
    documents = []
    for together in groups():
        name = " ".join(together)
        left = end - time.monotonic()
        if left < 5:
            rows.add(name, FAIL, "no time left")
            continue
        command = [PROGRAM, "cts", "--backend", "cuda", "--require", "cuda", "--timeout", str(round(30 * PATIENCE)), "--json"]
        command += [part for group in together for part in ("--filter", f"{group}.*")]
        log = rows.out / f"conformance-{together[0]}.stderr"
        with log.open("w") as errors, rows.part(name):
            try:
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=left)
            except subprocess.TimeoutExpired:
                rows.add(name, FAIL, f"still running after {left:.0f} s")
                continue
            try:
                document = json.loads(done.stdout)
            except ValueError:
                said = " ".join((done.stdout + log.read_text()).split())[-300:]
                rows.add(name, FAIL, f"exit status {done.returncode}: {said}")
                continue
            documents.append(document)
            report(rows, name, document)
    rows.details("conformance", documents)


if __name__ == "__main__":
    os.environ.setdefault("RUST_BACKTRACE", "1")
    main(float(sys.argv[1]))
