"""One side of the comparison of memory statistics: `memory_sequence.py SIDE FILE OUT` runs the operations in FILE.

Each side has a process of its own, so that both begin with the same empty device and get like addresses.
"""

import json
import sys
from pathlib import Path
from typing import Any

# Counters are written after so many operations.
EVERY = 5


class Torch:
    def __init__(self) -> None:
        import torch

        self.torch = torch
        torch.cuda.init()
        self.streams: dict[int, Any] = {0: torch.cuda.default_stream()}

    def stream(self, number: int) -> Any:
        if number not in self.streams:
            self.streams[number] = self.torch.cuda.Stream()
        return self.streams[number]

    def on(self, stream: Any) -> Any:
        return self.torch.cuda.stream(stream)

    def empty(self, size: int) -> Any:
        return self.torch.empty(size, dtype=self.torch.uint8, device="cuda")

    def synchronize(self) -> None:
        self.torch.cuda.synchronize()

    def empty_cache(self) -> None:
        self.torch.cuda.empty_cache()

    def stats(self) -> dict[str, int]:
        return dict(self.torch.cuda.memory_stats())


class Ours:
    def __init__(self) -> None:
        import anyaccel
        from anyaccel import accelerator

        self.module, self.accelerator = anyaccel, accelerator
        self.device = anyaccel.device("cuda", 0)
        self.streams: dict[int, Any] = {0: accelerator.default_stream(self.device)}

    def stream(self, number: int) -> Any:
        if number not in self.streams:
            self.streams[number] = self.module.Stream(self.device)
        return self.streams[number]

    def on(self, stream: Any) -> Any:
        return stream

    def empty(self, size: int) -> Any:
        return self.module.empty(size, dtype=self.module.uint8, device=self.device)

    def synchronize(self) -> None:
        self.accelerator.synchronize()

    def empty_cache(self) -> None:
        self.accelerator.empty_cache()

    def stats(self) -> dict[str, int]:
        return dict(self.accelerator.memory_stats())


def run(side: Torch | Ours, operations: list[list[Any]], every: int) -> list[dict[str, int]]:
    """What the counters were after each `every` operations, and at the end."""
    blocks: dict[int, Any] = {}
    seen = []
    for index, (name, *arguments) in enumerate(operations):
        if name == "alloc":
            block, size, stream = arguments
            with side.on(side.stream(stream)):
                blocks[block] = side.empty(size)
        elif name == "free":
            del blocks[arguments[0]]
        elif name == "record":
            blocks[arguments[0]].record_stream(side.stream(arguments[1]))
        elif name == "synchronize":
            side.synchronize()
        elif name == "empty_cache":
            side.empty_cache()
        else:
            raise ValueError(f"unknown operation {name}")
        if index % every == 0 or index + 1 == len(operations):
            seen.append({"operation": index, **side.stats()})
    return seen


def main(name: str, file: str, out: str, every: str = str(EVERY)) -> None:
    side = Torch() if name == "torch" else Ours()
    operations = json.loads(Path(file).read_text())
    Path(out).write_text(json.dumps(run(side, operations, int(every))))


if __name__ == "__main__":
    main(*sys.argv[1:])
