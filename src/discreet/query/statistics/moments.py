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
    narrowed,
    ratio,
    within,
    within_typical,
)
from discreet.query.together import Floats, Reach, quotient

FEW = 1 << 6  # one in so many of the answers that the interval of a variance may miss are for the mean


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
        reach = noisy.reach((self.centred, self.count), confidence)
        if reach is None:
            return value, low, high
        error = reach.of((1.0, abs(self.middle)))
        return narrowed((value, low, high), value - error, value + error, reach)

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
        value, low, high = self.distance(noisy, confidence)
        return clipped((self.middle + value, self.middle + low, self.middle + high), *self.bounds)

    def distance(self, noisy: NoisyNumbers, confidence: float) -> Cells:
        """The mean distance from the middle."""
        rough = ratio(noisy, self.centred, self.count, each(2, confidence))
        reach = noisy.reach((self.centred, self.count), confidence)
        if reach is None:
            return rough
        return narrowed(rough, *quotient(noisy.value(self.centred), noisy.value(self.count), reach, self.half), reach)

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
        rough = self.spread(noisy, each(3, confidence))
        reach = noisy.reach((self.squares, self.centred, self.count), each(FEW / (FEW - 1), confidence))
        if reach is None:
            return rough
        means = self.distance(noisy, each(FEW, confidence))
        return narrowed(rough, *self._ends(noisy, rough[0], clipped(means, -self.half, self.half), reach), reach)

    def _ends(self, noisy: NoisyNumbers, value: Floats, means: Cells, reach: Reach) -> tuple[Floats, Floats]:
        """The variance v. For the true mean m the sum of squares - 2 m x the sum + (m^2 - v) x the count is all noise; it is
        the count times (v' + (m - m')^2 - v) of the noisy ones; m is within its own interval."""
        count, squares, sums = (noisy.value(quantity) for quantity in (self.count, self.squares, self.centred))
        most, shift = self.half**2, self.squares.shift
        low, high = np.zeros_like(value), np.full_like(value, most)
        for i in np.flatnonzero(count > 0).tolist():
            m, around = sums[i] / count[i], [part[i] for part in means[1:]]
            middle = shift + squares[i] / count[i] - m * m
            off = [(end - m) ** 2 for end in around]
            nearest = 0.0 if around[0] <= m <= around[1] else min(off)
            for _ in range(2):  # the noise by the largest variance there may be, then by that of the interval
                weight = max(abs(shift + a - b) for a in (0.0, max(end * end for end in around)) for b in (low[i], high[i]))
                error = reach.of_group(i, (1.0, 2 * max(map(abs, around)), weight)) / count[i]
                low[i] = min(max(middle + nearest - error, 0.0), most)
                high[i] = min(max(middle + max(off) + error, 0.0), most)
        return low, high

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
