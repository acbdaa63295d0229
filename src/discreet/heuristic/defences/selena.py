"""SELENA: every row is taught by models that never saw it (Tang et al. 2022).

Many sub-models are trained, each row left out by some of them; the model that is released learns, for each row, not its label
but the mean answer of the sub-models that left it out, so it answers members as it would answer others. What still leaks: how
far the student is from those answers, and a row's influence on its neighbours' answers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import check
from discreet.errors import InvalidValue
from discreet.heuristic.defences.defended import Defended, fitted_by, of_torch, seed_of
from discreet.models import Recipe, Trainer, predict

Array = NDArray[Any]
LONGER = 4  # times the epochs of the recipe, for the student


def selena(recipe: Recipe, *, models: int = 25, left_out: int = 10, epochs: int | None = None, device: str = "cpu") -> Defended:
    """The recipe by way of `models` sub-models, of which `left_out` never see a given row and teach it.

    The student learns for `epochs`, by default four times the recipe's. Members stand out if it fits the soft labels too
    loosely and, in networks that can memorise, too exactly: attack it, and choose. No rows are set aside; the price is the
    training of `models` models.
    """
    check.whole("models", models, least=2)
    check.whole("left_out", left_out)
    if left_out >= models:
        raise InvalidValue(f"Each row is left out by some of {models} models and seen by others; got left_out {left_out}.")
    known = of_torch(recipe)
    long = check.whole("epochs", LONGER * known.epochs if epochs is None else epochs)

    def fit(X: Any, y: Any) -> Any:
        import torch

        X, y = np.asarray(X), np.asarray(y)
        seed = seed_of(X, y) >> 1  # models are numbered from here
        inside = dealt(len(X), models, left_out, seed)
        with torch.random.fork_rng(devices=[]):
            scores = Trainer(known, device).many(X, y, inside, seed=seed).scores
        longer = replace(known, epochs=long)
        student = Trainer(longer, device).one(X, soft_labels(scores, inside), seed=seed + models)
        return lambda inputs: predict.scores(student, inputs)

    return Defended("SELENA", fitted_by(known, fit))


def dealt(rows: int, models: int, left_out: int, seed: int) -> NDArray[np.bool_]:
    """Which rows each sub-model is trained on, [models, rows]: as many for each, every row left out by at least `left_out`.

    >>> inside = dealt(100, 5, 2, seed=0)
    >>> set(inside.sum(1).tolist()), set((~inside).sum(0).tolist())
    ({60}, {2})
    """
    rng = np.random.default_rng(seed)
    inside = np.ones((models, rows), np.bool_)
    order = rng.permutation(rows)
    for start in range(0, rows, models):  # rows by as many as there are models: each model leaves out as many of them
        block, names = order[start : start + models], rng.permutation(models)
        for place, row in enumerate(block):
            inside[names[(place + np.arange(left_out)) % models], row] = False
    least = int(inside.sum(1).min())
    for own in inside:  # the last block may be short; models trained together have as many rows
        own[rng.permutation(np.flatnonzero(own))[least:]] = False
    return inside


def soft_labels(scores: Array, inside: NDArray[np.bool_]) -> NDArray[np.float32]:
    """For each row the mean distribution over classes of the models that never saw it, [rows, classes]."""
    probabilities = np.exp(scores - scores.max(2, keepdims=True))
    probabilities /= probabilities.sum(2, keepdims=True)
    without = ~inside[:, :, None]
    return np.asarray(np.sum(probabilities, 0, where=without) / without.sum(0), np.float32)
