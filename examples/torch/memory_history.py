"""The memory history of a training run that runs out of memory: which lines held it, for `anyaccel memory`, `replay` and `view`.

ANYACCEL_BACKEND=host ANYACCEL_HOST_MEMORY=64MiB python memory_history.py --out memory.pickle
"""

import argparse
import collections
import linecache
import pickle
from pathlib import Path

import out_of_memory
import small
import torch

HERE = Path(__file__).resolve().parent


def line_of(frames: list[dict]) -> str:
    """The innermost line of these programs, with the function that took the memory for it; for what backward takes on threads
    of its own, the operator."""
    for depth, frame in enumerate(frames):
        path = Path(frame["filename"])
        if path.parent == HERE:
            text = linecache.getline(str(path), frame["line"]).strip()
            taker = f"{frames[0]['name']} for " if depth else ""
            return f"{taker}{path.name}:{frame['line']}: {text}"
    return frames[0]["name"] if frames else "(unknown)"


def holders_at_the_peak(events: list[dict]) -> list[tuple[int, str]]:
    """Bytes by line at the moment when most were in use, the largest first."""
    live: dict[int, tuple[int, str]] = {}
    bytes_now = peak = 0
    held: collections.Counter[str] = collections.Counter()
    for event in events:
        if event["action"] == "alloc":
            live[event["addr"]] = event["size"], line_of(event["frames"])
            bytes_now += event["size"]
            if bytes_now > peak:
                peak, held = bytes_now, collections.Counter()
                for size, line in live.values():
                    held[line] += size
        elif event["action"] == "free_completed" and event["addr"] in live:
            bytes_now -= live.pop(event["addr"])[0]
    return [(size, line) for line, size in held.most_common()]


if __name__ == "__main__":
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--device", type=small.device_name, default=small.accelerator())
    ask.add_argument("--out", default="memory.pickle")
    arguments = ask.parse_args()
    device = torch.device(arguments.device)
    if device.type == "cpu":
        raise SystemExit("The CPU's memory has no history: this needs an accelerator.")

    module = torch.get_device_module(device)
    module.record_memory_history()
    batch, peak, said = out_of_memory.largest_batch(device)
    module.dump_memory_snapshot(arguments.out)
    module.record_memory_history(None)

    if said:
        print(f"A batch of {2 * batch} ran out of memory; one of {batch} takes {peak / 2**20:.1f} MiB at most.")
    with open(arguments.out, "rb") as file:
        events = pickle.load(file)["device_traces"][device.index or 0]
    print("At the peak these lines held most:")
    for size, line in holders_at_the_peak(events)[:4]:
        print(f"{size / 2**20:8.2f} MiB  {line}")
    print(f"What happened, in words:     anyaccel memory {arguments.out}")
    print(f"How much memory it needs:    anyaccel replay {arguments.out} --memory 1GiB")
    print(f"To be seen in a browser:     anyaccel view {arguments.out} -o memory.html")
