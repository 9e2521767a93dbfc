"""Ctrl-C ends every call that waits; the work goes on, and nothing is lost."""

import pytest

SETUP = """
import anyaccel, copy, numpy, os, pickle, signal, threading, time
from anyaccel import accelerator as a
# A shell starts what it runs in the background with this signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

stream = anyaccel.Stream()
stream.wait_stream(a.current_stream())
a.set_stream(stream)
event = anyaccel.Event(blocking=True)
x, y = anyaccel.zeros(1 << 18, device=0), anyaccel.zeros(1 << 18, device=0)
one = anyaccel.zeros(1, device=0)
host = anyaccel.ones(1 << 18)
pinned, sink = host.pin_memory(), anyaccel.zeros(1 << 18, pin_memory=True)
stream.synchronize()
open = threading.Event()

def hold():
    open.clear()
    stream.host_fn(open.wait)

def interrupted(wait):
    sent = []
    def send():
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)
    timer = threading.Timer(0.1, send)
    timer.start()
    try:
        wait()
        raise AssertionError("not interrupted")
    except KeyboardInterrupt:
        late = time.perf_counter() - sent[0]
    timer.join()
    assert not open.is_set()
    assert late < 2, late  # 0.1 but for a busy machine
    return late

def graph():
    with a.Graph(): x.fill_(1.0)
"""

WAITS = {
    "stream.synchronize": "stream.synchronize",
    "device": "a.synchronize",
    "event.synchronize": "event.synchronize",
    "tolist": "x.tolist",
    "item": "one.item",
    "cpu": "x.cpu",
    "to": "lambda: x.to('cpu')",
    "to another type": "lambda: x.to('cpu', anyaccel.float64)",
    "numpy": "lambda: x.numpy(force=True)",
    "equal": "lambda: x.equal(y)",
    "pickle": "lambda: pickle.dumps(x)",
    "repr needs no wait, bytes do": "lambda: bytes(memoryview(sink))",
    "copy to the host": "lambda: anyaccel.empty(1 << 18).copy_(x)",
    "copy from the host": "lambda: x.copy_(host)",
    "copy to pinned memory": "lambda: sink.copy_(x)",
    "copy from pinned memory": "lambda: x.copy_(pinned)",
    "a pinned view": "sink.numpy",
    "a pinned address": "sink.data_ptr",
    "filling pinned memory": "lambda: sink.fill_(3.0)",
    "pinned memory that a copy reads": "pinned.zero_",
    "dlpack": "lambda: numpy.from_dlpack(x)",
    "a graph's scope": "graph",
}


def test_every_wait(script):
    cases = ",\n".join(f"{name!r}: {code}" for name, code in WAITS.items())
    out = script(
        SETUP
        + f"""
hold()
event.record(stream)
x.copy_(pinned, non_blocking=True)
sink.copy_(x, non_blocking=True)
for name, wait in {{{cases}}}.items():
    try:
        interrupted(wait)
    except BaseException as error:
        error.add_note(name)
        raise
open.set()
assert sink.tolist() == [1.0] * (1 << 18) and (pinned.numpy() == 1.0).all()
event.synchronize(), a.synchronize()
graph()
print("done")
""",
        timeout=120,
    )
    assert out == "done"


def test_empty_cache(script):
    script(
        SETUP
        + """
big = anyaccel.empty(64 << 20, dtype=anyaccel.uint8, device=0)
other = anyaccel.Stream()
other.host_fn(open.wait)
with other: big.fill_(1)
del big
reserved = a.memory_reserved()
interrupted(a.empty_cache)
assert a.memory_reserved() == reserved
open.set()
a.empty_cache()
assert a.memory_reserved() < reserved
"""
    )


def test_memory_that_another_thread_waits_for(script):
    script(
        SETUP
        + """
hold()
sink.copy_(x, non_blocking=True)
thread = threading.Thread(target=sink.tolist)
thread.start()
time.sleep(0.1)
interrupted(sink.tolist)
open.set()
thread.join()
"""
    )


def test_what_another_signal_raises(script):
    script(
        SETUP
        + """
class Late(Exception): pass
def alarm(*_):
    seen.append(1)
    if len(seen) == 3: raise Late
seen = []
signal.signal(signal.SIGALRM, alarm)
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
hold()
try:
    stream.synchronize()
    raise AssertionError("not interrupted")
except Late:
    assert len(seen) == 3, seen
signal.setitimer(signal.ITIMER_REAL, 0)
open.set()
stream.synchronize()
"""
    )


def test_a_program_in_a_thread_is_not_interrupted(script):
    script(
        SETUP
        + """
hold()
ended = []
thread = threading.Thread(target=lambda: ended.append(stream.synchronize()))
thread.start()
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)
except KeyboardInterrupt:
    pass
assert not ended
open.set()
thread.join()
assert ended == [None]
"""
    )
