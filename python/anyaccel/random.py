"""Seeds of the host's generator and of all devices at once."""

from __future__ import annotations

from . import _anyaccel
from ._anyaccel import Generator, Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from .accelerator._utils import DeviceLike, StateLike

__all__ = ["default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]

default_generator: Generator = _anyaccel._host_generator()
"""The generator of host tensors."""


def manual_seed(seed: int) -> Generator:
    """Seeds the host's generator and, once they have started, those of all devices. Starts nothing.

    >>> import anyaccel
    >>> anyaccel.manual_seed(1).initial_seed()
    1
    """
    checked = _anyaccel._checked_seed(seed)
    _anyaccel.manual_seed_all(checked)
    return default_generator.manual_seed(checked)


def seed() -> int:
    """Seeds all generators with one random seed, and returns it. Starts nothing."""
    drawn = default_generator.seed()
    _anyaccel.manual_seed_all(drawn)
    return drawn


def initial_seed() -> int:
    """The seed of the host's generator."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the host's generator: a uint8 tensor of 16 bytes."""
    return default_generator.get_state()


def set_rng_state(new_state: StateLike) -> None:
    """Sets the state of the host's generator."""
    default_generator.set_state(new_state)


class fork_rng:
    """Context manager that restores the states of all generators when it is left.

    ``devices`` are those whose states are kept beside the host's, all of the current accelerator if None. With
    ``enabled=False`` it does nothing.

    >>> import anyaccel
    >>> _ = anyaccel.manual_seed(1)
    >>> with anyaccel.random.fork_rng():
    ...     _ = anyaccel.manual_seed(2)
    >>> anyaccel.initial_seed()
    1
    """

    def __init__(
        self, devices: Iterable[DeviceLike] | None = None, enabled: bool = True, device_type: str | None = None
    ) -> None:
        if device_type is not None:
            _check_type(device_type)
        self._enabled = enabled
        self._forked = _anyaccel._ForkRng(None if devices is None else list(devices), enabled)
        self._states: list[Tensor] = []

    def __enter__(self) -> None:
        self._forked.__enter__()
        self._states.append(default_generator.get_state())

    def __exit__(self, *exception: object) -> None:
        self._forked.__exit__(*exception)
        state = self._states.pop()
        if self._enabled:
            default_generator.set_state(state)


def _check_type(device_type: str) -> None:
    given = _anyaccel.device(device_type)
    current = _anyaccel.current_accelerator()
    if current is None or given.type != current.type:
        raise ValueError(f"{device_type} doesn't match the current accelerator {current}.")
