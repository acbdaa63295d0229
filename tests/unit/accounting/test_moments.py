"""Rényi divergences against high-precision sums, where a float of the moment itself would have lost every digit."""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.accounting import (
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Filter,
    Gaussian,
    Laplace,
    NoisyMax,
    Poisson,
    Pure,
    RandomAllocation,
    RandomizedResponse,
    Repeat,
    Shuffled,
    WithoutReplacement,
    renyi,
)
from discreet.accounting.filter import UNIT
from discreet.accounting.moments import log_moment, sampled_log_moment
from discreet.core import Event

EXACT = 1e-9  # relative excess allowed where the sum is exact

sigmas = st.floats(-2, 15).map(lambda x: 10.0**x)
rates = st.floats(-9, 0).map(lambda x: 10.0**x)
wholes = st.integers(2, 40)


def excess(atoms: list[tuple[mp.mpf, mp.mpf]], order: float) -> mp.mpf:
    """E_Q[r^a] - 1 from the probabilities under Q and the losses."""
    a = mp.mpf(order)
    return mp.fsum(mass * (mp.exp(a * loss) - 1 - a * (mp.exp(loss) - 1)) for mass, loss in atoms)


def divergence(atoms: list[tuple[mp.mpf, mp.mpf]], order: float) -> mp.mpf:
    return mp.log1p(excess(atoms, order)) / (mp.mpf(order) - 1)


def response(epsilon: float, categories: int = 2) -> list[tuple[mp.mpf, mp.mpf]]:
    grown = mp.exp(mp.mpf(epsilon))
    return [(1 / (grown + categories - 1), mp.mpf(epsilon)), (grown / (grown + categories - 1), -mp.mpf(epsilon))]


def discrete_laplace(scale: float, n: int) -> list[tuple[mp.mpf, mp.mpf]]:
    t = 1 / mp.mpf(scale)
    edge = 1 / (1 + mp.exp(-t))
    inner = [(edge * (1 - mp.exp(-t)) * mp.exp(-x * t), (2 * x - n) * t) for x in range(1, n)]
    return [(edge * mp.exp(-n * t), n * t), (edge, -n * t), *inner]


def sampled_gaussian(sigma: float, rate: float, order: int) -> mp.mpf:
    """The divergence at a whole order, by the binomial expansion in high precision."""
    q, s = mp.mpf(rate), mp.mpf(sigma)
    terms = (
        mp.binomial(order, k) * q**k * (1 - q) ** (order - k) * mp.expm1(mp.mpf(k) * (k - 1) / 2 / s**2)
        for k in range(2, order + 1)
    )
    return mp.log1p(mp.fsum(terms)) / (order - 1)


def close(computed: float, truth: mp.mpf, slack: float = EXACT) -> bool:
    """Not below the truth, and above it by no more than a relative slack."""
    return bool(truth <= computed <= truth * (1 + mp.mpf(slack)))


@given(epsilon=st.floats(-14, 2.5).map(lambda x: 10.0**x), order=st.floats(1.001, 300.0), categories=st.integers(2, 50))
@settings(max_examples=150)
def test_pure_losses_of_every_size(epsilon: float, order: float, categories: int) -> None:
    with mp.workdps(80):
        assert close(renyi(Pure(epsilon), order), divergence(response(epsilon), order))
        assert close(renyi(NoisyMax(epsilon), order), divergence(response(epsilon), order))
        assert close(renyi(RandomizedResponse(epsilon, categories), order), divergence(response(epsilon, categories), order))
        a, e = mp.mpf(order), 1 / mp.mpf(1 / epsilon)
        laplace = (a * mp.expm1((a - 1) * e) + (a - 1) * mp.expm1(-a * e)) / (2 * a - 1)
        assert close(renyi(Laplace(1 / epsilon), order), mp.log1p(laplace) / (a - 1))


