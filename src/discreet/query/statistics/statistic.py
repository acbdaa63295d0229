"""What a statistic is: one class says what it measures, how it is estimated from noisy numbers, and how wrong it may be.

SQL and arrays share these classes. To add an aggregate, write one class and add it to `STATISTICS`; from outside the package,
pass it to `connect(statistics=...)` or to `arrays.estimate`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from discreet.query.statistics.quantity import Quantity
from discreet.query.together import Reach
from discreet.query.tree import Scalar

if TYPE_CHECKING:
    from discreet.query.calls import Call

SUREST = 1 - 2.0**-53  # the largest confidence that a float has
CONFIDENCE = 0.95  # of the intervals in an answer, unless another is asked for
MOST_ROWS = 1 << 28  # of a group, whose rounding an interval includes where nothing measured tells how many there are
PART = 1 << 10  # one in so many of the answers that an interval may miss are for the number of rows
OFTEN = "in 95 of 100 answers"
TYPICAL = 1_000  # rows of the group for which the error of a ratio is stated
POPULATION = "of the rows themselves (divided by n, also where others divide by n - 1), "
Cells = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]  # value, low, high; one entry per group


class NoisyNumbers(Protocol):
    """Released quantities. All statistics of an answer are estimated from the same ones."""

    def __contains__(self, quantity: Quantity) -> bool: ...

    def value(self, quantity: Quantity) -> NDArray[Any]:
        """The noisy number of each group."""
        ...

    def ends(self, quantity: Quantity, confidence: float) -> tuple[NDArray[Any], NDArray[Any]]:
        """The interval of the number without noise, at this confidence."""
        ...

    def reach(self, quantities: Sequence[Quantity], confidence: float) -> Reach | None:
        """How far a weighted sum of these numbers is from what it is of the rows as they are, at most, at this confidence; None
        where both ends of each number are all that is known."""
        ...

    def whole(self, quantity: Quantity) -> bool:
        """Whether the number without noise is whole."""
        ...

    def ranked(self, quantity: Quantity, rank: float, confidence: float) -> Cells:
        """The quantile of this rank that was chosen from a histogram, with its interval at this confidence."""
        ...


class ExpectedErrors(Protocol):
    """How far noise moves each quantity: known before a row is read."""

    def __contains__(self, quantity: Quantity) -> bool: ...

    def half_width(self, quantity: Quantity) -> float:
        """Half of the interval at the confidence that is asked for."""
        ...


@dataclass(frozen=True, slots=True)
class Statistic(ABC):
    """An aggregate of the rows of a group. `of` is the expression it is of, or None for all rows."""

    of: Scalar | None = None

    functions: ClassVar[tuple[str, ...]] = ()  # names of the SQL functions that ask for it, in capitals
    needs_bounds: ClassVar[bool] = True  # it is of an expression with bounds, not of whole rows
    counts_units: ClassVar[bool] = False  # units are counted, so each must be sampled into few groups
    least: ClassVar[float] = -math.inf  # no true value is less; intervals of arrays end there

    @classmethod
    def read(cls, call: Call) -> Statistic:
        """The statistic that a call in SQL asks for: here of one number with bounds."""
        return cls(call.bounded())

    @classmethod
    def read_columns(cls, call: Call) -> dict[str, Statistic]:
        """The statistics of a call that makes several columns, by the suffix of their names; empty for one column."""
        return {}

    @abstractmethod
    def measures(self, others: Collection[Collection[Quantity]] = ()) -> Mapping[Quantity, float]:
        """The quantities it is estimated from, and how much of its relative error each brings, where 1 is that of a count.

        `others` are the quantities of all statistics of the query, for one that can use what is measured anyway.
        """

    @abstractmethod
    def estimate(self, noisy: NoisyNumbers, confidence: float) -> Cells:
        """The value and its interval in each group, from noisy numbers."""

    def expected_error(self, errors: ExpectedErrors) -> str:
        """How wrong the estimate may be, as a sentence, before a row is read: here of one quantity."""
        return within(errors.half_width(next(iter(self.measures()))))

    @property
    def ranks(self) -> tuple[float, ...]:
        """The ranks it asks of a histogram."""
        return ()

    @property
    def clamped(self) -> Scalar | None:
        """The expression whose values are moved into bounds, if any: `bias=True` reports how many were."""
        return self.of


def within(error: float, about: str = "") -> str:
    return f"within {about}{error:,.4g} {OFTEN}"


def within_typical(error: float, what: str = "") -> str:
    """The error of a ratio, for a group of typical size."""
    return f"{what}within about {error / TYPICAL:,.4g} in a group of {TYPICAL:,} rows, {OFTEN}"


def each(parts: float, confidence: float) -> float:
    """The confidence each of several parts needs for all of them together to have this one (Bonferroni): always below 1."""
    return min(1 - (1 - confidence) / parts, SUREST)


def ratio(noisy: NoisyNumbers, above: Quantity, below: Quantity, confidence: float) -> Cells:
    """A noisy sum over a noisy count; unbounded where the count may be 0. Both intervals hold at `confidence`."""
    top, bottom = noisy.value(above), noisy.value(below)
    (a, b), (least, most) = noisy.ends(above, confidence), noisy.ends(below, confidence)
    least = np.maximum(least, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.where(bottom > 0, top / bottom, 0.0)
        low = np.where(least > 0, np.minimum(a / least, a / most), -math.inf)
        high = np.where(least > 0, np.maximum(b / least, b / most), math.inf)
    return value, low, high


def narrowed(rough: Cells, low: NDArray[Any], high: NDArray[Any], reach: Reach) -> Cells:
    """An interval from the noise of a weighted sum, where that is known; of other groups also the rough one."""
    value, least, most = rough
    low, high = np.where(reach.known, low, np.minimum(low, least)), np.where(reach.known, high, np.maximum(high, most))
    return value, np.minimum(low, value), np.maximum(high, value)


def clipped(cells: Cells, low: float, high: float) -> Cells:
    value, least, most = (np.clip(part, low, high) for part in cells)
    return value, least, most
