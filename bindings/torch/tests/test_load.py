"""`import torch` with this package installed: whatever is wrong, PyTorch works on the CPU, and one warning says what."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch_anyaccel
from torch_anyaccel import _load

PACKAGE = Path(torch_anyaccel.__file__).parent
WORKS = "import torch; assert torch.ones(2).sum() == 2; assert torch._C._get_privateuse1_backend_name() == 'privateuseone'"


def python(code: str, *, package: Path | None = None, **environment: str | None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "ANYACCEL_BACKEND": "host", "ANYACCEL_HOST_DEVICES": "1"}
    for name, value in environment.items():
        env.pop(name, None)
        if value is not None:
            env[name] = value
    if package is not None:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(package.parent), os.environ.get("PYTHONPATH")]))
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300, check=False)


def warns(done: subprocess.CompletedProcess[str], text: str) -> None:
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("RuntimeWarning: torch_anyaccel") == 1, done.stderr
    assert re.search(text, done.stderr), done.stderr


def sections(library: Path) -> set[str]:
    """The names of an ELF file's sections."""
    image = library.read_bytes()
    (table,) = struct.unpack_from("<Q", image, 40)
    size, count, names = struct.unpack_from("<HHH", image, 58)
    headers = [struct.unpack_from("<IIQQQ", image, table + at * size) for at in range(count)]
    starts = [headers[names][4] + name for name, *_ in headers]
    return {image[start : image.index(0, start)].decode() for start in starts}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PACKAGE, tmp_path / "torch_anyaccel", ignore=shutil.ignore_patterns("__pycache__")))


@pytest.mark.skipif(shutil.which("strip") is None, reason="it was packaged whole, if it was built here")
def test_the_library_is_packaged_without_debug_information() -> None:
    (extension,) = PACKAGE.glob("_C*.so")
    library = sections(PACKAGE / "libanyaccel.so")
    assert {".dynsym", ".symtab"} <= library
    assert ".debug_info" not in library or ".debug_info" in sections(extension), "unless all of it is for a debugger"


def test_it_is_there_without_an_import() -> None:
    code = "import torch; assert torch.ones(2, device='anyaccel').sum().item() == 2; assert torch.anyaccel.is_initialized()"
    done = python(code, ANYACCEL_TORCH_NAME=None)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_importing_starts_nothing() -> None:
    code = (
        "import torch; assert torch.accelerator.is_available() and torch.accelerator.device_count() == 1;"
        "torch.manual_seed(3); assert not torch.anyaccel.is_initialized();"
        "assert torch.anyaccel.initial_seed() == 3 and torch.anyaccel.is_initialized()"
    )
    done = python(code, ANYACCEL_TORCH_NAME=None)
    assert done.returncode == 0, done.stderr


def test_another_name() -> None:
    code = "import torch; assert torch.ones(2, device='chip').chip(0).device.type == 'chip'; torch.chip.synchronize()"
    done = python(code, ANYACCEL_TORCH_NAME="chip")
    assert done.returncode == 0, done.stderr
    warns(python(WORKS, ANYACCEL_TORCH_NAME="Bad Name"), "ANYACCEL_TORCH_NAME='Bad Name'")


NO_NAMES = ["a b", "", "x1", "class", "é", "A"]
TAKEN = ["cuda", "cpu", "meta", "privateuseone", "nn", "ones", "float", "data", "shape", "storage"]


@pytest.mark.parametrize("name", NO_NAMES + TAKEN)
def test_names_that_are_none_or_taken(name: str) -> None:
    with pytest.raises(_load.Unavailable, match=f"{_load.NAME_VARIABLE}='{name}' is (no name|taken)"):
        _load._check_name(name)


def test_no_such_backend() -> None:
    warns(python(WORKS, ANYACCEL_BACKEND="nope"), "nope")


def test_no_device() -> None:
    warns(python(WORKS, ANYACCEL_BACKEND="host", ANYACCEL_HOST_DEVICES="0"), "ANYACCEL_BACKEND=host has no device")
    hidden = {f"ANYACCEL_{name}_LIBRARY": "/nowhere" for name in ("OPENCL", "CUDA", "ZE")}
    warns(python(WORKS, ANYACCEL_BACKEND=None, **hidden), "ANYACCEL_BACKEND=host makes one")


def test_no_library(package: Path) -> None:
    (package / "libanyaccel.so").unlink()
    warns(python(WORKS, package=package), "libanyaccel.so is missing")
    (package / "libanyaccel.so").write_bytes(b"nothing of the kind")
    warns(python(WORKS, package=package), "libanyaccel.so can't be used")


def test_another_pytorch(package: Path) -> None:
    built = package / "_built_for.py"
    built.write_text(re.sub(r'TORCH = ".*"', 'TORCH = "2.3"', built.read_text()))
    warns(python(WORKS, package=package), "built for PyTorch 2.3")


def test_another_version_of_the_library(package: Path) -> None:
    built = package / "_built_for.py"
    built.write_text(re.sub(r"API = .*", "API = (99, 0)", built.read_text()))
    warns(python(WORKS, package=package), r"99\.0 is needed")


def test_an_extension_that_does_not_load(package: Path) -> None:
    (extension,) = package.glob("_C*.so")
    extension.write_bytes(b"\x7fELF")
    warns(python(WORKS, package=package), "extension can't be loaded")


def test_imported_before_pytorch() -> None:
    code = "import torch_anyaccel, torch; assert torch_anyaccel.is_registered(); assert torch.ones(2, device='anyaccel').sum().item() == 2"
    for autoload in (None, "0"):
        done = python(code, ANYACCEL_TORCH_NAME=None, TORCH_DEVICE_BACKEND_AUTOLOAD=autoload)
        assert done.returncode == 0 and not done.stderr, done.stderr


def test_loaded_again() -> None:
    code = (
        "import sys, torch, torch_anyaccel, importlib; importlib.reload(torch_anyaccel); assert torch_anyaccel.is_registered();"
        "[sys.modules.pop(name) for name in list(sys.modules) if name.startswith('torch_anyaccel')];"
        "import torch_anyaccel; assert torch_anyaccel.is_registered(); assert torch.ones(2, device='anyaccel').sum().item() == 2"
    )
    done = python(code, ANYACCEL_TORCH_NAME=None)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_functions_that_outlive_the_interpreter() -> None:
    code = (
        "import torch, threading, time; wait = threading.Event().wait; run = torch.anyaccel.host_function;"
        "run(lambda: wait(1)); run(lambda: print('late')); x = torch.ones(3, device='anyaccel'); print('end')"
    )
    done = python(code, ANYACCEL_TORCH_NAME=None)
    assert done.returncode == 0 and done.stdout.startswith("end") and not done.stderr, done.stdout + done.stderr


def test_why_not() -> None:
    code = "import torch, torch_anyaccel; assert not torch_anyaccel.is_registered(); assert 'nope' in torch_anyaccel.why_not()"
    warns(python(code, ANYACCEL_BACKEND="nope"), "nope")
