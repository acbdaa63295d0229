"""Choosing by exponential weights, many rows of candidates at a time, exactly.

One uniform U in [0, 1) per row decides: the candidate whose two cuts (cumulative shares of the weight) enclose U. The cuts
are found in float64 with a bound on their error; where U is farther from every cut than that, the floats settle the
choice, and elsewhere further digits of U are compared with the cuts in integer arithmetic until they differ.
docs/theory/noise-exponential.md has the bound and the proof that the distribution is exact. Permute-and-flip goes the same way
with a coin for each candidate: docs/theory/noise-selection.md.
"""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.noise.digits import GUARD, Bounds, exp_bounds
from discreet.noise.fast import below
from discreet.noise.source import Source

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FARTHEST = 1 << 61  # magnitude of a whole-number score: differences fit int64
WIDEST = 1 << 40  # the largest multiplicity of a candidate
CHUNK = 1 << 16  # candidates at a time: everything in flight stays in cache
WEIGHT_ERROR = 2.0**-40  # far above the relative error of a float64 weight, which is below 2^-41 for exponents up to 745
SUM_ERROR = 2.0**-52  # per term added up, relative


def choose(scores: NDArray[Any], rate: Fraction, widths: Ints | None, source: Source) -> Ints:
    """For each row of scores a column, with probability ~ width exp(rate score), exactly.

    Scores are int64 of magnitude at most 2^61, or float64 of at most 2^200 with a rate within 2^+-200. `widths` has one row
    for all or one per row of scores, none above 2^40, and at least one positive in each.
    """
    chosen = np.empty(len(scores), np.int64)
    step = max(1, CHUNK // scores.shape[1])
    for start in range(0, len(scores), step):
        rows = slice(start, start + step)
        wide = None if widths is None else np.broadcast_to(widths, scores.shape)[rows]
        chosen[rows] = _choose(scores[rows], rate, wide, source)
    return chosen


def _choose(scores: NDArray[Any], rate: Fraction, widths: Ints | None, source: Source) -> Ints:
    u = source.words(np.uint64, len(scores)) >> np.uint64(11)
    gaps = _gaps(scores, widths)
    below = _cumulative(gaps, rate, widths)
    total = below[:, -1]
    place = u * 2.0**-53 * total
    last = scores.shape[1] - 1
    chosen: Ints = np.minimum(np.count_nonzero(below <= place[:, None], axis=1), last).astype(np.int64)
    slack = total * (4 * (WEIGHT_ERROR + SUM_ERROR * scores.shape[1]))
    row = np.arange(len(scores))
    sure = (chosen == last) | (below[row, chosen] - place > slack)
    sure &= (chosen == 0) | (place - below[row, chosen - 1] > slack)
    for i in np.flatnonzero(~sure):
        chosen[i] = _locate(int(u[i]), scores[i], rate, None if widths is None else widths[i], source)
    return chosen


def flip(scores: Ints, rate: Fraction, source: Source) -> Ints:
    """For each row of scores a column by permute-and-flip, exactly: every candidate's coin shows heads with probability
    exp(-rate x what it is below the best), and one of the heads is taken, each alike.

    Candidates in random order until a coin shows heads: that is the first of the heads, and the order is any. Scores are int64
    of magnitude at most 2^61.
    """
    chosen = np.empty(len(scores), np.int64)
    step = max(1, CHUNK // scores.shape[1])
    for start in range(0, len(scores), step):
        heads = _coins(scores[start : start + step], rate, source)
        many = heads.sum(axis=1)
        place = np.zeros(len(heads), np.int64)
        for count in np.unique(many[many > 1]).tolist():
            rows = np.flatnonzero(many == count)
            place[rows] = source.many_below(count, rows.size)
        chosen[start : start + step] = np.argmax(np.cumsum(heads, axis=1) > place[:, None], axis=1)
    return chosen


def _coins(scores: Ints, rate: Fraction, source: Source) -> NDArray[np.bool_]:
    """A coin for each score; float64 settles those whose first 32 digits are not near exp(-rate x gap)."""
    gaps = _gaps(scores, None)
    chance: Floats = np.exp(np.multiply(gaps, -float(min(rate, Fraction(1 << 200))), dtype=np.float64))
    first = source.words(np.uint32, scores.size).reshape(scores.shape)
    ahead = first * 2.0**-32 - chance
    heads: NDArray[np.bool_] = ahead < -(2.0**-32)  # all of U's further digits together are less than 2^-32
    near = (ahead >= -(2.0**-32) - WEIGHT_ERROR) & (ahead <= WEIGHT_ERROR) & (gaps > 0)
    for i, j in zip(*np.nonzero(near)):
        heads[i, j] = below(int(first[i, j]), 32, partial(exp_bounds, int(gaps[i, j]) * rate), source)
    heads |= gaps == 0
    return heads


def _gaps(scores: NDArray[Any], widths: Ints | None) -> NDArray[Any]:
    """Each score's distance below the best eligible one: exact for int64, with relative error 2^-53 at most for float64."""
    counted = scores if widths is None else np.where(widths > 0, scores, scores.min(axis=1, keepdims=True))
    gaps: NDArray[Any] = counted.max(axis=1, keepdims=True) - scores
    return gaps if widths is None else np.maximum(gaps, 0)


def _cumulative(gaps: NDArray[Any], rate: Fraction, widths: Ints | None) -> Floats:
    weights: Floats = np.multiply(gaps, -float(min(rate, Fraction(1 << 200))), dtype=np.float64)
    np.exp(weights, out=weights)
    if widths is not None:
        weights *= widths
    return np.cumsum(weights, axis=1, out=weights)


def _locate(u: int, scores: NDArray[Any], rate: Fraction, widths: Ints | None, source: Source) -> int:
    """The candidate of a U whose first 53 digits are u, by as many more digits as it takes."""
    levels, which = np.unique(scores, return_inverse=True)
    counted = scores if widths is None else scores[widths > 0]
    best = Fraction(counted.max().item())
    gaps = [max(Fraction(0), best - Fraction(level)) * rate for level in levels.tolist()]
    wide = [1] * len(scores) if widths is None else widths.tolist()
    bits = 53
    while True:
        u, bits = u << 48 | source.bits(48), bits + 48
        weights = [exp_bounds(gap, bits + GUARD) for gap in gaps]
        lo, hi = _cuts([weights[i] for i in which.tolist()], wide, bits)
        j = bisect_right(lo, u)
        if j < len(lo) and (j == 0 or u >= hi[j - 1]):
            return j


def _cuts(weights: list[Bounds], widths: list[int], bits: int) -> tuple[list[int], list[int]]:
    """Integers around 2^bits times each cumulative share: lower where the rest is heavy, upper where it is light."""
    lows = list(accumulate(low * width for (low, _), width in zip(weights, widths)))
    highs = list(accumulate(high * width for (_, high), width in zip(weights, widths)))
    lo = [(low << bits) // (low + highs[-1] - high) if low else 0 for low, high in zip(lows, highs)]
    hi = [-(-(high << bits) // (high + lows[-1] - low)) if high else 0 for low, high in zip(lows, highs)]
    return lo, hi
