"""Signals, the numbers that membership attacks compare: what a model's scores say about one label; and scores made of them.

The scores (`calibrated`, `lira`, `lira_offline`, `rmia`) are higher where a row seems more to have been inside. They take
`target` [rows], the signal of the model under attack, and `shadows` [models, rows] with `inside` [models, rows]: the same
signal of models that were, or were not, trained on each row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Marks = NDArray[np.bool_]
LEAST = 1e-6  # variance


def log_probability(scores: NDArray[Any], y: NDArray[Any]) -> Array:
    """log p(y), from scores [..., rows, classes].

    >>> float(log_probability(np.array([[0.0, 0.0]]), np.array([1]))[0]) == float(np.log(0.5))
    True
    """
    scores = np.asarray(scores, np.float64)
    return _of_label(scores, y) - _log_sum(scores)


def margin(scores: NDArray[Any], y: NDArray[Any]) -> Array:
    """log p(y) / (1 - p(y)), computed without rounding 1 - p away (Carlini et al. 2022).

    >>> float(margin(np.array([[3.0, 1.0]]), np.array([0]))[0])
    2.0
    """
    others = np.array(scores, np.float64)
    own = _of_label(others, y)
    np.put_along_axis(others, _index(others, y), -np.inf, -1)
    return own - _log_sum(others)


def tempered(scores: NDArray[Any], y: NDArray[Any], temperature: float = 1.0, order: int | None = None) -> Array:
    """p(y) after dividing scores by a temperature; with an `order`, exp is its Taylor polynomial (Zarifzadeh et al. 2024)."""
    scores = np.asarray(scores, np.float64) / temperature
    if order is None:
        return np.exp(log_probability(scores, y))
    scores = scores - scores.mean(-1, keepdims=True)
    terms, total = np.ones_like(scores), np.ones_like(scores)
    for power in range(1, order + 1):
        terms = terms * scores / power
        total = total + terms
    weights = np.maximum(total, 1e-12)
    return _of_label(weights, y) / weights.sum(-1)


def _index(scores: Array, y: NDArray[Any]) -> NDArray[np.int64]:
    return np.broadcast_to(np.asarray(y, np.int64)[..., None], (*scores.shape[:-1], 1))


def _of_label(scores: Array, y: NDArray[Any]) -> Array:
    return np.take_along_axis(scores, _index(scores, y), -1)[..., 0]


def _log_sum(scores: Array) -> Array:
    top = scores.max(-1, keepdims=True)
    shares = scores - top
    return np.log(np.exp(shares, out=shares).sum(-1)) + top[..., 0]


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
