"""Nothing is left of what is used and dropped, however often: no memory of a device or pinned memory, no memory of the
process, no thread, no open file.

Memory of the process is what the C library's allocator has given out, in bytes: both this package and the runtime take theirs
from it. One object lost per use is 32 bytes at least, which many uses show among whatever else comes and goes.
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch_anyaccel

pytestmark = pytest.mark.skipif(os.environ["ANYACCEL_BACKEND"] != "host", reason="drivers keep memory of their own")

USES = 300
LEAST = 24  # bytes per use: less than the least that malloc gives


class Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def allocated() -> Callable[[], int] | None:
    """Bytes that malloc has given out; None where that can't be told."""
    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return None
    mallinfo2.restype = Mallinfo2

    def ask() -> int:
        info = mallinfo2()
        return info.uordblks + info.hblkhd

    kept = ctypes.CDLL(None).malloc
    kept.restype = ctypes.c_void_p
    before = ask()
    block = kept(1 << 20)
    told = ask() - before >= 1 << 20
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    free(block)
    return ask if told else None  # a sanitizer's malloc tells nothing


ALLOCATED = allocated()


def held(device: torch.device) -> dict[str, int]:
    """What the process has of everything that is counted."""
    torch.accelerator.synchronize(device)
    gc.collect()
    module = torch.get_device_module(device)
    stats = module.memory_stats(device)
    pinned_blocks, pinned_bytes = pinned_memory(device)
    return {
        "device bytes": stats["allocated_bytes.all.current"],
        "device blocks": stats["allocation.all.current"],
        "device segments": stats["segment.all.current"],
        "pinned blocks": pinned_blocks,
        "pinned bytes": pinned_bytes,
        "threads": len(os.listdir("/proc/self/task")),
        "files": len(os.listdir("/proc/self/fd")),
    }


class HostMemoryStats(ctypes.Structure):
    """The beginning of anyaccel_host_memory_stats; a stat is current, peak, allocated and freed."""

    _fields_ = [("struct_size", ctypes.c_uint32), ("reserved", ctypes.c_uint32)] + [
        (name, ctypes.c_int64 * 4)
        for name in "allocations allocated_bytes active_requests active_bytes requested_bytes".split()
    ] + [("rest", ctypes.c_int64 * 12)]


def pinned_memory(device: torch.device) -> tuple[int, int]:
    """Blocks and bytes of pinned memory in use. Asking frees what was dropped and whose copies have ended."""
    library = ctypes.CDLL(str(Path(torch_anyaccel.__file__).with_name("libanyaccel.so")))
    stats = HostMemoryStats(struct_size=ctypes.sizeof(HostMemoryStats))
    for _ in range(3):
        assert library.anyaccel_get_host_memory_stats(ctypes.c_int32(device.index), ctypes.byref(stats)) == 0
        torch.accelerator.synchronize(device)
    return stats.active_requests[0], stats.active_bytes[0]


def fails(error: type[Exception], use: Callable[[], object]) -> None:
    try:
        use()
    except error:
        return
    raise AssertionError(f"no {error.__name__}")


def tensors(device: torch.device) -> None:
    x = torch.ones(100, device=device)
    y = x[10:].t().clone().to(torch.float64)
    x.resize_(1000).zero_()
    assert (y + 1).sum().item() == 180


def pinned(device: torch.device) -> None:
    x = torch.ones(100).pin_memory()
    y = x.to(device, non_blocking=True)
    y.to("cpu", non_blocking=True)


def events(device: torch.device) -> None:
    stream = torch.accelerator.current_stream(device.index)
    first, second = torch.Event(device, enable_timing=True), torch.Event(device)
    first.record(stream)
    second.record(stream)
    stream.wait_event(first)
    second.synchronize()
    torch.Event(device)  # never recorded


def streams(device: torch.device) -> None:
    before = torch.accelerator.current_stream(device.index)
    with torch.Stream(device) as stream:
        x = torch.zeros(10, device=device)
    before.wait_stream(stream)
    x.record_stream(before)
    x.add_(1)


def host_functions(device: torch.device) -> None:
    module = torch.get_device_module(device)
    x = torch.zeros(10, device=device)
    module.host_function(lambda: x)
    module.host_function(threading.Event().set)
    module.synchronize(device)


def failing_host_functions(device: torch.device) -> None:
    def fail() -> None:
        raise ValueError("on purpose")

    torch.get_device_module(device).host_function(fail)
    fails(RuntimeError, lambda: torch.accelerator.synchronize(device))


def generators(device: torch.device) -> None:
    generator = torch.Generator(device).manual_seed(3)
    x = torch.rand(100, device=device, generator=generator)
    generator.set_state(generator.get_state())
    generator.clone_state()
    torch.nn.functional.dropout(x, 0.5)
    torch.multinomial(x, 3, generator=generator)


def graphs(device: torch.device) -> None:
    x, y = torch.zeros(10, device=device), torch.ones(10).pin_memory()
    graph = torch.accelerator.Graph()
    with torch.Stream(device), graph:
        x.copy_(y, non_blocking=True)
        x.mul_(2)
        x.uniform_()
        y = x + 1  # in memory of the graph's own
    graph.replay()
    graph.replay()
    del y


def abandoned_captures(device: torch.device) -> None:
    def capture() -> None:
        with torch.Stream(device), torch.accelerator.Graph():
            torch.zeros(3, device=device).add(1).sum().item()

    fails(RuntimeError, capture)


def failures(device: torch.device) -> None:
    fails(RuntimeError, lambda: torch.ones(2, device=device) + torch.ones(3, device=device))
    fails(torch.OutOfMemoryError, lambda: torch.empty(1 << 50, device=device))
    fails(IndexError, lambda: torch.ones(3, device=device)[torch.tensor([9], device=device)])


def backward(device: torch.device) -> None:
    x = torch.ones(10, device=device, requires_grad=True)
    (x * x).sum().backward()
    x.grad.sum().item()


def threads(device: torch.device) -> None:
    def work() -> None:
        with torch.Stream(device):
            torch.ones(10, device=device).add_(1).sum().item()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


GRAPHS = {"graphs": (graphs, 50), "abandoned captures": (abandoned_captures, 50)} if hasattr(torch.accelerator, "Graph") else {}
KINDS = {
    "tensors": (tensors, USES),
    "pinned memory": (pinned, USES),
    "events": (events, USES),
    "streams": (streams, USES),
    "host functions": (host_functions, USES),
    "host functions that fail": (failing_host_functions, 50),
    "generators": (generators, USES),
    "failures": (failures, 50),
    "backward": (backward, 100),
    "threads": (threads, 100),
    **GRAPHS,
}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_of(device: torch.device, kind: str) -> None:
    use, uses = KINDS[kind]

    def many() -> int:
        for _ in range(uses):
            use(device)
        torch.accelerator.synchronize(device)
        gc.collect()
        return ALLOCATED() if ALLOCATED else 0

    # What is lost is lost each time; caches fill, and threads start, only once.
    rounds = []
    bytes_before, counted_before = many(), held(device)
    for _ in range(10):
        grown, counted = many() - bytes_before, held(device)
        if grown < LEAST * uses and counted == counted_before:
            return
        rounds.append((grown, {name: counted[name] - counted_before[name] for name in counted}))
        bytes_before, counted_before = bytes_before + grown, counted
    raise AssertionError(f"{uses} uses leave bytes, and what is counted, each time: {rounds}")
