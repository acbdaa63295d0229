"""Counts of rows, of known values and of units."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from discreet.query.statistics.quantity import Quantity, RowCount, UnitCount, ValueCount, optional
from discreet.query.statistics.statistic import Cells, NoisyNumbers, Statistic

if TYPE_CHECKING:
    from discreet.query.calls import Call
    from discreet.query.tree import Scalar


def _count(noisy: NoisyNumbers, quantity: Quantity, confidence: float) -> Cells:
    """A count; whole where what is counted is whole, though noise that is shared comes in finer steps."""
    value, (low, high) = noisy.value(quantity), noisy.ends(quantity, confidence)
    if noisy.whole(quantity):
        value = np.round(value) + 0.0  # there is one zero
    return value, np.minimum(low, value), np.maximum(high, value)


@dataclass(frozen=True, slots=True)
class Count(Statistic):
    """COUNT(*): rows. COUNT(x) and COUNT_IF: rows in which `of` is not missing."""

    functions: ClassVar[tuple[str, ...]] = ("COUNT", "COUNT_IF")
    needs_bounds: ClassVar[bool] = False
    least: ClassVar[float] = 0.0

    @classmethod
    def read(cls, call: Call) -> Statistic:
        if call.name == "COUNT_IF":
            return cls(call.rows_where(call.argument))
        call.check_single()
        if call.star:
            return cls() if call.filter is None else cls(call.rows_where(None))
        if call.distinct:
            return CountUnits() if call.distinct_unit() else CountValues(None, *call.distinct_values())
        return cls(optional(call.expression()))

    def measures(self, others: Collection[Collection[Quantity]] = ()) -> Mapping[Quantity, float]:
        return {RowCount(optional(self.of)): 1.0}

    def estimate(self, noisy: NoisyNumbers, confidence: float) -> Cells:
        return _count(noisy, RowCount(optional(self.of)), confidence)

    @property
    def clamped(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class CountUnits(Statistic):
    """COUNT(DISTINCT key), where the key says whose row it is: the number of units."""

    needs_bounds: ClassVar[bool] = False
    counts_units: ClassVar[bool] = True

    def measures(self, others: Collection[Collection[Quantity]] = ()) -> Mapping[Quantity, float]:
        return {UnitCount(): 1.0}

    def estimate(self, noisy: NoisyNumbers, confidence: float) -> Cells:
        return _count(noisy, UnitCount(), confidence)


@dataclass(frozen=True, slots=True)
class CountValues(Statistic):
    """COUNT(DISTINCT x): how many different values there are, or different (x, y) together, in rows in which `where` holds. Of
    one unit at most as many count as it may have rows."""

    needs_bounds: ClassVar[bool] = False

    values: tuple[Scalar, ...] = ()
    where: Scalar | None = None

    @property
    def quantity(self) -> ValueCount:
        return ValueCount(self.values, self.where)

    def measures(self, others: Collection[Collection[Quantity]] = ()) -> Mapping[Quantity, float]:
        return {self.quantity: 1.0}

    def estimate(self, noisy: NoisyNumbers, confidence: float) -> Cells:
        return _count(noisy, self.quantity, confidence)

    @property
    def clamped(self) -> None:
        return None
