"""What the examples train: a GPT that learns to add, a CNN that tells shapes apart, and the data for both.

Data and first weights are made on the CPU from a seed, so that two devices asked for the same run begin with the same bits.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F

ALPHABET = "0123456789+=;"


def sums(count: int, seed: int = 0) -> torch.Tensor:
    """`count` lines such as "07+35=42;": one row of token numbers each."""
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randint(0, 50, (2, count), generator=generator).tolist()
    lines = [f"{x:02}+{y:02}={x + y:02};" for x, y in zip(a, b)]
    return torch.tensor([[ALPHABET.index(c) for c in line] for line in lines])


def shapes(count: int, side: int = 16, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Noisy pictures of discs (0), squares (1) and crosses (2), and which of them each one is."""
    generator = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, 3, (count,), generator=generator)
    centre = torch.randint(5, side - 5, (2, count, 1, 1), generator=generator)
    axis = torch.arange(side)
    down, across = (axis[:, None] - centre[0]).abs(), (axis[None, :] - centre[1]).abs()
    disc = (down**2 + across**2 <= 16).float()
    square = ((down <= 3) & (across <= 3)).float()
    cross = ((down <= 1) | (across <= 1)).float()
    picture = torch.stack([disc, square, cross])[kind, torch.arange(count)]
    return (picture + 0.3 * torch.randn(picture.shape, generator=generator))[:, None], kind


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.before_attention(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.before_mlp(x))


class Gpt(nn.Module):
    """A decoder whose blocks are spread over the devices given: what leaves one device enters the next by a copy."""

    def __init__(self, devices: list[torch.device], layers: int = 2, width: int = 32, heads: int = 4, length: int = 9):
        super().__init__()
        self.token, self.place = nn.Embedding(len(ALPHABET), width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, len(ALPHABET))
        self.home = [devices[i * len(devices) // layers] for i in range(layers)]
        for block, home in zip(self.blocks, self.home):
            block.to(home)
        for part, home in [(self.token, 0), (self.place, 0), (self.last, -1), (self.head, -1)]:
            part.to(self.home[home])

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens) + self.place.weight[: tokens.shape[1]]
        for block, home in zip(self.blocks, self.home):
            x = block(x.to(home))
        return self.head(self.last(x))


class Cnn(nn.Module):
    def __init__(self, channels: int = 8):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1), nn.GroupNorm(2, channels), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.GroupNorm(2, 2 * channels), nn.ReLU(), nn.AdaptiveAvgPool2d(4),
        )  # fmt: skip
        self.head = nn.Linear(2 * channels * 16, 3)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(pictures).flatten(1))


def accelerator() -> str:
    """The accelerator's name, "cpu" if there is none."""
    found = torch.accelerator.current_accelerator(check_available=True)
    return found.type if found else "cpu"


def device_name(text: str) -> str:
    """For `argparse`: the name of a device that PyTorch has."""
    try:
        torch.empty(0, device=text)
    except (RuntimeError, AssertionError) as error:
        raise argparse.ArgumentTypeError(f"there is no device {text!r}: {str(error).splitlines()[0]}") from None
    return text


def at_least_one(text: str) -> int:
    """For `argparse`: a number of steps."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, got {text!r}")
    return int(text)


def all_of(name: str) -> list[torch.device]:
    """Every device of that kind, or the one that is named with its index."""
    device = torch.device(name)
    if device.type == "cpu" or device.index is not None:
        return [device]
    return [torch.device(device.type, i) for i in range(torch.accelerator.device_count())]


def table(title: str, columns: dict[str, list[float]]) -> None:
    print(title)
    print("step  " + "".join(f"{name:>14}" for name in columns))
    for step, row in enumerate(zip(*columns.values())):
        print(f"{step:4}  " + "".join(f"{value:14.6f}" for value in row))
