"""Noise on real numbers: rounded to a public grid first, so that no floating-point detail of the input survives.

docs/theory/noise-granularity.md derives the sensitivities used here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import Claim, DiscreteGaussian, DiscreteLaplace, Event, Repeat, Unit, check
from discreet.errors import InvalidValue
from discreet.noise.additive import FARTHEST, add, answers, as_array, count_is, fix
from discreet.noise.digits import GaussianDistribution, LaplaceDistribution
from discreet.noise.samplers import Number, float_below, rational

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Grid:
    """All multiples of `granularity`. A number goes to the nearest one, a half upwards, in exact arithmetic.

    Moving a number by a whole number of steps moves its rounding by as many, and rounding keeps order: so numbers at
    most d apart are at most ceil(d / granularity) steps apart afterwards. NaN counts as 0; infinities and whatever is
    past 2^62 steps are clipped to that.

    >>> Grid(0.25).steps([0.1, 0.125, -0.125, float("nan")]).tolist()
    [0, 1, 0, 0]
    """

    granularity: Fraction

    def __init__(self, granularity: Number) -> None:
        g = rational("granularity", granularity)
        if not Fraction(1, 1 << 900) <= g <= 1 << 900:
            raise InvalidValue("granularity must be between 2^-900 and 2^900; choose one near the precision you need.")
        fix(self, granularity=g)

    def steps(self, values: Any) -> int | Ints:
        """The grid point of each number, counted in steps."""
        if _number(values):
            return self.step(values)
        array = real_numbers(values)
        if array.dtype == np.float64:
            return self._steps(array)
        return np.array([self.step(value) for value in array.flat], np.int64).reshape(array.shape)

    def _steps(self, array: Floats) -> Ints:
        """By float64 where its rounding error cannot matter, one by one in exact arithmetic where it can."""
        g = self.granularity
        dyadic = not (g.numerator & (g.numerator - 1) or g.denominator & (g.denominator - 1))
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            scaled = array / float(g)  # exact for a power of two, else off by less than 2^-51 of itself
            low = np.floor(scaled)
            part = scaled - low
            unsure = ~(np.abs(scaled) < 2.0**48)
            if not dyadic:
                unsure |= np.abs(part - 0.5) <= 2.0**-50 * (1 + np.abs(scaled))
        steps = np.where(unsure, 0.0, low + (part >= 0.5)).astype(np.int64)
        steps[unsure] = [self.step(value) for value in array[unsure].tolist()]
        return steps

    def step(self, value: Any) -> int:
        """The grid point of one number, counted in steps."""
        if isinstance(value, (float, np.floating)):
            if math.isnan(value):
                return 0
            if math.isinf(value):
                return FARTHEST if value > 0 else -FARTHEST
        exact = value if isinstance(value, Fraction) else Fraction(int(value) if isinstance(value, Integral) else float(value))
        return max(-FARTHEST, min(FARTHEST, math.floor(exact / self.granularity + Fraction(1, 2))))

    def values(self, steps: int | Ints) -> float | Floats:
        """The numbers that steps stand for, as floats."""
        if isinstance(steps, int):
            return float(steps * self.granularity)
        return np.multiply(steps, float(self.granularity), dtype=np.float64)

    def sensitivity(self, distance: Fraction, size: int = 1) -> int:
        """The most steps, in l1, between the roundings of two lists of `size` numbers at most `distance` apart in l1.

        >>> Grid(Fraction(1, 10)).sensitivity(Fraction(1)), Grid(Fraction(1, 10)).sensitivity(Fraction(1), size=3)
        (10, 12)
        """
        return max(1, math.ceil(distance / self.granularity) + size - 1)


@dataclass(frozen=True, slots=True)
class GridLaplace:
    """Discrete Laplace noise on `size` real numbers that one unit moves by at most `sensitivity` in l1, on a grid.

    `scale`, `sensitivity` and `granularity` are in the unit of the data. Sensitivity is that of the numbers as they
    are handed in: a sum made in floating point moves by more than its formula says (use BoundedSum).

    >>> from discreet.core import record
    >>> GridLaplace(scale=2.0, sensitivity=1.0, granularity=0.25, size=1, unit=record()).claims()[0].event
    DiscreteLaplace(scale=8.0, sensitivity=4)
    """

    scale: Fraction
    sensitivity: Fraction
    granularity: Fraction
    size: int
    unit: Unit

    def __init__(self, scale: Number, sensitivity: Number, granularity: Number, size: int, unit: Unit) -> None:
        fix(self, scale=rational("scale", scale), sensitivity=rational("sensitivity", sensitivity))
        fix(self, granularity=Grid(granularity).granularity, size=check.whole("size", size), unit=unit)
        self.claims()

    def claims(self) -> tuple[Claim, ...]:
        grid = Grid(self.granularity)
        scale = float_below("scale / granularity", self.scale / self.granularity)
        event = DiscreteLaplace(scale, grid.sensitivity(self.sensitivity, self.size))
        return answers(self.unit, event, f"one unit moves the numbers by at most {float(self.sensitivity):g} in l1")

    def run(self, data: Any) -> float | Floats:
        grid = Grid(self.granularity)
        steps = grid.steps(data)
        count_is(steps, self.size)
        return grid.values(add(LaplaceDistribution(self.scale / self.granularity), "scale / granularity", steps))


@dataclass(frozen=True, slots=True)
class GridGaussian:
    """Discrete Gaussian noise on `size` real numbers, each of which one unit moves by at most `sensitivity`, on a grid.

    >>> from discreet.core import record
    >>> GridGaussian(sigma=2.0, sensitivity=1.0, granularity=0.3, size=1, unit=record()).claims()[0].event.sensitivity
    4
    """

    sigma: Fraction
    sensitivity: Fraction
    granularity: Fraction
    size: int
    unit: Unit

    def __init__(self, sigma: Number, sensitivity: Number, granularity: Number, size: int, unit: Unit) -> None:
        fix(self, sigma=rational("sigma", sigma), sensitivity=rational("sensitivity", sensitivity))
        fix(self, granularity=Grid(granularity).granularity, size=check.whole("size", size), unit=unit)
        self.claims()

    def claims(self) -> tuple[Claim, ...]:
        sigma = float_below("sigma / granularity", self.sigma / self.granularity)
        event: Event = DiscreteGaussian(sigma, Grid(self.granularity).sensitivity(self.sensitivity))
        event = event if self.size == 1 else Repeat(event, self.size)
        return answers(self.unit, event, f"one unit moves each of {self.size} numbers by at most {float(self.sensitivity):g}")

    def run(self, data: Any) -> float | Floats:
        grid = Grid(self.granularity)
        steps = grid.steps(data)
        count_is(steps, self.size)
        return grid.values(add(GaussianDistribution(self.sigma / self.granularity), "sigma / granularity", steps))


def real_numbers(values: Any) -> NDArray[Any]:
    """An array of the numbers handed in, unrounded; what is refused depends on types alone."""
    array = as_array(values)
    if array.dtype == object and all(type(item) is float for item in array.flat):
        return array.astype(np.float64)
    numeric = array.dtype.kind in "iu" or array.dtype in (np.float16, np.float32, np.float64)
    if not numeric and not (array.dtype == object and all(_number(item) for item in array.flat)):
        raise InvalidValue(f"data must be numbers (float64 at most); got {type(values).__name__} of {array.dtype}.")
    if array.dtype.kind == "f" or (array.dtype.kind in "iu" and (np.abs(array.astype(np.float64)) < 2.0**53).all()):
        return array.astype(np.float64)  # exact
    return array


def rows_of_numbers(values: Any) -> Any:
    """Numbers, one per row, with NaN for a row that holds something else: what one row holds must not stop a release."""
    array = as_array(values)
    if array.dtype != object or array.ndim != 1:
        return values
    return [item if _number(item) else _counted(item) for item in array.tolist()]


def _counted(item: Any) -> float:
    """A truth value as 0 or 1, a decimal number as the nearest float, anything else as NaN."""
    try:
        return float(item) if isinstance(item, (bool, np.bool_, Decimal)) else math.nan
    except ValueError:  # a NaN that signals
        return math.nan


def _number(item: Any) -> bool:
    return isinstance(item, Real) and not isinstance(item, (bool, np.bool_))
