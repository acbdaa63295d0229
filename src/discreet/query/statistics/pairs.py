"""Covariances and correlations of two values within bounds, over the rows that have both."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from discreet.query.operations import Kind, Op
from discreet.query.scalars.operands import number_literal
from discreet.query.statistics.moments import Variance
from discreet.query.statistics.quantity import Quantity, RowCount, Total, bounds_of, optional
from discreet.query.statistics.statistic import (
    POPULATION,
    Cells,
    ExpectedErrors,
    NoisyNumbers,
    Statistic,
    clipped,
    each,
    ratio,
    within_typical,
)
from discreet.query.tree import Scalar

if TYPE_CHECKING:
    from discreet.query.calls import Call

Ends = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Covariance(Statistic):
    """COVAR_POP, COVAR_SAMP: the mean product of distances from the middles of both bounds, less the product of the means.

    `of` and `second` are missing where either is. Their product is of values within the bounds, so that it has bounds too.
    """

    second: Scalar | None = None

    functions: ClassVar[tuple[str, ...]] = ("COVAR_POP", "COVAR_SAMP")

    @classmethod
    def read(cls, call: Call) -> Statistic:
        one, two = call.bounded_pair()
        known = [Scalar(Op.NOT, Kind.BOOLEAN, (Scalar(Op.IS_NULL, Kind.BOOLEAN, (part,)),)) for part in (one, two)
                 if not part.required]  # fmt: skip
        return cls(_where(known, one), _where(known, two))

    @property
    def parts(self) -> tuple[Scalar, Scalar]:
        assert self.of is not None
        assert self.second is not None
        return self.of, self.second

    @property
    def count(self) -> RowCount:
        return RowCount(optional(self.of))

    @property
    def product(self) -> Total:
        one, two = self.parts
        most = _half(one) * _half(two)
        both = Scalar(Op.MUL, Kind.NUMBER, (_centred(one), _centred(two)), bounds=(-most, most),
                      required=one.required and two.required)  # fmt: skip
        return Total(both)

    @property
    def totals(self) -> tuple[Total, Total]:
        one, two = self.parts
        return Total(one, centred=True), Total(two, centred=True)

    def measures(self, others: Collection[Collection[Quantity]] = ()) -> Mapping[Quantity, float]:
        return {self.count: 0.5, **dict.fromkeys(self.totals, math.sqrt(0.75)), self.product: 1.0}

    def estimate(self, noisy: NoisyNumbers, confidence: float) -> Cells:
        return self.covariance(noisy, each(4, confidence))

    def covariance(self, noisy: NoisyNumbers, confidence: float) -> Cells:
        """The covariance, if all four intervals have this confidence."""
        halves = [_half(part) for part in self.parts]
        (one, *a), (two, *b) = (
            clipped(ratio(noisy, total, self.count, confidence), -half, half) for total, half in zip(self.totals, halves)
        )
        most = halves[0] * halves[1]
        mean, low, high = clipped(ratio(noisy, self.product, self.count, confidence), -most, most)
        ends = [x * y for x in a for y in b]
        return clipped((mean - one * two, low - np.maximum.reduce(ends), high - np.minimum.reduce(ends)), -most, most)

    def expected_error(self, errors: ExpectedErrors) -> str:
        return within_typical(errors.half_width(self.product), POPULATION)

    @property
    def clamped(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Correlation(Covariance):
    """CORR: the covariance over the roots of both variances; NULL where a variance may not be told from 0."""

    functions: ClassVar[tuple[str, ...]] = ("CORR",)

    def expected_error(self, errors: ExpectedErrors) -> str:
        return within_typical(errors.half_width(self.product))

    @property
    def variances(self) -> tuple[Variance, Variance]:
        one, two = self.parts
        return Variance(one), Variance(two)

    def measures(self, others: Collection[Collection[Quantity]] = ()) -> Mapping[Quantity, float]:
        return {**Covariance.measures(self, others), **dict.fromkeys((it.squares for it in self.variances), 1.0)}

    def estimate(self, noisy: NoisyNumbers, confidence: float) -> Cells:
        sure = each(6, confidence)
        value, low, high = self.covariance(noisy, sure)
        (one, *a), (two, *b) = (it.spread(noisy, sure, self.count) for it in self.variances)
        with np.errstate(all="ignore"):
            value = value / np.sqrt(one * two)
            least, most = np.sqrt(a[0] * b[0]), np.sqrt(a[1] * b[1])
            ends = [end / size for end in (low, high) for size in (least, most)]
            low = np.where(least > 0, np.minimum.reduce(ends), -1.0)
            high = np.where(least > 0, np.maximum.reduce(ends), 1.0)
        value = np.where(np.isfinite(value), value, math.nan)
        return clipped((value, np.fmin(low, value), np.fmax(high, value)), -1.0, 1.0)


def _where(known: list[Scalar], value: Scalar) -> Scalar:
    """The value, NULL where the other one is missing."""
    if not known:
        return value
    both = known[0] if len(known) == 1 else Scalar(Op.AND, Kind.BOOLEAN, tuple(known))
    return Scalar(Op.CASE, value.kind, (both, value, Scalar(Op.NULL, value.kind)), bounds=value.bounds)


def _half(value: Scalar) -> float:
    low, high = bounds_of(value)
    return (high - low) / 2


def _centred(value: Scalar) -> Scalar:
    """The distance from the middle of the bounds, of the value moved into them; NULL stays NULL."""
    low, high = bounds_of(value)
    middle, half = (low + high) / 2, _half(value)
    inner = Scalar(Op.GREATEST, Kind.NUMBER, (_number(value), number_literal(float(low))))
    near = Scalar(Op.LEAST, Kind.NUMBER, (inner, number_literal(float(high))))
    distance = Scalar(Op.SUB, Kind.NUMBER, (near, number_literal(middle)), bounds=(-half, half))
    known = Scalar(Op.NOT, Kind.BOOLEAN, (Scalar(Op.IS_NULL, Kind.BOOLEAN, (value,)),))
    return Scalar(Op.CASE, Kind.NUMBER, (known, distance, Scalar(Op.NULL, Kind.NUMBER)), bounds=(-half, half))


def _number(value: Scalar) -> Scalar:
    return value if value.kind == Kind.NUMBER else Scalar(Op.TO_NUMBER, Kind.NUMBER, (value,), bounds=value.bounds)
