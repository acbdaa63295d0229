"""Private k-means: Lloyd's iterations, each from noisy counts and sums of the clusters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from discreet.accounting import calibrate
from discreet.core import Claim, Event, Game, Gaussian, Repeat, Unit, check
from discreet.learn.estimators import exact, rows
from discreet.learn.estimators.base import PrivateEstimator
from discreet.learn.estimators.bayes import Ranges, ranges_of
from discreet.learn.estimators.exact import GRAIN, TOLERANCE, Floats
from discreet.learn.estimators.mechanisms import for_unit, group_size
from discreet.ledger import LedgerLike

STEPS = 8  # of Lloyd
SETTLED = 2  # the last ones, which move no empty cluster
COUNTED = 0.5  # the scale of a count relative to a sum
EMPTY = 3.0  # a cluster of fewer rows than so many times the noise of a count is empty
SMALL = 0.1  # and so is one of fewer than this share of an even part
STIR = 0.25  # how far from a large cluster an empty one starts anew, in halves of the range


@dataclass(frozen=True, slots=True)
class Lloyd:
    """Counts and sums of the rows nearest to each centre, step after step, each with Gaussian noise.

    `run` takes rows in [-1, 1] and gives all noisy sums, [steps, clusters, 1 + columns]; `centres` follows them. The first
    centres, and those of empty clusters, are drawn by a public generator.

    >>> from discreet.core import record
    >>> Lloyd(2, 3, record(), 1.0, 1e-6).claims()[0].event.kind
    'repeat'
    """

    clusters: int
    columns: int
    unit: Unit
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check.whole("n_clusters", self.clusters)
        check.positive("epsilon", self.epsilon)
        check.open_fraction("delta", self.delta)
        group_size(self.unit)

    def noise(self) -> float:
        """The noise multiplier of a step; a row's vector has length 1, so it is also the standard deviation."""
        return _noise(self.unit, self.epsilon, self.delta)

    def claims(self) -> tuple[Claim, ...]:
        owner = "each unit owns one row" if self.unit.rows == 1 else f"no unit owns more than {self.unit.rows} rows"
        says = (owner, "bounds, n_clusters and the list of columns were not chosen by looking at the data")
        return (Claim(game=Game(self.unit, {"weights"}), event=_event(self.noise(), self.unit), assumptions=says),)

    def run(self, data: Any) -> Floats:
        vectors = exact.grained(np.hstack([np.full((len(data), 1), COUNTED), data / math.sqrt(self.columns)]) / self.length())
        parts = vectors.T / GRAIN  # whole numbers: their sums are exact in any order
        released = np.zeros((STEPS, self.clusters, 1 + self.columns))
        follow = self.centres(released)
        for step in range(STEPS):
            place = nearest(data, next(follow))
            total = np.stack([np.bincount(place, part, self.clusters) for part in parts], 1) * GRAIN
            released[step] = exact.noisy(
                np.asarray(total, np.float64), sensitivity=1 + 2 * TOLERANCE, noise_multiplier=self.noise()
            )
        return released

    def length(self) -> float:
        """The longest (COUNTED, row / sqrt columns)."""
        return math.hypot(COUNTED, 1.0)

    def centres(self, released: Floats) -> Iterator[Floats]:
        """The centres before each step and after the last; it reads a step's sums when it is asked for the next centres."""
        draw = np.random.default_rng(self.clusters)
        current = spread(draw, self.clusters, self.columns)
        yield current
        few = EMPTY * self.noise() * self.length() / COUNTED
        for step, sums in enumerate(released):
            count = sums[:, 0] * self.length() / COUNTED
            mean = sums[:, 1:] * self.length() * math.sqrt(self.columns) / np.maximum(count, few)[:, None]
            current = np.where((count > few)[:, None], np.clip(mean, -1, 1), current)
            least = max(few, SMALL * count.clip(0).mean())
            if step < STEPS - SETTLED and count.max() > least:
                share = np.where(count > least, count, 0.0)
                share /= share.sum()
                for lost in np.flatnonzero(count <= least):
                    beside = current[draw.choice(self.clusters, p=share)]
                    current[lost] = np.clip(beside + draw.normal(0, STIR, self.columns), -1, 1)
            yield current


