"""A whole training step captured once and replayed: forward, backward and optimizer, without Python in between.

ANYACCEL_BACKEND=host python graph.py
"""

import argparse

import small
import torch
from torch.nn import functional as F


class Step:
    """One step of training on inputs that stay where they are, so that a graph may hold their addresses."""

    def __init__(self, device: torch.device, batch: int):
        torch.manual_seed(5)
        self.model = small.Cnn().to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.picture = torch.zeros(batch, 1, 16, 16, device=device)
        self.kind = torch.zeros(batch, dtype=torch.long, device=device)
        self.loss = torch.zeros((), device=device)

    def feed(self, number: int) -> None:
        picture, kind = small.shapes(len(self.kind), seed=number)
        self.picture.copy_(picture)
        self.kind.copy_(kind)

    def run(self) -> None:
        self.optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(self.model(self.picture), self.kind)
        loss.backward()
        self.optimizer.step()
        self.loss.copy_(loss.detach())


def train(device: torch.device, captured: bool, steps: int = 8, warm_up: int = 2, batch: int = 16) -> list[float]:
    """The loss of each step: the first `warm_up` run as they are, the others as replays if `captured`."""
    step = Step(device, batch)
    losses = []

    def once(run) -> None:
        step.feed(len(losses))
        run()
        losses.append(step.loss.item())

    if not captured:
        for _ in range(steps):
            once(step.run)
        return losses

    stream = torch.Stream(device=device)
    stream.wait_stream(torch.accelerator.current_stream())
    with stream:
        # The gradients and the optimizer's state come into being here, outside the graph's own memory.
        for _ in range(warm_up):
            once(step.run)
        graph = torch.accelerator.Graph()
        with graph:
            step.run()
        for _ in range(steps - warm_up):
            once(graph.replay)
    torch.accelerator.current_stream().wait_stream(stream)
    return losses


if __name__ == "__main__":
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--device", type=small.device_name, default=small.accelerator())
    device = torch.device(ask.parse_args().device)
    columns = {"eager": train(device, captured=False)}
    if device.type != "cpu":
        columns["replayed"] = train(device, captured=True)
    small.table(f"training on {device}", columns)
