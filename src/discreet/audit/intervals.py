"""What may be said of a rate that was only sampled: intervals that hold for every attack, and how many targets would decide.

Every interval that the project shows, in reports, plots, cards, tables and gates, is one of these.

The true-positive rate at a false-positive rate is that of the most lenient threshold whose false-positive rate, over all
non-members there could be, is within the level. That threshold is not known: it is itself bounded from the non-members at
hand: how many of them lie above it has a binomial distribution. The members above it are then counted, and bounded by Clopper
and Pearson (1934). Half of the error on each side goes to each of the two. Where no threshold is surely strict enough, the
highest non-member is the threshold of the lower end, and a coin makes up for what its false-positive rate may be too large.

The area under the curve is a mean over pairs. Hoeffding (1963, section 5) bounds it as if the pairs were disjoint: by the
Kullback-Leibler form of his inequality with as many trials as there are members or non-members, whichever are fewer.
docs/theory/gate.md has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from discreet.audit.bounds.order import FORWARD, reversed_scores
from discreet.core import Evidence

MOST = 10**10  # targets; a question that needs more is not answered by sampling


@dataclass(frozen=True, slots=True)
class Interval:
    """A measured value and, at the confidence asked, where the true one lies."""

    value: float
    low: float
    high: float


def tpr(evidence: Evidence, level: float, confidence: float) -> Interval:
    """The true-positive rate at a false-positive rate of at most `level`, of the scores or of the reversed ones.

    Who attacks may turn scores round: `either_way` says which of the two is reported, and how the error is shared.
    """
    is_reversed, low, high = either_way(*_sides(evidence), level, confidence)
    return Interval((reversed_scores(evidence) if is_reversed else evidence).tpr(level), low, high)


def either_way(
    members: NDArray[np.float64], others: NDArray[np.float64], level: float, confidence: float
) -> tuple[bool, float, float]:
    """Whether the reversed scores show more, and both ends of the interval, from sorted scores of members and non-members.

    The reversed scores have a hundredth of the error of the lower end, since either may be above a limit by chance; they are
    reported where their lower end is the larger one. The upper end is that of both.
    """
    turned, error = (-members[::-1], -others[::-1]), 1.0 - confidence
    low = tpr_ends(members, others, level, 1.0 - FORWARD * error)[0]
    turned_low = tpr_ends(*turned, level, 1.0 - (1.0 - FORWARD) * error)[0]
    high = max(tpr_ends(*way, level, confidence)[1] for way in ((members, others), turned))
    return turned_low > low, max(low, turned_low), high


def tpr_ends(members: NDArray[np.float64], others: NDArray[np.float64], level: float, confidence: float) -> tuple[float, float]:
    """Both ends of its interval, from the scores of members and of non-members, each from the lowest on."""
    return _bounds(len(members), len(others), level, 1.0 - confidence, lambda rank: _above(members, others, rank))


def tpr_needed(evidence: Evidence, level: float, limit: float, confidence: float) -> tuple[int, int] | None:
    """About how many members and non-members would decide, in the proportion at hand, if the measured curve is the true one."""
    members, others = _sides(max(evidence, reversed_scores(evidence), key=lambda way: way.tpr(level)))
    if not len(members) or not len(others):
        return None
    points = _curve(members, others)

    def decides(factor: float) -> bool:
        ones, zeros = math.ceil(len(members) * factor), math.ceil(len(others) * factor)

        def expected(rank: int) -> int:
            return round(ones * float(np.interp(rank / zeros, *points))) if rank <= zeros else ones

        low, high = _bounds(ones, zeros, level, 1.0 - confidence, expected)
        return high < limit or low > limit

    factor = _least(decides, MOST / len(evidence))
    return None if factor is None else (math.ceil(len(members) * factor), math.ceil(len(others) * factor))


def auc(evidence: Evidence, confidence: float) -> Interval:
    """The area under the curve."""
    area, inside = evidence.auc(), int(evidence.inside.sum())
    trials, room = min(inside, len(evidence) - inside), math.log(2.0 / (1.0 - confidence))
    return Interval(area, *_within(area, room / trials)) if trials else Interval(area, 0.0, 1.0)


def auc_either_way(evidence: Evidence, confidence: float) -> Interval:
    """The area under the curve, or under that of the reversed scores where it is larger: who attacks may turn them round."""
    area = auc(evidence, confidence)
    value = max(area.value, 1.0 - area.value)
    return Interval(value, max(area.low, 1.0 - area.high, 0.5), max(area.high, 1.0 - area.low))


def auc_needed(evidence: Evidence, limit: float, confidence: float) -> int | None:
    """How many members, and as many non-members, would decide if the measured area is the true one."""
    area = evidence.auc()
    apart = _divergence(max(area, 1.0 - area), limit)
    room = math.log(2.0 / (1.0 - confidence))
    return None if apart * MOST <= room else math.floor(room / apart) + 1


def reach(evidence: Evidence, delta: float, confidence: float) -> float:
    """The most that as many targets, in runs like these, can show of epsilon."""
    from discreet.audit.bounds.order import one_target_each

    return _reach(len(evidence), delta, confidence, one_target_each(evidence.run))


def floor_needed(evidence: Evidence, delta: float, limit: float, confidence: float) -> int | None:
    """About how many targets, all guessed right, would show more than `limit`: with fewer, silence means nothing."""
    from discreet.audit.bounds.order import one_target_each

    return _floor_needed(delta, limit, confidence, one_target_each(evidence.run))


@cache
def _floor_needed(delta: float, limit: float, confidence: float, apart: bool) -> int | None:
    count_needed = _least(lambda count: _reach(math.ceil(count), delta, confidence, apart) > limit, float(1 << 22), within=0.05)
    return None if count_needed is None else math.ceil(count_needed)


@cache
def _reach(count: int, delta: float, confidence: float, apart: bool) -> float:
    from discreet.audit.bounds.betting import best_possible

    return best_possible(count, delta, FORWARD * (1.0 - confidence), independent=apart)


def _sides(evidence: Evidence) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The scores of members and of non-members, each from the lowest on."""
    return np.sort(evidence.score[evidence.inside]), np.sort(evidence.score[~evidence.inside])


