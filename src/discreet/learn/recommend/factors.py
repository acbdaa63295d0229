"""Item factors by noisy alternating least squares, one user at a time.

After Chien et al. 2021 ("Private alternating least squares"). Given the item factors of the round before, each user solves for
a factor of their own from their own ratings, and adds to the sum of each item that they rated. Those sums get Gaussian noise,
and the next item factors follow from them. docs/theory/recommend.md proves how far one user, with any number of ratings, moves
the sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.accounting import calibrate
from discreet.core import Claim, Event, Game, Gaussian, Group, Repeat, Sequence, Unit, check
from discreet.errors import InvalidValue
from discreet.learn.estimators import exact
from discreet.learn.estimators.exact import TOLERANCE, UNIT, Floats
from discreet.learn.recommend.summaries import (
    BOUND,
    COUNTS,
    DRAG,
    EFFECTS,
    WORTH,
    Summaries,
    cleaned,
    down,
    item_effects,
)  # fmt: skip

Ints = NDArray[np.int64]

ROUNDS = 3  # of alternating least squares
MATRIX = 0.3  # how much a user's factor times itself is worth beside the item sums
UNEXPLAINED = 0.1  # variance of a residual that no factor explains, in halves of the range squared
TYPICAL = 0.4  # mean squared length of a user's factor, below the 1 at which it is clipped
START = 0.2  # standard deviation of a rating that random item factors explain
SHARE = 0.15  # mean squared weight of a rating in an item sum, over its mean weight


@dataclass(frozen=True, slots=True)
class Factors:
    """Noisy item effects, then `rank` noisy factors of each item of a public list.

    `run` takes arrays of users and items as whole numbers and values in [-1, 1]. It gives what `Summaries` gives without a
    covariance, then the item factors row by row. The unit is a user with any number of ratings.
    """

    items: int
    unit: Unit
    epsilon: float
    delta: float
    rank: int

    def __post_init__(self) -> None:
        check.whole("factors", self.rank, most=64)
        if self.summaries().level != "user":
            raise InvalidValue(
                'method="als" protects whole users: say unit=discreet.user("user", rows=None). '
                'For single ratings take "knn" or "svd".'
            )

    def summaries(self) -> Summaries:
        """The mechanism of the item effects, which have a part of the budget."""
        return Summaries(self.items, self.unit, self.epsilon, self.delta, False)

    def parts(self) -> tuple[float, float]:
        """The noise multipliers of item effects and of one round."""
        return _parts(_noise(self.unit.relation, self.epsilon, self.delta))

    def claims(self) -> tuple[Claim, ...]:
        says = (
            "the unit is all ratings of one user",
            "the items and the range of ratings were not chosen by looking at the ratings",
        )
        event = _event(_noise(self.unit.relation, self.epsilon, self.delta), self.unit.relation)
        return (Claim(game=Game(self.unit, {"weights"}), event=event, assumptions=says),)

    def run(self, data: Any) -> Floats:
        user, item, value = data
        user, item, value = cleaned(user, item, value, self.items)
        summaries, (first, second) = self.summaries(), self.parts()
        released = exact.noisy(
            summaries.effect_sums(user, item, value),
            sensitivity=summaries.effect_sensitivity() * (1 + TOLERANCE), noise_multiplier=first,
        )  # fmt: skip
        effects, middle = item_effects(released, summaries, first)
        residual = user_residuals(user, item, value, effects, middle)
        factors = random_factors(self.items, self.rank)
        for _ in range(ROUNDS):
            total = round_sums(user, item, residual, factors)
            noisy = exact.noisy(total, sensitivity=round_sensitivity() * (1 + TOLERANCE), noise_multiplier=second)
            factors = item_factors(noisy, released, self.rank, second * round_sensitivity())
        return np.concatenate([released, factors.ravel()])


def round_sums(user: Ints, item: Ints, residual: Floats, factors: Floats) -> Floats:
    """Before noise: r u / (BOUND sqrt(c)) summed by item, and MATRIX u u' summed over users, as its upper triangle.

    u is the user's factor, r a residual and c the number of the user's ratings.
    """
    items, rank = factors.shape
    count = np.bincount(user) if len(user) else np.zeros(0, np.int64)
    own = user_factors(user, item, residual, factors, len(count))
    weighted = own / np.sqrt(np.maximum(count, 1))[:, None] / BOUND
    sums = np.stack([np.bincount(item, down(residual * weighted[user, axis]), items) for axis in range(rank)], axis=1)
    row, column = np.triu_indices(rank)
    products = own[:, row] * own[:, column] * np.where(row == column, 1.0, math.sqrt(2)) * (MATRIX * (1 - 8 * UNIT))
    return np.concatenate([sums.ravel(), down(products).sum(axis=0)])


def round_sensitivity() -> float:
    """docs/theory/recommend.md: residuals are at most BOUND and factors at most 1 long."""
    return math.hypot(1.0, MATRIX)


def user_factors(user: Ints, item: Ints, residual: Floats, factors: Floats, users: int) -> Floats:
    """The ridge solution for each user, from that user's rows alone, clipped to length 1."""
    rank = factors.shape[1]
    gram, right = np.zeros((users, rank, rank)), np.zeros((users, rank))
    for i in range(rank):
        right[:, i] = np.bincount(user, factors[item, i] * residual, users)
        for j in range(i, rank):
            gram[:, i, j] = gram[:, j, i] = np.bincount(user, factors[item, i] * factors[item, j], users)
    own = np.linalg.solve(gram + UNEXPLAINED * rank * np.eye(rank), right[:, :, None])[:, :, 0]
    length = np.linalg.norm(own, axis=1, keepdims=True)
    return np.asarray(own / np.maximum(length, 1.0) * (1 - 8 * UNIT))


