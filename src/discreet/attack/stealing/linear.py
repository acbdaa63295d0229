"""Linear models by solving equations (Tramèr et al. 2016): each answer is a linear equation in the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.attack.stealing.oracle import Oracle, logits_of, probabilities, step_of
from discreet.core import check
from discreet.errors import InvalidValue

Floats = NDArray[np.float64]
CHECKS = 16  # further rows on which the equations must hold


@dataclass(frozen=True)
class StolenLinear:
    """A linear model: `weights` [inputs, outputs] and `offset` [outputs]; of a classifier its logits, the last class at 0.

    `error` is the largest difference from what the model answered on rows of which no equation was made.
    """

    weights: Floats
    offset: Floats
    classifier: bool
    queries: int
    error: float

    def predict(self, rows: Any) -> Floats:
        """What the stolen model answers: numbers, or the probabilities of classes."""
        found = np.atleast_2d(np.asarray(rows, np.float64)) @ self.weights + self.offset
        return _shares(found) if self.classifier else np.asarray(found)


def steal_linear(model: Any, inputs: int, *, scale: float = 1.0, more: int = 0, seed: int = 0) -> StolenLinear:
    """The weights of a linear, logistic or softmax regression, from inputs + 1 queries, and 16 that check them.

    The rows asked about have coordinates near `scale`; they are made smaller where probabilities come out as 0 or 1. Answers
    that are rounded leave an error, which `more` equations make smaller.

    >>> model = lambda X: X @ np.array([2.0, -1.0]) + 0.5
    >>> steal_linear(model, 2).weights.round(9).T.tolist()
    [[2.0, -1.0]]
    """
    check.whole("inputs", inputs)
    oracle = model if isinstance(model, Oracle) else Oracle(model)
    before, random = oracle.queries, np.random.default_rng(check.whole("seed", seed, least=0))
    check.positive("scale", scale), check.whole("more", more, least=0)
    for attempt in range(12):
        rows = random.normal(size=(inputs + 1 + more + CHECKS, inputs)) * scale / 4**attempt
        answers = oracle(rows)
        if not probabilities(answers) or (answers > 1e-9).all():
            break
    if step_of(answers) == 1.0 and len(np.unique(answers, axis=0)) < len(answers) / 2:
        raise InvalidValue(
            "The model answers with labels alone. Equations need numbers: scores or probabilities. Labels only show where it "
            "changes its mind: steal_approximate learns from those."
        )
    known = logits_of(answers)
    table = np.column_stack([rows, np.ones(len(rows))])
    used = len(rows) - CHECKS
    solution = np.linalg.lstsq(table[:used], known[:used], rcond=None)[0]
    classifier = probabilities(answers)
    told = table[used:] @ solution
    error = float(np.abs((_shares(told) if classifier else told) - answers[used:]).max())
    spread = float(np.ptp(answers)) or 1.0
    if error > max(20 * step_of(answers) * np.sqrt(inputs), 1e-6 * spread):
        raise InvalidValue(
            f"These are not the answers of a linear model: its equations are off by {error:.2g} on rows that "
            "were kept aside. Is it "
            "a tree (steal_tree), a ReLU network (steal_relu), or are its answers noisy (more=…, steal_approximate)?"
        )
    return StolenLinear(solution[:-1], solution[-1], classifier, oracle.queries - before, error)


def _shares(logits: Floats) -> Floats:
    """Probabilities; the last class, whose logit is 0, is added."""
    full = np.column_stack([logits, np.zeros(len(logits))])
    shares = np.exp(full - full.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))
