"""The interpreter ends well, whatever is alive and under way."""

import pytest

SETUP = """
import anyaccel, threading, time, sys, atexit
from anyaccel import accelerator as a
"""

CASES = {
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


@pytest.mark.parametrize("case", CASES)
def test_exit(script, case):
    assert script(SETUP + CASES[case], timeout=30) == ""


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
