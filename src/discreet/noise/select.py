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
from numpy.typing import NDArray

from discreet.core import Claim, Exponential, NoisyMax, Unit
from discreet.errors import InvalidValue
from discreet.noise import exact
from discreet.noise.additive import answers, fix, whole_numbers
from discreet.noise.choose import FARTHEST, choose
from discreet.noise.choose import WIDEST as WIDEST_CANDIDATE
from discreet.noise.digits import LaplaceDistribution
from discreet.noise.fast import WIDEST
from discreet.noise.grid import Grid
from discreet.noise.samplers import FEW, Number, draw, draw_one, float_above, rational
from discreet.noise.source import Source, open_source

Ints = NDArray[np.int64]

LARGEST_FLOAT = Fraction(float(np.finfo(np.float64).max))


def exponential(scores: Any, epsilon: Number, sensitivity: Number) -> int:
    """An index, chosen with probability ~ exp(epsilon score / 2 sensitivity), exactly (McSherry & Talwar 2007).

    epsilon-DP, and epsilon-bounded-range, which composes better (Durfee & Rogers 2019). A few candidates are tried by
    rejection: a uniform one is kept with probability exp(-epsilon (best - score) / 2 sensitivity). Many are weighed at once.

    >>> exponential([500, 0, 0], epsilon=1, sensitivity=1)
    0
    """
    rate = _rate(epsilon, sensitivity)
    many = _many(scores, rate)
    source = open_source()
    if many is not None:
        return int(choose(many[None, :], rate, None, source)[0])
    losses = _losses(scores, epsilon, sensitivity)
    while True:
        i = source.below(len(losses))
        if exact.bernoulli_exp(losses[i], source):
            return i


def exponential_rows(scores: Any, epsilon: Number, sensitivity: Number, widths: Any = None) -> Ints:
    """One index per row of whole-number scores, each by the exponential mechanism on its own row, all at once.

    A candidate of `widths` w stands for w equal ones: its probability is ~ w exp(epsilon score / 2 sensitivity). Widths are
    public whole numbers from 0 to 2^40, one per candidate (or per score). Scores past 2^61 in magnitude are clipped to that,
    which moves no two data sets apart.

    >>> exponential_rows([[500, 0, 0], [0, 0, 500]], epsilon=1, sensitivity=1).tolist()
    [0, 2]
    """
    rate = _rate(epsilon, sensitivity)
    numbers = whole_numbers(scores)
    if isinstance(numbers, int) or numbers.ndim != 2 or not numbers.shape[1]:
        raise InvalidValue("scores must be rows of whole numbers, at least one in each: an array of two dimensions.")
    wide = None if widths is None else _widths(widths, numbers.shape)
    return choose(np.clip(numbers, -FARTHEST, FARTHEST), rate, wide, open_source())


def permute_and_flip(scores: Any, epsilon: Number, sensitivity: Number) -> int:
    """An index: candidates in random order, the first whose coin of exp(-epsilon (best - score) / 2 sensitivity) shows heads.

    epsilon-DP, never worse than the exponential mechanism in expected score (McKenna & Sheldon 2020), and the same distribution
    as report-noisy-max with exponential noise (Ding et al. 2021). It is not bounded-range.

    >>> permute_and_flip([500, 0, 0], epsilon=1, sensitivity=1)
    0
    """
    losses = _losses(scores, epsilon, sensitivity)
    source = open_source()
    remaining = list(range(len(losses)))
    while True:  # the best candidate's coin always shows heads, so this ends
        place = source.below(len(remaining))
        remaining[place], remaining[-1] = remaining[-1], remaining[place]
        i = remaining.pop()
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
    distribution = LaplaceDistribution(2 * grid.sensitivity(rational("sensitivity", sensitivity)) / epsilon)
    source = open_source()
    noisy = [step + noise for step, noise in zip(steps, _noise(distribution, len(steps), source))]
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


def _rate(epsilon: Number, sensitivity: Number) -> Fraction:
    return rational("epsilon", epsilon) / (2 * rational("sensitivity", sensitivity))


def _many(scores: Any, rate: Fraction) -> NDArray[Any] | None:
    """More than a few scores as the machine numbers they are, or None where they are few, mixed or too large for that."""
    try:
        array = scores if isinstance(scores, np.ndarray) else _array_of_one_type(scores)
    except OverflowError:
        return None
    if array is None or array.ndim != 1 or array.size <= FEW:
        return None
    if array.dtype.kind in "iu":
        return array.astype(np.int64) if array.min() >= -FARTHEST and array.max() <= FARTHEST else None
    if array.dtype not in (np.float16, np.float32, np.float64):
        return None
    array = np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=float(LARGEST_FLOAT), neginf=-float(LARGEST_FLOAT))
    fits = np.abs(array).max() <= 2.0**200 and Fraction(1, 1 << 200) <= rate <= 1 << 200
    return array if fits else None


def _array_of_one_type(scores: Any) -> NDArray[Any] | None:
    """numpy would turn a list of whole numbers and floats into floats, and so round."""
    kinds = set(map(type, scores)) if isinstance(scores, (list, tuple)) else set()
    return np.array(scores, np.int64 if kinds == {int} else np.float64) if kinds in ({int}, {float}) else None


def _widths(widths: Any, shape: tuple[int, ...]) -> Ints:
    wide = whole_numbers(widths)
    if isinstance(wide, int) or wide.shape not in (shape, shape[1:]):
        raise InvalidValue("widths must be whole numbers, one per candidate or one per score.")
    if (wide < 0).any() or (wide > WIDEST_CANDIDATE).any() or not (wide > 0).any(axis=-1).all():
        raise InvalidValue("widths must be between 0 and 2^40, and not all of a row may be 0.")
    return wide


def _losses(scores: Any, epsilon: Number, sensitivity: Number) -> list[Fraction]:
    """epsilon (best - score) / 2 sensitivity of each candidate."""
    rate = _rate(epsilon, sensitivity)
    values = _scores(scores)
    best = max(values)
    return [(best - score) * rate for score in values]


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


def _noise(distribution: LaplaceDistribution, count: int, source: Source) -> list[int]:
    if distribution.scale > WIDEST:
        return [draw_one(distribution, source) for _ in range(count)]
    values: list[int] = draw(distribution, count, source).tolist()
    return values
