"""Curves against exact values and against dp-accounting."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from discreet.accounting import (
    Approximate,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    Group,
    Laplace,
    NonPrivate,
    Poisson,
    Pure,
    RandomizedResponse,
    Repeat,
    Sequence,
    WithoutReplacement,
    Zero,
    curve,
    epsilon_by_renyi,
)
from discreet.core.curve import belief_exception
from unit.accounting.oracle import sampled_gaussian_epsilon


def solve(delta_at, delta: float, high: float) -> float:
    low = 0.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_at(middle) <= delta else (middle, high)
    return high


def two_point(rate: float, epsilon: float, times: int, delta: float) -> float:
    """epsilon of `times` Poisson-sampled binary responses, exactly: the loss is a function of one binomial count."""
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    worst = 0.0
    for swap in (False, True):
        with_unit = rate * keep + (1 - rate) * (1 - keep)
        p, q = (1 - keep, with_unit) if swap else (with_unit, 1 - keep)
        k = np.arange(times + 1)
        log_p, log_q = stats.binom.logpmf(k, times, p), stats.binom.logpmf(k, times, q)
        loss = log_p - log_q

        def delta_at(x: float, log_p=log_p, loss=loss) -> float:
            return float((np.exp(log_p) * -np.expm1(np.minimum(x - loss, 0))).sum())

        worst = max(worst, solve(delta_at, delta, float(loss.max())))
    return worst


@pytest.mark.parametrize("times", [1, 2, 30, 1000, 60_000])
@pytest.mark.parametrize(("rate", "epsilon"), [(0.001, 1.0), (0.01, 3.0), (0.1, 0.3), (1.0, 0.05)])
@pytest.mark.parametrize("delta", [1e-5, 1e-9])
def test_sampled_response_never_below_the_truth_and_hardly_above(times: int, rate: float, epsilon: float, delta: float) -> None:
    truth = two_point(rate, epsilon, times, delta)
    found = curve(Repeat(Poisson(rate, RandomizedResponse(epsilon)), times)).epsilon(delta)
    assert found >= truth * (1 - 1e-9)
    assert found <= truth * 1.002 + 1e-9


@pytest.mark.parametrize(("epsilon", "times"), [(0.1, 100), (1.0, 20), (0.01, 1000)])
@pytest.mark.parametrize("delta", [1e-6, 1e-12])
def test_repeated_response_is_exact(epsilon: float, times: int, delta: float) -> None:
    assert curve(Repeat(Pure(epsilon), times)).epsilon(delta) == pytest.approx(two_point(1.0, epsilon, times, delta), abs=1e-8)


def test_single_mechanisms_are_exact() -> None:
    for delta in (1e-9, 1e-5, 0.01):
        assert curve(Laplace(2.0)).epsilon(delta) == pytest.approx(0.5 + 2 * math.log1p(-delta), abs=1e-9)
        keep = math.e / (math.e + 3)
        assert curve(RandomizedResponse(1.0, 4)).epsilon(delta) == pytest.approx(
            math.log((keep - delta) * (math.e + 3)), abs=1e-9
        )
    assert curve(Laplace(0.25)).epsilon(0) == 4.0
    assert curve(Exponential(0.7)).epsilon(0) == 0.7
    assert curve(DiscreteLaplace(5.0, 2)).epsilon(0) == pytest.approx(0.4)
    assert curve(Gaussian(1.0)).epsilon(0) == math.inf
    assert curve(DiscreteGaussian(1.0)).epsilon(0) == math.inf


def test_gaussians_compose_exactly() -> None:
    many = Sequence([Gaussian(10.0)] * 50 + [Repeat(Gaussian(20.0), 200)])
    assert curve(many).epsilon(1e-6) == pytest.approx(curve(Gaussian(1.0)).epsilon(1e-6), rel=1e-12)
    assert curve(many).epsilon(1e-6) >= curve(Gaussian(1.0)).epsilon(1e-6)


@pytest.mark.parametrize("inner", [Gaussian(2.0), Laplace(1.0), DiscreteLaplace(3.0, 2), Exponential(1.0)])
def test_a_sample_for_several_steps(inner) -> None:
    """Poisson around a composition: at rate one it is the composition, and Gaussians merge inside."""
    steps = Repeat(inner, 4)
    whole = curve(steps).epsilon(1e-6)
    assert curve(Repeat(Poisson(1.0, steps), 1)).epsilon(1e-6) == pytest.approx(whole, rel=1e-3)
    sampled = curve(Repeat(Poisson(0.1, steps), 10)).epsilon(1e-6)
    apart = curve(Repeat(Poisson(0.1, inner), 40)).epsilon(1e-6)
    assert sampled > apart  # one shared sample leaks more than fresh ones
    if isinstance(inner, Gaussian):
        assert sampled == pytest.approx(curve(Repeat(Poisson(0.1, Gaussian(1.0)), 10)).epsilon(1e-6), rel=1e-6)


def test_the_ends() -> None:
    assert curve(Zero()).epsilon(0) == 0
    assert curve(Zero()).power(0.3) == pytest.approx(0.3)
    for event in (NonPrivate(), Sequence([Gaussian(1.0), NonPrivate()])):
        assert curve(event).epsilon(0.5) == math.inf
        assert curve(event).delta(100.0) == 1.0
        assert curve(event).power(0.01) == 1.0
        assert curve(event).posterior(0.01) == 1.0
    told = curve(Repeat(Poisson(0.1, NonPrivate()), 3))
    assert told.delta(5.0) == pytest.approx(1 - 0.9**3)
    assert told.epsilon(0.2) == math.inf
    assert curve(Repeat(Approximate(0.1, 1e-8), 50)).epsilon(1e-8) == math.inf
    assert curve(Repeat(Approximate(0.1, 1e-8), 50)).epsilon(1e-6) < 5.0


@pytest.mark.parametrize("event", [Gaussian(1.0), Repeat(Gaussian(10.0), 100), Repeat(Poisson(1.0, Gaussian(10.0)), 100)])
def test_power_of_a_gaussian(event) -> None:
    """Neyman and Pearson: Phi(Phi^-1(level) + mu)."""
    for level in (1e-6, 1e-4, 1e-3, 0.01, 0.1, 0.5, 0.9):
        truth = stats.norm.cdf(stats.norm.ppf(level) + 1)
        assert truth * (1 - 1e-9) <= curve(event).power(level) <= truth * 1.003


def test_power_of_pure_privacy() -> None:
    for level in (0.0, 0.001, 0.1, 0.4, 0.9, 1.0):
        truth = min(math.e * level, 1 - (1 - level) / math.e)
        assert curve(Pure(1.0)).power(level) == pytest.approx(truth, abs=1e-9)


def test_posterior_belief() -> None:
    assert curve(Pure(1.0)).posterior(0.5) == pytest.approx(math.e / (1 + math.e))
    assert curve(Zero()).posterior(0.2) == pytest.approx(0.2)
    # the loss of a Gaussian shift is normal: the belief exceeded with probability delta is known exactly
    for delta in (1e-3, 1e-6):
        loss = 0.5 + stats.norm.ppf(1 - delta)
        truth = 1 / (1 + 9 * math.exp(-loss))
        found = curve(Gaussian(1.0)).posterior(0.1, delta)
        assert truth <= found
        assert math.log(found / (1 - found)) - math.log(truth / (1 - truth)) < 0.7


@given(st.floats(0, 5), st.floats(1e-12, 0.1), st.floats(1e-3, 0.999999), st.floats(0.001, 0.999))
def test_posterior_of_an_approximate_claim_is_what_the_worst_mechanism_reaches(epsilon, delta, share, prior) -> None:
    """A mechanism says "inside" with probability d where that is true, else with q = d e^-x, x = epsilon - log(1 - delta/d).

    d - e^epsilon q = delta, so it is (epsilon, delta)-DP, and with probability d the odds grow by e^x: no lower bound is true.
    """
    rare = delta / share
    assume(rare < 0.9)
    growth = epsilon - math.log1p(-delta / rare)
    false = rare * math.exp(-growth)
    assert rare - math.exp(epsilon) * false == pytest.approx(delta, rel=1e-6)
    assume((1 - false) - math.exp(epsilon) * (1 - rare) <= delta)  # so is it the other way round
    truth = prior * rare / (prior * rare + (1 - prior) * false)
    found = curve(Approximate(epsilon, delta)).posterior(prior, rare)
    assert truth * (1 - 1e-9) <= found <= truth * (1 + 1e-6)
    assert curve(Approximate(epsilon, delta)).posterior(prior, delta) == 1.0  # for x ever larger, d comes down to delta


@pytest.mark.parametrize(("event", "rare", "most"), [
    (Approximate(1.0, 1e-6), 1e-5, 1 - math.log(0.9)), (Approximate(0.05, 5e-7), 1e-5, 0.05 - math.log(0.95)),
    (Sequence([Pure(0.5), Approximate(0.5, 1e-7)]), 1e-6, 1 - math.log(0.9)), (Pure(1.0), 1e-6, 1.0),
    (Gaussian(1.0), 1e-6, 5.46),
])  # fmt: skip
def test_a_belief_is_told_with_an_exception_well_above_delta(event, rare, most) -> None:
    assert belief_exception(curve(event)) == rare
    assert curve(event).posterior(0.5, rare) <= 1 / (1 + math.exp(-most)) + 1e-6


@pytest.mark.parametrize(
    ("sigma", "rate", "times"),
    [
        (0.5, 0.01, 1),
        (0.5, 0.001, 1000),
        (1.0, 0.01, 10_000),
        (1.0, 0.1, 100),
        (2.0, 0.001, 10_000),
        (4.0, 0.1, 1000),
        (0.8, 0.001, 1000),
        (2.0, 0.01, 60_000),
    ],
)
def test_sampled_gaussian_against_dp_accounting(sigma: float, rate: float, times: int) -> None:
    """At most half a percent above its pessimistic estimate. (It may itself be a tenth of a percent above the truth.)"""
    from dp_accounting.pld import privacy_loss_distribution as peer

    theirs = peer.from_gaussian_mechanism(sigma, sampling_prob=rate, value_discretization_interval=1e-4).self_compose(times)
    ours = curve(Repeat(Poisson(rate, Gaussian(sigma)), times))
    for delta in (1e-5, 1e-7, 1e-9):
        found = ours.epsilon(delta)
        assert 0.98 < found / theirs.get_epsilon_for_delta(delta) <= 1.005
        assert ours.delta(found) == pytest.approx(delta, rel=2e-3)


@pytest.mark.parametrize("delta", [1e-5, 1e-9])
@pytest.mark.parametrize(
    ("sigma", "rate", "times"),
    [(0.5, 0.1, 10_000), (0.5, 0.1, 60_000), (1.0, 0.01, 10_000), (1.0, 0.1, 1000), (2.0, 0.001, 60_000), (2.0, 0.01, 60_000),
     (4.0, 0.1, 1000), (4.0, 0.01, 60_000), (0.8, 0.02, 60_000)],
)  # fmt: skip
def test_sampled_gaussian_never_below_the_exact_value(sigma: float, rate: float, times: int, delta: float) -> None:
    found = curve(Repeat(Poisson(rate, Gaussian(sigma)), times)).epsilon(delta)
    truth = sampled_gaussian_epsilon(sigma, rate, times, delta, near=found)
    assert truth * (1 - 1e-9) <= found <= truth * 1.0001


@pytest.mark.parametrize(("sigma", "rate"), [(0.5, 0.001), (0.5, 0.1), (1.0, 0.01), (4.0, 0.001), (4.0, 0.1)])
def test_one_sampled_gaussian_is_exact(sigma: float, rate: float) -> None:
    """By integrating (P - e^epsilon Q)+ over the line."""
    x = np.linspace(-30, 60, 2_000_001)
    without = stats.norm.pdf(x, 0, sigma)
    inside = (1 - rate) * without + rate * stats.norm.pdf(x, 1, sigma)
    for epsilon in (0.0, 0.001, 0.05, 1.0):
        truth = max(
            np.maximum(inside - math.exp(epsilon) * without, 0).sum(), np.maximum(without - math.exp(epsilon) * inside, 0).sum()
        )
        assert curve(Poisson(rate, Gaussian(sigma))).delta(epsilon) == pytest.approx(truth * 4.5e-5, rel=1e-6, abs=1e-13)


def test_mixed_sequence_against_dp_accounting() -> None:
    from dp_accounting.pld import privacy_loss_distribution as peer

    rng = np.random.default_rng(0)
    scales, sigmas = rng.uniform(5, 30, 8), rng.uniform(5, 30, 8)
    composed = peer.from_laplace_mechanism(float(scales[0]), value_discretization_interval=1e-4)
    for scale in scales[1:]:
        composed = composed.compose(peer.from_laplace_mechanism(float(scale), value_discretization_interval=1e-4))
    for sigma in sigmas:
        composed = composed.compose(peer.from_gaussian_mechanism(float(sigma), value_discretization_interval=1e-4))
    ours = curve(Sequence([*(Laplace(s) for s in scales), *(Gaussian(s) for s in sigmas)]))
    for delta in (1e-4, 1e-8):
        assert ours.epsilon(delta) == pytest.approx(composed.get_epsilon_for_delta(delta), rel=1e-3)


@pytest.mark.parametrize("delta", [1e-12, 1e-20, 1e-50, 1e-100])
def test_tiny_deltas(delta: float) -> None:
    """Tilting keeps the answer relative: 100 Gaussians by FFT against the closed form, far below rounding."""
    from discreet.accounting.composition import Composition
    from discreet.accounting.profile import gaussian

    truth = curve(Gaussian(1.0)).epsilon(delta)
    found = Composition(((gaussian(10.0), 100),)).epsilon(delta)
    assert truth * (1 - 1e-12) <= found <= truth * 1.0005


def test_many_different_events_at_once() -> None:
    events = [Laplace(20 + i) for i in range(100)] + [Gaussian(60 + i / 5) for i in range(1000)]
    events += [Exponential(0.01 + i * 1e-4) for i in range(50)]
    found = curve(Sequence(events)).epsilon(1e-6)
    assert found == curve(Sequence(events[::-1])).epsilon(1e-6) or found == pytest.approx(
        curve(Sequence(events[::-1])).epsilon(1e-6), rel=1e-9
    )
    assert found < epsilon_by_renyi(Sequence(events), 1e-6)


@pytest.mark.parametrize(
    "event",
    [
        Repeat(Poisson(0.001, Gaussian(1.0)), 10**9), Repeat(Laplace(1000.0), 10**9), Repeat(Gaussian(1e4), 10**9),
        Repeat(Pure(1e-5), 10**9), Repeat(WithoutReplacement(1e-6, Laplace(2.0)), 10**9),
    ],
)  # fmt: skip
def test_a_billion_repeats_answer(event) -> None:
    found = curve(event).epsilon(1e-6)
    assert 0 < found <= epsilon_by_renyi(event, 1e-6) * (1 + 1e-9)


def test_memory_stays_bounded() -> None:
    """Two hundred megabytes at most beyond the imports, whatever the noise."""
    code = (
        "import re, scipy.fft, scipy.special\n"
        "from discreet.accounting import *\n"
        "def top(): return int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) // 1024\n"
        "before = top()\n"
        "for sigma in (0.01, 0.03, 0.1, 1.0, 1e3, 1e6):\n"
        "    for rate, times in ((0.01, 1000), (0.5, 10), (1e-3, 10**6)):\n"
        "        c = curve(Repeat(Poisson(rate, Gaussian(sigma)), times)); c.epsilon(1e-6); c.power(0.01); c.delta(1.0)\n"
        "print(top() - before)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < int(out.stdout) < 200


def test_groups() -> None:
    assert curve(Group(Gaussian(2.0), 4)).epsilon(1e-5) == curve(Gaussian(0.5)).epsilon(1e-5)
    assert curve(Group(Laplace(2.0), 4)).epsilon(0) == 2.0
    assert curve(Group(Repeat(Pure(0.1), 5), 3)).epsilon(0) == pytest.approx(1.5)
    assert curve(Group(Group(Gaussian(6.0), 2), 3)).epsilon(1e-5) == curve(Gaussian(1.0)).epsilon(1e-5)
    sampled = Repeat(Poisson(0.01, Gaussian(2.0)), 100)
    assert curve(sampled).epsilon(1e-5) < curve(Group(sampled, 2)).epsilon(1e-5) < math.inf
