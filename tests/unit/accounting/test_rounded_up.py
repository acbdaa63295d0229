"""Everything that bounds a loss is rounded up, to the last bit: profiles, largest losses, groups, divergences, closed forms.

The truth is computed with 60 digits. Parameters reach to where a float formula cancels: rates next to 1, noise without effect.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import mpmath as mp
import pytest

from discreet.accounting import (
    DiscreteLaplace,
    Exponential,
    Filter,
    Gaussian,
    Group,
    Laplace,
    Poisson,
    PoissonReplace,
    Pure,
    RandomizedResponse,
    Repeat,
    WithoutReplacement,
    closed,
    concentrated,
    curve,
    epsilon_from_renyi,
)
from discreet.accounting.filter import EPSILON_UNIT, UNBOUNDED
from discreet.core import Event

Truth = Callable[[mp.mpf], mp.mpf]
RATES = (1e-310, 1e-40, 1e-9, 0.01, 0.5, 0.9996, 1 - 1e-9, 1 - 1e-12, 1 - 2**-53)


def normal(x: mp.mpf) -> mp.mpf:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def gaussian(sigma: float) -> Truth:
    mu = 1 / mp.mpf(sigma)
    return lambda e: normal(mu / 2 - e / mu) - mp.exp(e) * normal(-mu / 2 - e / mu)


def laplace(scale: float) -> Truth:
    return lambda e: max(-mp.expm1((e - 1 / mp.mpf(scale)) / 2), mp.mpf(0))


def response(epsilon: float, categories: int) -> Truth:
    norm = 1 + (categories - 1) * mp.exp(-mp.mpf(epsilon))
    return lambda e: max(-mp.expm1(e - mp.mpf(epsilon)), mp.mpf(0)) / norm


def exponential(epsilon: float) -> Truth:
    return lambda e: mp.expm1(min(e - mp.mpf(epsilon), 0) / 2) ** 2 / -mp.expm1(-mp.mpf(epsilon))


def discrete_laplace(scale: float, sensitivity: int) -> Truth:
    t = mp.exp(-1 / mp.mpf(scale))

    def above(k: int) -> mp.mpf:
        return t**k / (1 + t) if k >= 1 else 1 - t ** (1 - k) / (1 + t)

    return lambda e: max(above(k - sensitivity) - mp.exp(e) * above(k) for k in range(1, sensitivity + 1))


def sampled(rate: float, inner: Truth, e: mp.mpf) -> mp.mpf:
    """Both directions of a Poisson sample of a pair that is the same in both."""
    q, a = mp.mpf(rate), mp.exp(e)
    forward = q * inner(mp.log1p(mp.expm1(e) / q))
    left = 1 - a * (1 - q)
    backward = left * inner(mp.log(a * q / left)) if 0 < left <= a * q else mp.mpf(0)
    return max(forward, backward)


SINGLE: list[tuple[Event, Truth, float]] = [
    *((Gaussian(s), gaussian(s), 1 / s**2 + 30 / s) for s in (1e-7, 1e-3, 0.03, 1.0, 300.0, 6e7)),
    *((Laplace(b), laplace(b), 1 / b) for b in (0.01, 0.3, 11.5, 1e9)),
    *((RandomizedResponse(e, k), response(e, k), e) for e, k in ((1e-6, 2), (0.3, 31), (7.0, 900), (50.0, 2))),
    *((Exponential(e), exponential(e), e) for e in (4e-5, 0.7, 20.0)),
    *((DiscreteLaplace(b, s), discrete_laplace(b, s), s / b) for b, s in ((0.76, 14), (1.5e5, 25), (4.0, 1), (0.05, 3))),
]


@pytest.mark.parametrize(("event", "truth", "most"), SINGLE)
def test_deltas_of_single_mechanisms_and_their_samples_are_not_below_the_truth(event: Event, truth: Truth, most: float) -> None:
    places = random.Random(repr(event))
    with mp.workdps(60):
        for rate in (None, *RATES):
            for _ in range(4):
                inside = most * places.random()
                e = inside if rate is None else float(mp.log1p(rate * mp.expm1(inside)))
                right = truth(mp.mpf(e)) if rate is None else sampled(rate, truth, mp.mpf(e))
                found = curve(event if rate is None else Poisson(rate, event)).delta(e)
                assert found >= right
                assert found <= right * (1 + 1e-3) + 1e-320
            if rate is not None and e > 0:
                right = rate * truth(mp.log1p(mp.expm1(mp.mpf(e)) / mp.mpf(rate)))
                assert curve(WithoutReplacement(rate, event)).delta(e) >= right


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("epsilon", [1e-12, 0.3, 2.7, 20.4, 28.1, 36.9, 60.0, 690.0, 720.0])
def test_largest_losses_of_samples_are_not_below_the_truth(rate: float, epsilon: float) -> None:
    with mp.workdps(60):
        q, e = mp.mpf(rate), mp.mpf(epsilon)
        up, down = mp.log1p(q * mp.expm1(e)), -mp.log1p(q * mp.expm1(-e))
        pairs = [(Poisson(rate, Pure(epsilon)), up), (PoissonReplace(rate, Pure(epsilon)), up + down)]
        for event, right in pairs[: 1 if rate < 1e-100 else 2]:  # the other counts rates below 1e-100 as that
            found = curve(event).epsilon(0)
            assert right <= found <= right * (1 + 1e-12) + 1e-320
            assert Filter(1.0, 1e-6).pure_cost(event) >= min(right * EPSILON_UNIT, UNBOUNDED)


def test_losses_of_groups_are_not_below_the_truth() -> None:
    places = random.Random(0)
    for _ in range(300):
        e, size = places.choice((places.uniform(0.01, 5), 10 ** places.uniform(-12, 2))), places.randint(2, 9)
        with mp.workdps(60):
            grown, spread = mp.mpf(e) * size, size / mp.mpf(e)
            for kind in (Pure, RandomizedResponse, Exponential):
                assert curve(Group(kind(e), size)).epsilon(0) >= grown
            assert curve(Group(Laplace(e), size)).epsilon(0) >= spread
            assert closed.group_epsilon(e, size) >= grown
            assert concentrated(Group(Exponential(e), size)) >= grown**2 / 8
            assert concentrated(Repeat(Gaussian(e), size)) >= size / (2 * mp.mpf(e) ** 2)
            assert concentrated(Pure(e)) >= mp.mpf(e) * mp.tanh(mp.mpf(e) / 2)


def test_epsilons_of_divergences_are_not_below_the_truth() -> None:
    places = random.Random(0)
    for _ in range(300):
        order, divergence = places.choice((1.001, 1.5, 7.3, 1000.0)), 10 ** places.uniform(-12, 3)
        delta = 10 ** places.uniform(-300, -1)
        with mp.workdps(60):
            a = mp.mpf(order)
            right = divergence + mp.log1p(-1 / a) - (mp.log(mp.mpf(delta)) + mp.log(a)) / (a - 1)
            assert epsilon_from_renyi(divergence, order, delta) >= max(right, 0)


def test_closed_forms_hold_at_every_epsilon() -> None:
    places = random.Random(0)
    for _ in range(300):
        epsilon, delta = places.choice((places.uniform(0, 5), places.uniform(5, 1500))), 10 ** places.uniform(-300, -3)
        size, candidates = places.randint(2, 9), 10 ** places.uniform(0, 308)
        with mp.workdps(60):
            e, d = mp.mpf(epsilon), mp.mpf(delta)
            assert closed.group_delta(epsilon, delta, size) >= min(d * mp.expm1(size * e) / mp.expm1(e), 1)
            assert closed.broken_probability(epsilon, delta, candidates) >= min(mp.exp(e) / candidates + d, 1)
            assert closed.epsilon_of_alpha(epsilon) >= mp.log1p(e)
            assert closed.laplace_scale(float(size), epsilon) >= size / e
            sums = closed.basic_composition([(epsilon, delta), (0.1, 1e-7), (delta, 0.2)])
            assert sums[0] >= e + mp.mpf(0.1) + d
            assert sums[1] >= d + mp.mpf(1e-7) + mp.mpf(0.2)
    assert math.isclose(closed.group_delta(0.5, 1e-6, 3), 1e-6 * math.expm1(1.5) / math.expm1(0.5), rel_tol=1e-12)


def _composed(parts: list[tuple[list[tuple[float, float]], int]]) -> list[tuple[mp.mpf, mp.mpf]]:
    """All outcomes of discrete pairs, with their probabilities in both worlds."""
    whole = [(mp.mpf(1), mp.mpf(1))]
    for pair, times in parts:
        for _ in range(times):
            joined: dict[str, tuple[mp.mpf, mp.mpf]] = {}
            for a, b in whole:
                for c, d in pair:
                    before = joined.get(key := mp.nstr(a * c / (b * d), 20), (0, 0))
                    joined[key] = before[0] + a * c, before[1] + b * d
            whole = list(joined.values())
    return whole


def _pair(epsilon: float, rate: float = 1.0) -> list[tuple[mp.mpf, mp.mpf]]:
    q, keep = mp.mpf(rate), 1 / (1 + mp.exp(-mp.mpf(epsilon)))
    return [(q * a + (1 - q) * b, b) for a, b in ((keep, 1 - keep), (1 - keep, keep))]


FEW = [  # few large losses, each seen by itself in the curve
    (Repeat(Poisson(1.6e-4, Pure(10.0)), 5), [(_pair(10.0, 1.6e-4), 5)]),
    (Repeat(Poisson(0.003, Pure(7.0876)), 5), [(_pair(7.0876, 0.003), 5)]),
    (Repeat(Poisson(0.9917, Pure(4.02)), 6), [(_pair(4.02, 0.9917), 6)]),
]


@pytest.mark.parametrize(("event", "parts"), FEW)
def test_few_large_losses_cost_what_they_are(event: Event, parts) -> None:
    with mp.workdps(40):
        whole = _composed(parts)
        most = float(max(mp.log(a / b) for a, b in whole))

        def truth(e: float) -> mp.mpf:
            grown = mp.exp(mp.mpf(e))
            sides = (mp.fsum(max(a - grown * b, 0) for a, b in whole), mp.fsum(max(b - grown * a, 0) for a, b in whole))
            return max(sides)

        for share in (0.2, 0.45, 0.7, 0.9, 0.97):
            epsilon = share * most
            delta = float(truth(epsilon)) * (1 + 1e-9)
            found = curve(event).epsilon(delta)
            assert truth(found) <= delta
            assert found <= epsilon * 1.005
