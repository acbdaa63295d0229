"""Scores for membership from what a target and its shadows say: higher where the row seems more to have been inside.

Every function takes `target` [rows], the signal of the model under attack, and `shadows` [models, rows] with `inside`
[models, rows]: the same signal of models that were, or were not, trained on each row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Marks = NDArray[np.bool_]
LEAST = 1e-6  # variance


def calibrated(target: Array, shadows: Array, inside: Marks) -> Array:
    """How much surer the target is than models that never saw the row (Watson et al. 2022)."""
    return target - _moments(shadows, ~inside)[1]


def lira(target: Array, shadows: Array, inside: Marks, *, fixed: bool | None = None) -> Array:
    """The likelihood ratio of two Gaussians per row (Carlini et al. 2022); `fixed` pools the variance over rows.

    Below 16 models inside and outside, as published, the pooled variance is used unless told otherwise.
    """
    fixed = inside.sum(0).min() < 16 if fixed is None else fixed
    (_, mean_in, var_in), (_, mean_out, var_out) = _moments(shadows, inside), _moments(shadows, ~inside)
    if fixed:
        var_in, var_out = (np.full(len(target), _pooled(shadows, chosen)) for chosen in (inside, ~inside))
    return _log_normal(target, mean_in, var_in) - _log_normal(target, mean_out, var_out)


def lira_offline(target: Array, shadows: Array, inside: Marks, *, fixed: bool = True) -> Array:
    """How unusually sure the target is for a model that never saw the row: needs no model that did."""
    _, mean, variance = _moments(shadows, ~inside)
    return (target - mean) / np.sqrt(_pooled(shadows, ~inside) if fixed else variance)


def rmia(
    target: Array, shadows: Array, inside: Marks, population: Array, population_shadows: Array, *, gamma: float = 2.0
) -> Array:
    """How often the row's likelihood ratio beats, by `gamma`, that of rows of a population (Zarifzadeh et al. 2024).

    Signals are probabilities here. The average over models in and out stands for p(x).
    """
    ours = target / np.maximum(evidence(shadows, inside), 1e-12)
    theirs = np.sort(population / np.maximum(population_shadows.mean(0), 1e-12))
    beaten = np.searchsorted(theirs, ours / gamma, side="right") / len(theirs)
    return beaten + 1e-9 * np.log(np.maximum(ours, 1e-300))  # ties among the many that beat all, or none, by their own ratio


def evidence(shadows: Array, inside: Marks) -> Array:
    """p(x): half the mean over models inside, half over models outside."""
    (n_in, mean_in, _), (n_out, mean_out, _) = _moments(shadows, inside), _moments(shadows, ~inside)
    return np.where(n_in == 0, mean_out, np.where(n_out == 0, mean_in, (mean_in + mean_out) / 2))


def _moments(shadows: Array, chosen: Marks) -> tuple[Array, Array, Array]:
    """Number, mean and variance over the chosen models, by row; the mean of all where none was chosen."""
    count = chosen.sum(0).astype(np.float64)
    total = np.where(chosen, shadows, 0.0).sum(0)
    overall = total.sum() / max(count.sum(), 1.0)
    mean = np.where(count > 0, total / np.maximum(count, 1.0), overall)
    spread = np.where(chosen, (shadows - mean) ** 2, 0.0).sum(0)
    return count, mean, np.maximum(spread / np.maximum(count - 1, 1.0), LEAST)


def _pooled(shadows: Array, chosen: Marks) -> float:
    count, _, variance = _moments(shadows, chosen)
    many = count > 1
    if not many.any():
        return float(max(np.where(chosen, shadows, np.nan)[chosen].var(), LEAST))
    return float(max(np.average(variance[many], weights=count[many] - 1), LEAST))


def _log_normal(x: Array, mean: Any, variance: Any) -> Array:
    return -0.5 * ((x - mean) ** 2 / variance + np.log(variance))
