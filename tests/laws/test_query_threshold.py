"""However a unit is spread over groups, its groups together are shown with probability at most delta."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from discreet.query.threshold import Threshold

epsilons = st.fractions(Fraction(1, 100), 20)
deltas = st.floats(1e-12, 0.4)
sensitivities = st.integers(1, 50) | st.integers(1, 2**45)


@st.composite
def thresholds(draw):
    epsilon, delta, sensitivity = draw(epsilons), draw(deltas), draw(sensitivities)
    assume(Fraction(delta) <= epsilon)
    return Threshold(epsilon, delta, sensitivity, draw(st.none() | st.integers(1, sensitivity)))


@given(thresholds(), st.data())
def test_no_way_to_spread_a_unit_exceeds_delta(groups, data):
    left, spread = groups.sensitivity, []
    while left and len(spread) < 60:
        spread.append(data.draw(st.integers(max(1, left // 60), max(1, left // 60, min(left, groups.each)))))
        assume(spread[-1] <= groups.each)
        left -= spread[-1]
    assert sum(groups.released(weight) for weight in spread) <= groups.delta * (1 + 1e-9)


@given(thresholds())
def test_noise_stays_within_its_bound_and_nobody_is_never_shown(groups):
    counts = np.array([0, 0, groups.each, 3 * groups.bound, 3 * groups.bound], np.int64)
    kept, noisy = groups.run(counts)
    assert kept.tolist()[:2] == [False, False]
    assert kept.tolist()[3:] == [True, True]
    assert (np.abs(noisy - counts)[kept] <= groups.bound).all()
    assert groups.bound >= groups.each
    assert groups.interval(0.5) <= groups.interval(0.95) <= groups.bound


@given(thresholds(), st.integers(0, 2**50))
def test_larger_groups_are_shown_more_often(groups, weight):
    assert groups.released(0) == 0
    assert groups.released(weight) <= groups.released(weight + 1) * (1 + 1e-9)
    assert groups.released(2 * groups.bound + 1) == 1
