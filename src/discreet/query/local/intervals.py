"""What the collector learns: estimates with intervals that hold for any truth and any number of people."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import check
from discreet.errors import InvalidValue

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Frequencies:
    """The share of each category among the people who reported.

    `estimate` is unbiased and may fall outside [0, 1]; `low` and `high` are cut to it. If `together`, all intervals hold at
    once with probability at least `confidence`; else each one does by itself.
    """

    labels: Sequence[Any]
    estimate: Floats
    low: Floats
    high: Floats
    people: int
    confidence: float
    together: bool

    def __iter__(self) -> Iterator[tuple[Any, float, float, float]]:
        return iter(zip(self.labels, self.estimate.tolist(), self.low.tolist(), self.high.tolist()))

    def __len__(self) -> int:
        return len(self.estimate)


@dataclass(frozen=True, slots=True)
class Average:
    """The mean of the people's numbers: unbiased up to rounding to the grid, which the interval includes."""

    estimate: float
    low: float
    high: float
    people: int
    confidence: float


def beta(confidence: float) -> float:
    """What the confidence leaves. Below one half the intervals have no theorem."""
    confidence = check.confidence(confidence)
    if confidence < 0.5:
        raise InvalidValue(f"confidence must be at least 0.5; got {confidence:g}.")
    return 1 - confidence


def rate_interval(hits: Any, trials: int, alpha: float) -> tuple[Floats, Floats]:
    """An interval for the average chance of success in independent trials, whose chances may differ.

    Clopper & Pearson's. It was made for equal chances; Hoeffding 1956 (Theorem 4) shows that of all trials with the same
    average those with equal chances spread most, beyond one success of the mean. The one place where that falls short, a
    single success or failure, is covered by the union bound.

    >>> low, high = rate_interval(30, 100, 0.05)
    >>> round(float(low), 3), round(float(high), 3)
    (0.212, 0.4)
    """
    from scipy.special import betaincinv

    k = np.asarray(hits, dtype=np.float64)
    low = np.where(k > 0, betaincinv(np.maximum(k, 1), trials - np.maximum(k, 1) + 1, alpha / 2), 0.0)
    missed = trials - k
    high = 1 - np.where(missed > 0, betaincinv(np.maximum(missed, 1), trials - np.maximum(missed, 1) + 1, alpha / 2), 0.0)
    once = alpha / (2 * trials)
    return np.where(k == 1, np.minimum(low, once), low), np.where(missed == 1, np.maximum(high, 1 - once), high)


def frequencies(
    labels: Sequence[Any], counts: NDArray[np.int64], people: int, p: float, q: float, confidence: float, together: bool
) -> Frequencies:
    """Shares from how many reports support each category: p of those it is true for, q of the others do (Wang et al. 2017)."""
    alpha = beta(confidence) / (len(counts) if together else 1)
    low, high = rate_interval(counts, people, alpha)

    def share(rate: Floats) -> Floats:
        return (rate - q) / (p - q)

    return Frequencies(
        labels=labels, estimate=share(counts / people), low=np.clip(share(low), 0, 1), high=np.clip(share(high), 0, 1),
        people=people, confidence=confidence, together=together,
    )  # fmt: skip


def bernstein(alpha: float, people: int, variance: float, width: float) -> float:
    """How far the mean of independent numbers may lie from its expectation, but for probability alpha.

    Bernstein's inequality with the largest variance one number can have, or Hoeffding's with its range, whichever is less:
    both are known before any report is seen.
    """
    log = math.log(2 / alpha)
    linear = width * log / (3 * people)
    return min(linear + math.sqrt(linear**2 + 2 * variance * log / people), width * math.sqrt(log / (2 * people)))
