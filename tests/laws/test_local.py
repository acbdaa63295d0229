"""Laws of local privacy: for any epsilon, any categories and any numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.accounting import Pure, Shuffled, curve
from discreet.errors import DiscreetError
from discreet.query import local
from strategies import strange
from unit.query.local.laws import grown, law, worst_ratio

ORACLES = [local.KaryResponse, local.SymmetricUnary, local.OptimalUnary, local.LocalHashing, local.HadamardResponse]
epsilon = st.one_of(st.floats(1e-6, 30), st.fractions(Fraction(1, 100), 30, max_denominator=997))
few = settings(max_examples=40, deadline=None)


@few
@given(epsilon, st.integers(2, 5), st.sampled_from(ORACLES[:3]))
def test_the_odds_never_exceed_epsilon(rate, size, make) -> None:
    oracle = make(rate, size)
    assert worst_ratio([law(oracle, x) for x in range(size)]) <= grown(Fraction(rate))[0]


@few
@given(epsilon, st.integers(1, 12), st.sampled_from([local.OneBitMean, local.PiecewiseMean]))
def test_nor_those_of_numbers(rate, steps, make) -> None:
    oracle = make(rate, -1.0, 1.0, steps)
    assert worst_ratio([law(oracle, x) for x in range(steps + 1)]) <= grown(Fraction(rate))[0]


@few
@given(epsilon, st.integers(2, 3000), st.sampled_from(ORACLES))
def test_a_report_says_something_and_expected_counts_give_the_truth(rate, size, make) -> None:
    oracle = make(rate, size)
    p, q = oracle.p, oracle.q
    assert 0 < q < p < 1
    share = Fraction(1, 3)
    assert (share * p + (1 - share) * q - q) / (p - q) == share
    assert oracle.variance(100) > 0


@few
@given(st.floats(0.1, 5), st.integers(2, 40), st.sampled_from(ORACLES), st.data())
def test_reports_are_reports_and_intervals_hold_their_estimate(rate, size, make, data) -> None:
    truth = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=50))
    oracle = make(rate, size)
    reports = oracle.encode(truth)
    assert len(reports) == len(truth)
    counts, people = oracle.supports(reports)
    assert people == len(truth)
    assert ((counts >= 0) & (counts <= people)).all()
    found = oracle.estimate(reports, 0.9)
    middle = np.clip(found.estimate, 0, 1)
    assert (found.low <= middle + 1e-9).all()
    assert (middle <= found.high + 1e-9).all()


@few
@given(st.floats(0.1, 5), st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.lists(st.floats(), min_size=1, max_size=50))
def test_means_stay_within_their_bounds(rate, lower, width, values) -> None:
    oracle = local.mean(rate, lower, lower + width)
    found = oracle.estimate(oracle.encode(values), 0.9)
    slack = 1e-9 * (abs(lower) + width)
    assert oracle.lower - slack <= found.low <= found.high <= oracle.upper + slack


def test_an_interval_of_a_mean_far_outside_stays_in_the_range() -> None:
    oracle = local.mean(0.4, 0.0, 1.0)
    for low, high in ((-3.0, -2.0), (2.0, 3.0)):
        found = oracle._scaled((low + high) / 2, low, high, 9, 0.9)
        assert 0.0 <= found.low <= found.high <= 1.0


CALLS = [
    lambda x: local.frequency(x, 4),
    lambda x: local.frequency(1.0, x),
    lambda x: local.mean(1.0, 0, x),
    lambda x: local.KaryResponse(1.0, 4).encode(x),
    lambda x: local.KaryResponse(1.0, ["a", "b"]).encode(x),
    lambda x: local.OptimalUnary(1.0, 4).estimate(x, 0.9),
    lambda x: local.Coin().estimate([0, 1], x),
    lambda x: local.OneBitMean(1.0, 0, 1).encode(x),
]


@few
@given(strange, st.sampled_from(CALLS))
def test_whatever_is_passed_is_taken_or_told_off(thing, call) -> None:
    said = ""
    try:
        call(thing)
    except DiscreetError as error:
        said = str(error)
    assert len(said) < 500


@settings(max_examples=8, deadline=None)
@given(st.floats(0.01, 6), st.integers(2, 10**7), st.sampled_from([1e-9, 1e-6, 1e-3]))
def test_shuffling_never_hurts_and_more_users_help(rate, users, small) -> None:
    alone, among, more = (curve(event) for event in (Pure(rate), Shuffled(Pure(rate), users), Shuffled(Pure(rate), 2 * users)))
    x = among.epsilon(small)
    assert x <= alone.epsilon(small) * (1 + 1e-6)
    assert more.epsilon(small) <= x * (1 + 1e-3) + 1e-9
    assert x == 0 or among.delta(math.nextafter(x, math.inf)) <= small * (1 + 1e-6)
