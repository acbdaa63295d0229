"""Quantile regression: how sure would the target be of this row, had it not seen it? (Bertran et al. 2023)

One small network learns from rows known to be outside what the target's margin looks like for such inputs. The score is how
far a row's own margin lies above it. No shadow is trained and nothing is known of how the target was.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import check
from discreet.errors import InvalidValue

Array = NDArray[Any]
FOLDS = 5
WIDEST = 512  # features; more are projected at random


def quantile(
    margin: Array, X: Array, y: Array, outside: Array, *, level: float | None = None, folds: int = FOLDS, seed: int = 0
) -> NDArray[np.float64]:
    """The margin of every row, standardised by what rows like it have outside; with a `level`, above that quantile instead.

    `outside` marks the rows that the attacker knows to be outside. No row is judged by a network that learned from it: rows
    are dealt into folds, and each fold, members and others alike, is judged by what was learned from the others.

    >>> rng = np.random.default_rng(0)
    >>> X, inside = rng.normal(size=(600, 2)), np.arange(600) < 300
    >>> score = quantile(3 * X[:, 0] + inside, X, np.zeros(600, int), ~inside)
    >>> bool((score[inside] > np.median(score)).mean() > 0.7)
    True
    """
    from discreet.models import small

    check.whole("folds", folds, least=2)
    known = np.flatnonzero(outside)
    if len(known) < 10 * folds:
        raise InvalidValue(f"quantile learns from rows outside, at least {10 * folds} of them; got {len(known)}.")
    rng = np.random.default_rng(check.whole("seed", seed, least=0))
    fold = rng.permutation(len(margin)) % folds
    centre, scale = float(np.mean(margin[known])), float(np.std(margin[known])) + 1e-9
    wanted, inputs = (margin - centre) / scale, _inputs(X, y, rng)
    groups = [known[fold[known] != k] for k in range(folds)]
    loss, outputs = (small.normal, 2) if level is None else (small.pinball(check.open_fraction("level", level)), 1)
    nets = small.fit(inputs, wanted, groups, loss, outputs=outputs, decay=0.1, rate=5e-3, seed=seed)
    predicted = nets.each(inputs, fold)
    gap = wanted - predicted[:, 0]
    return np.asarray(gap if level is not None else gap * np.exp(-np.clip(predicted[:, 1], -6.0, 6.0)), np.float64)


def _inputs(X: Array, y: Array, rng: np.random.Generator) -> Array:
    """Inputs laid flat, projected at random where they are many, and the label as so many columns."""
    flat = np.asarray(X, np.float32).reshape(len(X), -1)
    if flat.shape[1] > WIDEST:
        flat = flat @ (rng.standard_normal((flat.shape[1], WIDEST)) / np.sqrt(WIDEST)).astype(np.float32)
    return np.concatenate([flat, np.eye(int(y.max()) + 1, dtype=np.float32)[y]], 1)
