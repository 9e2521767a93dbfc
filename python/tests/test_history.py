"""Memory history: what is recorded, what a snapshot holds, and where it goes."""

import gc
import os
import pickle
import sys
import threading
import weakref

import pytest
import snapshot_layout

import anyaccel
from anyaccel import accelerator, memory


@pytest.fixture(autouse=True)
def quiet():
    yield
    memory.record_memory_history(None)


def recorded(action="alloc"):
    return [event for event in memory.snapshot()["device_traces"][0] if event["action"] == action]


def hold(count=1024):
    return anyaccel.empty(count, dtype=anyaccel.uint8, device=0)


def test_stacks_are_those_of_the_program():
    memory.record_memory_history()
    x = hold()
    line = sys._getframe().f_lineno - 1
    frames = recorded()[-1]["frames"]
    assert [frame["name"] for frame in frames[:2]] == ["hold", "test_stacks_are_those_of_the_program"]
    assert (frames[1]["filename"], frames[1]["line"]) == (__file__, line)
    assert frames[0]["line"] == hold.__code__.co_firstlineno + 1
    expected, frame = [], sys._getframe()
    while frame is not None:
        expected.append((frame.f_code.co_name, frame.f_code.co_filename))
        frame = frame.f_back
    assert [(f["name"], f["filename"]) for f in frames[1:]] == expected
    del x
    freed = recorded("free_completed")[-1]["frames"]
    assert freed[0]["name"] == "test_stacks_are_those_of_the_program" and freed[0]["line"] > line
    snapshot = memory.snapshot()
    requested = [e for e in snapshot["device_traces"][0] if e["action"] == "free_requested"][-1]
    assert requested["frames"] == freed


def test_code_is_kept_while_it_is_recorded():
    memory.record_memory_history(clear_history=True)
    scope = {"anyaccel": anyaccel}
    exec(compile("def made():\n\n    return anyaccel.empty(8, device=0)\n", "made.py", "exec"), scope)
    code = weakref.ref(scope["made"].__code__)
    made = scope.pop("made")
    made()
    del made, scope
    gc.collect()
    # Said again, the recording goes on: what it holds keeps its stacks.
    memory.record_memory_history(clear_history=False)
    frame = recorded()[-1]["frames"][0]
    assert (frame["name"], frame["filename"], frame["line"]) == ("made", "made.py", 3)
    memory.record_memory_history(None, clear_history=True)
    gc.collect()
    assert code() is None


def test_snapshots_have_pytorchs_layout(tmp_path):
    memory.record_memory_history(clear_history=True)
    accelerator.memory.empty_cache()
    memory.record_memory_history(clear_history=True)
    with memory.memory_annotation("step"):
        kept = [hold(1000 + 5000 * i) for i in range(20)]
        pinned = anyaccel.empty(1000, pin_memory=True)
    side = anyaccel.Stream()
    with side:
        beside = hold(5 << 20)
    del kept[::2], pinned
    with pytest.raises(anyaccel.OutOfMemoryError):
        accelerator.memory.set_memory_budget(accelerator.memory_reserved())
        hold(1 << 40)
    accelerator.memory.set_memory_budget(None)
    memory.snapshot()
    path = tmp_path / "memory.pickle"
    memory.dump_snapshot(path)
    read = snapshot_layout.load(str(path))
    snapshot_layout.layout(read)
    snapshot_layout.layout(memory.snapshot())
    assert {event["action"] for event in read["device_traces"][0]} >= {"segment_alloc", "alloc", "oom", "snapshot"}
    assert {event["action"] for event in read["host_traces"]} >= {"alloc", "free_requested", "free_completed"}
    assert [a["stage"] for a in read["external_annotations"]] == ["START", "END"]
    assert len(read["device_traces"]) == accelerator.device_count()
    stats = accelerator.memory_stats()
    segments = [segment for segment in read["segments"] if segment["device"] == 0]
    for key, of in [("reserved", "total_size"), ("allocated", "allocated_size"), ("active", "active_size")]:
        assert stats[f"{key}_bytes.all.current"] == sum(segment[of] for segment in segments)
    assert read["anyaccel"]["devices"][0]["total_memory"] == accelerator.get_memory_info()[1]
    assert os.listdir(tmp_path) == ["memory.pickle"]
    del beside


