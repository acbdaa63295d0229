"""The releases of a recommender: noisy item effects, and a noisy covariance of the residuals.

After McSherry and Mironov 2009 ("Differentially private recommender systems"), with Gaussian noise on exact sums. docs/theory/
recommend.md proves how far one rating, or one user, moves each of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.accounting import calibrate
from discreet.core import Claim, Event, Game, Gaussian, Group, Sequence, Unit, check
from discreet.errors import InvalidValue
from discreet.learn.estimators import exact
from discreet.learn.estimators.exact import GRAIN, TOLERANCE, Floats

Ints = NDArray[np.int64]

COUNTS = {"rating": 0.5, "user": 0.3}  # how much counts are worth beside sums
CLIP = 0.6  # of a user's centred ratings in item effects, in halves of the range
WORTH = 0.1  # of a user's mean and of the number of users
BOUND = 0.5  # of residuals in the covariance: a star, for ratings from 1 to 5
DRAG = 8.0  # ratings of the middle that a user's mean starts with
EFFECTS = 0.3  # the share of the variance's inverse that buys item effects, where a covariance is released too
MOST_ITEMS = 5000  # of a covariance


@dataclass(frozen=True, slots=True)
class Summaries:
    """Noisy sums over ratings (user, item, value in [-1, 1]) of a public list of items.

    `run` takes arrays of users and items as whole numbers and values. It gives sums and counts of items, two numbers of users,
    and with `covariance` the upper triangles of two matrices. A pair of user and item that occurs more than once contributes
    nothing.
    """

    items: int
    unit: Unit
    epsilon: float
    delta: float
    covariance: bool

    def __post_init__(self) -> None:
        check.whole("items", self.items, most=MOST_ITEMS if self.covariance else check.LARGEST_WHOLE)
        check.positive("epsilon", self.epsilon)
        check.open_fraction("delta", self.delta)
        if not isinstance(self.unit, Unit):
            raise InvalidValue(f"unit must be a Unit, such as discreet.record(); got {check.shown(self.unit)}.")
        if self.unit.key is None and self.unit.rows != 1:
            raise InvalidValue("The unit is one rating, record(), or one user with all ratings, user('who', rows=None).")

    @property
    def level(self) -> str:
        return "rating" if self.unit.key is None else "user"

    def noise(self) -> float:
        """The noise multiplier of the whole."""
        return _noise(self.covariance, self.unit.relation, self.epsilon, self.delta)

    def parts(self) -> tuple[float, float]:
        """The noise multipliers of item effects and covariance."""
        return _parts(self.noise(), self.covariance)

    def claims(self) -> tuple[Claim, ...]:
        whose = "one rating" if self.level == "rating" else "all ratings of one user"
        says = (f"the unit is {whose}", "the items and the range of ratings were not chosen by looking at the ratings")
        event = _event(self.noise(), self.covariance, self.unit.relation)
        return (Claim(game=Game(self.unit, {"weights"}), event=event, assumptions=says),)

    def run(self, data: Any) -> Floats:
        user, item, value = data
        user, item, value = cleaned(user, item, value, self.items)
        first, second = self.parts()
        total = self.effect_sums(user, item, value)
        out = exact.noisy(total, sensitivity=self.effect_sensitivity() * (1 + TOLERANCE), noise_multiplier=first)
        if not self.covariance:
            return out
        effects, middle = item_effects(out, self, first)
        matrix = self.matrices(user, item, value, effects, middle)
        moved = self.matrix_sensitivity() * (1 + TOLERANCE)
        return np.concatenate([out, exact.noisy(matrix, sensitivity=moved, noise_multiplier=second)])

    def effect_sums(self, user: Ints, item: Ints, value: Floats) -> Floats:
        """Before noise: sums by item, counts by item, and, for users, the sum of means and their number."""
        count = np.bincount(user) if len(user) else np.zeros(1, np.int64)
        if self.level == "rating":
            parts, weight = value, np.ones(len(user))
        else:
            weight = 1 / np.sqrt(count[user])
            parts = np.clip(value - user_means(user, value)[user], -CLIP, CLIP) * weight
        sums = np.bincount(item, down(parts), self.items)
        counts = np.bincount(item, down(COUNTS[self.level] * weight), self.items)
        means = np.zeros(2)
        if self.level == "user" and len(user):
            rated = count > 0
            means = np.array([down(WORTH * user_means(user, value)[rated]).sum(), down(np.array([WORTH]))[0] * rated.sum()])
        return np.concatenate([sums, counts, means])

    def effect_sensitivity(self) -> float:
        share = COUNTS[self.level]
        return math.hypot(1.0, share) if self.level == "rating" else math.sqrt(CLIP**2 + share**2 + 2 * WORTH**2)

    def matrices(self, user: Ints, item: Ints, value: Floats, effects: Floats, middle: float) -> Floats:
        """Sums over users of r r' / c and e e' / 4 c as upper triangles: c ratings, r their residuals, e their items."""
        size = self.items
        both = np.zeros((2, size, size))
        order = np.argsort(user, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(user[order])) + 1):
            if len(rows):
                place = np.ix_(item[rows], item[rows])
                residual = residuals(value[rows], effects[item[rows]], middle)[0]
                both[0][place] += down(np.outer(residual, residual) / len(rows))
                both[1][place] += down(np.full((len(rows), len(rows)), WEIGHT / len(rows)))
        return np.concatenate([triangle(matrix) for matrix in both])

    def matrix_sensitivity(self) -> float:
        """docs/theory/recommend.md: a user's two matrices have Frobenius norms of at most BOUND^2 and WEIGHT."""
        if self.level == "user":
            return math.hypot(BOUND**2, WEIGHT)
        rounding = 2 * self.items * GRAIN
        return math.hypot(_one_rating(), WEIGHT) + rounding


