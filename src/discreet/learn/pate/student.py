"""A student that learns from few noisy votes and many public rows without any. All of it is post-processing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import RidgeCV
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.validation import check_is_fitted

Floats = NDArray[np.float64]


class GraphStudent(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Spreads votes over the graph of nearest public rows, then fits `classifier` to what each row got.

    Noisy counts of rows that are alike add up on the graph, so that noise which would drown one label averages out (Zhou et al.
    2003, "Learning with local and global consistency", with counts in place of labels). Rows whose best two classes are within
    the least `doubtful` share of margins are left out of the classifier's fit.

    `fit` takes places of labels, -1 where there is none, and noisy counts [rows, classes] as `votes`: else a label counts 1.

    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.vstack([np.random.default_rng(0).normal(c, 1, (100, 2)) for c in (-4, 4)])
    >>> y = np.full(200, -1); y[[0, 100]] = 0, 1
    >>> GraphStudent(LogisticRegression()).fit(X, y).predict([[-4, -4], [4, 4]]).tolist()
    [0, 1]
    """

    def __init__(
        self, classifier: Any, *, neighbours: int = 10, spread: float = 0.95, steps: int = 60, doubtful: float = 0.05
    ) -> None:
        self.classifier = classifier
        self.neighbours = neighbours
        self.spread = spread
        self.steps = steps
        self.doubtful = doubtful

    def fit(self, X: Any, y: Any, votes: Any = None) -> GraphStudent:
        """Spread what is known, and fit the classifier to it."""
        X, y = np.asarray(X, np.float64), np.asarray(y)
        known = y >= 0
        start = np.eye(int(y.max()) + 1)[np.maximum(y, 0)] if votes is None else np.asarray(votes, np.float64)
        start = np.where(known[:, None], start - start.mean(axis=1, keepdims=True), 0.0)
        self.spread_ = self._spread(X, start)
        top = np.sort(self.spread_, axis=1)
        margin = top[:, -1] - top[:, -2]
        confident = margin >= np.quantile(margin, self.doubtful)
        labels = self.spread_.argmax(axis=1)
        self.classifier_ = clone(self.classifier).fit(X[confident], labels[confident])
        self.classes_ = self.classifier_.classes_
        return self

    def _spread(self, X: Floats, start: Floats) -> Floats:
        from scipy.sparse import coo_array, diags_array

        count = min(self.neighbours, len(X) - 1)
        away, near = NearestNeighbors(n_neighbors=count + 1).fit(X).kneighbors(X)
        scale = away[:, -1:] + 1e-12  # each row's own, so that thin and dense parts of the graph conduct alike
        weight = np.exp(-(away[:, 1:] ** 2) / (scale * scale[near[:, 1:], 0]))
        row = np.repeat(np.arange(len(X)), count)
        graph = coo_array((weight.ravel(), (row, near[:, 1:].ravel())), shape=(len(X), len(X))).tocsr()
        graph = graph + graph.T
        degree = diags_array(1 / np.sqrt(graph.sum(axis=1) + 1e-12))
        walk, scores = degree @ graph @ degree, start
        for _ in range(self.steps):
            scores = self.spread * (walk @ scores) + (1 - self.spread) * start
        return np.asarray(scores)

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of each row, by the classifier."""
        check_is_fitted(self)
        return np.asarray(self.classifier_.predict(np.asarray(X, np.float64)))

    def predict_proba(self, X: Any) -> Floats:
        """The probability of each class for each row, by the classifier."""
        check_is_fitted(self)
        return np.asarray(self.classifier_.predict_proba(np.asarray(X, np.float64)))


class VoteRegressor(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Ridge regression of the noisy counts themselves: the class with the largest prediction.

    A label discards the distribution of the votes; the counts keep it, and least squares averages their noise over all rows. So
    many queries with much noise teach more than few with little. The penalty is chosen by leave-one-out error, at no cost.

    >>> X = np.linspace(-1, 1, 400)[:, None]
    >>> noisy = np.stack([-X[:, 0], X[:, 0]], 1) * 50 + np.random.default_rng(0).normal(0, 100, (400, 2))
    >>> VoteRegressor().fit(X, noisy.argmax(1), votes=noisy).predict([[-1.0], [1.0]]).tolist()
    [0, 1]
    """

    def fit(self, X: Any, y: Any, votes: Any = None) -> VoteRegressor:
        """Fit what is known: rows with label -1 are left out."""
        X, y = np.asarray(X, np.float64), np.asarray(y)
        known = y >= 0
        counts = np.eye(int(y.max()) + 1)[y[known]] if votes is None else np.asarray(votes, np.float64)[known]
        self.regression_ = RidgeCV(alphas=np.logspace(-2, 5, 22)).fit(X[known], counts)
        self.classes_ = np.arange(counts.shape[1])
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The class with the most predicted votes."""
        check_is_fitted(self)
        return np.asarray(self.regression_.predict(np.asarray(X, np.float64)).argmax(axis=1))
