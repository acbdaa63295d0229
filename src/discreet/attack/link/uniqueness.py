"""How many rows are alone with their quasi-identifiers, here and in the population the table was drawn from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.columns import classes, columns
from discreet.core import check

ESTIMATORS = ("zayatz", "pitman")


@dataclass(frozen=True, slots=True)
class Uniqueness:
    """What the quasi-identifiers tell rows apart by: `sizes[j]` classes have `j` rows.

    `k` is the size of the smallest class; `unique` rows of `rows` are alone in theirs.
    """

    rows: int
    classes: int
    unique: int
    k: int
    sizes: NDArray[np.int64]

    @property
    def share(self) -> float:
        """The share of rows that are alone in this table."""
        return self.unique / self.rows

    def population(self, fraction: float, method: str = "pitman") -> float:
        """The estimated share of *people of the population* who are alone there, if the table is a random `fraction` of it.

        `pitman` fits Pitman's sampling formula (Hoshino 2001); `zayatz` (1991) takes the class sizes seen here for those of
        the population, which says too much when the fraction is small. Both are estimates with no guarantee.
        """
        fraction = check.positive("fraction", check.fraction("fraction", fraction))
        check.word("method", method, ESTIMATORS)
        if fraction == 1.0 or not self.unique:
            return self.share
        estimate = _pitman(self.sizes, fraction) if method == "pitman" else _zayatz(self.sizes, fraction)
        return min(estimate, 1.0)

    def match_is_right(self, fraction: float) -> float:
        """The estimated chance that a unique match with this table is the right person (Skinner & Elliot 2002)."""
        fraction = check.positive("fraction", check.fraction("fraction", fraction))
        pairs = int(self.sizes[2]) if len(self.sizes) > 2 else 0
        below = fraction * self.unique + 2.0 * (1.0 - fraction) * pairs
        return fraction * self.unique / below if below else 0.0


def uniqueness(table: Any, quasi: Sequence[str]) -> Uniqueness:
    """How far the quasi-identifiers tell the rows of a table apart.

    >>> found = uniqueness({"zip": [1, 1, 2], "sex": ["f", "f", "m"]}, ["zip", "sex"])
    >>> found.unique, found.k, found.classes
    (1, 1, 2)
    """
    label, count = classes(list(columns(table, quasi).values()))
    each = np.bincount(label, minlength=count)
    sizes = np.bincount(each)
    unique = int(sizes[1]) if len(sizes) > 1 else 0
    return Uniqueness(len(label), count, unique, int(each.min()), sizes.astype(np.int64))


def _zayatz(sizes: NDArray[np.int64], fraction: float) -> float:
    """Pr[alone in the population | alone here] by Bayes, with the class sizes of the sample as the prior."""
    size = np.arange(1, len(sizes))
    share = sizes[1:] / sizes[1:].sum()
    seen_once = size * fraction * (1.0 - fraction) ** (size - 1)
    alone = share[0] * fraction / float((share * seen_once).sum())
    rows = float((np.arange(len(sizes)) * sizes).sum())
    return float(alone * sizes[1] / rows)  # as many of the sample's rows are alone there as of the population's people


def _pitman(sizes: NDArray[np.int64], fraction: float) -> float:
    """Expected uniques at the population's size under Pitman's formula, with both parameters by maximum likelihood."""
    from scipy.optimize import minimize

    size = np.flatnonzero(sizes)
    count = sizes[size].astype(np.float64)
    rows, found = float((size * count).sum()), float(count.sum())

    def unlikely(point: NDArray[np.float64]) -> float:
        alpha, theta = _parameters(point)
        return -_pitman_likelihood(alpha, theta, rows, found, size, count)

    starts = [np.array([a, math.log(t)]) for a in (-2.0, 0.0, 2.0) for t in (1.0, max(found, 2.0))]
    best = min((minimize(unlikely, start, method="Nelder-Mead") for start in starts), key=lambda it: float(it.fun))
    alpha, theta = _parameters(best.x)
    people = rows / fraction
    # E[uniques among N] = N * Γ(θ+1) Γ(θ+α+N-1) / (Γ(θ+α) Γ(θ+N))
    growth = math.lgamma(theta + alpha + people - 1) - math.lgamma(theta + people)
    return math.exp(math.lgamma(theta + 1) - math.lgamma(theta + alpha) + growth)


def _parameters(point: NDArray[np.float64]) -> tuple[float, float]:
    """The two parameters of a point of the search: 0 < alpha < 1 and theta > 0, away from where the formula breaks down."""
    shape, size = np.clip(point, -20.0, 40.0)
    return min(1.0 / (1.0 + math.exp(-shape)), 1.0 - 1e-9), math.exp(size)


def _pitman_likelihood(
    alpha: float, theta: float, rows: float, found: float, size: NDArray[Any], count: NDArray[np.float64]
) -> float:
    """The part of the log likelihood that depends on the parameters."""
    from scipy.special import gammaln

    new = found * math.log(alpha) + float(gammaln(theta / alpha + found) - gammaln(theta / alpha))
    total = float(gammaln(theta + rows) - gammaln(theta))
    within = float((count * (gammaln(size - alpha) - gammaln(1.0 - alpha))).sum())
    return new - total + within
