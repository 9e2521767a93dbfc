"""Builds the wheel of torch_anyaccel for the PyTorch that is installed.

ANYACCEL_LIBRARY names the libanyaccel.so that is packaged (default: what `cargo build --release -p anyaccel-capi` leaves).
ANYACCEL_TORCH_CXXFLAGS are flags for the compiler (default: -O2). With -g among them the extension and the packaged copy of the
library have debug information, else neither.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # an installed one is none of our business

import torch
from setuptools import setup
from setuptools.command.build_py import build_py
from torch.utils.cpp_extension import BuildExtension, CppExtension

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
LIBRARY = Path(os.environ.get("ANYACCEL_LIBRARY", TARGET / "release" / "libanyaccel.so")).resolve()
MINOR = ".".join(torch.__version__.split(".")[:2])
SUPPORTED = ("2.12", "2.13", "2.14", "2.15")
HEADER = (ROOT / "include" / "anyaccel" / "anyaccel.h").read_text()
API = tuple(int(re.search(rf"#define ANYACCEL_API_{part} (\d+)", HEADER)[1]) for part in ("MAJOR", "MINOR"))
VERSION = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
OPTIMIZE = os.environ.get("ANYACCEL_TORCH_CXXFLAGS", "-O2").split()

if MINOR not in SUPPORTED:
    raise SystemExit(f"torch_anyaccel is for PyTorch {SUPPORTED[0]} to {SUPPORTED[-1]}; {torch.__version__} is installed.")
if not LIBRARY.is_file():
    raise SystemExit(f"{LIBRARY} is missing: build it with `cargo build --release -p anyaccel-capi`, or set ANYACCEL_LIBRARY.")


def copy_without_debug_information(library: Path, copy: Path) -> None:
    """It is four fifths of the library. Names of functions stay: memory histories show them."""
    for tool in filter(None, map(shutil.which, ("strip", "llvm-strip"))):
        if subprocess.run([tool, "--strip-debug", "-o", copy, library], check=False).returncode == 0:
            return
    print(f"{library} is packaged with its debug information: no strip that can take it off. It is larger and works the same.")
    shutil.copy2(library, copy)


class BuildWithLibrary(build_py):
    """Packages the library, and for which PyTorch the extension is."""

    def run(self) -> None:
        super().run()
        package = Path(self.get_package_dir("torch_anyaccel") if self.editable_mode else self.build_lib + "/torch_anyaccel")
        package.mkdir(parents=True, exist_ok=True)
        put = shutil.copy2 if "-g" in OPTIMIZE else copy_without_debug_information
        put(LIBRARY, package / "libanyaccel.so")
        (package / "_built_for.py").write_text(f'"""Written by setup.py."""\n\nTORCH = "{MINOR}"\nAPI = {API}\n')


setup(
    name="torch-anyaccel",
    version=f"{VERSION}+torch{MINOR}",
    description="A device for PyTorch whose runtime is anyaccel",
    license="MIT OR Apache-2.0",
    python_requires=">=3.11",
    install_requires=[f"torch=={MINOR}.*"],
    package_dir={"": "src"},
    packages=["torch_anyaccel"],
    package_data={"torch_anyaccel": ["libanyaccel.so", "py.typed"]},
    entry_points={"torch.backends": ["anyaccel = torch_anyaccel:_autoload"]},
    cmdclass={"build_ext": BuildExtension, "build_py": BuildWithLibrary},
    ext_modules=[
        CppExtension(
            "torch_anyaccel._C",
            sorted(str(path.relative_to(HERE)) for path in (HERE / "csrc").glob("*.cpp")),
            include_dirs=[str(ROOT / "include")],
            library_dirs=[str(LIBRARY.parent)],
            libraries=["anyaccel"],
            extra_compile_args=["-std=c++20", "-fvisibility=hidden", "-g0", *OPTIMIZE],
            # A library without a function that is needed is refused when it is loaded, not when it is called.
            extra_link_args=["-Wl,-rpath,$ORIGIN", "-Wl,-z,now"],
        )
    ],
)
