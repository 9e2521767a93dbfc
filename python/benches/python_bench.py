"""Prints what calls from Python cost, beside torch.accelerator's if torch can be imported.

    ANYACCEL_BACKEND=host python benches/python_bench.py

Each figure is the best of several repetitions, per call, without the loop around it.
"""

import os
import subprocess
import sys
import timeit

os.environ.setdefault("ANYACCEL_BACKEND", "host")

import anyaccel
from anyaccel import accelerator as ours

try:
    import torch

    theirs = torch.accelerator if torch.accelerator.is_available() else None
except ImportError:
    torch = theirs = None


def cost(statement, names, setup="pass"):
    """Nanoseconds of a statement."""

    def best(code):
        timer = timeit.Timer(code, setup, globals=dict(names))
        # Many short runs: the best of them meets a quiet moment of a busy machine.
        count = max(1, timer.autorange()[0] // 100)
        return min(timer.repeat(100, count)) / count * 1e9

    return best(statement) - (best("pass") if statement != "pass" else 0)


def start(module):
    """What the statements below name."""
    a = module.accelerator
    device = module.device(f"{a.current_accelerator().type}:0")
    kept = module.empty(256, device=device)
    return {
        "m": module,
        "a": a,
        "d": device,
        "kept": kept,
        "s": module.Stream(),
        "e": module.Event(),
        "guard": a.device_index(0),
        "u8": module.uint8,
    }


ROWS = [
    ("memory_stats()", "a.memory_stats()", 15_000),
    ("memory_allocated()", "a.memory_allocated()", 150),
    ("current_device_index()", "a.current_device_index()", 60),
    ("current_accelerator()", "a.current_accelerator()", 60),
    ("current_stream()", "a.current_stream()", 100),
    ("set_stream(s)", "a.set_stream(s)", 100),
    ("with stream:", "with s: pass", 250),
    ("with device_index(0):", "with a.device_index(0): pass", 250),
    ("is_available()", "a.is_available()", 100),
    ("device_count()", "a.device_count()", 100),
    ("allocate and drop 1 KiB", "m.empty(1024, dtype=u8, device=d)", 300),
    ("fill_ 1 KiB, enqueue", "kept.fill_(1.0)", None),
    ("event.record()", "e.record()", None),
    ("stream.synchronize(), idle", "s.synchronize()", None),
    ("get_memory_info()", "a.get_memory_info()", None),
    ("random.manual_seed(1)", "a.random.manual_seed(1)", None),
]


def seconds_of_import(module):
    """The best of several imports in fresh interpreters, less the interpreter itself."""

    def best(code):
        return min(timeit.repeat(lambda: subprocess.run([sys.executable, "-c", code], check=True), number=1, repeat=7))

    return best(f"import {module}") - best("pass")


def main():
    our_names = start(anyaccel)
    their_names = start(torch) if theirs else None
    print(f"{'':30} {'anyaccel':>12} {'goal':>10} {'torch':>12} {'ratio':>7}")
    for name, statement, goal in ROWS:
        mine = cost(statement, our_names)
        peer = cost(statement, their_names) if their_names and "manual_seed" not in name else None
        print(
            f"{name:30} {mine:9.0f} ns {f'{goal} ns' if goal else '':>10} "
            f"{f'{peer:9.0f} ns' if peer else 'n/a':>12} {f'{peer / mine:.1f}' if peer else 'n/a':>7}"
        )
    ours.synchronize()
    peer = seconds_of_import("torch") if torch else None
    print(
        f"{'import':30} {seconds_of_import('anyaccel') * 1e3:9.1f} ms {'20 ms':>10} "
        f"{f'{peer * 1e3:9.1f} ms' if peer else 'n/a':>12}"
    )


if __name__ == "__main__":
    main()
