"""Log-probabilities of many texts at once, and how a model is sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.attack.text.models import LanguageModel
from discreet.core import check
from discreet.errors import InvalidValue

Tokens = NDArray[np.int64]
Floats = NDArray[np.float64]
AT_ONCE = 256  # texts given to a torch module


@dataclass(frozen=True)
class Sampling:
    """How a model is sampled: its temperature, and from how many of the likeliest tokens (0: from all)."""

    temperature: float = 1.0
    top_k: int = 0

    def __post_init__(self) -> None:
        check.positive("temperature", self.temperature), check.whole("top_k", self.top_k, least=0)

    def log_probabilities(self, model: Floats) -> Floats:
        """Of drawing each token [..., vocabulary]; -inf where it is never drawn."""
        scaled = np.array(model / self.temperature)
        if 0 < self.top_k < scaled.shape[-1]:
            least = np.partition(scaled, -self.top_k, axis=-1)[..., -self.top_k, None]
            scaled[scaled < least] = -np.inf
        scaled -= scaled.max(axis=-1, keepdims=True)
        return np.asarray(scaled - np.log(np.exp(scaled).sum(axis=-1, keepdims=True)))


def read(model: LanguageModel, rows: Tokens) -> Floats:
    """Row i, place j: log p(. | tokens of row i before j), [texts, length, vocabulary]; texts of one length."""
    rows = np.atleast_2d(np.asarray(rows, np.int64))
    batch = getattr(model, "batch", None)
    if batch is None:
        return np.stack([model.log_probabilities(row) for row in rows])
    return np.concatenate([batch(rows[at : at + AT_ONCE]) for at in range(0, len(rows), AT_ONCE)])


def next_token(model: LanguageModel, rows: Tokens) -> Floats:
    """What comes after each text, [texts, vocabulary]: the token appended is not looked at."""
    rows = np.atleast_2d(np.asarray(rows, np.int64))
    longer = np.column_stack([rows, np.zeros(len(rows), np.int64)])
    last = getattr(model, "last", None)
    if last is None:
        return np.asarray(read(model, longer)[:, -1])
    return np.concatenate([last(longer[at : at + AT_ONCE]) for at in range(0, len(longer), AT_ONCE)])


def of_tokens(found: Floats, rows: Tokens) -> Floats:
    """The log-probability of each token that is there, [texts, length]."""
    return np.asarray(np.take_along_axis(found, rows[:, :, None], axis=2)[:, :, 0])


def language_model(model: Any) -> LanguageModel:
    """The model, where it is one."""
    if not isinstance(model, LanguageModel):
        raise InvalidValue(f"A {type(model).__name__} does not say log_probabilities(tokens); wrap a torch module: Causal(…).")
    return model
