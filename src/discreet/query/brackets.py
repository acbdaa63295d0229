"""Intervals of quantiles: noisy counts of cells around the value that was chosen, narrow near it and wide far off.

docs/theory/query-quantile.md proves what is claimed here.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from discreet.noise import discrete_laplace
from discreet.noise.additive import Ints

Floats = NDArray[np.float64]
COARSE = 16  # a scale of noise whose distribution stands for those of larger scales
WIDE = 1 << 61
SURE = 1e-11  # below it, probabilities are bounded and not computed


def edges(value: Ints, bins: int) -> Ints:
    """The ends of 2 J + 1 cells, one row per value: its own bin, and on either side cells of 1, 2, 4, … bins, to the ends."""
    steps = 2 ** np.arange(math.ceil(math.log2(max(bins, 2))) + 1)
    left = np.maximum(value[:, None] - (steps[::-1] - 1), 0)
    return np.hstack([left, np.minimum(value[:, None] + steps, bins)])


def bracket(upto: Ints, value: Ints, target: Fraction, scale: Fraction, beta: float) -> tuple[Ints, Ints]:
    """The first and last bin of an interval that misses the quantile's on either side with probability `beta`, at most.

    `upto` are cumulative weights, one row per group, and `scale` is that of the noise of each cell.
    """
    bins = upto.shape[1]
    ends = edges(value, bins)
    before = np.take_along_axis(np.hstack([np.zeros((len(upto), 1), np.int64), upto]), ends, axis=1)
    cells = np.diff(before, axis=1)
    noise: Ints = np.asarray(discrete_laplace(scale, size=cells.size)).reshape(cells.shape)
    wide = noise.max(initial=0) > WIDE or noise.min(initial=0) < -WIDE  # weights are below 2^62 together
    noisy = (cells.astype(object) + noise.astype(object) if wide else cells + noise).astype(float)
    rank = np.cumsum(noisy, axis=1)[:, :-1] - float(target) * noisy.sum(axis=1, keepdims=True)
    count = cells.shape[1]
    most = np.array([reach(k, count - k, target, float(scale), beta) for k in range(1, count)])
    passed = np.cumprod(rank < -most, axis=1).sum(axis=1)
    kept = np.cumprod((rank > most)[:, ::-1], axis=1).sum(axis=1)
    rows = np.arange(len(upto))
    return ends[rows, passed], ends[rows, count - kept] - 1


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
