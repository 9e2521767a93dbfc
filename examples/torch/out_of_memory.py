"""Out of memory on purpose, without a card: the batch that fits into a budget is found by running out of it.

ANYACCEL_BACKEND=host ANYACCEL_HOST_MEMORY=64MiB python out_of_memory.py
"""

import argparse

import small
import torch
from torch.nn import functional as F


def step(model: torch.nn.Module, batch: int, device: torch.device) -> float:
    picture, kind = (part.to(device) for part in small.shapes(batch))
    loss = F.cross_entropy(model(picture), kind)
    loss.backward()
    return loss.item()


def largest_batch(device: torch.device, begin: int = 64, end: int = 1 << 16) -> tuple[int, int, str]:
    """The largest power of two that fits, how many bytes it took at most, and what the first one that didn't fit said."""
    torch.manual_seed(6)
    model = small.Cnn().to(device)
    batch, said = begin, ""
    while batch <= end:
        try:
            step(model, batch, device)
        except torch.OutOfMemoryError as error:
            said = str(error)
            break
        batch *= 2
    # Nothing of the failed step is left: the traceback that held its tensors ended with the except block.
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats()
    step(model, batch // 2, device)
    return batch // 2, torch.accelerator.max_memory_allocated(), said


if __name__ == "__main__":
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--device", type=small.device_name, default=small.accelerator())
    batch, peak, said = largest_batch(torch.device(ask.parse_args().device))
    print(f"the largest batch that fits: {batch}, which takes {peak / 2**20:.1f} MiB at most")
    print("the next one:", said.splitlines()[0] if said else "fits, too")
