"""A device for PyTorch whose runtime is anyaccel.

PyTorch loads this package at the end of ``import torch`` (entry point ``torch.backends``); importing it does the same. Where
the device can't be had, PyTorch goes on with the CPU, and one warning says why.

``ANYACCEL_TORCH_NAME`` is the name of the device (default: ``anyaccel``); ``ANYACCEL_BACKEND`` chooses the backend.
"""

from __future__ import annotations

import warnings

__all__ = ["Unavailable", "is_registered", "why_not"]

_outcome: Unavailable | bool = False


def _autoload() -> None:
    """Registers the device if it can be had, else warns. Called by PyTorch; never raises."""
    global _outcome
    if _outcome:
        return
    from ._load import Unavailable, register

    try:
        register()
        _outcome = True
    except Unavailable as why:
        _outcome = why
    except Exception as error:  # a defect of ours is no reason to break `import torch`
        _outcome = Unavailable(f"{type(error).__name__}: {error}")
    if _outcome is not True:
        warnings.warn(f"torch_anyaccel: the device is not available: {_outcome}", RuntimeWarning, stacklevel=2)


def is_registered() -> bool:
    """Whether PyTorch has the device."""
    return _outcome is True


def why_not() -> str | None:
    """Why PyTorch does not have the device; None if it has."""
    return str(_outcome) if isinstance(_outcome, Unavailable) else None


# Where this is imported first, PyTorch calls `_autoload` while it is imported here: so that comes before what needs PyTorch, and behind
# what PyTorch needs.
import torch  # noqa: E402, F401

from ._load import Unavailable  # noqa: E402

_autoload()
