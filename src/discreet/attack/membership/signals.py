"""What a model's scores say about one label: the numbers that membership attacks compare."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


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
