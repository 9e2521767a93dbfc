"""Order between streams, devices, threads and seeds, and of what is given back meanwhile: each promise with work held by a gate.

What has to wait for a gate itself (an operator that the CPU computes) runs on a thread of its own, and the gate is opened once
that thread has reached its stream: nothing here depends on how long anything takes.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
import torch

N = 1 << 12


def full(value: float, n: int = N, device: torch.device | None = None) -> torch.Tensor:
    """Pinned memory, for a device if one is named: copies of another with it wait."""
    index = torch.accelerator.current_device_index() if device is None else device.index
    with torch.accelerator.device_index(index):
        return torch.full((n,), float(value)).pin_memory()


def on(device: torch.device, value: float = 0.0, n: int = N) -> torch.Tensor:
    tensor = torch.full((n,), float(value), device=device)
    torch.accelerator.synchronize(device)
    return tensor


def values(*tensors: torch.Tensor) -> list[list[float]]:
    return [tensor.unique().tolist() for tensor in tensors]


def host_function(function: Callable[[], object], stream: torch.Stream) -> None:
    torch.get_device_module(stream.device).host_function(function, stream)


def until(condition: Callable[[], bool]) -> None:
    for _ in range(600_000):
        if condition():
            return
        time.sleep(1e-4)  # gives other threads their turn
    raise AssertionError("it never came")


class Thread(threading.Thread):
    """One whose failure is the test's."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__()
        self._work, self.error = work, None
        self.start()

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # told by done()
            self.error = error

    def done(self) -> None:
        self.join(60)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error


# Operators that the CPU computes.


@pytest.mark.parametrize("in_place", [False, True])
def test_the_cpu_computes_after_a_copy_on_another_stream(device: torch.device, gate, in_place: bool) -> None:
    first, second = torch.Stream(device), torch.Stream(device)
    x, seen = on(device), full(0)
    given = full(2)
    shut = gate(first)
    with first:
        x.copy_(given, non_blocking=True)

    def compute() -> None:
        with second:
            second.wait_stream(first)
            y = x.add_(1) if in_place else x + 1
            seen.copy_(y, non_blocking=True)

    thread = Thread(compute)
    until(lambda: not second.query())
    shut.open()
    thread.done()
    second.synchronize()
    assert values(seen) == [[3]]


def test_what_the_cpu_computed_comes_before_what_follows_on_other_streams(device: torch.device, gate) -> None:
    """The result is written in the order of the stream, which is held once the operator has been computed."""
    first, second = torch.Stream(device), torch.Stream(device)
    x, y, seen = on(device, 5), on(device), full(0)
    with first:
        z = x * 2
        y.copy_(z)
        del z
        shut = gate(first)
        y.zero_()
        y.copy_(x)
    second.wait_stream(first)
    with second:
        seen.copy_(y, non_blocking=True)
    assert not second.query()
    shut.open()
    second.synchronize()
    assert values(seen) == [[5]]


def test_a_conversion_between_devices_waits_for_the_device_that_it_reads(two_devices, gate) -> None:
    here, there = two_devices
    a, b = torch.Stream(here), torch.Stream(there)
    x, y, seen = on(here), on(there).to(torch.float64), full(0)
    given = torch.full((N,), 4.0, dtype=torch.float64)
    shut = gate(b)

    def convert() -> None:
        with a, b:
            y.copy_(given, non_blocking=True)
            x.copy_(y)
            seen.copy_(x, non_blocking=True)

    thread = Thread(convert)
    until(lambda: not b.query())
    shut.open()
    thread.done()
    a.synchronize()
    assert values(seen) == [[4]]


# Fills, conversions, storages that change.


def test_fills_take_their_value_along(device: torch.device, gate) -> None:
    stream = torch.Stream(device)
    x = on(device)
    seen = [full(-1) for _ in range(20)]
    shut = gate(stream)
    with stream:
        for number, to in enumerate(seen):
            x.fill_(number)
            to.copy_(x, non_blocking=True)
    assert values(*seen) == [[-1]] * 20
    shut.open()
    stream.synchronize()
    assert values(*seen) == [[number] for number in range(20)]


def test_a_storage_that_grows_takes_what_is_still_to_come(device: torch.device, gate) -> None:
    stream = torch.Stream(device)
    x, seen, given = on(device), full(-1), full(6)
    shut = gate(stream)
    with stream:
        x.copy_(given, non_blocking=True)
        x.resize_(64 * N)  # moves
        others = [torch.empty(N, device=device).fill_(-2) for _ in range(4)]
        seen.copy_(x[:N], non_blocking=True)
    shut.open()
    stream.synchronize()
    assert values(seen, *others) == [[6]] + [[-2]] * 4


# Memory that is given back.