WEIGHT = 0.25  # of the matrix of who rated what beside that of residuals


@lru_cache(maxsize=1)
def _one_rating() -> float:
    """The most that one rating moves w r r', over all numbers c of other ratings of its user."""
    c = np.arange(0, 100_000, dtype=np.float64)
    shift = np.minimum(2 * 2 / (c + 1 + DRAG), 2 * BOUND)  # of the user's mean: values less effects lie within [-2, 2]
    joint = np.where(c == 0, 1.0, np.sqrt(2 / (c + 1))) * BOUND**2 + 2 * BOUND * shift * np.sqrt(c / (c + 1))
    return float(joint.max())


def _parts(noise: float, covariance: bool) -> tuple[float, float]:
    return (noise / math.sqrt(EFFECTS), noise / math.sqrt(1 - EFFECTS)) if covariance else (noise, noise)


def _event(noise: float, covariance: bool, relation: str) -> Event:
    first, second = _parts(noise, covariance)
    event: Event = Sequence([Gaussian(first), Gaussian(second)]) if covariance else Gaussian(noise)
    return Group(event, 2) if relation == "replace" else event


@lru_cache(maxsize=64)
def _noise(covariance: bool, relation: str, epsilon: float, delta: float) -> float:
    return calibrate(lambda noise: _event(noise, covariance, relation), epsilon, delta)


def cleaned(user: Any, item: Any, value: Any, items: int) -> tuple[Ints, Ints, Floats]:
    """Ratings of known items with a value; none of a pair that occurs more than once, so one more moves one rating only."""
    user, item, value = np.asarray(user, np.int64), np.asarray(item, np.int64), np.asarray(value, np.float64)
    usable = (item >= 0) & (item < items) & np.isfinite(value)
    user, item, value = user[usable], item[usable], np.clip(value[usable], -1.0, 1.0)
    pair = np.unique(user, return_inverse=True)[1].astype(np.int64) * items + item
    _, place, times = np.unique(pair, return_inverse=True, return_counts=True)
    once = times[place] == 1
    return np.unique(user[once], return_inverse=True)[1].astype(np.int64), item[once], value[once]


def user_means(user: Ints, value: Floats) -> Floats:
    """The mean of each user's values, drawn to 0."""
    return np.asarray(np.bincount(user, value) / (np.bincount(user) + DRAG))


def residuals(value: Floats, effects: Floats, middle: float) -> tuple[Floats, float]:
    """One user's residuals after item effects and the user's own level, clipped to BOUND, and that level."""
    centred = np.clip(value - effects - middle, -2.0, 2.0)
    level = float(centred.sum() / (len(centred) + DRAG))
    return np.asarray(np.clip(centred - level, -BOUND, BOUND)), level + middle


def down(values: Floats) -> Floats:
    """Towards 0 to multiples of GRAIN: no contribution becomes longer, and sums are exact."""
    return np.asarray(np.trunc(values / GRAIN) * GRAIN)


def triangle(matrix: Floats) -> Floats:
    """The upper triangle of a symmetric matrix as a vector of the same Frobenius norm."""
    place = np.triu_indices(len(matrix))
    return np.asarray(matrix[place] * np.where(place[0] == place[1], 1.0, math.sqrt(2)))


def item_effects(released: Floats, mechanism: Summaries, noise_multiplier: float) -> tuple[Floats, float]:
    """Item effects and the middle, from sums and counts with this noise: the mean of each effect given both.

    Items that many rate are liked more, so an effect is taken to be normal around a line in the logarithm of its noisy count;
    what was measured moves it from there as far as the noise allows. All of it is post-processing.
    """
    size, share = mechanism.items, COUNTS[mechanism.level]
    noise = noise_multiplier * mechanism.effect_sensitivity()
    sums, counts = released[:size], np.maximum(released[size : 2 * size] / share, 0.0)
    if mechanism.level == "rating":
        middle = float(np.clip(released[:size].sum() / max(released[size : 2 * size].sum() / share, 1.0), -1, 1))
        spread = 0.22  # variance of a rating, in halves of the range squared
    else:
        middle = float(np.clip(released[2 * size] / max(float(released[2 * size + 1]), WORTH), -1, 1))
        spread = 0.02
    target = sums - counts * middle if mechanism.level == "rating" else sums
    variance = noise**2 + spread * counts
    shape = np.stack([np.ones(size), np.log1p(counts / (1 + noise))], axis=1) * counts[:, None]
    scaled = shape / np.sqrt(variance)[:, None]
    line = np.linalg.solve(scaled.T @ scaled + np.eye(2), scaled.T @ (target / np.sqrt(variance)))
    residual = target - shape @ line
    wide = float(np.clip((residual**2 - variance).sum() / max((counts**2).sum(), 1e-9), 0.005, 0.2))
    effects = shape @ line / np.maximum(counts, 1e-9) + wide * counts * residual / (wide * counts**2 + variance)
    return np.asarray(np.clip(np.where(counts > 0, effects, line[0]), -1.0, 1.0)), middle
