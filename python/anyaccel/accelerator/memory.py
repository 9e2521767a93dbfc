"""Memory: statistics, caches, budgets and pools."""

from __future__ import annotations

from .. import _anyaccel
from .._anyaccel import (
    MemPool,
    attach_out_of_memory_observer,
    empty_cache,
    empty_host_cache,
    get_memory_info,
    host_memory_stats,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_allocator_settings,
    set_memory_budget,
    set_per_process_memory_fraction,
)

from ..memory import snapshot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._utils import DeviceLike

__all__ = [
    "empty_cache",
    "empty_host_cache",
    "get_memory_info",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
]


def mem_get_info(device_index: DeviceLike = None, /) -> tuple[int, int]:
    """Another name of :func:`get_memory_info`."""
    return _anyaccel.get_memory_info(device_index)


def use_mem_pool(pool: MemPool, device: DeviceLike = None) -> MemPool:
    """Context manager under which this thread's tensors come from a pool: the pool itself. ``device`` must be the pool's."""
    if not isinstance(pool, MemPool):
        raise TypeError(f"expected a MemPool, not {type(pool).__name__}")
    if device is not None and _anyaccel.current_stream(device).device != pool.device:
        raise ValueError(f"the pool is on {pool.device}, not on {device}")
    return pool


def _snapshot(device_index: DeviceLike = None, /) -> dict[str, Any]:
    """What the allocators hold and what was recorded, as :func:`anyaccel.memory.snapshot`: of all devices, whichever is
    named."""
    _anyaccel.memory_allocated(device_index)  # checks the argument
    return snapshot()
