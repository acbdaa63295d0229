"""One run with many canaries: how many of a fixed number of guesses were right.

Steinke, Nasr and Jagielski (2023), theorem 5.2: if each of m canaries was inside by its own fair coin, an
(epsilon, delta)-DP mechanism lets r guesses be right at least v times with probability at most
beta + 2 m delta max_i Pr[v - i <= W < v] / i, where W ~ Binomial(r, e^epsilon / (1 + e^epsilon)) and beta = Pr[W >= v].
The number of guesses is fixed beforehand: a few shares of m, with the error split evenly over them (Bonferroni).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from discreet.audit.binomial import rate_floor
from discreet.audit.bounds.order import surest_first
from discreet.audit.bounds.search import bisect, climb

SHARES = (1 / 32, 1 / 8, 1 / 2, 1)


def one_run(score: NDArray[np.float64], inside: NDArray[np.bool_], run: NDArray[np.int64], delta: float, alpha: float) -> float:
    """A lower bound on epsilon at `delta` from guesses on canaries, in one run or in several.

    >>> inside = np.arange(2000) % 2 == 0
    >>> one_run(inside.astype(float), inside, np.zeros(2000, int), 0.0, 0.05) > 5
    True
    """
    right = surest_first(score, inside)
    return max(from_counts(len(right), r, v, delta, alpha / len(SHARES)) for r, v in guesses(right))


def guesses(right: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """For each share: how many guesses that is, and how many were right."""
    sizes = [math.ceil(share * len(right)) for share in SHARES]
    return [(size, int(right[:size].sum())) for size in sizes]


@lru_cache(maxsize=4096)
def from_counts(canaries: int, made: int, right: int, delta: float, alpha: float) -> float:
    """The bound when `right` of `made` guesses were right."""
    if not right:
        return 0.0
    rate = float(rate_floor(right, made, alpha))
    plain = math.log(rate / (1.0 - rate)) if rate > 0.5 else 0.0
    if delta == 0 or plain == 0:
        return plain

    def refuted(epsilon: float) -> bool:
        return p_value(canaries, made, right, epsilon, delta) <= alpha

    if 2.0 * canaries * delta <= 1.0:  # then the p-value grows with epsilon: docs/theory/audit-one-run.md
        return bisect(refuted)
    return climb(lambda epsilon: np.array([refuted(float(e)) for e in epsilon]))


def p_value(canaries: int, made: int, right: int, epsilon: float, delta: float) -> float:
    """The probability, at most, of so many right guesses under (epsilon, delta)-DP."""
    from scipy.stats import binom

    q = 1.0 / (1.0 + math.exp(-epsilon))
    surely = float(binom.sf(right - 1, made, q))
    if delta == 0:
        return surely
    near = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), made, q)) / np.arange(1, right + 1)
    return min(1.0, surely + 2.0 * canaries * delta * float(near.max()))
