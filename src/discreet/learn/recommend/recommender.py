"""A recommender trained without exposing anyone's ratings, whose predictions are made from a user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from discreet.columns import columns
from discreet.core import Unit, check
from discreet.errors import InvalidValue
from discreet.learn.estimators.base import PrivateEstimator
from discreet.learn.estimators.exact import Floats
from discreet.learn.estimators.regression import range_of
from discreet.learn.estimators.rows import numbers
from discreet.learn.recommend.factors import Factors, user_factors
from discreet.learn.recommend.summaries import WEIGHT, Summaries, item_effects, residuals
from discreet.ledger import LedgerLike

METHODS = ("effects", "knn", "svd", "als")
RANKS = {"svd": 12, "als": 6}  # how many factors, unless said otherwise


class Recommender(PrivateEstimator):
    """Item effects and a covariance under (epsilon, delta)-differential privacy (McSherry & Mironov 2009).

    `items` lists the items publicly, `bounds` is the range of ratings. `unit` is one rating, `record()`, or one user with all
    of their ratings, `user("user", rows=None)`. `method` is "effects" (items and users have levels), "knn" (the user's
    ratings of the `neighbours` items that go most with the one asked for), "svd" (`factors` directions of the covariance, 12 by
    default) or, for users only, "als" (`factors` of each item by alternating least squares, 6 by default, for many items).

    What is released is private for everybody. A prediction uses the asking user's own ratings on top, on their side: it is
    private for all others (joint differential privacy), and not for them.

    >>> from discreet.core import record
    >>> rng = np.random.default_rng(0)
    >>> ratings = {"user": np.repeat(np.arange(2000), 5), "item": np.tile(list("abcde"), 2000),
    ...            "rating": np.tile([5, 4, 3, 2, 1], 2000)}
    >>> model = Recommender(epsilon=1.0, delta=1e-6, items=list("abcde"), bounds=(1, 5), unit=record()).fit(ratings)
    >>> model.recommend({"c": 3}, 1)
    ['a']
    """

    def __init__(
        self, *, epsilon: float, delta: float, items: Sequence[Any], bounds: Any, unit: Unit, method: str = "effects",
        neighbours: int = 40, factors: int | None = None, ledger: LedgerLike | None = None, source: str | None = None,
    ) -> None:  # fmt: skip
        self.epsilon = epsilon
        self.delta = delta
        self.items = items
        self.bounds = bounds
        self.unit = unit
        self.method = method
        self.neighbours = neighbours
        self.factors = factors
        self.ledger = ledger
        self.source = source

    def fit(self, ratings: Any, y: Any = None) -> Recommender:
        """`ratings` is a table with columns user (or the unit's key), item and rating. Spends (epsilon, delta) once."""
        check.word("method", self.method, METHODS)
        check.whole("neighbours", self.neighbours)
        rank = check.whole("factors", RANKS.get(self.method, 1) if self.factors is None else self.factors)
        low, high = range_of("bounds", self.bounds)
        items = list(self.items)
        self._place = {item: place for place, item in enumerate(items)}
        if len(self._place) != len(items) or not items:
            raise InvalidValue("items must list each item once, and one at least.")
        epsilon, delta = float(self.epsilon), float(self.delta)
        mechanism: Summaries | Factors
        if self.method == "als":
            mechanism = Factors(len(items), self.unit, epsilon, delta, rank)
            summaries = mechanism.summaries()
        else:
            mechanism = summaries = Summaries(len(items), self.unit, epsilon, delta, self.method != "effects")
        table = columns(ratings, [self.unit.key or "user", "item", "rating"], empty=True)
        user, item, rating = table.values()
        users = np.unique(user if user.dtype.kind != "O" else [_spelled(cell) for cell in user], return_inverse=True)[1]
        places = _placed(item, self._place)
        values = (np.clip(numbers(rating), low, high) - low) / (high - low) * 2 - 1
        release = self._spend(mechanism, (users, places, values))
        self.effects_, self.middle_ = item_effects(release.value, summaries, mechanism.parts()[0])
        rest = release.value[2 * len(items) + 2 :]
        if self.method == "als":
            self.factors_ = rest.reshape(len(items), rank)
        elif self.method != "effects":
            self.covariance_ = _cleaned(rest, summaries, rank if self.method == "svd" else len(items))
        value = {"items": items, "effects": self.effects_.tolist(), "middle": self.middle_}
        if self.method == "als":
            value["factors"] = self.factors_.tolist()
        self.release_ = release.map(lambda _: value)
        return self

    def predict(self, user_ratings: Mapping[Any, float], items: Sequence[Any]) -> Floats:
        """What this user would rate these items, from their own ratings; it happens on their side."""
        check_is_fitted(self, "effects_")
        low, high = range_of("bounds", self.bounds)
        own = {item: float(rating) for item, rating in user_ratings.items() if item in self._place}
        known = np.array([self._place[item] for item in own], np.int64)
        lacking = [item for item in items if item not in self._place]
        if lacking:
            raise InvalidValue(f"{check.shown(lacking[0])} is none of the items that this recommender knows.")
        wanted = np.array([self._place[item] for item in items], np.int64)
        values = (np.clip(np.array(list(own.values())), low, high) - low) / (high - low) * 2 - 1
        residual, level = residuals(values, self.effects_[known], self.middle_)
        predicted = self.effects_[wanted] + level
        if self.method != "effects" and len(known):
            predicted = predicted + self._from_others(residual, known, wanted)
        return np.asarray((np.clip(predicted, -1, 1) + 1) / 2 * (high - low) + low)

    def _from_others(self, residual: Floats, known: NDArray[np.int64], wanted: NDArray[np.int64]) -> Floats:
        """The residual that the covariance, or the factors, expect given the user's other residuals."""
        if self.method == "als":
            own = user_factors(np.zeros(len(known), np.int64), known, residual, self.factors_, 1)[0]
            return np.asarray(self.factors_[wanted] @ own)
        matrix, spread = self.covariance_, RESIDUAL
        if self.method == "svd":
            return np.asarray(matrix[np.ix_(wanted, known)] @ np.linalg.solve(_with(matrix, known, spread), residual))
        out = np.zeros(len(wanted))
        for place, item in enumerate(wanted):
            with_it = matrix[item, known]
            near = np.argsort(-np.abs(with_it), kind="stable")[: self.neighbours]
            out[place] = with_it[near] @ np.linalg.solve(_with(matrix, known[near], spread), residual[near])
        return out

    def recommend(self, user_ratings: Mapping[Any, float], k: int) -> list[Any]:
        """The k items that this user has not rated and would like most."""
        open_items = [item for item in self.items if item not in user_ratings]
        predicted = self.predict(user_ratings, open_items)
        return [open_items[place] for place in np.argsort(-predicted, kind="stable")[: check.whole("k", k)]]


def _placed(item: NDArray[Any], known: dict[Any, int]) -> NDArray[np.int64]:
    """The place of each item among those known, -1 for others."""
    if item.dtype.kind not in "iuU":
        return np.array([_place(cell, known) for cell in item.tolist()], np.int64)
    distinct, inverse = np.unique(item, return_inverse=True)
    return np.asarray(np.array([known.get(cell, -1) for cell in distinct.tolist()], np.int64)[inverse], np.int64)


def _spelled(cell: Any) -> str:
    """A user by the text of their key, so that keys of several types can be told apart and put in order."""
    try:
        return str(cell)
    except Exception:  # whatever a cell is
        return type(cell).__name__


def _place(cell: Any, known: dict[Any, int]) -> int:
    try:
        return known.get(cell, -1)
    except TypeError:  # what cannot be looked up, such as a list, is no item
        return -1


RESIDUAL = 0.12  # variance of a residual that no other rating explains, in halves of the range squared


def _with(matrix: Floats, known: NDArray[np.int64], spread: float) -> Floats:
    return matrix[np.ix_(known, known)] + spread * np.eye(len(known))


def _cleaned(released: Floats, mechanism: Summaries, rank: int) -> Floats:
    """A covariance of items from noisy sums: shrunk where few rated both, without what noise alone explains, of this rank."""
    size = mechanism.items
    half = len(released) // 2
    noise = mechanism.parts()[1] * mechanism.matrix_sensitivity()
    sums, weights = (_square(part, size) for part in (released[:half], released[half:] / WEIGHT))
    few = 0.1 + (noise / SPREAD) ** 2 / np.maximum(weights, noise / WEIGHT)  # at which noise and signal weigh the same
    matrix = sums / (np.maximum(weights, 0.0) + few)
    values, vectors = np.linalg.eigh(matrix)
    off = np.sort(np.abs(values[values < 0]))  # a covariance has none: these are noise
    edge = float(off[-1]) if len(off) else 0.0
    significant = (values > edge) & (np.arange(size) >= size - rank)
    return np.asarray((vectors[:, significant] * (values[significant] - edge / 2)) @ vectors[:, significant].T)


SPREAD = 0.02  # the size of a covariance of two items that go together


def _square(vector: Floats, size: int) -> Floats:
    place = np.triu_indices(size)
    out = np.zeros((size, size))
    out[place] = vector / np.where(place[0] == place[1], 1.0, np.sqrt(2))
    return np.asarray(out + np.triu(out, 1).T)
