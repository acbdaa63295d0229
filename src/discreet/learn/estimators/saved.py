"""The linear model that `discreet fit` wrote, read again to predict: its coefficients and what is known of its columns."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from discreet.core import Release, check
from discreet.errors import DiscreetError, InvalidDocument
from discreet.learn.estimators.exact import Floats
from discreet.learn.estimators.features import Features
from discreet.learn.estimators.linear import Logistic

SMALLEST = 1e-300  # of probabilities whose logarithm is taken
MODELS = ("logistic", "svm", "regression")


@dataclass(frozen=True)
class LinearTable:
    """A model of a table: `kind` is logistic, svm or regression, `classes` is empty for a regression.

    Predictions are post-processing: they cost nothing, however often they are asked.
    """

    kind: str
    target: str
    features: Features
    coef: Floats  # [models, features]
    intercept: Floats  # [models]
    classes: tuple[Any, ...]
    margin: float
    release: Release[Any]

    def scores(self, table: Any) -> Floats:
        """A score for each row and model, [rows, models]."""
        return self.of_rows(self.features(table))

    def of_rows(self, rows: Floats) -> Floats:
        """A score for each encoded row and model."""
        return np.asarray(rows @ self.coef.T + self.intercept)

    def predict(self, table: Any) -> list[Any]:
        """The likeliest class of each row, or its value."""
        scores = self.scores(table)
        if not self.classes:
            values: list[float] = scores[:, 0].tolist()
            return values
        places = (scores[:, 0] > 0).astype(np.int64) if scores.shape[1] == 1 else scores.argmax(axis=1)
        return [self.classes[place] for place in places.tolist()]

    def predict_proba(self, table: Any) -> Floats | None:
        """The probability of each class for each row, [rows, classes]; None for models that have no probabilities."""
        if self.kind != "logistic":
            return None
        return self._shares(self.scores(table))

    def shares(self, rows: Floats) -> Floats:
        """The probability of each class of a logistic model, for encoded rows."""
        return self._shares(self.of_rows(rows))

    def _shares(self, scores: Floats) -> Floats:
        share = Logistic(self.margin).probability(scores)
        return np.hstack([1 - share, share]) if share.shape[1] == 1 else share / share.sum(axis=1, keepdims=True)

    def logits(self, scores: Floats) -> Floats:
        """A column for each class, [rows, classes]: logarithms of probabilities; of a model without them, its scores."""
        if self.kind == "logistic":
            return np.asarray(np.log(np.clip(self._shares(scores), SMALLEST, 1.0)))
        return np.hstack([-scores, scores]) if scores.shape[1] == 1 else scores


def load_fit(path: str | os.PathLike[str]) -> LinearTable:
    """The model in a release that `discreet fit` wrote.

    load_fit("model.json").predict({"age": [31, 78], "sex": ["f", "m"]})
    """
    release: Release[Any] = Release.load(path)
    value = release.value
    if not isinstance(value, Mapping) or not {"model", "target", "columns", "coef", "intercept"} <= set(value):
        raise InvalidDocument(f"{os.fspath(path)} is a release, and no model that discreet fit wrote.")
    try:
        kind = check.word("model", value["model"], MODELS)
        classes = tuple(value.get("classes") or ())
        if bool(classes) == (kind == "regression") or len(classes) == 1:
            raise InvalidDocument(f"classes are not those of a {kind} model")
        features = Features(value["columns"])
        models = 1 if len(classes) in (0, 2) else len(classes)
        coef = np.asarray(value["coef"], np.float64).reshape(models, -1)
        intercept = np.asarray(value["intercept"], np.float64).reshape(models)
        width = features({name: [None] for name in features.known}).shape[1]
        if coef.shape[1] != width or not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
            raise InvalidDocument(f"coef must be finite numbers, {width} for each model")
        margin = check.real("margin", value.get("margin", 1.0))
        return LinearTable(kind, check.word("target", value["target"]), features, coef, intercept, classes, margin, release)
    except (DiscreetError, TypeError, ValueError, AttributeError) as error:
        raise InvalidDocument(f"{os.fspath(path)} is damaged as a model: {str(error).rstrip('.')}.") from None
