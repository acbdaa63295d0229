"""Laws at the extremes of every parameter: an answer that is a bound, no exception, no warning, nothing that is not a number.

Parameters are drawn from the ends of what is legal and from the places between where the code takes another way. The bounds are
compared with closed forms in high precision where there are some.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields

import mpmath as mp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.accounting import (
    Approximate,
    Concentrated,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Filter,
    Gaussian,
    Group,
    Laplace,
    NonPrivate,
    ObjectivePerturbation,
    Poisson,
    PoissonReplace,
    Pure,
    RandomizedResponse,
    Repeat,
    Sequence,
    StudentT,
    WithoutReplacement,
    Zero,
    concentrated,
    curve,
    renyi,
)
from discreet.accounting.profile import WIDE
from discreet.core import Event
from discreet.core.check import LARGEST_WHOLE
from strategies import LEAVES

noise = st.sampled_from(
    [5e-324, 1e-310, 1e-300, 1e-154, 1e-20, 1e-3, 0.3, 1.0, 63.9, 64.1, 1e3, 9.9e6, 1e7, 1e9, 1e15, 1e16, 1e100, 1e140, 1e154,
     1e160, 1e200, 1e300, 1.7e308]
)  # fmt: skip
size = st.sampled_from(
    [0.0, 5e-324, 1e-310, 1e-300, 1e-20, 1e-9, 1.0, 31.0, 710.0, 1e6, 1e11, 1e15, 1e100, 1e154, 1e300, 1.7e308]
)
share = st.sampled_from([0.0, 5e-324, 1e-300, 1e-100, 1e-17, 1e-9, 0.1, 0.5, 1 - 1e-9, 1 - 2**-53])
rate = share | st.just(1.0)
count = st.sampled_from([1, 2, 3, 1000, 10**6, 2**31, 2**40, LARGEST_WHOLE])
OF_NOISE = {Gaussian, Laplace, DiscreteGaussian, DiscreteLaplace, ObjectivePerturbation}
FIELDS = {
    "noise_multiplier": noise, "sigma": noise, "scale": noise, "epsilon": size, "rho": size, "curvature": size, "delta": share,
    "sensitivity": count, "categories": count.filter(lambda n: n > 1), "tapered": st.booleans(),
}  # fmt: skip
STUDENT = st.builds(  # sizes and counts belong together
    StudentT, noise_multiplier=noise, degrees=st.sampled_from([1.0, 2.0, 30.0]), sizes=st.just((1.0,)),
    counts=st.just((1,)),
)  # fmt: skip
leaf = st.one_of(
    *(
        st.builds(kind, **{name: FIELDS[name] for name in (field.name for field in fields(kind))})
        for kind in LEAVES if kind is not StudentT
    ),
    STUDENT,
)  # fmt: skip
DELTAS = (5e-324, 1e-300, 1e-30, 1e-6, 0.3)
EPSILONS = (0.0, 1e-300, 1e-9, 1.0, 50.0, 1e6, 1e15)
LEVELS = (0.0, 1e-9, 0.05, 0.5, 1.0)


def obeys(event: Event) -> None:
    """What every curve promises, wherever it is asked."""
    bound = curve(event)
    epsilons, deltas = [bound.epsilon(d) for d in DELTAS], [bound.delta(e) for e in EPSILONS]
    powers = [bound.power(level) for level in LEVELS]
    divergences = [renyi(event, order) for order in (1.0001, 2.0, 64.0, 1e6)]
    assert all(each >= 0 for each in (*epsilons, *divergences, concentrated(event)))
    assert all(0 <= each <= 1 for each in (*deltas, *powers))
    assert epsilons == sorted(epsilons, reverse=True)
    assert deltas == sorted(deltas, reverse=True)
    assert powers == sorted(powers)
    for delta, epsilon in zip(deltas, EPSILONS, strict=True):
        if 1e-290 < delta < 0.9 and delta > bound.delta(math.inf) * (
            1 + 1e-6
        ):  # not where nearly all of it is that all is told
            assert bound.epsilon(delta) <= epsilon * (1 + 1e-2) + 1e-6
    assert Filter(1.0, 1e-6, failure=5e-7).allows(event) in (True, False)


@settings(max_examples=150, deadline=None)
@given(leaf)
def test_every_mechanism_at_its_extremes(event: Event) -> None:
    obeys(event)


@settings(max_examples=15, deadline=None)
@given(
    leaf.flatmap(
        lambda event: st.one_of(
            st.builds(Poisson, rate, st.just(event)),
            st.builds(Repeat, st.just(event), count),
            st.builds(Group, st.just(event), count),
            st.builds(lambda other: Sequence([event, other]), leaf),
        )
    )
)  # fmt: skip
def test_sampled_repeated_grouped_and_mixed_mechanisms_at_their_extremes(event: Event) -> None:
    obeys(event)


@pytest.mark.parametrize("event", [
    DiscreteGaussian(1e160), DiscreteGaussian(1.7e308, LARGEST_WHOLE), DiscreteGaussian(1e-310, 3), Laplace(1e-310),
    DiscreteLaplace(1e-310, 1000), Repeat(Concentrated(1.7e308), 2), Repeat(DiscreteGaussian(1e160), LARGEST_WHOLE),
    Poisson(1e-300, DiscreteGaussian(1e160)), Repeat(Laplace(1e16), 2), Repeat(Pure(31.0), 10**6),
    Group(DiscreteGaussian(1e-160), LARGEST_WHOLE),
])  # fmt: skip
def test_events_that_once_raised(event: Event) -> None:
    obeys(event)


AROUND: list[Callable[[float, Event], Event]] = [Poisson, PoissonReplace, WithoutReplacement]
INSIDE = [
    Zero(), NonPrivate(), Pure(0.0), Pure(710.0), RandomizedResponse(800.0, 3), Exponential(1e6), Laplace(1e-3), Laplace(1e-99),
    DiscreteLaplace(1e-3), Gaussian(1e-310), Gaussian(1.0), DiscreteGaussian(0.01), Approximate(710.0, 0.5),
]  # fmt: skip


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("taken", [0.0, 5e-324, 1e-300, 0.5, 1 - 2**-53, 1.0])
def test_samples_at_the_ends_of_what_a_rate_may_be(around: Callable[[float, Event], Event], taken: float) -> None:
    """They have a price or no bound, never an error; every delta is a probability."""
    for inside in INSIDE:
        event = around(taken, inside)
        seen, budget = curve(event), Filter(1.0, 1e-6, failure=5e-7)
        assert all(0 <= seen.delta(epsilon) <= 1 for epsilon in (0.0, 1e-300, 1.0, 700.0, 1e15))
        assert budget.pure_cost(event) >= 0
        assert budget.allows(event) in (True, False)
        if taken == 0 or isinstance(inside, Zero):
            assert seen.delta(0.0) == 0
            assert budget.allows(event)


def gaussian(mu: mp.mpf, epsilon: mp.mpf) -> mp.mpf:
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    return (mp.erfc(a / mp.sqrt(2)) - mp.exp(epsilon) * mp.erfc(b / mp.sqrt(2))) / 2


def whole_gaussian(sigma: mp.mpf, sensitivity: int, epsilon: mp.mpf) -> mp.mpf:
    """A discrete Gaussian's delta for sigma from 64 on: tails by Euler and Maclaurin, at the threshold that is best."""

    def tail(k: mp.mpf) -> mp.mpf:
        u = k / sigma
        inner = (
            mp.mpf(1) / 2 + u / sigma / 12 + (3 * u - u**3) / sigma**3 / 720 + (u**5 - 10 * u**3 + 15 * u) / sigma**5 / 30240
        )
        return mp.erfc(u / mp.sqrt(2)) / 2 + mp.exp(-u * u / 2) / sigma / mp.sqrt(2 * mp.pi) * inner

    least = mp.floor(epsilon * sigma * sigma / sensitivity + mp.mpf(sensitivity) / 2) + 1
    return tail(least - sensitivity) - mp.exp(epsilon) * tail(least)


