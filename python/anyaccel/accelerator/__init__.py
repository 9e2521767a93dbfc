"""The functions of ``torch.accelerator``, for whatever accelerator there is.

Naming, counting and asking start nothing; the first call that touches a device starts the runtime. ``ANYACCEL_BACKEND``
names the backend; ``host``, this machine itself, is never chosen silently.

>>> from anyaccel import accelerator
>>> accelerator.is_available(), accelerator.current_device_index()
(True, 0)
"""

from __future__ import annotations

from .. import _anyaccel
from .._anyaccel import (
    DeviceProperties,
    attach_out_of_memory_observer,
    can_device_access_peer,
    clock_rate,
    current_accelerator,
    current_device_index,
    current_stream,
    default_stream,
    device_count,
    device_index,
    empty_cache,
    empty_host_cache,
    get_device_name,
    get_device_properties,
    get_memory_info,
    host_memory_stats,
    is_available,
    is_initialized,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    memory_usage,
    power_draw,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
    set_device_index,
    set_memory_budget,
    set_per_process_memory_fraction,
    set_stream,
    synchronize,
    temperature,
    utilization,
)
from . import _utils, graphs, memory, random
from ._utils import (
    current_device_idx,
    get_device_capability,
    get_device_module,
    set_device_idx,
)
from .graphs import Graph
from .memory import mem_get_info

__all__ = [
    "Graph",
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "current_stream",
    "device_count",
    "device_index",
    "empty_cache",
    "empty_host_cache",
    "get_device_capability",
    "get_memory_info",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_device_idx",
    "set_device_index",
    "set_stream",
    "synchronize",
]

for _name in ("current_device_idx", "get_device_capability", "get_device_module", "set_device_idx", "Graph"):
    globals()[_name].__module__ = __name__
del _name
