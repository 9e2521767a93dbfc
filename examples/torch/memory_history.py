"""The memory history of a training run that runs out of memory, for `anyaccel memory`, `anyaccel replay` and `anyaccel view`.

ANYACCEL_BACKEND=host ANYACCEL_HOST_MEMORY=64MiB python memory_history.py --out memory.pickle
"""

import argparse

import out_of_memory
import small
import torch

if __name__ == "__main__":
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--device", type=small.device_name, default=small.accelerator())
    ask.add_argument("--out", default="memory.pickle")
    arguments = ask.parse_args()
    device = torch.device(arguments.device)
    if device.type == "cpu":
        raise SystemExit("The CPU's memory has no history: this needs an accelerator.")

    module = torch.get_device_module(device)
    module.record_memory_history("all")
    batch, peak, said = out_of_memory.largest_batch(device)
    module.dump_memory_snapshot(arguments.out)
    module.record_memory_history(None)

    if said:
        print(f"A batch of {2 * batch} ran out of memory; one of {batch} takes {peak / 2**20:.1f} MiB at most.")
    print(f"What happened, in words:     anyaccel memory {arguments.out}")
    print(f"How much memory it needs:    anyaccel replay {arguments.out} --memory 1GiB")
    print(f"To be seen in a browser:     anyaccel view {arguments.out} -o memory.html")
