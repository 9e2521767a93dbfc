"""What other kinds of device do, on simulated ones under their names."""

import os
import subprocess
import sys
import textwrap

import pytest
from test_fork import FORK

SETUP = """
import anyaccel, os, pytest
from anyaccel import accelerator as a
KIND = os.environ["ANYACCEL_TEST_KIND"]
NUMBER = {"cuda": 2, "hip": 10}[KIND]
if not os.environ.get("ANYACCEL_CUDA_LIBRARY"): anyaccel._anyaccel._simulate(KIND, devices=2)
"""


def program(script, kind):
    """Runs a program on two devices of that kind: CUDA's backend on a driver that needs no card, HIP's name for simulated
    ones."""
    environment = {"ANYACCEL_BACKEND": "unset", "ANYACCEL_TEST_KIND": kind}
    if kind == "cuda":
        driver = os.environ.get("ANYACCEL_FAKE_CUDA")
        if not driver:
            pytest.skip("SKIPPED ALOUD: ANYACCEL_FAKE_CUDA names no CUDA driver for tests")
        environment |= {"ANYACCEL_CUDA_LIBRARY": driver, "ANYACCEL_NVML_LIBRARY": driver}
    return lambda code: script(SETUP + textwrap.dedent(code), **environment)


@pytest.fixture
def cuda(script):
    return program(script, "cuda")


@pytest.fixture(params=["cuda", "hip"])
def kind(script, request):
    return program(script, request.param)


def test_a_kind_is_chosen_by_itself(kind):
    kind(
        """
        assert a.current_accelerator() == anyaccel.device(KIND) and a.device_count() == 2 and a.is_available()
        assert not a.is_initialized()
        x = anyaccel.ones(4, device=f"{KIND}:1")
        assert x.device == anyaccel.device(KIND, 1) and x.tolist() == [1.0] * 4
        with pytest.raises(ValueError, match=f"host doesn't match the current accelerator {KIND}."): a.synchronize("host")
        """
    )


def test_cuda_array_interface(cuda):
    cuda(
        """
        import numpy
        letters = dict(bool="|b1", uint8="|u1", int8="|i1", uint16="<u2", int64="<i8", float16="<f2", float32="<f4",
                       float64="<f8", complex64="<c8", complex128="<c16")
        for name, typestr in letters.items():
            x = anyaccel.zeros(2, 3, dtype=getattr(anyaccel, name), device=0)
            told = x.__cuda_array_interface__
            assert told == {"shape": (2, 3), "typestr": typestr, "data": (x.data_ptr(), False), "version": 3,
                            "strides": None, "stream": a.current_stream().native_handle}, told
            assert numpy.dtype(typestr).name == name and told["stream"] > 2
        for name in ("bfloat16", "float8_e5m2", "complex32"):
            assert not hasattr(anyaccel.zeros(2, dtype=getattr(anyaccel, name), device=0), "__cuda_array_interface__")
        assert anyaccel.zeros(0, 3, device=0).__cuda_array_interface__["data"] == (0, False)
        assert not hasattr(anyaccel.zeros(3), "__cuda_array_interface__")
        with anyaccel.Stream() as stream:
            assert x.__cuda_array_interface__["stream"] == stream.native_handle
        """
    )


def test_the_interface_does_not_wait(cuda):
    cuda(
        """
        import threading
        open = threading.Event()
        x = anyaccel.zeros(4, device=0)
        with anyaccel.Stream() as stream:
            stream.host_fn(open.wait)
            x.fill_(1.0)
            x.__cuda_array_interface__
            assert not stream.query()
        open.set()
        """
    )


def test_events_of_several_processes(cuda):
    cuda(
        """
        import threading, time
        event = anyaccel.Event(interprocess=True)
        handle = event.ipc_handle()
        assert len(handle) == 64 and a.is_initialized() and event.device == anyaccel.device("cuda:0")
        # Opened here, as another process would.
        same = anyaccel.Event.from_ipc_handle("cuda:0", handle)
        open = threading.Event()
        one, two = anyaccel.Stream(), anyaccel.Stream()
        one.host_fn(open.wait)
        event.record(one)
        same.wait(two)
        assert not same.query() and not two.query()
        open.set()
        same.synchronize()
        two.synchronize()
        while not (same.query() and event.query()): time.sleep(0.001)
        with pytest.raises(ValueError, match="interprocess"): anyaccel.Event().ipc_handle()
        with pytest.raises(ValueError, match="3 bytes"): anyaccel.Event.from_ipc_handle(0, handle[:3])
        with pytest.raises(TypeError): anyaccel.Event.from_ipc_handle(0, "text")
        """
    )


