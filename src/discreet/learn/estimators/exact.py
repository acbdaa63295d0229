"""Vectors with exact Gaussian noise, and exact sums of rows.

Released numbers are whole numbers of steps of a public grid plus exact discrete Gaussian noise. Up to a factor exp(+-1e-70),
that is what rounding at random makes of continuous Gaussian noise (docs/theory/learn-noise.md, "On the grid"): the event of a
vector that one unit moves by at most its sensitivity in l2 is `Gaussian(noise_multiplier)`.

Rows are rounded one by one to multiples of GRAIN. Products of two such numbers, and the sum of BLOCK of them, are whole numbers
of GRAIN^2 below 2^53: floating point computes them exactly in any order, so a sum over rows depends on no other row's place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.errors import InvalidValue, RunFailed
from discreet.noise import Grid, discrete_gaussian

Floats = NDArray[np.float64]

RADIUS = 1 << 20  # steps of the grid in one sensitivity
ROUNDING = 3  # the scale of the rounding that the event takes off, in steps
FINE = 1 << 48  # steps in a standard deviation of noise that stays inside the computation
FAR = 45  # steps: that noise is within so many of the continuous noise it replaces, except with probability 1e-48 a number
UNIT = 2.0**-53
BLOCK = 4096  # rows that are added at once
GRAIN = 2.0**-20  # rows are whole numbers of these
PARTS = 3  # in which a float is split to be multiplied exactly: multiples of GRAIN, GRAIN^2, GRAIN^3
MOST_ROWS = 1 << 30  # for which the bounds on rounding are proven
TOLERANCE = 1e-5  # the most by which a sum over rows may be off, or the gradient at a minimum, in units of one row's length
HALF = 26  # bits of a block's sum that are added apart from the others, so that no sum overflows


def noisy(values: Floats, *, sensitivity: float, noise_multiplier: float) -> Floats:
    """`values`, which one unit moves by at most `sensitivity` in l2, with noise: the event is Gaussian(noise_multiplier).

    >>> noisy(np.zeros((2, 3)), sensitivity=1.0, noise_multiplier=2.0).shape
    (2, 3)
    """
    grid = Grid(Fraction(sensitivity) / RADIUS)
    moved = RADIUS + math.isqrt(values.size) + 1  # rounding moves each of two vectors by half a step in every coordinate
    sigma = math.isqrt(math.ceil((Fraction(noise_multiplier) * moved) ** 2 + ROUNDING**2) - 1) + 1
    if sigma > 1 << 49:
        raise InvalidValue(
            f"The noise would be {noise_multiplier:.3g} times the sensitivity, which drowns everything. Raise epsilon."
        )
    steps = np.asarray(grid.steps(values.ravel()), np.int64)
    noised = grid.values(np.asarray(steps + discrete_gaussian(sigma, values.size), np.int64))
    return np.asarray(noised, np.float64).reshape(values.shape)


def hidden_noise(scale: float, size: int) -> Floats:
    """Gaussian noise that is never released itself: within FAR steps of `scale` / FINE of a continuous Gaussian."""
    return np.asarray(discrete_gaussian(FINE, size), np.float64) * (scale / FINE * (1 + 8 * UNIT))


def off_normal(scale: float, size: int) -> float:
    """A bound on the l2 distance of `hidden_noise` from the continuous Gaussian of the same scale, under a coupling."""
    return (FAR / FINE + 12 * 2 * UNIT) * scale * math.sqrt(size)


def added(rows: Floats, weights: Floats) -> Floats:
    """The exact sum of rows times weights, both multiples of GRAIN, rows of length and weights of size at most 1.

    The one rounding is at the end, to the nearest float.
    """
    return _in_blocks(len(rows), lambda part: rows[part].T @ weights[part])


def squared(rows: Floats) -> Floats:
    """The exact sum of every row's products with itself, [columns, columns]."""
    return _in_blocks(len(rows), lambda part: rows[part].T @ rows[part])


def _in_blocks(count: int, product: Callable[[slice], Floats]) -> Floats:
    high: Any = 0
    low: Any = 0
    for start in range(0, max(count, 1), BLOCK):
        block = np.asarray(product(slice(start, start + BLOCK)) / GRAIN**2).astype(np.int64)
        high, low = high + (block >> HALF), low + (block & ((1 << HALF) - 1))
    return np.asarray((np.asarray(high, np.float64) * 2.0**HALF + np.asarray(low, np.float64)) * GRAIN**2)


def added_exactly(rows: Floats, weights: Floats) -> Floats:
    """The sum of rows (multiples of GRAIN, of length at most 1) times any weights of size at most 1, within `sum_error`."""
    total = added(rows, split(weights))
    return np.asarray(total @ GRAIN ** np.arange(PARTS))


def split(values: Floats) -> Floats:
    """Numbers of size at most 1 as PARTS multiples of GRAIN each, [..., PARTS]: the j-th counts GRAIN^j.

    >>> split(np.array([1 / 3])) @ GRAIN ** np.arange(PARTS) == 1 / 3
    array([ True])
    """
    parts, rest = [], np.asarray(values, np.float64)
    for _ in range(PARTS):
        part = np.rint(rest / GRAIN) * GRAIN
        parts.append(part)
        rest = (rest - part) / GRAIN
    return np.stack(parts, axis=-1)


def margins(rows: Floats, w: Floats) -> Floats:
    """rows @ w within a few units of |w|, however many columns there are: each part of w is multiplied exactly."""
    largest = float(np.abs(w).max(initial=0.0))
    if largest == 0.0:
        return np.zeros(len(rows))
    scale = 2.0 ** math.frexp(largest)[1]
    coarse, fine, finest = (rows @ split(w / scale)).T
    return np.asarray((coarse + (fine * GRAIN + finest * GRAIN**2)) * scale)


def sum_error(count: int) -> float:
    """A bound on the l2 error of `added_exactly`: each of PARTS sums is rounded once, and they are added."""
    return count * 4 * UNIT


def within(error: float) -> None:
    """Refuse a result whose error bound is too large for the claim; nothing is released then."""
    if not error <= TOLERANCE:
        raise RunFailed(
            "The computation did not become exact enough for its claim, so nothing was released; what was charged stays "
            "charged. Raise alpha, or scale the columns to similar ranges."
        )


def clipped(rows: Floats, norm: float) -> Floats:
    """Each row cut to length `norm`. NaN counts as 0, an infinity as the largest float."""
    rows = np.nan_to_num(np.asarray(rows, np.float64), nan=0.0)
    largest = np.maximum(np.abs(rows).max(axis=1, keepdims=True, initial=0.0), 1e-290)
    length = np.linalg.norm(rows / largest, axis=1, keepdims=True)  # times `largest`, without overflow
    with np.errstate(over="ignore"):
        return rows * np.minimum(1.0, norm / largest / np.maximum(length, 1.0) * (1 - 8 * UNIT))


def grained(rows: Floats) -> Floats:
    """Rows cut to length 1 and rounded to multiples of GRAIN, one by one; they are no longer than 1 after that either."""
    room = math.sqrt(rows.shape[1]) * GRAIN / 2
    return np.asarray(np.rint(clipped(rows, 1.0 - room) / GRAIN) * GRAIN)
