"""A private sum of real numbers whose sensitivity is that of the arithmetic that computes it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from discreet.core import Claim, DiscreteGaussian, DiscreteLaplace, Event, Unit, check
from discreet.errors import InvalidValue
from discreet.noise.additive import add, answers, fix
from discreet.noise.digits import GaussianDistribution, LaplaceDistribution
from discreet.noise.grid import Grid, rows_of_numbers
from discreet.noise.samplers import Number, float_below, rational

LARGEST = 1 << 40  # grid steps between zero and a bound


@dataclass(frozen=True, slots=True)
class BoundedSum:
    """The sum of one number per row, each clipped to [lower, upper] and rounded to a grid, plus exact noise.

    The rounded rows are whole numbers of steps and are added as such: the order of rows, their number and their size
    cannot move the sum by more than one row's contribution, as they do in floating point (Casacuberta et al. 2022). A
    NaN, and whatever else in a list is no number, counts as the number nearest to 0 within the bounds; it changes one row's
    contribution and nothing else.
    `noise` is "laplace" (of this scale) or "gaussian" (of this standard deviation).

    >>> from discreet.core import record
    >>> ages = BoundedSum(lower=0, upper=120, granularity=1, noise="laplace", scale=240, unit=record())
    >>> ages.claims()[0].event
    DiscreteLaplace(scale=240.0, sensitivity=120)
    """

    lower: Fraction
    upper: Fraction
    granularity: Fraction
    noise: str
    scale: Fraction
    unit: Unit

    def __init__(self, lower: Number, upper: Number, granularity: Number, noise: str, scale: Number, unit: Unit) -> None:
        fix(self, lower=_bound("lower", lower), upper=_bound("upper", upper), granularity=Grid(granularity).granularity)
        fix(self, noise=check.word("noise", noise, ("laplace", "gaussian")), scale=rational("scale", scale), unit=unit)
        if self.lower >= self.upper:
            raise InvalidValue(f"lower must be below upper; got {float(self.lower):g} and {float(self.upper):g}.")
        if max(map(abs, self._ends())) > LARGEST:
            raise InvalidValue("The bounds are more than 2^40 grid steps from zero; choose a coarser granularity.")
        self.claims()

    def _ends(self) -> tuple[int, int]:
        """The bounds, in steps: what every row's contribution lies between."""
        lower, upper = Grid(self.granularity).steps(self.lower), Grid(self.granularity).steps(self.upper)
        assert isinstance(lower, int)
        assert isinstance(upper, int)
        return lower, upper

    def sensitivity(self) -> int:
        """The most steps by which one unit moves the sum."""
        lower, upper = self._ends()
        rows = self.unit.rows
        if rows is None:
            raise InvalidValue("This unit has no bound on its rows, so it moves a sum without bound. Set rows=... on the unit.")
        if self.unit.relation == "add_remove":
            return max(1, rows * max(abs(lower), abs(upper)))
        if self.unit.relation == "replace" and rows == 1 and self.unit.key is None:
            return max(1, upper - lower)
        return max(1, max(0, rows * upper) - min(0, rows * lower))  # any number of rows up to `rows`, before and after

    def claims(self) -> tuple[Claim, ...]:
        scale = float_below("scale / granularity", self.scale / self.granularity)
        kind = DiscreteLaplace if self.noise == "laplace" else DiscreteGaussian
        if not isinstance(self.unit, Unit):
            raise InvalidValue(f"unit must be a Unit, such as discreet.record(); got {type(self.unit).__name__}.")
        event: Event = kind(scale, self.sensitivity())
        return answers(self.unit, event, f"no unit owns more than {self.unit.rows} rows")

    def run(self, data: Any) -> float:
        kind = LaplaceDistribution if self.noise == "laplace" else GaussianDistribution
        noisy = add(kind(self.scale / self.granularity), "scale / granularity", self.total(data))
        assert isinstance(noisy, int)
        value = Grid(self.granularity).values(noisy)
        assert isinstance(value, float)
        return value

    def total(self, data: Any) -> int:
        """The sum before noise, in steps. It is private: for tests of sensitivity, never for release."""
        steps = Grid(self.granularity).steps(rows_of_numbers(data))
        if isinstance(steps, int) or steps.ndim != 1:
            raise InvalidValue("data must be a list of numbers, one per row.")
        clipped = np.clip(steps, *self._ends())
        return int((clipped >> 20).sum()) * (1 << 20) + int((clipped & 0xFFFFF).sum())  # no int64 overflow below 2^43 rows


def _bound(name: str, value: Number) -> Fraction:
    return rational(name, value, least=-(1 << 2000))
