"""Private selection of groups: noisy counts above a threshold, with noise that never releases an empty group.

docs/theory/query-threshold.md proves what is claimed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import Approximate, check
from discreet.errors import InvalidValue
from discreet.noise.additive import Ints, fix, whole_numbers
from discreet.noise.digits import LaplaceDistribution
from discreet.noise.fast import WIDEST
from discreet.noise.samplers import Number, draw, draw_one, float_above, rational
from discreet.noise.source import Source, open_source
from discreet.query.joint import MOST_NUMBERS, above, above_bounds, box, least

LARGEST = 1 << 61  # the largest bound on the noise: counts up to 2^62 plus noise fit int64
RARELY = 1 << 10  # a group that is left out less than once in so many times is as good as always shown
TOO_WIDE = "The noise would be larger than int64 holds; choose a larger epsilon, or coarser whole numbers for the counts."


@dataclass(frozen=True, slots=True)
class Threshold:
    """Counts of groups, each shown if it is above `bound` after discrete Laplace noise truncated to [-bound, bound].

    A group that nobody is in is never above it, so groups need not be known beforehand. One unit moves all counts
    together by at most `sensitivity` in l1 and each by at most `each` (by default as much as all). The bound is the least
    whole number for which no unit shows its groups with probability above `delta`, found in exact arithmetic. With `numbers`
    above 1, the count is the first of so many numbers of a group under one noise (see `Joint`), shown or not all together.

    >>> groups = Threshold(epsilon=1, delta=1e-6, sensitivity=1)
    >>> groups.bound, groups.event
    (14, Approximate(epsilon=1.0, delta=1e-06))
    >>> kept, noisy = groups.run([0, 1_000])
    >>> kept.tolist()
    [False, True]
    """

    epsilon: Fraction
    delta: float
    sensitivity: int
    each: int
    numbers: int
    scale: Fraction
    bound: int

    def __init__(self, epsilon: Number, delta: float, sensitivity: int, each: int | None = None, numbers: int = 1) -> None:
        fix(self, epsilon=rational("epsilon", epsilon), delta=check.positive("delta", delta))
        fix(self, sensitivity=check.whole("sensitivity", sensitivity))
        fix(self, each=self.sensitivity if each is None else min(check.whole("each", each), self.sensitivity))
        if not (self.delta < 0.5 and Fraction(self.delta) <= self.epsilon):
            raise InvalidValue(
                f"delta must be below 1/2 and at most epsilon; got delta {self.delta:g} with epsilon {float(self.epsilon):g}. "
                "Choose one far below 1 / the number of people."
            )
        fix(self, scale=self.sensitivity / self.epsilon)
        if self.scale > LARGEST:
            raise InvalidValue(TOO_WIDE)
        fix(self, numbers=check.whole("numbers", numbers, most=MOST_NUMBERS))
        if self.numbers > 1 and self.scale > WIDEST:
            raise InvalidValue(TOO_WIDE)
        fix(self, bound=_least_bound(self.scale, Fraction(self.delta), self.sensitivity, self.each, self.numbers))

    @property
    def event(self) -> Approximate:
        return Approximate(float_above("epsilon", self.epsilon), self.delta)

    def run(self, counts: Any) -> tuple[NDArray[np.bool_], Ints]:
        """Which groups are shown, and their noisy counts; 0 for the others, whose keys and number must not be shown."""
        numbers = whole_numbers(counts)
        if isinstance(numbers, int) or numbers.ndim != 1:
            raise InvalidValue("counts must be a list of whole numbers, one per group.")
        if self.numbers > 1:
            raise InvalidValue(f"counts come with {self.numbers - 1} other numbers of each group here; use run_together.")
        noisy = numbers + self._noise(numbers.size, open_source())
        kept: NDArray[np.bool_] = noisy > self.bound
        return kept, np.where(kept, noisy, 0)

    def run_together(self, columns: Sequence[Sequence[int]]) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """The same where other columns share the noise: which groups are shown, and all their noisy numbers, in objects."""
        noise = self._noises(len(columns[0]), open_source())
        noisy = np.array(
            [[int(a) + b for a, b in zip(column, noise[:, i].tolist())] for i, column in enumerate(columns)], object
        )
        kept = np.array([value > self.bound for value in noisy[0]], bool)
        return kept, np.where(kept, noisy, 0)

    def _noises(self, count: int, source: Source) -> Ints:
        """Vectors whose first number is within the bound, by rejection."""
        noise = np.empty((count, self.numbers), np.int64)
        todo = np.arange(count)
        while todo.size:
            drawn = box(self.scale, self.numbers, todo.size, source)
            fits = np.abs(drawn[:, 0]) <= self.bound
            noise[todo[fits]] = drawn[fits]
            todo = todo[~fits]
        return noise

    def _noise(self, count: int, source: Source) -> Ints:
        """Truncated by rejection: drawn again until all are within the bound, each on its own."""
        distribution = LaplaceDistribution(self.scale)
        noise = np.empty(count, np.int64)
        todo = np.arange(count)
        while todo.size:
            if self.scale <= WIDEST:
                drawn: Any = draw(distribution, todo.size, source)
            else:
                drawn = np.array([draw_one(distribution, source) for _ in range(todo.size)], object)
            fits = np.asarray((drawn >= -self.bound) & (drawn <= self.bound), bool)
            noise[todo[fits]] = drawn[fits].astype(np.int64)
            todo = todo[~fits]
        return noise

    def interval(self, confidence: float) -> int:
        """A t such that the noise of a group is within t with this probability; it is always within `bound`.

        It is about all groups, shown or not. A small group is shown only if its noise is large, so of the small groups
        that are shown fewer are within t: `limits` is about the shown ones.
        """
        return self._within(1 - check.open_fraction("confidence", confidence))

    def _within(self, missed: float) -> int:
        return _interval(float(self.scale), self.numbers, self.bound, missed)

    def released(self, weight: int) -> float:
        """The probability that a group of this true count is shown, in float64 and not rounded down: 0 for 0.

        >>> Threshold(epsilon=1, delta=1e-6, sensitivity=1).released(0)
        0.0
        """
        count = check.whole("weight", weight, least=0, most=LARGEST)
        return min(1.0, float(self._shown(np.array([count]))[0]) * (1 + 1e-12))

    def limits(self, noisy: Any, confidence: float) -> tuple[Ints, Ints]:
        """The least and largest true counts of groups that were shown, from their noisy counts.

        Each is within its limits with at least this probability, given that it is shown: every true count is tested
        against the distribution of its noisy count given that it is above the bound, which is why small groups get wide limits.
        """
        shown = np.atleast_1d(np.asarray(noisy))
        # so far above the bound everything moves with the count
        far = shown - np.minimum(shown, min(4 * self.bound + 1, 1 << 62))
        y = np.atleast_1d(whole_numbers((shown - far).astype(np.int64)))
        half = (1 - check.open_fraction("confidence", confidence)) / 2
        return self._least_count(y, half) + far, y + self._within(half) + far

    def surely(self, noisy: Any, failing: float) -> NDArray[np.bool_]:
        """Groups so far above the bound, by their noisy counts, that they are shown but once in `RARELY` times; of one that is
        not, this holds with probability `failing` at most."""
        low, _ = self.limits(noisy, 1 - 2 * failing)
        return 1 - self._shown(np.minimum(low, 2 * self.bound + 1).astype(np.int64)) <= 1 / RARELY

    def given_shown(self, failing: float) -> float:
        """What whole noise may fail with, for the noise of such a group, given that it is shown, to fail with this."""
        return failing * (1 - 1 / RARELY) * (1 - 2 * _edge(float(self.scale), self.numbers, self.bound)) * (1 - 1e-9)

    def _least_count(self, y: Ints, half: float) -> Ints:
        """The least count that reaches y with probability `half` or more, if it is shown; that grows with the count."""
        low, high = np.maximum(1, y - self.bound), y.copy()
        while (open_ := low < high).any():
            middle = (low + high) // 2
            reached = self._above(y - middle - 1) >= half * self._shown(middle) * (1 - 1e-9)
            high, low = np.where(open_ & reached, middle, high), np.where(open_ & ~reached, middle + 1, low)
        return low

    def _shown(self, count: Ints) -> NDArray[np.float64]:
        """Pr[count + Z > bound]."""
        far = count - self.bound
        return np.where(far > 0, 1 - self._above(np.maximum(far, 1) - 1), self._above(np.maximum(-far, 0)))

    def _above(self, noise: Ints) -> NDArray[np.float64]:
        """Pr[Z > noise] of the truncated noise, for noise >= -1."""
        s = float(self.scale)
        edge = _edge(s, self.numbers, self.bound)
        chance: NDArray[np.float64] = (above(np.minimum(noise, self.bound), s, self.numbers) - edge) / (1 - 2 * edge)
        return chance


@lru_cache(1024)
def _edge(scale: float, numbers: int, bound: int) -> float:
    """The chance of noise above the bound, before it is truncated."""
    return float(above(bound, scale, numbers))


@lru_cache(1024)
def _interval(scale: float, numbers: int, bound: int, missed: float) -> int:
    edge = _edge(scale, numbers, bound)
    most = missed * (1 - 1e-9) * (1 - 2 * edge) / 2 + edge
    return least(lambda t: t >= bound or float(above(t, scale, numbers)) <= most)


def _least_bound(scale: Fraction, delta: Fraction, sensitivity: int, each: int, numbers: int) -> int:
    """The least B with delta(B) <= delta: near where float64 has it, then by exact comparison. It is at least `each`, below
    which more than half of the noise would be."""
    groups, rest = divmod(sensitivity, each)
    s, d = float(scale), float(delta)

    def about(bound: int) -> bool:
        edge, big, small = (float(above(bound - weight, s, numbers)) for weight in (0, each, rest))
        return groups * (big - edge) + small - edge <= d * (1 - 2 * edge)

    def enough(bound: int) -> bool:
        return _enough(bound, scale, delta, groups, each, rest, numbers)

    guess = least(about, each)
    if guess > LARGEST:
        raise InvalidValue(TOO_WIDE)
    step = 1
    while guess - step >= each and enough(guess - step):
        guess, step = guess - step, 2 * step
    return least(enough, max(each, guess - step + 1 if guess - step >= each else each))


def _enough(bound: int, scale: Fraction, delta: Fraction, groups: int, each: int, rest: int, numbers: int) -> bool:
    """Whether groups x delta(each) + delta(rest) <= delta, with enclosures as narrow as it takes.

    With G(t) = Pr[Z > t] of the noise before it is truncated, delta(w) = (G(B - w) - G(B)) / (1 - 2 G(B)).
    """
    bits = 128
    while True:
        edge, big, small = (above_bounds(bound - weight, scale, numbers, bits) for weight in (0, each, rest))
        some = groups + (rest > 0)
        left_lo = groups * big[0] + (rest > 0) * small[0] - some * edge[1]
        left_hi = groups * big[1] + (rest > 0) * small[1] - some * edge[0]
        right_lo = delta * ((1 << bits) - 2 * edge[1])
        right_hi = delta * ((1 << bits) - 2 * edge[0])
        if left_hi <= right_lo:
            return True
        if left_lo > right_hi:
            return False
        bits *= 2
