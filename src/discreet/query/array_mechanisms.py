"""The mechanisms behind the statistics of arrays: each states its claims before it sees a row.

Counts, sums, means and variances are the same `Statistic` classes as in SQL, measured here with numpy instead of an engine.
docs/theory/query-statistics.md derives the sensitivities and the intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from discreet.core import Claim, DiscreteLaplace, Event, Exponential, Game, Repeat, check
from discreet.core import Sequence as Several
from discreet.errors import InvalidValue
from discreet.noise import discrete_laplace, discrete_laplace_error, exponential, exponential_rows
from discreet.noise.grid import Grid
from discreet.noise.samplers import Number, float_above, float_below, rational
from discreet.query.operations import Kind, Op
from discreet.query.quantiles import SHARE, Quantiles
from discreet.query.rows import Contribution, Floats, Ints, Rows, add, clipped_table, codes, column, numbers, public, weigh
from discreet.query.statistics.quantity import Quantity, RowCount
from discreet.query.statistics.statistic import MOST_ROWS, PART, Cells, Statistic, each
from discreet.query.tree import Scalar

FINEST = 1 << 30  # grid steps from zero to a bound, where they fit
WIDEST = 1 << 52  # the largest sensitivity in steps
PARTS = ("value", "low", "high", "confidence")


@dataclass(frozen=True, slots=True)
class Estimate(Mapping[str, Any]):
    """A private answer with its interval: `value`, `low` and `high`, each a number or a list, at `confidence`.

    It reads as a dictionary too, and is written as one.

    >>> dict(Estimate(value=3.0, low=1.0, high=5.0))
    {'value': 3.0, 'low': 1.0, 'high': 5.0, 'confidence': 0.95}
    """

    value: Any
    low: Any
    high: Any
    confidence: float = 0.95

    def __getitem__(self, name: str) -> Any:
        if name not in PARTS:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(PARTS)

    def __len__(self) -> int:
        return len(PARTS)


@dataclass(frozen=True, slots=True)
class ArrayMechanism:
    """A statistic of arrays as a mechanism: what it claims is fixed before any row is read."""

    contribution: Contribution
    events: tuple[Event, ...]
    work: Callable[[Rows], Any]
    assumptions: tuple[str, ...] = ()

    def claims(self) -> tuple[Claim, ...]:
        event = self.events[0] if len(self.events) == 1 else Several(self.events)
        whose = ("ids say whose row each is",) if self.contribution.owned else ()
        return (Claim(game=Game(self.contribution.unit, {"answers"}), event=event, assumptions=whose + self.assumptions),)

    def run(self, data: Any) -> Any:
        return self.work(data if isinstance(data, Rows) else Rows(data))


@dataclass(frozen=True, slots=True)
class NoisySum:
    """One noisy sum: numbers within +-reach, in whole steps of a grid, times weights, plus discrete Laplace noise.

    >>> from discreet.core import record
    >>> NoisySum(Contribution(record()), Fraction(1, 2)).event
    DiscreteLaplace(scale=2.0, sensitivity=1)
    """

    contribution: Contribution
    epsilon: Fraction
    reach: Fraction | None = None  # None: rows are counted

    @property
    def step(self) -> Fraction:
        """A power of two, so that whole numbers stay whole, as fine as the sensitivity's limit lets it be."""
        return Fraction(1) if self.reach is None else _step(self.reach, self.contribution.sensitivity)

    @property
    def sensitivity(self) -> int:
        return self.contribution.sensitivity * self.most

    @property
    def most(self) -> int:
        """The largest magnitude of a number, in steps."""
        return 1 if self.reach is None else _most(self.step, self.reach)

    @property
    def event(self) -> Event:
        return DiscreteLaplace(float_below("scale", self.sensitivity / self.epsilon), self.sensitivity)

    def total(self, values: Floats | None, weights: Ints) -> int:
        """The sum before noise, in steps x weight; private."""
        if values is None:
            return add(weights)
        steps = Grid(self.step).steps(np.where(weights > 0, values, 0.0))
        return add(np.clip(np.asarray(steps), -self.most, self.most) * weights)

    def noisy(self, values: Floats | None, weights: Ints) -> float:
        steps = self.total(values, weights) + discrete_laplace(self.sensitivity / self.epsilon)
        return float(steps * self.step / self.contribution.one)

    @property
    def rounding(self) -> float:
        """How far the grid moves what a row adds, at most."""
        return 0.0 if self.reach is None else float(self.step) / 2

    def error(self, confidence: float) -> float:
        """How far the noise moves the sum, at this confidence."""
        t = discrete_laplace_error(float(self.sensitivity / self.epsilon), confidence)
        return t * float(self.step) / self.contribution.one


