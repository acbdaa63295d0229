"""Vectors with exact Gaussian noise, and sums of rows with a bound on their rounding.

Released numbers are whole numbers of steps of a public grid plus exact discrete Gaussian noise. Up to a factor exp(+-1e-70),
that is what rounding at random makes of continuous Gaussian noise (docs/theory/learn-noise.md, "On the grid"): the event of a
vector that one unit moves by at most its sensitivity in l2 is `Gaussian(noise_multiplier)`.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from discreet.errors import InvalidValue, RunFailed
from discreet.noise import Grid, discrete_gaussian

Floats = NDArray[np.float64]

RADIUS = 1 << 20  # steps of the grid in one sensitivity
ROUNDING = 3  # the scale of the rounding that the event takes off, in steps
FINE = 1 << 48  # steps in a standard deviation of noise that stays inside the computation
FAR = 45  # steps within which that noise is of the continuous noise that it stands for, but for 1e-48 a number
UNIT = 2.0**-53
BLOCK = 4096  # rows that are added at once
TOLERANCE = 1e-5  # the most by which a sum over rows may be off, or the gradient at a minimum, in units of one row's length


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
    found = grid.values(np.asarray(steps + discrete_gaussian(sigma, values.size), np.int64))
    return np.asarray(found, np.float64).reshape(values.shape)


def hidden_noise(scale: float, size: int) -> Floats:
    """Gaussian noise that is never released itself: within FAR steps of `scale` / FINE of a continuous Gaussian."""
    return np.asarray(discrete_gaussian(FINE, size), np.float64) * (scale / FINE)


def off_normal(scale: float, size: int) -> float:
    """How far, in l2, `hidden_noise` may be from the continuous Gaussian of the same scale that it is coupled with."""
    return (FAR / FINE + 12 * 2 * UNIT) * scale * math.sqrt(size)


def added(rows: Floats, weights: Floats) -> Floats:
    """The sum of rows times weights, in blocks, so that its rounding error is at most `sum_error` times the sum of lengths."""
    total = np.zeros((rows.shape[1], *weights.shape[1:]))
    for start in range(0, len(rows), BLOCK):
        total += rows[start : start + BLOCK].T @ weights[start : start + BLOCK]
    return total


def sum_error(count: int) -> float:
    """A bound on the l2 error of `added` for `count` rows times weights of length at most 1 (Higham 2002, section 3.1)."""
    return count * (BLOCK + count / BLOCK + 8) * UNIT * 1.01


def within(error: float) -> None:
    """Refuse what is too inexact for the claim; nothing is released then."""
    if not error <= TOLERANCE:
        raise RunFailed(
            "The computation did not become exact enough for its claim, so nothing was released; what was charged stays "
            "charged. Raise alpha, scale the columns to similar ranges, or fit on fewer rows."
        )


def clipped(rows: Floats, norm: float) -> Floats:
    """Each row cut to length `norm`; a row that is not finite counts as zeros."""
    rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
    largest = np.maximum(np.abs(rows).max(axis=1, keepdims=True, initial=0.0), 1e-290)
    length = np.linalg.norm(rows / largest, axis=1, keepdims=True)  # times `largest`, without overflow
    with np.errstate(over="ignore"):
        return rows * np.minimum(1.0, norm / largest / np.maximum(length, 1.0) * (1 - 8 * UNIT))
