"""From a test of each epsilon to a lower bound on it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

STEP = 1.0 / 256.0
HIGHEST = 40.0  # e^40 guesses would be needed to show more
_BLOCK = 128


def climb(refuted: Callable[[NDArray[np.float64]], NDArray[np.bool_]]) -> float:
    """The last of 0, 1/256, 2/256, … that is refuted before the first that is not; 0 when 0 itself is not.

    Sound for any family of tests: this exceeds the true epsilon only when the first grid point at or above the truth is
    refuted, which is one test of a true statement.

    >>> climb(lambda epsilon: epsilon < 0.5)
    0.49609375
    """
    start = 0
    while start * STEP < HIGHEST:
        grid: NDArray[np.float64] = np.arange(start, start + _BLOCK, dtype=np.float64) * STEP
        kept = np.flatnonzero(~refuted(grid))
        if len(kept):
            return float(STEP * max(start + int(kept[0]) - 1, 0))
        start += _BLOCK
    return HIGHEST


def bisect(refuted: Callable[[float], bool]) -> float:
    """As `climb`, for tests known to be nested: whoever refutes an epsilon refutes every smaller one.

    >>> bisect(lambda epsilon: epsilon < 0.5)
    0.49609375
    """
    low, high = 0, int(HIGHEST / STEP)  # low counts as refuted: the answer is never below 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if refuted(middle * STEP) else (low, middle)
    return low * STEP
