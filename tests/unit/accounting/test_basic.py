"""Against basic composition: epsilons and deltas of the parts add up, and no answer for all of them together is above that."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest

from discreet.accounting import (
    Approximate,
    DiscreteGaussian,
    Exponential,
    Gaussian,
    Group,
    Laplace,
    Poisson,
    PoissonReplace,
    Pure,
    Repeat,
    Sequence,
    WithoutReplacement,
    curve,
)
from discreet.accounting.plan import plan
from discreet.accounting.rounding import float_up, total_up
from discreet.core import Event

GRID = 3e-5  # what the grid of a composition may cost


def drawn(rng: random.Random) -> Event:
    size, noise, delta = 10 ** rng.uniform(-6, 0.8), 10 ** rng.uniform(-0.3, 6), 10 ** rng.uniform(-12, -1)
    event = rng.choice([Pure(size), Approximate(size, delta), Approximate(0.0, delta), Gaussian(noise), Laplace(noise),
                        DiscreteGaussian(min(noise, 100.0)), Exponential(size)])  # fmt: skip
    rate = 10 ** rng.uniform(-3, -0.05)
    around = [event, event, Poisson(rate, event), WithoutReplacement(rate, event), PoissonReplace(rate, event),
              Repeat(event, 3), Group(event, 2), Poisson(rate, Repeat(event, 2))]  # fmt: skip
    return rng.choice(around)


@pytest.mark.parametrize("seed", range(20))
def test_no_epsilon_is_above_the_sum_of_those_of_the_parts(seed: int) -> None:
    """At deltas that are exactly what a part tells anyway, a billionth more, or anything more."""
    rng = random.Random(seed)
    parts = [drawn(rng) for _ in range(rng.randrange(2, 5))]
    pairs = []
    for part in parts:
        told = curve(part).delta(math.inf)
        delta = rng.choice([told, told, told * (1 + 1e-9), told + 10 ** rng.uniform(-15, -2)])
        pairs.append((curve(part).epsilon(delta), delta))
    together = curve(Sequence(parts)).epsilon(float_up(sum((Fraction(delta) for _, delta in pairs), Fraction(0))))
    assert together <= total_up((epsilon, 1) for epsilon, _ in pairs) * (1 + GRID)


@pytest.mark.parametrize("delta", [1e-300, 1e-17, 1e-6, 0.3])
def test_a_delta_that_is_exactly_what_fails_has_the_sum_of_epsilons(delta: float) -> None:
    event = Sequence([Pure(0.7), Approximate(1.1, delta)])
    total = float(Fraction(0.7) + Fraction(1.1))
    assert curve(event).epsilon(delta) == pytest.approx(total, rel=1e-15)
    assert curve(event).epsilon(delta * (1 + 1e-9)) <= total * (1 + 1e-15)
    assert curve(event).epsilon(math.nextafter(delta, 0.0)) == math.inf
    assert curve(event).delta(total * (1 + 1e-15)) == delta


def test_a_failure_beside_noise_leaves_the_rest_of_delta_to_the_noise() -> None:
    noise = curve(Gaussian(2.0))
    beside = curve(Sequence([Approximate(0.0, 1e-6), Gaussian(2.0)]))
    for more in (1e-9, 1e-3, 1.0):
        left = (1e-6 * (1 + more) - 1e-6) / (1 - 1e-6)
        assert noise.epsilon(left) <= beside.epsilon(1e-6 * (1 + more)) <= noise.epsilon(left) * (1 + 1e-9)
    assert beside.epsilon(1e-6) > 70  # nothing is left but what is below the smallest float
    assert beside.delta(3.0) == pytest.approx(1e-6 + (1 - 1e-6) * noise.delta(3.0), rel=1e-12)


def test_failures_are_not_lost() -> None:
    """Many together fail with 1 - (1 - delta)^n, alone, sampled and beside others."""
    event = Sequence([Repeat(Approximate(0.01, 1e-4), 300), Repeat(Approximate(0.02, 1e-5), 50)])
    truth = 1 - (1 - Fraction(1e-4)) ** 300 * (1 - Fraction(1e-5)) ** 50
    assert truth <= Fraction(curve(event).delta(math.inf)) <= truth * Fraction(1 + 1e-13)
    sampled = curve(Poisson(0.1, event)).delta(1e6)
    assert float(truth) * 0.1 <= sampled <= float(truth) * 0.1 * (1 + 1e-9)
    assert curve(event).power(0.0) >= float(truth)


def test_very_many_different_failures_are_few_parts() -> None:
    rng = random.Random(4)
    event = Sequence([Approximate(rng.uniform(1e-4, 1e-3), rng.uniform(1e-12, 1e-11)) for _ in range(20_000)])
    seen = plan(event)
    assert len(seen.parts) <= 600
    assert seen.told == pytest.approx(sum(item.delta for item in event.events), rel=1e-6)
