"""The interpreter ends well, whatever is alive and under way."""

import os
import subprocess
import sys

import pytest

SETUP = """
import anyaccel, threading, time, sys, atexit
from anyaccel import accelerator as a
"""

CASES = {
    "copies of pinned memory in flight": """
x, pinned = anyaccel.ones(1 << 20, device=0), anyaccel.ones(1 << 20, pin_memory=True)
s = anyaccel.Stream()
s.host_fn(time.sleep, 0.1)
with s: x.copy_(pinned, non_blocking=True), pinned.copy_(x, non_blocking=True)
""",
    "a capture under way in a daemon thread": """
began = threading.Event()
def work():
    a.set_stream(anyaccel.Stream())
    graph = a.Graph()
    graph.capture_begin()
    x = anyaccel.ones(10, device=0)
    began.set()
    time.sleep(60)
threading.Thread(target=work, daemon=True).start()
began.wait()
""",
    "an error that nobody catches": """
def work():
    with anyaccel.Stream() as s, anyaccel.MemPool():
        x = anyaccel.ones(10, device=0)
        raise SystemExit(0)
work()
""",
    "a host function that failed": """
anyaccel.Stream().host_fn(lambda: 1 / 0)
""",
    "nothing started": "",
    "live objects": """
x, s, e, g, p = anyaccel.ones(1000, device=0), anyaccel.Stream(), anyaccel.Event(), a.Graph(), anyaccel.MemPool()
e.record(s)
with s:
    with g: x.fill_(2.0)
    g.replay()
view = memoryview(anyaccel.ones(3))
""",
    "a capture under way": """
g = a.Graph()
a.set_stream(anyaccel.Stream())
g.capture_begin()
x = anyaccel.ones(10, device=0)
""",
    "scopes left open": """
anyaccel.Stream().__enter__(), anyaccel.MemPool().__enter__(), a.device_index(1).__enter__(), anyaccel.random.fork_rng().__enter__()
anyaccel.device("host:0").__enter__()
""",
    "a host function under way": """
anyaccel.Stream().host_fn(time.sleep, 0.3)
""",
    "host functions in a queue": """
s = anyaccel.Stream()
s.host_fn(time.sleep, 0.2)
for _ in range(1000): s.host_fn(lambda: None)
""",
    "host functions of a graph": """
s, g = anyaccel.Stream(), a.Graph()
with s:
    with g: s.host_fn(time.sleep, 0.05)
    for _ in range(5): g.replay()
""",
    "a daemon thread that waits": """
s = anyaccel.Stream()
s.host_fn(time.sleep, 0.5)
threading.Thread(target=s.synchronize, daemon=True).start()
time.sleep(0.1)
""",
    "daemon threads at work": """
def work():
    x = anyaccel.ones(100, device=0)
    with anyaccel.Stream() as s:
        while True:
            x.fill_(1.0); s.host_fn(int); s.synchronize(); a.memory_stats(); anyaccel.empty(10, device=0)
for _ in range(4): threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
""",
    "calls from atexit and from __del__": """
class Late:
    def __del__(self):
        anyaccel.ones(3, device=0).tolist(); a.synchronize()
late = Late()
atexit.register(lambda: anyaccel.ones(3, device=0).tolist())
sys.modules["late"] = Late()
""",
    "a deferred call that never ran": "a.random._lazy_call(lambda: print('never'))",
    "an observer": "a.attach_out_of_memory_observer(lambda *_: None); anyaccel.ones(3, device=0)",
    "sys.exit in a with block": """
with anyaccel.Stream(), a.device_index(1):
    s = anyaccel.ones(3, device=0)
    sys.exit(0)
""",
}


@pytest.mark.parametrize("kind", ["host", "npu"])
@pytest.mark.parametrize("case", CASES)
def test_exit(case, kind):
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1", "ANYACCEL_BACKEND": kind}
    simulated = "anyaccel._anyaccel._simulate('npu', devices=2)\n" if kind == "npu" else ""
    code = SETUP + simulated + CASES[case]
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_exit_with_what_others_hold():
    """NumPy arrays, and PyTorch's and JAX's tensors where they are installed, share memory until the end."""
    code = SETUP + """
held = []
for module, take in (("numpy", "from_dlpack"), ("torch", "from_dlpack"), ("jax.dlpack", "from_dlpack")):
    try:
        library = __import__(module, fromlist=["x"])
    except ImportError:
        continue
    held += [getattr(library, take)(anyaccel.ones(100, device=0)), anyaccel.ones(3).numpy(), memoryview(anyaccel.ones(3, pin_memory=True))]
    if module != "jax.dlpack":
        held += [anyaccel.from_dlpack(getattr(library, "zeros")(3)) for _ in range(3)]
cycle = [anyaccel.ones(10, device=0), anyaccel.Stream(), anyaccel.MemPool(), a.Graph()]
cycle.append(cycle)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_import_brings_no_numpy_and_little_else(script):
    out = script(
        """
        import sys
        before = set(sys.modules)
        import anyaccel
        assert "numpy" not in sys.modules
        print(*sorted(m for m in set(sys.modules) - before if not m.startswith("anyaccel")))
        """
    )
    assert len(out.split()) < 10, out
