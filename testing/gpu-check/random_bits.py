"""Random fills: the command's numbers against torch.cuda's, and both against `philox`."""

import json
import math
import random
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import driver
from philox import Fill
from rows import FAIL, FOLDER, PATIENCE, SHORT, SKIP, Rows, torch_or_reason

# Elements that are compared with the slow reference, of each fill.
SAMPLES = 300 if SHORT else 2000


@dataclass
class Kind:
    distribution: str
    dtype: str
    a: float
    b: float
    # 0: bit for bit.
    tolerance: float = 0.0

    def name(self) -> str:
        return f"{self.distribution} {self.dtype} {self.a}" + ("" if self.distribution == "bernoulli" else f" {self.b}")

    def options(self) -> list[str]:
        names = {"uniform": ("--from", "--to"), "integers": ("--from", "--to"), "normal": ("--mean", "--std")}
        if self.distribution == "bernoulli":
            return ["--p", repr(self.a)]
        first, second = names[self.distribution]
        return [first, repr(self.a), second, repr(self.b)]

    def torch(self, tensor: Any, generator: Any) -> None:
        if self.distribution == "uniform":
            tensor.uniform_(self.a, self.b, generator=generator)
        elif self.distribution == "normal":
            tensor.normal_(self.a, self.b, generator=generator)
        elif self.distribution == "integers":
            tensor.random_(int(self.a), int(self.b), generator=generator)
        else:
            tensor.bernoulli_(self.a, generator=generator)


KINDS = [
    Kind("uniform", "float32", 0.0, 1.0),
    Kind("uniform", "float32", -1.0, 3.0),
    Kind("uniform", "float64", 0.0, 1.0),
    Kind("uniform", "float16", 0.0, 1.0),
    Kind("uniform", "bfloat16", 0.0, 1.0),
    Kind("normal", "float32", 0.0, 1.0, 1e-5),
    Kind("normal", "float64", 0.0, 1.0, 1e-9),
    Kind("integers", "int64", 0, 100),
    Kind("integers", "int32", -7, 1 << 20),
    Kind("integers", "int64", -5, 1 << 40),
    Kind("bernoulli", "float32", 0.3, 0.0),
    Kind("bernoulli", "float64", 0.5, 0.0),
]


