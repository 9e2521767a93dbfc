#!/usr/bin/env python3
"""Checks this build on a machine with a card, in at most 8 minutes. See README.md.

Each section is a process with a time limit of its own; what it found before it died stays in the table.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import asdict
from pathlib import Path

from rows import FAIL, FOLDER, INFO, Row, read, table

# Seconds; the suite is last and has what the others leave.
SECTIONS = {"random": ("random_bits.py", 110), "memory": ("memory_statistics.py", 70), "speed": ("speed.py", 100)}
SUITE = "conformance"
TOTAL = 470
# The command, the wheel's module and what measures the native path.
NEEDED = ("anyaccel", "overhead")


def unpack(to: Path) -> None:
    """Puts the wheel where it can be imported, without an installer."""
    wheels = sorted(FOLDER.glob("*.whl"))
    missing = [name for name in NEEDED if not (FOLDER / name).exists()]
    if len(wheels) != 1 or missing:
        sys.exit(f"{FOLDER} has {len(wheels)} wheels and lacks {missing or 'nothing'}: run the copy that `pack` made")
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(to)
    for name in NEEDED:
        (FOLDER / name).chmod(0o755)


def section(name: str, script: str, limit: float, environment: dict[str, str]) -> None:
    """Runs a section, and adds a row if it did not end as it should."""
    out = Path(environment["GPU_CHECK_OUT"])
    began = time.monotonic()
    command = [sys.executable, "-X", "faulthandler", str(FOLDER / script), str(limit)]
    with (out / f"{name}.stderr").open("w") as errors:
        # A group of its own: what it started ends with it.
        process = subprocess.Popen(command, env=environment, stderr=errors, start_new_session=True)
        try:
            status = process.wait(limit + 2)
            problem = f"exit status {status}, see {name}.stderr" if status else ""
        except subprocess.TimeoutExpired:
            problem = f"ended after {limit:.0f} s"
        except KeyboardInterrupt:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    file = out / f"{name}.jsonl"
    if not problem and not read(file):
        problem = "found nothing"
    spent = time.monotonic() - began
    row = Row(name, "the section itself", FAIL if problem else INFO, problem or f"{spent:.0f} s of {limit:.0f}")
    with file.open("a") as rows:
        rows.write(json.dumps(asdict(row)) + "\n")


def machine(environment: dict[str, str]) -> dict[str, str]:
    """What this is about, for whoever reads the figures later."""
    code = "import torch; print(torch.__version__, torch.version.cuda)"
    asked = {
        "anyaccel": [str(FOLDER / "anyaccel"), "info"],
        "torch": [sys.executable, "-c", code],
        "card": ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.sm", "--format=csv,noheader"],
    }
    told = {"python": platform.python_version(), "system": platform.platform()}
    for name, command in asked.items():
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20)
            told[name] = done.stdout.strip() if done.returncode == 0 else (done.stderr.strip().splitlines() or ["?"])[-1]
        except (OSError, subprocess.TimeoutExpired) as error:
            told[name] = str(error)
    return told


def main() -> int:
    begin = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=os.environ.get("OUT") or "out", help="where results go [default: $OUT or out]")
    parser.add_argument("--only", action="append", choices=[*SECTIONS, SUITE], help="this section; repeatable")
    parser.add_argument("--short", action="store_true", help="few cases, small sizes")
    parser.add_argument("--patience", type=float, default=1, metavar="N", help="N times the time, for a busy machine")
    parser.add_argument("--no-goals", action="store_true", help="report speed, and judge it not")
    options = parser.parse_args()
    out = Path(options.out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    chosen = options.only or [*SECTIONS, SUITE]
    for name in [*SECTIONS, SUITE]:
        (out / f"{name}.jsonl").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as modules:
        unpack(Path(modules))
        environment = {
            **os.environ,
            "GPU_CHECK_OUT": str(out),
            "GPU_CHECK_SHORT": "1" if options.short else "0",
            "GPU_CHECK_PATIENCE": str(options.patience),
            "GPU_CHECK_GOALS": "0" if options.no_goals else "1",
            "PYTHONPATH": os.pathsep.join(filter(None, [modules, os.environ.get("PYTHONPATH")])),
            "PYTHONUNBUFFERED": "1",
            "ANYACCEL_BACKEND": "cuda",
            # The driver keeps here what it compiled: many processes load the same kernels.
            "CUDA_CACHE_PATH": os.environ.get("CUDA_CACHE_PATH") or str(Path(modules, "compiled")),
        }
        about = machine(environment)
        print("\n".join(f"{name}: {text.splitlines()[0] if text else ''}" for name, text in about.items()))
        for name, (script, limit) in SECTIONS.items():
            if name in chosen:
                section(name, script, limit * options.patience, environment)
        if SUITE in chosen:
            section(SUITE, f"{SUITE}.py", max(TOTAL * options.patience - (time.monotonic() - begin), 10), environment)
    rows = [row for name in [SUITE, *SECTIONS] for row in read(out / f"{name}.jsonl")]
    failed = [row for row in rows if row.verdict == FAIL]
    counts = {verdict: sum(row.verdict == verdict for row in rows) for verdict in ("PASS", "FAIL", "SKIP", "INFO")}
    result = {"schema": "anyaccel.gpu-check.v1", "ok": not failed, "machine": about, "rows": [asdict(row) for row in rows]}
    (out / "gpu-check.json").write_text(json.dumps(result, indent=1))
    text = table(rows)
    (out / "table.txt").write_text(text + "\n")
    print("\n" + text)
    print(f"\n{json.dumps(counts)} in {time.monotonic() - begin:.0f} s; all of it in {out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