def user_residuals(user: Ints, item: Ints, value: Floats, effects: Floats, middle: float) -> Floats:
    """`summaries.residuals` of every user at once."""
    centred = np.clip(value - effects[item] - middle, -2.0, 2.0)
    level = np.bincount(user, centred) / (np.bincount(user) + DRAG)
    return np.asarray(np.clip(centred - level[user], -BOUND, BOUND))


def random_factors(items: int, rank: int) -> Floats:
    """Where the rounds start: the same for all data, so it need not be secret."""
    return np.asarray(np.random.default_rng(0).normal(0, START / math.sqrt(rank), (items, rank)))


def item_factors(noisy: Floats, released: Floats, rank: int, noise: float) -> Floats:
    """Item factors from the sums of a round with noise of this standard deviation; all of it is post-processing.

    An item's sum is about its weight (the noisy count) times C v, where C is the mean of u u'. In coordinates in which C is the
    identity, factors are taken to be normal with one variance, which is estimated, and each is its mean given the noisy sum.
    """
    items = (len(released) - 2) // 2
    weight = np.maximum(released[items : 2 * items] / COUNTS["user"], 0.0)
    users = max(float(released[2 * items + 1]) / WORTH, 1.0)
    half = np.zeros((rank, rank))
    place = np.triu_indices(rank)
    half[place] = noisy[items * rank :] / MATRIX / np.where(place[0] == place[1], 1.0, math.sqrt(2)) / users
    values, vectors = np.linalg.eigh(half + np.triu(half, 1).T)
    values = np.maximum(values, 1e-3)
    whitened = noisy[: items * rank].reshape(items, rank) * BOUND @ vectors / np.sqrt(values)  # about weight times C^(1/2) v
    variance = (noise * BOUND) ** 2 / values + UNEXPLAINED * SHARE * weight[:, None]
    spread = np.clip((whitened**2 - variance).sum() / max(rank * float((weight**2).sum()), 1e-9), 1e-5, 0.05)
    expected = spread * weight[:, None] * whitened / (spread * weight[:, None] ** 2 + variance)
    return np.asarray(expected / math.sqrt(TYPICAL / rank))


def _parts(noise: float) -> tuple[float, float]:
    return noise / math.sqrt(EFFECTS), noise / math.sqrt((1 - EFFECTS) / ROUNDS)


def _event(noise: float, relation: str) -> Event:
    effects, one_round = _parts(noise)
    event = Sequence([Gaussian(effects), Repeat(Gaussian(one_round), ROUNDS)])
    return Group(event, 2) if relation == "replace" else event


@lru_cache(maxsize=64)
def _noise(relation: str, epsilon: float, delta: float) -> float:
    return calibrate(lambda noise: _event(noise, relation), epsilon, delta)
