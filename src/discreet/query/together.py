"""The noise of a x - slope y, where x and y are two noisy numbers of a group: what the interval of a mean is made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Reach = Callable[[float], float | Floats]  # of a slope: how far x - slope y is from the same without noise, at some confidence
NODES = 400  # of the integral over the size of a box
HALVES = 50  # further ones, towards the largest sizes, for confidences near 1
FAR = 1 << 12  # starting points: as far as noise is looked for, at any confidence that a float can say
CELLS = 32  # of the range of a mean, in each of which one bound on the noise is used


def quotient(top: Floats, bottom: Floats, reach: Reach, half: float) -> tuple[Floats, Floats]:
    """The ends of all m within +-half with |top - m bottom| <= reach(m): an interval for the mean, by Fieller's argument.

    The true m satisfies it whenever the noise of top - m bottom is within reach(m), so that the confidence is that of `reach`.
    """
    edges = np.linspace(-half, half, CELLS + 1)
    most = np.array([reach(abs(edge)) for edge in edges])
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


@lru_cache(4096)
def of_laplace(one: float, two: float, confidence: float) -> float:
    """A t with Pr[|x - y| > t] <= 1 - confidence, of Laplace noise of two scales."""
    a, b = max(one, two), min(one, two)
    if a - b < 1e-6 * a:
        return _least(lambda t: math.exp(-t / a) * (1 + t / (2 * a)), a, confidence)
    if b == 0:
        return a * -math.log(1 - confidence)
    return _least(lambda t: (a * a * math.exp(-t / a) - b * b * math.exp(-t / b)) / (a * a - b * b), a, confidence)


def of_box(one: float, two: float, size: int, confidence: float) -> float:
    """The same of two numbers of a box [-K, K]^size whose K / scale has density ~ k^size exp(-k); scaled by `one` and `two`."""
    a, b = max(one, two), min(one, two)
    return a * _of_box(float(f"{b / a:.6g}") * (1 + 1e-5), size, confidence)


@lru_cache(4096)
def _of_box(b: float, size: int, confidence: float) -> float:
    a, (sides, chances) = 1.0, _sides(size)

    def beyond(t: float) -> float:
        wide, narrow = a * sides, b * sides
        near = 1 - t / wide
        far = (wide + narrow - t) ** 2 / (4 * wide * np.maximum(narrow, 1e-300))
        parts = np.where(t >= wide + narrow, 0.0, np.where(t < wide - narrow, near, far))
        return float(parts @ chances[:-1]) + float(chances[-1])  # as if the last part, which has no largest K, were beyond

    return _least(beyond, a * size, confidence)


@lru_cache(32)
def _sides(size: int) -> tuple[Floats, Floats]:
    """The largest K / scale of parts of its distribution, a gamma distribution of whole shape, by bisection from above; and the
    chance of each part, with that of what is left: NODES equal ones, then halves of what is left."""
    past = np.concatenate([1 - np.arange(1, NODES) / NODES, 0.5 ** np.arange(1, HALVES) / NODES])
    low, high = np.zeros(len(past)), np.full(len(past), 8.0 * (size + 1) + 2 * HALVES)
    for _ in range(60):
        middle = (low + high) / 2
        part = np.ones(len(past))
        left = part.copy()
        for k in range(1, size + 1):  # Pr[K > t] = exp(-t) times the sum of t^k / k!
            part = part * middle / k
            left += part
        more = np.exp(-middle) * left > past
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return high, -np.diff(np.concatenate([[1.0], past, [0.0]]))


def of_normal(one: float, two: float, confidence: float) -> float:
    """The same of Gaussian noise of two standard deviations."""
    return math.hypot(one, two) * -NormalDist().inv_cdf((1 - confidence) / 2)


def _least(beyond: Callable[[float], float], start: float, confidence: float) -> float:
    """The least t that is passed with probability 1 - confidence or less, or a hair more."""
    low, high = 0.0, start
    while beyond(high) > 1 - confidence:
        low, high = high, 2 * high
        if high > FAR * start:
            return math.inf
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle) > 1 - confidence else (low, middle)
    return high
