"""Memory history: who took device and pinned memory, when and where, as PyTorch's memory viewer shows it.

>>> import anyaccel
>>> anyaccel.memory.record_memory_history(max_entries=100_000)
>>> with anyaccel.memory.memory_annotation("warm-up"):
...     x = anyaccel.empty(1 << 20, device=anyaccel.accelerator.current_accelerator())
>>> events = anyaccel.memory.snapshot()["device_traces"][0]
>>> [event["action"] for event in events][-1], events[-1]["user_metadata"]
('alloc', 'warm-up')
>>> anyaccel.memory.record_memory_history(None)
"""

from __future__ import annotations

from . import _anyaccel

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable
    from typing import Any, ParamSpec, TypeVar

    _P = ParamSpec("_P")
    _R = TypeVar("_R")

__all__ = [
    "dump_snapshot",
    "findings",
    "history_status",
    "memory_annotation",
    "record_memory_history",
    "replay",
    "snapshot",
    "tune",
]


def record_memory_history(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str | None = "all",
    max_entries: int = 1 << 20,
    clear_history: bool = False,
    skip_actions: Iterable[str] | None = None,
    record_pinned_host_memory: bool = True,
) -> None:
    """Records what the allocators of all devices do from now on, as ``torch.cuda.memory._record_memory_history``.

    ``enabled``: ``"all"`` every event; ``"state"`` only who holds each block; ``None`` nothing: what was recorded is
    forgotten. ``context``: for which calls the caller's stack is taken: ``"all"``; ``"alloc"``, those that take memory;
    ``"state"``, the same, shown by blocks only; ``None``. ``stacks``: ``"python"`` or ``"all"``, Python's; ``None``, empty
    ones, which is cheapest. Of more than ``max_entries`` events a device the oldest go, and :func:`history_status` counts
    them. ``skip_actions``: names of events that are not kept. Starts nothing.
    """
    _anyaccel._record_memory_history(
        enabled, context, stacks, max_entries, clear_history, skip_actions, record_pinned_host_memory
    )


def history_status() -> dict[str, Any]:
    """Whether events are ``recording``, how many ``entries`` are kept, and how many older ones were ``dropped``."""
    return _anyaccel._history_status()


def snapshot() -> dict[str, Any]:
    """What the allocators hold and what was recorded, as ``torch.cuda.memory._snapshot``: plain dictionaries and lists.

    Each device is as it was at one moment. The key ``anyaccel`` has what PyTorch's format has no place for: the memory of
    each device, and how many events its ring had no room for. Starts nothing.
    """
    return _anyaccel._memory_snapshot()


def dump_snapshot(path: str | os.PathLike[str]) -> None:
    """Writes :func:`snapshot` to a file for PyTorch's viewer, all of it or nothing; an ``OSError`` names the path."""
    _anyaccel._dump_snapshot(path)


def replay(
    source: dict[str, Any] | str | os.PathLike[str],
    settings: str | Iterable[str] | None = None,
    memory: int | None = None,
) -> list[dict[str, Any]]:
    """Runs a recorded history through the allocator again, on devices that are only numbers, under other settings.

    ``source``: a file of PyTorch's or ours, or what :func:`snapshot` gave. ``settings``: one string, or several; by default
    those of the recording. ``memory``: bytes of each device; by default what the file says, else 80 GiB. One dictionary
    for each setting and device: ``config``, ``device``, ``total_mb``, ``peak_allocated``, ``peak_reserved``,
    ``peak_requested``, ``peak_active``, ``num_alloc_retries``, ``num_ooms``, ``oom_event``, ``num_device_alloc``,
    ``num_device_free``.
    """
    if settings is None:
        settings = [_anyaccel._recorded_settings(source)]
    elif isinstance(settings, str):
        settings = [settings]
    return _anyaccel._replay(source, list(settings), memory)


def tune(
    source: dict[str, Any] | str | os.PathLike[str],
    memory: int,
    settings: int = 64,
    threads: int | None = None,
) -> dict[str, Any]:
    """Searches the settings under which a recorded program gets through with ``memory`` bytes a device.

    ``settings``: how many are tried. The result has ``best`` (None if none gets through), ``default``, ``candidates``, the best
    first, and ``least_memory``, with which the best one still gets through.
    """
    return _anyaccel._tune(source, memory, settings, threads)


def findings(source: dict[str, Any] | str | os.PathLike[str]) -> list[dict[str, Any]]:
    """What a recorded history shows, for each device that has one: who held the peak, what was never given back, what
    comes and goes most, how the free memory lies, and what the failures were for."""
    return _anyaccel._findings(source)


class memory_annotation:
    """Names what this thread does: events bear the name, behind those of the ranges around it, and the history has
    the range. A context manager and a decorator."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"name must be a str, not {type(name).__name__}")
        self.name = name
        self._entered: list[int] = []

    def __enter__(self) -> memory_annotation:
        self._entered.append(_anyaccel._enter_annotation(self.name))
        return self

    def __exit__(self, *exception: object) -> None:
        _anyaccel._leave_annotation(self._entered.pop())

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        from functools import wraps

        @wraps(function)
        def named(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with memory_annotation(self.name):
                return function(*args, **kwargs)

        return named
