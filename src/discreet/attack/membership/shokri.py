"""Shadow models teach an attack model, one per class (Shokri et al. 2017).

What a shadow says of its own rows and of others is known; a small network per class learns to tell them apart, and is asked
about what the target says. The data of the shadows may be the rows in question, a disjoint sample, rows drawn from marginals,
or rows made by query synthesis (query_synthesis.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.attack.membership import signals
from discreet.core import check
from discreet.errors import InvalidValue
from discreet.models import predict

Array = NDArray[Any]
Marginals = Sequence[tuple[Array, Array]]  # for each feature its values and their probabilities

TOP = 10  # largest probabilities that the attack model sees
FAR = 30.0  # logarithms beyond this are cut
MOST = 400_000  # answers of shadows to learn from
FEW = 30  # a class with fewer answers inside or outside is left to a model of all classes


def shokri(target: Array, y: Array, shadows: Array, shadow_y: Array, inside: Array, *, seed: int = 0) -> Array:
    """The log-odds of every row, from the target's scores [rows, classes] and its shadows' [models, their rows, classes].

    >>> rng = np.random.default_rng(0)
    >>> inside = np.arange(400) % 2 == 0
    >>> scores = np.stack([2.0 * inside + rng.normal(size=400), np.zeros(400)], 1)
    >>> found = shokri(scores, np.zeros(400, int), scores[None], np.zeros(400, int), inside[None])
    >>> bool(found[inside].mean() > found[~inside].mean())
    True
    """
    from discreet.models import small

    known, labels, truth = _answers(shadows, shadow_y, inside, seed)
    classes = int(max(labels.max(), y.max())) + 1
    groups = [np.flatnonzero(labels == c) for c in range(classes)]
    enough = [bool(min(truth[part].sum(), (~truth[part]).sum()) >= FEW) for part in groups]
    everything = np.arange(len(known))
    nets = small.fit(known, truth, [part if ok else everything for part, ok in zip(groups, enough)], small.member, seed=seed)
    return nets.each(features(target, y), np.asarray(y))[:, 0].astype(np.float64)


def features(scores: Array, y: Array) -> Array:
    """What the attack model sees of an answer: largest log-probabilities in order, the label's margin, whether it is right."""
    scores = np.asarray(scores, np.float64)
    logs = scores - np.logaddexp.reduce(scores, 1, keepdims=True)
    top = -np.sort(-np.maximum(logs, -FAR), 1)[:, :TOP]
    margin = np.clip(signals.margin(scores, y), -FAR, FAR)
    return np.concatenate([top, margin[:, None], (scores.argmax(1) == y)[:, None]], 1).astype(np.float32)


def _answers(shadows: Array, y: Array, inside: Array, seed: int) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Features, labels and truth of the shadows' answers, at most MOST of them, the same share of each model."""
    rng = np.random.default_rng(seed)
    each = min(len(y), max(1, MOST // len(shadows)))
    parts = []
    for scores, marks in zip(shadows, inside):
        chosen = rng.permutation(len(y))[:each]
        parts.append((features(scores[chosen], y[chosen]), y[chosen], marks[chosen]))
    known, labels, truth = (np.concatenate(part) for part in zip(*parts))
    return known, labels, truth.astype(np.bool_)


def marginals(X: Array, *, noise: float = 0.0) -> list[tuple[Array, Array]]:
    """How often each value of each feature occurs in X; `noise` is the share that is spread evenly over its values.

    >>> [weights.round(2).tolist() for _, weights in marginals(np.array([[0], [0], [0], [1]]), noise=0.2)]
    [[0.7, 0.3]]
    """
    check.fraction("noise", noise)
    shares = []
    for column in np.asarray(X).T:
        values, counts = np.unique(column, return_counts=True)
        shares.append((values, (1.0 - noise) * counts / counts.sum() + noise / len(values)))
    return shares


def from_marginals(target: Any, marginals: Marginals, rows: int, *, seed: int = 0) -> tuple[Array, Array]:
    """Rows whose features are drawn one by one from their marginals, labelled by asking the target."""
    rng = np.random.default_rng(check.whole("seed", seed, least=0))
    check.whole("rows", rows)
    columns = []
    for place, (values, weights) in enumerate(marginals):
        weights = np.asarray(weights, np.float64)
        if len(values) != len(weights) or not len(weights) or (weights < 0).any() or abs(weights.sum() - 1.0) > 1e-6:
            raise InvalidValue(f"marginal {place} must have a probability for each value, summing to 1; got {weights.sum():g}.")
        columns.append(np.asarray(values)[rng.choice(len(weights), rows, p=weights / weights.sum())])
    X = np.stack(columns, 1)
    return X, predict.labels(target, X)
