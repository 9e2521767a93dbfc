"""That work keeps the order its streams and events give it, and that memory lives as long as the work on it.

PyTorch's own tests of accelerators let all work end at once. Here a stream is held by a function of the host, so that what is
enqueued after it stays to be done until the test lets go.
"""

import contextlib
import os
import random
import threading

os.environ.setdefault("ANYACCEL_BACKEND", "host")
os.environ.setdefault("ANYACCEL_HOST_DEVICES", "2")

import pytest
import torch
import torch_anyaccel

KIND = torch.accelerator.current_accelerator().type
DEVICE = torch.device(KIND, 0)


@contextlib.contextmanager
def held(stream):
    """Holds back whatever is enqueued on the stream in the block, until its end or the function it gives is called."""
    gate, reached = threading.Event(), threading.Event()

    def wait():
        reached.set()
        gate.wait()

    torch_anyaccel.host_function(wait, stream)
    reached.wait()
    try:
        yield gate.set
    finally:
        gate.set()
        stream.synchronize()


def pinned(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype).pin_memory()


def on_device(*values, device=DEVICE):
    tensor = torch.tensor(values, dtype=torch.float32).to(device)
    torch.accelerator.synchronize(device)
    return tensor


@pytest.fixture(autouse=True)
def nothing_is_left():
    torch.accelerator.set_device_index(0)
    yield
    for device in range(torch.accelerator.device_count()):
        torch.accelerator.synchronize(device)


def test_work_waits_for_its_stream_and_for_no_other():
    stream, other = torch.Stream(DEVICE), torch.Stream(DEVICE)
    target, source = on_device(0, 0, 0), pinned(1, 2, 3)
    with held(stream) as let_go:
        with stream:
            target.copy_(source, non_blocking=True)
        assert not stream.query()
        with other:
            assert other.query()
            assert target.tolist() == [0, 0, 0]
        let_go()
        stream.synchronize()
        assert target.tolist() == [1, 2, 3]


def test_an_event_carries_the_order_to_another_stream():
    first, second = torch.Stream(DEVICE), torch.Stream(DEVICE)
    a, b, source = on_device(0, 0), on_device(0, 0), pinned(5, 6)
    with held(first) as let_go:
        with first:
            a.copy_(source, non_blocking=True)
        event = first.record_event()
        second.wait_event(event)
        with second:
            b.copy_(a)
        assert not event.query() and not second.query()
        let_go()
        second.synchronize()
        assert event.query()
        assert b.tolist() == [5, 6]


def test_an_event_is_the_work_at_its_record_not_after():
    stream = torch.Stream(DEVICE)
    event = stream.record_event()
    with held(stream):
        event.synchronize()
        assert event.query() and not stream.query()
        event.record(stream)
        assert not event.query()


def test_a_function_of_the_host_is_a_point_in_the_order():
    stream = torch.Stream(DEVICE)
    cell, seen = on_device(0), torch.zeros(1).pin_memory()
    values = [pinned(float(i)) for i in range(8)]
    read = []
    with held(stream), stream:
        for value in values:
            cell.copy_(value, non_blocking=True)
            seen.copy_(cell, non_blocking=True)
            torch_anyaccel.host_function(lambda: read.append(seen.item()), stream)
        assert read == []
    assert read == list(range(8))


def test_what_a_function_of_the_host_raises_comes_with_the_next_wait_and_once():
    stream = torch.Stream(DEVICE)

    def fail():
        raise ValueError("from a function of the host")

    torch_anyaccel.host_function(fail, stream)
    with pytest.raises(Exception, match="from a function of the host"):
        stream.synchronize()
    stream.synchronize()


