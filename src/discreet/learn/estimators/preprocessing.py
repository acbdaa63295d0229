"""Preprocessing by public knowledge, which is free, or by privately released bin edges."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import TransformerMixin
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data

from discreet.core import Unit, check
from discreet.errors import InvalidValue
from discreet.learn.estimators import rows
from discreet.learn.estimators.base import PrivateEstimator
from discreet.learn.estimators.bayes import Ranges, ranges_of
from discreet.learn.estimators.exact import Floats
from discreet.learn.estimators.sums import Totals
from discreet.ledger import LedgerLike

FINE = 256  # cells of a column's range that are counted to find its edges


class Encoder(TransformerMixin, PrivateEstimator):  # type: ignore[misc]
    """The base of the two encoders: each column becomes several, of which a row has at most one 1."""

    def _names(self) -> list[list[str]]:
        raise NotImplementedError

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """The column and its value or bin, as in age_0, age_1."""
        check_is_fitted(self)
        names = _check_feature_names_in(self, input_features)
        return np.array([f"{name}_{part}" for name, parts in zip(names, self._names()) for part in parts], dtype=object)

    @property
    def norm_(self) -> float:
        """The length of a row that comes out, which is public: the `norm` of an estimator that follows."""
        check_is_fitted(self)
        return math.sqrt(self.n_features_in_)


def one_hot(places: Any, size: int) -> Floats:
    """A one at each row's place; nothing for a place outside."""
    return np.asarray((np.asarray(places)[:, None] == np.arange(size)), np.float64)


class OneHotEncoder(Encoder):
    """Categories as zeros and ones, by public lists: `categories` has the values that can occur, a list for each column.

    Which values do occur is private, so they cannot be left out. A value outside its list becomes all zeros. Nothing is
    released and nothing is spent.

    >>> OneHotEncoder(categories=[["f", "m"]]).fit_transform([["m"], ["x"]]).tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """

    def __init__(self, *, categories: Any) -> None:
        self.categories = categories

    def fit(self, X: Any, y: Any = None) -> OneHotEncoder:
        """Looks at the number and names of columns only."""
        X = self._cells(X, reset=True)
        lists = check.items("categories", self.categories, "a list of the values that can occur, for each column")
        if len(lists) != X.shape[1]:
            raise InvalidValue(f"categories must have a list for each of {X.shape[1]} columns; got {len(lists)}.")
        self.categories_ = [_distinct(values) for values in lists]
        return self

    def transform(self, X: Any) -> Floats:
        """The ones and zeros of each row; a row depends on itself alone."""
        check_is_fitted(self)
        X = self._cells(X, reset=False)
        columns = [one_hot(rows.places(X[:, j], _as_objects(known)), len(known)) for j, known in enumerate(self.categories_)]
        return np.hstack(columns)

    def _cells(self, X: Any, *, reset: bool) -> Any:
        """Every cell as the object that it is, so that one text among numbers changes no other."""
        return validate_data(self, X, reset=reset, dtype=object, ensure_all_finite=False, ensure_min_samples=0)

    def _names(self) -> list[list[str]]:
        return [[str(value) for value in values] for values in self.categories_]


def _as_objects(values: list[Any]) -> NDArray[Any]:
    out = np.empty(len(values), object)
    out[:] = values
    return out


def _distinct(values: Any) -> list[Any]:
    distinct = list(check.items("categories", values, "a list of values"))
    if not distinct or len(set(distinct)) != len(distinct):
        raise InvalidValue(f"categories of a column must be different values, at least one; got {check.shown(distinct)}.")
    return distinct


@dataclass(frozen=True, slots=True)
class Cells:
    """A row as the cell of every column's range that it falls into; what is missing falls into none."""

    ranges: Ranges

    def __call__(self, data: Any) -> Floats:
        low, high = np.array(self.ranges).T
        share = (rows.bounded(data, low, high) - low) / (high - low)
        places = np.where(np.isnan(data), -1, np.minimum((share * FINE).astype(np.int64), FINE - 1))
        parts = [one_hot(places[:, j], FINE) for j in range(places.shape[1])]
        return np.hstack(parts) / math.sqrt(len(parts))


