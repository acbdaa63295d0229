"""Which groups exist, and how large they are, without a list of them: counts with noise that cannot make a group up.

docs/theory/query-threshold.md proves what is claimed here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import Approximate, check
from discreet.errors import InvalidValue
from discreet.noise.additive import Ints, fix, whole_numbers
from discreet.noise.digits import Bounds, LaplaceLaw, exp_bounds
from discreet.noise.fast import WIDEST
from discreet.noise.samplers import Number, draw, float_above, one, rational
from discreet.noise.source import Source, open_source

LARGEST = 1 << 61  # the largest bound on the noise: counts up to 2^62 plus noise fit int64
TOO_WIDE = "The noise would be larger than int64 holds; choose a larger epsilon, or coarser whole numbers for the counts."


@dataclass(frozen=True, slots=True)
class Threshold:
    """Counts of groups, each shown if it is above `bound` after discrete Laplace noise truncated to [-bound, bound].

    A group that nobody is in is never above it, so groups need not be known beforehand. One unit moves all counts
    together by at most `sensitivity` in l1 and each by at most `each` (by default as much as all). The bound is the least
    whole number for which no unit shows its groups with probability above `delta`, found in exact arithmetic.

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
    scale: Fraction
    bound: int

    def __init__(self, epsilon: Number, delta: float, sensitivity: int, each: int | None = None) -> None:
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
        fix(self, bound=_least_bound(self.scale, Fraction(self.delta), self.sensitivity, self.each))

    @property
    def event(self) -> Approximate:
        return Approximate(float_above("epsilon", self.epsilon), self.delta)

    def run(self, counts: Any) -> tuple[NDArray[np.bool_], Ints]:
        """Which groups are shown, and their noisy counts; 0 for the others, whose keys and number must not be shown."""
        numbers = whole_numbers(counts)
        if isinstance(numbers, int) or numbers.ndim != 1:
            raise InvalidValue("counts must be a list of whole numbers, one per group.")
        noisy = numbers + self._noise(numbers.size, open_source())
        kept: NDArray[np.bool_] = noisy > self.bound
        return kept, np.where(kept, noisy, 0)

    def _noise(self, count: int, source: Source) -> Ints:
        """Truncated by rejection: drawn again until all are within the bound, each on its own."""
        law = LaplaceLaw(self.scale)
        found = np.empty(count, np.int64)
        todo = np.arange(count)
        while todo.size:
            if self.scale <= WIDEST:
                drawn: Any = draw(law, todo.size, source)
            else:
                drawn = np.array([one(law, source) for _ in range(todo.size)], object)
            fits = np.asarray((drawn >= -self.bound) & (drawn <= self.bound), bool)
            found[todo[fits]] = drawn[fits].astype(np.int64)
            todo = todo[~fits]
        return found

    def interval(self, confidence: float) -> int:
        """A t such that the noise of a group is within t with this probability; it is always within `bound`.

        It is about all groups, shown or not. A small group is shown only if its noise is large, so of the small groups
        that are shown fewer are within t: `limits` is about the shown ones.
        """
        beta = 1 - check.open_fraction("confidence", confidence)
        edge, q, s = self._edge()
        most = beta * (1 + q - 2 * edge) / 2 + edge  # what q^(t + 1) may be at most
        return max(0, min(self.bound, math.ceil(-s * math.log(most) * (1 + 1e-12)) - 1))

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
        against the law of its noisy count given that it is above the bound, which is why small groups get wide limits.
        """
        y = np.atleast_1d(whole_numbers(noisy))
        half = (1 - check.open_fraction("confidence", confidence)) / 2
        return self._least_count(y, half), y + self.interval(1 - half)

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
        edge, q, s = self._edge()
        noise = np.minimum(noise, self.bound)
        return np.exp(-(noise + 1) / s) * np.abs(np.expm1((noise - self.bound) / s)) / (1 + q - 2 * edge)

    def _edge(self) -> tuple[float, float, float]:
        s = float(self.scale)
        return math.exp(-(self.bound + 1) / s), math.exp(-1 / s), s


def _least_bound(scale: Fraction, delta: Fraction, sensitivity: int, each: int) -> int:
    """The least B with delta(B) <= delta: near where float64 has it, then by exact comparison."""
    groups, rest = divmod(sensitivity, each)
    s, d = float(scale), float(delta)
    lift = groups * math.expm1(min(each / s, 700.0)) + math.expm1(min(rest / s, 700.0))
    guess = math.floor(s * (math.log((lift + 2 * d) / d) - math.log(1 + math.exp(-1 / s)))) - 1 if s else each
    high = max(each, guess)
    step = 1
    while not _enough(high, scale, delta, groups, each, rest):
        high, step = high + step, 2 * step
    low = high - step  # a B that is not enough, once it is found
    while low >= each and _enough(low, scale, delta, groups, each, rest):
        high, step = low, 2 * step
        low -= step
    low = max(low, each - 1)  # with noise up to less than `each`, more than half of the noise would be above it
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _enough(middle, scale, delta, groups, each, rest) else (middle, high)
    if high > LARGEST:
        raise InvalidValue(TOO_WIDE)
    return high


def _enough(bound: int, scale: Fraction, delta: Fraction, groups: int, each: int, rest: int) -> bool:
    """Whether groups x delta(each) + delta(rest) <= delta, with enclosures as narrow as it takes.

    With q = exp(-1/scale), delta(w) = (q^(B+1-w) - q^(B+1)) / (1 + q - 2 q^(B+1)).
    """
    bits = 128
    while True:

        def power(exponent: int, bits: int = bits) -> Bounds:
            return exp_bounds(exponent / scale, bits)

        edge, big, small, q = (power(n) for n in (bound + 1, bound + 1 - each, bound + 1 - rest, 1))
        some = groups + (rest > 0)
        left_lo = groups * big[0] + (rest > 0) * small[0] - some * edge[1]
        left_hi = groups * big[1] + (rest > 0) * small[1] - some * edge[0]
        right_lo = delta * ((1 << bits) + q[0] - 2 * edge[1])
        right_hi = delta * ((1 << bits) + q[1] - 2 * edge[0])
        if left_hi <= right_lo:
            return True
        if left_lo > right_hi:
            return False
        bits *= 2
