"""Gaussian noise on several sums of the same rows: less than Laplace noise where one unit is in many groups, or sums are many.

docs/theory/query-gaussian.md proves what is claimed here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from discreet.accounting import Gaussian, calibrate
from discreet.errors import InvalidValue
from discreet.noise import discrete_gaussian_error
from discreet.noise.additive import fix
from discreet.noise.digits import GaussianDistribution
from discreet.noise.fast import WIDEST
from discreet.noise.samplers import draw
from discreet.noise.source import open_source
from discreet.noise.vectors import least_sigma

FINE = 1 << 12  # steps of a number that one unit moves it by, at least: rounding then costs nothing to speak of


@dataclass(frozen=True, slots=True)
class Gaussians:
    """Discrete Gaussian noise on vectors of whole numbers, one vector per group, as one event: `Gaussian(multiplier)`.

    One unit moves number i by at most `sensitivities`[i] in l1 over all groups, and in one group by at most that over `groups`.
    Numbers are multiplied by `times` first: what comes out is in those finer steps, with noise of standard deviation `sigmas`.

    >>> noise = Gaussians((1, 146), groups=1, multiplier=4.0)
    >>> noise.event, noise.times
    (Gaussian(noise_multiplier=4.0), (4096, 29))
    >>> noise.run([[10_000], [1_000_000]]).shape
    (2, 1)
    """

    sensitivities: tuple[int, ...]
    groups: int
    multiplier: float
    times: tuple[int, ...]
    sigmas: tuple[int, ...]

    def __init__(self, sensitivities: tuple[int, ...], groups: int, multiplier: float) -> None:
        fix(self, sensitivities=sensitivities, groups=groups, multiplier=multiplier)
        times = tuple(-(-FINE * groups // sensitivity) for sensitivity in sensitivities)
        fix(self, times=times, sigmas=tuple(self._sigma(a * b) for a, b in zip(times, sensitivities)))
        if max(self.sigmas) > WIDEST:
            raise InvalidValue("The noise would be larger than int64 holds; choose a larger epsilon, or coarser whole numbers.")

    def _sigma(self, sensitivity: int) -> int:
        """The l2 sensitivity of one number is its l1 sensitivity over the root of `groups`; of d numbers each gets one d-th
        of the squared loss."""
        square = Fraction(self.multiplier) ** 2 * len(self.sensitivities) * sensitivity**2 / self.groups
        return least_sigma_of_square(square)

    @property
    def event(self) -> Gaussian:
        return Gaussian(self.multiplier)

    def run(self, columns: Any) -> Any:
        """Columns of whole numbers, one column per number, in finer steps and with noise; whole numbers of any size."""
        source = open_source()
        noisy = []
        for column, times, sigma in zip(columns, self.times, self.sigmas, strict=True):
            noise = draw(GaussianDistribution(Fraction(sigma)), len(column), source).tolist()
            noisy.append([int(a) * times + b for a, b in zip(column, noise)])
        return np.array(noisy, object)

    def error(self, place: int, confidence: float) -> int:
        """A t such that the noise of number `place` is within t of its finer steps with this probability."""
        return discrete_gaussian_error(float(self.sigmas[place]), confidence)


def least_sigma_of_square(square: Fraction) -> int:
    """The least whole sigma whose discrete Gaussian is post-processing of Gaussian noise of this variance, in steps."""
    root = math.isqrt(math.ceil(square))
    return least_sigma(Fraction(root + (root * root < square)))


@lru_cache(256)
def multiplier(epsilon: float, delta: float) -> float:
    """The least noise, in l2 sensitivities, that keeps (epsilon, delta)."""
    return calibrate(Gaussian, epsilon, delta)
