#!/usr/bin/env python3
"""Run PyTorch's own tests of accelerators, unedited, on the anyaccel device.

    bindings/torch/tests/pytorch_own.py PYTORCH_CHECKOUT [FILE ...]

PYTORCH_CHECKOUT: a checkout of PyTorch of the release that is installed. Its test_accelerator.py and the tests of its example
device are run, each file in a process of its own, with the device named as that example's is. What fails is compared
with pytorch_own.toml, which gives a reason for each: a test that fails and isn't there, or is there and passes, is an
error. Tests that a checkout lacks, or has and skips, are no error.
"""

import argparse
import collections
import os
import signal
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXAMPLE = Path("test/cpp_extensions/open_registration_extension/torch_openreg/tests")
FILES = [
    Path("test/test_accelerator.py"),
    *(EXAMPLE / f"test_{name}.py" for name in "device event streams memory rng storage misc autograd utils ops".split()),
]
SETTINGS = {
    "ANYACCEL_TORCH_NAME": "openreg",
    "ANYACCEL_BACKEND": os.environ.get("ANYACCEL_BACKEND", "host"),
    "ANYACCEL_HOST_DEVICES": "2",
    "PYTORCH_PRINT_REPRO_ON_FAILURE": "0",
    "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE / "shim"), os.environ.get("PYTHONPATH")])),
}


def run(file: Path, limit: float) -> tuple[dict[str, tuple[str, str]], str | None]:
    """What became of each test, "passed", "failed" or "skipped" with what it said; and what ended the process early, if so."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.xml")
        command = [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", scratch, f"--junitxml={report}", str(file),
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, cwd=scratch, env={**os.environ, **SETTINGS}, timeout=limit, text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            said = error.stdout.decode(errors="replace") if error.stdout else ""
            return {}, f"no end after {limit:.0f} s\n{said[-2000:]}"
        if not report.exists():
            how = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit status {done.returncode}"
            return {}, f"{how}\n{done.stdout[-4000:]}"
        results = {}
        for case in ET.parse(report).iter("testcase"):
            name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
            worst, said = "passed", ""
            for what in case:
                if what.tag in ("failure", "error"):
                    worst, said = "failed", what.get("message") or ""
                elif what.tag == "skipped" and worst == "passed":
                    worst, said = "skipped", what.get("message") or ""
            results[name] = (worst, said)
        if not results:
            return {}, f"no test was found\n{done.stdout[-4000:]}"
        return results, None


def main() -> int:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("checkout", type=Path)
    ask.add_argument("files", nargs="*", help="only files of these names, such as test_event.py")
    ask.add_argument("--limit", type=float, default=600, help="seconds for one file (600)")
    arguments = ask.parse_args()
    expected = tomllib.loads((HERE / "pytorch_own.toml").read_text())
    by_chance = expected.pop("may fail", {})
    chosen = [f for f in FILES if not arguments.files or f.name in arguments.files]
    absent = [str(f) for f in chosen if not (arguments.checkout / f).is_file()]
    if absent or not chosen:
        print(f"pytorch_own: {arguments.checkout} has no {', '.join(absent or arguments.files)}", file=sys.stderr)
        return 2

    problems = []
    total = collections.Counter()
    for file in chosen:
        results, ended = run(arguments.checkout.resolve() / file, arguments.limit)
        reasons, chances = expected.get(file.name, {}), by_chance.get(file.name, {})
        counts = collections.Counter(state for state, _ in results.values())
        known = 0
        for name, (state, said) in results.items():
            if state == "failed" and (name in reasons or name in chances):
                known += 1
            elif state == "failed":
                problems.append(f"{file.name} {name} failed: {said.strip()[:600]}")
            elif state == "passed" and name in reasons:
                problems.append(f"{file.name} {name} passes, though pytorch_own.toml expects it to fail: {reasons[name]}")
        if ended:
            problems.append(f"{file.name}: {ended}")
        total.update(counts, expected=known)
        print(f"{file.name:22} {counts['passed']:3} passed, {counts['failed']:2} failed ({known} expected), {counts['skipped']:2} skipped")
    print(
        f"{total['passed']} passed, {total['failed']} failed ({total['expected']} expected), {total['skipped']} skipped"
        + (f"; {len(problems)} problems:" if problems else "")
    )
    for problem in problems:
        print(f"-- {problem}")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