def test_a_view_of_pinned_memory_keeps_it(device: torch.device, gate) -> None:
    stream = torch.Stream(device)
    x = on(device, 0, 10)
    shut = gate(stream)
    with stream:
        x.copy_(torch.arange(30.0).pin_memory()[10:20], non_blocking=True)
    noise = [torch.full((30,), -1.0).pin_memory() for _ in range(4)]
    shut.open()
    stream.synchronize()
    assert x.tolist() == list(range(10, 20)) and values(*noise) == [[-1]] * 4


def test_memory_pinned_for_another_device_is_the_callers_again_when_a_copy_returns(two_devices, gate) -> None:
    here, there = two_devices
    given, seen = full(5, device=here), full(0, device=here)
    stream = torch.Stream(there)
    x = on(there)
    reached = threading.Event()
    shut = gate(stream)

    def copy() -> None:
        with stream:
            reached.set()
            x.copy_(given, non_blocking=True)
        given.fill_(-1)
        with stream:
            seen.copy_(x, non_blocking=True)
            stream.synchronize()

    thread = Thread(copy)
    assert reached.wait(60)
    shut.open()
    thread.done()
    assert values(seen) == [[5]]


def test_record_stream_of_several_streams_and_of_a_view(device: torch.device, gate) -> None:
    streams = [torch.Stream(device) for _ in range(3)]
    shut = [gate(stream) for stream in streams]
    x = torch.full((N,), 1.0, device=device)
    address = x.data_ptr()
    for stream in streams:
        x[7:9].record_stream(stream)
    del x
    for one, stream in zip(shut, streams, strict=True):
        assert torch.empty(N, device=device).data_ptr() != address
        one.open()
        stream.synchronize()
    assert address in [tensor.data_ptr() for tensor in [torch.empty(N, device=device) for _ in range(4)]]


def test_memory_of_one_device_that_another_still_reads_is_not_reused(two_devices, gate) -> None:
    here, there = two_devices
    stream = torch.Stream(there)
    x, seen = on(here, 8), full(0, device=there)
    address = x.data_ptr()
    ours = torch.Stream(here)
    shut = gate(stream)
    with ours, stream:
        y = torch.empty(N, device=there)
        y.copy_(x, non_blocking=True)
    del x
    others = [torch.full((N,), -1.0, device=here) for _ in range(4)]
    assert address not in [other.data_ptr() for other in others]
    with stream:
        seen.copy_(y, non_blocking=True)
    shut.open()
    stream.synchronize()
    assert values(seen, *others) == [[8]] + [[-1]] * 4


def test_the_last_owner_of_memory_may_be_a_function_of_the_host(device: torch.device, gate) -> None:
    """Which ends on a thread of the runtime, where it gives back tensors, pinned memory, events, graphs and generators."""
    stream = torch.Stream(device)
    module = torch.get_device_module(device)
    before = module.memory_allocated(device)
    owned: list[object] = [on(device), full(1), stream.record_event(), torch.Generator(device)]
    if hasattr(torch.accelerator, "Graph"):
        x, graph = on(device), torch.accelerator.Graph()
        with torch.Stream(device), graph:
            x += 1
        owned += [graph, x]
        del x, graph
    called: list[int] = []
    shut = gate(stream)
    host_function(lambda owned=tuple(owned): called.append(len(owned)), stream)
    count = len(owned)
    del owned
    gc.collect()
    assert module.memory_allocated(device) > before
    shut.open()
    stream.synchronize()
    assert called == [count]

    def is_given_back() -> bool:
        torch.empty(1, device=device)  # what ended on other threads is taken in by the next use
        return module.memory_allocated(device) == before

    until(is_given_back)


# Events, threads, whole devices.


def test_a_wait_is_for_the_recording_of_then(device: torch.device, gate) -> None:
    first, second, idle = (torch.Stream(device) for _ in range(3))
    x, given, seen = on(device), full(3), full(0)
    shut = gate(first)
    with first:
        x.copy_(given, non_blocking=True)
    event = first.record_event()
    second.wait_event(event)
    event.record(idle)
    event.synchronize()
    del event
    with second:
        seen.copy_(x, non_blocking=True)
    assert not second.query()
    shut.open()
    second.synchronize()
    assert values(seen) == [[3]]


def test_events_order_devices_and_threads(two_devices, gate) -> None:
    """A thread writes on one device and records; another waits on the other device, and reads there."""
    here, there = two_devices
    x, y, seen, given = on(here), on(there), full(0, device=there), full(9, device=here)
    posted: list[torch.Event] = []
    ready = threading.Event()
    first, second = torch.Stream(here), torch.Stream(there)
    shut = gate(first)

    def write() -> None:
        with first:
            x.copy_(given, non_blocking=True)
            posted.append(first.record_event())
        ready.set()

    def read() -> None:
        assert ready.wait(60)
        second.wait_event(posted[0])
        with second:
            y.copy_(x, non_blocking=True)  # behind the stream of the other device that is current here, too
            seen.copy_(y, non_blocking=True)

    threads = [Thread(read), Thread(write)]
    for thread in threads:
        thread.done()
    assert not second.query() and values(seen) == [[0]]
    shut.open()
    second.synchronize()
    assert values(seen) == [[9]]