def test_the_events_rebuild_the_blocks(script):
    # In an interpreter where nothing was allocated before.
    script(
        f"""
        import sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        import anyaccel, snapshot_layout
        anyaccel.memory.record_memory_history(stacks=None)
        assert not anyaccel.accelerator.is_initialized() if hasattr(anyaccel.accelerator, "is_initialized") else True
        live = []
        for i in range(2000):
            live.append(anyaccel.empty(1 + i * 7919 % 300_000, dtype=anyaccel.uint8, device=0))
            if i % 3:
                live.pop(i * 31 % len(live))
            if i == 1000:
                anyaccel.accelerator.empty_cache()
        snapshot = anyaccel.memory.snapshot()
        snapshot_layout.layout(snapshot)
        snapshot_layout.rebuilt(snapshot, 0)
        assert all(event["frames"] == [] or event["frames"][0]["name"] == "empty_cache"
                   for event in snapshot["device_traces"][0])
        """
    )


def test_a_trim_is_told_by_its_name():
    memory.record_memory_history()
    del (x := [hold(30 << 20)])[:]
    accelerator.empty_cache()
    assert recorded("segment_free")[-1]["frames"][0]["name"] == "empty_cache"
    assert not x


def test_annotations_nest_and_decorate():
    memory.record_memory_history()

    @memory.memory_annotation("forward")
    def forward():
        return hold()

    step = memory.memory_annotation("step 1")
    with step, step:
        x = forward()
    assert recorded()[-1]["user_metadata"] == "step 1/step 1/forward"
    y = hold()
    assert recorded()[-1]["user_metadata"] == ""
    ranges = [(a["stage"], a["name"]) for a in memory.snapshot()["external_annotations"]]
    assert ranges == [
        ("START", "step 1"),
        ("START", "step 1"),
        ("START", "forward"),
        ("END", "forward"),
        ("END", "step 1"),
        ("END", "step 1"),
    ]
    with pytest.raises(TypeError, match="name must be a str, not int"):
        memory.memory_annotation(3)
    del x, y


def test_levels_and_bounds():
    memory.record_memory_history(context=None)
    x = hold()
    assert "frames" not in recorded()[-1]
    memory.record_memory_history(context="alloc", skip_actions=["free_requested"])
    x = hold()
    del x
    assert not [e for e in recorded("free_requested") if e["frames"]] if recorded("free_requested") else True
    assert recorded("free_completed")[-1]["frames"] == recorded()[-1]["frames"]
    memory.record_memory_history(max_entries=10)
    for _ in range(20):
        hold()
    status = memory.history_status()
    # Ten of each device and of its pinned memory.
    assert status["recording"] and status["entries"] <= 40 and status["dropped"] >= 50
    assert memory.snapshot()["anyaccel"]["devices"][0]["dropped"] >= 50
    memory.record_memory_history("state", clear_history=True)
    x = hold()
    snapshot = memory.snapshot()
    assert snapshot["device_traces"][0] == []
    blocks = [b for s in snapshot["segments"] for b in s["blocks"] if b["frames"]]
    assert any(f["name"] == "test_levels_and_bounds" for b in blocks for f in b["frames"])
    memory.record_memory_history(None)
    assert memory.history_status() == {"recording": False, "entries": 0, "dropped": 0}
    assert memory.snapshot()["device_traces"][0] == []
    memory.record_memory_history(max_entries=sys.maxsize)
    del x


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"enabled": "yes"}, ValueError, "enabled to be one of 'state', 'all' or None, not 'yes'"),
        ({"enabled": True}, TypeError, "enabled must be"),
        ({"context": "none"}, ValueError, "context"),
        ({"stacks": "c++"}, ValueError, "stacks"),
        ({"max_entries": -1}, ValueError, "max_entries must not be negative"),
        ({"max_entries": "many"}, TypeError, "max_entries must be an int, not str"),
        ({"skip_actions": "alloc"}, TypeError, "not one name"),
        ({"skip_actions": ["alloc", "frees"]}, ValueError, "'frees'"),
        ({"skip_actions": 3}, TypeError, "int"),
    ],
)
def test_bad_arguments(arguments, error, text):
    with pytest.raises(error, match=text):
        memory.record_memory_history(**arguments)
    assert not memory.history_status()["recording"]


def test_unwritable_paths_are_named(tmp_path):
    for path in [tmp_path / "no" / "x.pickle", tmp_path, b"/dev/null/x", ""]:
        with pytest.raises(OSError, match="can't be written to"):
            memory.dump_snapshot(os.fsdecode(path) if isinstance(path, bytes) else path)
    assert os.listdir(tmp_path) == []
    with pytest.raises(TypeError):
        memory.dump_snapshot(3)


