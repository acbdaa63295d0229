"""What the key holder makes of decrypted scores: nothing, or probabilities as the model's own `predict_proba` makes them.

A link is a word of the format: identity, logistic, softmax, probability (a polynomial has made one already), or one-vs-rest,
where each class has a logistic function and the results are divided by their sum. `logistic:1` and `one-vs-rest:1` undo a
margin of 1: p share(s) = (1 - p) share(-s) with share(s) = 1 / (1 + e^(s - margin)). None of them stretches a distance, so that
an error of scores bounds that of probabilities: the first has a slope of at most 1/4, the others of at most 1/2.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

LINKS = ("identity", "logistic", "softmax", "probability", "one-vs-rest")
UNDONE = ("logistic", "one-vs-rest")  # which can undo a margin

Scores = NDArray[np.float64]


def with_margin(link: str, margin: float) -> str:
    """The word for a link that undoes this margin."""
    return link if margin == 0 else f"{link}:{float(margin)!r}"


def is_link(word: object) -> bool:
    return isinstance(word, str) and (word in LINKS or _margin(word) is not None)


def _margin(word: str) -> float | None:
    """The margin that a word names, where it is one that `with_margin` writes."""
    link, _, written = word.partition(":")
    try:
        margin = float(written)
    except ValueError:
        return None
    known = link in UNDONE and 0 < margin < math.inf and with_margin(link, margin) == word
    return margin if known else None


def applied(scores: Scores, link: str) -> Scores:
    """Probabilities, for scores (rows, outputs); what overflows nowhere."""
    name, margin = link.partition(":")[0], _margin(link) or 0.0
    if name == "logistic":
        return np.asarray(0.5 + 0.5 * np.tanh(_undone(scores, margin) / 2))
    if name == "one-vs-rest":
        return _softmax(-np.logaddexp(0.0, -_undone(scores, margin)))
    if name == "softmax":
        return _softmax(scores)
    return np.clip(scores, 0, 1) if name == "probability" else scores


def _undone(scores: Scores, margin: float) -> Scores:
    """The log odds of a score under the loss log(1 + e^(margin - m)); its slope is between 0 and 1."""
    return scores if margin == 0 else np.asarray(np.logaddexp(0.0, scores - margin) - np.logaddexp(0.0, -scores - margin))


def _softmax(scores: Scores) -> Scores:
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
