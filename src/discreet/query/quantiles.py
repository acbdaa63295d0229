"""Quantiles, minimum and maximum of many groups at once, from histograms over a public grid of bins.

docs/theory/query-quantile.md proves what is claimed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from discreet.core import Event, Exponential, NoisyMax, Pure, Repeat, check
from discreet.errors import InvalidValue
from discreet.noise.additive import Ints, fix, whole_numbers
from discreet.noise.choose import CHUNK, choose, flip
from discreet.noise.samplers import Number, float_above, rational
from discreet.noise.source import Source, open_source
from discreet.query.brackets import Cells, measured

FINEST = 10_000  # the largest denominator of a target
LARGEST = 1 << 60  # no score is larger; weights are clipped so that none would be
EDGE = Fraction(1, 20)  # targets this near 0 or 1 are kept some ranks away from the end of the data
SHARE = Fraction(3, 5)  # of epsilon, for the interval
SETTLED = 0.75  # a value outside of the interval at this confidence is moved to its nearer end
TIMES = 10  # so far away that all empty bins beyond the end together are this many times less likely than the right one


class QuantileBins(NamedTuple):
    """Bins, one row per group and one column per target: the quantile's, and an interval that holds the true one's."""

    value: Ints
    low: Ints
    high: Ints


class Measured(NamedTuple):
    """Chosen bins, groups x targets, and the noisy counts around them that intervals are made of."""

    value: Ints
    bins: int
    cells: tuple[list[Cells], ...]  # of each target, in parts of the groups; none where no interval is bought

    def interval(self, confidence: float) -> tuple[Ints, Ints]:
        """The first and last bins of intervals, of which each holds the true quantile's with this probability."""
        low, high = np.zeros_like(self.value), np.full_like(self.value, self.bins - 1)
        for i, parts in enumerate(self.cells):
            if parts:
                low[:, i], high[:, i] = (
                    np.concatenate(ends) for ends in zip(*(part.interval(1 - confidence) for part in parts))
                )
        return np.minimum(low, self.value), np.maximum(high, self.value)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """The bins of quantiles, each chosen by how deep its rank is inside or how far off, and intervals around them.

    One target is chosen by permute-and-flip, which errs least; several by the exponential mechanism, which composes better.
    One unit moves all histograms together by at most `sensitivity` in l1; of the groups it is in, each sees its part.
    `targets` are from 0 (the minimum) to 1 (the maximum); near either end the rank asked for stays far enough from the
    end of the data that the answer does not fall into the empty bins beyond it. Each target's interval holds the true
    quantile's bin with probability `confidence` and is made of noisy counts of cells around the value, paid for by
    `interval_share` of epsilon; they also mend a value that is far off. With a share of 0 the interval is all bins.

    >>> median = Quantiles((0.5,), epsilon=5, sensitivity=1)
    >>> median.events
    (NoisyMax(epsilon=2.0), Pure(epsilon=3.0))
    >>> found = median.run([[0] * 10 + [5_000] + [0] * 5])
    >>> found.value.tolist(), found.low.tolist(), found.high.tolist()
    ([[10]], [[10]], [[10]])
    """

    targets: tuple[Fraction, ...]
    epsilon: Fraction
    sensitivity: int
    interval_share: Fraction
    confidence: float

    def __init__(
        self,
        targets: Iterable[float],
        epsilon: Number,
        sensitivity: int,
        interval_share: Number = SHARE,
        confidence: float = 0.95,
    ) -> None:
        asked = check.items("targets", targets, "a list of numbers from 0 to 1")
        if not 0 < len(asked) <= 1000:
            raise InvalidValue(f"targets must be between 1 and 1000 numbers; got {len(asked)}.")
        fix(self, targets=tuple(_target(q) for q in asked), epsilon=rational("epsilon", epsilon))
        fix(self, sensitivity=check.whole("sensitivity", sensitivity))
        share = Fraction(check.small_fraction("interval_share", interval_share)).limit_denominator(FINEST)
        fix(self, interval_share=share, confidence=check.open_fraction("confidence", confidence))

    @property
    def events(self) -> tuple[Event, ...]:
        """What runs: one choice per target, and noisy counts around it. Their epsilons add up to epsilon."""
        kind, several = (Exponential, True) if len(self.targets) > 1 else (NoisyMax, False)
        value: Event = kind(float_above("epsilon", self._epsilon))
        values = Repeat(value, len(self.targets)) if several else value
        if not self._end_epsilon:
            return (values,)
        around: Event = Pure(float_above("epsilon", self._end_epsilon))
        return values, Repeat(around, len(self.targets)) if several else around

    @property
    def _epsilon(self) -> Fraction:
        return self.epsilon * (1 - self.interval_share) / len(self.targets)

    @property
    def _end_epsilon(self) -> Fraction:
        return self.epsilon * self.interval_share / len(self.targets)

    def run(self, histograms: Any) -> QuantileBins:
        """Bins of each group's quantiles, from an array of whole-number weights, groups x bins."""
        found = self.measure(histograms)
        return QuantileBins(found.value, *found.interval(self.confidence))

    def measure(self, histograms: Any) -> Measured:
        """The same, with intervals at any confidence that is asked for later."""
        weights = whole_numbers(histograms)
        if isinstance(weights, int) or weights.ndim != 2 or not weights.shape[1]:
            raise InvalidValue("histograms must be an array of whole numbers, groups x bins, with at least one bin.")
        value = np.empty((len(weights), len(self.targets)), np.int64)
        cells: tuple[list[Cells], ...] = tuple([] for _ in self.targets)
        step = max(1, CHUNK // weights.shape[1])
        source = open_source()
        for start in range(0, len(weights), step):
            part = _Ranks(weights[start : start + step])
            for i, target in enumerate(self.targets):
                value[start : start + step, i], around = self._run_one(part, target, source)
                cells[i].extend(around)
        order = np.argsort([float(q) for q in self.targets], kind="stable")
        value[:, order] = np.sort(value, axis=1)  # a larger target's value is not the smaller
        return Measured(value, weights.shape[1], cells)

    def _run_one(self, ranks: _Ranks, target: Fraction, source: Source) -> tuple[Ints, list[Cells]]:
        scores, rate = self._value_scores(ranks, target)
        value = self._choose(scores, rate, source)
        if not self._end_epsilon:
            return value, []
        cells = measured(ranks.upto, value, target, self.sensitivity / self._end_epsilon)
        if EDGE < target < 1 - EDGE:
            near = cells.interval(1 - SETTLED)
            value = np.clip(value, np.minimum(near[0], ranks.bins - 1), np.maximum(*near))
        return value, [cells]

    def _choose(self, scores: Ints, rate: Fraction, source: Source) -> Ints:
        return choose(scores, rate, None, source) if len(self.targets) > 1 else flip(scores, rate, source)

    def _value_scores(self, ranks: _Ranks, target: Fraction) -> tuple[Ints, Fraction]:
        rate = self._epsilon / (2 * self.sensitivity)
        if EDGE < target < 1 - EDGE:
            return ranks.scores(target, 0, rate)
        away = math.ceil(float(1 / rate) * math.log(TIMES * ranks.bins))
        return ranks.edge_scores(target, away, rate)

    def _wrong(self, bins: int) -> Fraction:
        """How many bins count as wrong in the bound on errors. The best bin is always among the heads of permute-and-flip, so
        that a wrong one there is taken half of the time at most."""
        return Fraction(bins, 1 if len(self.targets) > 1 else 2)

    def rank_error(self, target: Number, bins: int, confidence: float = 0.95) -> int:
        """The rank of a value that comes out is within this weight of the one asked for, with this probability."""
        q = _target(target)
        most = max(q, 1 - q) if EDGE < q < 1 - EDGE else Fraction(1)
        beta = 1 - check.open_fraction("confidence", confidence)
        return _error(most * self.sensitivity / self._epsilon, self._wrong(check.whole("bins", bins)), beta)


class _Ranks:
    """How much weight is before each bin, from it on, up to it, and after it; none more than what scores can hold."""

    def __init__(self, weights: Ints) -> None:
        self.bins = weights.shape[1]
        weights = np.clip(weights, 0, (1 << 62) // self.bins)
        self.upto = np.cumsum(weights, axis=1)
        self.before = self.upto - weights
        total = self.upto[:, -1:]
        self.onward, self.after = total - self.before, total - self.upto

    def scores(self, target: Fraction, offset: int, rate: Fraction) -> tuple[Ints, Fraction]:
        """How deep the rank target x total + offset is inside each bin's ranks, or minus how far from them, in whole parts;
        and the rate."""
        a, b = target.numerator, target.denominator
        most = LARGEST // b
        shift = b * max(-most, min(most, offset))
        below = (b - a) * np.minimum(self.before, most) - a * np.minimum(self.onward, most) - shift
        above = (b - a) * np.minimum(self.upto, most) - a * np.minimum(self.after, most) - shift
        return _depth(below, above), rate / max(a, b - a)

    def edge_scores(self, target: Fraction, away: int, rate: Fraction) -> tuple[Ints, Fraction]:
        """The same for a rank near an end of the data: at least `away` from it, or the middle where there is less."""
        flip = target > Fraction(1, 2)
        a, b = ((1 - target) if flip else target).as_integer_ratio()
        most = LARGEST // (2 * b)
        away = min(away, most)

        def past(inner: Ints, outer: Ints) -> Ints:
            """2 b times how far the weight `inner` is past max(target x total, min(away, total / 2)); outer is the rest."""
            inner, outer = np.minimum(inner, most), np.minimum(outer, most)
            at_least = np.maximum(2 * b * (inner - away), b * (inner - outer))
            distance: Ints = np.minimum(2 * ((b - a) * inner - a * outer), at_least)
            return distance

        if flip:
            below, above = -past(self.onward, self.before), -past(self.after, self.upto)
        else:
            below, above = past(self.before, self.onward), past(self.upto, self.after)
        return _depth(below, above), rate / (2 * b)


def _depth(below: Ints, above: Ints) -> Ints:
    """How deep 0 is in [below, above], or minus its distance. The first bin has no lower end, and the last no upper one."""
    below[:, 0], above[:, -1] = -2 * LARGEST, 2 * LARGEST
    depth: Ints = np.minimum(-below, above)
    return depth


def _error(scale: Fraction, bins: Fraction, beta: float) -> int:
    """(2 sensitivity / epsilon) ln(bins / beta), rounded up: the exponential mechanism's error."""
    return max(0, math.ceil(2 * float(scale) * math.log(float(bins) / beta) * (1 + 1e-12)))


def _target(value: Any) -> Fraction:
    return Fraction(check.fraction("target", value)).limit_denominator(FINEST)
