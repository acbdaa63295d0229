"""The statistics of the gate, as laws.

With the true rate exactly at the limit, "holds" is said with probability at most 1 - confidence, and so is "failed": whatever
the attack, computed exactly from binomial laws. Nothing here is random but the seeded scores of one comparison.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from discreet.audit import intervals as measure
from discreet.audit.binomial import rate_ceiling, rate_floor
from discreet.audit.intervals import lenient_rank, strict_rank
from discreet.core import Evidence, Game, record

GAME = Game(record(), {"scores"})


def evidence(members: object, others: object, attack: str = "lira", design: str = "post_hoc") -> Evidence:
    score = np.concatenate([np.asarray(members, float), np.asarray(others, float)])
    inside = np.arange(len(score)) < len(np.asarray(members))
    run = np.zeros(len(score), int)
    return Evidence(game=GAME, attack=attack, score=score, inside=inside, run=run, design=design)


counts = st.integers(1, 3000)
rates = st.floats(1e-4, 0.5)


@given(counts, counts, rates, st.floats(1e-3, 0.9), st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_holds_at_the_limit_is_said_with_at_most_the_error_allowed(
    ones: int, zeros: int, level: float, limit: float, confidence: float
) -> None:
    """Over every attack: a threshold that is too strict may hide all hits; one that is not has at least the limit's rate."""
    share = (1 - confidence) / 4
    rank = lenient_rank(zeros, level, share)
    if rank > zeros:
        return  # then the upper end is 1, and no limit holds
    too_strict = binom.sf(rank - 1, zeros, level)
    hits = np.arange(ones + 1)
    fits = hits[rate_ceiling(hits, ones, share) < limit]
    below = binom.cdf(fits.max(), ones, limit) if len(fits) else 0.0
    assert too_strict + (1 - too_strict) * below <= (1 - confidence) / 2 + 1e-12