def test_threads_record_their_own_stacks():
    memory.record_memory_history()

    def named_worker():
        for _ in range(200):
            hold()

    threads = [threading.Thread(target=named_worker) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        snapshot_layout.layout(memory.snapshot())
    for thread in threads:
        thread.join()
    stacks = [[frame["name"] for frame in event["frames"]] for event in recorded()]
    assert sum("named_worker" in stack for stack in stacks) == 800


def test_snapshots_from_host_functions():
    memory.record_memory_history()
    seen = []
    stream = anyaccel.Stream()
    x = hold()
    stream.host_fn(lambda: seen.append(len(memory.snapshot()["device_traces"])))
    stream.synchronize()
    assert seen == [accelerator.device_count()]
    del x


def test_an_exception_that_is_being_handled_stays_one():
    memory.record_memory_history()

    def fail():
        x = hold()
        raise KeyError(len(x))

    with pytest.raises(KeyError):
        fail()
    gc.collect()
    assert recorded("free_completed")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_records_anew(script):
    script(
        """
        import os
        import anyaccel
        anyaccel.memory.record_memory_history()
        x = anyaccel.empty(10, device=0)
        pid = os.fork()
        if pid == 0:
            assert not anyaccel.memory.history_status()["recording"]
            anyaccel.memory.record_memory_history()
            y = anyaccel.empty(10, device=0)
            frames = anyaccel.memory.snapshot()["device_traces"][0][-1]["frames"]
            os._exit(0 if frames[0]["name"] == "<module>" else 1)
        assert os.waitpid(pid, 0)[1] == 0
        """
    )


def test_nothing_runs_when_a_pickle_of_ours_is_read():
    memory.record_memory_history()
    x = hold()
    data = pickle.dumps(memory.snapshot())
    assert b"c__builtin__" not in data
    del x


def program():
    """Sizes that grow leave pieces behind."""
    kept = []
    for step in range(60):
        kept.append(hold((step % 7 + 1) * 3_000_000 + step * 70_000))
        if step % 3:
            kept.pop(step % len(kept))


def test_recordings_can_be_replayed_and_tuned(script, tmp_path):
    path = str(tmp_path / "recorded.pickle")
    script(
        f"""
        import sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        import anyaccel
        from anyaccel import memory
        import test_history
        memory.record_memory_history()
        test_history.program()
        memory.dump_snapshot({path!r})
        stats = anyaccel.accelerator.memory_stats()
        (same,) = memory.replay({path!r})
        assert same["peak_allocated"] == stats["allocated_bytes.all.peak"], (same, stats)
        assert same["peak_reserved"] == stats["reserved_bytes.all.peak"]
        assert same["oom_event"] is None and same["device"] == 0 and same["config"] == ""
        assert memory.replay(memory.snapshot())[0]["peak_reserved"] == same["peak_reserved"]
        """
    )
    settings = ["", "expandable_segments:True", "max_split_size_mb:32"]
    rows = memory.replay(path, settings, memory=1 << 33)
    assert [row["config"] for row in rows] == settings and {row["total_mb"] for row in rows} == {8192}
    assert rows[1]["peak_reserved"] < rows[0]["peak_reserved"]
    tight = memory.replay(path, "", memory=rows[0]["peak_allocated"] // 2)[0]
    assert tight["oom_event"] is not None and tight["num_ooms"] == 1
    tuning = memory.tune(path, memory=rows[0]["peak_reserved"], settings=8, threads=2)
    assert tuning["best"]["fits"] and tuning["best"]["margin"] > 0
    assert len(tuning["candidates"]) == 8 and tuning["default"]["settings"] == ""
    assert tuning["least_memory"] <= rows[0]["peak_reserved"]
    assert memory.tune(path, memory=1 << 20, settings=4)["best"] is None
    (found,) = memory.findings(path)
    assert "program" in str(found)


def test_bad_recordings_are_named(tmp_path):
    for path, error, text in [
        (tmp_path / "none.pickle", OSError, "can't read '.*none.pickle'"),
        (tmp_path, OSError, "can't read"),
        (__file__, ValueError, "test_history.py"),
        ({"a": 1}, ValueError, "the snapshot: "),
        (3, TypeError, None),
    ]:
        for function in (memory.replay, memory.findings, lambda source: memory.tune(source, 1 << 30)):
            with pytest.raises(error, match=text):
                function(path)
    memory.record_memory_history()
    with pytest.raises(ValueError, match="max_split_size_mb"):
        memory.replay(memory.snapshot(), "max_split_size_mb:1")
