"""Rigorous binary digits of the probabilities behind the noise, in Python integers.

Everything here returns two integers that enclose 2^bits times a real number; rounding is outward at every step, so the
enclosure is a theorem and only its width depends on care.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

Bounds = tuple[int, int]

GUARD = 64  # bits beyond those asked for, lost to rounding in sums and products


def exp_bounds(exponent: Fraction, bits: int) -> Bounds:
    """Integers lo <= 2^bits exp(-exponent) <= hi, for a rational exponent >= 0.

    The exponent is halved until the alternating series converges at once, and the result squared as often.

    >>> exp_bounds(Fraction(1), 20)    # 2^20 / e = 385749.8...
    (385749, 385750)
    """
    if exponent == 0:
        return 1 << bits, 1 << bits
    if exponent >= bits:  # exp(-bits) < 2^-bits
        return 0, 1
    halvings = max(0, exponent.numerator.bit_length() - exponent.denominator.bit_length() + 9)
    p = bits + halvings + 32
    y = (exponent.numerator << p) // (exponent.denominator << halvings)  # below 2^p / 256
    term = total = 1 << p
    count = 0
    while term:
        count += 1
        term = term * y // (count << p)
        total += -term if count % 2 else term
    # Each term is low by less than 2, y by less than 1, and the first term dropped is below 2.
    lo, hi = total - 2 * count - 4, min(total + 2 * count + 4, 1 << p)
    for _ in range(halvings):
        lo, hi = lo * lo >> p, -(-hi * hi >> p)
    return lo >> (p - bits), -(-hi >> (p - bits))


class Distribution(Protocol):
    """A distribution on the integers, Pr[x] ~ exp(-exponent(x)), even in x, with exponent convex and 0 at 0."""

    @property
    def spread(self) -> Fraction: ...

    def exponent(self, x: int) -> Fraction: ...


@dataclass(frozen=True, slots=True)
class LaplaceDistribution:
    """exp(-|x| / scale)."""

    scale: Fraction

    @property
    def spread(self) -> Fraction:
        return self.scale

    def exponent(self, x: int) -> Fraction:
        return abs(x) / self.scale


@dataclass(frozen=True, slots=True)
class GaussianDistribution:
    """exp(-x^2 / 2 sigma^2)."""

    sigma: Fraction

    @property
    def spread(self) -> Fraction:
        return self.sigma

    def exponent(self, x: int) -> Fraction:
        return x * x / (2 * self.sigma * self.sigma)


def nearest(cell: int, width: int) -> int:
    """The value of least magnitude, so the likeliest, among cell * width ... cell * width + width - 1."""
    return cell * width if cell >= 0 else cell * width + width - 1


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Where one uniform number in [0, 1) is cut: below cut j and not below cut j - 1 means `cells[j]`.

    `lo[j] <= 2^bits * cut j <= hi[j]`. Cells past the last one share what is left above its cut.
    """

    cells: list[int]
    lo: list[int]
    hi: list[int]


def thresholds(distribution: Distribution, width: int, bits: int) -> Thresholds:
    """The cuts for cells 0, -1, 1, -2, 2, ... whose weights are exp(-exponent) of their nearest value.

    More bits give more cells in the same order, so the cuts are the same real numbers at every precision.

    >>> thresholds(LaplaceDistribution(Fraction(1)), 1, 16).lo[0] / 2**16    # Pr[0] = (e - 1) / (e + 1) = 0.46211...
    0.4621124267578125
    """
    p = bits + GUARD
    right, right_tail = _weights(distribution, width, 0, p)
    left, left_tail = _weights(distribution, width, 1, p)
    count = len(left)  # never longer than right: its values are one farther from 0
    cells = [cell for h in range(count) for cell in (h, -1 - h)] + [count] * (len(right) > count)
    weights = [weight for h in range(count) for weight in (right[h], left[h])] + right[count : count + 1]
    tail = right_tail + left_tail + sum(hi for _, hi in right[count + 1 :])
    rest_lo, rest_hi = sum(lo for lo, _ in weights), sum(hi for _, hi in weights) + tail
    lo, hi = [], []
    done_lo = done_hi = 0
    for weight_lo, weight_hi in weights:
        done_lo, done_hi = done_lo + weight_lo, done_hi + weight_hi
        rest_lo, rest_hi = rest_lo - weight_lo, rest_hi - weight_hi
        lo.append((done_lo << bits) // (done_lo + rest_hi))
        hi.append(-(-(done_hi << bits) // (done_hi + rest_lo)))
    return Thresholds(cells, lo, hi)


def _weights(distribution: Distribution, width: int, first: int, p: int) -> tuple[list[Bounds], int]:
    """Bounds on exp(-exponent(first + h width)) for h = 0, 1, ..., and on the sum of all that are left out.

    The exponent is a polynomial of degree at most two there, so each ratio of neighbours is the last one times a
    constant at most 1; ratios never grow, and a geometric series bounds what is left out.
    """
    bounds: list[Bounds] = []
    unit = 1 << p
    for weight, ratio in _recurrence(distribution, width, first, p):
        rest = -(-(weight[1] << p) // (unit - ratio[1]))
        if rest >> (GUARD - 8) == 0 and bounds:
            return bounds, rest
        bounds.append(weight)
    raise AssertionError("unreachable: the weights fall geometrically")


def _recurrence(distribution: Distribution, width: int, first: int, p: int) -> Iterator[tuple[Bounds, Bounds]]:
    e0, e1, e2 = (distribution.exponent(first + h * width) for h in range(3))
    weight, ratio, change = exp_bounds(e0, p), exp_bounds(e1 - e0, p), exp_bounds(e2 - 2 * e1 + e0, p)
    while True:
        yield weight, ratio
        weight, ratio = _times(weight, ratio, p), _times(ratio, change, p)


def _times(a: Bounds, b: Bounds, p: int) -> Bounds:
    return a[0] * b[0] >> p, -(-a[1] * b[1] >> p)
