"""Laws every curve obeys, whatever the event."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet import accounting
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
    Poisson,
    Pure,
    RandomizedResponse,
    Repeat,
    Sequence,
    WithoutReplacement,
    Zero,
    calibrate,
    closed,
    curve,
    renyi,
)
from discreet.accounting.profile import power_bound
from discreet.errors import DiscreetError, InvalidValue
from strategies import events as anything

noise = st.floats(0.3, 50)
budget = st.floats(0.01, 3)
rate = st.floats(0.001, 1)
single = st.one_of(
    noise.map(Gaussian),
    noise.map(Laplace),
    budget.map(Pure),
    budget.map(Exponential),
    budget.map(NoisyMax),
    st.builds(RandomizedResponse, budget, st.integers(2, 20)),
    st.builds(DiscreteGaussian, noise, st.integers(1, 4)),
    st.builds(DiscreteLaplace, noise, st.integers(1, 4)),
    st.builds(Approximate, budget, st.floats(0, 1e-4)),
)
sampled = st.one_of(single, st.builds(Poisson, rate, single), st.builds(WithoutReplacement, rate, single))
event = st.one_of(
    sampled,
    st.builds(Repeat, sampled, st.integers(1, 300)),
    st.lists(sampled, min_size=1, max_size=4).map(Sequence),
    st.builds(Group, sampled, st.integers(1, 4)),
)
delta = st.sampled_from([1e-9, 1e-6, 1e-3, 0.1])
level = st.floats(1e-6, 1)
slow = settings(max_examples=60, deadline=None)
SLACK = 2e-3  # curves are upper bounds on different grids: equal things agree to this


@slow
@given(event, delta, delta)
def test_epsilon_falls_as_delta_grows(what, one, two) -> None:
    low, high = sorted((one, two))
    assert curve(what).epsilon(high) <= curve(what).epsilon(low) * (1 + SLACK) + 1e-9


extreme = st.builds(
    lambda sigma, share, times: Repeat(Poisson(10.0**share, Gaussian(10.0**sigma)), round(10.0**times)),
    st.floats(-0.5, 4), st.floats(-9, 0), st.floats(0.3, 9),
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(st.one_of(event, extreme), st.lists(st.floats(-300, -0.31), min_size=2, max_size=4), st.floats(0.001, 0.01))
def test_answers_of_one_curve_never_contradict_each_other(what, powers, step) -> None:
    """In whatever order they are asked for, and however near each other: exactly, without a slack."""
    bound = curve(what)
    deltas = [10.0**power for power in powers] + [10.0 ** (powers[0] - step)]
    epsilons = [bound.epsilon(each) for each in deltas]
    order = sorted(range(len(deltas)), key=deltas.__getitem__)
    assert all(epsilons[after] <= epsilons[before] for before, after in pairwise(order))
    assert [bound.epsilon(each) for each in deltas] == epsilons
    places = [each for each in (epsilons[0] * 1.3, epsilons[0] * 1.2999, epsilons[0] * 1.4) if each < math.inf]
    found = {place: bound.delta(place) for place in places}
    assert all(found[after] <= found[before] for before, after in pairwise(sorted(found)))
    levels = {level: bound.power(level) for level in (0.05, 0.0501, 1e-3, 0.3)}
    assert all(levels[before] <= levels[after] for before, after in pairwise(sorted(levels)))


@slow
@given(event, delta)
def test_epsilon_and_delta_invert_each_other(what, small) -> None:
    bound = curve(what)
    epsilon = bound.epsilon(small)
    if 0 < epsilon < math.inf:
        assert bound.delta(epsilon * (1 + SLACK) + 1e-9) <= small
        assert curve(what).delta(epsilon * (1 + SLACK) + 1e-9) <= small
        assert curve(what).delta(epsilon * (1 - SLACK)) >= small * (1 - SLACK)


@slow
@given(event, level, level)
def test_power_is_a_test_power(what, one, two) -> None:
    low, high = sorted((one, two))
    bound = curve(what)
    assert low <= bound.power(low) <= 1
    assert bound.power(low) <= bound.power(high) * (1 + SLACK) + 1e-12


@slow
@given(event, st.floats(0.001, 0.999))
def test_belief_never_falls_and_stays_below_the_pure_bound(what, prior) -> None:
    bound = curve(what)
    after = bound.posterior(prior)
    assert prior * (1 - 1e-9) <= after <= 1
    most = bound.epsilon(0)
    if most < 30:
        assert after <= prior * math.exp(most) / (1 + prior * math.expm1(most)) + 1e-9


@slow
@given(st.lists(sampled, min_size=2, max_size=5), delta, st.randoms(use_true_random=False))
def test_order_does_not_matter(items, small, random) -> None:
    mixed = list(items)
    random.shuffle(mixed)
    assert curve(Sequence(items)).epsilon(small) == pytest.approx(curve(Sequence(mixed)).epsilon(small), rel=SLACK, abs=1e-9)


@slow
@given(sampled, st.integers(1, 30), delta)
def test_repeating_is_a_sequence(what, times, small) -> None:
    repeated, listed = curve(Repeat(what, times)), curve(Sequence([what] * times))
    assert repeated.epsilon(small) == pytest.approx(listed.epsilon(small), rel=SLACK, abs=1e-9)


@slow
@given(event, single, delta)
def test_more_is_never_less(what, more, small) -> None:
    assert curve(Sequence([what, more])).epsilon(small) >= curve(what).epsilon(small) * (1 - SLACK) - 1e-9
    assert curve(Sequence([what, Zero()])).epsilon(small) == pytest.approx(curve(what).epsilon(small), rel=SLACK, abs=1e-9)


@slow
@given(event, delta)
def test_never_above_basic_composition_nor_the_largest_loss(what, small) -> None:
    bound = curve(what)
    assert bound.epsilon(small) <= bound.epsilon(0) * (1 + 1e-9)


@slow
@given(single, rate, st.integers(1, 100), delta)
def test_sampling_never_hurts(what, share, times, small) -> None:
    whole = curve(Repeat(what, times)).epsilon(small)
    assert curve(Repeat(Poisson(share, what), times)).epsilon(small) <= whole * (1 + 5 * SLACK) + 1e-9
    assert curve(Repeat(WithoutReplacement(share, what), times)).epsilon(small) <= whole * (1 + 5 * SLACK) + 1e-9


@settings(max_examples=30, deadline=None)
@given(st.floats(0.3, 20), rate, st.integers(1, 10**6), st.sampled_from([1e-100, 1e-9, 1e-6, 1e-3]), st.floats(1.001, 3))
def test_more_noise_fewer_steps_and_a_smaller_rate_never_cost_more(sigma, share, times, small, factor) -> None:
    """Up to `SLACK`: every epsilon is an upper bound within a part in a thousand of a truth that is monotone, each on a grid of
    its own. So two of them may come in the wrong order by as much as they exceed the truth, but by no more."""

    def cost(noise: float, fraction: float, steps: int) -> float:
        return curve(Repeat(Poisson(fraction, Gaussian(noise)), steps)).epsilon(small)

    here = cost(sigma, share, times)
    assert cost(sigma * factor, share, times) <= here * (1 + SLACK) + 1e-12
    assert cost(sigma, share / factor, times) <= here * (1 + SLACK) + 1e-12
    assert cost(sigma, share, max(int(times / factor), 1)) <= here * (1 + SLACK) + 1e-12


@settings(max_examples=20, deadline=None)
@given(event, st.floats(1e-4, 0.3), st.floats(0.05, 0.95))
def test_power_is_concave_and_never_below_the_level(what, low, share) -> None:
    """A mixture of two tests is a test, so the true power is concave. What is computed exceeds it by less than `SLACK`, or it
    would not be within a part in a thousand of the truth; that much the middle may fall below the chord."""
    high = low + 0.6
    middle = share * low + (1 - share) * high
    bound = curve(what)
    powers = [bound.power(level) for level in (low, middle, high)]
    assert all(power >= level for power, level in zip(powers, (low, middle, high)))
    assert powers == sorted(powers) or max(powers[0] - powers[1], powers[1] - powers[2]) < SLACK
    sides = [[power_bound(*side, level).min() for side in bound._bound.near(level)] for level in (low, middle, high)]
    for at_low, at_middle, at_high in zip(*sides, strict=True):  # the larger of two need not be concave
        assert at_middle >= share * at_low + (1 - share) * at_high - SLACK


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.one_of(budget.map(Pure), noise.map(Laplace)), min_size=1, max_size=3),
    noise,
    st.integers(1, 50),
    st.lists(st.floats(1e-12, 0.3), min_size=2, max_size=4),
)  # fmt: skip
def test_epsilon_does_not_rise_with_delta_where_pure_and_gaussian_events_mix(pure, sigma, times, deltas) -> None:
    bound = curve(Sequence([Repeat(Gaussian(sigma), times), *pure]))
    epsilons = [bound.epsilon(small) for small in sorted(deltas)]
    assert all(after <= before * (1 + SLACK) + 1e-9 for before, after in pairwise(epsilons))


@slow
@given(sampled, st.integers(1, 4), delta)
def test_groups_know_more(what, size, small) -> None:
    assert curve(Group(what, size)).epsilon(small) >= curve(what).epsilon(small) * (1 - SLACK) - 1e-9


@slow
@given(sampled, st.integers(1, 50), st.floats(1.05, 30))
def test_renyi_adds_up_and_grows_with_order(what, times, order) -> None:
    assert renyi(Repeat(what, times), order) == pytest.approx(times * renyi(what, order))
    assert renyi(what, order) <= renyi(what, order * 1.5) * (1 + 1e-9)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.05, 20), st.sampled_from([1e-8, 1e-5]), rate, st.integers(1, 2000))
def test_calibration_never_overshoots(epsilon, small, share, times) -> None:
    def make(level):
        return Repeat(Poisson(share, Gaussian(level)), times)

    assert curve(make(calibrate(make, epsilon, small))).epsilon(small) <= epsilon


@settings(max_examples=60, deadline=None)
@given(
    anything, st.sampled_from([1e-300, 1e-9, 0.01]), st.sampled_from([0.0, 0.3, 1e6]), st.sampled_from([0.0, 1e-6, 0.5, 1.0])
)
def test_any_event_gets_an_answer(what, small, epsilon, at) -> None:
    """Events of any size, nested at will: four numbers that mean something, and no warning on the way."""
    bound = curve(what)
    assert bound.epsilon(small) >= 0
    assert 0 <= bound.delta(epsilon) <= 1
    assert at <= bound.power(at) <= 1
    assert 0.1 * (1 - 1e-9) <= bound.posterior(0.1) <= 1
    assert renyi(what, 2.5) >= 0


BAD_NUMBERS = [-1, -1e-300, math.nan, math.inf, -math.inf, "1", None, True, [], 10**400, 1j]
MAKERS = {
    "Gaussian": Gaussian, "Laplace": Laplace, "Pure": Pure, "Exponential": Exponential, "NoisyMax": NoisyMax,
    "RandomizedResponse": RandomizedResponse, "DiscreteGaussian": DiscreteGaussian, "DiscreteLaplace": DiscreteLaplace,
    "Approximate": lambda x: Approximate(1.0, x), "Approximate2": lambda x: Approximate(x, 1e-6),
    "sensitivity": lambda x: DiscreteGaussian(1.0, x), "categories": lambda x: RandomizedResponse(1.0, x),
    "Poisson": lambda x: Poisson(x, Gaussian(1.0)), "WithoutReplacement": lambda x: WithoutReplacement(x, Gaussian(1.0)),
    "Repeat": lambda x: Repeat(Gaussian(1.0), x), "Group": lambda x: Group(Gaussian(1.0), x),
    "epsilon": lambda x: curve(Gaussian(1.0)).epsilon(x), "power": lambda x: curve(Gaussian(1.0)).power(x),
    "posterior": lambda x: curve(Gaussian(1.0)).posterior(x), "curve": curve, "events": Sequence,
    "Repeat.event": lambda x: Repeat(x, 2), "order": lambda x: renyi(Gaussian(1.0), x),
    "calibrate.epsilon": lambda x: calibrate(Gaussian, x, 1e-5), "calibrate.delta": lambda x: calibrate(Gaussian, 1.0, x),
    "Filter.epsilon": lambda x: Filter(x, 1e-6), "Filter.delta": lambda x: Filter(1.0, x),
    "laplace_scale": lambda x: closed.laplace_scale(x, 1.0), "gaussian_sigma": lambda x: closed.gaussian_sigma(1.0, 1.0, x),
    "classic": lambda x: closed.gaussian_sigma_classic(1.0, x, 1e-5),
    "sgd_sigma": lambda x: closed.sgd_sigma(1.0, x, 5, 1.0, 1e-5),
    "broken": lambda x: closed.broken_probability(1.0, 1e-6, x), "sampled": lambda x: closed.sampled_epsilon(1.0, x),
    "advanced": lambda x: closed.advanced_composition(0.1, 0.0, x, 1e-6), "alpha": closed.epsilon_of_alpha,
}  # fmt: skip


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("bad", BAD_NUMBERS, ids=repr)
def test_bad_input_is_told_so(name: str, bad) -> None:
    with pytest.raises(InvalidValue) as error:
        MAKERS[name](bad)
    assert isinstance(error.value, DiscreetError)
    assert len(str(error.value)) > 20


def test_empty_sequences_are_refused() -> None:
    with pytest.raises(InvalidValue, match="at least one event"):
        Sequence([])


def test_the_public_names() -> None:
    assert all(hasattr(accounting, name) for name in accounting.__all__)
