"""Group keys, run many times: a unit's own groups appear no more often than delta, and broken twins are refuted.

Seeded. Each check of the right mechanism would fail with probability at most 1e-7 under fresh seeds. A twin is refuted when the
lower bound on how often it shows what the other world cannot show, at confidence 1 - 1e-7, is above delta.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from discreet import noise
from discreet.noise.source import seeded_for_tests
from discreet.query.threshold import Threshold
from unit.noise.tools import epsilon_at_least

ALPHA, RUNS, DELTA = 1e-7, 200_000, 1e-2


def shown(counts, show):
    """How often any group of a unit that is alone in all of them is shown; entries are independent."""
    with seeded_for_tests(b"keys"):
        return int(show(np.tile(counts, RUNS)).reshape(RUNS, -1).any(axis=1).sum())


def at_least(seen):
    return stats.beta.ppf(ALPHA, seen, RUNS - seen + 1) if seen else 0.0


@pytest.mark.parametrize(
    ("sensitivity", "each", "alone"), [(1, 1, [1]), (5, 1, [1] * 5), (5, 3, [3, 2]), (5, 5, [5]), (5, 5, [1] * 5)]
)
def test_a_unit_alone_in_its_groups_is_shown_with_probability_at_most_delta(sensitivity, each, alone):
    groups = Threshold(1, DELTA, sensitivity, each)
    seen = shown(alone, lambda counts: groups.run(counts)[0])
    assert stats.binom.sf(seen - 1, RUNS, DELTA) > ALPHA
    exact = 1 - np.prod([1 - groups.released(count) for count in alone])
    assert ALPHA < stats.binom.cdf(seen, RUNS, exact) < 1 - ALPHA, "the rate that `released` says"


def test_delta_that_is_not_divided_over_the_groups_is_refuted():
    """The noise is right for five groups, the bound is that of one."""
    one = Threshold(1, DELTA, 5, 5)
    twin = min(b for b in range(1, one.bound) if Threshold.released(with_bound(one, b), 1) <= DELTA)
    seen = shown([1] * 5, lambda counts: with_bound(one, twin).run(counts)[0])
    assert at_least(seen) > DELTA


def test_a_bound_too_low_by_one_contribution_is_refuted():
    right = Threshold(1, DELTA, 4, 2)
    seen = shown([2, 2], lambda counts: counts + right._noise(len(counts), noise.source.open_source()) > right.bound - 2)
    assert at_least(seen) > DELTA


def test_a_threshold_for_one_row_does_not_hold_for_a_person_in_many_groups():
    """Plain noise and a threshold from the number of rows: each of ten groups is private for a row, the person is not."""
    bar = 1 + int(np.ceil(np.log(1 / (2 * DELTA))))
    seen = shown([1] * 10, lambda counts: counts + noise.discrete_laplace(1, size=len(counts)) > bar)
    assert at_least(seen) > DELTA


def with_bound(groups: Threshold, bound: int) -> Threshold:
    """A twin with another bound."""
    twin = Threshold(groups.epsilon, groups.delta, groups.sensitivity, groups.each)
    object.__setattr__(twin, "bound", bound)
    return twin


@pytest.mark.parametrize("start", [40, 12])
def test_noisy_counts_hold_on_their_worst_pair_and_half_the_noise_does_not(start):
    right = Threshold(1, 1e-3, 2)
    half = Threshold(2, 1e-3, 2)
    for groups, refuted in ((right, False), (half, True)):
        seen = []
        for i, count in enumerate((start, start + 2)):
            with seeded_for_tests(b"pair %d" % i):
                noisy = groups.run(np.full(RUNS, count))[1]
            seen.append(int((noisy <= start).sum()))
        assert (epsilon_at_least(*seen, RUNS, ALPHA, 1e-3) > 1) == refuted
