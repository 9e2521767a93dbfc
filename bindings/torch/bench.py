"""How long the device's smallest operations take, beside what PyTorch 2.14 takes.

    python bindings/torch/bench.py
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

os.environ.setdefault("ANYACCEL_BACKEND", "host")

import torch

NAME = torch._C._get_privateuse1_backend_name()
COUNT = 200
REPEATS = 2000


def nanoseconds(body: Callable[[int], object], repeats: int = REPEATS) -> float:
    """Of one turn of the body's loop: the best of many short runs, which other work on the machine leaves alone."""
    best = float("inf")
    for _ in range(repeats):
        begin = time.perf_counter_ns()
        body(COUNT)
        best = min(best, time.perf_counter_ns() - begin)
    return best / COUNT


def empty_and_drop(count: int, device: torch.device = torch.device(NAME, 0)) -> None:
    empty = torch.empty
    for _ in range(count):
        empty(256, device=device)


def empty_on_the_cpu(count: int) -> None:
    empty_and_drop(count, torch.device("cpu"))


def current_device(count: int) -> None:
    current = torch.accelerator.current_device_index
    for _ in range(count):
        current()


def current_stream(count: int) -> None:
    current = torch.accelerator.current_stream
    for _ in range(count):
        current()


def set_stream(count: int) -> None:
    set_, stream = torch.accelerator.set_stream, torch.accelerator.current_stream()
    for _ in range(count):
        set_(stream)


def with_stream(count: int) -> None:
    stream = torch.Stream(NAME)
    for _ in range(count):
        with stream:
            pass


def with_device(count: int) -> None:
    index = torch.accelerator.device_index
    for _ in range(count):
        with index(0):
            pass


def add_by_the_cpu(count: int) -> None:
    x = torch.ones(256, device=NAME)
    for _ in range(count):
        x + x


# Nanoseconds: allocation on CUDA, the functions of torch.accelerator over a runtime that does nothing, on one machine.
PYTORCH = [
    ("torch.empty(256) and drop", empty_and_drop, 1940.0),
    ("current_device_index()", current_device, 172.0),
    ("current_stream()", current_stream, 579.0),
    ("set_stream(s)", set_stream, 257.0),
    ("with stream:", with_stream, 835.0),
    ("with device_index(0):", with_device, 762.0),
]


def main() -> int:
    print(f"PyTorch {torch.__version__}, {torch.get_device_module(NAME).get_device_name(0)}")
    late = 0
    for name, body, goal in PYTORCH:
        ours = nanoseconds(body)
        late += ours > goal
        print(f"{name:28} {ours:8.0f} ns   {ours / goal:5.2f} of PyTorch's {goal:.0f} ns")
    cpu = nanoseconds(empty_on_the_cpu)
    print(f"{'torch.empty(256) on the CPU':28} {cpu:8.0f} ns")
    print(f"{'x + x by the CPU, 256':28} {nanoseconds(add_by_the_cpu, 200):8.0f} ns")
    return late if "--check" in sys.argv else 0


if __name__ == "__main__":
    raise SystemExit(main())
