"""Private estimators with scikit-learn's conventions. After `fit`, `release_` has the claim and the ledger entry that paid."""

from __future__ import annotations

try:
    import sklearn as _sklearn  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "sklearn":
        raise
    from discreet.errors import MissingExtra

    raise MissingExtra("sklearn", "sklearn", "Private estimators") from None

from discreet.learn.estimators.bayes import GaussianNB, StandardScaler
from discreet.learn.estimators.classifiers import LinearSVC, LogisticRegression
from discreet.learn.estimators.cluster import KMeans
from discreet.learn.estimators.finite import choose_hypothesis, excess_risk
from discreet.learn.estimators.preprocessing import KBinsDiscretizer, OneHotEncoder
from discreet.learn.estimators.regression import PCA, LinearRegression, Ridge
from discreet.learn.estimators.search import PrivateSearchCV, search_cost
from discreet.learn.estimators.trees import HistGradientBoostingClassifier, HistGradientBoostingRegressor

__all__ = [
    "PCA", "GaussianNB", "HistGradientBoostingClassifier", "HistGradientBoostingRegressor", "KBinsDiscretizer",
    "KMeans", "LinearRegression", "LinearSVC", "LogisticRegression", "OneHotEncoder", "PrivateSearchCV", "Ridge",
    "StandardScaler", "choose_hypothesis", "excess_risk", "search_cost",
]  # fmt: skip
