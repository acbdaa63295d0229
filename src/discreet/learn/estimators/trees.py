"""Private tree ensembles with scikit-learn's conventions: gradient boosting over public bins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from discreet.core import Unit, check
from discreet.errors import InvalidValue
from discreet.learn.estimators import rows
from discreet.learn.estimators.base import PrivateEstimator, labelled
from discreet.learn.estimators.bayes import Ranges, ranges_of
from discreet.learn.estimators.boosting import MOST_BINS, Bins, Boosting, Logistic, Squared, Step
from discreet.learn.estimators.exact import Floats
from discreet.learn.estimators.preprocessing import rising
from discreet.learn.estimators.regression import range_of
from discreet.ledger import LedgerLike


@dataclass(frozen=True, slots=True, eq=False)
class Binning:
    """The public bins of every column, and one more for what is missing."""

    ranges: Ranges
    edges: tuple[Floats, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(column_edges) + 2 for column_edges in self.edges)

    def __call__(self, X: Floats) -> Bins:
        out = np.empty(X.shape[::-1], np.uint16)
        for column, (edges, (low, high)) in enumerate(zip(self.edges, self.ranges)):
            cells = X[:, column]
            places = np.digitize(rows.bounded(cells, low, high), edges)
            out[column] = np.where(np.isnan(cells), len(edges) + 1, places)
        return out


def binning(bounds: Any, edges: Any, n_bins: Any, unordered: frozenset[int], columns: int) -> Binning:
    """Bins by `edges` where they are given; else a bin for each code of a category, and `n_bins` of the same width."""
    ranges, bins = ranges_of(bounds, columns), check.whole("n_bins", n_bins, least=2, most=MOST_BINS // 2)
    lists = [None] * columns if edges is None else check.items("edges", edges, "a list of inner edges, or None, per column")
    if len(lists) != columns:
        raise InvalidValue(f"edges must have a list, or None, for each of {columns} columns; got {len(lists)}.")
    result: list[Any] = []
    for column, (inner, (low, high)) in enumerate(zip(lists, ranges)):
        if inner is not None:
            result.append(rising(inner))
        elif column in unordered:
            count = check.whole("codes of a category", int(high - low) + 1, least=2, most=MOST_BINS // 2)
            result.append(low + np.arange(count - 1) + 0.5)
        else:
            result.append(np.linspace(low, high, bins + 1)[1:-1])
    return Binning(ranges, tuple(result))


def unordered_columns(listed: Any, columns: int) -> frozenset[int]:
    if listed is None:
        return frozenset()
    items = check.items("categorical_features", listed, "a list of places of columns, such as [0, 3]")
    places = frozenset(check.whole("categorical_features", place, least=0) for place in items)
    if places and max(places) >= columns:
        raise InvalidValue(f"categorical_features counts columns from 0 to {columns - 1}; got {max(places)}.")
    return places


class _Boosted(PrivateEstimator):
    """The base of classifier and regressor."""

    def __init__(
        self, *, epsilon: float, delta: float, bounds: Any, unit: Unit, edges: Any, n_bins: int,
        categorical_features: Sequence[int] | None, ledger: LedgerLike | None, source: str | None,
    ) -> None:  # fmt: skip
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.unit = unit
        self.edges = edges
        self.n_bins = n_bins
        self.categorical_features = categorical_features
        self.ledger = ledger
        self.source = source

    def _boost(self, X: Floats, target: NDArray[Any], loss: Logistic | Squared, public: tuple[str, ...]) -> Any:
        """Make the one release, and the ensemble from it."""
        unordered = unordered_columns(self.categorical_features, X.shape[1])
        self._bins = binning(self.bounds, self.edges, self.n_bins, unordered, X.shape[1])
        mechanism = Boosting(
            self._bins.sizes, unordered, loss, self.unit, float(self.epsilon), float(self.delta), public
        )  # fmt: skip
        released = self._spend(mechanism, (self._bins(X), target))
        self._start, self._columns, self._trees = _gathered(mechanism, released.value)
        return released.map(lambda _: self._ensemble_json())

    def _ensemble_json(self) -> dict[str, Any]:
        """The ensemble as JSON: what single columns and trees add to a score, and the bins that they are about."""
        trees = [
            {"columns": list(step.columns), "sides": [side.tolist() for side in step.sides], "values": values.tolist()}
            for step, values in self._trees
        ]
        edges = [bin_edges.tolist() for bin_edges in self._bins.edges]
        columns = [column_values.tolist() for column_values in self._columns]
        return {"edges": edges, "start": self._start.tolist(), "columns": columns, "trees": trees}

    def _scores(self, X: Any) -> Floats:
        """[outputs, rows]."""
        check_is_fitted(self, "release_")
        bins = self._bins(rows.features(self, X, reset=False))
        totals = np.repeat(self._start, bins.shape[1], axis=1)
        for values, places in zip(self._columns, bins):
            totals += values[:, places]
        for step, values in self._trees:
            totals += values[:, step.leaf(bins)]
        return np.asarray(totals)


def _gathered(mechanism: Boosting, released: Floats) -> tuple[Floats, list[Floats], list[tuple[Step, Floats]]]:
    """The start, what all passes add for each bin of a column, and the trees."""
    start = np.zeros((mechanism.loss.outputs, 1))
    columns = [np.zeros((mechanism.loss.outputs, size)) for size in mechanism.sizes]
    trees = []
    for step, values in mechanism.values(released):
        if not step.columns:
            start = values
        elif len(step.columns) == 1:
            columns[step.columns[0]] += values
        else:
            trees.append((step, values))
    return start, columns, trees


class HistGradientBoostingClassifier(ClassifierMixin, _Boosted):  # type: ignore[misc]
    """Gradient boosting under (epsilon, delta)-differential privacy: single columns, then trees.

    `bounds` is the public range of every column (one pair for all, or a list of pairs); `classes` lists the labels that can
    occur. Numbers fall into `n_bins` bins of the same width, or between the public inner `edges` of their column;
    `categorical_features` are the places of columns that hold codes, low, low + 1, …, high, in no order. What is missing has a
    bin of its own. Columns and cuts of the trees are drawn without looking at the data; only what leaves add is learned.

    >>> from discreet.core import record
    >>> x = np.tile([[0, 0], [0, 1], [1, 0], [1, 1]], (2000, 1))
    >>> model = HistGradientBoostingClassifier(epsilon=3.0, delta=1e-6, bounds=(0, 1), unit=record(), classes=[0, 1], n_bins=2)
    >>> model.fit(x, x[:, 0] ^ x[:, 1]).predict([[0, 1], [1, 1]]).tolist()
    [1, 0]
    """

    def __init__(
        self, *, epsilon: float, delta: float, bounds: Any, unit: Unit, classes: Any = None, edges: Any = None,
        n_bins: int = 16, categorical_features: Sequence[int] | None = None, ledger: LedgerLike | None = None,
        source: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            epsilon=epsilon, delta=delta, bounds=bounds, unit=unit, edges=edges, n_bins=n_bins,
            categorical_features=categorical_features, ledger=ledger, source=source,
        )  # fmt: skip
        self.classes = classes

    def fit(self, X: Any, y: Any, **params: Any) -> HistGradientBoostingClassifier:
        """Fit once, which spends (epsilon, delta) once; whatever is wrong with the arguments is refused before that."""
        self._no_weights(params)
        X, y = rows.with_targets(self, X, y)
        classes, (X, places), public = labelled(self.classes, X, y)
        released = self._boost(X, places, Logistic(len(classes) if len(classes) > 2 else 1), public)
        self.classes_ = classes
        self.release_ = released.map(lambda value: {"classes": classes.tolist(), **value})
        return self

    def decision_function(self, X: Any) -> Floats:
        """A score for each row: above 0 for the second of two classes; for more, one for each class."""
        scores = self._scores(X)
        return scores[0] if len(self.classes_) == 2 else scores.T

    def predict_proba(self, X: Any) -> Floats:
        """The probability of each class for each row, in the order of `classes_`."""
        share = Logistic.probability(self.decision_function(X))
        if share.ndim == 1:
            return np.stack([1 - share, share], axis=1)
        return np.asarray(share / share.sum(axis=1, keepdims=True))

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class of each row. Post-processing: it costs nothing, however often it is asked."""
        scores = self.decision_function(X)
        places = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[places])


