"""Memory histories: whose stacks they show, under which options, on which threads."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.cuda._memory_viz as viz

NAME = torch._C._get_privateuse1_backend_name()
module = torch.get_device_module(NAME)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    # What other tests left behind goes before something is recorded.
    gc.collect()
    for device in range(module.device_count()):
        torch.accelerator.synchronize(device)
    torch.accelerator.empty_cache()
    yield
    module.record_memory_history(None)


@pytest.fixture
def snapshot(tmp_path: Path) -> Any:
    def take() -> dict[str, Any]:
        path = tmp_path / "memory.pickle"
        module.dump_memory_snapshot(path)
        return pickle.loads(path.read_bytes())

    return take


def events(snapshot: dict[str, Any], action: str = "alloc") -> list[dict[str, Any]]:
    return [event for event in snapshot["device_traces"][0] if event["action"] == action]


def names(event: dict[str, Any]) -> list[str]:
    return [frame["name"] for frame in event["frames"]]


def blocks(snapshot: dict[str, Any]) -> list[dict[str, Any]]:
    return [b for segment in snapshot["segments"] for b in segment["blocks"] if b["state"] == "active_allocated"]


def hold(device: torch.device, count: int = 1000) -> torch.Tensor:
    return torch.empty(count, device=device)


def test_stacks_are_those_of_the_program(device: torch.device, snapshot: Any) -> None:
    module.record_memory_history()
    x = hold(device)
    line = sys._getframe().f_lineno - 1
    (event,) = events(snapshot())
    assert names(event)[:2] == ["hold", "test_stacks_are_those_of_the_program"]
    assert (event["frames"][1]["filename"], event["frames"][1]["line"]) == (__file__, line)
    assert event["frames"][0]["line"] == hold.__code__.co_firstlineno + 1
    expected, frame = [], sys._getframe()
    while frame is not None:
        expected.append((frame.f_code.co_name, frame.f_code.co_filename))
        frame = frame.f_back
    assert [(f["name"], f["filename"]) for f in event["frames"][1:]] == expected
    (block,) = [block for block in blocks(snapshot()) if block["address"] == x.data_ptr()]
    assert block["frames"] == event["frames"]
    address = x.data_ptr()
    del x
    (freed,) = [event for event in events(snapshot(), "free_completed") if event["addr"] == address]
    assert names(freed)[0] == "test_stacks_are_those_of_the_program" and freed["frames"][0]["line"] > line


def test_an_operator_without_the_gil_is_known_by_its_line(device: torch.device, snapshot: Any) -> None:
    x = hold(device)
    module.record_memory_history()
    y = x + x
    line = sys._getframe().f_lineno - 1
    found = [event for event in events(snapshot()) if event["addr"] == y.data_ptr()]
    assert [(event["frames"][0]["filename"], event["frames"][0]["line"]) for event in found] == [(__file__, line)]


@pytest.mark.parametrize(
    ("context", "of_blocks", "of_allocations", "of_frees"),
    [
        ("all", True, "hold", "test_contexts"),
        ("alloc", True, "hold", "hold"),
        ("state", True, None, None),
        (None, False, None, None),
    ],
)
def test_contexts(
    context: str | None,
    of_blocks: bool,
    of_allocations: str | None,
    of_frees: str | None,
    device: torch.device,
    snapshot: Any,
) -> None:
    module.record_memory_history(context=context)
    kept, gone = hold(device), hold(device)
    del gone
    taken = snapshot()
    (block,) = [block for block in blocks(taken) if block["address"] == kept.data_ptr()]
    assert ([frame["name"] for frame in block["frames"]][:1] == ["hold"]) == of_blocks

    def innermost(event: dict[str, Any]) -> str | None:
        frames = event.get("frames")
        return frames[0]["name"] if frames else None

    assert [innermost(event) for event in events(taken)] == [of_allocations] * 2
    assert [innermost(event) for event in events(taken, "free_completed")] == [of_frees]


def test_without_stacks_and_state_alone(device: torch.device, snapshot: Any) -> None:
    module.record_memory_history(stacks=None)
    x = hold(device)
    assert [event["frames"] for event in events(snapshot())] == [[]]
    module.record_memory_history("state")
    y = hold(device)
    taken = snapshot()
    assert taken["device_traces"][0] == []
    named = {block["address"]: names(block) for block in blocks(taken)}
    assert named[y.data_ptr()][0] == "hold"
    del x


def test_actions_are_skipped_entries_limited_pinned_memory_recorded(device: torch.device, snapshot: Any) -> None:
    module.record_memory_history(skip_actions=["free_requested", "snapshot"], record_pinned_host_memory=True)
    del_me = hold(device)
    del del_me
    pinned = torch.empty(1000).pin_memory()
    snapshot()
    taken = snapshot()
    found = {event["action"] for event in taken["device_traces"][0]}
    assert "free_completed" in found and not found & {"free_requested", "snapshot"}
    assert any("test_actions_are_skipped" in names(event)[0] for event in taken["host_traces"] if event["action"] == "alloc")
    del pinned
    module.record_memory_history(max_entries=10, clear_history=True)
    for _ in range(100):
        hold(device)
    assert len(snapshot()["device_traces"][0]) == 10


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"enabled": "every"}, "enabled: expected one of None, 'state', 'all', got 'every'"),
        ({"context": "free"}, "context: .* got 'free'"),
        ({"stacks": "rust"}, "stacks: .* got 'rust'"),
        ({"max_entries": 0}, "max_entries"),
        ({"skip_actions": ["malloc"]}, "skip_actions: .* got 'malloc'"),
    ],
)
def test_what_is_not_known_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        module.record_memory_history(**arguments)


def test_a_line_is_resolved_although_its_function_is_gone(device: torch.device, snapshot: Any) -> None:
    module.record_memory_history()
    kept = []
    for turn in range(50):
        space: dict[str, Any] = {"torch": torch, "device": device}
        exec(compile("\n" * turn + f"def made_{turn}(): return torch.empty(9, device=device)", f"<made {turn}>", "exec"), space)
        kept.append(space[f"made_{turn}"]())
        del space
    told = [event["frames"][0] for event in events(snapshot())]
    assert [(f["name"], f["filename"], f["line"]) for f in told] == [
        (f"made_{turn}", f"<made {turn}>", turn + 1) for turn in range(50)
    ]


def test_code_is_let_go_when_the_recording_ends(device: torch.device) -> None:
    def made() -> None:
        hold(device)

    def references() -> int:
        return sys.getrefcount(made.__code__)

    before = references()
    module.record_memory_history()
    for _ in range(1000):
        made()
    # One for the allocation and one for the release, however often.
    assert references() == before + 2
    module.record_memory_history(None)
    assert references() == before


def test_backward_shows_its_operators(device: torch.device, snapshot: Any) -> None:
    x = torch.ones(50, 50, device=device, requires_grad=True)
    product = x @ x
    loss = product.relu().sum()
    module.record_memory_history()
    loss.backward()
    shown = {names(event)[0] for event in events(snapshot()) if event["frames"]}
    assert {"MmBackward0", "ReluBackward0"} <= shown, shown


def test_functions_of_python_in_backward_show_their_lines(device: torch.device, snapshot: Any) -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            hold(grad.device)
            return grad * 2

    x = torch.ones(50, device=device, requires_grad=True)
    loss = Twice.apply(x).sum()
    module.record_memory_history()
    loss.backward()
    shown = [names(event)[:2] for event in events(snapshot())]
    assert ["hold", "backward"] in shown, shown


def test_frames_of_cpp(device: torch.device, snapshot: Any) -> None:
    module.record_memory_history(stacks="all")
    x = hold(device)
    shown = names(events(snapshot())[-1])
    assert shown.index("hold") > 0, shown
    assert any("empty" in name for name in shown[: shown.index("hold")]), shown
    del x


def test_pytorchs_tools_read_the_file(device: torch.device, snapshot: Any) -> None:
    module.record_memory_history()
    kept = [hold(device, 1000 * at) for at in range(1, 6)]
    torch.accelerator.empty_cache()
    del kept[2]
    taken = snapshot()
    for flames in (viz.memory, viz.segments):
        text = flames(taken, format_flamegraph=lambda text: text)
        assert "hold" in text and "test_pytorchs_tools_read_the_file" in text, text
    assert "free completed" in viz.trace(taken)
    assert viz.segsum(taken)
    assert all("<script" in plot(taken) for plot in (viz.trace_plot, viz.segment_plot))
    del kept


def test_several_threads_switch_take_give_back_and_look(device: torch.device, tmp_path: Path) -> None:
    over = threading.Event()
    failed: list[BaseException] = []

    def allocate(at: int) -> None:
        try:
            x = torch.ones(100, device=device, requires_grad=at % 2 == 0)
            while not over.is_set():
                y = (x * 2).sum()
                if y.requires_grad:
                    y.backward()
                del y
                hold(device, 1 + at)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=allocate, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for turn in range(40):
        module.record_memory_history([None, "all", "all", "state"][turn % 4], stacks=["python", "all"][turn % 3 == 0])
        module.dump_memory_snapshot(tmp_path / "memory.pickle")
        torch.accelerator.empty_cache()
    over.set()
    for thread in threads:
        thread.join(120)
    assert not failed and not any(thread.is_alive() for thread in threads)


def program(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(os.environ["ANYACCEL_BACKEND"] != "host", reason="the host device starts again in a child")
def test_a_forked_child_begins_anew(tmp_path: Path) -> None:
    program(f"""
