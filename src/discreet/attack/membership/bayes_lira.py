"""A Bayesian likelihood-ratio attack, the strongest for few shadows and for many: the prior is learned from all rows.

Each row has a level inside and a level outside; across rows these are a pair of correlated normal numbers (the prior), and
the signals of single models scatter around them. The prior is fitted by expectation-maximisation to the signals of all shadows
and of the target on all rows, the target's side being unknown. Every row's two levels then have a posterior, and the score is
the ratio of two Student t predictive densities (whence the attack's first name, student), with variances shrunk to those of all
rows.

With many shadows it becomes the Gaussian ratio of Carlini et al. 2022; with two it still knows what a row outside says about
the same row inside, which that ratio does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.attack.membership.signals import evidence

Array = NDArray[np.float64]
Marks = NDArray[np.bool_]

ROUNDS = 60
LEAST = 1e-6  # variance
FREEDOM = 8.0  # of the prior on variances, where no row was seen twice on a side


@dataclass(frozen=True)
class Side:
    """What the shadows on one side say of each row: how many, their sum, their sum of squares."""

    count: Array
    total: Array
    squares: Array

    @classmethod
    def of(cls, shadows: Array, chosen: Marks) -> Side:
        kept = np.where(chosen, shadows, 0.0)
        return cls(chosen.sum(0).astype(np.float64), kept.sum(0), (kept**2).sum(0))

    def plus(self, x: Array) -> Side:
        return Side(self.count + 1, self.total + x, self.squares + x**2)

    def spread(self) -> Array:
        """The sum of squares around the row's own mean."""
        return np.maximum(self.squares - self.total**2 / np.maximum(self.count, 1.0), 0.0)


@dataclass(frozen=True)
class Prior:
    """Means [2] and covariance [2, 2] of the levels inside and outside, and the scatter [2] of single models."""

    mean: Array
    covariance: Array
    scatter: Array

    def levels(self, inside: Side, outside: Side) -> tuple[Array, Array, Array, Array, Array]:
        """Posterior means of both levels, their variances and covariance, by row."""
        inverse = np.linalg.inv(self.covariance)
        one, two = inverse[0, 0] + inside.count / self.scatter[0], inverse[1, 1] + outside.count / self.scatter[1]
        determinant = one * two - inverse[0, 1] ** 2
        var_in, var_out, both = two / determinant, one / determinant, -inverse[0, 1] / determinant
        pull = inverse @ self.mean
        first, second = pull[0] + inside.total / self.scatter[0], pull[1] + outside.total / self.scatter[1]
        return var_in * first + both * second, both * first + var_out * second, var_in, var_out, both


def paired(target: Array, shadows: Array, inside: Marks) -> Array:
    """The log likelihood ratio of every row.

    >>> rng = np.random.default_rng(0)
    >>> inside = rng.random((4, 500)) < 0.5
    >>> rows, member = rng.normal(size=500), np.arange(500) % 2 == 0
    >>> score = paired(rows + 2.0 * member, rows + 2.0 * inside + 0.1 * rng.normal(size=(4, 500)), inside)
    >>> bool(score[member].min() > score[~member].max())
    True
    """
    sides = Side.of(shadows, inside), Side.of(shadows, ~inside)
    prior = _fitted(target, *sides)
    mean_in, mean_out, var_in, var_out, _ = prior.levels(*sides)
    return _predictive(target, mean_in, var_in, prior.scatter[0], sides[0]) - _predictive(
        target, mean_out, var_out, prior.scatter[1], sides[1]
    )


def bayes_lira(margin: Array, margins: Array, tempered: Array, tempereds: Array, inside: Marks) -> Array:
    """The default attack, from two signals of target and shadows: the margin, which tells more with many shadows, and the
    logarithm of the probability at temperature 2, which tells more with few.

    Two estimates of the same log-ratio are added, each in units of its own spread over the rows: the one above, which takes
    levels to be normal, and that of Zarifzadeh et al. 2024, the probability over its mean, which takes nothing for granted.
    """
    levels = paired(margin, margins, inside) + paired(tempered, tempereds, inside)
    share = tempered - np.log(np.maximum(evidence(np.exp(tempereds), inside), 1e-12))
    return _in_spreads(levels) + _in_spreads(share)


def _in_spreads(score: Array) -> Array:
    spread = float(score.std())
    return score / spread if spread > 0 else score


