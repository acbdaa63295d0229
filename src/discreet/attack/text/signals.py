"""How well a model knows a text: each number is higher where the text seems more to have been trained on."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def of_text(log_probabilities: Array, tokens: NDArray[np.int64]) -> Array:
    """The log-probability of each token of a text."""
    return np.asarray(log_probabilities[np.arange(len(tokens)), tokens], np.float64)


def loss(log_probabilities: Array, tokens: NDArray[np.int64]) -> float:
    """The mean log-probability of its tokens (Yeom et al. 2018)."""
    return float(of_text(log_probabilities, tokens).mean())


def zlib_ratio(log_probabilities: Array, tokens: NDArray[np.int64], text: str) -> float:
    """Loss over the bytes that zlib needs: what any compressor finds easy is no memory (Carlini et al. 2021)."""
    return loss(log_probabilities, tokens) / len(zlib.compress(text.encode()))


def min_k(log_probabilities: Array, tokens: NDArray[np.int64], share: float = 0.2) -> float:
    """The mean over the least likely share of tokens (Shi et al. 2024)."""
    return _lowest(of_text(log_probabilities, tokens), share)


def min_k_plus(log_probabilities: Array, tokens: NDArray[np.int64], share: float = 0.2) -> float:
    """Min-K%++ (Zhang et al. 2025): each token's log-probability against the mean and spread of all the model could say there.

    >>> log_probabilities = np.log(np.array([[0.5, 0.25, 0.25], [0.9, 0.05, 0.05]]))
    >>> min_k_plus(log_probabilities, np.array([0, 0])) > min_k_plus(log_probabilities, np.array([1, 1]))
    True
    """
    p = np.exp(log_probabilities)
    mean = (p * log_probabilities).sum(1)
    spread = np.sqrt(np.maximum((p * log_probabilities**2).sum(1) - mean**2, 1e-12))
    return _lowest((of_text(log_probabilities, tokens) - mean) / spread, share)


def reference_ratio(log_probabilities: Array, reference: Array, tokens: NDArray[np.int64]) -> float:
    """How much likelier the text is than to a model that never saw it, per token (Carlini et al. 2021)."""
    return loss(log_probabilities, tokens) - loss(reference, tokens)


def _lowest(values: Array, share: float) -> float:
    count = max(1, int(share * len(values)))
    return float(np.partition(values, count - 1)[:count].mean())