@given(counts, counts, rates, st.floats(1e-3, 0.9), st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_failed_at_the_limit_is_said_with_at_most_the_error_allowed(
    ones: int, zeros: int, level: float, limit: float, confidence: float
) -> None:
    """Over every attack whose users reach the limit and no more, coins allowed: the lower end is above it rarely enough."""
    share = (1 - confidence) / 4
    rank = strict_rank(zeros, level, share)
    most = float(rate_ceiling(0, zeros, share))
    kept = 1.0 if rank else min(1.0, level / most)
    too_lenient = binom.cdf(rank - 1, zeros, level) if rank else (1 - most) ** zeros
    hits = np.arange(ones + 1)
    fits = hits[kept * rate_floor(hits, ones, share) > limit]
    above = binom.sf(fits.min() - 1, ones, min(limit / kept, 1.0)) if len(fits) else 0.0
    assert too_lenient + (1 - too_lenient) * above <= (1 - confidence) / 2 + 1e-9


def test_taking_the_threshold_for_known_would_break_the_law() -> None:
    """The broken twin: the interval of the threshold at hand says "below" of an attack at the limit every other time."""
    zeros, ones, level, limit = 1000, 1000, 0.01, 0.3
    rank = int(zeros * level) + 1  # as many false positives as the level allows of those at hand
    too_strict = binom.sf(rank - 1, zeros, level)
    hits = np.arange(ones + 1)
    below = binom.cdf(hits[rate_ceiling(hits, ones, 0.025) < limit].max(), ones, limit)
    assert too_strict + (1 - too_strict) * below > 0.4


@given(st.integers(0, 3000), rates, st.floats(1e-6, 0.4))
def test_ranks_are_the_first_and_the_last_that_will_do(zeros: int, level: float, alpha: float) -> None:
    lenient, strict = lenient_rank(zeros, level, alpha), strict_rank(zeros, level, alpha)
    assert binom.sf(lenient - 1, zeros, level) <= alpha
    assert lenient == 1 or binom.sf(lenient - 2, zeros, level) > alpha
    assert strict == 0 or binom.cdf(strict - 1, zeros, level) <= alpha
    assert binom.cdf(strict, zeros, level) > alpha
    assert strict <= zeros * level + 1 <= lenient + 1


@pytest.mark.parametrize(("level", "limit", "confidence"), [(0.2, 0.5, 0.9), (0.1, 0.3, 0.5), (0.4, 0.8, 0.95)])
def test_the_law_holds_for_scores_with_ties(level: float, limit: float, confidence: float) -> None:
    """Scores are 0 or 1; every outcome of 15 members and 20 non-members is asked, and weighed with its exact probability."""
    ones, zeros, holds, fails = 15, 20, 0.0, 0.0
    for a in range(zeros + 1):
        for b in range(ones + 1):
            found = measure.tpr(evidence(np.arange(ones) < b, np.arange(zeros) < a), level, confidence)
            weight = binom.pmf(a, zeros, level) * binom.pmf(b, ones, limit)
            holds += weight * (found.high < limit)
            fails += weight * (found.low > limit)
    assert holds <= 1 - confidence
    assert fails <= 1 - confidence


@pytest.mark.parametrize(("p", "q", "confidence"), [(0.2, 0.5, 0.9), (0.1, 0.3, 0.5), (0.5, 0.5, 0.9), (0.9, 0.1, 0.9)])
def test_the_law_of_the_area(p: float, q: float, confidence: float) -> None:
    """Scores are 0 or 1, so the area is known; members may score lower, and then the reversed scores count."""
    ones, zeros, below, above = 12, 15, 0.0, 0.0
    area = 0.5 + (q - p) / 2
    true = max(area, 1 - area)
    for a in range(zeros + 1):
        for b in range(ones + 1):
            found = measure.auc_either_way(evidence(np.arange(ones) < b, np.arange(zeros) < a), confidence)
            weight = binom.pmf(a, zeros, p) * binom.pmf(b, ones, q)
            below += weight * (found.high < true - 1e-9)
            above += weight * (found.low > true + 1e-9)
    assert below <= 1 - confidence
    assert above <= 1 - confidence


def slow_tpr(members: list[float], others: list[float], level: float, confidence: float) -> tuple[float, float]:
    """The same interval from its definition: sums over binomial terms, every threshold tried."""
    share, zeros = (1 - confidence) / 4, len(others)
    terms = [math.comb(zeros, k) * level**k * (1 - level) ** (zeros - k) for k in range(zeros + 1)]
    ranked = sorted(others, reverse=True)
    lenient = min(k for k in range(1, zeros + 2) if sum(terms[k:]) <= share)
    strict = max(k for k in range(zeros + 1) if k == 0 or sum(terms[:k]) <= share)
    high = 1.0
    if lenient <= zeros:
        high = float(rate_ceiling(sum(m > ranked[lenient - 1] for m in members), len(members), share))
    coin = 1.0 if strict else min(1.0, level / (1 - share ** (1 / zeros)))
    low = coin * float(rate_floor(sum(m > ranked[max(strict, 1) - 1] for m in members), len(members), share))
    return low, high


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=40), st.lists(st.integers(0, 20), min_size=1, max_size=40),
    st.floats(0.01, 0.9), st.floats(0.5, 0.99),
)  # fmt: skip
def test_the_fast_interval_is_the_slow_one(members: list[int], others: list[int], level: float, confidence: float) -> None:
    """Either way round: both have to be below a limit, and one in a hundred errors of the lower end is the reversed scores'."""
    found = measure.tpr(evidence(members, others), level, confidence)
    ways, error = ((members, others), ([-each for each in members], [-each for each in others])), 1 - confidence
    low = max(slow_tpr(*way, level, 1 - share * error)[0] for way, share in zip(ways, (0.99, 0.01)))
    high = max(slow_tpr(*way, level, confidence)[1] for way in ways)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.low <= found.value <= found.high


def test_a_large_leak_fails_with_few_non_members() -> None:
    """Half of the members score above all of 300 non-members: whatever the threshold, one in a thousand is far exceeded."""
    found = measure.tpr(evidence(np.arange(300) < 150, np.zeros(300)), 0.001, 0.95)
    assert found.low > 0.02
    assert measure.tpr(evidence(np.arange(300) < 150, np.zeros(300)), 0.01, 0.95).low > 0.2


def bent(ones: int, zeros: int, power: float) -> Evidence:
    """Scores whose curve is x ** power at every false-positive rate x, as closely as so many targets allow."""
    ranks = (np.arange(ones) + 0.5) / ones
    return evidence(1 - ranks ** (1 / power), 1 - (np.arange(zeros) + 0.5) / zeros)


