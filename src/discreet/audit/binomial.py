"""Exact intervals for a rate: Clopper and Pearson, Biometrika 26 (1934)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core import check


def rate_floor(hits: ArrayLike, trials: ArrayLike, alpha: float) -> NDArray[np.float64]:
    """The rate is below this with probability at most `alpha`, whatever it is.

    >>> float(rate_floor(100, 100, 0.05)) > 0.97
    True
    """
    from scipy.special import betaincinv

    k, n = _counts(hits, trials)
    check.open_fraction("alpha", alpha)
    least = betaincinv(np.maximum(k, 1), n - np.maximum(k, 1) + 1, alpha)
    return np.where(k > 0, least, 0.0)


def rate_ceiling(hits: ArrayLike, trials: ArrayLike, alpha: float) -> NDArray[np.float64]:
    """The rate is above this with probability at most `alpha`, whatever it is.

    >>> float(rate_ceiling(0, 100, 0.05)) < 0.03
    True
    """
    k, n = _counts(hits, trials)
    return 1.0 - rate_floor(n - k, n, alpha)


def _counts(hits: ArrayLike, trials: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    k, n = np.broadcast_arrays(np.asarray(hits, dtype=np.float64), np.asarray(trials, dtype=np.float64))
    # An empty sample says nothing: one trial that may have gone either way bounds nothing.
    return k, np.maximum(n, np.maximum(k, 1))
