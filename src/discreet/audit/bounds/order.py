"""Guesses, surest first: the order every one-run bound walks in."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_SHUFFLE = 20230515  # any number: it must only know nothing of the coins


def shuffled(count: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """A fixed shuffle of positions and fixed fair coins, for ties: both know nothing of who was inside."""
    generator = np.random.default_rng(_SHUFFLE)
    return generator.permutation(count), generator.random(count) < 0.5


def surest_first(score: NDArray[np.float64], inside: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Was each guess right, from the surest on: inside where the score is above the median, outside where it is below.

    Order and guesses are a function of the scores alone, which is what the bounds need of them.

    >>> surest_first(np.array([9.0, 1.0, 2.0, -5.0]), np.array([True, True, False, False])).tolist()[:2]
    [True, True]
    """
    shuffle, coins = shuffled(len(score))
    gap = score[shuffle] - np.median(score)
    guess = np.where(gap == 0, coins, gap > 0)
    right: NDArray[np.bool_] = (guess == inside[shuffle])[np.argsort(-np.abs(gap), kind="stable")]
    return right


def one_target_each(run: NDArray[np.int64]) -> bool:
    """Every run had one target, so the targets are independent of each other."""
    return len(np.unique(run)) == len(run)