def test_dlpack_orders_streams_of_the_runtime(kind):
    kind(
        """
        import threading
        x = anyaccel.zeros(4, device=0)
        assert x.__dlpack_device__() == (NUMBER, 0) and anyaccel.zeros(4, device=1).__dlpack_device__() == (NUMBER, 1)
        producer, consumer, other = anyaccel.Stream(), anyaccel.Stream(), anyaccel.Stream()
        producer.wait_stream(a.current_stream())
        open = threading.Event()
        with producer:
            producer.host_fn(open.wait)
            x.fill_(1.0)
            capsule = x.__dlpack__(stream=consumer.native_handle, max_version=(1, 0))
            unordered = x.__dlpack__(stream=-1)
        # Neither waited, and the consumer's stream waits for the producer's.
        assert not producer.query() and not consumer.query() and other.query()
        open.set()
        with consumer: assert x.tolist() == [1.0] * 4
        """
    )


def test_dlpack_orders_streams_of_other_libraries(cuda):
    cuda(
        """
        import ctypes, threading
        driver = ctypes.CDLL(os.environ["ANYACCEL_CUDA_LIBRARY"])
        x = anyaccel.zeros(4, device=0)
        a.synchronize()
        context, theirs, event = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert driver.cuCtxPushCurrent_v2(context) == 0
        assert driver.cuStreamCreateWithPriority(ctypes.byref(theirs), 1, 0) == 0
        assert driver.cuEventCreate(ctypes.byref(event), 2) == 0
        foreign, NOT_READY = theirs.value, 600
        open = threading.Event()
        with anyaccel.Stream() as stream:
            stream.host_fn(open.wait)
            x.fill_(1.0)
            x.__dlpack__(stream=foreign, max_version=(1, 0))
            # The host did not wait; the stream does.
            assert driver.cuEventRecord(event, theirs) == 0
            assert not stream.query()
            assert driver.cuEventQuery(event) == NOT_READY
            open.set()
        assert driver.cuEventSynchronize(event) == 0
        assert driver.cuStreamDestroy_v2(theirs) == 0
        with stream: assert x.tolist() == [1.0] * 4
        """
    )


def test_dlpack_waits_for_other_libraries_streams(kind):
    kind(
        """
        import threading, time
        x = anyaccel.zeros(4, device=0)
        with anyaccel.Stream() as stream:
            for foreign in (None, 12345678, *(() if KIND == "cuda" else (0,))):
                x.fill_(0.0)
                done = []
                stream.host_fn(lambda: (time.sleep(0.05), done.append(1)))
                x.__dlpack__(stream=foreign)
                assert done, foreign
        """
    )


def test_dlpack_inside_a_capture(kind):
    kind(
        """
        x = anyaccel.zeros(4, device=0)
        consumer = anyaccel.Stream()
        with anyaccel.Stream():
            graph = a.Graph()
            with graph:
                x.fill_(1.0)
                with pytest.raises(RuntimeError): x.__dlpack__()
                x.__dlpack__(stream=-1)
                x.fill_(2.0)
            graph.replay()
            assert x.tolist() == [2.0] * 4
        """
    )


def test_what_stream_may_be():
    from anyaccel._anyaccel import _dlpack_order as order

    cpu, cuda, rocm, metal = 1, 2, 10, 8
    for device in (cpu, cuda, rocm, metal):
        assert order(device, None) == "ready" and order(device, -1) == "own"
        for wrong in (-2, -(2**70)):
            with pytest.raises(ValueError):
                order(device, wrong)
        for wrong in (1.5, "1", [], True, object()):
            with pytest.raises(TypeError):
                order(device, wrong)
    for number in (0, 1, 2, 77):
        with pytest.raises(ValueError, match="has no streams"):
            order(cpu, number)
    with pytest.raises(ValueError, match="ambiguous"):
        order(cuda, 0)
    assert [order(cuda, number) for number in (1, 2, 77)] == [1, 2, 77]
    assert order(rocm, 0) == "ready" and order(rocm, 77) == 77
    for number in (1, 2):
        with pytest.raises(ValueError):
            order(rocm, number)


def test_dlpack_streams_on_the_built_in_device():
    import time

    import anyaccel

    x = anyaccel.zeros(4, device=0)
    stream = anyaccel.Stream()
    stream.wait_stream(anyaccel.accelerator.current_stream())
    with stream:
        done = []
        stream.host_fn(lambda: (time.sleep(0.2), done.append(1)))
        x.__dlpack__(stream=-1)
        assert not done
        x.__dlpack__()
        assert done
        for wrong in (0, 1, 2, stream.native_handle + 7):
            with pytest.raises(ValueError):
                x.__dlpack__(stream=wrong)


