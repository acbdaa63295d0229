"""Choosing one of several public candidates by private scores, without floating-point numbers in the choice.

Scores are the rationals they stand for; a NaN counts as 0 and an infinity as the largest float, so that one bad score
neither raises an error nor decides the others. The candidates themselves must be public.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

import numpy as np

from discreet.core import Claim, Exponential, NoisyMax, Unit
from discreet.errors import InvalidValue
from discreet.noise import exact
from discreet.noise.additive import answers, fix
from discreet.noise.digits import LaplaceLaw
from discreet.noise.fast import WIDEST
from discreet.noise.grid import Grid
from discreet.noise.samplers import Number, draw, float_above, one, rational
from discreet.noise.source import Source, open_source

LARGEST_FLOAT = Fraction(float(np.finfo(np.float64).max))


def exponential(scores: Any, epsilon: Number, sensitivity: Number) -> int:
    """An index, chosen with probability ~ exp(epsilon score / 2 sensitivity), exactly (McSherry & Talwar 2007).

    epsilon-DP, and epsilon-bounded-range, which composes better (Durfee & Rogers 2019). By rejection: a uniform
    candidate is kept with probability exp(-epsilon (best - score) / 2 sensitivity), at most one try per candidate on average.

    >>> exponential([500, 0, 0], epsilon=1, sensitivity=1)
    0
    """
    losses = _losses(scores, epsilon, sensitivity)
    source = open_source()
    while True:
        i = source.below(len(losses))
        if exact.bernoulli_exp(losses[i], source):
            return i


def permute_and_flip(scores: Any, epsilon: Number, sensitivity: Number) -> int:
    """An index: candidates in random order, the first whose coin of exp(-epsilon (best - score) / 2 sensitivity) shows heads.

    epsilon-DP, never worse than the exponential mechanism in expected score (McKenna & Sheldon 2020), and the same law
    as report-noisy-max with exponential noise (Ding et al. 2021). It is not bounded-range.

    >>> permute_and_flip([500, 0, 0], epsilon=1, sensitivity=1)
    0
    """
    losses = _losses(scores, epsilon, sensitivity)
    source = open_source()
    left = list(range(len(losses)))
    while True:  # the best candidate's coin always shows heads, so this ends
        place = source.below(len(left))
        left[place], left[-1] = left[-1], left[place]
        i = left.pop()
        if exact.bernoulli_exp(losses[i], source):
            return i


def noisy_max(scores: Any, epsilon: Number, sensitivity: Number, granularity: Number) -> int:
    """The index of the largest score after discrete Laplace noise of scale 2 sensitivity / epsilon, ties broken at random.

    Scores are rounded to the grid first. epsilon-DP: docs/theory/noise-selection.md proves it for this discrete variant,
    ties included.

    >>> noisy_max([500, 0, 0], epsilon=1, sensitivity=1, granularity=1)
    0
    """
    epsilon, grid = rational("epsilon", epsilon), Grid(granularity)
    steps = [grid.step(score) for score in _scores(scores)]
    law = LaplaceLaw(2 * grid.sensitivity(rational("sensitivity", sensitivity)) / epsilon)
    source = open_source()
    noisy = [step + noise for step, noise in zip(steps, _noise(law, len(steps), source))]
    best = max(noisy)
    ties = [i for i, value in enumerate(noisy) if value == best]
    return ties[source.below(len(ties))]


@dataclass(frozen=True, slots=True)
class ExponentialMechanism:
    """The index of a public candidate, by the exponential mechanism on a list of scores; each score moves by at most
    `sensitivity` with one unit.

    >>> from discreet.core import record
    >>> ExponentialMechanism(epsilon=0.5, sensitivity=1, unit=record()).claims()[0].event
    Exponential(epsilon=0.5)
    """

    epsilon: Fraction
    sensitivity: Fraction
    unit: Unit

    def __init__(self, epsilon: Number, sensitivity: Number, unit: Unit) -> None:
        fix(self, epsilon=rational("epsilon", epsilon), sensitivity=rational("sensitivity", sensitivity), unit=unit)
        self.claims()

    def claims(self) -> tuple[Claim, ...]:
        return answers(self.unit, Exponential(float_above("epsilon", self.epsilon)), *_assumed(self.sensitivity))

    def run(self, data: Any) -> int:
        return exponential(data, self.epsilon, self.sensitivity)


@dataclass(frozen=True, slots=True)
class PermuteAndFlip:
    """The index of a public candidate, by permute-and-flip on a list of scores.

    >>> from discreet.core import record
    >>> PermuteAndFlip(epsilon=0.5, sensitivity=1, unit=record()).claims()[0].event
    NoisyMax(epsilon=0.5)
    """

    epsilon: Fraction
    sensitivity: Fraction
    unit: Unit

    def __init__(self, epsilon: Number, sensitivity: Number, unit: Unit) -> None:
        fix(self, epsilon=rational("epsilon", epsilon), sensitivity=rational("sensitivity", sensitivity), unit=unit)
        self.claims()

    def claims(self) -> tuple[Claim, ...]:
        return answers(self.unit, NoisyMax(float_above("epsilon", self.epsilon)), *_assumed(self.sensitivity))

    def run(self, data: Any) -> int:
        return permute_and_flip(data, self.epsilon, self.sensitivity)


@dataclass(frozen=True, slots=True)
class ReportNoisyMax:
    """The index of a public candidate, by report-noisy-max with discrete Laplace noise on a list of scores.

    >>> from discreet.core import record
    >>> ReportNoisyMax(epsilon=0.5, sensitivity=1, granularity=1, unit=record()).claims()[0].event
    NoisyMax(epsilon=0.5)
    """

    epsilon: Fraction
    sensitivity: Fraction
    granularity: Fraction
    unit: Unit

    def __init__(self, epsilon: Number, sensitivity: Number, granularity: Number, unit: Unit) -> None:
        fix(self, epsilon=rational("epsilon", epsilon), sensitivity=rational("sensitivity", sensitivity))
        fix(self, granularity=Grid(granularity).granularity, unit=unit)
        self.claims()

    def claims(self) -> tuple[Claim, ...]:
        return answers(self.unit, NoisyMax(float_above("epsilon", self.epsilon)), *_assumed(self.sensitivity))

    def run(self, data: Any) -> int:
        return noisy_max(data, self.epsilon, self.sensitivity, self.granularity)


def _assumed(sensitivity: Fraction) -> tuple[str, str]:
    return f"one unit moves each score by at most {float(sensitivity):g}", "the candidates are public"


def _losses(scores: Any, epsilon: Number, sensitivity: Number) -> list[Fraction]:
    """epsilon (best - score) / 2 sensitivity of each candidate."""
    rate = rational("epsilon", epsilon) / (2 * rational("sensitivity", sensitivity))
    found = _scores(scores)
    best = max(found)
    return [(best - score) * rate for score in found]


def _scores(scores: Any) -> list[Fraction]:
    items = scores.tolist() if hasattr(scores, "tolist") else scores
    if isinstance(items, (str, bytes)) or not isinstance(items, (list, tuple)) or not items:
        raise InvalidValue(f"scores must be a non-empty list of numbers; got {type(scores).__name__}.")
    if not all(isinstance(item, Real) for item in items):
        raise InvalidValue("scores must be a list of numbers; something in it is not a number.")
    return [_score(item) for item in items]


def _score(item: Any) -> Fraction:
    if isinstance(item, Fraction):
        return item
    if isinstance(item, Integral):
        return Fraction(int(item))
    value = float(item)
    if value != value:
        return Fraction(0)
    return max(-LARGEST_FLOAT, min(LARGEST_FLOAT, Fraction(value))) if abs(value) < float("inf") else (
        LARGEST_FLOAT if value > 0 else -LARGEST_FLOAT
    )  # fmt: skip


def _noise(law: LaplaceLaw, count: int, source: Source) -> list[int]:
    if law.scale > WIDEST:
        return [one(law, source) for _ in range(count)]
    found: list[int] = draw(law, count, source).tolist()
    return found