class KBinsDiscretizer(Encoder):
    """Numbers as the bin they fall into, one column of zeros and ones for each bin.

    With `edges`, a public list of inner edges for each column, nothing is released and nothing is spent. Without, `n_bins` bins
    of about equal counts are found privately between the public `bounds`: a noisy histogram of fine cells is the release, and
    its quantiles are post-processing.

    >>> KBinsDiscretizer(edges=[[18, 65]]).fit_transform([[15], [30], [70]]).argmax(axis=1).tolist()
    [0, 1, 2]
    """

    def __init__(
        self, *, edges: Any = None, n_bins: int = 5, epsilon: float | None = None, delta: float | None = None,
        bounds: Any = None, unit: Unit | None = None, ledger: LedgerLike | None = None, source: str | None = None,
    ) -> None:  # fmt: skip
        self.edges = edges
        self.n_bins = n_bins
        self.epsilon = epsilon  # type: ignore[assignment]
        self.delta = delta  # type: ignore[assignment]
        self.bounds = bounds
        self.unit = unit
        self.ledger = ledger
        self.source = source

    def fit(self, X: Any, y: Any = None) -> KBinsDiscretizer:
        """With edges, looks at the number and names of columns only; without, spends (epsilon, delta) once."""
        X = rows.features(self, X)
        if self.edges is not None:
            lists = check.items("edges", self.edges, "a list of rising edges, for each column")
            if len(lists) != X.shape[1]:
                raise InvalidValue(f"edges must have a list for each of {X.shape[1]} columns; got {len(lists)}.")
            self.bin_edges_, self.release_ = [rising(inner_edges) for inner_edges in lists], None
            return self
        if self.epsilon is None or self.delta is None or self.unit is None:
            raise InvalidValue(
                "Edges are found privately with epsilon, delta, unit and bounds; or give public ones: edges=[[...]]."
            )
        encode = Cells(ranges_of(self.bounds, X.shape[1]))
        bins = check.whole("n_bins", self.n_bins, least=2, most=FINE)
        released = self._spend(Totals(encode, self.unit, float(self.epsilon), float(self.delta)), X)
        counts = released.value.reshape(X.shape[1], FINE)
        self.bin_edges_ = [_quantiles(row, pair, bins) for row, pair in zip(counts, encode.ranges)]
        self.release_ = released.map(lambda _: {"edges": [column_edges.tolist() for column_edges in self.bin_edges_]})
        return self

    def transform(self, X: Any) -> Floats:
        """The ones and zeros of each row; a row depends on itself alone, and what is missing is in no bin."""
        check_is_fitted(self)
        X = rows.features(self, X, reset=False)
        bins = [np.where(np.isnan(X[:, j]), -1, np.digitize(X[:, j], edges)) for j, edges in enumerate(self.bin_edges_)]
        return np.hstack([one_hot(places, len(edges) + 1) for places, edges in zip(bins, self.bin_edges_)])

    def _names(self) -> list[list[str]]:
        return [[str(place) for place in range(len(edges) + 1)] for edges in self.bin_edges_]


def rising(edges: Any) -> Floats:
    array = np.array([check.real("edges", edge) for edge in check.items("edges", edges, "a list of numbers")])
    if (np.diff(array) <= 0).any():
        raise InvalidValue(f"edges must rise; got {check.shown(array.tolist())}.")
    return array


def _quantiles(counts: Floats, pair: tuple[float, float], bins: int) -> Floats:
    """Inner edges between which the noisy counts are about equal; fewer where they would coincide."""
    below = np.maximum.accumulate(np.cumsum(counts))
    whole = max(float(below[-1]), 1.0)
    cells = np.searchsorted(below, whole * np.arange(1, bins) / bins) + 1
    inner = np.unique(cells[cells < FINE])
    return np.asarray(pair[0] + (pair[1] - pair[0]) * inner / FINE)
