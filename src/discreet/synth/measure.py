"""Noisy contingency tables, and the noise that a budget buys.

A record is in one cell of a contingency table. Added or removed, it moves that cell by 1 and no other; replaced, it moves at
most two cells by 1 each. Noise is drawn for each cell by itself, so a table costs one discrete Gaussian of sensitivity 1, or
two. docs/theory/synth-measurement.md proves it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.accounting import calibrate, curve, epsilon_from_concentrated
from discreet.core import DiscreteGaussian, Event, Exponential, Repeat
from discreet.noise import discrete_gaussian

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Set = tuple[int, ...]
STEPS, CLOSE = 6, 4e-3  # of the search for the least noise, and how near to the whole budget is near enough


@dataclass(frozen=True, slots=True, eq=False)
class Measurement:
    """The noisy counts of a set of columns: unbiased, with independent noise of standard deviation `sigma` on each cell."""

    columns: Set
    counts: Floats
    sigma: float

    def onto(self, columns: Set) -> Measurement:
        """The same of fewer columns: noise adds up over the cells that are summed."""
        rest = tuple(i for i, column in enumerate(self.columns) if column not in columns)
        summed = math.prod(self.counts.shape[i] for i in rest)
        return Measurement(columns, self.counts.sum(axis=rest), self.sigma * math.sqrt(summed))


def noisy(sets: Sequence[Set], counts: Sequence[Ints], sigma: float, times: Sequence[int] | None = None) -> list[Measurement]:
    """Each table with noise; the i-th is measured `times[i]` times, and the mean is kept. Any one measurement costs
    `table_event`.
    """
    repeats = [1] * len(sets) if times is None else list(times)
    drawn = discrete_gaussian(sigma, sum(table.size * n for table, n in zip(counts, repeats)))
    made, start = [], 0
    for columns, table, n in zip(sets, counts, repeats):
        noise = drawn[start : start + table.size * n].reshape(n, *table.shape)
        start += table.size * n
        made.append(Measurement(columns, (n * table + noise.sum(axis=0)) / n, sigma / math.sqrt(n)))
    return made


def table_event(sigma: float, moved: int, times: int) -> Event:
    """`times` tables, of each of which a unit moves at most `moved` cells by 1."""
    return Repeat(DiscreteGaussian(sigma), times * moved)


def choice_event(epsilon: float, times: int) -> Event:
    """`times` choices by the exponential mechanism."""
    return Repeat(Exponential(epsilon), times)


def table_sigma(share: float, moved: int, times: int) -> float:
    """The noise of `times` tables that together cost `share` x rho, where rho = 1: each costs moved / 2 sigma^2."""
    return math.sqrt(times * moved / (2 * share))


def choice_epsilon(share: float, times: int) -> float:
    """The epsilon of `times` choices that together cost `share` x rho, where rho = 1: each costs epsilon^2 / 8."""
    return math.sqrt(8 * share / times)


def least_scale(make_event: Callable[[float], Event], epsilon: float, delta: float) -> float:
    """The least scale of all noise for which make_event(scale) keeps (epsilon, delta), where scale 1 is rho = 1 in zCDP.

    The scale that zCDP asks for is enough; the loss distribution itself usually allows less, which a few steps find.
    """
    enough = 1 / math.sqrt(concentrated_for(epsilon, delta))
    if _gaussian(make_event(1.0)):
        return calibrate(make_event, epsilon, delta)
    return _narrowed(lambda scale: curve(make_event(scale)).epsilon(delta) / epsilon, enough)


def _narrowed(used: Callable[[float], float], enough: float) -> float:
    """A smaller scale that still uses at most all of the budget, by a few steps of interpolation; `enough` does, but for
    rounding.
    """
    high, low = (enough, used(enough)), (0.0, math.inf)
    while high[1] > 1:
        high = (high[0] * (1 + 1e-6), used(high[0] * (1 + 1e-6)))
    for _ in range(STEPS):
        if high[1] > 1 - CLOSE:
            break
        slope = 1.0 if low[1] == math.inf else math.log(low[1] / high[1]) / math.log(high[0] / low[0])
        scale = high[0] * math.exp(math.log(high[1]) / slope) * (1 + CLOSE / 4)
        share = used(scale)
        high, low = ((scale, share), low) if share <= 1 else (high, (scale, share))
    return high[0]


def _gaussian(event: Any) -> bool:
    if isinstance(event, Repeat):
        return _gaussian(event.event)
    return all(map(_gaussian, event.events)) if hasattr(event, "events") else isinstance(event, DiscreteGaussian)


@lru_cache(256)
def concentrated_for(epsilon: float, delta: float) -> float:
    """The largest rho for which rho-zCDP gives (epsilon, delta)-DP, to one part in a million, rounded down."""
    low, high = 0.0, epsilon
    while high - low > 1e-6 * high:
        middle = (low + high) / 2 if low else high / 4
        if epsilon_from_concentrated(middle, delta) <= epsilon:
            low = middle
        else:
            high = middle
    return low


def total(measurements: Iterable[Measurement]) -> float:
    """The number of rows, by every table's own noisy sum, each weighed by its precision; at least 1."""
    weights, sums = [], []
    for measurement in measurements:
        weights.append(1 / (measurement.sigma**2 * measurement.counts.size))
        sums.append(float(measurement.counts.sum()))
    return max(float(np.average(sums, weights=weights)), 1.0)
