"""Training saved on one device and gone on with on another, with the same losses as training that never stopped.

ANYACCEL_BACKEND=host ANYACCEL_HOST_DEVICES=2 python save_load.py
"""

import argparse
import io

import small
import torch
from torch.nn import functional as F


class Run:
    def __init__(self, device: torch.device):
        torch.manual_seed(4)
        self.device = device
        self.model = small.Cnn().to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.step = 0

    def go(self, steps: int, batch: int = 32) -> list[float]:
        losses = []
        for _ in range(steps):
            picture, kind = (part.to(self.device) for part in small.shapes(batch, seed=self.step))
            loss = F.cross_entropy(self.model(picture), kind)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.step += 1
            losses.append(loss.item())
        return losses

    def save(self, file) -> None:
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}, file)

    @classmethod
    def load(cls, file, device: torch.device) -> "Run":
        run = cls(device)
        saved = torch.load(file, map_location=device, weights_only=True)
        run.model.load_state_dict(saved["model"])
        run.optimizer.load_state_dict(saved["optimizer"])
        run.step = saved["step"]
        return run


def saved_and_loaded(first: torch.device, then: list[torch.device], steps: int = 4) -> dict[str, list[float]]:
    """For each device in `then`, the losses of a run that began on `first` and went on there; and of one that stayed."""
    whole = Run(first)
    begin = whole.go(steps)
    file = io.BytesIO()
    whole.save(file)
    runs = {f"stays on {first}": begin + whole.go(steps)}
    for device in then:
        file.seek(0)
        runs[f"to {device}"] = begin + Run.load(file, device).go(steps)
    return runs


if __name__ == "__main__":
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--device", type=small.device_name, default=small.accelerator())
    devices = small.all_of(ask.parse_args().device)
    small.table("saved after the fourth step", saved_and_loaded(devices[0], [*devices, torch.device("cpu")]))
