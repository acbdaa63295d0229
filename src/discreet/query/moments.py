"""Counts, sums and what is made of them: each plan says what it claims before it sees a row.

docs/theory/query-statistics.md derives the sensitivities and the intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from discreet.core import Claim, DiscreteLaplace, Event, Exponential, Game, Repeat, check
from discreet.core import Sequence as Several
from discreet.errors import InvalidValue
from discreet.noise import discrete_laplace, discrete_laplace_error, exponential, exponential_rows
from discreet.noise.grid import Grid
from discreet.noise.samplers import Number, float_above, float_below, rational
from discreet.query.quantiles import Quantiles
from discreet.query.rows import Contribution, Floats, Ints, Rows, codes, column, numbers, public

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
class Plan:
    """A mechanism: what it claims is fixed before any row is read."""

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
class Piece:
    """One noisy sum: numbers within +-reach, in whole steps of a grid, times weights, plus discrete Laplace noise.

    >>> from discreet.core import record
    >>> Piece(Contribution(record()), Fraction(1, 2)).event
    DiscreteLaplace(scale=2.0, sensitivity=1)
    """

    contribution: Contribution
    epsilon: Fraction
    reach: Fraction | None = None  # None: rows are counted

    @property
    def step(self) -> Fraction:
        """A power of two, so that whole numbers stay whole, as fine as the sensitivity's limit lets it be."""
        steps = min(FINEST, WIDEST // self.contribution.sensitivity)
        return Fraction(1) if self.reach is None else Fraction(2) ** math.ceil(math.log2(self.reach / steps) + 1e-9)

    @property
    def sensitivity(self) -> int:
        return self.contribution.sensitivity * self.most

    @property
    def most(self) -> int:
        """The largest magnitude of a number, in steps."""
        return 1 if self.reach is None else max(1, Grid(self.step).step(self.reach))

    @property
    def event(self) -> Event:
        return DiscreteLaplace(float_below("scale", self.sensitivity / self.epsilon), self.sensitivity)

    def total(self, values: Floats | None, weights: Ints) -> int:
        """The sum before noise, in steps x weight; private."""
        if values is None:
            return _add(weights)
        steps = Grid(self.step).steps(np.where(weights > 0, values, 0.0))
        return _add(np.clip(np.asarray(steps), -self.most, self.most) * weights)

    def noisy(self, values: Floats | None, weights: Ints) -> float:
        found = self.total(values, weights) + discrete_laplace(self.sensitivity / self.epsilon)
        return float(found * self.step / self.contribution.one)

    def error(self, confidence: float) -> float:
        """How far the noise moves the sum, at this confidence."""
        t = discrete_laplace_error(float(self.sensitivity / self.epsilon), confidence)
        return t * float(self.step) / self.contribution.one


def count_plan(*, unit: Any, epsilon: Number, confidence: float) -> Plan:
    contribution = Contribution(unit)
    piece = Piece(contribution, rational("epsilon", epsilon))
    check.open_fraction("confidence", confidence)

    def work(rows: Rows) -> Estimate:
        found, t = piece.noisy(None, contribution.weights(len(column(rows.values)), rows.ids)), piece.error(confidence)
        return Estimate(found, max(0.0, found - t), max(0.0, found + t), confidence)

    return Plan(contribution, (piece.event,), work)


def sum_plan(*, unit: Any, epsilon: Number, bounds: Any, confidence: float) -> Plan:
    contribution = Contribution(unit)
    lower, upper = _bounds(bounds)
    piece = Piece(contribution, rational("epsilon", epsilon), max(abs(lower), abs(upper)))
    check.open_fraction("confidence", confidence)

    def work(rows: Rows) -> Estimate:
        values, weights = _clipped(rows, contribution, (lower, upper))
        found, t = piece.noisy(values, weights), piece.error(confidence)
        return Estimate(found, found - t, found + t, confidence)

    return Plan(contribution, (piece.event,), work)


def mean_plan(*, unit: Any, epsilon: Number, bounds: Any, confidence: float) -> Plan:
    contribution, limits = Contribution(unit), _bounds(bounds)
    middle, half = _centre(limits)
    share = rational("epsilon", epsilon) / 2
    people, sums = Piece(contribution, share), Piece(contribution, share, half)
    check.open_fraction("confidence", confidence)

    def work(rows: Rows) -> Estimate:
        values, weights = _clipped(rows, contribution, limits)
        each = 1 - (1 - confidence) / 2
        n, t = people.noisy(None, weights), people.error(each)
        s = sums.noisy(values - float(middle), weights)
        low, high = _ratio(s, sums.error(each), n, t, float(half))
        value = min(max(s / n, -float(half)), float(half)) if n > 0 else 0.0
        value, low, high = (_shifted(end, middle, limits) for end in (value, min(low, value), max(high, value)))
        return Estimate(value, low, high, confidence)

    return Plan(contribution, (people.event, sums.event), work)


def variance_plan(*, unit: Any, epsilon: Number, bounds: Any, confidence: float) -> Plan:
    inner = covariance_plan(unit=unit, epsilon=epsilon, bounds=[bounds], confidence=confidence)

    def work(rows: Rows) -> Estimate:
        found = inner.work(Rows([rows.values], rows.ids))
        value, low, high = (max(0.0, end[0][0]) for end in (found.value, found.low, found.high))
        return Estimate(value, low, high, confidence)

    return Plan(inner.contribution, inner.events, work)


def covariance_plan(*, unit: Any, epsilon: Number, bounds: Any, confidence: float) -> Plan:
    """A noisy count, a noisy sum per column and a noisy sum of products per pair, all centred within their bounds."""
    contribution = Contribution(unit)
    limits = [_bounds(item) for item in check.items("bounds", bounds, "a list of (lower, upper), one per column")]
    if not 0 < len(limits) <= 100:
        raise InvalidValue(f"bounds must be given for 1 to 100 columns; got {len(limits)}.")
    check.open_fraction("confidence", confidence)
    third, d = rational("epsilon", epsilon) / 3, len(limits)
    centres = [_centre(item) for item in limits]
    pairs = [(i, j) for i in range(d) for j in range(i + 1)]
    people = Piece(contribution, third)
    sums = [Piece(contribution, third / d, half) for _, half in centres]
    products = {(i, j): Piece(contribution, third / len(pairs), _reach(centres, i, j)) for i, j in pairs}
    noises = 1 + d + len(pairs)

    def work(rows: Rows) -> Estimate:
        table, weights = _table(rows, contribution, limits)
        share = 1 - (1 - confidence) / noises
        centred = [values - float(middle) for values, (middle, _) in zip(table, centres)]
        n, t = people.noisy(None, weights), people.error(share)
        first = [(piece.noisy(values, weights), piece.error(share)) for piece, values in zip(sums, centred)]
        out = np.zeros((3, d, d))
        for (i, j), piece in products.items():
            shift = float(_shift(centres, i, j))
            second = piece.noisy(centred[i] * centred[j] - shift, weights), piece.error(share)
            ends = _covariance(second, first[i], first[j], (n, t), shift, float(centres[i][1]), float(centres[j][1]))
            out[:, i, j] = out[:, j, i] = ends
        value, low, high = (part.tolist() for part in out)
        return Estimate(value, low, high, confidence)

    return Plan(contribution, (people.event, *(p.event for p in sums), *(p.event for p in products.values())), work)


def quantile_plan(
    *, unit: Any, epsilon: Number, bounds: Any, targets: Any, bins: int, confidence: float, interval_share: float = 0.5
) -> Plan:
    contribution = Contribution(unit)
    lower, upper = map(float, _bounds(bounds))
    bins = check.whole("bins", bins, most=1 << 20)
    several = isinstance(targets, (list, tuple, np.ndarray))
    asked = targets if several else (targets,)
    mechanism = Quantiles(asked, epsilon, contribution.sensitivity, interval_share, confidence)
    width = (upper - lower) / bins

    def work(rows: Rows) -> Estimate:
        values, weights = _clipped(rows, contribution, (Fraction(lower), Fraction(upper)))
        place = np.clip(np.floor((np.where(weights > 0, values, lower) - lower) / width), 0, bins - 1).astype(np.int64)
        found = mechanism.run(_weigh(place, weights, bins)[None, :])
        ends = [lower + (part[0] + at) * width for part, at in zip(found, (0.5, 0.0, 1.0))]
        value, low, high = (end.tolist() if several else float(end[0]) for end in ends)
        return Estimate(value, low, high, confidence)

    return Plan(contribution, mechanism.events, work, ("the grid of values is public",))


def histogram_plan(*, unit: Any, epsilon: Number, confidence: float, edges: Any = None, categories: Any = None) -> Plan:
    contribution = Contribution(unit)
    piece = Piece(contribution, rational("epsilon", epsilon))
    check.open_fraction("confidence", confidence)
    place, cells = _cells(edges, categories)

    def work(rows: Rows) -> Estimate:
        cell = place(rows.values)
        weights = contribution.weights(len(cell), rows.ids)
        counts = _weigh(np.maximum(cell, 0), np.where(cell < 0, 0, weights), cells)
        noise = discrete_laplace(piece.sensitivity / piece.epsilon, size=cells)
        found, t = (counts + noise) / contribution.one, piece.error(confidence)
        return Estimate(found.tolist(), np.maximum(0, found - t).tolist(), np.maximum(0, found + t).tolist(), confidence)

    return Plan(contribution, (piece.event,), work, ("the cells are public",))


def top_k_plan(*, unit: Any, epsilon: Number, categories: Any, k: int, confidence: float) -> Plan:
    """k choices, each among those left, and noisy counts of the chosen (Durfee & Rogers 2019)."""
    contribution, known = Contribution(unit), public("categories", categories)
    k = check.whole("k", k, most=len(known))
    half = rational("epsilon", epsilon) / 2
    piece = Piece(contribution, half)
    check.open_fraction("confidence", confidence)
    # A unit that is added moves all counts one way, by its weight at most: a range of that, not of twice that.
    moved = Fraction(contribution.sensitivity, 2)
    event = Exponential(float_above("epsilon", half / k))

    def work(rows: Rows) -> list[dict[str, Any]]:
        cell = codes(rows.values, known)
        weights = contribution.weights(len(cell), rows.ids)
        counts = _weigh(np.maximum(cell, 0), np.where(cell < 0, 0, weights), len(known))
        chosen: list[int] = []
        for _ in range(k):
            left = np.setdiff1d(np.arange(len(known)), chosen)
            chosen.append(int(left[exponential_rows(counts[None, left], half / k, moved)[0]]))
        noisy = (counts[chosen] + discrete_laplace(piece.sensitivity / half, size=k)) / contribution.one
        t = piece.error(confidence)
        ends = [Estimate(float(n), max(0.0, float(n) - t), max(0.0, float(n) + t), confidence) for n in noisy]
        return [{"category": known[i], **end} for i, end in zip(chosen, ends)]

    return Plan(contribution, (event if k == 1 else Repeat(event, k), piece.event), work, ("the categories are public",))


def select_plan(
    *, unit: Any, epsilon: Number, candidates: Iterable[Any], score: Callable[[Any, Any], Any], sensitivity: Number
) -> Plan:
    known = public("candidates", candidates)
    if not callable(score):
        raise InvalidValue(f"score must be a function of the values and one candidate; got {type(score).__name__}.")
    share, moved = rational("epsilon", epsilon), rational("sensitivity", sensitivity)
    said = f"one unit moves each score by at most {float(moved):g}"

    def work(rows: Rows) -> Any:
        return known[exponential([_plain(score(rows.values, item)) for item in known], share, moved)]

    return Plan(Contribution(unit), (Exponential(float_above("epsilon", share)),), work, (said, "the candidates are public"))


def _plain(number: Any) -> Any:
    return number.item() if isinstance(number, np.generic) else number


def _bounds(bounds: Any) -> tuple[Fraction, Fraction]:
    wanted = "(lower, upper), two finite numbers that were not read from the data"
    ends = check.items("bounds", bounds, wanted)
    if len(ends) != 2:
        raise InvalidValue(f"bounds must be {wanted}; got {check.shown(bounds)}.")
    lower, upper = (Fraction(check.real("bounds", end)) for end in ends)
    if not lower < upper or max(abs(lower), abs(upper)) > 2**200 or upper - lower < Fraction(1, 2**200):
        raise InvalidValue(f"bounds must be {wanted}, the first below the second; got {check.shown(bounds)}.")
    return lower, upper


def _centre(limits: tuple[Fraction, Fraction]) -> tuple[Fraction, Fraction]:
    """The middle as a float has it, and the farthest that a number within the bounds is from it."""
    middle = Fraction(float(sum(limits) / 2))
    return middle, max(limits[1] - middle, middle - limits[0])


def _reach(centres: Sequence[tuple[Fraction, Fraction]], i: int, j: int) -> Fraction:
    """The farthest that a product of two centred numbers is from its own centre."""
    most = centres[i][1] * centres[j][1]
    shift = _shift(centres, i, j)
    return max(most - shift, shift)


def _shift(centres: Sequence[tuple[Fraction, Fraction]], i: int, j: int) -> Fraction:
    """Squares are between 0 and their bound, so their centre is half of it; other products are centred as they are."""
    return Fraction(float(centres[i][1] ** 2 / 2)) if i == j else Fraction(0)


def _clipped(rows: Rows, contribution: Contribution, limits: tuple[Fraction, Fraction]) -> tuple[Floats, Ints]:
    table, weights = _table(Rows([rows.values], rows.ids), contribution, [limits])
    return table[0], weights


def _table(rows: Rows, contribution: Contribution, limits: Sequence[tuple[Fraction, Fraction]]) -> tuple[list[Floats], Ints]:
    """Columns within their bounds, and weights: 0 for a row with a number missing, whose values then do not matter."""
    values = rows.values
    if isinstance(values, np.ndarray) and values.ndim == 2:
        values = list(values.T)
    elif hasattr(values, "columns"):  # a data frame
        values = [values[name] for name in values.columns]
    table = [numbers(item) for item in values]
    if len(table) != len(limits) or len({len(item) for item in table}) != 1:
        raise InvalidValue(f"values must have {len(limits)} columns of one length, one for each pair of bounds; they have not.")
    weights = contribution.weights(len(table[0]), rows.ids)
    known = ~np.any([np.isnan(item) for item in table], axis=0)
    ends = [(float(lower), float(upper)) for lower, upper in limits]
    return [np.clip(np.where(known, item, end[0]), *end) for item, end in zip(table, ends)], np.where(known, weights, 0)


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
        found = numbers(values)
        inside = (found >= cuts[0]) & (found <= cuts[-1])
        cell = np.searchsorted(cuts, np.where(inside, found, cuts[0]), side="right") - 1
        return np.where(inside, np.minimum(cell, len(cuts) - 2), -1).astype(np.int64)

    return place, len(cuts) - 1


def _weigh(cell: Ints, weights: Ints, cells: int) -> Ints:
    """The weight in each cell, in whole numbers."""
    high, low = (np.bincount(cell, weights=part, minlength=cells) for part in (weights >> 10, weights & 1023))
    return high.astype(np.int64) * 1024 + low.astype(np.int64)


def _add(numbers: Ints) -> int:
    return int((numbers >> 26).sum()) * (1 << 26) + int((numbers & ((1 << 26) - 1)).sum())  # no overflow below 2^36 rows


def _ratio(s: float, s_error: float, n: float, n_error: float, most: float) -> tuple[float, float]:
    """All values of (s +- error) / (n +- error) that are within +-most."""
    if n - n_error <= 0:
        return -most, most
    ends = [(s + a) / (n + b) for a in (-s_error, s_error) for b in (-n_error, n_error)]
    return max(-most, min(ends)), min(most, max(ends))


def _shifted(end: float, middle: Fraction, limits: tuple[Fraction, Fraction]) -> float:
    return min(max(float(middle) + end, float(limits[0])), float(limits[1]))


def _covariance(
    product: tuple[float, float], one: tuple[float, float], other: tuple[float, float], people: tuple[float, float],
    shift: float, one_most: float, other_most: float,
) -> tuple[float, float, float]:  # fmt: skip
    """E[xy] - E[x] E[y] of centred columns, and all that it may be when every noise is within its error."""
    n, most = people[0], one_most * other_most
    a, b = _ratio(*one, *people, one_most), _ratio(*other, *people, other_most)
    c = _ratio(*product, *people, most - shift)
    crossed = [x * y for x in a for y in b]
    if shift:  # the same column: a square is not below 0
        crossed = [0.0 if a[0] <= 0 <= a[1] else min(crossed), max(crossed)]
    low, high = max(-most, c[0] + shift - max(crossed)), min(most, c[1] + shift - min(crossed))
    if n <= 0:
        return 0.0, low, high
    value = product[0] / n + shift - one[0] / n * other[0] / n
    return min(max(value, low), high), low, high
