"""Circuits made of NAND alone: gates, an adder, a comparator, a decision tree.

Each takes the gate to use, so that one circuit runs on plain bits (`plain_nand`) and on ciphertexts
(`CloudKey.nand`). Numbers are lists of bits, least significant first; each bit may be an array of ciphertexts, so
that one pass evaluates many inputs.

>>> total = add(plain_nand, to_bits(200, 8), to_bits(100, 8))
>>> from_bits(total)
300
>>> int(less(plain_nand, to_bits(3, 8), to_bits(5, 8)))
1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["Nand", "add", "from_bits", "less", "plain_nand", "select", "small_tree", "to_bits"]

Nand = Callable[[Any, Any], Any]


def plain_nand(x: Any, y: Any) -> Any:
    """NAND of plain bits."""
    return 1 - np.asarray(x) * np.asarray(y)


def to_bits(numbers: Any, width: int) -> list[Any]:
    """The bits of numbers below 2^width, least significant first."""
    values = np.asarray(numbers)
    return [(values >> i) & 1 for i in range(width)]


def from_bits(bits: Sequence[Any]) -> Any:
    """The numbers that these bits stand for."""
    total = sum(np.asarray(bit).astype(np.int64) << i for i, bit in enumerate(bits))
    return int(total) if np.ndim(total) == 0 else total


def add(nand: Nand, x: Sequence[Any], y: Sequence[Any]) -> list[Any]:
    """The sum of two numbers, one bit longer: a ripple-carry adder of nine gates a bit (five for the first)."""
    total, carry = [], None
    for a, b in zip(x, y, strict=True):
        shared = nand(a, b)
        differ = nand(nand(a, shared), nand(b, shared))
        if carry is None:
            total.append(differ)
            carry = nand(shared, shared)
            continue
        passed = nand(differ, carry)
        total.append(nand(nand(differ, passed), nand(carry, passed)))
        carry = nand(shared, passed)
    return [*total, carry]


def less(nand: Nand, x: Sequence[Any], y: Sequence[Any]) -> Any:
    """Whether x < y: from the least significant bit on, a pair of different bits decides anew."""
    smaller = None
    for a, b in zip(x, y, strict=True):
        only_b = nand(nand(a, a), b)  # 0 just where a = 0 and b = 1
        if smaller is None:
            smaller = nand(only_b, only_b)
            continue
        only_a = nand(a, nand(b, b))
        kept = nand(smaller, only_a)  # not (smaller and not (a = 1 and b = 0))
        smaller = nand(only_b, kept)
    return smaller


def select(nand: Nand, condition: Any, yes: Any, no: Any) -> Any:
    """`yes` where the condition is 1, else `no`."""
    return nand(nand(condition, yes), nand(nand(condition, condition), no))


def small_tree(
    nand: Nand, features: Sequence[Sequence[Any]], thresholds: Sequence[Sequence[Any]], leaves: Sequence[Any]
) -> Any:
    """A decision tree of depth 2 on three features: the first chooses which of the others decides; four leaves, left
    to right.

    Features, thresholds and leaves may all be ciphertexts: then the tree is as hidden as the row.
    """
    below = [less(nand, feature, threshold) for feature, threshold in zip(features, thresholds, strict=True)]
    left = select(nand, below[1], leaves[0], leaves[1])
    right = select(nand, below[2], leaves[2], leaves[3])
    return select(nand, below[0], left, right)
