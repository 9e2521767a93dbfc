"""A small CNN with a replica on every device: each takes its part of the batch, then the gradients are averaged.

ANYACCEL_BACKEND=host ANYACCEL_HOST_DEVICES=2 python train_cnn.py
"""

import argparse
import copy

import small
import torch
from torch.nn import functional as F


def train(devices: list[torch.device], steps: int = 10, batch: int = 32) -> list[float]:
    """The loss of each step, over the whole batch."""
    torch.manual_seed(2)
    first = small.Cnn()
    replicas = [copy.deepcopy(first).to(device) for device in devices]
    optimizers = [torch.optim.SGD(replica.parameters(), lr=0.05, momentum=0.9) for replica in replicas]
    pictures, kinds = small.shapes(steps * batch)
    losses = []
    for picture, kind in zip(pictures.split(batch), kinds.split(batch)):
        parts = []
        # Each device has work queued before any loss is read back.
        for replica, p, k in zip(replicas, picture.chunk(len(devices)), kind.chunk(len(devices))):
            device = next(replica.parameters()).device
            replica.zero_grad()
            loss = F.cross_entropy(replica(p.to(device)), k.to(device))
            loss.backward()
            parts.append(loss)
        for same in zip(*(replica.parameters() for replica in replicas)):
            mean = torch.stack([parameter.grad.to(same[0].device) for parameter in same]).mean(0)
            for parameter in same:
                parameter.grad.copy_(mean)
        for optimizer in optimizers:
            optimizer.step()
        losses.append(sum(part.item() for part in parts) / len(parts))
    return losses


if __name__ == "__main__":
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--device", type=small.device_name, default=small.accelerator())
    ask.add_argument("--steps", type=small.at_least_one, default=10)
    arguments = ask.parse_args()
    devices = small.all_of(arguments.device)
    here, cpu = train(devices, arguments.steps), train([torch.device("cpu")], arguments.steps)
    small.table(f"CNN on each of {', '.join(map(str, devices))}", {arguments.device: here, "on the CPU": cpu})
