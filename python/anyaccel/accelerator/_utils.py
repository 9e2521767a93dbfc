"""What is written in Python, and the types of arguments."""

from __future__ import annotations

import warnings

from .. import _anyaccel
from .._anyaccel import _lazy_call as _lazy_call
from .._anyaccel import device as _device
from .._anyaccel import dtype as _dtype

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, SupportsIndex, TypeAlias, Union

    from .._anyaccel import Tensor

    DeviceLike: TypeAlias = Union[_device, str, SupportsIndex, None]
    StateLike: TypeAlias = Union[Tensor, bytes, bytearray, memoryview, Any]


class DTypeSet(frozenset[_dtype]):
    """A set of element types whose ``in`` also takes NumPy's and PyTorch's."""

    __slots__ = ()

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, _dtype):
            item = _named(item)
        return item is not None and super().__contains__(item)

    def __repr__(self) -> str:
        return "{" + ", ".join(sorted(map(repr, self))) + "}"


def _named(item: object) -> _dtype | None:
    """The dtype that another library's dtype or scalar type means."""
    module = type(item).__module__
    if module == "torch":
        name: object = str(item).removeprefix("torch.")
    elif isinstance(item, type) and item.__module__ in ("numpy", "ml_dtypes"):
        name = item.__name__.removesuffix("_")
    else:
        name = getattr(item, "name", None) if module.startswith(("numpy", "ml_dtypes")) else None
    found = getattr(_anyaccel, name, None) if isinstance(name, str) else None
    return found if isinstance(found, _dtype) else None


def get_device_capability(device: DeviceLike = None, /) -> dict[str, Any]:
    """What a device can compute with: ``{"supported_dtypes": ...}``, the element types that can be allocated and
    converted among themselves. A fresh value for the device that is current now.

    >>> import anyaccel
    >>> anyaccel.float32 in anyaccel.accelerator.get_device_capability()["supported_dtypes"]
    True
    """
    return {"supported_dtypes": DTypeSet(_anyaccel._supported_dtypes(device))}


def set_device_idx(device: DeviceLike, /) -> None:
    """The old name of :func:`set_device_index`."""
    warnings.warn("Use `set_device_index` instead.", FutureWarning, stacklevel=2)
    _anyaccel.set_device_index(device)


def current_device_idx() -> int:
    """The old name of :func:`current_device_index`."""
    warnings.warn("Use `current_device_index` instead.", FutureWarning, stacklevel=2)
    return _anyaccel.current_device_index()


def get_device_module(device: _device | str | None = None) -> ModuleType:
    """The module with the functions of a device's type: this package's ``accelerator`` for the current accelerator.

    >>> import anyaccel
    >>> anyaccel.get_device_module() is anyaccel.accelerator
    True
    """
    from .. import accelerator

    if device is None:
        return accelerator
    if not isinstance(device, (str, _device)):
        raise RuntimeError(f"Invalid value of device '{device}', expect a device, str or None")
    named = device if isinstance(device, _device) else _device(device)
    current = _anyaccel.current_accelerator()
    if current is None or named.type != current.type:
        raise RuntimeError(f"Invalid device module '{named.type}': the current accelerator is {current}.")
    return accelerator


def _get_device_index(device: DeviceLike, optional: bool = False) -> int:
    """The index that a device argument means; without one, the current device's if ``optional``. Starts nothing."""
    if isinstance(device, bool):
        raise TypeError("expected a device, not a bool")
    if isinstance(device, str):
        named: _device | None = _device(device)
    elif device is None or isinstance(device, _device):
        named = device
    elif hasattr(type(device), "__index__"):
        return device.__index__()
    elif not optional:
        raise ValueError(f"Expected a anyaccel.device with a specified index or an integer, but got:{device}")
    else:
        raise TypeError(f"expected a device, the name of one, an index or None, not {type(device).__name__}")
    if named is not None:
        current = _anyaccel.current_accelerator()
        if current is None:
            raise RuntimeError("Accelerator expected")
        if named.type != current.type:
            raise ValueError(f"{named} doesn't match the current accelerator {current.type}.")
        if named.index is not None:
            return named.index
    if not optional:
        raise ValueError(f"Expected a anyaccel.device with a specified index or an integer, but got:{device}")
    return _anyaccel.current_device_index()
