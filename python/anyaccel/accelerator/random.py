"""Seeds and states of the devices' default generators.

Reading a state may start the runtime; seeding and setting wait for the start, in program order. A state is a uint8 tensor
of 16 bytes on the host: seed and offset.

>>> from anyaccel import accelerator
>>> accelerator.random.manual_seed(7)
>>> accelerator.random.initial_seed()
7
"""

from __future__ import annotations

from .._anyaccel import (
    _lazy_call,
    get_rng_state,
    get_rng_state_all,
    get_rng_state_offset,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
    set_rng_state_offset,
)
from ..random import fork_rng

__all__ = [
    "fork_rng",
    "get_rng_state",
    "get_rng_state_all",
    "get_rng_state_offset",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
    "set_rng_state_offset",
]