def more(seen: Evidence, ones: int, zeros: int) -> Evidence:
    """As many targets with the very curve that was measured: members spread evenly along it."""
    x, y = measure._curve(*measure._sides(seen))
    shares = (np.arange(ones) + 0.5) / ones
    level = np.interp(shares, y, x, left=0.0)
    return evidence(1 - level, 1 - (np.arange(zeros) + 1) / zeros)


@pytest.mark.parametrize(("power", "limit"), [(1.0, 0.02), (0.9, 0.02), (0.5, 0.2), (0.5, 0.05), (0.3, 0.05), (0.5, 0.105)])
def test_as_many_targets_as_are_said_to_decide_do(power: float, limit: float) -> None:
    few = bent(120, 150, power)
    assert (lambda found: found.low <= limit <= found.high)(measure.tpr(few, 0.01, 0.95))
    needed = measure.tpr_needed(few, 0.01, limit, 0.95)
    assert needed is not None
    ones, zeros = needed
    assert ones / zeros == pytest.approx(120 / 150, rel=0.02)
    enough = measure.tpr(more(few, int(1.1 * ones), int(1.1 * zeros)), 0.01, 0.95)
    assert not enough.low <= limit <= enough.high
    less = measure.tpr(more(few, int(0.8 * ones), int(0.8 * zeros)), 0.01, 0.95)
    assert less.low <= limit <= less.high


def test_nothing_decides_at_the_limit_itself() -> None:
    even = evidence(np.arange(200) < 100, np.zeros(200))  # one half of the members above every non-member
    assert measure.tpr_needed(even, 0.01, 0.5, 0.95) is None
    assert measure.auc_needed(evidence([1, 1, 0, 0], [1, 0, 0, 0]), 0.625, 0.95) is None


@pytest.mark.parametrize(("area", "limit"), [(0.5, 0.6), (0.55, 0.6), (0.7, 0.6), (0.3, 0.6), (1.0, 0.9), (0.0, 0.9)])
def test_the_area_is_decided_by_as_many_as_are_said(area: float, limit: float) -> None:
    def made(count: int) -> Evidence:
        return evidence((np.arange(count) < area * count).astype(float) - 0.5, np.zeros(count))

    needed = measure.auc_needed(made(20), limit, 0.95)
    assert needed is not None
    found, less = (
        measure.auc_either_way(made(needed * 20), 0.95),
        measure.auc_either_way(made(max(needed // 40 * 20, 20)), 0.95),
    )
    assert (found.high < limit) == (max(area, 1 - area) < limit)
    assert not found.low <= limit <= found.high
    assert less.high >= found.high


def test_more_confidence_is_a_wider_interval() -> None:
    rng = np.random.default_rng(0)
    seen = evidence(rng.normal(0.5, 1, 3000), rng.normal(size=3000))
    for question in (lambda c: measure.tpr(seen, 0.01, c), lambda c: measure.auc_either_way(seen, c)):
        found = [question(c) for c in (0.5, 0.9, 0.95, 0.999, 1 - 1e-9)]
        for one, other in pairwise(found):
            assert other.low <= one.low <= one.value <= one.high <= other.high


def test_an_empty_side_says_nothing() -> None:
    for seen in (evidence([1.0, 2.0], []), evidence([], [1.0, 2.0])):
        assert (measure.tpr(seen, 0.01, 0.95).low, measure.tpr(seen, 0.01, 0.95).high) == (0.0, 1.0)
        assert (measure.auc_either_way(seen, 0.95).low, measure.auc_either_way(seen, 0.95).high) == (0.5, 1.0)
        assert measure.tpr_needed(seen, 0.01, 0.1, 0.95) is None


@pytest.mark.parametrize("apart", [True, False])
def test_fewer_targets_than_needed_cannot_show_the_limit(apart: bool) -> None:
    seen = evidence([1.0], [0.0])
    needed = measure._floor_needed(1e-5, 3.0, 0.95, apart)
    assert needed is not None
    assert measure._reach(needed, 1e-5, 0.95, apart) > 3.0
    assert measure._reach(int(0.9 * needed), 1e-5, 0.95, apart) <= 3.0
    assert measure.floor_needed(seen, 1e-5, 3.0, 0.95) == measure._floor_needed(1e-5, 3.0, 0.95, False)
    assert measure.reach(seen, 1e-5, 0.95) <= 3.0
