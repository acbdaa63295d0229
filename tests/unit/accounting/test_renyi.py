"""Rényi bounds against numerical integration, and the filter built on them."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest

from discreet.accounting import (
    Approximate,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Filter,
    Gaussian,
    Group,
    Laplace,
    NoisyMax,
    NonPrivate,
    Poisson,
    Pure,
    RandomizedResponse,
    Repeat,
    Sequence,
    WithoutReplacement,
    concentrated,
    curve,
    epsilon_by_renyi,
    epsilon_from_concentrated,
    renyi,
)
from discreet.errors import BudgetExceeded, InvalidDocument, InvalidValue


def divergence(p, q, order: float) -> float:
    p, q = np.asarray(p, float), np.asarray(q, float)
    live = (p > 0) & (q > 0)
    return math.log(math.fsum(np.exp(order * np.log(p[live]) - (order - 1) * np.log(q[live])))) / (order - 1)


def lattice_pair(law, shift: int, rate: float = 1.0):
    x = np.arange(-4000, 4001)
    without = np.exp(law(x))
    total = without.sum()
    without, inside = without / total, np.exp(law(x - shift)) / total
    return rate * inside + (1 - rate) * without, without


@pytest.mark.parametrize("order", [1.3, 2.0, 7.5, 20.0])
def test_discrete_laws_are_bounded(order: float) -> None:
    for event, law, shift in (
        (DiscreteLaplace(7.0, 3), lambda x: -np.abs(x) / 7.0, 3),
        (DiscreteLaplace(7.0, 1), lambda x: -np.abs(x) / 7.0, 1),
        (DiscreteGaussian(3.0, 2), lambda x: -((x / 3.0) ** 2) / 2, 2),
    ):
        p, q = lattice_pair(law, shift)
        truth = max(divergence(p, q, order), divergence(q, p, order))
        assert truth * (1 - 1e-9) <= renyi(event, order) <= truth * 1.001


@pytest.mark.parametrize("order", [1.5, 2.0, 3.0, 3.5, 12.0])
@pytest.mark.parametrize("rate", [0.01, 0.3])
def test_sampled_laws_are_bounded_in_both_directions(order: float, rate: float) -> None:
    for event, law, shift in (
        (DiscreteLaplace(2.0, 1), lambda x: -np.abs(x) / 2.0, 1),
        (DiscreteGaussian(2.0, 1), lambda x: -((x / 2.0) ** 2) / 2, 1),
    ):
        p, q = lattice_pair(law, shift, rate)
        truth = max(divergence(p, q, order), divergence(q, p, order))
        found = renyi(Poisson(rate, event), order)
        assert truth * (1 - 1e-7) <= found <= truth * (1.02 if order == int(order) else 2.5)
        assert found <= renyi(event, order)
        assert truth <= renyi(WithoutReplacement(rate, event), order)


@pytest.mark.parametrize("order", [1.2, 2.0, 30.0])
def test_response_and_bounded_range(order: float) -> None:
    p, q = np.array([math.e, 1, 1, 1]), np.array([1, math.e, 1, 1])
    assert renyi(RandomizedResponse(1.0, 4), order) == pytest.approx(divergence(p / p.sum(), q / q.sum(), order), rel=1e-9)
    rng = np.random.default_rng(0)
    for _ in range(200):
        t = rng.uniform(0, 2.0)
        chance = (math.exp(2.0) - math.exp(t)) / math.expm1(2.0)
        p = np.array([chance, 1 - chance])
        q = p * np.exp(-np.array([t, t - 2.0]))
        assert divergence(p, q, order) <= renyi(Exponential(2.0), order) * (1 + 1e-12)
        assert divergence(p, q, order) <= concentrated(Exponential(2.0)) * order * (1 + 1e-12)


@pytest.mark.parametrize("event", [Pure(0.3), Pure(2.0), Laplace(1.0), DiscreteLaplace(3.0, 2), Group(Gaussian(3.0), 2)])
def test_concentration_bounds_every_order(event) -> None:
    rho = concentrated(event)
    assert all(renyi(event, order) <= rho * order * (1 + 1e-12) for order in (1.001, 1.1, 2, 5, 40, 1000))


@pytest.mark.parametrize(
    "event",
    [
        Repeat(Poisson(0.01, Gaussian(1.0)), 1000), Repeat(Laplace(10.0), 50), Repeat(Exponential(0.1), 100),
        Sequence([Pure(0.2), Gaussian(3.0), DiscreteGaussian(5.0, 2)]), Repeat(WithoutReplacement(0.01, Gaussian(2.0)), 100),
    ],
)  # fmt: skip
def test_the_curve_is_tighter_than_renyi(event) -> None:
    assert curve(event).epsilon(1e-6) <= epsilon_by_renyi(event, 1e-6) * (1 + 1e-6)
    if concentrated(event) < math.inf:
        assert curve(event).epsilon(1e-6) <= epsilon_from_concentrated(concentrated(event), 1e-6) * 1.002


def test_concentrated_conversion_beats_the_textbook() -> None:
    for rho in (0.01, 0.5, 3.0):
        textbook = rho + 2 * math.sqrt(rho * math.log(1e6))
        assert epsilon_from_concentrated(rho, 1e-6) < textbook


def test_a_filter_stops_in_time() -> None:
    budget = Filter(1.0, 1e-6)
    spent = 0
    while budget.allows(Gaussian(50.0)):
        budget.spend(Gaussian(50.0))
        spent += 1
    assert spent > 100
    assert curve(Repeat(Gaussian(50.0), spent)).epsilon(1e-6) <= 1.0
    assert budget.spent_epsilon() <= 1.0
    with pytest.raises(BudgetExceeded, match=r"left at order .* this event asks") as error:
        budget.spend(Gaussian(50.0))
    assert error.value.asked > error.value.left
    assert budget.spent <= budget.limit


def test_a_filter_under_adaptive_choice() -> None:
    """An analyst who picks the next event at will, here at random, ends within the budget, whatever they picked."""
    rng = np.random.default_rng(11)
    for _ in range(20):
        budget, ran = Filter(2.0, 1e-5, failure=1e-6), []
        menu = [Gaussian(8.0), Laplace(20.0), Pure(0.1), Approximate(0.05, 1e-7), Repeat(Poisson(0.02, Gaussian(1.0)), 5)]
        for _ in range(400):
            event = menu[rng.integers(len(menu))]
            if budget.allows(event):
                budget.spend(event)
                ran.append(event)
        assert ran
        assert curve(Sequence(ran)).epsilon(1e-5) <= 2.0


def test_failures_need_their_share() -> None:
    with pytest.raises(BudgetExceeded, match="larger failure"):
        Filter(1.0, 1e-5).spend(Approximate(0.1, 1e-9))
    budget = Filter(1.0, 1e-5, failure=1e-6)
    budget.spend(Repeat(Approximate(0.01, 1e-7), 5))
    assert budget.failure_spent == pytest.approx(5e-7 * 1e30, rel=1e-9)
    with pytest.raises(BudgetExceeded):
        budget.spend(Approximate(0.01, 6e-7))


def test_a_filter_adds_exactly() -> None:
    """Five charges of a fifth fit; floats would refuse the last (0.1 five times is more than 0.5)."""
    budget = Filter(0.5, 1e-6)
    cost, _ = budget.cost(Gaussian(30.0))
    for _ in range(budget.limit // cost):
        budget.spend(Gaussian(30.0))
    assert budget.spent == budget.limit // cost * cost


def test_a_filter_survives_json() -> None:
    budget = Filter(1.0, 1e-6, failure=1e-7)
    budget.spend(Gaussian(20.0))
    again = Filter.from_json(json.loads(json.dumps(budget.to_json())))
    assert (again.spent, again.limit, again.order) == (budget.spent, budget.limit, budget.order)
    for bad in ({}, {"epsilon": 1}, None, {**budget.to_json(), "spent": "-1"}, {**budget.to_json(), "spent": str(10**40)}):
        with pytest.raises(InvalidDocument):
            Filter.from_json(bad)


def test_what_has_no_bound_is_refused() -> None:
    assert not Filter(1.0, 1e-6).allows(NonPrivate())
    with pytest.raises(BudgetExceeded, match="NonPrivate promises nothing, so no budget holds it"):
        Filter(1.0, 1e-6).spend(NonPrivate())
    for wrong in ((0, 1e-6), (-1, 1e-6), (math.nan, 1e-6), (1.0, 0), (1.0, 1), (1.0, math.nan)):
        with pytest.raises(InvalidValue):
            Filter(*wrong)
    with pytest.raises(InvalidValue, match="failure"):
        Filter(1.0, 1e-6, failure=1e-6)


def test_a_few_large_pure_losses_fit_by_their_sum() -> None:
    budget = Filter(1.5, 1e-6, failure=1e-7)
    for _ in range(3):
        budget.spend(Sequence([Pure(0.25), Approximate(0.25, 1e-8)]))
    assert budget.spent > budget.limit  # by divergences alone they would not have fitted
    assert not budget.allows(Pure(1e-8))
    assert budget.spent_epsilon() == pytest.approx(1.5)
    again = Filter.from_json(json.loads(json.dumps(budget.to_json())))
    assert not again.allows(Pure(1e-8))


def test_one_event_without_a_pure_bound_leaves_divergences_alone() -> None:
    budget = Filter(1.5, 1e-6)
    budget.spend(Gaussian(50.0))
    budget.spend(Pure(0.5))
    assert not budget.allows(Pure(0.9))
    assert Filter(1.5, 1e-6).allows(Pure(0.9))


@pytest.mark.parametrize("choice", range(6))
def test_whatever_either_sum_allowed_is_within_the_budget(choice: int) -> None:
    """For events fixed beforehand the exact curve can be asked."""
    kinds = [Pure(0.3), Laplace(4.0), Exponential(0.2), NoisyMax(0.1), Poisson(0.2, Laplace(1.0)), Gaussian(15.0)]
    draw = random.Random(choice)
    budget, ran = Filter(1.2, 1e-5), []
    for _ in range(200):
        event = draw.choice(kinds if choice % 2 else kinds[:-1])
        if budget.allows(event):
            budget.spend(event)
            ran.append(event)
    assert len(ran) >= 4
    assert curve(Sequence(ran)).delta(1.2) <= 1e-5


@pytest.mark.parametrize(("whole", "part", "times"), [(1.0, 0.2, 5), (0.5, 0.1, 5), (0.3, 0.1, 3), (3.0, 0.3, 10)])
def test_equal_parts_of_an_epsilon_fit(whole: float, part: float, times: int) -> None:
    """As they are written: the floats of five tenths add up to more than a half."""
    budget = Filter(whole, 1e-6)
    for _ in range(times):
        budget.spend(Pure(part))
    assert not budget.allows(Pure(1e-8))


@pytest.mark.parametrize("event", [Gaussian(0.05), NonPrivate(), Group(Gaussian(1.0), 2), Repeat(Gaussian(3.0), 2)])
@pytest.mark.parametrize("rate", [1e-43, 0.01, 1.0])
def test_a_sample_of_what_has_no_pure_bound_has_none(event, rate: float) -> None:
    for sampled in (Poisson(rate, event), WithoutReplacement(rate, event), Repeat(Poisson(rate, Poisson(rate, event)), 2)):
        assert Filter(98.0, 1e-6).pure_cost(sampled) > Filter(98.0, 1e-6).epsilon_limit
    assert Filter(1.0, 1e-6).pure_cost(Poisson(0.5, Pure(1.0))) == pytest.approx(
        1e9 * math.log(1 + 0.5 * (math.e - 1)), rel=1e-8
    )


def test_all_of_a_failure_can_be_spent() -> None:
    budget = Filter(1.0, 1e-6, failure=5e-7)
    budget.spend(Approximate(0.1, 5e-7))
    assert not budget.allows(Approximate(0.1, 1e-18))
