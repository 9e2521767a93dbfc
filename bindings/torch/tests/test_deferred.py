"""Whole programs, graphs and memory while work is put off: what each reads and writes is as if all were done at once.

As in test_order.py a gate holds a stream, so that what is enqueued after it stays to be done until the gate is opened.
"""

from __future__ import annotations

import random
import threading

import pytest
import torch
from conftest import draw_or_skip


def pinned(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32).pin_memory()


def on(device: torch.device, *values: float) -> torch.Tensor:
    tensor = torch.tensor(values, dtype=torch.float32).to(device)
    torch.accelerator.synchronize(device)
    return tensor


def host_function(function, stream: torch.Stream) -> None:
    torch.get_device_module(stream.device).host_function(function, stream)


def done(shut, stream: torch.Stream) -> None:
    """Opens a gate and waits for its stream."""
    shut.open()
    stream.synchronize()


def test_an_event_is_the_work_before_its_record(device: torch.device, gate) -> None:
    stream = torch.Stream(device)
    event = stream.record_event()
    shut = gate(stream)
    event.synchronize()
    assert event.query() and not stream.query()
    event.record(stream)
    assert not event.query()
    done(shut, stream)
    assert event.query()


def test_a_function_of_the_host_is_a_point_in_the_order(device: torch.device, gate) -> None:
    stream = torch.Stream(device)
    cell, seen = on(device, 0), torch.zeros(1).pin_memory()
    values = [pinned(float(i)) for i in range(8)]
    read: list[float] = []
    shut = gate(stream)
    with stream:
        for value in values:
            cell.copy_(value, non_blocking=True)
            seen.copy_(cell, non_blocking=True)
            host_function(lambda: read.append(seen.item()), stream)
    assert read == []
    done(shut, stream)
    assert read == list(range(8))


def test_memory_is_reused_at_once_in_the_order_of_its_stream(device: torch.device, gate) -> None:
    stream = torch.Stream(device)
    first, second = pinned(*range(1000)), pinned(*range(1000, 2000))
    out = [torch.empty(1000).pin_memory() for _ in range(2)]
    shut = gate(stream)
    with stream:
        a = torch.empty(1000, device=device)
        address = a.data_ptr()
        a.copy_(first, non_blocking=True)
        out[0].copy_(a, non_blocking=True)
        del a
        b = torch.empty(1000, device=device)
        assert b.data_ptr() == address
        b.copy_(second, non_blocking=True)
        out[1].copy_(b, non_blocking=True)
    done(shut, stream)
    assert torch.equal(out[0], first) and torch.equal(out[1], second)


def test_dropped_pinned_memory_is_not_reused_while_it_is_written(device: torch.device, gate) -> None:
    stream = torch.Stream(device)
    source = on(device, *range(64))
    shut = gate(stream)
    with stream:
        landing = source.to("cpu", non_blocking=True)
    assert landing.is_pinned()
    address = landing.data_ptr()
    del landing
    others = [torch.full((64,), -1.0).pin_memory() for _ in range(4)]
    assert address not in [other.data_ptr() for other in others]
    done(shut, stream)
    assert all(other.unique().tolist() == [-1] for other in others)


def test_ordinary_memory_is_the_callers_again_when_a_copy_from_it_returns(device: torch.device, gate) -> None:
    stream = torch.Stream(device)
    target, source = on(device, 0, 0), torch.tensor([1.0, 2.0])
    shut = gate(stream)

    def copy() -> None:  # which may wait for the stream, or take the values along
        with stream:
            target.copy_(source, non_blocking=True)
        source.fill_(-1)

    thread = threading.Thread(target=copy)
    thread.start()
    thread.join(0.2)
    shut.open()
    thread.join()
    stream.synchronize()
    assert target.tolist() == [1, 2]


def test_a_copy_between_devices_comes_before_what_overwrites_its_source(two_devices, gate) -> None:
    here, there = two_devices
    ours, theirs = torch.Stream(here), torch.Stream(there)
    a, b = on(here, 3, 4), on(there, 0, 0)
    shut = gate(theirs)
    with ours, theirs:
        b.copy_(a, non_blocking=True)
        a.copy_(pinned(8, 9), non_blocking=True)
    assert not ours.query()
    shut.open()
    ours.synchronize()
    theirs.synchronize()
    assert (a.tolist(), b.tolist()) == ([8, 9], [3, 4])


