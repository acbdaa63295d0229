"""Events that are many, or beyond every grid: gathered to fewer, an answer that is never below the truth.

No time is measured. What decides how long an answer takes is how many different mechanisms are composed, and that is counted.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import mpmath as mp
import numpy as np
import pytest

from discreet.accounting import (
    Approximate,
    Concentrated,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    Group,
    Laplace,
    ObjectivePerturbation,
    Poisson,
    PoissonReplace,
    Pure,
    RandomAllocation,
    RandomizedResponse,
    Repeat,
    Sequence,
    Shuffled,
    WithoutReplacement,
    curve,
    epsilon_by_renyi,
    gather,
    renyi,
    shuffle,
    table,
)
from discreet.accounting import profile as profiles
from discreet.accounting.plan import plan
from discreet.accounting.profile import gaussian_delta
from discreet.core import Event


def test_very_many_discrete_gaussians_are_one_part() -> None:
    rng = random.Random(0)
    many = Sequence([DiscreteGaussian(100 + 900 * rng.random(), 1 + k % 3) for k in range(20_000)])
    assert len(plan(many).parts) == 1
    square = sum((item.sensitivity / item.sigma) ** 2 for item in many.events)
    for delta in (1e-12, 1e-6, 1e-3):
        one = curve(Gaussian(1 / math.sqrt(square))).epsilon(delta)  # what so much discrete noise is hardly different from
        assert one * (1 - 1e-3) <= curve(many).epsilon(delta) <= one * 1.002


def test_a_few_discrete_gaussians_are_composed_as_they_are() -> None:
    assert len(plan(Sequence([DiscreteGaussian(3.0 + k, 1) for k in range(20)])).parts) == 20


@pytest.mark.parametrize("square", [1e-12, 1e-3, 1.0, 400.0])
def test_a_curve_known_by_divergences_is_above_that_of_a_gaussian(square: float) -> None:
    mu = math.sqrt(square)
    epsilon = np.concatenate([[0.0], np.geomspace(1e-5 * mu, 30 * mu + square, 300)])
    known, exact = gather.concentrated(square).delta(epsilon), gaussian_delta(mu, epsilon)
    assert np.all(known >= exact * (1 - 1e-9))


def test_discrete_gaussians_by_divergences_are_above_their_composition() -> None:
    events = [DiscreteGaussian(2.0 + 0.3 * k, 1) for k in range(10)]
    together = gather.concentrated(sum((item.sensitivity / item.sigma) ** 2 for item in events))
    exact = curve(Sequence(events))
    for epsilon in (0.1, 1.0, 3.0):
        assert float(together.delta(np.array([epsilon]))[0]) >= exact.delta(epsilon) * (1 - 1e-4)


def test_many_shuffles_are_gathered_and_cost_no_less(monkeypatch: pytest.MonkeyPatch) -> None:
    many = Sequence([Shuffled(RandomizedResponse(0.5 + k / 40, 2), 2000 + 301 * k) for k in range(12)])
    exact = curve(many).epsilon(1e-6)
    assert len(plan(many).parts) == 12
    monkeypatch.setattr(gather, "DIFFERENT", 60)
    monkeypatch.setattr("discreet.accounting.plan.DIFFERENT", 60)
    assert len(plan(many).parts) <= 6
    assert exact * (1 - 1e-6) <= curve(many).epsilon(1e-6) <= 1.5 * exact


def test_hundreds_of_shuffles_come_down_to_some() -> None:
    many = Sequence([Shuffled(Laplace(1 + k / 400), 1000 + 7 * k) for k in range(400)])
    assert gather.weight(dict.fromkeys(many.events, 1)) > gather.DIFFERENT
    assert len(gather.gathered(dict.fromkeys(many.events, 1))) <= gather.DIFFERENT // gather.COSTLY[Shuffled]


SOME: list[Callable[[int], Event]] = [
    lambda k: PoissonReplace(0.01 + k / 5000, Gaussian(2.0 + k / 30)),
    lambda k: RandomAllocation(Gaussian(3.0 + k / 20), 40 + k),
    lambda k: Group(Poisson(0.01 + k / 5000, Gaussian(4.0 + k / 30)), 2),
    lambda k: Shuffled(Pure(0.0), 2 + k),
]


@pytest.mark.parametrize("make", SOME)
def test_sampled_and_grouped_events_are_gathered_and_cost_no_less(make: Callable[[int], Event], monkeypatch) -> None:
    many = Sequence(make(k) for k in range(12))
    exact = curve(many).epsilon(1e-6)
    weight = gather.weight(dict.fromkeys(many.events, 1))
    monkeypatch.setattr(gather, "DIFFERENT", weight // 2)
    monkeypatch.setattr("discreet.accounting.plan.DIFFERENT", weight // 2)
    assert len(plan(many).parts) <= 6
    assert exact * (1 - 1e-6) <= curve(many).epsilon(1e-6) <= 1.5 * exact


def test_the_table_of_a_shuffle_is_above_the_sum_and_near() -> None:
    pair = shuffle._clones(1.0, 5000, math.exp(-1.0))
    epsilon = np.linspace(0.0, 0.5, shuffle.FEW + 40)
    exact, read = pair.exactly(epsilon), pair.delta(epsilon)
    assert np.all(read >= exact * (1 - 1e-12))
    assert np.all(read <= exact * 1.02 + 1e-30)


def test_losses_beyond_every_grid_add_up() -> None:
    alone = curve(DiscreteGaussian(34.46, 10**9)).epsilon(1e-6)
    bound = curve(Sequence([DiscreteGaussian(34.46, 10**9), RandomAllocation(Gaussian(2.0), 100)]))
    epsilon = bound.epsilon(1e-6)
    assert alone <= epsilon <= alone * (1 + 1e-6) + 100
    assert bound.delta(1.0) == 1.0
    assert bound.delta(epsilon * 1.01) <= 1e-6
    assert bound.power(0.1) == 1.0


def test_several_steps_on_one_sample_are_composed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The composed profile is kept: ten samples of the same run ask for it once, and one direction stands for both."""
    calls = []
    monkeypatch.setattr(
        table, "_table", lambda whole, direction, top, real=table._table: calls.append(direction) or real(whole, direction, top)
    )
    run = Repeat(Laplace(1.7320508), 50)
    bound = curve(Sequence([Poisson(0.1 + k / 1000, run) for k in range(10)]))
    assert calls == [0]
    assert 0 < bound.epsilon(1e-6) < curve(Repeat(run, 10)).epsilon(1e-6)


