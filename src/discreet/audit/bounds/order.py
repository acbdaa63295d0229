"""Guesses, surest first: the order every one-run bound walks in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from discreet.core import Evidence

FORWARD = 0.99  # of the error is for scores as they are, the rest for the reversed ones: who attacks may turn them round
_SHUFFLE = 20230515  # any number: it must only know nothing of the coins


def shuffled(count: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """A fixed shuffle of positions and fixed fair coins, for ties: both know nothing of who was inside."""
    generator = np.random.default_rng(_SHUFFLE)
    return generator.permutation(count), generator.random(count) < 0.5


def surest_first(score: NDArray[np.float64], inside: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Was each guess right, from the surest on: inside where the score is above the centre, outside where it is below.

    Order and guesses are a function of the scores alone, which is what the bounds need of them.

    >>> surest_first(np.array([9.0, 1.0, 2.0, -5.0]), np.array([True, True, False, False])).tolist()[:2]
    [True, True]
    """
    shuffle, coins = shuffled(len(score))
    gap = score[shuffle] - centre(score)
    guess = np.where(gap == 0, coins, gap > 0)
    right: NDArray[np.bool_] = (guess == inside[shuffle])[np.argsort(-np.abs(gap), kind="stable")]
    return right


def centre(score: NDArray[np.float64]) -> float:
    """Where guesses turn from outside to inside: any function of the scores would be valid, this one guesses well.

    Scores that split the targets most evenly are the neighbours of the centre (so it is the median, kept off ties), and
    it lies nearer to the side with more targets, whose guesses are less sure. A few distinct scores of both signs and
    none zero are taken for log-likelihood ratios, which turn at 0.

    >>> centre(np.array([0.0, 0.0, 1.0, 1.0])), round(centre(np.array([0.0] * 99 + [10.0])), 3)
    (0.5, 0.1)
    """
    values, counts = np.unique(score, return_counts=True)
    if len(values) == 1:
        return float(values[0])
    if values[0] < 0 < values[-1] and 8 * len(values) <= len(score) and 0.0 not in values:
        return 0.0
    below = np.cumsum(counts)[:-1]
    cut = int(np.argmin(np.abs(2 * below - len(score))))
    share = float(below[cut] / len(score))
    return float(values[cut] * share + values[cut + 1] * (1.0 - share))


def reversed_scores(evidence: Evidence) -> Evidence:
    """The same attack, whose scores are lower for members: what it tells is told."""
    return replace(evidence, score=-evidence.score)


def one_target_each(run: NDArray[np.int64]) -> bool:
    """Every run had one target, so the targets are independent of each other."""
    return len(np.unique(run)) == len(run)


def counted(evidence: Evidence) -> NDArray[np.int64]:
    """The targets that a lower bound is taken from: all; without randomised inclusion, as many inside as outside.

    Which targets of the larger side are kept is drawn without looking at their scores.
    """
    sides = [np.flatnonzero(evidence.inside == side) for side in (True, False)]
    least = min(map(len, sides))
    if evidence.randomised or not least or len(sides[0]) == len(sides[1]):
        return np.arange(len(evidence))
    draw = np.random.default_rng(least)
    return np.sort(np.concatenate([draw.permutation(side)[:least] for side in sides])).astype(np.int64)
