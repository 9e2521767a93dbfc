"""Finds the library, checks that everything fits together, and registers the device with PyTorch."""

from __future__ import annotations

import ctypes
import keyword
import os
import re
import warnings
from pathlib import Path

import torch

NAME_VARIABLE = "ANYACCEL_TORCH_NAME"
DEFAULT_NAME = "anyaccel"
_TAKEN_BY_NOBODY = "privateuseone"


class Unavailable(RuntimeError):
    """The device can't be had, and why."""


def register() -> None:
    """Registers the device. Starts nothing.

    Raises :class:`Unavailable` before anything was changed.
    """
    taken = torch._C._get_privateuse1_backend_name()
    if getattr(getattr(torch, taken, None), "__package__", None) == __package__:
        return  # by this package, before it was loaded again
    name = os.environ.get(NAME_VARIABLE, DEFAULT_NAME)
    _check_name(name)
    if taken != _TAKEN_BY_NOBODY:
        raise Unavailable(f"PyTorch has room for one device of others, and {taken!r} has it")
    _check_torch()
    _check_devices(_load_library())
    try:
        from . import _C
    except ImportError as error:
        raise Unavailable(f"the extension can't be loaded ({error})") from error

    torch.utils.rename_privateuse1_backend(name)
    _C.register_device()
    _C.register_graph(name.upper())
    from . import device

    device.__name__ = f"torch.{name}"  # where torch.compile looks for what torch.get_device_module() returned
    torch._register_device_module(name, device)
    torch.utils.generate_methods_for_privateuse1_backend(for_tensor=True, for_module=True, for_storage=True)
    from . import compiling, processes

    compiling.register()
    processes.register()


def _check_name(name: str) -> None:
    # What torch.device() can read, and what Python can write behind `torch.`.
    if not re.fullmatch("[a-z][a-z_]*", name) or keyword.iskeyword(name):
        raise Unavailable(f"{NAME_VARIABLE}={name!r} is no name for a device: use lower-case letters and underscores")
    owners = (torch, torch.Tensor, torch.nn.Module, torch.UntypedStorage, torch.TypedStorage, torch.nn.utils.rnn.PackedSequence)
    if _is_device(name) or any(hasattr(owner, part) for owner in owners for part in (name, f"is_{name}")):
        raise Unavailable(f"{NAME_VARIABLE}={name!r} is taken: PyTorch has something of that name")


def _is_device(name: str) -> bool:
    try:
        with warnings.catch_warnings(action="ignore"):
            torch.device(name)
    except RuntimeError:
        return False
    return True


def _check_torch() -> None:
    try:
        from ._built_for import TORCH
    except ImportError as error:
        raise Unavailable("the package was not built: install it with pip") from error
    minor = ".".join(torch.__version__.split(".")[:2])
    if minor != TORCH:
        raise Unavailable(f"it was built for PyTorch {TORCH}, and this is {torch.__version__}: install the one for {minor}")


def _load_library() -> ctypes.CDLL:
    from ._built_for import API

    path = Path(__file__).with_name("libanyaccel.so")
    if not path.is_file():
        raise Unavailable(f"{path} is missing: install the package again")
    try:
        library = ctypes.CDLL(str(path))
        library.anyaccel_api_version.restype = ctypes.c_uint32
        library.anyaccel_last_error.restype = ctypes.c_size_t
        version = library.anyaccel_api_version()
    except (OSError, AttributeError) as error:
        raise Unavailable(f"{path} can't be used ({error})") from error
    major, minor = version >> 16, version & 0xFFFF
    if major != API[0] or minor < API[1]:
        raise Unavailable(f"{path} has version {major}.{minor} of the C API, and {API[0]}.{API[1]} is needed")
    return library


def _check_devices(library: ctypes.CDLL) -> None:
    count = ctypes.c_int32(0)
    if library.anyaccel_device_count(ctypes.byref(count)):
        text = ctypes.create_string_buffer(4096)
        library.anyaccel_last_error(text, ctypes.c_size_t(len(text)))
        raise Unavailable(text.value.decode(errors="replace"))
    if count.value == 0:
        chosen = os.environ.get("ANYACCEL_BACKEND")
        raise Unavailable(
            f"ANYACCEL_BACKEND={chosen} has no device here"
            if chosen
            else "there is no accelerator here (ANYACCEL_BACKEND=host makes one of this machine's memory and cores)"
        )
