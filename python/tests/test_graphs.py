"""Graphs."""

import threading

import pytest

import anyaccel
from anyaccel import accelerator


@pytest.fixture
def stream():
    with anyaccel.Stream() as stream:
        yield stream


def test_with_block(stream):
    x = anyaccel.zeros(4, device=0)
    graph = accelerator.Graph()
    assert graph.pool() == (0, 0)
    with graph as entered:
        assert entered is None and stream.is_capturing()
        x.fill_(2.0)
    assert not stream.is_capturing() and x.tolist() == [0.0] * 4
    graph.replay()
    assert x.tolist() == [2.0] * 4 and graph.pool() != (0, 0)
    x.zero_()
    graph.replay()
    graph.replay()
    assert x.tolist() == [2.0] * 4


def test_begin_and_end(stream):
    x = anyaccel.zeros(4, device=0)
    graph = accelerator.Graph(keep_graph=True, capture_error_mode="relaxed")
    with pytest.raises(RuntimeError, match=r"capture_end\(\) called before capture_begin\(\)."):
        graph.capture_end()
    with pytest.raises(RuntimeError, match="must have been called before calling replay"):
        graph.replay()
    with pytest.raises(RuntimeError, match="must have been called before calling instantiate"):
        graph.instantiate()
    graph.capture_begin()
    with pytest.raises(RuntimeError):
        graph.capture_begin()
    x.fill_(1.0)
    graph.capture_end()
    with pytest.raises(RuntimeError, match="already owns a captured graph"):
        graph.capture_begin()
    graph.instantiate()
    graph.replay()
    assert x.tolist() == [1.0] * 4
    graph.reset()
    graph.reset()
    graph.graph_pool, graph.capture_error_mode = None, "global"
    with graph:
        x.fill_(3.0)
    graph.replay()
    assert x.tolist() == [3.0] * 4


def test_modes():
    with pytest.raises(ValueError, match="Unknown capture error mode. Expected `default`, `global`, `thread_local`, or `relaxed`, got x"):
        accelerator.Graph(capture_error_mode="x")
    graph = accelerator.Graph()
    graph.capture_error_mode = "y"
    with pytest.raises(ValueError, match="got y"):
        graph.capture_begin()
    with pytest.raises(TypeError):
        accelerator.Graph(False, None)
    graph.capture_error_mode, graph.graph_pool = "default", "z"
    with pytest.raises(TypeError):
        graph.capture_begin()
    graph.graph_pool = (12345, 67890)
    with pytest.raises(RuntimeError):
        graph.capture_begin()


def test_shared_pool(stream):
    first = accelerator.Graph()
    with first:
        a = anyaccel.zeros(1000, device=0)
    second = accelerator.Graph(pool=first.pool())
    with second:
        b = anyaccel.zeros(1000, device=0)
    assert second.pool() == first.pool()
    first.replay(), second.replay()
    assert a.tolist() == b.tolist()
    pool = anyaccel.MemPool()
    third = accelerator.Graph(pool=pool.id)
    with third:
        anyaccel.zeros(10, device=0)
    assert third.pool() == pool.id


def test_waits_are_refused_and_the_capture_goes_on(stream):
    x, inside, outside = anyaccel.zeros(4, device=0), anyaccel.Event(), anyaccel.Event()
    outside.record()
    graph = accelerator.Graph()
    with graph:
        inside.record()
        for call in (stream.synchronize, stream.query, accelerator.synchronize, inside.query, inside.synchronize, x.tolist):
            with pytest.raises(RuntimeError):
                call()
        with pytest.raises(RuntimeError):
            outside.wait()
        pinned = anyaccel.empty(4, pin_memory=True)
        with pytest.raises(RuntimeError):
            x.copy_(pinned)
        x.fill_(5.0)
    graph.replay()
    assert x.tolist() == [5.0] * 4


def test_an_error_in_the_body_is_the_one_reported(stream):
    graph = accelerator.Graph()
    with pytest.raises(KeyError), graph:
        other = anyaccel.Stream()
        other.wait_stream(stream)
        raise KeyError("body")
    assert not stream.is_capturing()
    with graph:
        pass
    graph.replay()
    with pytest.raises(RuntimeError, match="not joined"), accelerator.Graph():
        other = anyaccel.Stream()
        other.wait_stream(stream)
        anyaccel.zeros(4, device=0)
        with other:
            anyaccel.zeros(4, device=0)
    assert not stream.is_capturing()


def test_leaving_with_another_stream_current(stream):
    x = anyaccel.zeros(4, device=0)
    graph = accelerator.Graph()
    with graph:
        x.fill_(7.0)
        accelerator.set_stream(anyaccel.Stream())
    assert not stream.is_capturing()
    graph.replay()
    assert x.tolist() == [7.0] * 4


def test_global_mode_refuses_other_threads(stream):
    errors = []

    def other():
        try:
            accelerator.synchronize()
        except RuntimeError as error:
            errors.append(str(error))

    for mode, count in (("global", 1), ("thread_local", 0), ("default", 0)):
        with accelerator.Graph(capture_error_mode=mode):
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        assert len(errors) == count, mode
        errors.clear()


def test_host_functions_replay(stream):
    seen = []
    graph = accelerator.Graph()
    with graph:
        stream.host_fn(seen.append, 1)
    assert seen == []
    graph.replay(), graph.replay()
    stream.synchronize()
    assert seen == [1, 1]


def test_each_replay_draws_what_the_eager_run_would_have(stream):
    accelerator.random.manual_seed(3)
    x = anyaccel.empty(8, device=0)
    eager = [x.normal_().tolist() for _ in range(3)]
    accelerator.random.manual_seed(3)
    graph = accelerator.Graph()
    with graph:
        x.normal_()
    replayed = []
    for _ in range(3):
        graph.replay()
        replayed.append(x.tolist())
    assert replayed == eager


def test_dump(stream, tmp_path):
    x = anyaccel.zeros(4, device=0)
    graph = accelerator.Graph(keep_graph=True)
    with graph:
        x.fill_(1.0)
    with pytest.raises(RuntimeError, match="enable_debug_mode"):
        graph.debug_dump(tmp_path / "graph.dot")
    graph = accelerator.Graph()
    graph.enable_debug_mode()
    with graph:
        x.fill_(1.0)
    graph.debug_dump(str(tmp_path / "graph.dot"))
    assert (tmp_path / "graph.dot").read_text().startswith("digraph")
    with pytest.raises(RuntimeError, match="can't be written"):
        graph.debug_dump(tmp_path / "nowhere" / "graph.dot")


def test_subclass(stream):
    class Mine(accelerator.Graph):
        def __init__(self, tag):
            super().__init__(keep_graph=True)
            self.tag = tag

    mine = Mine("x")
    with mine:
        x = anyaccel.ones(2, device=0)
    mine.replay()
    assert x.tolist() == [1.0, 1.0] and mine.tag == "x" and "Graph" in repr(mine)
