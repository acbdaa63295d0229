"""Curves where steps are very many, losses tiny or uneven, deltas near the smallest float: against exact values.

All inputs are fixed or seeded. The truth comes from closed forms in high precision and from binomial
sums, which share nothing with the transforms they test.
"""

from __future__ import annotations

import dataclasses
import math
import random
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from discreet.accounting import (
    DiscreteLaplace,
    Gaussian,
    Laplace,
    Poisson,
    Pure,
    RandomAllocation,
    Repeat,
    Sequence,
    calibrate,
    curve,
    epsilon_by_renyi,
    gather,
    renyi,
)
from discreet.accounting import profile as profiles
from discreet.accounting.composition import Composition
from discreet.accounting.filter import Filter
from discreet.accounting.fourier import wave
from discreet.accounting.mesh import fitted
from discreet.accounting.rounding import float_up, quotient_up, total_up
from discreet.core import event as events


def gaussian_delta(mu: mp.mpf, epsilon: mp.mpf) -> mp.mpf:
    """Balle & Wang 2018, in high precision."""
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    return (mp.erfc(a / mp.sqrt(2)) - mp.exp(epsilon) * mp.erfc(b / mp.sqrt(2))) / 2


def gaussian_epsilon(mu: mp.mpf, delta: float) -> mp.mpf:
    low, high = mp.mpf(0), 60 * mu + mu * mu
    for _ in range(120):
        middle = (low + high) / 2
        low, high = (low, middle) if gaussian_delta(mu, middle) <= delta else (middle, high)
    return high


def gaussians(sigma: float, times: int) -> Composition:
    """Gaussian mechanisms that do not say that they are: their composition is computed, not known."""
    return Composition(((dataclasses.replace(profiles.gaussian(sigma), shift=None), times),))


def cells(count: int) -> list[tuple[float, int, float]]:
    """Noise, steps and delta with a total shift between a thousandth and ten; every scale of a single step."""
    rng = random.Random(7)
    out = []
    for _ in range(count):
        times = int(10 ** rng.uniform(0.4, 9))
        shift, delta = 10 ** rng.uniform(-3, 1), 10 ** rng.uniform(-300, -0.5)
        out.append((math.sqrt(times) / shift, times, delta))
    return out


@pytest.mark.parametrize(("sigma", "times", "delta"), cells(40))
def test_many_gaussians_are_never_below_one_and_hardly_above(sigma: float, times: int, delta: float) -> None:
    with mp.workdps(60):
        mu = mp.sqrt(times) / mp.mpf(sigma)
        truth = gaussian_epsilon(mu, delta) if gaussian_delta(mu, mp.mpf(0)) > delta else mp.mpf(0)
        found = gaussians(sigma, times).epsilon(delta)
        assert truth * (1 - mp.mpf(10) ** -12) <= found <= truth * mp.mpf(1.002) + mu / 10**5


@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-5])
def test_noise_of_any_size_costs_something(delta: float) -> None:
    """Shifts of 1e-15: no digit of the profile may be lost, and nothing is rounded to 0."""
    with mp.workdps(60):
        for event, mu in ((Gaussian(1e15), 1e-15), (Repeat(Poisson(0.1, Gaussian(1e15)), 10), 0.1e-15 * math.sqrt(10))):
            truth = gaussian_epsilon(mp.mpf(mu), delta) if delta < 1e-20 else mp.mpf(0)
            assert truth * (1 - mp.mpf(10) ** -12) <= curve(event).epsilon(delta) <= truth * mp.mpf(1.001)
    assert curve(Repeat(Laplace(1e15), 10)).epsilon(delta) > (0 if delta < 1e-20 else -1)


def test_the_profile_of_a_gaussian_is_rounded_up_at_every_shift() -> None:
    rng = random.Random(1)
    with mp.workdps(60):
        for _ in range(300):
            mu = 10 ** rng.uniform(-15, 1.3)
            epsilon = rng.uniform(0, 36) * mu * rng.choice([1, 1e-2, 1e-4])
            truth = gaussian_delta(mp.mpf(mu), mp.mpf(epsilon))
            found = float(profiles.gaussian_delta(mu, np.array([epsilon]))[0])
            assert truth <= found <= truth * (1 + mp.mpf(10) ** -11) + mp.mpf(10) ** -322


def test_losses_that_are_a_little_too_small_are_noticed() -> None:
    """The broken twin: the same transform on losses lowered by a thousandth falls below the truth."""
    sigma, times, tilt = 1e4, 10**8, 5.0
    with mp.workdps(40):
        truth = float(gaussian_epsilon(mp.mpf(1), 1e-6))
    profile = gaussians(sigma, times).parts[0][0]
    atoms = fitted(profile, 0, tilt, (0.004, 0.004), 1000)
    low = dataclasses.replace(atoms, loss=atoms.loss * 0.999)
    right, wrong = (wave([(made, times)], 1e-4, tilt, 12.0).epsilon(1e-6, truth, math.inf) for made in (atoms, low))
    assert wrong < truth <= right <= truth * 1.001


