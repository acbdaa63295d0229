"""Quantities: the whole numbers that statistics are estimated from, and how far one unit moves each of them.

A quantity is measured once, however many statistics use it. `measure` states it for an engine, `per_row` and `reach` for
arrays. docs/theory/query-bounding.md and docs/theory/query-statistics.md derive the sensitivities.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from discreet.errors import InvalidValue
from discreet.query.engines.request import Bins, Plan, Term
from discreet.query.operations import Kind, PlanKind, TermKind
from discreet.query.tree import Scalar

Floats = NDArray[np.float64]

BINS = 1 << 10  # of a histogram for quantiles
WEIGHTS = 1 << 20  # steps of a row's weight in a histogram of sampled units


@dataclass(frozen=True, slots=True)
class Measure:
    """One vector of whole numbers, by group, that one unit moves by at most `sensitivity` in l1."""

    term: Term | None  # None: the number of units, which sampling counts by itself
    sensitivity: int
    scale: float  # what one step of it stands for
    bins: Bins | None = None
    ranks: tuple[float, ...] = ()
    values: ValueCount | None = None  # whose different values are counted
    rounding: float = 0.0  # how far whole steps move what a row adds, at most: intervals include it

    @property
    def alone(self) -> bool:
        """Whether the engine is asked for it in a request of its own."""
        return self.bins is not None or self.values is not None


@dataclass(frozen=True, slots=True)
class Bounding:
    """How the rows of one unit are bounded in a query, and how many `steps` a grid has from the middle of bounds to their ends.

    `times` is 2 where units are replaced: one leaves and another comes.
    """

    plan: Plan
    times: int
    steps: int

    @property
    def sampled(self) -> bool:
        return self.plan.kind == PlanKind.SAMPLED

    @property
    def weight(self) -> int:
        """The most that the rows of one unit weigh together."""
        rows = self.plan.groups * self.plan.each if self.sampled else self.plan.rows
        return rows * self.plan.scale * self.times

    @property
    def groups(self) -> int:
        """The most groups in which one unit is counted, where units are."""
        return max(1, self.plan.groups) * self.times

    @property
    def values(self) -> int:
        """The most different values of one unit that count: one in each of its rows."""
        return self.plan.rows * self.times

    def flagged(self, kind: TermKind, of: Scalar) -> Measure:
        """How many rows have a property. Where units are sampled, the mean over a unit's rows counts, so a row has `steps`
        parts: with a single part that mean would be rounded to 0 or 1."""
        parts = self.steps if self.sampled else 1
        rounding = self.rounding(1 / parts, exact=True)
        return Measure(Term(kind, of, most=parts), self.weight * parts, 1 / (self.plan.scale * parts), rounding=rounding)

    def rounding(self, step: float, *, exact: bool = False) -> float:
        """How far a row's part is from what it stands for, at most: half a step, and where the mean over the rows of a unit
        counts another one, since that is a whole number too."""
        return (0.0 if exact else step / 2) + (step if self.sampled else 0.0)


class Quantity(ABC):
    """One thing that is measured. Subclasses are frozen dataclasses: equal quantities are measured once."""

    __slots__ = ()

    @abstractmethod
    def measure(self, unit: Bounding, ranks: tuple[float, ...] = ()) -> Measure:
        """What an engine adds up, and how far one unit moves it; `ranks` are those asked of a histogram."""

    @property
    def reach(self) -> Fraction | None:
        """The largest magnitude that one row of an array adds; None where rows are counted."""
        raise InvalidValue(f"{type(self).__name__} cannot be measured in arrays; ask for it in SQL.")

    def per_row(self, columns: Mapping[Scalar, Floats]) -> Floats | None:
        """What each row of an array adds, within +-reach; None where rows are counted."""
        raise InvalidValue(f"{type(self).__name__} cannot be measured in arrays; ask for it in SQL.")


@dataclass(frozen=True, slots=True)
class RowCount(Quantity):
    """The number of rows, or of rows in which `of` is not missing."""

    of: Scalar | None = None

    def measure(self, unit: Bounding, ranks: tuple[float, ...] = ()) -> Measure:
        if self.of is None:
            return Measure(Term(TermKind.COUNT), unit.weight, 1 / unit.plan.scale)
        return unit.flagged(TermKind.KNOWN, self.of)

    @property
    def reach(self) -> None:
        return None

    def per_row(self, columns: Mapping[Scalar, Floats]) -> None:
        return None


@dataclass(frozen=True, slots=True)
class UnitCount(Quantity):
    """The number of units, where they are sampled."""

    def measure(self, unit: Bounding, ranks: tuple[float, ...] = ()) -> Measure:
        return Measure(None, unit.groups, 1.0)


@dataclass(frozen=True, slots=True)
class ValueCount(Quantity):
    """The number of different combinations of values, in rows in which `where` holds; of each unit as many count as it may have
    rows."""

    of: tuple[Scalar, ...]
    where: Scalar | None

    def measure(self, unit: Bounding, ranks: tuple[float, ...] = ()) -> Measure:
        return Measure(None, unit.values, 1.0, values=self)


@dataclass(frozen=True, slots=True)
class Total(Quantity):
    """The sum of `of` within its bounds; `centred`, of its distance from the middle of the bounds, which needs less noise."""

    of: Scalar
    centred: bool = False

    @property
    def centre(self) -> float:
        low, high = bounds_of(self.of)
        return (low + high) / 2 if self.centred else 0.0

    def measure(self, unit: Bounding, ranks: tuple[float, ...] = ()) -> Measure:
        low, high = bounds_of(self.of)
        reach = (high - low) / 2 if self.centred else max(abs(low), abs(high))
        step, most, exact = _grid(reach, unit, whole=_whole(self.of))
        term = Term(TermKind.SUM, self.of, self.centre, step, most)
        rounding = unit.rounding(step, exact=exact)
        return Measure(term, unit.weight * most, step / unit.plan.scale, rounding=rounding)

    @property
    def reach(self) -> Fraction:
        return _distance(bounds_of(self.of), self.centre)

    def per_row(self, columns: Mapping[Scalar, Floats]) -> Floats:
        return columns[self.of] - self.centre


@dataclass(frozen=True, slots=True)
class Squares(Quantity):
    """The sum of squared distances from the middle of the bounds, each less half of the largest possible one."""

    of: Scalar

    @property
    def shift(self) -> float:
        """Half of the largest square: squares lie between 0 and twice this."""
        return _half_square(Total(self.of, centred=True).reach)

    def measure(self, unit: Bounding, ranks: tuple[float, ...] = ()) -> Measure:
        low, high = bounds_of(self.of)
        half = (high - low) / 2
        step = half * half / (2 * unit.steps)
        term = Term(TermKind.SQUARE, self.of, (low + high) / 2, step, unit.steps)
        return Measure(term, unit.weight * unit.steps, step / unit.plan.scale, rounding=unit.rounding(step))

    @property
    def reach(self) -> Fraction:
        shift = Fraction(self.shift)
        return max(Total(self.of, centred=True).reach ** 2 - shift, shift)

    def per_row(self, columns: Mapping[Scalar, Floats]) -> Floats:
        centred = Total(self.of, centred=True).per_row(columns)
        squares: Floats = centred * centred - self.shift
        return squares


@dataclass(frozen=True, slots=True)
class Histogram(Quantity):
    """How many rows have `of` in each of equal bins between its bounds; whole numbers in a small range have a bin each."""

    of: Scalar

    def measure(self, unit: Bounding, ranks: tuple[float, ...] = ()) -> Measure:
        low, high = bounds_of(self.of)
        bins = BINS
        if _whole(self.of) and high - low < BINS:
            low, high = low - 0.5, high + 0.5
            bins = round(high - low)
        weight = unit.weight * (WEIGHTS if unit.sampled else 1)
        return Measure(None, weight, 1 / unit.plan.scale, Bins(self.of, low, high, bins), ranks)


@dataclass(frozen=True, slots=True)
class Outside(Quantity):
    """The number of rows in which `of` lies outside its bounds."""

    of: Scalar

    def measure(self, unit: Bounding, ranks: tuple[float, ...] = ()) -> Measure:
        return unit.flagged(TermKind.OUTSIDE, self.of)


@dataclass(frozen=True, slots=True)
class Cut(Quantity):
    """What bounding the rows of units removed: the weight of rows that weigh less than a whole one; of sampled units, how many
    had more rows in a group than count."""

    def measure(self, unit: Bounding, ranks: tuple[float, ...] = ()) -> Measure:
        if unit.sampled:
            return Measure(Term(TermKind.CUT), unit.groups, 1.0)
        return Measure(Term(TermKind.CUT), unit.weight, 1 / unit.plan.scale)


def bounds_of(of: Scalar | None) -> tuple[float, float]:
    """The bounds of an expression that is added up; parsing refuses one without bounds."""
    assert of is not None
    assert of.bounds is not None
    return of.bounds


def optional(of: Scalar | None) -> Scalar | None:
    """The expression, or None where it is never missing: counting it is then counting rows."""
    return None if of is not None and of.required else of


@lru_cache(256)
def _distance(bounds: tuple[float, float], centre: float) -> Fraction:
    """The largest distance of a number within the bounds from the centre, exactly."""
    return max(abs(Fraction(end) - Fraction(centre)) for end in bounds)


@lru_cache(256)
def _half_square(distance: Fraction) -> float:
    return float(distance**2 / 2)


def _whole(of: Scalar) -> bool:
    low, high = bounds_of(of)
    return of.kind == Kind.INTEGER and low == int(low) and high == int(high)


def _grid(reach: float, unit: Bounding, *, whole: bool) -> tuple[float, int, bool]:
    """(step, steps to the end, whether values are whole steps). Whole numbers stay exact where the grid has as many steps: half
    steps, since the middle of bounds may be a half; finer ones where means over the rows of a unit are added."""
    if whole and 2 * reach <= unit.steps:
        parts = unit.steps // round(2 * reach) if unit.sampled else 1
        return 0.5 / parts, round(2 * reach) * parts, True
    return reach / unit.steps, unit.steps, False
