"""Private linear classifiers: logistic regression and the support vector machine."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from discreet.core import Unit, check
from discreet.errors import InvalidValue
from discreet.learn.estimators import rows
from discreet.learn.estimators.base import PrivateEstimator, labelled, too_long
from discreet.learn.estimators.linear import Huber, Logistic, Problem
from discreet.learn.estimators.mechanisms import METHODS, LinearFit, group_size
from discreet.ledger import LedgerLike

Floats = NDArray[np.float64]


class LinearClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """The base of the two classifiers."""

    def __init__(
        self, *, epsilon: float, delta: float, norm: float, unit: Unit, classes: Any, alpha: float | str, fit_intercept: bool,
        intercept_scaling: float, solver: str, ledger: LedgerLike | None, source: str | None,
    ) -> None:  # fmt: skip
        self.epsilon = epsilon
        self.delta = delta
        self.norm = norm
        self.unit = unit
        self.classes = classes
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.solver = solver
        self.ledger = ledger
        self.source = source

    def _loss(self) -> Logistic | Huber:
        raise NotImplementedError

    def fit(self, X: Any, y: Any, **params: Any) -> LinearClassifier:
        """Fit once, which spends (epsilon, delta) once; whatever is wrong with the arguments is refused before that."""
        self._no_weights(params)
        check.positive("epsilon", self.epsilon)
        norm = check.positive("norm", self.norm)
        X, y = rows.with_targets(self, X, y)
        classes, data, public = labelled(self.classes, X, y)
        mechanism = self._mechanism(X.shape[1], len(classes), public)
        too_long(X, norm)
        released = self._spend(mechanism, data)
        self.coef_, self.intercept_ = mechanism.problem.coefficients(released.value)
        self.classes_ = classes
        self.release_ = released.map(
            lambda _: {"classes": classes.tolist(), "coef": self.coef_.tolist(), "intercept": self.intercept_.tolist()}
        )
        return self

    def _mechanism(self, features: int, classes: int, public: tuple[str, ...]) -> LinearFit:
        check.word("solver", self.solver, ("auto", *METHODS))
        intercept = check.positive("intercept_scaling", self.intercept_scaling) if self.fit_intercept else 0.0
        problem = Problem(features, classes, float(self.norm), intercept, self._loss())
        method = self.solver
        if method == "auto":
            method = "objective" if group_size(self.unit) <= 2 else "descent"
        alpha = self._alpha(method, problem)
        return METHODS[method](problem, self.unit, float(self.epsilon), float(self.delta), alpha, public)

    def _alpha(self, method: str, problem: Problem) -> float:
        if isinstance(self.alpha, str):
            check.word("alpha", self.alpha, ("auto",))
            share = self.epsilon / group_size(self.unit) / problem.models  # the epsilon of one row and one model
            return {"objective": 4 * problem.loss.curvature / share, "output": 2 + 5 / share, "descent": 0.1 / share}[method]
        return check.positive("alpha", self.alpha)

    def decision_function(self, X: Any) -> Floats:
        """A score for each row: above 0 for the second of two classes; for more, one for each class."""
        check_is_fitted(self)
        X = rows.filled(rows.features(self, X, reset=False))
        scores = np.asarray(X @ self.coef_.T + self.intercept_)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class of each row. Post-processing: it costs nothing, however often it is asked."""
        scores = self.decision_function(X)
        places = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[places])


class LogisticRegression(LinearClassifier):
    """Logistic regression under (epsilon, delta)-differential privacy.

    `norm` is the public bound on the length of a row: longer rows are cut to it. `classes` lists the labels that can occur, or
    is "observed" where which labels occur is public. `unit` says what may differ between two worlds. The charge is
    taken from the source of that name in the ledger of that name, if one is named.

    `solver` is "objective" (noise in the objective), "output" (noise on the minimum), "descent" (noise in every gradient), or
    "auto": objective, and descent where one unit owns so many rows that three or more differ. `alpha` is the strength of the
    l2 penalty for rows scaled to length 1, on the intercept too; "auto" is 1 / e for the objective (from there on the curvature
    costs nothing), 2 + 5 / e for the output and 0.1 / e for descent, where e is epsilon over the number of rows that differ,
    and over the number of classes if there are more than two. Neither looks at the data. `margin` above 0 trains with the loss
    log(1 + e^(margin - m)), which noise drowns less; `predict_proba` undoes it. With margin=0 the
    coefficients are those of ordinary logistic regression.

    >>> from discreet.core import record
    >>> X, y = np.repeat([[-1.0], [1.0]], 2000, axis=0), np.repeat([0, 1], 2000)
    >>> model = LogisticRegression(epsilon=1.0, delta=1e-6, norm=1.0, unit=record(), classes=[0, 1]).fit(X, y)
    >>> model.predict([[-0.9], [0.9]]).tolist(), model.release_.claims[0].game.unit.name
    ([0, 1], 'record')
    """

    def __init__(
        self, *, epsilon: float, delta: float, norm: float, unit: Unit, classes: Any = None, alpha: float | str = "auto",
        fit_intercept: bool = True, intercept_scaling: float = 1.0, margin: float = 1.0, solver: str = "auto",
        ledger: LedgerLike | None = None, source: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            epsilon=epsilon, delta=delta, norm=norm, unit=unit, classes=classes, alpha=alpha, fit_intercept=fit_intercept,
            intercept_scaling=intercept_scaling, solver=solver, ledger=ledger, source=source,
        )  # fmt: skip
        self.margin = margin

    def _loss(self) -> Logistic:
        return Logistic(check.nonnegative("margin", self.margin))

    def predict_proba(self, X: Any) -> Floats:
        """The probability of each class for each row, in the order of `classes_`."""
        scores = self.decision_function(X)
        share = self._loss().probability(scores)
        if share.ndim == 1:
            return np.stack([1 - share, share], axis=1)
        return share / share.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X: Any) -> Floats:
        """The logarithms of `predict_proba`."""
        return np.asarray(np.log(self.predict_proba(X)))


class LinearSVC(LinearClassifier):
    """A linear support vector machine with the Huber hinge loss under (epsilon, delta)-differential privacy.

    `width` is how far the corner of the hinge is rounded to each side; the other parameters are those of `LogisticRegression`.
    The curvature of this loss does not taper, so alpha is larger by default: 2 / e / width for the objective.

    >>> from discreet.core import record
    >>> X, y = np.repeat([[-1.0], [1.0]], 2000, axis=0), np.repeat([0, 1], 2000)
    >>> LinearSVC(epsilon=1.0, delta=1e-6, norm=1.0, unit=record(), classes=[0, 1]).fit(X, y).predict([[0.9]]).tolist()
    [1]
    """

    def __init__(
        self, *, epsilon: float, delta: float, norm: float, unit: Unit, classes: Any = None, alpha: float | str = "auto",
        fit_intercept: bool = True, intercept_scaling: float = 1.0, width: float = 0.5, solver: str = "auto",
        ledger: LedgerLike | None = None, source: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            epsilon=epsilon, delta=delta, norm=norm, unit=unit, classes=classes, alpha=alpha, fit_intercept=fit_intercept,
            intercept_scaling=intercept_scaling, solver=solver, ledger=ledger, source=source,
        )  # fmt: skip
        self.width = width

    def _loss(self) -> Huber:
        if not 0 < check.real("width", self.width) <= 1:
            raise InvalidValue(f"width must be above 0 and at most 1; got {self.width:g}.")
        return Huber(float(self.width))