@given(scale=st.floats(-1, 14).map(lambda x: 10.0**x), n=st.integers(1, 40), order=st.floats(1.001, 200.0))
@settings(max_examples=100)
def test_discrete_laplace_of_every_scale(scale: float, n: int, order: float) -> None:
    with mp.workdps(80):
        assert close(renyi(DiscreteLaplace(scale, n), order), divergence(discrete_laplace(scale, n), order))


@pytest.mark.parametrize("scale", [3.0, 700.0, 1e9])
@pytest.mark.parametrize("order", [1.01, 3.0, 50.0])
def test_discrete_laplace_of_many_losses_is_bounded_in_parts(scale: float, order: float) -> None:
    with mp.workdps(60):
        assert close(renyi(DiscreteLaplace(scale, 1000), order), divergence(discrete_laplace(scale, 1000), order), 0.02)


@given(sigma=sigmas, rate=rates, order=wholes)
@settings(max_examples=150)
def test_sampled_gaussian_at_whole_orders(sigma: float, rate: float, order: int) -> None:
    with mp.workdps(80):
        assert close(renyi(Poisson(rate, Gaussian(sigma)), float(order)), sampled_gaussian(sigma, rate, order))


@pytest.mark.parametrize("sigma", [0.5, 1.0, 20.0, 1e6])
@pytest.mark.parametrize("rate", [1e-8, 1e-3, 0.2])
@pytest.mark.parametrize("order", [1.1, 1.9, 3.5])
def test_sampled_gaussian_between_whole_orders(sigma: float, rate: float, order: float) -> None:
    """Against numerical integration; close to it where the noise is at least 1."""
    with mp.workdps(40):
        q, s, a = mp.mpf(rate), mp.mpf(sigma), mp.mpf(order)

        def integrand(x: mp.mpf) -> mp.mpf:
            above = q * mp.expm1((2 * x / s - 1 / s**2) / 2)
            return mp.npdf(x) * (mp.expm1(a * mp.log1p(above)) - a * above)

        truth = mp.log1p(mp.quad(integrand, [-30, -8, -3, 0, 3, 8, 12, 20, 40])) / (a - 1)
        slack = 0.4 if sigma >= 1 else 20.0
        assert truth * (1 - mp.mpf(1e-12)) <= renyi(Poisson(rate, Gaussian(sigma)), order) <= truth * (1 + slack)


@given(
    inner=st.sampled_from([Gaussian(1.3), Laplace(2.0), Pure(0.7), DiscreteLaplace(3.0, 4), DiscreteGaussian(2.5, 2)]),
    rate=rates,
)
@settings(max_examples=60)
def test_interpolation_is_above_the_sum_of_a_finite_pair(inner: Event, rate: float) -> None:
    """The lemma on log-convexity, checked through divergences that grow with their order and chords that lie above."""
    orders = np.linspace(1.01, 6.0, 41)
    values = [renyi(Poisson(rate, inner), float(a)) for a in orders]
    assert all(x <= y * (1 + 1e-9) for x, y in itertools.pairwise(values))
    for a, value in zip(orders, values):
        assert renyi(Poisson(rate, inner), math.floor(a)) <= value * (1 + 1e-9) if a >= 2 else value > 0
        assert value <= renyi(Poisson(rate, inner), float(math.ceil(a))) * (1 + 1e-9)


@given(
    sigma=sigmas,
    rate=rates,
    steps=st.floats(0, 53).map(lambda x: min(int(2**x), 2**53 - 1)),
    delta=st.floats(-300, -0.31).map(lambda x: 10.0**x),
    order=wholes,
)
@settings(max_examples=200)
def test_the_cost_of_a_run_is_never_below_the_truth(sigma: float, rate: float, steps: int, delta: float, order: int) -> None:
    budget = Filter(2000.0, delta, order=float(order))
    with mp.workdps(80):
        truth = steps * sampled_gaussian(sigma, rate, order)
        cost, _ = budget.cost(Repeat(Poisson(rate, Gaussian(sigma)), steps))
        assert truth * UNIT <= cost <= truth * UNIT * (1 + mp.mpf(EXACT)) + 1


