"""Choosing parameters privately: several fits and the choice among them, in one claim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, clone
from sklearn.model_selection import GridSearchCV, ParameterGrid
from sklearn.model_selection import check_cv as splitter
from sklearn.utils.validation import check_is_fitted

from discreet.accounting import Gaussian, Sequence, calibrate, curve
from discreet.core import Claim, Event, Exponential, Game, Unit, check
from discreet.errors import InvalidValue
from discreet.learn.estimators import rows
from discreet.learn.estimators.base import PrivateEstimator, labelled
from discreet.learn.estimators.classifiers import LinearClassifier
from discreet.learn.estimators.exact import Floats
from discreet.learn.estimators.mechanisms import LinearFit, for_unit, group_size
from discreet.ledger import LedgerLike
from discreet.noise import exponential, uniform

PARTS = 5  # one row in so many is kept for the choice
CHOICE = 0.2  # the share of epsilon that the choice may take


@dataclass(frozen=True, slots=True)
class Search:
    """Every candidate is fitted on most rows, and the exponential mechanism chooses by mistakes on the others.

    Which rows are kept apart is drawn row by row, whatever they hold. The claim composes all fits and the choice.
    """

    candidates: tuple[LinearFit, ...]
    unit: Unit
    choice: float  # the epsilon of the choice, for one row

    def event(self) -> Event:
        fits = [candidate.event(candidate.noise()) for candidate in self.candidates]
        return Sequence([*fits, for_unit(Exponential(self.choice), self.unit)])

    def claims(self) -> tuple[Claim, ...]:
        says = tuple(dict.fromkeys(line for candidate in self.candidates for line in candidate.claims()[0].assumptions))
        return (Claim(game=Game(self.unit, {"weights"}), event=self.event(), assumptions=says),)

    def run(self, data: Any) -> tuple[int, Floats]:
        """The place of the chosen candidate, and its weights."""
        features, labels = data
        held_out = uniform(PARTS, len(labels)) == 0
        fitted = [candidate.run((features[~held_out], labels[~held_out])) for candidate in self.candidates]
        wrong = [
            int((predicted(candidate, weights, features[held_out]) != labels[held_out]).sum())
            for candidate, weights in zip(self.candidates, fitted)
        ]
        place = exponential([-mistakes for mistakes in wrong], self.choice, 1)
        return place, fitted[place]


def predicted(candidate: LinearFit, weights: Floats, features: Floats) -> NDArray[np.int64]:
    """The place of each row's class."""
    coef, intercept = candidate.problem.coefficients(weights)
    scores = rows.filled(features) @ coef.T + intercept
    return np.asarray((scores[:, 0] > 0) if candidate.problem.models == 1 else scores.argmax(axis=1), np.int64)


