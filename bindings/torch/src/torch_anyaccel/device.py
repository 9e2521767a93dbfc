"""``torch.anyaccel``: the module of the device, with the names that PyTorch's own devices have.

The functions of :mod:`torch.accelerator` do the work where it has them. Nothing starts the runtime before it is needed;
seeds that are set before wait for the start.
"""

from __future__ import annotations

import operator
import os
from typing import TYPE_CHECKING, Any

import torch

from . import _C, compiling, leaving, random
from .random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_random_layout,
    set_rng_state,
    set_rng_state_all,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch.types import Device

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "dump_memory_snapshot",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_name",
    "get_rng_state",
    "get_rng_state_all",
    "host_function",
    "init",
    "initial_seed",
    "is_available",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "random",
    "record_memory_history",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_memory_budget",
    "set_random_layout",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]

_name: str = torch._C._get_privateuse1_backend_name()

leaving.register()

max_memory_allocated = torch.accelerator.max_memory_allocated
max_memory_reserved = torch.accelerator.max_memory_reserved
memory_allocated = torch.accelerator.memory_allocated
memory_reserved = torch.accelerator.memory_reserved
memory_stats = torch.accelerator.memory_stats
reset_accumulated_memory_stats = torch.accelerator.reset_accumulated_memory_stats
reset_peak_memory_stats = torch.accelerator.reset_peak_memory_stats
empty_cache = torch.accelerator.empty_cache
set_stream = torch.accelerator.set_stream


def _index(device: Device = None) -> int:
    """The index of a device that may be given in any of PyTorch's ways."""
    if isinstance(device, int):
        return device
    if device is None:
        return current_device()
    given = torch.device(device)
    if given.type != _name:
        raise ValueError(f"expected a device of {_name}, got {given}")
    return current_device() if given.index is None else given.index


def is_available() -> bool:
    """Whether there is a device. Starts nothing."""
    return device_count() > 0


def device_count() -> int:
    """How many devices there are. Starts nothing."""
    return _C.device_count()


def init() -> None:
    """Starts the runtime, which every function does that needs it."""
    _lazy_init()


def is_initialized() -> bool:
    """Whether the runtime has started in this process."""
    return _C.is_started()


def _lazy_init() -> None:
    """Called by PyTorch before the first use. In a forked child whose parent had started a runtime that can't be started
    twice, this is the error that everything raises."""
    _C.init()


def _lazy_call(callable: Callable[[], Any], **_kind: Any) -> None:
    """Calls now: what has to wait for the start waits in the runtime."""
    callable()


def _is_in_bad_fork() -> bool:
    """Whether the runtime can't be used, since a parent had started it. Starts nothing."""
    return _C.is_in_bad_fork()


def __getattr__(name: str) -> Any:
    # What ``torch.utils.checkpoint`` asks before it sees to the states of generators.
    if name == "_initialized":
        return is_initialized()
    if name in compiling.ASKED_BY_INDUCTOR:
        return compiling.no_code()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def current_device() -> int:
    """The index of this thread's current device."""
    return torch.accelerator.current_device_index()


def set_device(device: Device) -> None:
    """Makes a device current on this thread; a negative index changes nothing."""
    torch.accelerator.set_device_index(_index(device))


class device:
    """Context manager that changes the current device; None and negative indices change nothing."""

    def __init__(self, device: Device) -> None:
        self.idx = -1 if device is None else _index(device)
        self._before: list[int] = []

    def __enter__(self) -> device:
        self._before.append(_C.exchange_device(self.idx) if self.idx >= 0 else -1)
        return self

    def __exit__(self, *_error: object) -> None:
        before = self._before.pop()
        if before >= 0:
            _C.exchange_device(before)


def get_device_name(device: Device = None) -> str:
    """The device's marketing name."""
    return _C.device_name(_index(device))


def synchronize(device: Device = None) -> None:
    """Waits for all streams of a device."""
    torch.accelerator.synchronize(_index(device))


class Stream(torch.Stream):
    """A stream of this device."""

    def __new__(cls, device: Device = None, priority: int = 0, **kwargs: Any) -> Stream:
        if kwargs:
            return super().__new__(cls, priority=priority, **kwargs)
        return super().__new__(cls, torch.device(_name, _index(device)), priority=priority)


class Event(torch.Event):
    """An event of this device."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Event:
        return super().__new__(
            cls, torch.device(_name), enable_timing=enable_timing, blocking=blocking, interprocess=interprocess
        )


def current_stream(device: Device = None) -> torch.Stream:
    """This thread's current stream of a device."""
    return torch.accelerator.current_stream(_index(device))


