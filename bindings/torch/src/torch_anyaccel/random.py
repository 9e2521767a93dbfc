"""Generators of the devices: seeds and states. Seeding starts nothing: it waits for the start."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from . import _C

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch
    from torch.types import Device

__all__ = [
    "default_generator",
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_random_layout",
    "set_rng_state",
    "set_rng_state_all",
]

_LAYOUTS = {"portable": 0, "torch-cuda": 1}


def default_generator(device: Device = None) -> torch.Generator:
    """The default generator of a device."""
    from .device import _index

    return _C.default_generator(_index(device))


def _checked(seed: int) -> int:
    value = int(seed)
    if not -(1 << 63) <= value < 1 << 64:
        raise ValueError(f"a seed has 64 bits, and {value} has more")
    return value % (1 << 64)


def manual_seed(seed: int) -> None:
    """Seeds the default generator of the current device."""
    _C.manual_seed(_checked(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds the default generators of all devices alike."""
    _C.manual_seed_all(_checked(seed))


def seed() -> int:
    """Seeds the default generator of the current device with a random number, and returns it."""
    return default_generator().seed()


def seed_all() -> int:
    """Seeds the default generators of all devices with one random number, and returns it."""
    drawn = default_generator().seed()
    manual_seed_all(drawn)
    return drawn


def initial_seed(device: Device = None) -> int:
    """The seed of a device's default generator."""
    return default_generator(device).initial_seed()


def get_rng_state(device: Device = None) -> torch.Tensor:
    """The state of a device's default generator: 16 bytes, seed and offset."""
    return default_generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices' default generators."""
    return [get_rng_state(index) for index in range(_C.device_count())]


def set_rng_state(new_state: torch.Tensor, device: Device = None) -> None:
    """Sets the state of a device's default generator."""
    default_generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Sets the states of all devices' default generators."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def set_random_layout(layout: str, multiprocessors: int = 0, threads_per_multiprocessor: int = 0) -> None:
    """Which element takes which part of a generator's sequence, from now on: ``"portable"`` (the same on every device), or
    ``"torch-cuda"``, which gives the bits that PyTorch draws on a CUDA device with so many multiprocessors and threads."""
    if layout not in _LAYOUTS:
        raise ValueError(f"layout: expected 'portable' or 'torch-cuda', got {layout!r}")
    least = int(layout == "torch-cuda")
    if not all(least <= operator.index(number) < 1 << 32 for number in (multiprocessors, threads_per_multiprocessor)):
        raise ValueError("'torch-cuda' needs the numbers of multiprocessors and of threads that one runs at a time")
    _C.set_random_layout(_LAYOUTS[layout], multiprocessors, threads_per_multiprocessor)
