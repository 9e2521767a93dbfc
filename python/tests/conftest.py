"""Runs on the built-in device, with two of them; the environment is set before the package is imported."""

import os
import subprocess
import sys
import textwrap

os.environ.setdefault("ANYACCEL_BACKEND", "host")
os.environ.setdefault("ANYACCEL_HOST_DEVICES", "2")

import pytest


class Script:
    """Runs a program in a fresh interpreter, where nothing has started."""

    def __call__(self, code: str, *, timeout: float = 60, check: bool = True, **env: str) -> str:
        environment = {**os.environ, "PYTHONFAULTHANDLER": "1", **env}
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env={key: value for key, value in environment.items() if value != "unset"},
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check:
            assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
            assert "panicked" not in done.stderr, done.stderr
        return (done.stdout if check else done.stdout + done.stderr).strip()


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture(autouse=True)
def restored():
    """Each test begins and ends on device 0 and its default stream."""
    from anyaccel import accelerator

    yield
    accelerator.set_stream(accelerator.default_stream(1))
    accelerator.set_stream(accelerator.default_stream(0))
