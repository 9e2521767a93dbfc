"""The backends besides the host's that the tests can run on, each in processes of its own.

Those that this repository builds are looked for where `cargo build --release` (or `ANYACCEL_BUILT`) and `make` leave them. One
that isn't there is skipped, unless `ANYACCEL_REQUIRE` lists it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BUILT = Path(os.environ.get("ANYACCEL_BUILT") or Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"), "release"))
# Settings of the machine that would change which devices there are.
FOREIGN = ("ANYACCEL_BACKEND", "ANYACCEL_PLUGINS", "CUDA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "ZE_FLAT_DEVICE_HIERARCHY")


@dataclass(frozen=True)
class Backend:
    """A backend, and how to have two devices of it."""

    kind: str
    needs: Path | None = None  # a library of this repository
    settings: tuple[str, ...] = ()  # variables that name it
    others: tuple[tuple[str, str], ...] = ()
    # Why tests may be skipped on it.
    skips: frozenset[str] = frozenset()

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Runs Python on it. Skips, or fails, if its library isn't there."""
        if self.needs is not None and not self.needs.is_file():
            self.is_absent(f"{self.needs} is missing")
        env = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        env.update(self.others, ANYACCEL_BACKEND=self.kind)
        env.update((variable, str(self.needs)) for variable in self.settings)
        return subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, timeout=900, check=False)

    def is_absent(self, reason: str) -> None:
        """Ends the test: it can't be run here."""
        required = self.kind in os.environ.get("ANYACCEL_REQUIRE", "").split(",")
        (pytest.fail if required else pytest.skip)(f"{self.kind}: {reason}")


SIM = Backend("sim", skips=frozenset({"one device is visible"}))
# A vendor's plugin in C.
NPU = Backend(
    "npu",
    ROOT / "examples" / "vendor-c" / "build" / "libnpu.so",
    ("ANYACCEL_PLUGINS",),
    skips=frozenset({"this device has no kernels for random numbers"}),
)
# These two on drivers that need no card.
CUDA = Backend("cuda", BUILT / "libanyaccel_fake_cuda.so", ("ANYACCEL_CUDA_LIBRARY", "ANYACCEL_NVML_LIBRARY"))
XPU = Backend("xpu", BUILT / "libanyaccel_fake_level_zero.so", ("ANYACCEL_ZE_LIBRARY",))
# With PoCL two devices are this machine's cores; other drivers have those that they have.
OPENCL = Backend("opencl", others=(("POCL_DEVICES", "pthread pthread"),))
