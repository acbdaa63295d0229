"""Unary encodings: one bit per category, each noised by itself."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import Event, RandomizedResponse, Repeat
from discreet.errors import InvalidValue
from discreet.noise.additive import fix
from discreet.noise.samplers import Number, float_above
from discreet.noise.source import open_source
from discreet.query.local.coins import budget, coins, flipped
from discreet.query.local.oracle import Ints, Oracle, public

BITS = 1 << 18  # bits at a time, so that everything in flight stays in cache


class _Unary(Oracle):
    """A report is k bits in bytes: the person's own is set with probability p, each other one with q."""

    __slots__ = ()

    def cost(self) -> float:
        return 2.0 * self.size

    def _encode(self, truth: Ints) -> NDArray[Any]:
        k, source = self.size, open_source()
        out = np.empty((len(truth), (k + 7) // 8), np.uint8)
        rows = max(1, BITS // k)
        for start in range(0, len(truth), rows):
            own = truth[start : start + rows]
            bits = coins(self.q, len(own) * k, source)
            bits[np.arange(len(own)) * k + own] = coins(self.p, len(own), source)
            out[start : start + rows] = np.packbits(bits.reshape(len(own), k), axis=1)
        return out

    def _supports(self, reports: NDArray[Any]) -> Ints:
        k = self.size
        if reports.dtype != np.uint8 or reports.ndim != 2 or reports.shape[1] != (k + 7) // 8:
            raise InvalidValue(f"reports must be {(k + 7) // 8} bytes per person; got {reports.dtype} of {reports.shape}.")
        total = np.zeros(k, np.int64)
        rows = max(1, BITS // k)
        for start in range(0, len(reports), rows):
            total += np.unpackbits(reports[start : start + rows], axis=1, count=k).sum(axis=0, dtype=np.int64)
        return total


@dataclass(frozen=True, slots=True)
class SymmetricUnary(_Unary):
    """Every bit is flipped with probability 1 / (e^{epsilon/2} + 1): basic RAPPOR (Erlingsson, Pihur & Korolova 2014).

    Two values differ in two bits, so the loss is that of two answers at epsilon / 2 each. Kept for comparison:
    OptimalUnary has less variance.

    >>> SymmetricUnary(epsilon=1, categories=20).encode([3, 4]).shape      # 20 bits are 3 bytes
    (2, 3)
    """

    epsilon: Fraction
    categories: int | tuple[Any, ...]
    p: Fraction
    q: Fraction

    def __init__(self, epsilon: Number, categories: Any) -> None:
        fix(self, epsilon=budget(epsilon), categories=public(categories))
        lie = flipped(self.epsilon / 2)
        fix(self, p=1 - lie, q=lie)

    def event(self) -> Event:
        return Repeat(RandomizedResponse(float_above("epsilon", self.epsilon / 2), 2), 2)


@dataclass(frozen=True, slots=True)
class OptimalUnary(_Unary):
    """The person's own bit is a fair coin, each other one is set with probability 1 / (e^epsilon + 1).

    Wang, Blocki, Li & Jha 2017 (optimised unary encoding): of all unary encodings the one of least variance,
    4 e^epsilon / (n (e^epsilon - 1)^2), whatever the number of categories.

    >>> OptimalUnary(epsilon=1, categories=16).encode(7).shape
    (1, 2)
    """

    epsilon: Fraction
    categories: int | tuple[Any, ...]
    p: Fraction
    q: Fraction

    def __init__(self, epsilon: Number, categories: Any) -> None:
        fix(self, epsilon=budget(epsilon), categories=public(categories), p=Fraction(1, 2), q=flipped(budget(epsilon)))