NPU = FORK + """
import pytest
anyaccel._anyaccel._simulate("npu", devices=2)
"""


def test_a_child_forked_before_the_start(script):
    script(
        NPU
        + """
a.device_count(), a.is_available(), a.current_accelerator(True), a.synchronize(), a.empty_cache(), a.random.manual_seed(3)
anyaccel.Event(), a.Graph(), a.memory_stats(), a.memory_allocated(), a.get_device_capability(), a.get_device_name()
def work():
    x = anyaccel.ones(3, device=0)
    assert x.tolist() == [1.0] * 3 and a.random.initial_seed() == 3
child(work)
child(work)
assert anyaccel.ones(3, device=1).tolist() == [1.0] * 3
""",
        ANYACCEL_BACKEND="unset",
    )


def test_a_child_forked_after_the_start_gets_the_one_clear_error(script):
    script(
        NPU
        + """
a.set_device_index(1)
x, stream, event, graph, pool = anyaccel.ones(3, device=1), anyaccel.Stream(), anyaccel.Event(), a.Graph(), anyaccel.MemPool()
pinned, host = anyaccel.ones(3, pin_memory=True), anyaccel.ones(3)
event.record(stream)
with stream:
    with graph: x.fill_(2.0)
parent = os.getpid()
def work():
    text = ("^Cannot re-initialize NPU in forked subprocess. To use NPU with multiprocessing, you must use the 'spawn' start "
            f"method. .It was started by set_device_index in process {parent}..$")
    for starting in (lambda: anyaccel.empty(1, device=0), anyaccel.Stream, a.current_stream, lambda: a.set_device_index(0),
                     a.device_index(0).__enter__, a.get_memory_info, a.random.initial_seed, a.random.get_rng_state,
                     lambda: anyaccel.ones(3, pin_memory=True), anyaccel.MemPool, a.Graph().capture_begin,
                     a.default_stream, lambda: anyaccel.Event().record(), a.random.get_rng_state_all):
        with pytest.raises(RuntimeError, match=text): starting()
    for stale in (x.tolist, x.cpu, lambda: x.fill_(1), stream.synchronize, stream.query, event.query, event.record,
                  graph.replay, stream.__enter__, pool.__enter__, pinned.tolist, lambda: a.set_stream(stream)):
        with pytest.raises(RuntimeError): stale()
    # No-ops and zeros.
    a.synchronize(), a.synchronize(0), a.empty_cache(), a.empty_host_cache()
    a.reset_peak_memory_stats(), a.reset_accumulated_memory_stats(), a.random.manual_seed(1), a.random.manual_seed_all(1)
    a.random.seed_all()
    assert a.memory_stats() == {} and a.memory_allocated() == 0 and a.max_memory_reserved() == 0
    assert a.current_device_index() == 1 and a.current_accelerator() == anyaccel.device("npu")
    assert (a.current_accelerator(True) is not None) == a.is_available()
    # Host memory is untouched, and what the parent had can be dropped.
    assert host.tolist() == [1.0] * 3
    for name in ("x", "stream", "event", "graph", "pool", "pinned"): del globals()[name]
child(work)
assert x.tolist() == [1.0] * 3 and graph.replay() is None
""",
        ANYACCEL_BACKEND="unset",
    )


WORKER = """
import multiprocessing as mp
import sys
import anyaccel
from anyaccel import accelerator

def setup():
    anyaccel._anyaccel._simulate("npu", devices=2)

def square(x):
    t = anyaccel.full((4,), float(x), device=accelerator.current_accelerator())
    return [v * v for v in t.tolist()]

def name(_):
    try:
        anyaccel.empty(1, device=accelerator.current_accelerator())
    except RuntimeError as error:
        return str(error)

def main(method, state):
    setup()
    context = mp.get_context(method)
    if state == "started":
        anyaccel.ones(3, device=0).tolist()
    spawned = {} if method == "fork" else dict(initializer=setup)
    with context.Pool(2, **spawned) as pool:
        if method == "fork" and state == "started":
            assert all(text.startswith("Cannot re-initialize NPU in forked subprocess.") for text in pool.map(name, range(4)))
        else:
            assert pool.map(square, range(5)) == [[float(x * x)] * 4 for x in range(5)]

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


@pytest.mark.parametrize("state", ["fresh", "started"])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(tmp_path, method, state):
    (tmp_path / "worker.py").write_text(WORKER)
    environment = {key: value for key, value in os.environ.items() if key != "ANYACCEL_BACKEND"}
    done = subprocess.run(
        [sys.executable, "worker.py", method, state], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