import os, pickle, threading, torch
name = torch._C._get_privateuse1_backend_name()
module = torch.get_device_module(name)
path = {str(tmp_path / "memory.pickle")!r}

def shown():
    module.dump_memory_snapshot(path)
    with open(path, "rb") as file:
        traces = pickle.load(file)["device_traces"]
    return {{frame["name"] for trace in traces for event in trace for frame in event.get("frames", ())}}

def of_the_parent():
    return torch.empty(1000, device=name)

def of_the_child():
    return torch.empty(1000, device=name)

over = threading.Event()
def beside():
    while not over.is_set():
        of_the_parent()

module.record_memory_history()
threads = [threading.Thread(target=beside) for _ in range(2)]
[thread.start() for thread in threads]
for _ in range(20):
    child = os.fork()
    if child == 0:
        try:
            x = of_the_child()
            assert not shown(), shown()
            module.record_memory_history()
            x = of_the_child()
            assert "of_the_child" in shown() and "of_the_parent" not in shown()
            module.record_memory_history(None)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
over.set()
[thread.join() for thread in threads]
assert "of_the_parent" in shown()
""")


@pytest.mark.parametrize("stacks", ["python", "all"])
def test_the_interpreter_ends_while_something_is_recorded(stacks: str) -> None:
    out = program(f"""
import torch
name = torch._C._get_privateuse1_backend_name()
torch.get_device_module(name).record_memory_history(stacks={stacks!r})
class Late:
    def __del__(self):
        self.held = None
late = Late()
late.held = torch.ones(100, device=name)
late.me = late
x = torch.ones(100, device=name, requires_grad=True)
(x * 2).sum().backward()
# Memory that threads of the runtime give back while the interpreter goes.
for _ in range(200):
    y = torch.ones(1000, device=name)
    torch.get_device_module(name).host_function(lambda y=y: y.numel())
print("end")
""")
    assert out == "end\n"
