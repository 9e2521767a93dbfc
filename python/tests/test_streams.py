"""Streams and events."""

import threading
import time

import pytest

import anyaccel
from anyaccel import accelerator


def test_construction():
    stream = anyaccel.Stream()
    assert stream.device == anyaccel.device("host:0") and stream.device_index == 0 and stream.device_type == "host"
    assert stream.stream_id > 0 and stream.priority == 0 and not stream.is_reserved and isinstance(stream.native_handle, int)
    for device in (1, "host:1", anyaccel.device("host:1")):
        assert anyaccel.Stream(device).device_index == 1
        assert anyaccel.Stream(device=device).device_index == 1
    assert anyaccel.Stream(priority=-(10**30)).priority <= 0
    same = anyaccel.Stream(stream_id=stream.stream_id, device_index=0, device_type="host")
    assert same == stream and anyaccel.Stream(stream.stream_id, 0, "host") == stream and hash(same) == hash(stream)
    with pytest.raises(RuntimeError, match="has no stream with id"):
        anyaccel.Stream(10**9, 0, "host")
    with pytest.raises(RuntimeError, match="stream's device type cuda doesn't match the current accelerator host"):
        anyaccel.Stream(0, 0, "cuda")
    with pytest.raises(ValueError):
        anyaccel.Stream("cpu")
    for wrong in ((1, 2), (None, 0, "host"), (1, 0, 7), ("x", 0, "host")):
        with pytest.raises(TypeError):
            anyaccel.Stream(*wrong)
    with pytest.raises(TypeError):
        anyaccel.Stream(color="red")
    with pytest.raises(AttributeError):
        stream.stream_id = 3


def test_pool_of_32():
    streams = [anyaccel.Stream() for _ in range(33)]
    assert streams[0] == streams[32] and streams[0].shares_queue_with(streams[32])
    assert len(set(streams)) == 32
    own = anyaccel.Stream.reserved()
    assert own.is_reserved and own not in streams and not own.shares_queue_with(streams[0])


def test_comparison():
    a, b = anyaccel.Stream(), anyaccel.Stream()
    assert a == a and a != b and a != None and not a == 42 and a != "x"  # noqa: E711
    with pytest.raises(TypeError):
        a < b
    assert "host:0" in repr(a)


def test_current_stream():
    default = accelerator.current_stream()
    assert default.stream_id == 0 and default == accelerator.default_stream()
    other = anyaccel.Stream(1)
    accelerator.set_stream(other)
    assert accelerator.current_stream() == other and accelerator.current_device_index() == 1
    assert accelerator.current_stream(0) == default and accelerator.current_stream("host:1") == other
    accelerator.set_stream(default)
    assert accelerator.current_device_index() == 0 and accelerator.current_stream(1) == other
    for wrong in (None, 3, "host"):
        with pytest.raises(TypeError):
            accelerator.set_stream(wrong)
    for wrong in (-1, 2):
        with pytest.raises(anyaccel.AcceleratorError, match="out of range"):
            accelerator.current_stream(wrong)


def test_with_stream():
    a, b = anyaccel.Stream(0), anyaccel.Stream(1)
    before = accelerator.current_stream(0), accelerator.current_stream(1)
    with a as entered:
        assert entered is a and accelerator.current_stream() == a
        with b:
            assert accelerator.current_stream() == b and accelerator.current_device_index() == 1
            with a, a:
                assert accelerator.current_stream() == a
            assert accelerator.current_stream() == b
        assert accelerator.current_stream() == a and accelerator.current_stream(1) == before[1]
    assert (accelerator.current_stream(0), accelerator.current_stream(1)) == before
    with pytest.raises(KeyError), b:
        raise KeyError
    assert accelerator.current_device_index() == 0


def test_one_stream_in_two_threads():
    shared, inside, leave, seen = anyaccel.Stream(1), threading.Event(), threading.Event(), []

    def other():
        with shared:
            inside.set()
            leave.wait()
        seen.append((accelerator.current_device_index(), accelerator.current_stream().stream_id))

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait()
    with shared:
        leave.set()
        thread.join()
        assert accelerator.current_stream() == shared
    assert accelerator.current_device_index() == 0 and seen == [(0, 0)]