@given(sigma=sigmas, rate=rates, steps=st.floats(0, 53).map(lambda x: min(int(2**x), 2**53 - 1)))
@settings(max_examples=40)
def test_at_the_order_that_a_budget_chooses(sigma: float, rate: float, steps: int) -> None:
    """Divergences grow with their order, so the one at the next lower whole order is a lower bound on the truth."""
    budget = Filter(0.9, 1e-9)
    with mp.workdps(80):
        truth = steps * sampled_gaussian(sigma, rate, math.floor(budget.order))
        assert truth * UNIT <= budget.cost(Repeat(Poisson(rate, Gaussian(sigma)), steps))[0]


def test_a_run_of_many_tiny_steps_does_not_fit_a_small_budget() -> None:
    """As one Gaussian it is known exactly: n steps of noise s at rate 1 are one of noise s / sqrt(n)."""
    budget = Filter(0.05, 1e-6)
    for sigma, steps in ((4e6, 2**50), (3e7, 2**53 - 1)):
        assert renyi(Poisson(0.999999, Gaussian(sigma)), budget.order) == pytest.approx(
            renyi(Gaussian(sigma), budget.order), rel=1e-4
        )
        assert budget.allows(Repeat(Poisson(0.999999, Gaussian(sigma)), steps)) is budget.allows(
            Gaussian(sigma / math.sqrt(steps))
        )


@pytest.mark.parametrize(
    "event",
    [
        Gaussian(1e200), DiscreteGaussian(1e200, 1), Laplace(1e200), DiscreteLaplace(1e200, 1), Pure(1e-200), NoisyMax(1e-200),
        RandomizedResponse(1e-200, 3), Exponential(1e-200), Poisson(1e-200, Gaussian(1.0)), Poisson(0.5, Pure(1e-200)),
        WithoutReplacement(1e-200, Gaussian(1e200)), RandomAllocation(Gaussian(1e150), 10),
    ],
)  # fmt: skip
@pytest.mark.parametrize("order", [1.001, 1.5, 2.0, 33.3, 5000.0])
def test_what_is_too_small_for_a_float_is_not_nothing(event: Event, order: float) -> None:
    assert renyi(event, order) > 0
    assert Filter(1.0, 1e-6).cost(event)[0] >= 1


@pytest.mark.parametrize("order", [5000.0, 65537.5, 900_000.0])
def test_high_orders_gain_from_sampling_too(order: float) -> None:
    """Small budgets choose high orders; convexity alone would charge a sample in proportion to its rate, not its square."""
    sampled = renyi(Poisson(1e-3, Gaussian(1e7)), order)
    assert sampled == pytest.approx(1e-6 * order / 2 / 1e14, rel=0.01)


def test_moments_of_many_orders_are_those_of_each() -> None:
    orders = np.array([1.5, 2.0, 17.0, 400.0])
    for event in (Gaussian(2.0), Laplace(3.0), DiscreteLaplace(3.0, 5), RandomizedResponse(1.0, 4)):
        each = [float(log_moment(event, np.array([a]))[0]) for a in orders]
        assert log_moment(event, orders) == pytest.approx(each, rel=1e-12)
    assert sampled_log_moment(0.1, Gaussian(1.0), 4.0) == pytest.approx(
        math.log(float(sum(math.comb(4, k) * 0.1**k * 0.9 ** (4 - k) * math.exp(k * (k - 1) / 2) for k in range(5)))), rel=1e-9
    )


def test_shuffled_reports_of_tiny_epsilon() -> None:
    """The table's steps are then smaller than the rounding of an exponential near 1."""
    small, large = (renyi(Shuffled(RandomizedResponse(e, 2), 1000), 4.0) for e in (1e-9, 1e-8))
    assert small > 0
    assert large / small == pytest.approx(100, rel=0.05)