@pytest.mark.parametrize(
    ("times", "delta", "least"),
    [(10**8, 1e-5, 373.06), (10**8, 1e-10, 586.77), (10**8, 1e-300, 3686.5), (1000, 1e-300, 12.247), (1000, 1e-10, 2.0693)],
)
def test_calibration_where_lattices_end(times: int, delta: float, least: float) -> None:
    def make(noise: float) -> Repeat:
        return Repeat(Poisson(0.01, Gaussian(noise)), times)

    noise = calibrate(make, 1.0, delta)
    assert curve(make(noise)).epsilon(delta) <= 1.0 < curve(make(noise * (1 - 1e-6))).epsilon(delta)
    assert least * (1 - 1e-6) <= noise <= least * (1 + 1e-4)  # and the curve itself is where it was


def test_a_rise_of_delta_never_raises_epsilon() -> None:
    deltas = 10.0 ** np.arange(-300, 0, 37)
    for event in (
        Sequence([Pure(0.5), Gaussian(10.0)]),
        Sequence([Repeat(Pure(1e-3), 1000), Gaussian(1000.0)]),
        Repeat(Poisson(0.01, Gaussian(1.0)), 1000),
        Repeat(Poisson(1e-9, Gaussian(1.0)), 10_000),
        Repeat(Poisson(0.1, Sequence([Pure(0.1), Gaussian(4.0)])), 50),
    ):
        found = np.array([curve(event).epsilon(float(d)) for d in deltas])
        assert (np.diff(found) <= 1e-4 * found[:-1]).all(), event
        assert (found > 0).any()


def test_pure_and_gaussian_together() -> None:
    """delta by hand: the loss of the pure part is one of two numbers, and the Gaussian's profile is known for each."""
    mechanism = curve(Sequence([Pure(0.5), Gaussian(10.0)]))
    with mp.workdps(60):
        for delta in (1e-300, 1e-100, 1e-12, 1e-3):
            epsilon = mp.mpf(mechanism.epsilon(delta))
            keep = mp.exp(mp.mpf(0.5)) / (1 + mp.exp(mp.mpf(0.5)))
            sides = [(keep, epsilon - mp.mpf(0.5)), (1 - keep, epsilon + mp.mpf(0.5))]
            truth = mp.fsum(share * gaussian_delta(mp.mpf(0.1), rest) for share, rest in sides)
            assert truth <= delta * (1 + 1e-9)
            assert truth >= delta * mp.mpf(0.9)


def test_power_of_sampled_pure_events() -> None:
    """Neyman and Pearson on the number of answers that speak for the unit, in both directions."""
    for rate, epsilon, times, level in [
        (0.01, 1.0, 100, 1e-3), (1e-3, 3.0, 1000, 1e-3), (1e-4, 0.5, 10_000, 1e-3), (0.3, 6.0, 5, 0.05), (0.09, 8.9, 2, 0.09),
    ]:  # fmt: skip
        keep = math.exp(epsilon) / (1 + math.exp(epsilon))
        taken, left = rate * keep + (1 - rate) * (1 - keep), 1 - keep
        truth = max(best_test(taken, left, times, level), best_test(left, taken, times, level))
        assert truth * (1 - 1e-9) <= curve(Repeat(Poisson(rate, Pure(epsilon)), times)).power(level) <= truth * 1.02


def best_test(p: float, q: float, times: int, level: float) -> float:
    k = np.arange(times + 1)
    inside, outside = stats.binom.pmf(k, times, p), stats.binom.pmf(k, times, q)
    order = k[::-1] if p > q else k
    inside, outside = inside[order], outside[order]
    last = int(np.searchsorted(np.cumsum(outside), level))
    return float(inside[:last].sum() + inside[last] * (level - outside[:last].sum()) / outside[last])


def test_delta_at_large_epsilon_keeps_its_digits() -> None:
    bound = curve(Repeat(Poisson(0.01, Gaussian(1.0)), 1000))
    for epsilon in (5.0, 60.0):
        delta = bound.delta(epsilon)
        assert 0 < delta < 1e-15
        assert bound.epsilon(delta) == pytest.approx(epsilon, rel=1e-3)
    rare = curve(Repeat(Poisson(1e-9, Gaussian(1.0)), 10_000))
    assert rare.delta(1e-5) <= 1.1 * 10_000 * curve(Poisson(1e-9, Gaussian(1.0))).delta(1e-5)