def test_subclass():
    class Mine(anyaccel.Stream):
        pass

    mine = Mine(priority=0)
    with mine as entered:
        assert entered is mine and accelerator.current_stream() == mine


def test_order():
    a, b = anyaccel.Stream(), anyaccel.Stream()
    seen = []
    a.host_fn(time.sleep, 0.1)
    a.host_fn(seen.append, "a")
    assert not a.query()
    b.wait_stream(a)
    b.host_fn(seen.append, "b")
    b.synchronize()
    assert seen == ["a", "b"] and a.query() and b.query()
    event = a.record_event()
    again = b.record_event(event)
    assert again is event and event.query() in (True, False)
    a.wait_event(event)
    accelerator.synchronize()
    accelerator.synchronize("host:1")
    assert accelerator.current_device_index() == 0 and not a.is_capturing()
    for call in (a.wait_event, a.wait_stream):
        with pytest.raises(TypeError):
            call(None)
    with pytest.raises(TypeError):
        a.host_fn(3)


def test_host_function_that_raises():
    stream = anyaccel.Stream()

    def fails():
        raise ValueError("no such luck")

    stream.host_fn(fails)
    with pytest.raises(RuntimeError, match="ValueError: no such luck"):
        stream.synchronize()
    stream.synchronize()


def test_host_function_must_not_call_the_runtime():
    stream, seen = anyaccel.Stream(), []

    def calls():
        try:
            accelerator.synchronize()
        except RuntimeError as error:
            seen.append(str(error))

    stream.host_fn(calls)
    stream.synchronize()
    assert len(seen) == 1 and "host function" in seen[0]


def test_events():
    event = anyaccel.Event()
    assert event.query() and event.device is None and event.event_id == 0
    event.synchronize()
    event.wait()
    event.wait(anyaccel.Stream())
    assert "not recorded" in repr(event)
    stream = anyaccel.Stream()
    stream.host_fn(time.sleep, 0.05)
    event.record(stream)
    assert event.device == anyaccel.device("host:0") and event.event_id > 0
    event.synchronize()
    assert event.query()
    with pytest.raises(RuntimeError, match="Event device host:0 does not match recording stream's device host:1."):
        event.record(anyaccel.Stream(1))
    with accelerator.device_index(1):
        other = anyaccel.Event()
        other.record()
        assert other.device == anyaccel.device("host:1")
    assert anyaccel.Event("host:1").device == anyaccel.device("host:1")
    for wrong in (3, "host", True):
        with pytest.raises(TypeError):
            event.record(wrong)
    with pytest.raises(TypeError):
        anyaccel.Event(enable_timing=3)
    with pytest.raises(ValueError):
        anyaccel.Event("cuda")
    with pytest.raises(NotImplementedError, match="interprocess"):
        anyaccel.Event(interprocess=True).record()
    with pytest.raises(NotImplementedError):
        event.ipc_handle()
    with pytest.raises(NotImplementedError):
        anyaccel.Event.from_ipc_handle("host:0", b"")


def test_elapsed_time():
    def event(timing=True):
        return anyaccel.Event(enable_timing=timing)

    start, end = event(), event()
    with pytest.raises(ValueError, match="Both events must be created with argument 'enable_timing=True'."):
        event(False).elapsed_time(end)
    with pytest.raises(ValueError, match="Both events must be recorded before calculating elapsed time."):
        start.elapsed_time(end)
    stream = anyaccel.Stream()
    start.record(stream)
    stream.host_fn(time.sleep, 0.05)
    end.record(stream)
    with pytest.raises(RuntimeError, match="Both events must be completed before calculating elapsed time."):
        start.elapsed_time(end)
    end.synchronize()
    assert 40 < start.elapsed_time(end) < 5000
    other = event()
    other.record(anyaccel.Stream(1))
    other.synchronize()
    with pytest.raises(RuntimeError, match="does not match"):
        start.elapsed_time(other)
    with pytest.raises(TypeError):
        start.elapsed_time(None)


def test_waits_leave_other_threads_running():
    stream, ticks, stop = anyaccel.Stream(), [], threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(1)
            time.sleep(0.01)

    thread = threading.Thread(target=tick)
    stream.host_fn(time.sleep, 0.3)
    thread.start()
    stream.synchronize()
    stop.set()
    thread.join()
    assert len(ticks) > 5
