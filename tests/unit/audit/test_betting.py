"""The betting bound: fast paths against slow obvious ones, and its promises."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest

from discreet.audit.bounds import weighted
from discreet.audit.bounds.betting import alike, best_possible, betting, forgiven, frontier, shares, wealth
from discreet.audit.bounds.order import centre, one_target_each, shuffled, surest_first
from discreet.audit.bounds.search import HIGHEST, bisect, climb

RNG = np.random.default_rng(1)


def slow_wealth(right, spared, epsilon):
    """The mixture of likelihood ratios after every prefix, one number at a time."""
    best, hits = -math.inf, 0
    for made, good in enumerate([None, *right.tolist()]):
        hits += bool(good)
        kept = max(hits - spared, 0)
        terms = []
        for lead in np.geomspace(0.3, 6.0, 5):
            odds, null = math.exp(epsilon + lead), math.exp(epsilon)
            q1, q = odds / (1 + odds), null / (1 + null)
            terms.append((q1 / q) ** kept * ((1 - q1) / (1 - q)) ** (made - kept))
        best = max(best, math.log(sum(terms) / 5))
    return best


@pytest.mark.parametrize("rate", [0.3, 0.6, 0.9, 1.0, 0.0])
@pytest.mark.parametrize("spared", [0, 3])
def test_wealth_on_the_frontier_is_wealth_over_all_prefixes(rate, spared):
    right = RNG.random(60) < rate
    hits, misses = frontier(right)
    for epsilon in (0.0, 0.7, 3.0):
        found = wealth(hits, misses, np.array([float(spared)]), np.array([epsilon]))[0]
        assert max(found, 0.0) == pytest.approx(slow_wealth(right, spared, epsilon), abs=1e-9)


def test_wealth_falls_with_epsilon():
    hits, misses = frontier(RNG.random(300) < 0.8)
    grid = np.linspace(0, 10, 200)
    found = wealth(hits, misses, np.zeros(200), grid)
    assert (np.diff(found) <= 1e-12).all()


def test_bets_are_fair():
    """E[wealth] after one guess is 1 when guesses are right with probability q, whatever is bet on."""
    for epsilon in (0.0, 1.0, 4.0):
        q = 1 / (1 + math.exp(-epsilon))
        after = [math.exp(wealth(np.array([k]), np.array([1 - k]), np.zeros(1), np.array([epsilon]))[0]) for k in (0.0, 1.0)]
        assert (1 - q) * after[0] + q * after[1] == pytest.approx(1.0)


@pytest.mark.parametrize("delta", [1e-6, 1e-3, 0.2])
@pytest.mark.parametrize("independent", [True, False])
def test_what_delta_costs_is_paid_for(delta, independent):
    epsilon = np.array([0.0, 1.0, 5.0])
    spared, level = forgiven(epsilon, 1000, delta, 0.05, independent=independent)
    assert (level >= 0.5 * 0.05 - 1e-12).all()
    assert (level <= 0.05).all()
    assert (spared >= 0).all()
    if not independent:
        assert (1000 * delta / (1 + np.exp(epsilon)) / (spared + 1) <= 0.05 - level + 1e-12).all()


def test_no_delta_costs_nothing():
    spared, level = forgiven(np.array([1.0]), 1000, 0.0, 0.05, independent=False)
    assert (spared[0], level[0]) == (0.0, 0.05)


def test_independent_runs_forgive_less():
    many = forgiven(np.array([0.0]), 10_000, 1e-3, 1e-6, independent=True)[0]
    one = forgiven(np.array([0.0]), 10_000, 1e-3, 1e-6, independent=False)[0]
    assert many[0] < one[0] / 1000


def test_the_bound_never_grows_with_delta():
    inside = RNG.random(2000) < 0.5
    score = inside + RNG.laplace(scale=0.5, size=2000)
    run = np.arange(2000)
    found = [betting(score, inside, run, delta, 0.05) for delta in (0.0, 1e-6, 1e-4, 1e-2, 0.1, 0.5)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 1.5


def test_the_bound_of_ten_thousand_targets_is_not_quadratic():
    inside = RNG.random(10_000) < 0.5
    score = inside + RNG.normal(size=10_000)
    betting(score, inside, np.zeros(10_000, int), 1e-5, 0.05)
    began = time.process_time()
    betting(score, inside, np.zeros(10_000, int), 1e-5, 0.05)
    assert time.process_time() - began < 20  # it takes some 0.1 s; nothing that visits every pair is this quick


def test_perfect_guesses_show_about_the_log_of_their_number():
    for count in (10, 100, 10_000):
        reach = best_possible(count, 0.0, 0.05, independent=False)
        assert math.log(count / math.log(40)) - 0.8 < reach < math.log(count / math.log(20))
    assert best_possible(0, 0.0, 0.05, independent=True) == 0.0


def test_the_error_is_split_and_never_overspent():
    split = np.stack(shares(np.linspace(0, 10, 101)))
    assert (split > 0).all()
    assert split.sum(axis=0) == pytest.approx(1.0)


def test_equal_guesses_are_all_at_zero_and_half_far_away():
    assert alike(1000, np.array([0.0, 40.0])).tolist() == [1000, 500]


@pytest.mark.parametrize("q", [0.5, 0.7, 0.99])
def test_the_weighted_tail_is_that_of_all_sequences(q):
    """Against every sequence of ten guesses, one at a time."""
    depth = (9, 7, 7, 4, 3, 2, 2, 1)
    weight = [sum(i < each for each in depth) for i in range(10)]
    chance = np.zeros(sum(depth) + 1)
    for guesses in itertools.product((0, 1), repeat=10):
        chance[sum(w * g for w, g in zip(weight, guesses))] += q ** sum(guesses) * (1 - q) ** (10 - sum(guesses))
    for total in range(len(chance)):
        found = weighted.above(total, depth, (q,) * 8)
        assert chance[total:].sum() - 1e-14 <= found <= chance[total:].sum() + 2e-12
    assert weighted.above(len(chance), depth, (q,) * 8) < 1e-11


@pytest.mark.parametrize("count", [1, 7, 200, 10_000])
@pytest.mark.parametrize("span", [0, 3, 20, 80])
def test_deeper_guesses_weigh_no_more(count, span):
    depth = weighted.depths(count, span)
    assert list(depth) == sorted(depth, reverse=True)
    assert all(0 <= each <= count for each in depth)


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_the_weighted_test_is_the_same_one_epsilon_at_a_time(delta):
    """The search within a span skips tests; one by one, at the span's strictest terms, they agree."""
    inside = RNG.random(3000) < 0.5
    hits = np.append(0, np.cumsum(surest_first(inside * 1.5 + RNG.normal(size=3000), inside)))
    grid = np.arange(0, 1024)
    spared, level = forgiven(grid / 256, 3000, delta, 0.05, independent=False)
    found = weighted.refuted(hits, grid, spared, level)
    assert found.any()
    assert not found.all()
    for e in range(0, 1024, 7):
        mine = grid // weighted.SPAN == e // weighted.SPAN
        total = sum(int(hits[d]) for d in weighted.depths(3000, e // weighted.SPAN)) - 8 * int(spared[mine].max())
        assert found[e] == (weighted.tail(total, 3000, e // weighted.SPAN, e) <= level[mine].min())


def test_ties_know_nothing_of_the_truth():
    inside = np.arange(1000) < 500
    right = surest_first(np.zeros(1000), inside)
    assert 400 < right.sum() < 600
    assert betting(np.zeros(1000), inside, np.arange(1000), 0.0, 0.05) == 0.0
    assert sorted(shuffled(1000)[0].tolist()) == list(range(1000))


def test_order_is_a_function_of_the_scores():
    """Flipping truths permutes nothing: right guesses turn wrong in place."""
    score, inside = RNG.normal(size=500), RNG.random(500) < 0.5
    assert (surest_first(score, inside) ^ surest_first(score, ~inside)).all()


def test_centre_keeps_off_ties():
    assert centre(np.array([1.0] * 60 + [0.0] * 40)) == pytest.approx(0.6)
    assert centre(np.full(5, 3.0)) == 3.0
    assert centre(np.array([-1.0] * 70 + [0.4] * 30)) == 0.0
    assert -0.25 < centre(RNG.normal(size=1001)) < 0.25  # six standard deviations of a median


def test_climb_stops_at_the_first_kept():
    assert climb(lambda e: (e < 1.0) | (e > 2.0)) == pytest.approx(1.0, abs=0.01)
    assert climb(lambda e: e < -1) == 0.0
    assert climb(lambda e: e < 1e9) == HIGHEST
    for edge in (0.0, 0.003, 1.7, 30.0):
        assert climb(lambda e, edge=edge: e < edge) == bisect(lambda e, edge=edge: e < edge)


def test_one_target_each():
    assert one_target_each(np.array([3, 1, 2]))
    assert not one_target_each(np.array([1, 1, 2]))
