"""Noisy contingency tables, and the calibration of their noise to a budget.

A record is in one cell of a contingency table. Added or removed, it moves that cell by 1 and no other; replaced, it moves at
most two cells by 1 each. Noise is drawn for each cell by itself, so a table costs one discrete Gaussian of sensitivity 1, or
two. A user's rows weigh at most `rows` together and may be in any cells: a table costs what its l2 length allows, by
zero-concentrated DP. docs/theory/synth-measurement.md proves both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.accounting import calibrate, concentrated, curve, epsilon_from_concentrated
from discreet.core import Approximate, Concentrated, DiscreteGaussian, Event, Exponential, Repeat
from discreet.core import Sequence as Composed
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
        """The marginal over fewer columns: the noise of the summed cells adds up."""
        rest = tuple(i for i, column in enumerate(self.columns) if column not in columns)
        summed = math.prod(self.counts.shape[i] for i in rest)
        return Measurement(columns, self.counts.sum(axis=rest), self.sigma * math.sqrt(summed))


@dataclass(frozen=True, slots=True)
class Reach:
    """How far one unit moves a table: its rows weigh at most `rows` in each of `moved` worlds (two where it is replaced).

    Counts are whole numbers of which `grain` make one row.

    >>> Reach(moved=1, rows=3, grain=1 << 20).score
    3145728
    """

    moved: int = 1
    rows: int = 1
    grain: int = 1

    @property
    def score(self) -> int:
        """How far a unit moves the l1 distance of a table to a public one, in grains."""
        return self.moved * self.rows * self.grain

    @property
    def square(self) -> int:
        """The square of the l2 length, in rows, by which a unit moves a table."""
        return self.moved * self.rows**2

    @property
    def single(self) -> bool:
        """Whether a unit is one row, in one cell of a table."""
        return self.rows == self.grain == 1


def noisy(
    sets: Sequence[Set], counts: Sequence[Ints], sigma: float, times: Sequence[int] | None = None, *, grain: int = 1
) -> list[Measurement]:
    """Each table with noise; the i-th is measured `times[i]` times, and the mean is kept. Any one measurement costs
    `table_event`. Counts are in grains; `sigma` and what comes out are in rows.
    """
    repeats = [1] * len(sets) if times is None else list(times)
    drawn = discrete_gaussian(sigma * grain, sum(table.size * n for table, n in zip(counts, repeats)))
    measurements, start = [], 0
    for columns, table, n in zip(sets, counts, repeats):
        noise = drawn[start : start + table.size * n].reshape(n, *table.shape)
        start += table.size * n
        measurements.append(Measurement(columns, (n * table + noise.sum(axis=0)) / (n * grain), sigma / math.sqrt(n)))
    return measurements


def table_event(sigma: float, reach: Reach, times: int) -> Event:
    """`times` tables with noise of `sigma` rows on each cell: one number, or two, where a unit is a row; else by zCDP."""
    if reach.single:
        return Repeat(DiscreteGaussian(sigma), times * reach.moved)
    return Repeat(Concentrated(_up(reach.square / (2 * sigma**2))), times)


def score_event(sigma: float, reach: Reach, times: int) -> Event:
    """`times` scores with noise of `sigma` rows, each of which a unit moves by `reach.score`."""
    if reach.single:
        return Repeat(DiscreteGaussian(sigma, reach.moved), times)
    return Repeat(Concentrated(_up((reach.moved * reach.rows / sigma) ** 2 / 2)), times)


def _up(rho: float) -> float:
    return rho * (1 + 1e-14)  # above the rounding of a few operations


def choice_event(epsilon: float, times: int) -> Event:
    """`times` choices by the exponential mechanism."""
    return Repeat(Exponential(epsilon), times)


def table_sigma(share: float, reach: Reach, times: int) -> float:
    """The noise of `times` tables that together cost `share` x rho, where rho = 1: each costs square / 2 sigma^2."""
    return math.sqrt(times * reach.square / (2 * share))


def choice_epsilon(share: float, times: int) -> float:
    """The epsilon of `times` choices that together cost `share` x rho, where rho = 1: each costs epsilon^2 / 8."""
    return math.sqrt(8 * share / times)


def calibrated(
    make_event: Callable[[float], Event], epsilon: float, delta: float, before: tuple[Event, ...] = ()
) -> tuple[float, Event]:
    """The least scale of all noise for which the events of `before` and make_event(scale) together keep (epsilon, delta),
    and all of them as one event. Scale 1 is rho = 1 in zCDP.

    The noise that zCDP requires within the rest of the budget is sufficient; the privacy loss distribution usually allows less,
    which a short search finds.
    """

    def whole(scale: float) -> Event:
        return Composed((*before, make_event(scale))) if before else make_event(scale)

    remaining = concentrated_for(*_left(before, epsilon, delta)) - math.fsum(map(concentrated, _choices(before)))
    enough = 1 / math.sqrt(remaining)
    if _gaussian(whole(1.0)):
        scale = calibrate(whole, epsilon, delta)
    else:
        scale = _narrowed(lambda scale: curve(whole(scale)).epsilon(delta) / epsilon, enough)
    return scale, whole(scale)


def _left(before: tuple[Event, ...], epsilon: float, delta: float) -> tuple[float, float]:
    """What thresholds leave of a budget, by adding up epsilons and deltas."""
    thresholds = [event for event in before if isinstance(event, Approximate)]
    return epsilon - math.fsum(threshold.epsilon for threshold in thresholds), delta - math.fsum(
        threshold.delta for threshold in thresholds
    )


def _choices(before: tuple[Event, ...]) -> list[Event]:
    return [event for event in before if not isinstance(event, Approximate)]


def _narrowed(used: Callable[[float], float], enough: float) -> float:
    """A smaller scale that still uses at most all of the budget, by a few steps of interpolation; `enough` does, but for
    rounding.
    """
    high, low = (enough, used(enough)), (0.0, math.inf)
    step = 1e-6
    while high[1] > 1:
        high, step = (high[0] * (1 + step), used(high[0] * (1 + step))), 4 * step
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