@settings(max_examples=40, deadline=None)
@given(st.floats(-2, 307), st.sampled_from([1e-320, 1e-300, 1e-100, 1e-12, 1e-3]))
def test_a_gaussian_of_any_size_is_never_below_the_truth_and_near_it(power: float, delta: float) -> None:
    sigma = 10.0**power
    found = curve(Gaussian(sigma)).epsilon(delta)
    mu = 1 / mp.mpf(sigma)
    with mp.workdps(400):
        truth = gaussian(mu, mp.mpf(found)) if found < math.inf else mp.mpf(0)
        assert truth <= delta * (1 + mp.mpf(10) ** -9)
        if sigma < 1e304 and found > 0:
            assert truth >= delta * mp.mpf(0.99)


@settings(max_examples=40, deadline=None)
@given(st.floats(math.log10(65), 16), st.integers(1, 3000), st.floats(0, 36))
def test_a_discrete_gaussian_is_never_below_the_truth_and_near_it(power: float, sensitivity: int, place: float) -> None:
    """On both sides of the noise from which it is taken as a normal distribution."""
    sigma = 10.0**power
    mu = min(sensitivity / sigma, 20.0)
    sensitivity = max(1, math.floor(mu * sigma))
    epsilon = mu * place + mu * mu / 2
    found = curve(DiscreteGaussian(sigma, sensitivity)).delta(epsilon)
    with mp.workdps(100):
        truth = whole_gaussian(mp.mpf(sigma), sensitivity, mp.mpf(epsilon))
        assert truth <= found * (1 + mp.mpf(10) ** -12)
        if (sigma >= WIDE or mu > 1e-4) and place + mu < 36:
            assert found <= truth * mp.mpf(1.01)
