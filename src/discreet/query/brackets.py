"""Intervals of quantiles: noisy counts of cells around the value that was chosen, narrow near it and wide far off.

docs/theory/query-quantile.md proves what is claimed here.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.noise import discrete_laplace
from discreet.noise.additive import Ints

Floats = NDArray[np.float64]
PLAIN, LIGHT, HEAVY = 2.0, 1.5, 3.0  # how much larger each cell is than the one before
COARSE = 16  # a scale of noise whose distribution stands for those of larger scales
WIDE = 1 << 61
SURE = 1e-11  # below it, probabilities are bounded and not computed


def edges(value: Ints, bins: int, left: float = PLAIN, right: float = PLAIN) -> Ints:
    """The ends of cells, one row per value: its own bin, and on either side cells of 1, 2, 4, … bins, to the ends, or growing
    otherwise; those beyond the ends are empty."""
    before = np.maximum(value[:, None] - _distances(left, bins)[::-1], 0)
    return np.hstack([before, np.minimum(value[:, None] + 1 + _distances(right, bins), bins)])


@lru_cache(256)
def _distances(growth: float, bins: int) -> Ints:
    """From the value's bin to the ends of the cells on one side of it."""
    far, size = [0], 1.0
    while far[-1] < bins - 1:
        far.append(far[-1] + round(size))
        size *= growth
    return np.array(far)


def _growth(target: Fraction) -> tuple[float, float]:
    """How cells grow on the left and on the right: slowly where their noise counts little, fast where it counts much."""
    return (HEAVY, LIGHT) if target <= Fraction(1, 4) else (LIGHT, HEAVY) if target >= Fraction(3, 4) else (PLAIN, PLAIN)


class Cells(NamedTuple):
    """Noisy counts of cells around a value, one row per group: ends of cells, the noisy weight before each inner end less its
    part of all, and of how many noisy cells it is made on the left and on the right."""

    ends: Ints
    rank: Floats
    left: Ints
    right: Ints
    target: Fraction
    scale: Fraction

    def interval(self, failing: float) -> tuple[Ints, Ints]:
        """The first and last bin of an interval that misses the quantile's with probability `failing`, at most. The minimum and
        the maximum can be missed on one side only."""
        beta = failing if self.target in (0, 1) else failing / 2
        many = self.ends.shape[1]
        kinds, which = np.unique(self.left * many + self.right, return_inverse=True)
        table = [reach(kind // many, kind % many, self.target, float(self.scale), beta) for kind in kinds.tolist()]
        most = np.array(table)[which.reshape(self.left.shape)]
        passed = np.cumprod(self.rank < -most, axis=1).sum(axis=1)
        kept = np.cumprod((self.rank > most)[:, ::-1], axis=1).sum(axis=1)
        rows = np.arange(len(self.ends))
        return self.ends[rows, passed], self.ends[rows, many - 1 - kept] - 1


def measured(upto: Ints, value: Ints, target: Fraction, scale: Fraction) -> Cells:
    """Cells around `value`, with noise of this scale on each.

    `upto` are cumulative weights, one row per group. A cell without bins has no weight, whatever the data are, and no noise.
    """
    ends = edges(value, upto.shape[1], *_growth(target))
    before = np.take_along_axis(np.hstack([np.zeros((len(upto), 1), np.int64), upto]), ends, axis=1)
    cells, some = np.diff(before, axis=1), np.diff(ends, axis=1) > 0
    noise: Ints = np.zeros_like(cells)
    noise[some] = np.asarray(discrete_laplace(scale, size=int(some.sum())))
    wide = noise.max(initial=0) > WIDE or noise.min(initial=0) < -WIDE  # weights are below 2^62 together
    noisy = (cells.astype(object) + noise.astype(object) if wide else cells + noise).astype(float)
    rank = np.cumsum(noisy, axis=1)[:, :-1] - float(target) * noisy.sum(axis=1, keepdims=True)
    left = np.cumsum(some, axis=1, dtype=np.int64)
    return Cells(ends, rank, left[:, :-1], left[:, -1:] - left[:, :-1], target, scale)


def reach(left: int, right: int, target: Fraction, scale: float, beta: float) -> float:
    """A t with Pr[(1 - q) A - q B > t] <= beta, of sums A and B of so many discrete Laplace numbers of one scale."""
    coarse = min(scale, float(COARSE))
    return _reach(left, right, float(target), coarse, beta) * scale / coarse


@lru_cache(4096)
def _reach(left: int, right: int, q: float, scale: float, beta: float) -> float:
    spread = scale * math.sqrt(left * (1 - q) ** 2 + right * q**2)
    bound = max(2.36 * spread * math.sqrt(-math.log(beta)), 2.83 * scale * max(q, 1 - q) * -math.log(beta))
    if beta < SURE:
        return bound + (left + right) * (scale < COARSE)
    (a, places), (b, others) = _law(left, scale), _law(right, scale)
    below = np.concatenate([[0.0], np.cumsum(b)])  # Pr[B < place]

    def beyond(t: float) -> float:
        if q == 0:
            return float(a[places > t].sum())
        last = np.ceil(((1 - q) * places - t) / q).astype(np.int64) - others[0]
        return float(a @ below[np.clip(last, 0, len(b))])

    low, high = 0.0, bound + left + right
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle) > beta * (1 - 1e-9) - 1e-13 else (low, middle)
    return high + (max(q, 1 - q) if scale == COARSE else 0.0)  # a step, by which finer grids may differ


@lru_cache(256)
def _law(count: int, scale: float) -> tuple[Floats, Ints]:
    """The probabilities of a sum of `count` discrete Laplace numbers, and its values."""
    size = 1 << math.ceil(math.log2(2 * scale * (40 + 4 * count) + 64))
    places = np.arange(size) - size // 2
    p = math.exp(-1 / scale)
    one = (1 - p) / (1 + p) * p ** np.abs(places).astype(float)
    law = np.fft.irfft(np.fft.rfft(np.fft.ifftshift(one)) ** count, size)
    return np.maximum(np.fft.fftshift(law), 0.0), places