@lru_cache(256)
def _step(reach: Fraction, sensitivity: int) -> Fraction:
    return Fraction(2) ** math.ceil(math.log2(reach / min(FINEST, WIDEST // sensitivity)) + 1e-9)


@lru_cache(256)
def _most(step: Fraction, reach: Fraction) -> int:
    return max(1, Grid(step).step(reach))


class _Released:
    """The noisy quantities of one array, for `Statistic.estimate`: arrays of one entry."""

    def __init__(self, sums: Mapping[Quantity, NoisySum], columns: Mapping[Scalar, Floats], weights: Ints, known: Ints) -> None:
        self._sums = sums
        self._values = {
            quantity: np.array([noisy_sum.noisy(quantity.per_row(columns), weights if quantity == RowCount() else known)])
            for quantity, noisy_sum in sums.items()
        }

    def __contains__(self, quantity: Quantity) -> bool:
        return quantity in self._sums

    def value(self, quantity: Quantity) -> Floats:
        return self._values[quantity]

    def ends(self, quantity: Quantity, confidence: float) -> tuple[Floats, Floats]:
        noisy_sum, count = self._sums[quantity], self._sums.get(RowCount())
        rows: Any = float(MOST_ROWS)
        if count is not None and noisy_sum.rounding:
            rows = np.maximum(self._values[RowCount()] + count.error(each(PART, confidence)), 0.0)
            confidence = each(PART / (PART - 1), confidence)
        error = noisy_sum.error(confidence) + rows * noisy_sum.rounding
        return self._values[quantity] - error, self._values[quantity] + error

    def whole(self, quantity: Quantity) -> bool:
        return self._sums[quantity].contribution.one == 1

    def reach(self, quantities: Sequence[Quantity], confidence: float) -> None:
        """Each number has its own ends, and no more is known of them together."""
        return None

    def ranked(self, quantity: Quantity, rank: float, confidence: float) -> Cells:
        raise InvalidValue("Quantiles of arrays are asked with quantile(values, rank, ...).")


def statistic(kind: type[Statistic], *, unit: Any, epsilon: Number, confidence: float, bounds: Any = None) -> ArrayMechanism:
    """Any statistic that is estimated from counts and sums; each of them gets an equal part of epsilon."""
    contribution = Contribution(unit)
    limits = [bounds_pair(bounds)] if kind.needs_bounds else []
    of = Scalar(Op.COLUMN, Kind.NUMBER, (), (0, 0), (float(limits[0][0]), float(limits[0][1]))) if limits else None
    estimated = kind(of)
    quantities = estimated.measures()
    part = rational("epsilon", epsilon) / len(quantities)
    sums = {quantity: NoisySum(contribution, part, quantity.reach) for quantity in quantities}
    check.confidence(confidence)

    def work(rows: Rows) -> Estimate:
        if of is None:
            columns: dict[Scalar, Floats] = {}
            weights = known = contribution.weights(len(column(rows.values)), rows.ids)
        else:
            (values,), known = clipped_table(Rows([rows.values], rows.ids), contribution, limits)
            columns = {of: values}
            weights = contribution.weights(len(values), rows.ids) if RowCount() in sums else known
        cells = estimated.estimate(_Released(sums, columns, weights, known), confidence)
        value, low, high = (float(part[0]) for part in cells)
        return Estimate(value, max(kind.least, low), max(kind.least, high), confidence)

    return ArrayMechanism(contribution, tuple(noisy_sum.event for noisy_sum in sums.values()), work)


def quantile(
    *, unit: Any, epsilon: Number, bounds: Any, targets: Any, bins: int, confidence: float, interval_share: float = float(SHARE)
) -> ArrayMechanism:
    contribution = Contribution(unit)
    limits = bounds_pair(bounds)
    lower, upper = map(float, limits)
    bins = check.whole("bins", bins, most=1 << 20)
    several = isinstance(targets, (list, tuple, np.ndarray))
    asked = targets if several else (targets,)
    mechanism = Quantiles(asked, epsilon, contribution.sensitivity, interval_share, check.confidence(confidence))
    width = (upper - lower) / bins

    def work(rows: Rows) -> Estimate:
        (values,), weights = clipped_table(Rows([rows.values], rows.ids), contribution, [limits])
        place = np.clip(np.floor((np.where(weights > 0, values, lower) - lower) / width), 0, bins - 1).astype(np.int64)
        chosen = mechanism.run(weigh(place, weights, bins)[None, :])
        ends = [lower + (part[0] + at) * width for part, at in zip(chosen, (0.5, 0.0, 1.0))]
        value, low, high = (end.tolist() if several else float(end[0]) for end in ends)
        return Estimate(value, low, high, confidence)

    return ArrayMechanism(contribution, mechanism.events, work, ("the grid of values is public",))


def histogram(*, unit: Any, epsilon: Number, confidence: float, edges: Any = None, categories: Any = None) -> ArrayMechanism:
    contribution = Contribution(unit)
    noisy_sum = NoisySum(contribution, rational("epsilon", epsilon))
    check.confidence(confidence)
    place, cells = _cells(edges, categories)

    def work(rows: Rows) -> Estimate:
        cell = place(rows.values)
        weights = contribution.weights(len(cell), rows.ids)
        counts = weigh(np.maximum(cell, 0), np.where(cell < 0, 0, weights), cells)
        noise = discrete_laplace(noisy_sum.sensitivity / noisy_sum.epsilon, size=cells)
        noisy, error = (counts + noise) / contribution.one, noisy_sum.error(confidence)
        low, high = (np.maximum(0, noisy + side * error).tolist() for side in (-1, 1))
        return Estimate(noisy.tolist(), low, high, confidence)

    return ArrayMechanism(contribution, (noisy_sum.event,), work, ("the cells are public",))


def top_k(*, unit: Any, epsilon: Number, categories: Any, k: int, confidence: float) -> ArrayMechanism:
    """k choices, each among those left, and noisy counts of the chosen (Durfee & Rogers 2019)."""
    contribution, known = Contribution(unit), public("categories", categories)
    k = check.whole("k", k, most=len(known))
    half = rational("epsilon", epsilon) / 2
    noisy_sum = NoisySum(contribution, half)
    check.confidence(confidence)
    # A unit that is added moves all counts one way, by its weight at most: a range of that, not of twice that.
    moved = Fraction(contribution.sensitivity, 2)
    event = Exponential(float_above("epsilon", half / k))

    def work(rows: Rows) -> list[dict[str, Any]]:
        cell = codes(rows.values, known)
        weights = contribution.weights(len(cell), rows.ids)
        counts = weigh(np.maximum(cell, 0), np.where(cell < 0, 0, weights), len(known))
        chosen: list[int] = []
        for _ in range(k):
            left = np.setdiff1d(np.arange(len(known)), chosen)
            chosen.append(int(left[exponential_rows(counts[None, left], half / k, moved)[0]]))
        noisy = (counts[chosen] + discrete_laplace(noisy_sum.sensitivity / half, size=k)) / contribution.one
        t = noisy_sum.error(confidence)
        ends = [Estimate(float(n), max(0.0, float(n) - t), max(0.0, float(n) + t), confidence) for n in noisy]
        return [{"category": known[i], **end} for i, end in zip(chosen, ends)]

    return ArrayMechanism(
        contribution, (event if k == 1 else Repeat(event, k), noisy_sum.event), work, ("the categories are public",)
    )


def select(
    *, unit: Any, epsilon: Number, candidates: Iterable[Any], score: Callable[[Any, Any], Any], sensitivity: Number
) -> ArrayMechanism:
    known = public("candidates", candidates)
    if not callable(score):
        raise InvalidValue(f"score must be a function of the values and one candidate; got {type(score).__name__}.")
    share, moved = rational("epsilon", epsilon), rational("sensitivity", sensitivity)
    promise = f"one unit moves each score by at most {float(moved):g}"

    def work(rows: Rows) -> Any:
        return known[exponential([_plain(score(rows.values, item)) for item in known], share, moved)]

    return ArrayMechanism(
        Contribution(unit), (Exponential(float_above("epsilon", share)),), work, (promise, "the candidates are public")
    )


def _plain(number: Any) -> Any:
    return number.item() if isinstance(number, np.generic) else number


def bounds_pair(bounds: Any) -> tuple[Fraction, Fraction]:
    wanted = "(lower, upper), two finite numbers that were not read from the data"
    ends = check.items("bounds", bounds, wanted)
    if len(ends) != 2:
        raise InvalidValue(f"bounds must be {wanted}; got {check.shown(bounds)}.")
    lower, upper = (Fraction(check.real("bounds", end)) for end in ends)
    if not lower < upper or max(abs(lower), abs(upper)) > 2**200 or upper - lower < Fraction(1, 2**200):
        raise InvalidValue(f"bounds must be {wanted}, the first below the second; got {check.shown(bounds)}.")
    return lower, upper


def _cells(edges: Any, categories: Any) -> tuple[Callable[[Any], Ints], int]:
    if (edges is None) == (categories is None):
        raise InvalidValue("Say either edges=[...] for numbers or categories=[...]; both must be public.")
    if categories is not None:
        known = public("categories", categories)
        return lambda values: codes(values, known), len(known)
    cuts = np.array([check.real("edges", edge) for edge in check.items("edges", edges, "a list of numbers, rising")])
    if len(cuts) < 2 or not (np.diff(cuts) > 0).all():
        raise InvalidValue("edges must be at least two numbers, rising.")

    def place(values: Any) -> Ints:
        column = numbers(values)
        inside = (column >= cuts[0]) & (column <= cuts[-1])
        cell = np.searchsorted(cuts, np.where(inside, column, cuts[0]), side="right") - 1
        return np.where(inside, np.minimum(cell, len(cuts) - 2), -1).astype(np.int64)

    return place, len(cuts) - 1