def _bounds(ones: int, zeros: int, level: float, alpha: float, above: Callable[[int], int]) -> tuple[float, float]:
    """Both ends, where `above(rank)` members score above the non-member of that rank (1 is the highest)."""
    from discreet.audit.binomial import rate_ceiling, rate_floor

    if not ones:
        return 0.0, 1.0
    if not zeros:
        return 0.0, 1.0
    share = alpha / 4.0
    strict, lenient = strict_rank(zeros, level, share), lenient_rank(zeros, level, share)
    kept = 1.0 if strict else min(1.0, level / float(rate_ceiling(0, zeros, share)))
    low = kept * float(rate_floor(above(max(strict, 1)), ones, share))
    return low, float(rate_ceiling(above(lenient), ones, share)) if lenient <= zeros else 1.0


def lenient_rank(zeros: int, level: float, alpha: float) -> int:
    """The least rank such that the true threshold is at or below this non-member with probability at most `alpha`."""
    from scipy.stats import binom

    rank = int(binom.isf(alpha, zeros, level)) + 1
    return rank if binom.sf(rank - 1, zeros, level) <= alpha else rank + 1


def strict_rank(zeros: int, level: float, alpha: float) -> int:
    """The largest rank such that the rate of non-members above this one exceeds `level` with probability at most `alpha`."""
    from scipy.stats import binom

    rank = int(binom.ppf(alpha, zeros, level)) + 1
    while rank and binom.cdf(rank - 1, zeros, level) > alpha:
        rank -= 1
    return rank


def _above(members: NDArray[np.float64], others: NDArray[np.float64], rank: int) -> int:
    """How many members score above the non-member of this rank; all of them, where there is none."""
    if rank > len(others):
        return len(members)
    return len(members) - int(np.searchsorted(members, others[-rank], side="right"))


def _curve(members: NDArray[np.float64], others: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The share of members above each non-member, against that non-member's share of the way; a straight line between.

    Where it is below the diagonal, which guessing reaches, that is taken: few targets often show less by chance.
    """
    level = np.append(0.0, np.arange(1, len(others) + 1) / len(others))
    above = 1.0 - np.searchsorted(members, others[::-1], side="right") / len(members)
    return level, np.maximum(np.append(above[0], above), level)


def _within(mean: float, room: float) -> tuple[float, float]:
    """All rates whose divergence from the measured mean is at most `room`, rounded outwards."""
    ends = []
    for far in (0.0, 1.0):
        near, beyond = mean, far
        for _ in range(60):
            middle = (near + beyond) / 2.0
            near, beyond = (middle, beyond) if _divergence(mean, middle) <= room else (near, middle)
        ends.append(beyond)
    return ends[0], ends[1]


def _divergence(mean: float, rate: float) -> float:
    """Of a coin that lands with probability `mean` from one with probability `rate`."""
    total = 0.0
    for p, q in ((mean, rate), (1.0 - mean, 1.0 - rate)):
        if p > 0.0:
            if q <= 0.0:
                return math.inf
            total += p * math.log(p / q)
    return max(total, 0.0)


def _least(enough: Callable[[float], bool], most: float, within: float = 0.01) -> float | None:
    """About the least number from 1 on from which the question is decided, or None up to `most`."""
    high = 1.0
    while not enough(high):
        high *= 2.0
        if high > most:
            return None
    low = high / 2.0
    while high > 1.0 and high - low > within * high:
        middle = (low + high) / 2.0
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
