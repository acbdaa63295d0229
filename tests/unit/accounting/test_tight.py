"""Sampled Gaussians between a certified lower bound and the accountant: rare large losses, and others.

The lower bound is `bench/accounting_floor.py`, which shares no code with the accountant. It is held against
exact values here.
"""

from __future__ import annotations

import dataclasses
import math

import pytest

from benches import bench
from discreet.accounting import Gaussian, Poisson, Repeat, curve
from discreet.accounting.composition import Composition
from discreet.accounting.plan import plan
from unit.accounting.oracle import sampled_gaussian_epsilon

below = bench("accounting_floor")
tight = bench("accounting_tight")
CELLS = [
    (0.7, 1e-7, 10**6, 1e-300),  # several rare losses
    (5.0, 1e-5, 10**4, 1e-300),  # one: the saddle point is of no use
    (0.7, 1e-7, 10**3, 1e-30),
    (0.3, 1e-7, 10**3, 1e-5),  # delta near the total variation: losses far above epsilon
    (0.5, 1e-7, 10, 1e-12),
    (1.0, 0.01, 10**3, 1e-5),
    (0.7, 0.5, 10**9, 1e-100),
]


@pytest.mark.parametrize(("sigma", "rate", "times", "delta"), CELLS)
def test_epsilon_is_above_the_lower_bound_and_within_half_a_percent(
    sigma: float, rate: float, times: int, delta: float
) -> None:
    epsilon = curve(Repeat(Poisson(rate, Gaussian(sigma)), times)).epsilon(delta)
    least = below.floor(sigma, rate, times, delta, epsilon)
    assert least is not None
    assert least <= epsilon <= least * 1.005


BETWEEN = [  # epsilon by an inversion in 90 to 400 digits, whose quadratures are exact to as many
    ((1.0, 1e-5, 10**8, 1e-30), 1.4631406),
    ((1.0, 1e-7, 10**8, 1e-30), 0.016000153),
    ((5.0, 1e-7, 10**5, 1e-300), 2.3677159e-4),
]


@pytest.mark.parametrize(("cell", "truth"), BETWEEN)
def test_one_large_loss_and_many_small_ones_together_are_counted_tightly(cell: tuple, truth: float) -> None:
    """Neither the body of the losses nor a single large one rules: outcomes with and without one have a series each."""
    sigma, rate, times, delta = cell
    bound = curve(Repeat(Poisson(rate, Gaussian(sigma)), times))
    epsilon = bound.epsilon(delta)
    assert truth <= epsilon <= truth * 1.0005
    least = below.floor(sigma, rate, times, delta, epsilon)
    assert truth * 0.995 <= least <= truth


def test_outcomes_without_a_large_loss_are_not_forgotten() -> None:
    """The broken twin: a bound on outcomes with a large loss alone falls below the truth."""
    (sigma, rate, times, delta), truth = BETWEEN[0]
    whole = Composition(plan(Repeat(Poisson(rate, Gaussian(sigma)), times)).parts)
    there = whole._jump(0, truth, delta)
    assert there is not None
    assert dataclasses.replace(there, others=None).epsilon(delta, truth, math.inf) < truth * 0.99
    assert truth <= there.epsilon(delta, truth, math.inf) <= truth * 1.0005


def test_delta_where_the_first_guess_is_off_by_many_powers_of_ten() -> None:
    for sigma, rate, times, delta in ((1.4, 1.6e-8, 24, 7e-53), (1.17, 4.7e-9, 19_019, 1e-168), (2.9, 1.3e-4, 3, 1e-63)):
        bound = curve(Repeat(Poisson(rate, Gaussian(sigma)), times))
        assert bound.delta(bound.epsilon(delta)) == pytest.approx(delta, rel=0.01)


@pytest.mark.parametrize(("sigma", "rate", "times", "delta"), [(2.0, 0.01, 60_000, 1e-5), (1.0, 0.01, 10_000, 1e-9)])
def test_the_lower_bound_is_below_the_truth_and_near(sigma: float, rate: float, times: int, delta: float) -> None:
    near = curve(Repeat(Poisson(rate, Gaussian(sigma)), times)).epsilon(delta)
    truth = sampled_gaussian_epsilon(sigma, rate, times, delta, near)
    least = below.floor(sigma, rate, times, delta, near)
    assert truth * 0.997 <= least <= truth


def test_the_lower_bound_of_a_gaussian_is_below_the_exact_one() -> None:
    """At rate 1 the truth is known in closed form; bins and smoothing cost a part in a thousand."""
    for shift, times, delta in ((1.0, 100, 1e-6), (0.1, 10**6, 1e-30), (5.0, 10**4, 1e-100)):
        exact = tight.one_gaussian(shift, delta)
        least = below.floor(math.sqrt(times) / shift, 1.0, times, delta, exact)
        assert exact * 0.997 <= least <= exact


def test_a_bound_that_forgets_far_losses_is_found_out() -> None:
    """The broken twin: without the outcomes that are counted apart, epsilon falls below the lower bound."""
    sigma, rate, times, delta = 0.5, 1e-7, 10, 1e-12
    whole = Composition(plan(Repeat(Poisson(rate, Gaussian(sigma)), times)).parts)
    right = whole.epsilon(delta)
    near = whole._near(0, right, delta, 3 * right)
    assert near is not None
    wrong = dataclasses.replace(near, far=(0.0, 0.0)).epsilon(delta, right, math.inf)
    assert wrong < below.floor(sigma, rate, times, delta, right) <= right


def test_the_benchmark_can_lose() -> None:
    rows = [
        {"cell": (1.0, 0.1, 10, 1e-5), "epsilon": value, "reference": 1.0, "kind": "exact"}
        for value in (1.001, 1.01, math.inf, 0.99)
    ]
    rows.append({"cell": (1.0, 0.1, 10, 1e-5), "epsilon": 1.0, "reference": math.nan, "kind": "none"})
    counts = tight.summary(rows, 7)
    assert (counts["above 0.5 %"], counts["infinite"], counts["below the reference"], counts["without"]) == (1, 1, 1, 1)
    assert (counts["cells"], counts["not measured"], counts["with a reference"]) == (7, 2, 3)
