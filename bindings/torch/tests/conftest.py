"""The device that the tests run on: two of the host backend, unless the environment chooses another."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator

os.environ.setdefault("ANYACCEL_BACKEND", "host")
if os.environ["ANYACCEL_BACKEND"] == "host":
    os.environ.setdefault("ANYACCEL_HOST_DEVICES", "2")

import pytest
import torch
import torch_anyaccel

if not torch_anyaccel.is_registered():
    pytest.exit(f"there is no device to test: {torch_anyaccel.why_not()}", returncode=2)

NAME = torch._C._get_privateuse1_backend_name()


@pytest.fixture
def device() -> torch.device:
    return torch.device(NAME, 0)


@pytest.fixture
def two_devices() -> tuple[torch.device, torch.device]:
    if torch.accelerator.device_count() < 2:
        pytest.skip("one device is visible")
    return torch.device(NAME, 0), torch.device(NAME, 1)


def draw_or_skip(draw: Callable[[], object]) -> None:
    """Draws random numbers in a capture; skips the test where the device must have kernels for that, and has none."""
    try:
        draw()
    except RuntimeError as refused:
        assert re.search("Stream.random without a kernel .* can't be captured on", str(refused)), refused
        pytest.skip("this device has no kernels for random numbers")


class Gate:
    """Holds a stream until it is opened."""

    def __init__(self, stream: torch.Stream | None = None) -> None:
        self._opened = threading.Event()
        self.reached = threading.Event()
        torch.get_device_module(NAME).host_function(self._hold, stream)

    def _hold(self) -> None:
        self.reached.set()
        assert self._opened.wait(60), "nobody opened the gate"

    def open(self) -> None:
        self._opened.set()


@pytest.fixture
def gate() -> Iterator[type[Gate]]:
    """Makes gates, and opens those that a failed test left shut."""
    made: list[Gate] = []

    def make(stream: torch.Stream | None = None) -> Gate:
        made.append(Gate(stream))
        return made[-1]

    yield make
    for one in made:
        one.open()
    torch.accelerator.synchronize()
