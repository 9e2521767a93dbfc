#!/usr/bin/env python3
"""Make a virtual environment in which PyTorch works on the CPU, a quarter of the size of the usual one.

    bindings/torch/ci/cpu_torch.py VENV [VERSION] [--keep-cache]

The x86_64 wheel on the package index is built for CUDA and asks for another 4 GB of CUDA libraries, which nothing here
calls. This installs the wheel and the small libraries that PyTorch does call on a machine without a card (the CUDA
runtime, which answers "no device", and CUPTI), and in place of each other library a file of that name whose functions
print their name and abort. `torch.cuda.is_available()` is False, as with the real ones on such a machine.

Needs: a C compiler, readelf. An environment that an earlier run made for the same version is kept.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

TESTED = "2.14.1"

# What `import torch` and PyTorch's own test helpers need, and what building the binding needs.
PACKAGES = [
    "filelock", "typing-extensions", "sympy", "networkx", "jinja2", "fsspec", "numpy",
    "setuptools>=77.0.3", "wheel", "ninja", "pytest", "pytest-timeout", "expecttest", "hypothesis", "psutil",
]  # fmt: skip

# Libraries that carry no symbol versions: the names they export begin so.
PREFIX = {"libcufile": "cuFile", "libcurand": "curand", "libnccl": "nccl", "libcusparseLt": "cusparseLt"}

BODY = """\
#include <stdio.h>
#include <stdlib.h>
static void absent(const char *name) {
  fprintf(stderr, "%s: this environment holds PyTorch for the CPU alone; CUDA's libraries are stand-ins\\n", name);
  abort();
}
"""


def out(*command: object) -> str:
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout


def wheel_libraries(python: Path) -> Path:
    found = out(python, "-c", "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])")
    return Path(found.strip()) / "lib"


def installed(python: Path) -> str | None:
    try:
        return out(python, "-c", "import importlib.metadata as m; print(m.version('torch'))").strip()
    except subprocess.CalledProcessError:
        return None


def requirements(python: Path) -> list[str]:
    """The runtime and CUPTI of the CUDA release the wheel was built for."""
    text = out(python, "-c", "import importlib.metadata as m; print('\\n'.join(m.requires('torch') or []))")
    release = re.search(r"cuda-toolkit\[[^]]*\]==(\d+\.\d+)", text)
    if release is None:
        raise SystemExit("cpu_torch: this wheel names no CUDA toolkit; install it with pip, whole")
    return [f"nvidia-cuda-runtime=={release[1]}.*", f"nvidia-cuda-cupti=={release[1]}.*"]


def needed(library: Path) -> list[str]:
    return re.findall(r"\(NEEDED\).*\[(.+)\]", out("readelf", "-dW", library))


def undefined(library: Path) -> list[tuple[str, str]]:
    """Names the library imports, each with the version asked for ("" if none)."""
    names = []
    for line in out("readelf", "--dyn-syms", "-W", library).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[6] == "UND":
            name, _, version = fields[7].partition("@")
            names.append((name, version.lstrip("@")))
    return names


def version_of(library: Path, soname: str) -> str:
    """The symbol version under which `library` imports from `soname`; "" if it asks for none."""
    text = out("readelf", "-VW", library)
    block = re.search(rf"File: {re.escape(soname)}\s+Cnt: \d+\n\s+.*?Name: (\S+)", text)
    return block[1] if block else ""


def stand_in(soname: str, version: str, names: list[str], into: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        source, script = Path(scratch, "s.c"), Path(scratch, "s.map")
        source.write_text(BODY + "".join(f'void {n}(void) {{ absent("{n}"); }}\n' for n in names))
        command: list[object] = ["cc", "-shared", "-fPIC", "-O1", "-w", f"-Wl,-soname,{soname}", "-o", into / soname]
        if version:
            script.write_text(f"{version} {{ global: *; }};\n")
            command.append(f"-Wl,--version-script={script}")
        out(*command, source)


def fill_in(lib: Path) -> list[str]:
    """A stand-in for every library that the wheel's own libraries need and this machine lacks."""
    into = lib.parent.parent / "nvidia" / "cu13" / "lib"
    if not into.is_dir():
        raise SystemExit(f"cpu_torch: {into} is not there: this wheel looks for CUDA elsewhere")
    mine = sorted(lib.glob("*.so*"))
    present = {p.name for p in mine} | {p.name for p in into.glob("*.so*")}
    # The driver, libcuda, is never among them: it is no part of the packages, and a stand-in would be found by others.
    wanted = {s for p in mine for s in needed(p) if re.match(r"lib(cu|nv|nccl)", s)} - present - {"libcuda.so.1"}
    imports = {p: undefined(p) for p in mine}
    for soname in sorted(wanted):
        version = next((v for p in mine if (v := version_of(p, soname))), "")
        prefix = PREFIX.get(soname.partition(".")[0])
        names = {
            n
            for p in mine
            for n, v in imports[p]
            if (v == version if version else v == "" and prefix is not None and n.startswith(prefix))
        }
        stand_in(soname, version, sorted(names), into)
    return sorted(wanted)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("venv", type=Path)
    ask.add_argument("version", nargs="?", default=TESTED)
    ask.add_argument("--keep-cache", action="store_true", help="leave what pip downloaded in its cache")
    arguments = ask.parse_args()

    python = arguments.venv.absolute() / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", arguments.venv], check=True)
    pip = [python, "-m", "pip", "install", "--quiet"]
    if not arguments.keep_cache:
        pip.append("--no-cache-dir")
    # The rest first: pip speaks of missing CUDA libraries only when it resolves with torch there.
    there = installed(python)
    if there not in (None, arguments.version):
        raise SystemExit(f"cpu_torch: {arguments.venv} holds torch {there}; remove it, or name another")
    if there is None:
        subprocess.run([*pip, *PACKAGES], check=True)
        subprocess.run([*pip, "--no-deps", f"torch=={arguments.version}"], check=True)
    subprocess.run([*pip, "--no-deps", *requirements(python)], check=True)
    made = fill_in(wheel_libraries(python))
    print(f"cpu_torch: torch {arguments.version} in {arguments.venv}; stand-ins: {', '.join(made) or 'none new'}")
    check = "import torch; assert not torch.cuda.is_available(); print((torch.ones(2, 2) @ torch.ones(2, 2)).sum().item())"
    subprocess.run([python, "-c", check], check=True)


if __name__ == "__main__":
    main()
