"""The noise of a weighted sum of several noisy numbers of a group: what intervals of sums, means and variances are made of.

docs/theory/query-joint.md says why such an interval holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import product
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Weights = tuple[float, ...]
FAR = 1 << 12  # starting points: as far as noise is looked for, at any confidence that a float can say
CELLS = 32  # of the range of a mean, in each of which one bound on the noise is used
APART = 1.01  # neighbouring scales of Laplace noise: nearer ones are moved apart, or digits would be lost
LEAST = 3e-2  # of the largest weight: smaller ones count as that, for the same reason
SURE = 1e-9  # so little may the interval miss before rounding of floats matters


class Reach(NamedTuple):
    """How far a weighted sum of noisy numbers is from what it is of the rows as they are, at most, by weights, at some
    confidence; and the groups of which that is so. Of the others it holds for all groups that might have been released."""

    of: Callable[[Weights], float | Floats]
    known: NDArray[np.bool_]

    def of_group(self, i: int, weights: Weights) -> float:
        """Of one group; the weights are rounded up, so that most groups share them."""
        near = tuple(float(f"{weight:.3g}") * (1 + 5e-3) for weight in weights)
        return float(np.broadcast_to(self.of(near), self.known.shape)[i])


def quotient(top: Floats, bottom: Floats, reach: Reach, half: float) -> tuple[Floats, Floats]:
    """The ends of all m within +-half with |top - m bottom| <= reach(1, m): an interval for the mean, by Fieller's argument.

    The true m satisfies it whenever the noise of top - m bottom is within reach(1, m): the confidence is that of `reach`.
    """
    edges = np.linspace(-half, half, CELLS + 1)
    most = np.array([reach.of((1.0, abs(edge))) for edge in edges])
    most = np.maximum(most[1:], most[:-1]).T  # the noise grows with |m|, so that of a cell is most at one of its ends
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = [(top[:, None] + side * most) / bottom[:, None] for side in (-1, 1)]
    sure = bottom[:, None] > 0
    low = np.where(sure, np.maximum(ends[0], edges[:-1]), edges[:-1])
    high = np.where(sure, np.minimum(ends[1], edges[1:]), edges[1:])
    held = low <= high
    lowest = np.where(held, low, np.inf).min(axis=1)
    highest = np.where(held, high, -np.inf).max(axis=1)
    none = ~held.any(axis=1)  # the noise is so large that no mean fits: the nearest end of the range is as good as any
    return np.where(none, -half, lowest), np.where(none, half, highest)


def of_laplace(scales: Weights, failing: float) -> float:
    """A t that a sum of Laplace numbers of these scales passes in magnitude with probability `failing` at most."""
    known = sorted((scale for scale in scales if scale > 0), reverse=True)
    if not known or failing < SURE:
        return sum(scale * -math.log(failing / len(known)) for scale in known)
    return known[0] * _of_laplace(_rounded(known), failing)


@lru_cache(4096)
def _of_laplace(scales: Weights, failing: float) -> float:
    apart: list[float] = []  # a larger scale is noise and more noise, so that it is passed at least as often
    for scale in reversed(scales):
        apart.append(max(scale, APART * apart[-1]) if apart else scale)
    parts = [math.prod(a * a / (a * a - b * b) for b in apart if b != a) for a in apart]
    return _least(lambda t: sum(part * math.exp(-t / a) for part, a in zip(parts, apart)), failing)


def of_box(weights: Weights, size: int, failing: float) -> float:
    """The same of numbers of a box [-K, K]^size, each times its weight, where K has density ~ k^size exp(-k)."""
    known = sorted((weight for weight in weights if weight > 0), reverse=True)
    if not known or failing < SURE:
        return sum(weight * _of_box((1.0,), size, failing / len(known)) for weight in known)
    return known[0] * _of_box(_rounded([max(weight, LEAST * known[0]) for weight in known]), size, failing)


@lru_cache(4096)
def _of_box(weights: Weights, size: int, failing: float) -> float:
    """Given K, the sum of uniform numbers passes t with probability 1 / (n! (2K)^n) times a sum of (c K - t)^n over all signed
    sums c of the weights above t / K, by the sign and by the product of the weights; that has a mean over K in closed form."""
    n = len(weights)
    sums = [(math.prod(signs), total) for signs in product((1, -1), repeat=n)
            if (total := sum(a * b for a, b in zip(signs, weights))) > 0]  # fmt: skip
    parts = [math.comb(size - n, j) * math.factorial(n + j) / math.factorial(n) / math.factorial(size)
             for j in range(size - n + 1)]  # fmt: skip
    whole = 2.0 ** (n - 1) * math.prod(weights)

    def beyond(t: float) -> float:
        passed = 0.0
        for sign, total in sums:
            x = t / total
            passed += sign * total**n * math.exp(-x) * sum(part * x ** (size - n - j) for j, part in enumerate(parts))
        return passed / whole

    return _least(beyond, failing)


def of_normal(deviations: Weights, failing: float) -> float:
    """The same of Gaussian numbers of these standard deviations."""
    return math.hypot(*deviations) * -NormalDist().inv_cdf(failing / 2)


def _rounded(known: list[float]) -> Weights:
    """By the largest, rounded up."""
    return (1.0, *(min(1.0, float(f"{weight / known[0]:.6g}") * (1 + 1e-5)) for weight in known[1:]))


def _least(beyond: Callable[[float], float], failing: float) -> float:
    """The least t that is passed with probability `failing` or less, or a hair more."""
    low, high = 0.0, 1.0
    while beyond(high) > failing:
        low, high = high, 2 * high
        if high > FAR:
            return math.inf
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle) > failing else (low, middle)
    return high