class PrivateSearchCV(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """The best of a grid of parameters, chosen privately, with the cost of all fits and of the choice in one claim.

    `estimator` is a `LogisticRegression` or `LinearSVC`, whose unit, norm, classes and other settings count; its epsilon does
    not: `epsilon` here is the whole cost. All fits compose exactly, so m candidates cost about sqrt m, not m, times the noise
    of one; a fifth of the rows is kept for the choice. The fit that is chosen is the one that is released.

    >>> from discreet.core import record
    >>> from discreet.learn.estimators.classifiers import LogisticRegression
    >>> X, y = np.repeat([[-1.0], [1.0]], 2000, axis=0), np.repeat([0, 1], 2000)
    >>> one = LogisticRegression(epsilon=1.0, delta=1e-6, norm=1.0, unit=record(), classes=[0, 1])
    >>> search = PrivateSearchCV(one, {"margin": [0.0, 1.0]}, epsilon=1.0, delta=1e-6).fit(X, y)
    >>> search.predict([[-0.9], [0.9]]).tolist()
    [0, 1]
    """

    def __init__(
        self, estimator: Any, param_grid: Any, *, epsilon: float, delta: float, ledger: LedgerLike | None = None,
        source: str | None = None,
    ) -> None:  # fmt: skip
        self.estimator = estimator
        self.param_grid = param_grid
        self.epsilon = epsilon
        self.delta = delta
        self.ledger = ledger
        self.source = source

    def fit(self, X: Any, y: Any, **params: Any) -> PrivateSearchCV:
        """Fit every candidate and choose, which spends (epsilon, delta) once."""
        self._no_weights(params)
        check.positive("epsilon", self.epsilon)
        check.open_fraction("delta", self.delta)
        if not isinstance(self.estimator, LinearClassifier):
            raise InvalidValue(f"estimator must be a LogisticRegression or LinearSVC; got {type(self.estimator).__name__}.")
        settings = list(ParameterGrid(self.param_grid))
        self._pays_alone(settings)
        X, y = rows.with_targets(self, X, y)
        classes, data, public = labelled(self.estimator.classes, X, y)
        search = self._calibrated(settings, X.shape[1], len(classes), public)
        released = self._spend(search, data)
        place, weights = released.value
        best = clone(self.estimator).set_params(**settings[place])
        best.coef_, best.intercept_ = search.candidates[place].problem.coefficients(weights)
        best.classes_, best.n_features_in_ = classes, X.shape[1]
        if hasattr(self, "feature_names_in_"):
            best.feature_names_in_ = self.feature_names_in_
        self.best_estimator_, self.best_params_, self.classes_ = best, settings[place], classes
        chosen = {name: value for name, value in settings[place].items() if isinstance(value, (bool, int, float, str))}
        self.release_ = released.map(
            lambda _: {
                "classes": classes.tolist(),
                "coef": best.coef_.tolist(),
                "intercept": best.intercept_.tolist(),
                **chosen,
            }
        )
        best.release_ = self.release_
        return self

    def _pays_alone(self, settings: list[dict[str, Any]]) -> None:
        """The search pays for all fits: refuse a ledger that only the estimator has, since it would never be charged."""
        for name in ("ledger", "source"):
            named = [getattr(self.estimator, name), *(setting.get(name) for setting in settings)]
            if any(value is not None and value != getattr(self, name) for value in named):
                raise InvalidValue(
                    f"The search pays for all fits, and the {name} of its estimator would not be charged. Give ledger and "
                    "source to the search and not to the estimator: PrivateSearchCV(…, ledger='ledger.db', source='people')."
                )

    def _calibrated(self, settings: list[dict[str, Any]], features: int, classes: int, public: tuple[str, ...]) -> Search:
        """The candidates at the largest epsilon each at which all of them and the choice keep (epsilon, delta)."""
        unit, epsilon = self.estimator.unit, float(self.epsilon)
        choice = CHOICE * epsilon / group_size(unit)
        noise = calibrate(lambda s: Sequence([Gaussian(s), Exponential(CHOICE * epsilon)]), epsilon, self.delta)
        single = curve(Gaussian(noise * len(settings) ** 0.5)).epsilon(self.delta)
        for _ in range(60):
            models = [clone(self.estimator).set_params(**setting, epsilon=single, delta=self.delta) for setting in settings]
            search = Search(tuple(model._mechanism(features, classes, public) for model in models), unit, choice)
            total = curve(search.event()).epsilon(self.delta)
            if total <= epsilon:
                return search
            single *= min(0.99, epsilon / total)
        raise InvalidValue(f"No noise keeps epsilon {epsilon:g} with these settings; raise alpha, or search fewer.")

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class of each row, by the chosen fit."""
        check_is_fitted(self)
        return np.asarray(self.best_estimator_.predict(X))

    def decision_function(self, X: Any) -> Floats:
        """The scores of the chosen fit."""
        check_is_fitted(self)
        return np.asarray(self.best_estimator_.decision_function(X))


def search_cost(search: GridSearchCV, y: Any = None) -> dict[str, Any]:
    """What a GridSearchCV over private estimators, or a pipeline with some, will spend, said beforehand: every fit is charged.

    >>> from discreet.core import record
    >>> from discreet.learn.estimators.classifiers import LogisticRegression
    >>> one = LogisticRegression(epsilon=0.5, delta=1e-6, norm=1.0, unit=record(), classes=[0, 1])
    >>> search_cost(GridSearchCV(one, {"margin": [0.0, 1.0]}, cv=5))
    {'fits': 11, 'epsilon': 5.5, 'delta': 1.1e-05}
    """
    prices = [_price(clone(search.estimator).set_params(**setting)) for setting in ParameterGrid(search.param_grid)]
    if not any(epsilon for epsilon, _ in prices):
        raise InvalidValue(f"The search is not over a private estimator; got {type(search.estimator).__name__}.")
    folds = splitter(search.cv, y, classifier=True).get_n_splits()
    last = int(bool(search.refit))
    epsilon, delta = (folds * sum(amounts) + last * max(amounts) for amounts in zip(*prices))
    return {"fits": folds * len(prices) + last, "epsilon": epsilon, "delta": round(delta, 15)}


def _price(estimator: Any) -> tuple[float, float]:
    """Epsilon and delta of one fit: those of the estimator, and of every private one inside it, such as a pipeline's steps."""
    inside = [estimator, *estimator.get_params(deep=True).values()]
    private = {id(member): member for member in inside if isinstance(member, PrivateEstimator)}
    paid = [
        member for member in private.values() if getattr(member, "epsilon", None) and getattr(member, "edges", None) is None
    ]
    return sum(float(member.epsilon) for member in paid), sum(float(member.delta) for member in paid)
