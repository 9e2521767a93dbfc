"""Rows of the table: each is written as soon as it is known, so that a section that dies keeps what it found."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

PASS, FAIL, SKIP = "PASS", "FAIL", "SKIP"
# A figure that no goal is set for.
INFO = "INFO"

SHORT = os.environ.get("GPU_CHECK_SHORT") == "1"
# Whether goals of speed fail a row: not on a driver that is no card's.
GOALS = os.environ.get("GPU_CHECK_GOALS", "1") == "1"
# Limits are so many times as long.
PATIENCE = float(os.environ.get("GPU_CHECK_PATIENCE", "1"))
FOLDER = Path(__file__).resolve().parent


@dataclass
class Row:
    section: str
    name: str
    verdict: str
    note: str = ""
    figures: dict[str, Any] = field(default_factory=dict)


class Rows:
    """The rows of one section, in the file that `run.py` named."""

    def __init__(self, section: str) -> None:
        self.section = section
        self.out = Path(os.environ.get("GPU_CHECK_OUT", "out"))
        self.out.mkdir(parents=True, exist_ok=True)
        self.lock = Lock()
        self.file = self.out / f"{section}.jsonl"

    def add(self, name: str, verdict: str, note: str = "", **figures: Any) -> None:
        row = Row(self.section, name, verdict, note, figures)
        with self.lock, self.file.open("a") as file:
            file.write(json.dumps(asdict(row)) + "\n")
        print(f"{verdict:<5}{self.section}: {name}  {note}", flush=True)

    def check(self, name: str, good: bool, note: str = "", **figures: Any) -> None:
        self.add(name, PASS if good else FAIL, note, **figures)

    def goal(self, name: str, good: bool, note: str = "", **figures: Any) -> None:
        self.add(name, (PASS if good else FAIL) if GOALS else INFO, note, **figures)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """What fails inside is a row, and the next part goes on."""
        try:
            yield
        except Exception as error:
            self.add(name, FAIL, f"{type(error).__name__}: {error}")

    def details(self, name: str, data: Any) -> None:
        (self.out / f"{name}.json").write_text(json.dumps(data, indent=1))


def read(file: Path) -> list[Row]:
    if not file.exists():
        return []
    rows = []
    for line in file.read_text().splitlines():
        try:
            rows.append(Row(**json.loads(line)))
        except ValueError:
            print(f"{file}: not a row: {line!r}", file=sys.stderr)
    return rows


def table(rows: list[Row]) -> str:
    widths = [max([len(getattr(row, part)) for row in rows] + [0]) for part in ("verdict", "section", "name")]
    lines = (
        f"{row.verdict:<{widths[0]}}  {row.section:<{widths[1]}}  {row.name:<{widths[2]}}  {row.note}".rstrip()
        for row in rows
    )
    return "\n".join(lines)


def torch_or_reason() -> tuple[Any, str]:
    """PyTorch with a card, or why not."""
    # The libraries of a PyTorch would not do with a driver that is no card's.
    if os.environ.get("GPU_CHECK_NO_TORCH") == "1":
        return None, "told to go without PyTorch"
    try:
        import torch
    except Exception as error:
        return None, f"no PyTorch: {error}"
    try:
        if not torch.cuda.is_available():
            return None, "this PyTorch has no card"
        torch.cuda.init()
    except Exception as error:
        return None, f"PyTorch does not start: {error}"
    return torch, ""
