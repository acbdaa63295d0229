"""Sums, means, variances and standard deviations of values within bounds."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from discreet.query.statistics.quantity import Quantity, RowCount, Squares, Total, bounds_of, optional
from discreet.query.statistics.statistic import (
    POPULATION,
    Cells,
    ExpectedErrors,
    NoisyNumbers,
    Statistic,
    clipped,
    each,
    ratio,
    within,
    within_typical,
)
from discreet.query.together import Reach, quotient


@dataclass(frozen=True, slots=True)
class _Bounded(Statistic):
    """A statistic of one number within bounds."""

    @property
    def bounds(self) -> tuple[float, float]:
        return bounds_of(self.of)

    @property
    def middle(self) -> float:
        return sum(self.bounds) / 2

    @property
    def half(self) -> float:
        low, high = self.bounds
        return (high - low) / 2

    @property
    def count(self) -> RowCount:
        return RowCount(optional(self.of))

    @property
    def centred(self) -> Total:
        assert self.of is not None
        return Total(self.of, centred=True)


@dataclass(frozen=True, slots=True)
class Sum(_Bounded):
    """SUM: measured as it is, or from a count that is measured anyway and the sum of distances from the middle of the bounds,
    which needs less noise."""

    functions: ClassVar[tuple[str, ...]] = ("SUM",)

    @property
    def plain(self) -> Total:
        assert self.of is not None
        return Total(self.of)

    def measures(self, others: Collection[Collection[Quantity]] = ()) -> Mapping[Quantity, float]:
        if not any(self.centred in other or set(other) == {self.count} for other in others):
            return {self.plain: 1.0}
        reach = max(map(abs, self.bounds))
        return {self.count: abs(self.middle) / reach, self.centred: self.half / reach}

    def estimate(self, noisy: NoisyNumbers, confidence: float) -> Cells:
        if self.plain in noisy:
            return noisy.value(self.plain), *noisy.ends(self.plain, confidence)
        value = noisy.value(self.centred) + self.middle * noisy.value(self.count)
        sums, counts = (noisy.ends(quantity, each(2, confidence)) for quantity in (self.centred, self.count))
        low, high = (sums[i] + self.middle * counts[i if self.middle >= 0 else 1 - i] for i in (0, 1))
        return value, low, high

    def expected_error(self, errors: ExpectedErrors) -> str:
        if self.plain in errors:
            return within(errors.half_width(self.plain))
        return within(errors.half_width(self.centred) + abs(self.middle) * errors.half_width(self.count), "about ")


@dataclass(frozen=True, slots=True)
class Mean(_Bounded):
    """AVG: the noisy sum of distances from the middle of the bounds, over the noisy count."""

    functions: ClassVar[tuple[str, ...]] = ("AVG",)

    def measures(self, others: Collection[Collection[Quantity]] = ()) -> Mapping[Quantity, float]:
        return {self.count: 0.5, self.centred: math.sqrt(0.75)}  # of a mean halfway to a bound; together as wrong as a count

    def estimate(self, noisy: NoisyNumbers, confidence: float) -> Cells:
        value, low, high = ratio(noisy, self.centred, self.count, each(2, confidence))
        reach = noisy.reach(self.centred, self.count, confidence)
        if reach is not None:
            low, high = quotient(noisy.value(self.centred), noisy.value(self.count), reach, self.half)
        return clipped((self.middle + value, self.middle + low, self.middle + high), *self.bounds)

    def expected_error(self, errors: ExpectedErrors) -> str:
        return within_typical(errors.half_width(self.centred))


@dataclass(frozen=True, slots=True)
class Variance(Mean):
    """VARIANCE: the mean square of distances from the middle of the bounds, less the square of their mean."""

    functions: ClassVar[tuple[str, ...]] = ("VARIANCE", "VARIANCE_POP", "VAR", "VARP")

    def expected_error(self, errors: ExpectedErrors) -> str:
        return within_typical(errors.half_width(self.centred), POPULATION)

    @property
    def squares(self) -> Squares:
        assert self.of is not None
        return Squares(self.of)

    def measures(self, others: Collection[Collection[Quantity]] = ()) -> Mapping[Quantity, float]:
        return {**Mean.measures(self, others), self.squares: 1.0}

    def estimate(self, noisy: NoisyNumbers, confidence: float) -> Cells:
        means, squares = (noisy.reach(part, self.count, each(2, confidence)) for part in (self.centred, self.squares))
        if means is None or squares is None:
            return self.spread(noisy, each(3, confidence))
        return self._within(self._mean_of(noisy, self.centred, means, self.half),
                            self._mean_of(noisy, self.squares, squares, self.half**2 / 2))  # fmt: skip

    def _mean_of(self, noisy: NoisyNumbers, above: Quantity, reach: Reach, half: float) -> Cells:
        """A mean within +-half, with an interval from the noise of its sum less itself times the count."""
        value, *_ = ratio(noisy, above, self.count, 0.5)
        return value, *quotient(noisy.value(above), noisy.value(self.count), reach, half)

    def spread(self, noisy: NoisyNumbers, confidence: float, count: RowCount | None = None) -> Cells:
        """The variance, if all three intervals have this confidence; `count` is another one of the same rows."""
        count = count or self.count
        return self._within(ratio(noisy, self.centred, count, confidence), ratio(noisy, self.squares, count, confidence))

    def _within(self, means: Cells, squares: Cells) -> Cells:
        """The variance, from both means with their intervals."""
        most = self.half**2
        mean, mean_low, mean_high = clipped(means, -self.half, self.half)
        rest, rest_low, rest_high = (most / 2 + part for part in squares)
        furthest = np.maximum(mean_low**2, mean_high**2)
        nearest = np.where((mean_low <= 0) & (mean_high >= 0), 0.0, np.minimum(mean_low**2, mean_high**2))
        return clipped((rest - mean**2, rest_low - furthest, rest_high - nearest), 0.0, most)


@dataclass(frozen=True, slots=True)
class Deviation(Variance):
    """STDDEV: the root of the variance."""

    functions: ClassVar[tuple[str, ...]] = ("STDDEV", "STDDEV_SAMP", "STDDEV_POP", "STD", "STDEV", "STDEVP")

    def estimate(self, noisy: NoisyNumbers, confidence: float) -> Cells:
        value, low, high = (np.sqrt(part) for part in Variance.estimate(self, noisy, confidence))
        return value, low, high
