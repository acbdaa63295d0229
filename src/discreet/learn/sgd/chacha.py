"""Gaussian noise on a GPU: ChaCha (Bernstein 2008; RFC 8439) and Box & Muller's transform, in torch's own operations.

This is what `chacha_triton.py` does in one kernel, bit for bit, for machines without Triton; on a CPU it is slow, and
AES is there. A block of ChaCha is 16 words and so 8 pairs: words w and w + 8 of lane i of a tile make the pair whose x is
number 512 w + i and whose y is number 512 (w + 8) + i of the tile. A rare pair takes its 64 further bits from words
w and w + 8 of the lane's block in domain 1. The state's last four words are the block's number (64 bits) and, as nonce,
the step (48) and the domain (16), low words first.
"""

from __future__ import annotations

import struct

import torch
from torch import Tensor

from discreet.learn.sgd.normal import COS, EXPONENT, LOG, LOG_STEP, MIDDLE, RARE, SIN, TILE

ROUNDS = 8  # the best attack known reaches 7, in 2^230 steps; see docs/theory/learn-noise.md
LANES = TILE // 16
CONSTANTS = struct.unpack("<4I", b"expand 32-byte k")
AT_ONCE = 256  # tiles


def fill(key: bytes, step: int, offset: int, scale: float, out: Tensor) -> None:
    """`Stream.fill` under the stream's own key, on whatever device `out` lives."""
    first, skip = divmod(offset, TILE)
    tiles = -(-(skip + out.numel()) // TILE)
    for tile in range(0, tiles, AT_ONCE):
        count = min(AT_ONCE, tiles - tile)
        numbers = _tiles(key, step, first + tile, count, scale, out.device)
        start, end = tile * TILE - skip, (tile + count) * TILE - skip
        out[max(start, 0) : end] = numbers[max(-start, 0) : out.numel() - start]


def _tiles(key: bytes, step: int, first: int, count: int, scale: float, device: torch.device) -> Tensor:
    number = torch.arange(first * LANES, (first + count) * LANES, device=device)
    words = blocks(key, number, step, ROUNDS)  # [16, lanes of all tiles]
    a, b = words[:8], words[8:]
    k = _right(a, 1) | 1
    value = k.to(torch.float32)
    low = ((k << 25) >> 25).to(torch.float32)
    radius = _radius(value, low, scale)
    rare = k < RARE
    if rare.any():
        more = blocks(key, number, step | 1 << 48, ROUNDS)
        radius[rare] = _radius(_fine(a[rare], more[:8][rare], more[8:][rare]), torch.zeros_like(value[rare]), scale)
    x, y = _turn(b, radius)
    return torch.cat([x, y]).view(16, count, LANES).transpose(0, 1).reshape(-1)


def blocks(key: bytes, number: Tensor, nonce: int, rounds: int) -> Tensor:
    """The keystream blocks of these numbers, one word a row: [16, numbers], int32."""
    fixed = [*CONSTANTS, *struct.unpack("<8I", key)]
    state = [torch.full_like(number, word).to(torch.int32) for word in fixed]
    state += [number.to(torch.int32), (number >> 32).to(torch.int32)]
    state += [torch.full_like(number, word).to(torch.int32) for word in (nonce & 0xFFFFFFFF, nonce >> 32)]
    s = list(state)
    for _ in range(rounds // 2):
        for a, b, c, d in ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)):
            _quarter(s, a, b, c, d)
        for a, b, c, d in ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)):
            _quarter(s, a, b, c, d)
    return torch.stack([mixed + started for mixed, started in zip(s, state)])


def _quarter(s: list[Tensor], a: int, b: int, c: int, d: int) -> None:
    for first, second, third, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        s[first] = s[first] + s[second]
        mixed = s[third] ^ s[first]
        s[third] = mixed << turn | _right(mixed, 32 - turn)


def _right(word: Tensor, by: int) -> Tensor:
    """A shift of 32 bits without a sign, which int32 has."""
    return word >> by & (1 << 32 - by) - 1


def _fine(a: Tensor, high: Tensor, low: Tensor) -> Tensor:
    """u 2^31 for u = (a >> 2 + (64 bits more + 1/2) / 2^64) / 2^30."""
    whole, fraction = (_unsigned(word).to(torch.float64) for word in (high, low))
    lead = _unsigned(_right(a, 2)).to(torch.float64) * 2.0**32
    return (((lead + whole) + (fraction + 0.5) * 2.0**-32) * 2.0**-31).to(torch.float32)


def _unsigned(word: Tensor) -> Tensor:
    return word.to(torch.int64) & 0xFFFFFFFF


def _radius(value: Tensor, low: Tensor, scale: float) -> Tensor:
    bits = value.view(torch.int32)
    step = (bits - MIDDLE) & EXPONENT
    m = (bits - step).view(torch.float32)
    z = ((m - 2.0**31) + low) / (m + 2.0**31)
    square = _horner(LOG, z * z) * z + step.to(torch.float32) * LOG_STEP
    return (
        torch.sqrt(square.to(torch.float64)).to(torch.float32) * scale
    )  # torch's float32 root is not rounded right on all CPUs


def _turn(b: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
    t = b.to(torch.float32) * 2.0**-31
    h = t * t
    s, c = _horner(SIN, h) * t, _horner(COS, h)
    return (1 - s * s) * radius, (s * c) * radius


def _horner(coefficients: tuple[float, ...], at: Tensor) -> Tensor:
    first, second, *rest = coefficients
    value = at * first + second
    for coefficient in rest:
        value = value * at + coefficient
    return value
