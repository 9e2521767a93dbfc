"""fork and spawn, before and after the start."""

import os
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

FORK = """
import anyaccel, os, sys, traceback
from anyaccel import accelerator as a

def child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""


def test_a_child_forked_before_the_start_is_fresh(script):
    script(
        FORK
        + """
def work():
    assert not a.is_initialized()
    assert anyaccel.ones(3, device=0).tolist() == [1.0] * 3
a.is_available(), a.device_count(), a.random.manual_seed(5), a.synchronize(), a.memory_stats(), a.current_accelerator(True)
child(work)
def seeded():
    assert a.random.initial_seed() == 5
child(seeded)
"""
    )


def test_the_built_in_device_restarts_in_a_child(script):
    script(
        FORK
        + """
import pytest
a.set_device_index(1)
stream, event, graph, x, pinned = anyaccel.Stream(0), anyaccel.Event(), a.Graph(), anyaccel.ones(3, device=0), anyaccel.ones(3, pin_memory=True)
event.record(stream)
with stream:
    with graph: x.fill_(2.0)
pool = anyaccel.MemPool()
a.random.manual_seed_all(4)
host = anyaccel.ones(3)
def work():
    assert a.is_available() and a.device_count() == 2 and a.current_device_index() == 1
    a.synchronize(), a.empty_cache(), a.reset_peak_memory_stats()
    assert a.memory_allocated() == 0 and a.memory_stats() == {}
    assert host.tolist() == [1.0] * 3
    for stale in (stream.synchronize, stream.query, event.record, event.query, graph.replay, x.tolist, pinned.tolist,
                  lambda: a.set_stream(stream), stream.__enter__, pool.__enter__, lambda: x.fill_(1.0), lambda: pinned.fill_(1.0)):
        with pytest.raises(RuntimeError): stale()
    y = anyaccel.ones(3, device=0)
    assert y.tolist() == [1.0] * 3 and a.random.initial_seed(0) == 4
    with anyaccel.Stream() as s: y.fill_(3.0)
    s.synchronize()
    g = a.Graph()
    with s:
        with g: y.fill_(4.0)
        g.replay()
        assert y.tolist() == [4.0] * 3
    del globals()["x"], globals()["graph"]
child(work)
assert x.tolist() == [1.0] * 3
"""
    )


def test_fork_while_threads_are_inside(script):
    script(
        FORK
        + """
import threading
stop = threading.Event()
def busy():
    x = anyaccel.ones(1000, device=0)
    s = anyaccel.Stream()
    while not stop.is_set():
        with s:
            x.fill_(1.0)
            s.host_fn(int)
            s.synchronize()
threads = [threading.Thread(target=busy, daemon=True) for _ in range(3)]
for t in threads: t.start()
def work():
    assert anyaccel.ones(3, device=0).tolist() == [1.0] * 3
for _ in range(20): child(work)
stop.set()
for t in threads: t.join()
""",
        timeout=120,
    )


WORKER = """
import multiprocessing as mp
import anyaccel
from anyaccel import accelerator

def square(x):
    t = anyaccel.full((4,), float(x), device=accelerator.current_accelerator())
    return [v * v for v in t.tolist()]

def main(method, start_first):
    if start_first:
        anyaccel.ones(3, device=0).tolist()
    with mp.get_context(method).Pool(2) as pool:
        assert pool.map(square, range(5)) == [[float(x * x)] * 4 for x in range(5)]

if __name__ == "__main__":
    import sys
    main(sys.argv[1], sys.argv[2] == "started")
"""


@pytest.mark.parametrize("state", ["fresh", "started"])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(tmp_path, method, state):
    import subprocess

    (tmp_path / "worker.py").write_text(WORKER)
    done = subprocess.run([sys.executable, "worker.py", method, state], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_tensors_are_sent_by_value(tmp_path):
    import pickle

    import anyaccel

    x = anyaccel.tensor([1, 2, 3], device="host:1")
    y = pickle.loads(pickle.dumps(x))
    assert y.device == x.device and y.equal(x) and y.data_ptr() != x.data_ptr()


def test_python_has_no_fork_handlers_of_ours(script):
    """Nothing is registered with os.register_at_fork: the tests above and below show that nothing needs to be."""
    script(
        """
import os
registered = []
os.register_at_fork = lambda **handlers: registered.append(handlers)
import anyaccel
from anyaccel import accelerator as a
anyaccel.ones(3, device=0).tolist()
with anyaccel.Stream() as s: s.host_fn(int), s.synchronize()
ours = [h for h in registered if any("anyaccel" in (getattr(f, "__module__", "") or "") for f in h.values())]
assert not ours, ours
"""
    )