def spread(draw: np.random.Generator, count: int, columns: int) -> Floats:
    """Points far from one another in the middle half of the ranges, where rows are likelier than at the ends."""
    candidates = draw.uniform(-0.5, 0.5, size=(max(20 * count, 100), columns))
    chosen = [np.zeros(columns)]
    while len(chosen) < count:
        away = np.min([np.square(candidates - point).sum(axis=1) for point in chosen], axis=0)
        chosen.append(candidates[int(away.argmax())])
    return np.array(chosen)


def squared_distances(data: Floats, centres: Floats) -> Floats:
    """[clusters, rows], column by column, so that a row's distances depend on no other row's place."""
    out = np.zeros((len(centres), len(data)))
    for row, centre in zip(out, centres):
        for column, value in zip(data.T, centre):
            row += np.square(column - value)
    return out


def nearest(data: Floats, centres: Floats) -> NDArray[np.intp]:
    return np.asarray(squared_distances(data, centres).argmin(axis=0))


def _event(noise: float, unit: Unit) -> Event:
    return for_unit(Repeat(Gaussian(noise), STEPS), unit)


@lru_cache(maxsize=256)
def _noise(unit: Unit, epsilon: float, delta: float) -> float:
    return calibrate(lambda noise: _event(noise, unit), epsilon, delta)


class KMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrivateEstimator):  # type: ignore[misc]
    """k-means under (epsilon, delta)-differential privacy, by Lloyd's iterations with noise on counts and sums.

    `bounds` is the public range of every column (one pair for all, or a list of pairs). Distances are between columns scaled to
    their ranges. Which cluster a row of the training data is in is not released, so there is no `labels_`: ask `predict`.

    >>> from discreet.core import record
    >>> X = np.repeat([[1.0, 1.0], [9.0, 9.0]], 3000, axis=0)
    >>> found = KMeans(2, epsilon=1.0, delta=1e-6, bounds=(0, 10), unit=record()).fit(X)
    >>> sorted(found.cluster_centers_.round().tolist())
    [[1.0, 1.0], [9.0, 9.0]]
    """

    def __init__(
        self, n_clusters: int = 8, *, epsilon: float, delta: float, bounds: Any, unit: Unit, ledger: LedgerLike | None = None,
        source: str | None = None,
    ) -> None:  # fmt: skip
        self.n_clusters = n_clusters
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.unit = unit
        self.ledger = ledger
        self.source = source

    def fit(self, X: Any, y: Any = None, **params: Any) -> KMeans:
        """Fit once, which spends (epsilon, delta) once; whatever is wrong with the arguments is refused before that."""
        self._no_weights(params)
        X = rows.features(self, X)
        self._ranges = ranges_of(self.bounds, X.shape[1])
        clusters = check.whole("n_clusters", self.n_clusters)
        mechanism = Lloyd(clusters, X.shape[1], self.unit, float(self.epsilon), float(self.delta))
        released = self._spend(mechanism, scaled(X, self._ranges))
        *_, self._centres = mechanism.centres(released.value)
        low, high = np.array(self._ranges).T
        self.cluster_centers_ = (self._centres + 1) / 2 * (high - low) + low
        self.release_ = released.map(lambda _: {"centres": self.cluster_centers_.tolist()})
        return self

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def transform(self, X: Any) -> Floats:
        """The distance of each row to each centre, in halves of the ranges. Post-processing: it costs nothing."""
        check_is_fitted(self)
        X = rows.features(self, X, reset=False)
        return np.asarray(np.sqrt(squared_distances(scaled(X, self._ranges), self._centres)).T)

    def predict(self, X: Any) -> NDArray[np.int64]:
        """The nearest centre of each row. Post-processing: it costs nothing."""
        return np.asarray(self.transform(X).argmin(axis=1), np.int64)


def scaled(X: Floats, ranges: Ranges) -> Floats:
    """Each column's public range as [-1, 1]; what is beyond is cut to it."""
    low, high = np.array(ranges).T
    return np.asarray((rows.bounded(X, low, high) - low) / (high - low) * 2 - 1)
