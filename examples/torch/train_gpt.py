"""A small GPT, its blocks spread over every device, trained beside the same model on the CPU.

ANYACCEL_BACKEND=host ANYACCEL_HOST_DEVICES=2 python train_gpt.py
"""

import argparse

import small
import torch
from torch.nn import functional as F


def train(devices: list[torch.device], steps: int = 10, batch: int = 32) -> list[float]:
    """The loss of each step."""
    torch.manual_seed(1)
    model = small.Gpt(devices)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    lines = small.sums(steps * batch).split(batch)
    losses = []
    for line in lines:
        line = line.to(devices[0])
        logits = model(line[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), line[:, 1:].flatten().to(logits.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--device", type=small.device_name, default=small.accelerator())
    ask.add_argument("--steps", type=small.at_least_one, default=10)
    arguments = ask.parse_args()
    devices = small.all_of(arguments.device)
    here, cpu = train(devices, arguments.steps), train([torch.device("cpu")], arguments.steps)
    small.table(f"GPT over {', '.join(map(str, devices))}", {arguments.device: here, "on the CPU": cpu})