@pytest.mark.parametrize("rate", [0.5, 0.01])
def test_a_sample_inside_random_allocation_comes_first(rate: float) -> None:
    inside, outside = RandomAllocation(Poisson(rate, Gaussian(1.0)), 50), Poisson(rate, RandomAllocation(Gaussian(1.0), 50))
    assert curve(inside).epsilon(1e-6) == curve(outside).epsilon(1e-6)
    assert epsilon_by_renyi(inside, 1e-6) <= epsilon_by_renyi(outside, 1e-6)
    for order in (1.5, 8.0):
        assert renyi(inside, order) <= renyi(Poisson(rate, Gaussian(1.0)), order)


def test_gathered_events_dominate_and_cost_little_more(monkeypatch) -> None:
    rng = random.Random(3)
    listed = [
        *(Laplace(rng.uniform(20, 60)) for _ in range(12)), *(DiscreteLaplace(rng.uniform(20, 60), 2) for _ in range(12)),
        *(Poisson(rng.uniform(0.01, 0.02), Gaussian(rng.uniform(1, 1.5))) for _ in range(12)),
        *(Pure(rng.uniform(0.01, 0.03)) for _ in range(12)),
    ]  # fmt: skip
    exact = curve(Sequence(listed)).epsilon(1e-6)
    for few, slack in ((40, 1.1), (16, 1.35)):
        monkeypatch.setattr(gather, "DIFFERENT", few)
        monkeypatch.setattr("discreet.accounting.plan.DIFFERENT", few)
        assert exact * (1 - 1e-4) <= curve(Sequence(listed)).epsilon(1e-6) <= exact * slack
        moved = gather.gathered(dict.fromkeys(listed, 1))
        assert len(moved) <= few
        assert sum(moved.values()) == len(listed)


def test_a_hundred_thousand_different_events_are_few() -> None:
    rng = random.Random(5)
    event = Sequence([Laplace(rng.uniform(1e3, 1e4)) for _ in range(100_000)])
    merged = Gaussian(1 / math.sqrt(math.fsum(item.noise_multiplier**-2 for item in event.events)))
    assert curve(event).epsilon(1e-6) == pytest.approx(curve(merged).epsilon(1e-6), rel=0.01)  # so many are nearly Gaussian


def test_largest_losses_are_rounded_up() -> None:
    rng = random.Random(2)
    for _ in range(200):
        value, times = rng.uniform(0.01, 50), rng.randrange(1, 10**6)
        assert Fraction(quotient_up(1.0, value)) * Fraction(value) >= 1
        assert Fraction(total_up([(value, times)])) >= Fraction(value) * times
        assert Fraction(curve(Laplace(value)).epsilon(0)) * Fraction(value) >= 1
        assert Fraction(curve(Repeat(Pure(value), times)).epsilon(0)) >= Fraction(value) * times
        with mp.workdps(40):
            rate = rng.uniform(1e-6, 1)
            truth = mp.log1p(mp.mpf(rate) * mp.expm1(mp.mpf(value)))
            assert truth <= curve(Poisson(rate, Pure(value))).epsilon(0) <= truth * (1 + mp.mpf(10) ** -13)
    assert float_up(Fraction(10) ** 400) == math.inf
    assert total_up([(math.inf, 2), (1.0, 3)]) == math.inf


NONE = events.Gaussian(1e-310)


@pytest.mark.parametrize(
    "event",
    [
        NONE, events.Group(events.Gaussian(1e-300), 10**9), events.Poisson(0.5, NONE), events.PoissonReplace(0.5, NONE),
        events.Sequence([NONE, events.Pure(1.0)]), events.RandomAllocation(NONE, 4), events.WithoutReplacement(0.5, NONE),
        events.Shuffled(NONE, 10), events.Poisson(0.5, events.Repeat(events.Gaussian(1e-250), 2**50)),
    ],
)  # fmt: skip
def test_noise_that_hides_nothing_costs_everything(event):
    """1 / noise is infinite in floats; what is not a number must never read as a small loss."""
    seen = curve(event)
    assert seen.epsilon(1e-6) == math.inf
    assert seen.delta(1.0) >= 0.5
    assert seen.power(0.05) >= 0.5
    assert not Filter(1.0, 1e-6).allows(event)


def test_more_steps_than_floats_can_count_cost_everything():
    event = events.Gaussian(1.0)
    for _ in range(20):
        event = events.Repeat(event, 2**53 - 1)
    assert curve(event).epsilon(1e-6) == renyi(event, 8.0) == math.inf


