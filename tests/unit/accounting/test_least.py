"""The lesser of two bounds, by few orders: what the search leaves out is compared with all orders; what it asks is counted."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.accounting import (
    Exponential,
    Gaussian,
    Poisson,
    PoissonReplace,
    Repeat,
    Sequence,
    basic,
    curve,
    epsilon_from_concentrated,
    epsilon_from_renyi,
    lattice,
    least,
    mesh,
    renyi,
)
from discreet.accounting.plan import plan
from discreet.accounting.profile import Profile
from discreet.accounting.renyi import ORDERS, best_order
from discreet.core import Event
from discreet.core.event import DiscreteGaussian, Laplace
from discreet.synth.measure import concentrated_for


def _all_orders(event: Event, delta: float) -> float:
    return min(epsilon_from_renyi(renyi(event, order), order, delta) for order in ORDERS)


def _by_search(event: Event) -> least.Least:
    found = curve(event)._bound
    assert isinstance(found, least.Least)
    return found


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 3).flatmap(lambda n: st.lists(st.floats(-3, 0), min_size=n, max_size=n)),
    st.floats(0.7, 4),
    st.integers(1, 10**6),
    st.floats(-40, -0.5),
)
def test_the_best_of_the_orders_is_found_by_halving(epsilons, noise, times, log_delta) -> None:
    event = Sequence(
        [
            *(Exponential(10**each) for each in epsilons),
            Repeat(Poisson(0.01, Gaussian(noise)), times),
            DiscreteGaussian(10 * noise),
        ]
    )
    search, delta = _by_search(event), 10**log_delta
    found = search._best(lambda divergence, order: epsilon_from_renyi(divergence, order, delta))
    every = _all_orders(event, delta)
    assert every * (1 - 1e-12) <= found <= every * (1 + 1e-6)
    assert len(search._divergences) <= 16


def test_a_hundred_different_events_are_asked_for_sixteen_orders_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than that for each part, however many the orders; and none where every divergence takes long."""
    asked: list[float] = []
    monkeypatch.setattr(least, "renyi", lambda event, order: asked.append(order) or renyi(event, order))
    rng = random.Random(4)
    made = (lambda: Exponential(rng.uniform(0.01, 0.1)), lambda: Laplace(rng.uniform(9, 90)))
    event = Sequence([make() for _ in range(50) for make in made])
    bound = curve(event)
    bound.epsilon(1e-6)
    assert 0 < len(asked) <= 16 * 100
    assert bound.epsilon(1e-6) <= _all_orders(event, 1e-6) * (1 + 1e-9)
    more = Sequence([*event.events, Exponential(0.2)])
    search, every = _by_search(more), _all_orders(more, 1e-6)
    assert every <= search._best(lambda divergence, order: epsilon_from_renyi(divergence, order, 1e-6)) <= every * 1.02
    assert set(search._orders) == set(least.FEW_ORDERS)
    asked.clear()
    slow = [PoissonReplace(rng.uniform(0.01, 0.1), Gaussian(rng.uniform(9, 90))) for _ in range(least.FEW_COSTLY + 1)]
    several = [Laplace(rng.uniform(90, 900)) for _ in range(least.SEVERAL)]
    search = least.Least(tuple((item, 1) for item in (*slow, *several)), curve(Sequence(slow))._bound)  # type: ignore[arg-type]
    assert search.epsilon(1e-6) > 0
    assert search.delta(0.5) > 0
    assert not asked


@pytest.mark.parametrize("delta", [0.3, 1e-5, 1e-60, 1e-300])
@pytest.mark.parametrize("rho", [1e-12, 1e-4, 0.05, 2.0, 300.0, 1e9])
def test_the_order_of_a_concentrated_mechanism_is_the_best(rho: float, delta: float) -> None:
    """Against a dense search over orders, 1 + e^u."""
    dense = min(epsilon_from_renyi(rho * order, order, delta) for order in (1 + math.exp(u / 100) for u in range(-1300, 7000)))
    order = best_order(rho, delta)
    assert order > 1
    assert epsilon_from_concentrated(rho, delta) <= dense * (1 + 1e-12) + 1e-15


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 8.0])
def test_the_largest_rho_of_a_budget_keeps_it_and_hardly_more_would(epsilon: float, delta: float) -> None:
    rho = concentrated_for(epsilon, delta)
    assert epsilon_from_concentrated(rho, delta) <= epsilon < epsilon_from_concentrated(rho * (1 + 3e-6), delta)


KINDS = st.tuples(st.sampled_from([Gaussian, Laplace, Exponential]), st.floats(-1, 2), st.integers(1, 20))


@settings(max_examples=60, deadline=None)
@given(st.lists(KINDS, min_size=2, max_size=4), st.floats(-12, -1), st.floats(0.2, 3))
def test_where_basic_composition_is_not_asked_it_would_not_have_been_lower(drawn, log_delta, factor) -> None:
    counted = [(kind(10**x), n) for kind, x, n in drawn]
    parts = plan(Sequence([Repeat(item, n) for item, n in counted])).parts
    delta = 10**log_delta
    lowest = basic.epsilon(parts, delta)
    asked = lowest * factor
    if asked > lowest * (1 + 1e-6):
        assert basic.may_beat(parts, delta, asked)
    if not basic.may_beat(parts, delta, asked):
        assert lowest >= asked


def test_many_parts_are_looked_at_by_fewer_points_and_cost_no_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """More points can only lower the bound, and by little; how many are evaluated for each part is bounded."""
    rng, evaluated, real = random.Random(6), [0], lattice.second_differences
    made = (
        lambda: Poisson(10 ** rng.uniform(-3, -1), Gaussian(10 ** rng.uniform(0, 2))),
        lambda: Laplace(10 ** rng.uniform(1, 3)),
    )
    event = Sequence([make() for _ in range(mesh.MANY // 2 + 5) for make in made])

    def counted(profile: Profile, down: np.ndarray, up: np.ndarray) -> tuple:
        evaluated[0] += len(down) + len(up)
        return real(profile, down, up)

    monkeypatch.setattr(lattice, "second_differences", counted)
    epsilons, points = [], []
    for many in (10**9, mesh.MANY):  # a closer look first
        evaluated[0] = 0
        monkeypatch.setattr(mesh, "MANY", many)
        epsilons.append(curve(event).epsilon(1e-6))
        points.append(evaluated[0])
    assert epsilons[0] * (1 - 1e-4) <= epsilons[1] <= epsilons[0] * 1.005
    assert points[1] <= 0.6 * points[0]
    assert points[1] <= 10_000 * len(event.events)
