"""The mean of numbers that nobody shows: each is rounded to a public grid, and one noised whole number is told.

Rounding to the grid is the same for everybody and happens before any coin, so no bit of the float itself can be read from a
report; every draw after it is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import Event, RandomizedResponse, check
from discreet.errors import InvalidValue
from discreet.noise.additive import fix
from discreet.noise.samplers import Number, float_above
from discreet.noise.source import open_source
from discreet.query.local.coins import below, budget, coins, decay, flipped, kept
from discreet.query.local.intervals import Average, bernstein, beta, rate_interval
from discreet.query.local.oracle import Ints, Reports, several, whole_reports
from discreet.query.rows import numbers

STEPS = 1 << 16  # of the grid
FARTHEST = 1e100  # from 0, so that squares are floats


class Numbers(Reports):
    """Encode on the client, estimate on the collector: a mean between two public bounds."""

    __slots__ = ()
    lower: float
    upper: float
    steps: int

    def encode(self, values: Any) -> NDArray[Any]:
        """One report per person. Numbers outside the bounds count as the nearest bound, NaN as 0 or the bound nearest it.

        What is no number counts as NaN: a person whose value is missing reports like everybody.
        """
        return self._encode(self.grid(values))

    def grid(self, values: Any) -> Ints:
        """The step of the grid each number is rounded to, from 0 to `steps`."""
        array = several(values)
        if array.dtype.kind not in "iufbO" or array.ndim != 1:
            raise InvalidValue("values must be numbers, one per person.")
        array = numbers(array)
        inside = np.clip(np.where(np.isnan(array), 0.0, array), self.lower, self.upper)
        share = inside / self.width - self.lower / self.width
        return np.clip(np.floor(share * self.steps + 0.5), 0, self.steps).astype(np.int64)

    @property
    def width(self) -> float:
        return self.upper - self.lower

    def _scaled(self, share: float, low: float, high: float, people: int, confidence: float) -> Average:
        """From shares of the range to numbers; half a step of the grid is added on both sides, within the range."""
        half = 0.5 / self.steps
        low, high = (min(max(end, 0.0), 1.0) for end in (low - half, high + half))
        return Average(
            estimate=self.lower + share * self.width,
            low=self.lower + low * self.width, high=self.lower + high * self.width,
            people=people, confidence=confidence,
        )  # fmt: skip

    def _encode(self, step: Ints) -> NDArray[Any]:
        raise NotImplementedError

    def variance(self, people: int, value: float) -> float:
        """The variance of the estimated mean when everybody has this value."""
        raise NotImplementedError

    def worst_variance(self, people: int) -> float:
        """The largest variance of the estimated mean, over what people may have."""
        middle = self.lower + self.width / 2
        return max(self.variance(people, value) for value in (self.lower, middle, self.upper))


def _bounds(mechanism: Any, epsilon: Number, lower: float, upper: float, steps: int) -> None:
    low, high = check.real("lower", lower), check.real("upper", upper)
    if not low < high or max(-low, high) > FARTHEST or high - low < 1 / FARTHEST:
        raise InvalidValue(f"lower must be below upper, by at least 1e-100, both within 1e100 of 0; got {low:g} and {high:g}.")
    fix(mechanism, epsilon=budget(epsilon), lower=low, upper=high, steps=check.whole("steps", steps, most=1 << 24))


@dataclass(frozen=True, slots=True)
class OneBitMean(Numbers):
    """One bit per person (Duchi, Jordan & Wainwright 2018): the number is rounded to a bound at random, and the bit is noised.

    Whoever is a share u of the way up says "upper" with probability u, and lies with probability 1 / (e^epsilon + 1).

    >>> ages = OneBitMean(epsilon=1, lower=0, upper=100)
    >>> found = ages.estimate(ages.encode([20.0, 40.0] * 5000), confidence=0.999999)
    >>> found.low <= 30 <= found.high
    True
    """

    epsilon: Fraction
    lower: float
    upper: float
    steps: int
    lie: Fraction = field(repr=False)

    def __init__(self, epsilon: Number, lower: float, upper: float, steps: int = STEPS) -> None:
        _bounds(self, epsilon, lower, upper, steps)
        fix(self, lie=flipped(self.epsilon))

    def event(self) -> Event:
        return RandomizedResponse(float_above("epsilon", self.epsilon), 2)

    def variance(self, people: int, value: float) -> float:
        step, lie = Fraction(int(self.grid(value)[0]), self.steps), self.lie
        up = lie + (1 - 2 * lie) * step
        return float(up * (1 - up) / (1 - 2 * lie) ** 2) * self.width**2 / check.whole("people", people)

    def estimate(self, reports: Any, confidence: float) -> Average:
        """The mean, with an exact interval."""
        bits, lie = whole_reports(np.asarray(reports), (2,)), float(self.lie)
        low, high = rate_interval(int(bits.sum()), len(bits), beta(confidence))
        share = [(rate - lie) / (1 - 2 * lie) for rate in (float(bits.mean()), float(low), float(high))]
        return self._scaled(share[0], share[1], share[2], len(bits), confidence)

    def _encode(self, step: Ints) -> NDArray[Any]:
        source = open_source()
        up = below(self.steps, len(step), source).astype(np.int64) < step
        return (up ^ coins(self.lie, len(step), source)).astype(np.uint8)


@dataclass(frozen=True, slots=True)
class PiecewiseMean(Numbers):
    """The piecewise mechanism (Wang et al. 2019) on whole numbers: an answer near the truth, or anywhere.

    Of N = steps + window answers, the `window` ones from the number's own step on are e^epsilon times as likely as the rest.
    A window of steps x e^{-epsilon/2} gives the published densities; the answer's mean is linear in the truth, so the
    estimate is unbiased. Better than one bit for epsilon above about 1.3.

    >>> PiecewiseMean(epsilon=2, lower=-1, upper=1, steps=1000).window
    368
    """

    epsilon: Fraction
    lower: float
    upper: float
    steps: int
    window: int
    keep: Fraction = field(repr=False)

    def __init__(self, epsilon: Number, lower: float, upper: float, steps: int = STEPS) -> None:
        _bounds(self, epsilon, lower, upper, steps)
        fix(self, window=max(1, round(self.steps * decay(self.epsilon / 2))))
        fix(self, keep=kept(self.epsilon, self.window, self.answers))

    @property
    def answers(self) -> int:
        return self.steps + self.window

    def moments(self, step: int) -> tuple[Fraction, Fraction]:
        """Mean and variance of one answer."""
        near, far, keep = step + Fraction(self.window - 1, 2), Fraction(self.answers - 1, 2), self.keep
        mean = keep * near + (1 - keep) * far
        square = keep * (near**2 + Fraction(self.window**2 - 1, 12)) + (1 - keep) * (far**2 + Fraction(self.answers**2 - 1, 12))
        return mean, square - mean**2

    def variance(self, people: int, value: float) -> float:
        spread = self.moments(int(self.grid(value)[0]))[1] / (self.keep * self.steps) ** 2
        return float(spread) * self.width**2 / check.whole("people", people)

    def estimate(self, reports: Any, confidence: float) -> Average:
        """The mean, with an interval by Bernstein's inequality: guaranteed, a little wider than a normal one."""
        answers, alpha = whole_reports(np.asarray(reports), (self.answers,)), beta(confidence)
        scale = float(self.keep) * self.steps
        share = (float(answers.mean()) - float(self.moments(0)[0])) / scale
        widest = max(float(self.moments(step)[1]) for step in (0, self.steps // 2, self.steps))
        off = bernstein(alpha, len(answers), widest, self.answers - 1) / scale
        return self._scaled(share, share - off, share + off, len(answers), confidence)

    def _encode(self, step: Ints) -> NDArray[Any]:
        source = open_source()
        near = step + below(self.window, len(step), source).astype(np.int64)
        far = below(self.answers, len(step), source).astype(np.int64)
        return np.where(coins(self.keep, len(step), source), near, far)