class HistGradientBoostingRegressor(RegressorMixin, _Boosted):  # type: ignore[misc]
    """The same for a target in the public range `target_bounds`; what is beyond is cut to it.

    >>> from discreet.core import record
    >>> x = np.linspace(0, 1, 20_000)[:, None]
    >>> model = HistGradientBoostingRegressor(epsilon=3.0, delta=1e-6, bounds=(0, 1), target_bounds=(0, 1), unit=record())
    >>> model.fit(x, (x[:, 0] - 0.5) ** 2 * 4).predict([[0.02], [0.5], [0.98]]).round(0)
    array([1., 0., 1.])
    """

    def __init__(
        self, *, epsilon: float, delta: float, bounds: Any, target_bounds: Any, unit: Unit, edges: Any = None,
        n_bins: int = 16, categorical_features: Sequence[int] | None = None, ledger: LedgerLike | None = None,
        source: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            epsilon=epsilon, delta=delta, bounds=bounds, unit=unit, edges=edges, n_bins=n_bins,
            categorical_features=categorical_features, ledger=ledger, source=source,
        )  # fmt: skip
        self.target_bounds = target_bounds

    def fit(self, X: Any, y: Any, **params: Any) -> HistGradientBoostingRegressor:
        """Fit once, which spends (epsilon, delta) once; whatever is wrong with the arguments is refused before that."""
        self._no_weights(params)
        low, high = range_of("target_bounds", self.target_bounds)
        X, y = rows.with_targets(self, X, y)
        target = rows.numbers(y)
        usable = np.isfinite(target)
        scaled = (np.clip(target[usable], low, high) - low) / (high - low) * 2 - 1
        self.release_ = self._boost(X[usable], scaled, Squared(), ())
        return self

    def predict(self, X: Any) -> Floats:
        """The value at each row. Post-processing: it costs nothing."""
        low, high = range_of("target_bounds", self.target_bounds)
        return np.asarray((np.clip(self._scores(X)[0], -1.0, 1.0) + 1) / 2 * (high - low) + low)
