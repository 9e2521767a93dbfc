"""One accelerator runtime for every chip: devices, streams, events, memory, graphs and random numbers.

``from anyaccel import accelerator`` has the functions of ``torch.accelerator`` under their names. This package has what
goes with them: devices, streams, events, generators, and tensors that hold memory and do no arithmetic.

>>> import anyaccel
>>> anyaccel.accelerator.device_count() >= 1
True
"""

from __future__ import annotations

import atexit as _atexit

from . import _anyaccel
from ._anyaccel import (
    AcceleratorError,
    Event,
    Generator,
    MemPool,
    OutOfMemoryError,
    Stream,
    Tensor,
    __version__,
    bfloat16,
    bool,
    cdouble,
    cfloat,
    chalf,
    complex32,
    complex64,
    complex128,
    device,
    double,
    dtype,
    empty,
    empty_like,
    float,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    from_dlpack,
    from_numpy,
    frombuffer,
    full,
    half,
    int,
    int8,
    int16,
    int32,
    int64,
    load_plugin,
    long,
    ones,
    short,
    tensor,
    uint8,
    uint16,
    uint32,
    uint64,
    zeros,
    zeros_like,
)
from . import accelerator, memory, random
from .accelerator._utils import get_device_module
from .random import initial_seed, manual_seed

# From here on no thread of the runtime takes the interpreter any more.
_atexit.register(_anyaccel._close)

__all__ = [
    "AcceleratorError",
    "Event",
    "Generator",
    "MemPool",
    "OutOfMemoryError",
    "Stream",
    "Tensor",
    "__version__",
    "accelerator",
    "bfloat16",
    "bool",
    "cdouble",
    "cfloat",
    "chalf",
    "complex32",
    "complex64",
    "complex128",
    "device",
    "double",
    "dtype",
    "empty",
    "empty_like",
    "float",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float16",
    "float32",
    "float64",
    "from_dlpack",
    "from_numpy",
    "frombuffer",
    "full",
    "get_device_module",
    "half",
    "initial_seed",
    "int",
    "int8",
    "int16",
    "int32",
    "int64",
    "load_plugin",
    "long",
    "manual_seed",
    "memory",
    "ones",
    "random",
    "short",
    "tensor",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "zeros",
    "zeros_like",
]