def _fitted(x: Array, inside: Side, outside: Side) -> Prior:
    """Expectation-maximisation over the levels of every row and the unknown side of the target."""
    means = np.array([side.total.sum() / max(side.count.sum(), 1.0) for side in (inside, outside)])
    every = [side.squares.sum() / max(side.count.sum(), 1.0) - mean**2 for side, mean in zip((inside, outside), means)]
    scatter = 0.5 * np.maximum(every, LEAST)
    prior = Prior(
        means, np.array([[scatter[0], 0.6 * np.sqrt(scatter.prod())], [0.6 * np.sqrt(scatter.prod()), scatter[1]]]), scatter
    )
    for _ in range(ROUNDS):
        prior = _better(prior, x, inside, outside)
    return prior


def _better(prior: Prior, x: Array, inside: Side, outside: Side) -> Prior:
    mean_in, mean_out, var_in, var_out, _ = prior.levels(inside, outside)
    gap = _log_normal(x, mean_out, prior.scatter[1] + var_out) - _log_normal(x, mean_in, prior.scatter[0] + var_in)
    weight = 1.0 / (1.0 + np.exp(np.clip(gap, -50.0, 50.0)))
    worlds = [(weight, inside.plus(x), outside), (1.0 - weight, inside, outside.plus(x))]
    known = [(w, a, b, prior.levels(a, b)) for w, a, b in worlds]
    mean = np.array([sum(float((w * level[side]).sum()) for w, _, _, level in known) for side in (0, 1)]) / len(x)
    covariance, scatter, seen = np.zeros((2, 2)), np.zeros(2), np.zeros(2)
    for w, a, b, (one, two, v_one, v_two, both) in known:
        first, second = one - mean[0], two - mean[1]
        cross = (w * (first * second + both)).sum()
        covariance += [[(w * (first**2 + v_one)).sum(), cross], [cross, (w * (second**2 + v_two)).sum()]]
        for place, (side, level, variance) in enumerate(((a, one, v_one), (b, two, v_two))):
            scatter[place] += (w * (side.squares - 2 * level * side.total + side.count * (level**2 + variance))).sum()
            seen[place] += (w * side.count).sum()
    return Prior(mean, covariance / len(x) + LEAST * np.eye(2), np.maximum(scatter / np.maximum(seen, 1.0), LEAST))


def _log_normal(x: Array, mean: Array, variance: Array) -> Array:
    return -0.5 * ((x - mean) ** 2 / variance + np.log(variance))


def _predictive(x: Array, mean: Array, variance: Array, scatter: float, side: Side) -> Array:
    """The log density of x, up to a constant that both sides share."""
    from scipy.special import gammaln

    spread, several = side.spread(), side.count > 1
    freedom, prior = FREEDOM, float(scatter)
    if several.sum() > 10:
        own = np.maximum(spread[several] / (side.count[several] - 1), LEAST)
        freedom, prior = variance_prior(own, side.count[several] - 1, prior)
    degrees = freedom + np.maximum(side.count - 1, 0.0)
    scale = (freedom * prior + np.where(several, spread, 0.0)) / degrees + variance
    far = np.log1p((x - mean) ** 2 / scale / degrees)
    return gammaln((degrees + 1) / 2) - gammaln(degrees / 2) - 0.5 * np.log(degrees * scale) - (degrees + 1) / 2 * far


def variance_prior(variance: Array, freedom: Array, pooled: float) -> tuple[float, float]:
    """Degrees of freedom and scale of the prior on variances, by matching the moments of their logarithms (Smyth 2004)."""
    from scipy.special import digamma, polygamma

    logs = np.log(variance) - digamma(freedom / 2) + np.log(freedom / 2)
    excess = float(np.var(logs) - np.mean(polygamma(1, freedom / 2)))
    if excess <= 1e-3:
        return 200.0, pooled
    half = float(np.clip(_inverse_trigamma(excess), 0.5, 100.0))
    return 2 * half, float(np.exp(np.mean(logs) + digamma(half) - np.log(half)))


def _inverse_trigamma(value: float) -> float:
    from scipy.special import polygamma

    x = 0.5 + 1.0 / value
    for _ in range(50):
        now = float(polygamma(1, x))
        step = now * (1.0 - now / value) / float(polygamma(2, x))
        x += step
        if -step < 1e-8 * x:
            break
    return x