def test_many_threads_wait_for_one_event(device: torch.device, gate) -> None:
    stream = torch.Stream(device)
    given, seen = full(1), full(0)
    x = on(device)
    shut = gate(stream)
    with stream:
        x.copy_(given, non_blocking=True)
        seen.copy_(x, non_blocking=True)
    event = stream.record_event()
    got: list[list[list[float]]] = []

    def wait() -> None:
        event.synchronize()
        assert event.query()
        got.append(values(seen))

    threads = [Thread(wait) for _ in range(4)]
    shut.open()
    for thread in threads:
        thread.done()
    assert got == [[[1]]] * 4


def test_a_device_waits_for_all_of_its_own_streams_only(two_devices, gate) -> None:
    here, there = two_devices
    streams = [torch.Stream(here) for _ in range(3)]
    xs, given, seen = [on(here) for _ in streams], full(2), [full(0) for _ in streams]
    held = gate(torch.Stream(there))
    shut = [gate(stream) for stream in streams]
    for stream, x, to in zip(streams, xs, seen, strict=True):
        with stream:
            x.copy_(given, non_blocking=True)
            to.copy_(x, non_blocking=True)
    thread = Thread(lambda: torch.accelerator.synchronize(here))
    for one in shut:
        assert thread.is_alive()
        one.open()
    thread.done()
    assert values(*seen) == [[2]] * 3
    held.open()


def test_functions_of_the_host_are_ordered_by_events(two_devices, gate) -> None:
    here, there = two_devices
    streams = [torch.Stream(here), torch.Stream(here), torch.Stream(there)]
    called: list[int] = []
    shut = gate(streams[0])
    for number in range(12):
        stream = streams[number % 3]
        host_function(lambda number=number: called.append(number), stream)
        streams[(number + 1) % 3].wait_stream(stream)
    assert called == []
    shut.open()
    streams[0].synchronize()
    assert called == list(range(12))


# The end of the program.

AT_THE_END = """
import threading, time, torch
name = torch._C._get_privateuse1_backend_name()
stream, x = torch.Stream(torch.device(name)), torch.ones(4, device=name)
torch.get_device_module(name).host_function({function}, stream)
for _ in range(5):
    torch.get_device_module(name).host_function(lambda: x, stream)
with stream:
    x.zero_()
print("the end")
"""


@pytest.mark.parametrize("function", ["lambda: time.sleep(0.5)", "threading.Event().wait"])
def test_a_program_ends_whatever_is_still_to_be_done(function: str) -> None:
    code = AT_THE_END.format(function=function)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the end\n", "")


# Backward.


class Late(torch.autograd.Function):
    """Its gradient comes by a copy behind a gate, on the stream that backward has made current."""

    gradient: torch.Tensor
    make_gate: Callable[[torch.Stream], object]
    streams: list[torch.Stream]

    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        Late.streams.append(torch.accelerator.current_stream())
        return x.clone()

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> torch.Tensor:
        stream = torch.accelerator.current_stream()
        Late.streams.append(stream)
        late = torch.empty_like(grad)
        Late.make_gate(stream)
        late.copy_(Late.gradient, non_blocking=True)
        return late


def test_backward_runs_on_the_streams_of_forward_and_is_ordered_before_what_follows(device: torch.device, gate) -> None:
    Late.gradient, Late.make_gate, Late.streams = full(7), gate, []
    shut: list = []
    Late.make_gate = lambda stream: shut.append(gate(stream))
    x = on(device).requires_grad_()
    stream, seen, ones = torch.Stream(device), full(0), on(device, 1)
    stream.wait_stream(torch.accelerator.current_stream())
    with stream:
        y = Late.apply(x)
    y.backward(ones)
    assert Late.streams == [stream, stream]
    here = torch.accelerator.current_stream()
    assert here != stream and not here.query()
    seen.copy_(x.grad, non_blocking=True)
    shut[0].open()
    here.synchronize()
    assert values(seen) == [[7]]


def test_backward_in_several_threads_on_streams_of_their_own(device: torch.device) -> None:
    got: list[float] = []

    def train(number: int) -> None:
        with torch.Stream(device):
            w = torch.full((64,), float(number), device=device, requires_grad=True)
            for _ in range(5):
                loss = (w * w).sum()
                loss.backward()
            got.append(w.grad.sum().item())

    threads = [Thread(lambda number=number: train(number)) for number in range(4)]
    for thread in threads:
        thread.done()
    assert sorted(got) == [64 * 10.0 * number for number in range(4)]


