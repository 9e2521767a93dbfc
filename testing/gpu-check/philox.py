"""The order and the arithmetic of PyTorch's random fills on CUDA, written down once more, one element at a time.

A thread of the launch owns a sequence of Philox 4x32-10: its number is the upper half of the counter, and it begins at the
generator's offset. Each turn of the grid draws one block a thread, whose results go to elements one grid's width apart.
"""

import math
import struct

THREADS = 256
MASK = (1 << 32) - 1


def block(seed: int, sequence: int, position: int) -> tuple[int, int, int, int]:
    key0, key1 = seed & MASK, seed >> 32 & MASK
    a, b, c, d = position & MASK, position >> 32 & MASK, sequence & MASK, sequence >> 32 & MASK
    for _ in range(10):
        left, right = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (right >> 32) ^ b ^ key0, right & MASK, (left >> 32) ^ d ^ key1, left & MASK
        key0, key1 = (key0 + 0x9E3779B9) & MASK, (key1 + 0xBB67AE85) & MASK
    return a, b, c, d


def stored(x: float, code: str) -> float:
    """What is left of a number in that type of `struct`."""
    value: float = struct.unpack(code, struct.pack(code, x))[0]
    return value


def single(x: float) -> float:
    return stored(x, "<f")


def rounded(x: float, dtype: str) -> float:
    if dtype == "bfloat16":
        bits: int = struct.unpack("<I", struct.pack("<f", x))[0]
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16
        value: float = struct.unpack("<f", struct.pack("<I", bits))[0]
        return value
    return stored(x, {"float16": "<e", "float32": "<f", "float64": "<d"}[dtype])


def unit32(word: int) -> float:
    """(0, 1], as a float32. The sum is exact in float64, so it is rounded once."""
    return single(single(float(word)) * 2.0**-32 + 2.0**-33)


def unit64(low: int, high: int) -> float:
    """(0, 1], as a float64."""
    return float(low ^ high << 21) * 2.0**-53 + 2.0**-54


class Fill:
    """One fill: `distribution` with the parameters `a` and `b`, on a card of that size."""

    def __init__(
        self, distribution: str, dtype: str, a: float, b: float, count: int, seed: int, offset: int, size: tuple[int, int]
    ) -> None:
        self.distribution, self.dtype, self.a, self.b = distribution, dtype, a, b
        self.count, self.seed, self.offset = count, seed, offset
        wide = dtype == "float64" or (distribution == "integers" and b - a >= 1 << 28)
        self.each = 2 if wide else 4
        processors, threads = size
        blocks = min(processors * (threads // THREADS), -(-count // THREADS))
        self.width = blocks * THREADS

    def next_offset(self) -> int:
        turns = -(-self.count // (self.width * self.each))
        return self.offset + 4 * turns

    def element(self, i: int) -> float:
        turn, place = divmod(i, self.width * self.each)
        k, thread = divmod(place, self.width)
        words = block(self.seed, thread, self.offset // 4 + turn)
        value: float = getattr(self, self.distribution)(words, k)
        return value

    def uniform(self, words: tuple[int, ...], k: int) -> float:
        unit = unit64(words[2 * k], words[2 * k + 1]) if self.each == 2 else unit32(words[k])
        value = rounded(unit * (self.b - self.a) + self.a, self.dtype)
        return float(self.a) if value == self.b else value

    def normal(self, words: tuple[int, ...], k: int) -> float:
        if self.each == 2:
            first, angle = unit64(words[0], words[1]), (float(words[2] ^ words[3] << 21) + 0.5) * 2.0**-53
        else:
            pair = k & ~1
            first, angle = unit32(words[pair]), (words[pair + 1] + 0.5) * 2.0**-32
        radius, angle = math.sqrt(-2.0 * math.log(first)), 2.0 * math.pi * angle
        return self.a + self.b * radius * (math.cos(angle) if k & 1 else math.sin(angle))

    def integers(self, words: tuple[int, ...], k: int) -> float:
        drawn = words[2 * k] << 32 | words[2 * k + 1] if self.each == 2 else words[k]
        return int(self.a) + drawn % int(self.b - self.a)

    def bernoulli(self, words: tuple[int, ...], k: int) -> float:
        if self.each == 2:
            return float(unit64(words[2 * k], words[2 * k + 1]) < self.a)
        return float(unit32(words[k]) < single(self.a))
