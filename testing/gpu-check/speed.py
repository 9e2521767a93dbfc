"""What calls cost, beside the bare driver and PyTorch. All in one process and one context, in turns."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from ctypes import byref, c_void_p, memset
from typing import Any

import driver
from rows import FOLDER, INFO, SHORT, SKIP, Rows, torch_or_reason

# Of a call of the driver.
MOST_OVERHEAD = 1.15
# Of its bandwidth.
LEAST_BANDWIDTH = 0.95
ROUNDS = 7 if SHORT else 25
CALLS = 100 if SHORT else 200
NODES = 8
LARGE = (16 << 20) if SHORT else (256 << 20)
COPIES = 3 if SHORT else 10

# Does so many calls and nothing else.
Calls = Callable[[int], None]


def times(call: Callable[[], object]) -> Calls:
    def calls(count: int) -> None:
        for _ in range(count):
            call()

    return calls


def measure(
    sides: dict[str, Calls], settle: Callable[[], None], calls: int, rounds: int, all_of_it: bool = False
) -> dict[str, float]:
    """The best of several rounds, in seconds a call; with `all_of_it` until the work is done."""
    best = dict.fromkeys(sides, float("inf"))
    for turn in range(rounds + 1):
        for name, run in sides.items():
            settle()
            begin = time.perf_counter()
            run(calls)
            if all_of_it:
                settle()
            spent = (time.perf_counter() - begin) / calls
            settle()
            # The first turn warms up.
            if turn > 0:
                best[name] = min(best[name], spent)
    return best


def line(best: dict[str, float], unit: float, suffix: str) -> str:
    figures = [f"{name} {spent * unit:.2f} {suffix}" for name, spent in best.items()]
    ratios = [f"{best['ours'] / spent:.2f}x {name}" for name, spent in best.items() if name != "ours"]
    return ", ".join(figures + ratios)


class Lab:
    """The three sides: this runtime's Python module, the driver, and PyTorch where it is."""

    def __init__(self, torch: Any) -> None:
        import anyaccel
        from anyaccel import accelerator

        self.module, self.accelerator, self.torch = anyaccel, accelerator, torch
        self.device = anyaccel.device("cuda", 0)
        self.stream, self.side = anyaccel.Stream(self.device), anyaccel.Stream(self.device)
        self.stream.__enter__()
        self.driver = driver.Driver()
        self.driver.enter()
        self.raw, self.raw_side = self.driver.stream(), self.driver.stream()
        if torch is not None:
            self.torch_stream, self.torch_side = torch.cuda.Stream(), torch.cuda.Stream()
            torch.cuda.set_stream(self.torch_stream)

    def settle(self) -> None:
        self.stream.synchronize()
        self.side.synchronize()
        self.driver.synchronize(self.raw)
        self.driver.synchronize(self.raw_side)
        if self.torch is not None:
            self.torch.cuda.synchronize()

    def sides(self, ours: Callable[[], object], bare: Callable[[], object], torch: Callable[[], object]) -> dict[str, Calls]:
        sides = {"ours": times(ours), "driver": times(bare)}
        if self.torch is not None:
            sides["torch"] = times(torch)
        return sides

    def empty(self, size: int) -> Any:
        return self.module.empty(size, dtype=self.module.uint8, device=self.device)

    def torch_empty(self, size: int, **options: Any) -> Any:
        if self.torch is None:
            return None
        return self.torch.empty(size, dtype=self.torch.uint8, **(options or {"device": "cuda"}))


def allocation(lab: Lab, rows: Rows) -> None:
    def bare() -> None:
        lab.driver("cuMemFree_v2", lab.driver.memory(1 << 20))

    sides = lab.sides(lambda: lab.empty(1 << 20), bare, lambda: lab.torch_empty(1 << 20))
    best = measure(sides, lab.settle, CALLS, ROUNDS)
    rows.add("alloc and free 1 MiB (Python)", INFO, line(best, 1e6, "us"), **best)


def launch(lab: Lab, rows: Rows) -> None:
    ours, theirs, address = lab.empty(4096), lab.torch_empty(4096), lab.driver.memory(4096)
    sides = lab.sides(
        ours.zero_, lambda: lab.driver("cuMemsetD8Async", address, 0, 4096, lab.raw), lambda: theirs.zero_()
    )
    best = measure(sides, lab.settle, CALLS, ROUNDS)
    rows.add("zero 4 KiB (Python)", INFO, line(best, 1e6, "us"), **best)


def events(lab: Lab, rows: Rows) -> None:
    ours, bare = lab.module.Event(lab.device), lab.driver.event()
    theirs: Any = lab.torch.cuda.Event() if lab.torch is not None else None
    sides = lab.sides(
        lambda: ours.record(lab.stream),
        lambda: lab.driver("cuEventRecord", bare, lab.raw),
        lambda: theirs.record(lab.torch_stream),
    )
    best = measure(sides, lab.settle, CALLS, ROUNDS)
    rows.add("event record (Python)", INFO, line(best, 1e6, "us"), **best)

    def bare_handover() -> None:
        lab.driver("cuEventRecord", bare, lab.raw)
        lab.driver("cuStreamWaitEvent", lab.raw_side, bare, 0)

    def handover(event: Any, stream: Any, side: Any) -> None:
        event.record(stream)
        side.wait_event(event)

    sides = lab.sides(
        lambda: handover(ours, lab.stream, lab.side),
        bare_handover,
        lambda: handover(theirs, lab.torch_stream, lab.torch_side),
    )
    best = measure(sides, lab.settle, CALLS, ROUNDS)
    rows.add("event record and wait (Python)", INFO, line(best, 1e6, "us"), **best)