# Seeds and graphs.


def test_a_seed_counts_for_the_calls_after_it_however_late_they_are_done(device: torch.device, gate) -> None:
    stream = torch.Stream(device)

    def draw(held: bool) -> list[list[float]]:
        x, seen = on(device), [full(0) for _ in range(4)]
        generator = torch.Generator(device)
        shut = gate(stream) if held else None
        with stream:
            for number, to in enumerate(seen):
                generator.manual_seed(number // 2)
                x.uniform_(generator=generator)
                to.copy_(x, non_blocking=True)
        del generator
        if shut is not None:
            shut.open()
        stream.synchronize()
        return [to.tolist() for to in seen]

    late = draw(True)
    assert late == draw(False)
    assert late[0] == late[1] != late[2] == late[3]


needs_graphs = pytest.mark.skipif(not hasattr(torch.accelerator, "Graph"), reason="torch.accelerator.Graph is newer")


@needs_graphs
def test_a_seed_counts_for_the_replays_after_it_however_late_they_are_done(device: torch.device, gate) -> None:
    stream, x = torch.Stream(device), on(device)
    graph = torch.accelerator.Graph()
    try:
        with stream, graph:
            x.uniform_()
    except RuntimeError as refused:
        assert "without a kernel" in str(refused)
        pytest.skip("this device has no kernels for random numbers")

    def draw(held: bool) -> list[list[float]]:
        seen = [full(0) for _ in range(6)]
        shut = gate(stream) if held else None
        with stream:
            for number, to in enumerate(seen):
                if number % 2 == 0:
                    torch.manual_seed(number // 4)
                graph.replay()
                to.copy_(x, non_blocking=True)
        state = torch.get_device_module(device).get_rng_state(device).tolist()
        if shut is not None:
            shut.open()
        stream.synchronize()
        return [state, *(to.tolist() for to in seen)]

    late = draw(True)
    assert late == draw(False)
    assert late[1:3] == late[3:5] and late[1] != late[2] and late[1] != late[5]


@needs_graphs
def test_the_memory_of_a_graph_that_was_dropped_is_not_reused_before_its_replays_are_done(device: torch.device, gate) -> None:
    stream, other = torch.Stream(device), torch.Stream(device)
    x, y, seen = on(device, 1), on(device), full(0)
    graph = torch.accelerator.Graph()
    with stream, graph:
        for _ in range(4):
            x = x.clone().add_(1)
        y.copy_(x)
    shut = gate(stream)
    with stream:
        graph.replay()
    del graph, x
    gc.collect()
    with other:
        noise = [torch.full((N,), -1.0, device=device) for _ in range(8)]
    other.synchronize()
    with stream:
        seen.copy_(y, non_blocking=True)
    shut.open()
    stream.synchronize()
    assert values(seen, *noise) == [[5]] + [[-1]] * 8


@needs_graphs
def test_replays_and_functions_of_the_host_while_others_allocate(device: torch.device) -> None:
    """Operators in graphs are functions of the host: several graphs replay at once, while other threads take and drop memory."""
    stop = threading.Event()

    def allocate() -> None:
        with torch.Stream(device):
            while not stop.is_set():
                x = torch.full((256,), 1.0, device=device)
                y = x.clone()
                full(2, 256)
                del x, y

    def replay(number: int) -> None:
        stream, x, y = torch.Stream(device), on(device, number), on(device)
        graph = torch.accelerator.Graph()
        with stream, graph:
            y += x * 2 + 1
        for _ in range(10):
            with stream:
                graph.replay()
        stream.synchronize()
        assert values(y) == [[10.0 * (2 * number + 1)]]

    allocating = [Thread(allocate) for _ in range(2)]
    try:
        for thread in [Thread(lambda number=number: replay(number)) for number in range(3)]:
            thread.done()
    finally:
        stop.set()
    for thread in allocating:
        thread.done()


# The thread of a DataLoader that pins.


def test_batches_that_a_thread_pinned_may_be_dropped_before_their_copies_are_done(device: torch.device, gate) -> None:
    data = torch.utils.data.TensorDataset(torch.arange(64.0).repeat_interleave(16).view(64, 16))
    stream, target = torch.Stream(device), on(device, -1, 64 * 16).view(64, 16)
    shut = gate(stream)
    with stream:
        for number, (batch,) in enumerate(torch.utils.data.DataLoader(data, batch_size=4, num_workers=1, pin_memory=True)):
            assert batch.is_pinned()
            target[4 * number : 4 * number + 4].copy_(batch, non_blocking=True)
            del batch
    shut.open()
    stream.synchronize()
    assert torch.equal(target.cpu(), torch.arange(64.0).repeat_interleave(16).view(64, 16))