def places(size: tuple[int, int]) -> list[tuple[int, int, int]]:
    """Count, seed and offset. The last count takes more than one turn of the grid."""
    turn = size[0] * (size[1] // 256) * 1024
    last = turn + 4099, 0x9E3779B97F4A7C15, 4_000_000_004
    if SHORT:
        return [(1000, (1 << 64) - 59, (1 << 35) + 8), last]
    return [(1, 0, 0), (1000, 42, 4), (4099, (1 << 64) - 59, (1 << 35) + 8), last]


def ours(kind: Kind, place: tuple[int, int, int], size: tuple[int, int]) -> dict[str, Any]:
    count, seed, offset = place
    command = [str(FOLDER / "anyaccel"), "random", kind.distribution, "--backend", "cuda", "--json"]
    command += ["--dtype", kind.dtype, "--layout", f"torch-cuda:{size[0]}x{size[1]}", *kind.options()]
    command += ["-n", str(count), "--seed", str(seed), "--offset", str(offset)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60 * PATIENCE)
    if done.returncode != 0:
        raise RuntimeError(f"anyaccel random: exit status {done.returncode}: {done.stderr.strip()[-300:]}")
    document: dict[str, Any] = json.loads(done.stdout)
    if document["device"] != "cuda:0":
        raise RuntimeError(f"drawn on {document['device']}")
    if len(document["values"]) != count:
        raise RuntimeError(f"{len(document['values'])} numbers of {count}")
    return document


def theirs(torch: Any, kind: Kind, place: tuple[int, int, int]) -> tuple[list[float], int]:
    """The numbers of torch.cuda, and its offset afterwards."""
    count, seed, offset = place
    generator = torch.Generator(device="cuda")
    state = bytearray(struct.pack("<QQ", seed, offset))
    generator.set_state(torch.frombuffer(state, dtype=torch.uint8).clone())
    tensor = torch.empty(count, dtype=getattr(torch, kind.dtype), device="cuda")
    kind.torch(tensor, generator)
    after = bytes(generator.get_state().tolist())
    return tensor.cpu().tolist(), struct.unpack("<QQ", after[:16])[1]


def packed(values: list[float], dtype: str) -> bytes:
    """By bits, so that -0 is not 0; the command prints as many digits as the type needs."""
    code = {"float64": "d", "int32": "q", "int64": "q"}.get(dtype, "f")
    return struct.pack(f"<{len(values)}{code}", *values)


def difference(kind: Kind, ours: list[float], theirs: list[float], at: list[int]) -> tuple[str, float]:
    """The first element that differs, in words, and the largest distance."""
    if None not in ours and packed(ours, kind.dtype) == packed(theirs, kind.dtype):
        return "", 0.0
    worst, first = 0.0, ""
    for i, a, b in zip(at, ours, theirs, strict=True):
        if a is None or not math.isfinite(b):
            return f"element {i}: {a} and {b}", math.inf
        worst = max(worst, abs(a - b))
        same = abs(a - b) <= kind.tolerance if kind.tolerance else packed([a], kind.dtype) == packed([b], kind.dtype)
        if not same and not first:
            first = f"element {i}: {a!r} and {b!r}"
    return first, worst


class Against:
    """One kind of number against one other source of them."""

    def __init__(self, name: str) -> None:
        self.name, self.compared, self.worst, self.problems = name, 0, 0.0, list[str]()

    def add(
        self, kind: Kind, where: str, ours: list[float], theirs: list[float], at: list[int], offsets: tuple[int, int]
    ) -> None:
        first, worst = difference(kind, ours, theirs, at)
        self.compared += len(at)
        self.worst = max(self.worst, worst)
        if first:
            self.problems.append(f"{where}: {first}")
        if offsets[0] != offsets[1]:
            self.problems.append(f"{where}: ends at offset {offsets[0]}, there at {offsets[1]}")

    def row(self, rows: Rows, kind: Kind, complete: bool) -> None:
        note = "; ".join(self.problems[:3]) or f"{self.compared} numbers, largest difference {self.worst:.3g}"
        if not complete and not self.problems:
            note += "; not all fills, for want of time"
        rows.check(f"{kind.name()} against {self.name}", bool(self.compared) and not self.problems, note)


def compare(rows: Rows, kind: Kind, torch: Any, size: tuple[int, int], end: float) -> None:
    card, reference = Against("torch.cuda"), Against("the reference")
    complete = True
    # Starting costs each process more than drawing.
    with ThreadPoolExecutor(4) as starts:
        drawn = list(starts.map(lambda place: ours(kind, place, size), places(size)))
    for place, document in zip(places(size), drawn, strict=True):
        if time.monotonic() > end:
            complete = False
            break
        count, seed, offset = place
        where = f"n={count} seed={seed} offset={offset}"
        values, after = document["values"], document["next_offset"]
        if torch is not None:
            others, there = theirs(torch, kind, place)
            card.add(kind, where, values, others, list(range(count)), (after, there))
        fill = Fill(kind.distribution, kind.dtype, kind.a, kind.b, count, seed, offset, size)
        chosen = random.Random(seed).sample(range(count), min(count, SAMPLES))
        at = sorted({*chosen, 0, count - 1, *(i for i in (fill.width - 1, fill.width) if i < count)})
        slow = [fill.element(i) for i in at]
        reference.add(kind, where, [values[i] for i in at], slow, at, (after, fill.next_offset()))
    if torch is not None:
        card.row(rows, kind, complete)
    reference.row(rows, kind, complete)


def main(seconds: float) -> None:
    rows = Rows("random")
    begin = time.monotonic()
    real = None
    with rows.part("start"):
        real = driver.Driver().size()
    if real is None:
        return
    torch, reason = torch_or_reason()
    if torch is None:
        rows.add("fills against torch.cuda", SKIP, reason)
        sizes = [(2, 512)] if SHORT else [real, (2, 512), (132, 2048)]
    else:
        properties = torch.cuda.get_device_properties(0)
        told = properties.multi_processor_count, getattr(properties, "max_threads_per_multi_processor", real[1])
        rows.check("size of the card", told == real, f"{real[0]} multiprocessors of {real[1]} threads; PyTorch says {told}")
        sizes = [real]
    end = begin + seconds - 5
    for size in sizes:
        for kind in KINDS:
            if time.monotonic() > end:
                rows.add(kind.name(), FAIL, "no time left")
                continue
            with rows.part(f"{kind.name()} on {size[0]}x{size[1]}"):
                compare(rows, kind, torch, size, end)


if __name__ == "__main__":
    main(float(sys.argv[1]))
