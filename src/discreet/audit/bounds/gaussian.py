"""For a mechanism known to be Gaussian: rates on one threshold give mu, and mu gives epsilon at any delta.

A mechanism is mu-GDP when telling the worlds apart is no easier than telling N(0, 1) from N(mu, 1) (Dong, Roth and Su
2019). One threshold then bounds mu from below: mu >= z(1 - FPR) - z(FNR), with exact intervals on both rates (Nasr,
Hayes, Steinke, Balle, Tramèr, Jagielski, Carlini and Terzis 2023). The step from mu to epsilon holds only where the
trade-off is Gaussian, as for one or many Gaussian releases without sampling; elsewhere this bound can claim too much.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from discreet.audit.binomial import rate_ceiling
from discreet.audit.bounds.clopper_pearson import on_the_other_half
from discreet.core import check


def gaussian(
    score: NDArray[np.float64], inside: NDArray[np.bool_], run: NDArray[np.int64], delta: float, alpha: float
) -> float:
    """A lower bound on epsilon at `delta`, provided the mechanism's trade-off is Gaussian.

    >>> inside = np.arange(2000) % 2 == 0
    >>> gaussian(inside.astype(float), inside, np.arange(2000), 1e-5, 0.05) > 10
    True
    """
    check.positive("delta", delta)
    return epsilon_of(mu_floor(score, inside, run, alpha), delta)


def mu_floor(score: NDArray[np.float64], inside: NDArray[np.bool_], run: NDArray[np.int64], alpha: float) -> float:
    """A lower bound on mu: no mechanism that is less than mu-GDP gives such rates, but with probability `alpha`."""
    from scipy.special import ndtri

    def value(believed: NDArray[np.float64], mistaken: NDArray[np.float64], ones: int, others: int, level: float) -> (
        NDArray[np.float64]
    ):  # fmt: skip
        false_alarms = rate_ceiling(mistaken, others, level / 2.0)
        misses = rate_ceiling(ones - believed, ones, level / 2.0)
        mu: NDArray[np.float64] = np.clip(ndtri(1.0 - false_alarms) - ndtri(misses), 0.0, None)
        return mu

    return max(0.0, on_the_other_half(score, inside, run, value, alpha))


def delta_of(mu: float, epsilon: float) -> float:
    """The least delta of a mu-GDP mechanism at `epsilon` (Balle and Wang 2018, theorem 8).

    >>> round(delta_of(1.0, 1.0), 6)
    0.126937
    """
    from scipy.special import log_ndtr, ndtr

    if mu <= 0:
        return 0.0
    return float(ndtr(mu / 2.0 - epsilon / mu) - math.exp(epsilon + float(log_ndtr(-mu / 2.0 - epsilon / mu))))


def epsilon_of(mu: float, delta: float) -> float:
    """The epsilon of a mu-GDP mechanism at `delta`, rounded down."""
    if mu <= 0 or delta_of(mu, 0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while delta_of(mu, high) > delta:
        low, high = high, 2.0 * high
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (middle, high) if delta_of(mu, middle) > delta else (low, middle)
    return low


def mu_of(epsilon: float, delta: float) -> float:
    """The mu at which a Gaussian mechanism has exactly `epsilon` at `delta`.

    >>> round(epsilon_of(mu_of(2.0, 1e-5), 1e-5), 6)
    2.0
    """
    low, high = 0.0, 1.0
    while delta_of(high, epsilon) < delta:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if delta_of(middle, epsilon) < delta else (low, middle)
    return high