def default_stream(device: Device = None) -> torch.Stream:
    """The default stream of a device."""
    return torch.Stream(stream_id=0, device_index=_index(device), device_type=torch._C._autograd.DeviceType.PrivateUse1)


class StreamContext:
    """Context manager that makes a stream current, and its device too; None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> StreamContext:
        if self.stream is not None:
            self.stream.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self.stream is not None:
            self.stream.__exit__(*error)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Makes a stream current in a ``with`` statement."""
    return StreamContext(stream)


def host_function(function: Callable[[], object], stream: torch.Stream | None = None) -> None:
    """Calls a function in the order of a stream, on a thread of the runtime; captured, at each replay.

    It must not wait for the device. What it raises is raised by the next wait for the device.
    """
    if not callable(function):
        raise TypeError(f"function: expected something to call, got {function!r}")
    chosen = current_stream() if stream is None else stream
    _C.host_function(chosen.device_index, chosen.stream_id, function)


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Free and all bytes of a device."""
    return torch.accelerator.get_memory_info(_index(device))


def set_memory_budget(bytes: int | None, device: Device = None) -> None:
    """Limits what this process takes of a device's memory; None: no limit. Allocations beyond raise
    :class:`torch.OutOfMemoryError`, as on a device that is so small."""
    if bytes is not None and not 0 <= operator.index(bytes) < 1 << 63:
        raise ValueError(f"bytes: expected None or a number from 0 to 2^63 - 1, got {bytes}")
    _C.set_memory_budget(_index(device), bytes)


def record_memory_history(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str | None = "python",
    max_entries: int = 1 << 20,
    clear_history: bool = False,
    skip_actions: Iterable[str] | None = None,
    record_pinned_host_memory: bool = False,
) -> None:
    """Records what the allocators do from now on, as ``torch.cuda.memory._record_memory_history``. Starts nothing.

    ``enabled``: ``"all"`` every event; ``"state"`` only who holds what; ``None`` nothing: what was recorded is forgotten.
    ``context``: for which calls the caller's stack is taken: ``"all"``; ``"alloc"``, those that take memory; ``"state"``, the
    same, shown by blocks only; ``None``. ``stacks``: ``"python"``, frames of Python and operators of backward; ``"all"``, the
    frames of C++ up to the interpreter too; ``None``, empty ones, which is cheapest. Of more than ``max_entries`` events a
    device the oldest go. ``skip_actions``: names of events that are not kept. A forked child begins without.
    """
    options = (
        _choice("enabled", enabled, (None, "state", "all")),
        _choice("context", context, ("all", "alloc", "state", None)),
        _choice("stacks", stacks, (None, "python", "all")),
    )
    if isinstance(max_entries, bool) or not isinstance(max_entries, int) or max_entries < 1:
        raise ValueError(f"max_entries: expected a positive int, got {max_entries!r}")
    if isinstance(skip_actions, str):
        raise TypeError("skip_actions: expected a list of names, not one name")
    skip = 0
    for action in skip_actions or ():
        skip |= 1 << _choice("skip_actions", action, _ACTIONS)
    _C.record_memory_history(
        options[0],
        options[1],
        options[2] > 0,
        options[2] > 1,
        min(max_entries, 2**63),
        clear_history,
        skip,
        record_pinned_host_memory,
    )


_ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
    "annotate",
)


def _choice(argument: str, given: str | None, known: Sequence[str | None]) -> int:
    """Which of the known values was given."""
    for at, value in enumerate(known):
        if given == value:
            return at
    raise ValueError(f"{argument}: expected one of {', '.join(map(repr, known))}, got {given!r}")


def dump_memory_snapshot(path: str | os.PathLike[str]) -> None:
    """Writes what was recorded to a file, all of it or nothing, for PyTorch's memory viewer, ``python -m
    torch.cuda._memory_viz``, ``anyaccel memory`` and ``anyaccel view``."""
    _C.dump_memory_snapshot(os.fspath(path))


def get_amp_supported_dtype() -> list[torch.dtype]:
    """What ``torch.autocast`` may compute in."""
    return [torch.float16, torch.bfloat16]


_dlpack_device = torch.Tensor.__dlpack_device__


def _dlpack_device_of_any(self: torch.Tensor) -> tuple[Any, int]:
    # PyTorch's own looks for a name of ours that no device has, and so knows no type for it.
    try:
        return _dlpack_device(self)
    except ValueError:
        if self.device.type != _name:
            raise
        return torch.utils.dlpack.DLDeviceType.kDLExtDev, self.device.index


torch.Tensor.__dlpack_device__ = _dlpack_device_of_any
