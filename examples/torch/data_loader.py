"""A DataLoader with worker processes and pinned memory: batches are read, pinned and copied while the device works.

ANYACCEL_BACKEND=host python data_loader.py
"""

import argparse

import small
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def train(device: torch.device, workers: int = 2, count: int = 192, batch: int = 32) -> tuple[list[float], int]:
    """The loss of each step, and how many batches came in pinned memory."""
    torch.manual_seed(3)
    model = small.Cnn().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(
        TensorDataset(*small.shapes(count)), batch, num_workers=workers, pin_memory=device.type != "cpu"
    )
    losses, pinned = [], 0
    for picture, kind in loader:
        pinned += picture.is_pinned() and kind.is_pinned()
        picture, kind = picture.to(device, non_blocking=True), kind.to(device, non_blocking=True)
        loss = F.cross_entropy(model(picture), kind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        # Kept on the device: reading it here would wait for the step.
        losses.append(loss.detach())
    return [loss.item() for loss in losses], pinned


if __name__ == "__main__":
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--device", type=small.device_name, default=small.accelerator())
    arguments = ask.parse_args()
    # Something runs on the device before the workers are forked: they never touch it, so that does no harm.
    device = torch.device(arguments.device)
    print("before the workers:", torch.arange(10, device=device).sum().item())
    here, pinned = train(device)
    small.table(f"with workers, {pinned} of {len(here)} batches pinned", {
        arguments.device: here, "on the CPU": train(torch.device("cpu"), workers=0)[0],
    })  # fmt: skip
