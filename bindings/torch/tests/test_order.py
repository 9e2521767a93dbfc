"""Work that is put off is done in the order of its stream, and streams are ordered by events alone.

A gate holds a stream from inside, so that everything after it waits: what a synchronous device would get right by chance.
"""

from __future__ import annotations

import threading

import pytest
import torch

N = 1 << 16


def test_work_behind_a_gate_waits(device: torch.device, gate) -> None:
    stream = torch.Stream(device)
    source = torch.ones(N).pin_memory()
    with stream:
        target = torch.zeros(N, device=device)
        stream.synchronize()
        shut = gate(stream)
        target.copy_(source, non_blocking=True)
        done = stream.record_event()
    assert not stream.query() and not done.query()
    shut.open()
    done.synchronize()
    assert done.query() and target.sum().item() == N


def test_streams_do_not_wait_for_one_another(device: torch.device, gate) -> None:
    held, free = torch.Stream(device), torch.Stream(device)
    shut = gate(held)
    with free:
        assert torch.ones(N, device=device).sum().item() == N
    assert free.query() and not held.query()
    shut.open()


def test_events_order_streams(device: torch.device, gate) -> None:
    first, second = torch.Stream(device), torch.Stream(device)
    source = torch.full((N,), 3.0).pin_memory()
    x, y = torch.zeros(N, device=device), torch.zeros(N, device=device)
    torch.accelerator.synchronize()
    shut = gate(first)
    with first:
        x.copy_(source, non_blocking=True)
        event = first.record_event()
    with second:
        second.wait_event(event)
        y.copy_(x)
    assert not second.query()
    shut.open()
    second.synchronize()
    assert y.sum().item() == 3 * N


def test_the_cpu_computes_in_stream_order(device: torch.device, gate) -> None:
    """An operator that the CPU computes reads what the stream has written before, however late that comes."""
    stream = torch.Stream(device)
    source = torch.full((N,), 2.0).pin_memory()
    with stream:
        x = torch.zeros(N, device=device)
        stream.synchronize()
        shut = gate(stream)
        x.copy_(source, non_blocking=True)
        opener = threading.Timer(0.05, shut.open)
        opener.start()
        y = x * 5 + 1  # waits for the stream, without the GIL
        assert y.sum().item() == 11 * N
        opener.join()


def test_dropped_memory_is_not_reused_while_it_is_read(device: torch.device, gate) -> None:
    stream = torch.Stream(device)
    x = torch.full((N,), 7.0, device=device)
    y = torch.zeros(N, device=device)
    torch.accelerator.synchronize()
    shut = gate(stream)
    with stream:
        y.copy_(x)
    address = x.data_ptr()
    del x
    others = [torch.full((N,), -1.0, device=device) for _ in range(4)]
    assert all(other.data_ptr() != address for other in others)
    torch.accelerator.current_stream().synchronize()
    shut.open()
    stream.synchronize()
    assert y.sum().item() == 7 * N


def test_record_stream_keeps_memory(device: torch.device, gate) -> None:
    stream = torch.Stream(device)
    shut = gate(stream)
    x = torch.ones(N, device=device)
    address = x.data_ptr()
    x.record_stream(stream)
    del x
    assert torch.empty(N, device=device).data_ptr() != address
    shut.open()
    stream.synchronize()
    found = {torch.empty(N, device=device).data_ptr() for _ in range(3)}
    assert address in found


def test_dropped_pinned_memory_is_not_reused_while_it_is_read(device: torch.device, gate) -> None:
    stream = torch.Stream(device)
    target = torch.zeros(N, device=device)
    torch.accelerator.synchronize()
    shut = gate(stream)
    with stream:
        target.copy_(torch.full((N,), 4.0).pin_memory(), non_blocking=True)
    for _ in range(4):
        torch.full((N,), -1.0).pin_memory()
    shut.open()
    stream.synchronize()
    assert target.sum().item() == 4 * N


def test_two_streams_write_neighbours(device: torch.device) -> None:
    """Writing a strided view never touches what lies between its elements, which another stream writes."""
    both = torch.zeros(4096, 2, device=device)
    streams = [torch.Stream(device), torch.Stream(device)]
    torch.accelerator.synchronize()

    def work(column: int) -> None:
        with streams[column]:
            for _ in range(20):
                both[:, column].add_(1)

    threads = [threading.Thread(target=work, args=(column,)) for column in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.accelerator.synchronize()
    assert torch.equal(both.cpu(), torch.full((4096, 2), 20.0))


def test_threads_have_streams_of_their_own(device: torch.device) -> None:
    results: list[float] = []

    def work(seed: int) -> None:
        with torch.Stream(device):
            x = torch.full((256,), float(seed), device=device)
            for _ in range(30):
                x = x + 1
            results.append(x.mean().item())

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [30, 31, 32, 33]


def test_devices_are_ordered_by_copies(two_devices: tuple[torch.device, torch.device], gate) -> None:
    a, b = two_devices
    source = torch.full((N,), 6.0).pin_memory()
    x = torch.zeros(N, device=a)
    torch.accelerator.synchronize(a)
    shut = gate(torch.accelerator.current_stream(a))
    x.copy_(source, non_blocking=True)
    y = x.to(b, non_blocking=True)
    shut.open()
    assert y.sum().item() == 6 * N


def test_what_a_host_function_raises(device: torch.device) -> None:
    def fail() -> None:
        raise ValueError("lost on the way")

    torch.get_device_module(device).host_function(fail)
    with pytest.raises(RuntimeError, match="lost on the way"):
        torch.accelerator.synchronize()
    torch.accelerator.synchronize()
