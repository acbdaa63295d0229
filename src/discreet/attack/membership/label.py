"""Attacks that see labels only: a model that memorised a row keeps its label further away from it.

Both ask about many disturbed copies of each row at once. A row whose own label is wrong scores lowest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import check
from discreet.models import predict

Array = NDArray[Any]
Augment = Callable[[Array, np.random.Generator], Array]  # rows to as many changed rows

STRENGTHS = (0.25, 0.5, 1.0, 2.0)  # of noise, in deviations of a feature
FLIPS = (0.02, 0.05, 0.1, 0.2)  # of bits: each flips with this probability
AT_ONCE = 1 << 24  # numbers given to the target in one question


def kept(
    target: Any, X: Array, y: Array, *, copies: int = 32, augment: Augment | None = None, seed: int = 0
) -> NDArray[np.float64]:
    """The share of disturbed copies that keep the label (Choquette-Choo et al. 2021): 0 where the row itself has it wrong.

    Copies are made by `augment`, or by noise of several strengths: normal, or flipped bits where all features are bits.

    >>> X = np.array([[0.1], [3.0]])
    >>> score = kept(lambda rows: np.concatenate([rows, -rows], 1), X, np.zeros(2, int), augment=lambda r, rng: r - 1.0)
    >>> score.tolist()
    [0.0, 1.0]
    """
    check.whole("copies", copies)
    X, rng = np.asarray(X), np.random.default_rng(seed)
    disturb = _noises(X) if augment is None else [augment]
    right = predict.labels(target, X) == y
    same = np.zeros(len(X))
    for turn in range(copies):
        how = disturb[turn % len(disturb)]
        same[right] += predict.labels(target, how(X[right], rng)) == y[right] if right.any() else 0
    return same / copies


def _noises(X: Array) -> list[Augment]:
    if np.isin(X, (0, 1)).all():
        return [_flipping(p) for p in FLIPS]
    spread = X.std(0)
    return [_adding(strength * spread) for strength in STRENGTHS]


def _flipping(p: float) -> Augment:
    return lambda rows, rng: np.where(rng.random(rows.shape) < p, 1 - rows, rows)


def _adding(scale: Array) -> Augment:
    return lambda rows, rng: (rows + scale * rng.standard_normal(rows.shape)).astype(np.float32)


def boundary(
    target: Any, X: Array, y: Array, *, directions: int = 16, steps: int = 8, reach: float = 4.0, seed: int = 0
) -> NDArray[np.float64]:
    """How far a row's label holds: along random directions, by bisection, their harmonic mean.

    Features are measured in their own deviations. `reach` times the root of the number of features is the furthest that is
    tried; a label that still holds there counts as holding that far. Each row costs `directions` times (`steps` + 1)
    questions. A row whose own label is wrong scores minus the distance at which the right one is first found, 0 being least
    bad.

    >>> X = np.array([[1.0, 0.0], [3.0, 0.0]])
    >>> far = boundary(lambda rows: np.stack([rows[:, 0], -rows[:, 0]], 1), X, np.zeros(2, int), steps=12)
    >>> bool(0 < far[0] < far[1])
    True
    """
    check.whole("directions", directions)
    check.whole("steps", steps)
    check.positive("reach", reach)
    X, rng = np.asarray(X, np.float32), np.random.default_rng(seed)
    spread = (X.std(0) + 1e-6).astype(np.float32)
    far = reach * float(np.sqrt(X[0].size))
    sign = np.where(predict.labels(target, X) == y, 1.0, -1.0)
    distances = np.zeros((len(X), directions))
    each = max(1, AT_ONCE // max(X[0].size * directions, 1))
    for start in range(0, len(X), each):
        part = slice(start, start + each)
        distances[part] = _bisected(target, X[part], y[part], sign[part] > 0, spread, directions, steps, far, rng)
    return sign / (1.0 / distances).mean(1)  # harmonic: directions that lead away from every boundary weigh nothing


def _bisected(
    target: Any, X: Array, y: Array, right: Array, spread: Array, directions: int, steps: int, far: float,
    rng: np.random.Generator,
) -> NDArray[np.float64]:  # fmt: skip
    """For each row and direction, how far out the target still answers as it does for the row itself."""
    along = rng.standard_normal((len(X), directions, *X.shape[1:]), dtype=np.float32)
    flat = along.reshape(len(X), directions, -1)
    flat /= np.linalg.norm(flat, axis=2, keepdims=True)

    def same(distance: Array) -> NDArray[np.bool_]:
        size = distance.reshape(distance.shape + (1,) * (X.ndim - 1)).astype(np.float32)
        rows = (X[:, None] + size * along * spread).reshape(-1, *X.shape[1:])
        answers = predict.labels(target, rows).reshape(len(X), directions)
        return (answers == y[:, None]) == right[:, None]

    low, high = np.zeros((len(X), directions)), np.full((len(X), directions), far)
    low = np.where(same(high), high, low)
    for _ in range(steps):
        middle = (low + high) / 2
        held = same(middle)
        low, high = np.where(held, middle, low), np.where(held, high, middle)
    return (low + high) / 2
