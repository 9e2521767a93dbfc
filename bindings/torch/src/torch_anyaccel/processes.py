"""Tensors of the device on their way to another process: copies, in shared memory of the CPU.

What ``multiprocessing`` sends is pickled by its ``ForkingPickler``. For tensors, parameters and storages of the device this
puts reductions before PyTorch's, which everything else goes on to. A storage is copied when it is pickled, once a message:
tensors that share one in a message share one where they arrive.

A message stays small, so that sending never waits for who receives it; but for arguments of a process that is being spawned,
whose shared memory nobody would hold until it has started: those have the bytes inside.
"""

from __future__ import annotations

import ctypes
import multiprocessing.queues
import os
import threading
from functools import partial
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any, NoReturn

import torch
import torch.multiprocessing  # registers PyTorch's

if TYPE_CHECKING:
    from collections.abc import Callable

    Reduced = tuple[Callable[..., Any], tuple[Any, ...]]
    Reduce = Callable[[Any], Reduced]


def register() -> None:
    """Lets tensors of the device be sent to other processes, and nobody believe that they share memory with them."""
    for kind, ours in (
        (torch.Tensor, _reduce_tensor),
        (torch.nn.Parameter, _reduce_tensor),
        (torch.UntypedStorage, _reduce_storage),
    ):
        ForkingPickler.register(kind, _Reduction(ours, ForkingPickler._extra_reducers[kind]))
    from . import device

    for kind in (torch.Stream, torch.Event, device.Stream, device.Event, torch.accelerator.Graph):
        ForkingPickler.register(kind, _Reduction(_reduce_nothing))
    torch.UntypedStorage.share_memory_ = _share_memory(torch.UntypedStorage.share_memory_)
    torch.UntypedStorage.is_shared = _is_shared(torch.UntypedStorage.is_shared)


def _is_ours(device: torch.device) -> bool:
    return device.type == torch._C._get_privateuse1_backend_name()


class _Reduction:
    """Says why something can't be sent where somebody hears it.

    A ``Queue`` pickles on a thread of its own, which prints what that raises and drops the message: who waits for it waits for
    ever, as does a ``DataLoader``. Then the reason is sent instead, and raised where it arrives.
    """

    def __init__(self, reduce: Callable[..., Reduced], *pytorchs: Reduce) -> None:
        self._reduce = partial(reduce, *pytorchs)

    def __call__(self, what: Any) -> Reduced:
        try:
            return self._reduce(what)
        except Exception as error:
            if not _drops_what_fails() or (isinstance(what, torch.Tensor | torch.UntypedStorage) and not _is_ours(what.device)):
                raise
            return _refuse, (f"{type(what).__name__} not sent by process {os.getpid()}: {error}",)


def _drops_what_fails() -> bool:
    """Whether this is the thread of a queue that does so."""
    arguments = getattr(threading.current_thread(), "_args", ())
    return any(each is multiprocessing.queues.Queue._on_queue_feeder_error for each in arguments)


def _refuse(why: str) -> NoReturn:
    raise RuntimeError(why)


def _reduce_tensor(pytorchs: Reduce, tensor: torch.Tensor) -> Reduced:
    reduced = pytorchs(tensor)
    if not _is_ours(tensor.device):
        return reduced
    # Among others whether it is conjugated or negated when it is read.
    notes = torch._utils.get_tensor_metadata(tensor)
    return (_rebuild_tensor, (*reduced, notes)) if notes else reduced


def _rebuild_tensor(rebuild: Callable[..., torch.Tensor], arguments: tuple[Any, ...], notes: dict[str, bool]) -> torch.Tensor:
    tensor = rebuild(*arguments)
    torch._utils.set_tensor_metadata(tensor, notes)
    return tensor


def _reduce_storage(pytorchs: Reduce, storage: torch.UntypedStorage) -> Reduced:
    if not _is_ours(storage.device):
        return pytorchs(storage)
    place = (storage.device.index, storage.nbytes())
    if storage.nbytes() == 0:
        return _rebuild_storage, place
    # On whichever stream it was written: this may be another thread than that of the work.
    torch.accelerator.synchronize(storage.device)
    if get_spawning_popen() is not None:
        host = storage.cpu()
        return _rebuild_storage, (*place, ctypes.string_at(host.data_ptr(), host.nbytes()))
    return _rebuild_storage, (*place, *pytorchs(torch.UntypedStorage._new_shared(storage.nbytes()).copy_(storage)))


def _rebuild_storage(index: int, size: int, *content: Any) -> torch.UntypedStorage:
    name = torch._C._get_privateuse1_backend_name()
    _check_device(index)
    storage = torch.UntypedStorage(size, device=torch.device(name, index))
    if not content:
        return storage
    if isinstance(content[0], bytes):
        host = torch.UntypedStorage(size, device="cpu")
        ctypes.memmove(host.data_ptr(), content[0], size)
    else:
        rebuild, arguments = content
        host = rebuild(*arguments)
    return storage.copy_(host)


def _check_device(index: int) -> None:
    import torch_anyaccel

    if not torch_anyaccel.is_registered():
        raise RuntimeError(f"a tensor of device {index} arrived, and this process has no device: {torch_anyaccel.why_not()}")
    count = torch.accelerator.device_count()
    if index >= count:
        raise RuntimeError(f"a tensor of device {index} arrived, and this process has {count} of them")


def _reduce_nothing(what: Any) -> NoReturn:
    raise TypeError(f"cannot pickle {type(what).__qualname__!r} object: it belongs to the process that made it")


def _share_memory(pytorchs: Callable[..., torch.UntypedStorage]) -> Callable[..., torch.UntypedStorage]:
    def share_memory_(self: torch.UntypedStorage, *arguments: Any, **named: Any) -> torch.UntypedStorage:
        if _is_ours(self.device):
            raise RuntimeError(
                f"memory of {self.device} can't be shared with other processes: a tensor that is sent is copied. "
                "Tensors of the CPU can: share those, and copy from and to them."
            )
        return pytorchs(self, *arguments, **named)

    return share_memory_


def _is_shared(pytorchs: Callable[[torch.UntypedStorage], bool]) -> Callable[[torch.UntypedStorage], bool]:
    def is_shared(self: torch.UntypedStorage) -> bool:
        return not _is_ours(self.device) and pytorchs(self)

    return is_shared