def replay(lab: Lab, rows: Rows) -> None:
    to, source = lab.empty(4096), lab.empty(4096)
    to.copy_(source)
    lab.settle()
    graph = lab.accelerator.Graph()
    with graph:
        for _ in range(NODES):
            to.copy_(source)
    raw, exec_, a, b = c_void_p(), c_void_p(), lab.driver.memory(4096), lab.driver.memory(4096)
    lab.driver("cuStreamBeginCapture_v2", lab.raw, driver.THREAD_LOCAL)
    for _ in range(NODES):
        lab.driver("cuMemcpyDtoDAsync_v2", a, b, 4096, lab.raw)
    lab.driver("cuStreamEndCapture", lab.raw, byref(raw))
    lab.driver("cuGraphInstantiateWithFlags", byref(exec_), raw, 0)
    theirs: Any = None
    if lab.torch is not None:
        theirs, x, y = lab.torch.cuda.CUDAGraph(), lab.torch_empty(4096), lab.torch_empty(4096)
        with lab.torch.cuda.graph(theirs, stream=lab.torch_stream, capture_error_mode="thread_local"):
            for _ in range(NODES):
                x.copy_(y)
    sides = lab.sides(graph.replay, lambda: lab.driver("cuGraphLaunch", exec_, lab.raw), lambda: theirs.replay())
    best = measure(sides, lab.settle, 20, ROUNDS)
    rows.add(f"graph replay, {NODES} copies (Python)", INFO, line(best, 1e6, "us"), **best)
    best = measure(sides, lab.settle, 20, ROUNDS, all_of_it=True)
    rows.add(f"graph replay, {NODES} copies, to the end", INFO, line(best, 1e6, "us"), **best)


def copies(lab: Lab, rows: Rows) -> None:
    device = [lab.empty(LARGE), lab.empty(LARGE)]
    host = lab.module.empty(LARGE, dtype=lab.module.uint8, pin_memory=True)
    raw, raw_host = [lab.driver.memory(LARGE), lab.driver.memory(LARGE)], lab.driver.pinned(LARGE)
    torch = [lab.torch_empty(LARGE), lab.torch_empty(LARGE)]
    torch_host = lab.torch_empty(LARGE, pin_memory=True)
    # Pages that nobody wrote to may be one page, which is read faster.
    memset(raw_host, 1, LARGE)
    host.fill_(1)
    if lab.torch is not None:
        torch_host.fill_(1)

    def row(name: str, ours: Callable[[], object], bare: Callable[[], object], theirs: Callable[[], object]) -> None:
        best = measure(lab.sides(ours, bare, theirs), lab.settle, COPIES, ROUNDS, all_of_it=True)
        speeds = {side: LARGE / spent / 1e9 for side, spent in best.items()}
        share = speeds["ours"] / speeds["driver"]
        text = ", ".join(f"{side} {speed:.1f} GB/s" for side, speed in speeds.items())
        rows.goal(f"copy {LARGE >> 20} MiB {name}", share >= LEAST_BANDWIDTH, f"{text}; {share:.1%} of the driver", **speeds)

    call = lab.driver
    row(
        "to the device",
        lambda: device[0].copy_(host, non_blocking=True),
        lambda: call("cuMemcpyHtoDAsync_v2", raw[0], raw_host, LARGE, lab.raw),
        lambda: torch[0].copy_(torch_host, non_blocking=True),
    )
    row(
        "to the host",
        lambda: host.copy_(device[0], non_blocking=True),
        lambda: call("cuMemcpyDtoHAsync_v2", raw_host, raw[0], LARGE, lab.raw),
        lambda: torch_host.copy_(torch[0], non_blocking=True),
    )
    row(
        "on the device",
        lambda: device[0].copy_(device[1], non_blocking=True),
        lambda: call("cuMemcpyDtoDAsync_v2", raw[0], raw[1], LARGE, lab.raw),
        lambda: torch[0].copy_(torch[1], non_blocking=True),
    )


def native(rows: Rows, limit: float) -> None:
    """The path from the face to the driver against the driver, both in machine code: `backends/cuda/benches/cuda.rs`."""
    environment = {"ANYACCEL_CUDA_LIBRARY": "libcuda.so.1", **os.environ}
    done = subprocess.run([str(FOLDER / "overhead")], env=environment, capture_output=True, text=True, timeout=limit)
    if done.returncode != 0:
        raise RuntimeError(f"exit status {done.returncode}: {' '.join(done.stderr.split())[-300:]}")
    found = 0
    for words in map(str.split, done.stdout.splitlines()[1:]):
        name, (path, bare, adds) = words[0], map(float, words[1:4])
        ratio = path / bare
        text = f"path {path:.0f} ns, driver {bare:.0f} ns, adds {adds:.0f} ns, {ratio:.2f}x"
        # A graph's launch is the driver's own; the others have the same goal.
        rows.goal(f"{name} (native)", ratio <= MOST_OVERHEAD, text, path=path, driver=bare)
        found += 1
    rows.check("native rows", found >= 5, f"{found} of 5")


def main(seconds: float) -> None:
    rows = Rows("speed")
    with rows.part("native overhead"):
        native(rows, max(seconds / 2, 10))
    torch, reason = torch_or_reason()
    if torch is None:
        rows.add("against torch.cuda", SKIP, reason)
    lab = None
    with rows.part("start"):
        lab = Lab(torch)
    if lab is None:
        return
    for part in (copies, replay, events, launch, allocation):
        with rows.part(part.__name__):
            part(lab, rows)


if __name__ == "__main__":
    main(float(sys.argv[1]))