def kinds(rng: random.Random) -> list[Callable[[], Event]]:
    def noise() -> float:
        return 10 ** rng.uniform(2, 4)

    return [
        lambda: Gaussian(noise()), lambda: Poisson(10 ** rng.uniform(-3, -1), Gaussian(noise() / 100)),
        lambda: DiscreteGaussian(noise()), lambda: Laplace(noise()), lambda: Approximate(1 / noise(), noise() * 1e-15),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [0, 1, 2, 3, 4, None])
def test_ten_times_as_many_events_are_hardly_more_parts(kind: int | None) -> None:
    """What a hundred thousand cost is how many parts are composed: it stops growing, for each kind and for a mix of all."""
    counted = []
    for many in (2_000, 20_000):
        made = kinds(random.Random(many))
        seen = plan(Sequence([made[k % len(made) if kind is None else kind]() for k in range(many)]))
        counted.append(len(seen.parts))
    assert counted[1] <= min(gather.DIFFERENT, 1.5 * counted[0] + 1)


def test_what_is_counted_together_is_part_of_every_bound() -> None:
    """Discrete Gaussians beyond `DIFFERENT`, beside an event for which Rényi composition is asked as well."""
    whole = [DiscreteGaussian(20 + k / 50, 1) for k in range(gather.DIFFERENT + 10)]
    alone, both = curve(Sequence(whole)), curve(Sequence([*whole, Exponential(1e-3)]))
    merged = curve(Gaussian(1 / math.sqrt(math.fsum(item.sigma**-2 for item in whole))))
    assert epsilon_by_renyi(Sequence(whole), 1e-6) > both.epsilon(1e-6) >= alone.epsilon(1e-6) >= merged.epsilon(1e-6) > 4
    assert both.delta(1.0) >= alone.delta(1.0) >= merged.delta(1.0) > 0
    assert both.power(0.01) >= alone.power(0.01) >= merged.power(0.01) > 0.08