def test_an_operator_of_the_fallback_waits_for_what_its_stream_waits_for():
    first, second = torch.Stream(DEVICE), torch.Stream(DEVICE)
    x, source, got = on_device(0, 0), pinned(1, 2), []

    def compute():
        with second:
            got.append((x * 10).tolist())

    with held(first) as let_go:
        with first:
            x.copy_(source, non_blocking=True)
        second.wait_stream(first)
        thread = threading.Thread(target=compute)
        thread.start()
        let_go()
        thread.join()
    assert got == [[10, 20]]


def test_reading_a_number_waits_for_the_stream_it_is_read_on():
    stream = torch.Stream(DEVICE)
    x = on_device(7)
    with held(stream):
        assert x.item() == 7


def test_memory_noted_for_a_stream_is_not_reused_before_that_stream_is_done():
    stream = torch.Stream(DEVICE)
    size = 3 << 20
    keep = torch.zeros(size // 4, device=DEVICE)
    block = torch.ones(size // 4, device=DEVICE)
    torch.accelerator.synchronize()
    address = block.data_ptr()
    with held(stream) as let_go:
        with stream:
            keep.copy_(block)
        block.record_stream(stream)
        del block
        others = [torch.full((size // 4,), 9.0, device=DEVICE) for _ in range(4)]
        assert address not in [other.data_ptr() for other in others]
        let_go()
        stream.synchronize()
    assert keep.unique().tolist() == [1]
    # Done, so it may be had again.
    assert address in [torch.empty(size // 4, device=DEVICE).data_ptr() for _ in range(2)]


def test_memory_of_the_stream_it_came_from_is_reused_in_that_streams_order():
    stream = torch.Stream(DEVICE)
    first, second = pinned(*range(1000)), pinned(*range(1000, 2000))
    out = [torch.empty(1000).pin_memory() for _ in range(2)]
    with held(stream), stream:
        a = torch.empty(1000, device=DEVICE)
        address = a.data_ptr()
        a.copy_(first, non_blocking=True)
        out[0].copy_(a, non_blocking=True)
        del a
        b = torch.empty(1000, device=DEVICE)
        assert b.data_ptr() == address
        b.copy_(second, non_blocking=True)
        out[1].copy_(b, non_blocking=True)
    assert torch.equal(out[0], first) and torch.equal(out[1], second)


def test_pinned_memory_is_not_reused_while_a_copy_from_it_is_to_be_done():
    stream = torch.Stream(DEVICE)
    target = torch.zeros(4096, device=DEVICE)
    torch.accelerator.synchronize()
    source = torch.full((4096,), 3.0).pin_memory()
    address = source.data_ptr()
    with held(stream):
        with stream:
            target.copy_(source, non_blocking=True)
        del source
        others = [torch.full((4096,), -1.0).pin_memory() for _ in range(4)]
        assert address not in [other.data_ptr() for other in others]
    assert target.unique().tolist() == [3]


def test_pinned_memory_is_not_reused_while_a_copy_to_it_is_to_be_done():
    stream = torch.Stream(DEVICE)
    source = on_device(*range(64))
    with held(stream):
        with stream:
            landing = source.to("cpu", non_blocking=True)
        address = landing.data_ptr()
        del landing
        others = [torch.full((64,), -1.0).pin_memory() for _ in range(4)]
        assert address not in [other.data_ptr() for other in others]
    assert all(other.unique().tolist() == [-1] for other in others)


def test_memory_of_the_host_may_be_changed_once_a_copy_from_it_returned():
    stream = torch.Stream(DEVICE)
    target, source = on_device(0, 0), torch.tensor([1.0, 2.0])
    done = threading.Event()

    def copy():
        with stream:
            target.copy_(source)
        source.fill_(-1)
        done.set()

    with held(stream) as let_go:
        thread = threading.Thread(target=copy)
        thread.start()
        done.wait(0.2)  # It may wait for the stream, or have taken the values along.
        let_go()
        thread.join()
    assert target.tolist() == [1, 2]


@pytest.mark.skipif(torch.accelerator.device_count() < 2, reason="needs two devices")
def test_a_copy_between_devices_is_ordered_on_both():
    there = torch.device(KIND, 1)
    ours, theirs = torch.Stream(DEVICE), torch.Stream(there)
    a, b, source = on_device(0, 0), on_device(0, 0, device=there), pinned(3, 4)
    with held(ours) as let_go:
        with ours, theirs:
            a.copy_(source, non_blocking=True)
            b.copy_(a, non_blocking=True)
        event = theirs.record_event()
        assert not event.query()
        let_go()
        theirs.synchronize()
        assert b.tolist() == [3, 4]
    # And the other way: what is overwritten on the first device comes after the copy from it.
    with held(theirs) as let_go:
        with ours, theirs:
            b.copy_(a, non_blocking=True)
            a.copy_(pinned(8, 9), non_blocking=True)
        assert not ours.query()
        let_go()
    ours.synchronize()
    assert (a.tolist(), b.tolist()) == ([8, 9], [3, 4])


def test_random_numbers_depend_on_the_order_of_calls_not_of_execution():
    first, second = torch.Stream(DEVICE), torch.Stream(DEVICE)

    def fill(hold):
        torch.manual_seed(11)
        a, b = torch.zeros(100, device=DEVICE), torch.zeros(100, device=DEVICE)
        torch.accelerator.synchronize()
        with held(first) if hold else contextlib.nullcontext():
            with first:
                a.uniform_()
            with second:
                b.uniform_()
            second.synchronize()
        first.synchronize()
        return a.tolist(), b.tolist()

    assert fill(True) == fill(False)


class Captured:
    """y = 2 x + 1 and a count of the replays, in a graph."""

    def __init__(self):
        self.stream = torch.Stream(DEVICE)
        self.x, self.y, self.count = (torch.zeros(4, device=DEVICE) for _ in range(3))
        torch.accelerator.synchronize()
        self.graph = torch.accelerator.Graph()
        with self.stream, self.graph:
            self.y.copy_(self.x * 2 + 1)
            self.count += 1


def test_a_capture_runs_nothing():
    captured = Captured()
    torch.accelerator.synchronize()
    assert captured.count.tolist() == [0] * 4 and captured.y.tolist() == [0] * 4


def test_replays_are_in_the_order_of_their_stream():
    captured, stream = Captured(), torch.Stream(DEVICE)
    inputs = [torch.full((4,), float(i)).pin_memory() for i in range(6)]
    outputs = [torch.zeros(4).pin_memory() for _ in inputs]
    with held(stream), stream:
        for given, got in zip(inputs, outputs):
            captured.x.copy_(given, non_blocking=True)
            captured.graph.replay()
            got.copy_(captured.y, non_blocking=True)
        assert not stream.query()
        assert all(got.tolist() == [0] * 4 for got in outputs)
    assert [got.tolist() for got in outputs] == [[2.0 * i + 1] * 4 for i in range(6)]
    assert captured.count.tolist() == [6] * 4


def test_replays_of_one_graph_on_two_streams_do_not_overlap():
    captured = Captured()
    streams = [torch.Stream(DEVICE), torch.Stream(DEVICE)]
    for round in range(20):
        with streams[round % 2]:
            captured.graph.replay()
    for stream in streams:
        stream.synchronize()
    assert captured.count.tolist() == [20] * 4


def test_the_memory_of_a_graph_outlives_the_tensors_of_its_capture():
    stream = torch.Stream(DEVICE)
    x, y = torch.ones(1 << 16, device=DEVICE), torch.zeros(1 << 16, device=DEVICE)
    torch.accelerator.synchronize()
    graph = torch.accelerator.Graph()
    with stream, graph:
        for _ in range(4):
            x = x + 1  # each a tensor of the graph's own pool, gone when the next is there
        y.copy_(x)
    del x
    with held(stream), stream:
        graph.replay()
        noise = [torch.full((1 << 16,), -7.0, device=DEVICE) for _ in range(8)]
    assert y.unique().tolist() == [5]
    assert all(n.unique().tolist() == [-7] for n in noise)


def test_a_graph_may_be_dropped_while_its_replay_is_to_be_done():
    captured, stream = Captured(), torch.Stream(DEVICE)
    y, count = captured.y, captured.count
    with held(stream), stream:
        captured.graph.replay()
        del captured
    assert y.tolist() == [1] * 4 and count.tolist() == [1] * 4


def test_random_numbers_go_on_from_replay_to_replay():
    stream = torch.Stream(DEVICE)
    x = torch.zeros(8, device=DEVICE)
    torch.accelerator.synchronize()
    torch.manual_seed(3)
    graph = torch.accelerator.Graph()
    with stream, graph:
        x.uniform_()
    torch.manual_seed(3)
    replayed = []
    for _ in range(3):
        with stream:
            graph.replay()
        stream.synchronize()
        replayed.append(x.tolist())
    torch.manual_seed(3)
    eager = [torch.zeros(8, device=DEVICE).uniform_().tolist() for _ in range(3)]
    assert replayed == eager


def test_capture_refuses_to_read_a_number_and_the_device_goes_on():
    stream = torch.Stream(DEVICE)
    x = on_device(1, 2)
    graph = torch.accelerator.Graph()
    with pytest.raises(RuntimeError, match="item"):
        with stream, graph:
            x.sum().item()
    assert (x + 1).tolist() == [2, 3]


@pytest.mark.parametrize("seed", range(12))
def test_any_program_of_copies_means_what_it_means_in_order(seed):
    """Copies among tensors on several streams, each ordered by events after what it must come after, some streams held."""
    choose = random.Random(seed)
    streams = [torch.Stream(DEVICE) for _ in range(4)]
    tensors = [torch.full((257,), float(i), device=DEVICE) for i in range(6)]
    torch.accelerator.synchronize()
    expected = [float(i) for i in range(6)]
    written: list = [None] * 6  # the event after the last write
    readers: list = [[] for _ in range(6)]  # the events after the reads since
    out: list = []
    with contextlib.ExitStack() as holds:
        for stream in choose.sample(streams, choose.randint(0, 1)):
            holds.enter_context(held(stream))
        for step in range(60):
            stream, source, target = choose.choice(streams), choose.randrange(6), choose.randrange(6)
            kind = choose.choice(["copy", "upload", "download", "renew"])
            waits = [written[source] if kind in ("copy", "download") else None]
            if kind != "download":
                waits += [written[target], *readers[target]]
            for event in filter(None, waits):
                stream.wait_event(event)
            with stream:
                if kind == "copy" and source != target:
                    tensors[target].copy_(tensors[source])
                    expected[target] = expected[source]
                elif kind == "upload":
                    # Pinned memory that nobody keeps.
                    tensors[target].copy_(torch.full((257,), 100.0 + step).pin_memory(), non_blocking=True)
                    expected[target] = 100.0 + step
                elif kind == "download":
                    out.append((tensors[source].to("cpu", non_blocking=True), expected[source]))
                elif kind == "renew":
                    # A tensor of this stream's memory in place of the old one, which may be in use on others.
                    for other in streams:
                        tensors[target].record_stream(other)
                    tensors[target] = torch.empty(257, device=DEVICE)
                    tensors[target].copy_(torch.full((257,), 1000.0 + step).pin_memory(), non_blocking=True)
                    expected[target] = 1000.0 + step
            done = stream.record_event()
            if kind in ("copy", "download"):
                readers[source].append(done)
            if kind != "download":
                written[target], readers[target] = done, []
    torch.accelerator.synchronize()
    assert [tensor.unique().tolist() for tensor in tensors] == [[value] for value in expected]
    assert [got.unique().tolist() for got, _ in out] == [[value] for _, value in out]