def test_a_drawing_of_all_levels_is_a_hair_above_the_power_at_each():
    seen = curve(events.Sequence([events.DiscreteLaplace(50.0), events.Repeat(events.Poisson(0.1, events.Gaussian(1.2)), 30)]))
    levels = [1e-6, 1e-4, 0.003, 0.05, 0.4, 0.9]
    for level, drawn in zip(levels, seen.powers(levels), strict=True):
        assert seen.power(level) * (1 - 1e-9) <= drawn <= seen.power(level) * 1.02


def test_largest_losses_are_not_undercut_at_tiny_deltas():
    for event in (events.DiscreteLaplace(43.29342432580821), events.Poisson(0.64, events.Pure(3.3e-4))):
        assert curve(event).epsilon(1e-99) == curve(event).epsilon(0.0)


@pytest.mark.parametrize("rate", [1e-3, 1e-9, 1e-12])
@pytest.mark.parametrize("size", [2, 3, 100])
def test_a_group_of_which_one_may_be_told_whole_costs_no_less_than_that(rate, size):
    """Group privacy at losses near 0: the number of steps is a quotient of two small differences."""
    told = float(-mp.expm1(size * mp.log1p(-mp.mpf(rate))))
    seen = curve(events.Group(events.Poisson(rate, events.NonPrivate()), size))
    assert all(seen.delta(epsilon) >= told for epsilon in (0.0, 1e-9, 0.1, 2.0, 50.0, math.inf))
    assert seen.delta(2.0) <= told * (1 + size * rate + 1e-12)
    assert seen.epsilon(told * (1 - 1e-6)) == math.inf


@pytest.mark.parametrize(
    "event",
    [
        events.Repeat(events.Exponential(1e-3), 10**5), events.Repeat(events.Pure(1e-10), 10**15),
        events.Sequence([events.Concentrated(1e-6), events.Pure(0.1)]), events.Poisson(0.5, events.Concentrated(1e-6)),
    ],
)  # fmt: skip
def test_delta_is_not_0_below_the_largest_loss(event):
    """What is too small for a float is rounded up: delta 0 would say that epsilon is the largest loss."""
    seen = curve(event)
    for epsilon in (1.0, 5.0, 50.0, 99.0):
        assert 0 < seen.delta(epsilon) < 1e-9
        assert seen.epsilon(0.0) > epsilon


APPROXIMATE = events.Approximate(0.3, 1e-7)


@pytest.mark.parametrize(
    "inner", [[APPROXIMATE, events.Pure(0.2)], [APPROXIMATE, APPROXIMATE], [APPROXIMATE, events.Laplace(2.0)]]
)
def test_a_sample_of_several_steps_that_may_fail_is_amplified(inner):
    """The failures add up, times the rate; the rest is sampled as if there were none."""
    told, rate = -math.expm1(sum(math.log1p(-each.delta) for each in inner if each is APPROXIMATE)), 0.01
    most = sum({events.Laplace: 0.5}.get(type(each)) or each.epsilon for each in inner)
    seen = curve(events.Poisson(rate, events.Sequence(inner)))
    assert seen.epsilon(rate * told * (1 - 1e-9)) == math.inf
    assert seen.epsilon(rate * told * 1.01) <= 1.01 * math.log1p(rate * math.expm1(most))
    assert rate * told <= seen.delta(1.0) <= rate * told * 1.01
    for way in (events.WithoutReplacement, events.PoissonReplace):
        assert curve(way(rate, events.Sequence(inner))).delta(2.0) < 1e-8
    assert curve(events.RandomAllocation(events.Sequence(inner), 4)).delta(2.0) < 1e-5


def test_a_sample_of_several_failing_steps_is_that_of_exact_sums():
    """Two (0.3, 1e-3)-DP steps on one sample of a tenth, by all of their outcomes."""
    e, d, rate = mp.e ** mp.mpf(0.3), mp.mpf(1e-3), mp.mpf(0.1)
    one = [
        (d, mp.mpf(0)),
        ((1 - d) * e / (1 + e), (1 - d) / (1 + e)),
        ((1 - d) / (1 + e), (1 - d) * e / (1 + e)),
        (mp.mpf(0), d),
    ]
    both = [(p * r, q * s) for p, q in one for r, s in one]
    seen = curve(events.Poisson(0.1, events.Repeat(events.Approximate(0.3, 1e-3), 2)))
    for epsilon in (0.0, 0.01, 0.05, 0.08, 0.5, 3.0):
        x = mp.e**epsilon
        mixed = [((1 - rate) * q + rate * p, q) for p, q in both]
        true = max(sum(max(p - x * q, 0) for p, q in mixed), sum(max(q - x * p, 0) for p, q in mixed))
        assert float(true) * (1 - 1e-12) <= seen.delta(epsilon) <= float(true) * 1.02 + 1e-9
