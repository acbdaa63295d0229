"""Private sums over rows, as mechanisms: everything that follows from them is post-processing.

Each row becomes one vector of length at most 1, cut to that by construction, so one row moves the sum by at most 1; sums are
exact. `Totals` adds the vectors, `Moments` their products with themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from discreet.accounting import calibrate
from discreet.core import Claim, Game, Gaussian, Unit, check
from discreet.learn.estimators import exact
from discreet.learn.estimators.exact import TOLERANCE, Floats
from discreet.learn.estimators.mechanisms import for_unit, group_size

Encode = Callable[[Any], Floats]  # a public map from rows to vectors; it looks at one row at a time


@dataclass(frozen=True, slots=True)
class Totals:
    """The sum of `encode(row)`, each cut to length 1, with Gaussian noise.

    >>> from discreet.core import record
    >>> Totals(np.atleast_2d, record(), 1.0, 1e-6).claims()[0].event.kind
    'gaussian'
    """

    encode: Encode
    unit: Unit
    epsilon: float
    delta: float
    public: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check.positive("epsilon", self.epsilon)
        check.open_fraction("delta", self.delta)
        group_size(self.unit)

    def noise(self) -> float:
        """The noise multiplier; it is also the standard deviation of what is released, since a row has length 1."""
        return gaussian_noise(self.unit, self.epsilon, self.delta)

    def claims(self) -> tuple[Claim, ...]:
        owner = "each unit owns one row" if self.unit.rows == 1 else f"no unit owns more than {self.unit.rows} rows"
        says = (owner, "bounds, norm and the list of columns were not chosen by looking at the data", *self.public)
        event = for_unit(Gaussian(self.noise()), self.unit)
        return (Claim(game=Game(self.unit, {"weights"}), event=event, assumptions=says),)

    def run(self, data: Any) -> Floats:
        total = self._summed(exact.grained(self.encode(data)))
        return exact.noisy(total, sensitivity=1 + 2 * TOLERANCE, noise_multiplier=self.noise())

    def _summed(self, vectors: Floats) -> Floats:
        return exact.added(vectors, np.ones(len(vectors)))


@lru_cache(maxsize=256)
def gaussian_noise(unit: Hashable, epsilon: float, delta: float) -> float:
    return calibrate(lambda noise: for_unit(Gaussian(noise), unit), epsilon, delta)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Moments(Totals):
    """The sum of z z' over rows z = encode(row), with noise on every entry, the diagonal too.

    As a vector of its upper triangle, with the entries above the diagonal times sqrt 2, z z' has length |z|^2 <= 1. So the
    noise above the diagonal is smaller by sqrt 2 than on it (Dwork, Talwar, Thakurta & Zhang 2014).
    """

    def _summed(self, vectors: Floats) -> Floats:
        return flat(exact.squared(vectors))


def flat(matrix: Floats) -> Floats:
    """The upper triangle of a symmetric matrix as a vector of the same Frobenius norm."""
    place = np.triu_indices(len(matrix))
    return np.asarray(matrix[place] * np.where(place[0] == place[1], 1.0, math.sqrt(2)))


def unflat(vector: Floats) -> Floats:
    """The symmetric matrix that `flat` made.

    >>> unflat(flat(np.array([[1.0, 2.0], [2.0, 5.0]]))).round(9).tolist()
    [[1.0, 2.0], [2.0, 5.0]]
    """
    size = (math.isqrt(8 * len(vector) + 1) - 1) // 2
    place = np.triu_indices(size)
    matrix = np.zeros((size, size))
    matrix[place] = vector / np.where(place[0] == place[1], 1.0, math.sqrt(2))
    return np.asarray(matrix + np.triu(matrix, 1).T)
