"""Private estimators with scikit-learn's conventions. After `fit`, `release_` has the claim and the ledger entry that paid."""

from __future__ import annotations

try:
    import sklearn as _sklearn  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "sklearn":
        raise
    from discreet.errors import MissingExtra

    raise MissingExtra("sklearn", "sklearn", "Private estimators") from None

from discreet.learn.estimators.classifiers import LinearSVC, LogisticRegression

__all__ = ["LinearSVC", "LogisticRegression"]