@pytest.mark.parametrize("more", [(), (Exponential(0.1),), (Concentrated(0.01),), (Laplace(3.0), Pure(0.1))])
def test_the_divergences_of_a_plan_are_those_of_its_event(more: tuple[Event, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """At every order, with nothing left out: each event is among the counts, or one that dominates it."""
    makes = (*SOME[:3], lambda k: DiscreteGaussian(5.0 + k / 9), lambda k: Laplace(2 + k / 7))
    listed = [make(k) for k in range(8) for make in makes]
    monkeypatch.setattr(gather, "DIFFERENT", 20)
    monkeypatch.setattr("discreet.accounting.plan.DIFFERENT", 20)
    event = Sequence([*listed, *more])
    counts = plan(event).counts
    for order in (1.5, 2.0, 8.0, 33.0):
        assert sum(n * renyi(item, order) for item, n in counts) >= renyi(event, order) * (1 - 1e-12)


@pytest.mark.parametrize("sigma", [2.0, 2.6, 3.0, 5.0, 17.5, 300.0])
def test_a_discrete_gaussian_is_a_rounding_of_less_gaussian_noise(sigma: float) -> None:
    """Its profile is below that of the Gaussian mechanism in its place, or of its divergences, alone and sampled."""
    for size in (1, 3):
        event = DiscreteGaussian(sigma, size)
        epsilon = np.concatenate([[0.0], np.geomspace(1e-3 * size / sigma, 30 * size / sigma, 400)])
        for rate, simple in ((1.0, gather.simplified(event)), (0.01, gather._within(event))):
            exact, known = (plan(Poisson(rate, each)).parts[0][0].delta(epsilon) for each in (event, simple))
            large = exact > 1e-200  # below, `exact` is raised by far more than the difference
            rounding = 1e-12 if sigma < 64 else 1e-7  # that it is raised by, where tails cancel
            assert np.all(known[large] >= exact[large] * (1 - rounding))


def test_a_random_rounding_of_gaussian_noise_is_the_discrete_gaussian() -> None:
    """The lemma itself, in 40 digits: the density of x + rounding, over that of the discrete Gaussian, is 1 to 1e-33."""
    with mp.workdps(40):
        sigma, rest = mp.mpf(3), mp.sqrt(5)

        def near(k: int) -> mp.mpf:
            def inner(x: mp.mpf) -> mp.mpf:
                whole = mp.fsum(mp.exp(-((j - x) ** 2) / 8) for j in range(int(x) - 28, int(x) + 29))
                return mp.exp(-x * x / 2 / rest**2 - (k - x) ** 2 / 8) / whole

            total = mp.quad(inner, mp.linspace(-36, 36, 13), maxdegree=5)
            return total / mp.exp(-(mp.mpf(k) ** 2) / 2 / sigma**2)

        first = near(0)
        assert all(abs(near(k) / first - 1) < mp.mpf(10) ** -33 for k in (1,))


EXACT: list[Callable[[random.Random], Event]] = [
    lambda r: Poisson(r.uniform(0.01, 0.05), DiscreteGaussian(r.uniform(3, 9))),
    lambda r: Poisson(r.uniform(0.01, 0.05), DiscreteLaplace(r.uniform(9, 20), r.randint(1, 9))),
    lambda r: WithoutReplacement(r.uniform(0.01, 0.05), Repeat(Laplace(r.uniform(9, 20)), r.randint(1, 4))),
    lambda r: Poisson(r.uniform(0.01, 0.05), Sequence([Gaussian(r.uniform(4, 9)), Pure(r.uniform(0.1, 0.2))])),
    lambda r: Group(Poisson(r.uniform(0.001, 0.01), Gaussian(r.uniform(4, 9))), r.randint(1, 4)),
    lambda r: RandomizedResponse(r.uniform(0.01, 0.1), r.randint(2, 6)),
    lambda r: Poisson(r.uniform(0.01, 0.05), Approximate(r.uniform(0.1, 0.3), r.uniform(1e-9, 1e-8))),
    lambda r: ObjectivePerturbation(r.uniform(20, 60), r.uniform(1e-4, 1e-3), r.random() < 0.5),
]


@pytest.mark.parametrize("make", EXACT)
def test_whatever_is_put_into_cells_costs_no_less(make: Callable[[random.Random], Event], monkeypatch) -> None:
    rng = random.Random(4)
    many = Sequence([make(rng) for _ in range(16)])
    exact = curve(many)
    known = [(delta, exact.epsilon(delta)) for delta in (1e-5, 1e-3, 0.05)]
    weight = gather.weight(dict.fromkeys(many.events, 1))
    monkeypatch.setattr(gather, "DIFFERENT", weight // 2)
    monkeypatch.setattr("discreet.accounting.plan.DIFFERENT", weight // 2)
    seen = curve(many)
    assert len(plan(many).parts) <= 9
    for delta, epsilon in known:
        assert epsilon * (1 - 1e-4) <= seen.epsilon(delta) <= 2.5 * epsilon + 1e-9


@pytest.mark.parametrize(
    "make",
    [
        lambda r: Poisson(r.uniform(1e-3, 0.1), DiscreteGaussian(r.uniform(2.6, 60), r.randint(1, 3))),
        lambda r: DiscreteLaplace(r.uniform(1e3, 1e4), r.randint(1, 10**6)),
        lambda r: RandomAllocation(DiscreteGaussian(r.uniform(10, 60)), r.randint(10, 1000)),
        lambda r: Poisson(r.uniform(1e-3, 0.1), Repeat(DiscreteGaussian(r.uniform(10, 60)), r.randint(1, 30))),
        lambda r: ObjectivePerturbation(r.uniform(50, 600), r.uniform(1e-9, 1e-8), True),
    ],
)
def test_kinds_that_cannot_be_moved_are_few_parts_as_well(make: Callable[[random.Random], Event]) -> None:
    """Samples of discrete Gaussians were composed one by one, however many: minutes for a hundred thousand."""
    rng = random.Random(6)
    seen = plan(Sequence([make(rng) for _ in range(5000)]))
    assert len(seen.parts) <= gather.DIFFERENT
    assert sum(n for _, n in seen.counts) == 5000


def test_hardly_any_noise_many_times_hides_nothing() -> None:
    for event in (Repeat(Gaussian(5e-324), 1000), Sequence([Gaussian(5e-324), Gaussian(1e-320), Laplace(1.0)])):
        assert curve(event).epsilon(1e-6) == math.inf
        assert curve(event).power(0.5) == 1.0


def test_power_is_a_number_where_a_delta_is_none() -> None:
    """What is not a number bounds nothing, in either direction alone as in both."""
    none, some, epsilon = np.array([math.nan]), np.array([0.1]), np.array([1.0])
    assert profiles.power_bound(epsilon, none, none, 0.1) == [1.0]
    assert profiles.power_bound(epsilon, none, some, 0.1) == 1 - math.exp(-1.0) * 0.8
    assert profiles.power_bound(epsilon, some, none, 0.1) == 0.1 + math.exp(1.0) * 0.1
    bound = curve(Poisson(0.5, ObjectivePerturbation(1.0, 247.0, True)))
    for level in (0.0, 0.3, 1.0):
        assert level <= bound.power(level) <= 1
