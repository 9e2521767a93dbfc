"""What has to be over before the interpreter goes."""

from __future__ import annotations

import atexit
from pathlib import Path

from . import _C

# What PyTorch names its threads for backward, one for each device.
AUTOGRAD = "pt_autograd"


def register() -> None:
    """Runs it at exit, once: before what was registered earlier, after what is registered from now on."""
    atexit.register(_leave)


def _leave() -> None:
    if _C.is_started() and _autograd_runs():
        _settle_autograd()
    # Host functions whose turn comes from now on aren't called, and memory is given back without a stack.
    _C.close_interpreter()


def _autograd_runs() -> bool:
    for name in Path("/proc/self/task").glob("*/comm"):
        try:
            if name.read_text().startswith(AUTOGRAD):
                return True
        except OSError:
            pass  # a thread that has ended
    return False


def _settle_autograd() -> None:
    """Waits until the threads of backward have let go of what they did last.

    ``backward()`` returns before they have. They then ask for the interpreter, since they hold Python objects
    (``torch.autograd.graph`` gives them a context), and one that asks while the interpreter goes takes the process down: a
    program whose last line is ``loss.backward()``. What a thread does next it does after that.
    """
    try:
        _C.settle_backward()
    except RuntimeError:
        pass  # out of memory, say, or a device that is lost: nothing that could be told now