def test_random_numbers_go_by_the_order_of_the_calls(device: torch.device, gate) -> None:
    first, second = torch.Stream(device), torch.Stream(device)

    def fill(hold: bool) -> tuple[list[float], list[float]]:
        torch.manual_seed(11)
        a, b = torch.zeros(100, device=device), torch.zeros(100, device=device)
        torch.accelerator.synchronize()
        shut = gate(first) if hold else None
        with first:
            a.uniform_()
        with second:
            b.uniform_()
        second.synchronize()
        if shut:
            assert a.sum().item() == 0
            shut.open()
        first.synchronize()
        return a.tolist(), b.tolist()

    assert fill(True) == fill(False)


class Captured:
    """y = 2 x + 1 and a count of the replays, in a graph."""

    def __init__(self, device: torch.device) -> None:
        self.x, self.y, self.count = (torch.zeros(4, device=device) for _ in range(3))
        torch.accelerator.synchronize()
        self.graph = torch.accelerator.Graph()
        with torch.Stream(device), self.graph:
            self.y.copy_(self.x * 2 + 1)
            self.count += 1


needs_graphs = pytest.mark.skipif(not hasattr(torch.accelerator, "Graph"), reason="torch.accelerator.Graph is newer")


@needs_graphs
def test_replays_are_in_the_order_of_their_stream(device: torch.device, gate) -> None:
    captured, stream = Captured(device), torch.Stream(device)
    inputs = [torch.full((4,), float(i)).pin_memory() for i in range(6)]
    outputs = [torch.zeros(4).pin_memory() for _ in inputs]
    shut = gate(stream)
    with stream:
        for given, got in zip(inputs, outputs, strict=True):
            captured.x.copy_(given, non_blocking=True)
            captured.graph.replay()
            got.copy_(captured.y, non_blocking=True)
    assert not stream.query()
    assert all(got.tolist() == [0] * 4 for got in outputs)
    done(shut, stream)
    assert [got.tolist() for got in outputs] == [[2.0 * i + 1] * 4 for i in range(6)]
    assert captured.count.tolist() == [6] * 4


@needs_graphs
def test_replays_of_one_graph_on_two_streams_do_not_overlap(device: torch.device) -> None:
    captured = Captured(device)
    streams = [torch.Stream(device), torch.Stream(device)]
    for number in range(20):
        with streams[number % 2]:
            captured.graph.replay()
    for stream in streams:
        stream.synchronize()
    assert captured.count.tolist() == [20] * 4


@needs_graphs
def test_the_memory_of_a_graph_outlives_the_tensors_of_its_capture(device: torch.device, gate) -> None:
    stream = torch.Stream(device)
    x, y = torch.ones(1 << 16, device=device), torch.zeros(1 << 16, device=device)
    noise = torch.full((1 << 16,), -7.0).pin_memory()
    torch.accelerator.synchronize()
    graph = torch.accelerator.Graph()
    with stream, graph:
        for _ in range(4):
            x = x + 1  # a tensor of the graph's own pool, gone when the next is there
        y.copy_(x)
    del x
    shut = gate(stream)
    with stream:
        graph.replay()
        others = [torch.empty(1 << 16, device=device) for _ in range(8)]
        for other in others:
            other.copy_(noise, non_blocking=True)
    done(shut, stream)
    with stream:
        graph.replay()
    stream.synchronize()
    assert y.unique().tolist() == [5]
    assert all(other.unique().tolist() == [-7] for other in others)


@needs_graphs
def test_a_graph_may_be_dropped_before_its_replay_is_done(device: torch.device, gate) -> None:
    captured, stream = Captured(device), torch.Stream(device)
    y, count = captured.y, captured.count
    shut = gate(stream)
    with stream:
        captured.graph.replay()
    del captured
    done(shut, stream)
    assert y.tolist() == [1] * 4 and count.tolist() == [1] * 4


