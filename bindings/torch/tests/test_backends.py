"""What holds on the host's devices holds on those of every other backend, with the same code: on memory that the host can't
see, at made-up addresses, of drivers that do things late or in another order."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from backends import CUDA, NPU, OPENCL, SIM, XPU, Backend

HERE = Path(__file__).parent
FILES = ["test_tensors.py", "test_modules.py", "test_order.py", "test_deferred.py", "test_random.py", "test_graph.py"]
IS_NEWER = re.compile(r"torch\.accelerator\.\w+ is newer")


@pytest.mark.skipif(os.environ["ANYACCEL_BACKEND"] != "host", reason="these tests run on another backend already")
@pytest.mark.parametrize("backend", [SIM, NPU, CUDA, XPU, OPENCL], ids=lambda backend: backend.kind)
def test_the_tests_pass_on(backend: Backend) -> None:
    done = backend.run("-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *(HERE / name for name in FILES))
    absent = re.search(r"there is no device to test: (.*)", done.stdout + done.stderr)
    if absent:
        backend.is_absent(absent[1])
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed and int(passed[1]) > 0, done.stdout
    for reason in re.findall(r"^SKIPPED \[\d+\] \S+: (.*)$", done.stdout, re.MULTILINE):
        assert reason in backend.skips or IS_NEWER.fullmatch(reason), f"{backend.kind}: skipped: {reason}"
