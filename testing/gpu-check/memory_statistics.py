"""Memory statistics: the same allocations by this runtime and by torch.cuda, and histories of PyTorch's allocator."""

import gzip
import json
import os
import random
import subprocess
import sys
import time
from typing import Any

from rows import FOLDER, SHORT, SKIP, Rows, torch_or_reason

Operations = list[list[Any]]

# Histories with the default settings and nothing that Python can't do.
RECORDED = ["tiny"] if SHORT else ["tiny", "mixed", "train_small", "streams_norecord"]
MOST_LIVE = 1 << 30
# Fewer counters than these in common would say little.
LEAST_COMMON = 100


def sequence(seed: int, length: int, distinct: bool) -> Operations:
    """Random allocations on two streams. With `distinct` no two of them are of one size class, so that no choice is left open.

    The device is waited for after the free of a block that another stream used: when it is ready is chance otherwise.
    """
    chance = random.Random(seed)
    operations: Operations = []
    live: dict[int, tuple[int, bool]] = {}
    classes: set[int] = set()
    for block in range(length):
        for _ in range(1000):
            size = min(int(2 ** chance.uniform(0, 26)) + chance.randrange(512), 64 << 20)
            if not distinct or size // 512 not in classes:
                break
        classes.add(size // 512)
        while live and (chance.random() < 0.45 or sum(size for size, _ in live.values()) + size > MOST_LIVE):
            freed = chance.choice(list(live))
            recorded = live.pop(freed)[1]
            operations.append(["free", freed])
            if recorded:
                operations.append(["synchronize"])
        stream = chance.randrange(2) + 1
        operations.append(["alloc", block, size, stream])
        recorded = chance.random() < 0.25
        if recorded:
            operations.append(["record", block, 3 - stream])
        live[block] = size, recorded
        if block % 97 == 96:
            operations += [["synchronize"], ["empty_cache"]]
    operations += [["free", block] for block in sorted(live)]
    return [*operations, ["synchronize"], ["empty_cache"]]


def run(rows: Rows, side: str, name: str, operations: Operations, every: int, limit: float) -> list[dict[str, int]]:
    given, out = rows.out / f"memory-{name}.operations", rows.out / f"memory-{name}.{side}"
    given.write_text(json.dumps(operations))
    out.unlink(missing_ok=True)
    # Settings of either allocator would make two of one.
    settings = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "ANYACCEL_ALLOC_CONF", "ANYACCEL_CUDA_ALLOC")
    environment = {key: value for key, value in os.environ.items() if key not in settings}
    command = [sys.executable, str(FOLDER / "memory_sequence.py"), side, str(given), str(out), str(every)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=max(limit, 1))
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
        raise RuntimeError(f"{side}: exit status {done.returncode}: {last[:300]}")
    counters: list[dict[str, int]] = json.loads(out.read_text())
    return counters


def compare(rows: Rows, name: str, ours: list[dict[str, int]], theirs: list[dict[str, int]]) -> None:
    keys = sorted(set(ours[-1]) & set(theirs[-1]))
    apart = sorted(set(ours[-1]) ^ set(theirs[-1]))
    problems = [f"only {len(keys)} counters in common"] if len(keys) < LEAST_COMMON else []
    for mine, other in zip(ours, theirs, strict=True):
        different = [key for key in keys if mine.get(key) != other.get(key)]
        if different:
            shown = ", ".join(f"{key} {mine.get(key)} and {other.get(key)}" for key in different[:3])
            problems.append(f"after operation {mine['operation']} {len(different)} differ: {shown}")
            break
    note = "; ".join(problems) or f"{len(keys)} counters alike at {len(ours)} places"
    if apart:
        note += f" (not in both: {', '.join(apart[:4])}{', ..' if len(apart) > 4 else ''})"
    rows.check(name, not problems, note)


def recorded(name: str) -> tuple[Operations, list[dict[str, int]]]:
    """A history, and the counters that it was recorded with, where it has them."""
    folder = FOLDER / "allocator"
    operations: Operations = []
    expected: dict[int, dict[str, int]] = {}
    with gzip.open(folder / f"{name}.expected.jsonl.gz", "rt") as lines:
        answers = {answer["i"]: answer for answer in map(json.loads, lines)}
    trace = (line.split() for line in (folder / f"{name}.trace").read_text().splitlines())
    for index, (what, *arguments) in enumerate(words for words in trace if words[0] != "stats_every"):
        if what in ("alloc", "free", "record", "empty_cache"):
            operations.append([what, *map(int, arguments)])
        elif what not in ("stats", "snapshot"):
            raise ValueError(f"{name}: {what}")
        if "stats" in answers[index] and operations:
            expected[len(operations) - 1] = flat(answers[index]["stats"])
    return operations, [{"operation": at, **counters} for at, counters in expected.items()]


def flat(stats: dict[str, Any]) -> dict[str, int]:
    metrics, pools = ("current", "peak", "allocated", "freed"), ("all", "small_pool", "large_pool")
    counters = {}
    for name, value in stats.items():
        if not isinstance(value, list):
            counters[name] = value
        elif isinstance(value[0], list):
            for pool, numbers in zip(pools, value, strict=True):
                counters |= {f"{name}.{pool}.{metric}": number for metric, number in zip(metrics, numbers, strict=True)}
        else:
            counters |= {f"{name}.{metric}": number for metric, number in zip(metrics, value, strict=True)}
    return counters


def main(seconds: float) -> None:
    rows = Rows("memory")
    end = time.monotonic() + seconds - 3
    for name in RECORDED:
        title = f"recorded history {name}"
        with rows.part(title):
            operations, expected = recorded(name)
            ours = run(rows, "ours", name, operations, 1, end - time.monotonic())
            by_index = {place["operation"]: place for place in ours}
            compare(rows, title, [by_index[place["operation"]] for place in expected], expected)
    torch, reason = torch_or_reason()
    for distinct in (True, False):
        sizes = "sizes all different" if distinct else "any sizes"
        for seed in (1, 2):
            title = f"{sizes}, seed {seed}"
            name = f"{'distinct' if distinct else 'any'}-{seed}"
            operations = sequence(seed, 150 if SHORT else 300, distinct)
            with rows.part(title):
                ours = run(rows, "ours", name, operations, 5, end - time.monotonic())
                last = ours[-1]
                left = {key: last[f"{key}.all.current"] for key in ("allocated_bytes", "active_bytes", "reserved_bytes")}
                rows.check(f"{title}: nothing is left", not any(left.values()), f"{len(operations)} operations, {left}")
                if torch is None:
                    rows.add(f"{title}: against torch.cuda", SKIP, reason)
                else:
                    theirs = run(rows, "torch", name, operations, 5, end - time.monotonic())
                    compare(rows, f"{title}: against torch.cuda", ours, theirs)


if __name__ == "__main__":
    main(float(sys.argv[1]))