@needs_graphs
def test_replays_draw_what_as_many_calls_would_have_drawn(device: torch.device) -> None:
    stream = torch.Stream(device)
    x = torch.zeros(8, device=device)
    torch.accelerator.synchronize()
    graph = torch.accelerator.Graph()
    with stream, graph:
        draw_or_skip(x.uniform_)
    torch.manual_seed(3)
    replayed = []
    for _ in range(3):
        with stream:
            graph.replay()
        stream.synchronize()
        replayed.append(x.tolist())
    torch.manual_seed(3)
    assert replayed == [torch.zeros(8, device=device).uniform_().tolist() for _ in range(3)]


@needs_graphs
def test_a_capture_that_fails_leaves_the_device_usable(device: torch.device) -> None:
    x, stream = on(device, 1, 2), torch.Stream(device)
    graph = torch.accelerator.Graph()
    with pytest.raises(RuntimeError, match=r"item\(\)"), stream, graph:
        x.sum().item()
    assert not torch.accelerator.current_stream().is_capturing() if hasattr(torch.Stream, "is_capturing") else True
    assert (x + 1).tolist() == [2, 3]
    with stream:
        assert (x + 2).tolist() == [3, 4]


class Program:
    """Copies among tensors on several streams, each after what it must come after by events alone, and what they must give."""

    def __init__(self, device: torch.device, choose: random.Random, tensors: int = 6, size: int = 257) -> None:
        self.device, self.choose, self.size = device, choose, size
        self.streams = [torch.Stream(device) for _ in range(4)]
        self.tensors = [torch.full((size,), float(i), device=device) for i in range(tensors)]
        self.expected = [float(i) for i in range(tensors)]
        self.written: list[torch.Event | None] = [None] * tensors
        self.read_since: list[list[torch.Event]] = [[] for _ in range(tensors)]
        self.downloads: list[tuple[torch.Tensor, float]] = []
        torch.accelerator.synchronize()

    def given(self, value: float) -> torch.Tensor:
        """Pinned memory that nobody keeps."""
        return torch.full((self.size,), value).pin_memory()

    def step(self, number: int) -> None:
        stream, kind = self.choose.choice(self.streams), self.choose.choice(["copy", "upload", "download", "renew"])
        source, target = self.choose.sample(range(len(self.tensors)), 2)
        reads, writes = kind in ("copy", "download"), kind != "download"
        before = [self.written[source]] if reads else []
        before += [self.written[target], *self.read_since[target]] if writes else []
        for event in before:
            if event is not None:
                stream.wait_event(event)
        with stream:
            if kind == "copy":
                self.tensors[target].copy_(self.tensors[source])
                self.expected[target] = self.expected[source]
            elif kind == "upload":
                self.tensors[target].copy_(self.given(100.0 + number), non_blocking=True)
                self.expected[target] = 100.0 + number
            elif kind == "download":
                self.downloads.append((self.tensors[source].to("cpu", non_blocking=True), self.expected[source]))
            else:  # memory of this stream in place of the old, which may be in use on others
                for other in self.streams:
                    self.tensors[target].record_stream(other)
                self.tensors[target] = torch.empty(self.size, device=self.device)
                self.tensors[target].copy_(self.given(1000.0 + number), non_blocking=True)
                self.expected[target] = 1000.0 + number
        after = stream.record_event()
        if reads:
            self.read_since[source].append(after)
        if writes:
            self.written[target], self.read_since[target] = after, []


@pytest.mark.parametrize("seed", range(12))
def test_any_program_of_copies_gives_what_it_gives_in_order(device: torch.device, gate, seed: int) -> None:
    choose = random.Random(seed)
    program = Program(device, choose)
    shut = [gate(stream) for stream in choose.sample(program.streams, seed % 2)]
    for number in range(60):
        program.step(number)
    for one in shut:
        one.open()
    torch.accelerator.synchronize()
    assert [tensor.unique().tolist() for tensor in program.tensors] == [[value] for value in program.expected]
    assert [got.unique().tolist() for got, _ in program.downloads] == [[value] for _, value in program.downloads]
