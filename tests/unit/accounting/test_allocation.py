"""Random allocation: against integrals for two bins, simulation for many, and Poisson sampling for all."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.fft import irfft, rfft
from scipy.integrate import quad
from scipy.special import logsumexp, ndtr

from discreet.accounting import (
    Approximate,
    Filter,
    Gaussian,
    Group,
    Laplace,
    NonPrivate,
    Poisson,
    Pure,
    RandomAllocation,
    RandomizedResponse,
    Repeat,
    Zero,
    calibrate,
    concentrated,
    curve,
    renyi,
)
from discreet.accounting import profile as profiles
from discreet.accounting.allocation import allocated


def call(sigma: float, at: float) -> float:
    """E[(Y - at)+] for the likelihood ratio Y of one Gaussian step where nobody is in it."""
    if at <= 0:
        return 1 - at
    delta = profiles.gaussian(sigma).forward
    if at >= 1:
        return float(delta(np.array([math.log(at)]))[0])
    return 1 - at + at * float(delta(np.array([-math.log(at)]))[0])


def two_bins(sigma: float, a: float) -> float:
    """E[((Y1 + Y2)/2 - a)+], one integral over the first."""

    def inside(z: float) -> float:
        return call(sigma, 2 * a - math.exp(z / sigma - 0.5 / sigma**2)) / 2 * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)

    corner = sigma * math.log(2 * a) + 0.5 / sigma  # where Y1 alone is enough
    return sum(quad(inside, *ends, epsabs=1e-13, epsrel=1e-11, limit=200)[0] for ends in ((-12, corner), (corner, corner + 30)))


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_two_bins_are_just_above_their_integral(sigma):
    pair = allocated(profiles.gaussian(sigma), 2)
    for x in (0.0, 0.1, 0.5, 1.0, 2.0):
        forward, backward = two_bins(sigma, math.exp(x)), 1 - math.exp(x) + math.exp(x) * two_bins(sigma, math.exp(-x))
        assert forward <= float(pair.forward(np.array([x]))[0]) + 1e-12
        assert float(pair.forward(np.array([x]))[0]) <= forward * 1.05 + 1e-9
        assert backward <= float(pair.backward(np.array([x]))[0]) + 1e-11
        assert float(pair.backward(np.array([x]))[0]) <= backward * 1.05 + 1e-9


def on_a_fine_lattice(sigma: float, bins: int, step: float, top: float, xs: list[float]) -> tuple[list[float], list[float]]:
    """Both directions by one Fourier transform of the law of Y on an even lattice: right to about 1e-13, not a bound."""
    edges = np.arange(int(top / step) + 2) * step
    with np.errstate(divide="ignore"):
        z = sigma * np.log(edges) + 0.5 / sigma
    without, inside = np.diff(ndtr(z)), np.diff(ndtr(z - 1 / sigma))
    up = (inside - edges[:-1] * without) / step
    mass = np.append(without - up, 0.0) + np.append(0.0, up)
    size = 1 << math.ceil(math.log2(len(edges) + 5 * bins / step))
    law, at = irfft(rfft(mass, size) ** bins, size), np.arange(size) * step / bins
    forward = [float(np.maximum(at - math.exp(x), 0) @ law) for x in xs]
    return forward, [float(np.maximum(1 - math.exp(x) * at, 0) @ law) for x in xs]


@pytest.mark.parametrize(
    ("sigma", "bins", "step", "top"), [(1.0, 64, 0.01, 8000.0), (2.0, 20, 1e-3, 300.0), (1.5, 7, 2e-3, 900.0)]
)
def test_just_above_a_sum_by_fourier_transform(sigma, bins, step, top):
    xs = [0.0, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0]
    pair = allocated(profiles.gaussian(sigma), bins)
    for truth, side in zip(on_a_fine_lattice(sigma, bins, step, top, xs), (pair.forward, pair.backward)):
        for wanted, found in zip(truth, side(np.array(xs)).tolist()):
            assert found > wanted * (1 - 1e-4) - 1e-12
            assert found < wanted * 1.07 + 1e-9


def losses(sigma: float, bins: int, passes: int, runs: int, inside: bool) -> np.ndarray:
    """Losses of the pair itself, simulated: normals, shifted by one in a bin of each pass where the unit is inside."""
    rng = np.random.default_rng(5)
    total = np.zeros(runs)
    for _ in range(passes):
        z = rng.standard_normal((runs, bins))
        if inside:
            z[:, 0] += 1 / sigma  # all bins are alike
        total += logsumexp(z / sigma - 0.5 / sigma**2, axis=1) - math.log(bins)
    return total


@pytest.mark.parametrize(("sigma", "bins", "passes"), [(1.0, 10, 1), (0.7, 100, 1), (1.0, 30, 5), (2.0, 8, 12)])
def test_above_the_simulated_pair_and_near_it(sigma, bins, passes):
    """Means of numbers in [0, 1] against five and a half standard errors: false alarms below 1e-7 each."""
    runs = 40_000
    found = curve(Repeat(RandomAllocation(Gaussian(sigma), bins), passes))
    for inside in (True, False):
        loss = losses(sigma, bins, passes, runs, inside) * (1 if inside else -1)
        for x in (0.0, 0.3, 1.0):
            sample = np.maximum(-np.expm1(x - loss), 0)
            error = 5.5 * (sample.std() + 1e-3) / math.sqrt(runs)
            assert found.delta(x) > sample.mean() - error
            if inside:  # the direction that decides
                assert found.delta(x) < sample.mean() + error + 1e-3 * sample.mean()


@pytest.mark.parametrize(("sigma", "bins"), [(0.5, 2), (0.6, 100), (1.0, 7), (1.0, 1000), (2.0, 20), (20.0, 50)])
@pytest.mark.parametrize("passes", [1, 10, 100])
def test_below_poisson_sampling_at_the_same_expected_batch(sigma, bins, passes):
    """The lesser variance of taking part just once is worth something: Feldman & Shenfeld 2026 see the same."""
    here = curve(Repeat(RandomAllocation(Gaussian(sigma), bins), passes)).epsilon(1e-6)
    poisson = curve(Repeat(Poisson(1 / bins, Gaussian(sigma)), bins * passes)).epsilon(1e-6)
    assert here < poisson
    if poisson < 1 and passes > 1:  # and not wildly below it: there both come near one Gaussian
        assert here > 0.9 * poisson


def test_more_bins_hide_more_and_one_hides_nothing():
    alone = curve(Gaussian(1.0)).epsilon(1e-6)
    found = [curve(RandomAllocation(Gaussian(1.0), bins)).epsilon(1e-6) for bins in (1, 2, 3, 5, 10, 33, 100, 10**4, 10**6)]
    assert found[0] == alone
    assert found == sorted(found, reverse=True)
    assert curve(RandomAllocation(Gaussian(1.0), 10**15)).epsilon(1e-6) == found[-1]


def test_deltas_far_in_the_tail_stay_above_the_floor_of_one_bin():
    """Someone who looks at one bin alone already reaches delta(a bins) / bins forward."""
    bins = 10
    found = curve(RandomAllocation(Gaussian(0.5), bins))
    for x in (4.0, 8.0, 12.0, 16.0):
        one = float(profiles.gaussian(0.5).forward(np.array([x + math.log(bins)]))[0])
        assert found.delta(x) >= one / bins * 0.5
        assert found.delta(x) >= one / bins * (1 - 1e-6) or one < 1e-20


@pytest.mark.parametrize(
    "event", [Laplace(0.5), Pure(1.0), RandomizedResponse(2.0, 5), Repeat(Gaussian(2.0), 3), Poisson(0.3, Gaussian(1.0))]
)
def test_any_step_may_be_allocated(event):
    alone, among = curve(event), curve(RandomAllocation(event, 12))
    for x in (0.0, 0.1, 0.5):
        assert among.delta(x) < alone.delta(x)
    assert renyi(RandomAllocation(event, 12), 4.0) <= renyi(event, 4.0)


def test_two_answers_in_three_bins_by_counting():
    """Randomised response in one of three bins: eight outcomes, summed."""
    e = math.exp(1.0)
    p, q = np.array([e, 1]) / (1 + e), np.array([1, e]) / (1 + e)
    for x in (0.0, 0.2, 0.5):
        forward = backward = 0.0
        for cell in np.ndindex(2, 2, 2):
            without = np.prod([q[i] for i in cell])
            inside = np.mean([without * p[i] / q[i] for i in cell])
            forward += max(inside - math.exp(x) * without, 0)
            backward += max(without - math.exp(x) * inside, 0)
        pair = allocated(profiles.pure(1.0), 3)
        for truth, side in ((forward, pair.forward), (backward, pair.backward)):
            found = float(side(np.array([x]))[0])
            assert truth <= found <= truth + 2e-3


def test_what_fails_outright_fails_no_more_often():
    found = curve(RandomAllocation(Approximate(0.5, 1e-4), 50))
    assert 1e-4 <= found.delta(0.5) <= 1.1e-4


def test_steps_that_tell_all_now_and_then():
    for event in (Poisson(0.5, NonPrivate()), Poisson(1e-9, NonPrivate())):
        assert curve(RandomAllocation(event, 7)).delta(0.5) == pytest.approx(event.rate)
    assert curve(RandomAllocation(NonPrivate(), 7)).epsilon(0.1) == math.inf


@pytest.mark.parametrize(("sigma", "bins"), [(1.0, 2), (0.8, 4), (2.0, 20)])
def test_renyi_against_simulation(sigma, bins):
    """Both directions at small orders, where the moments can be simulated; 6 standard errors, false alarms below 1e-8."""
    rng = np.random.default_rng(1)
    z = rng.standard_normal((400_000, bins))
    loss = logsumexp(z / sigma - 0.5 / sigma**2, axis=1) - math.log(bins)
    for order in (1.5, 2.0):
        found = math.exp((order - 1) * renyi(RandomAllocation(Gaussian(sigma), bins), order))
        for power in (order, 1 - order):
            sample = np.exp(power * loss)
            assert found > sample.mean() - 6 * sample.std() / math.sqrt(len(sample))
    second = 1 + math.expm1(1 / sigma**2) / bins  # the variance of a mean of independent numbers
    assert renyi(RandomAllocation(Gaussian(sigma), bins), 2.0) == pytest.approx(math.log(second), rel=1e-9)


def test_renyi_and_the_curve_agree():
    """The Rényi bound implies an epsilon, which the distribution must not exceed."""
    event = Repeat(RandomAllocation(Gaussian(1.0), 50), 20)
    by_orders = min(renyi(event, a) + math.log1p(-1 / a) - (math.log(1e-6) + math.log(a)) / (a - 1) for a in range(2, 60))
    found = curve(event).epsilon(1e-6)
    assert found < by_orders < 1.4 * found


def test_filters_groups_and_calibration_know_it():
    event = RandomAllocation(Gaussian(2.0), 100)
    budget = Filter(epsilon=1.0, delta=1e-6)
    budget.spend(event)
    assert 0 < budget.spent_epsilon() < 1
    assert renyi(event, 3000.0) == renyi(Gaussian(2.0), 3000.0)
    assert concentrated(event) == concentrated(Gaussian(2.0))
    assert curve(Group(event, 2)).epsilon(1e-6) > curve(event).epsilon(1e-6)
    assert curve(RandomAllocation(Zero(), 5)).epsilon(0.0) == 0
    noise = calibrate(lambda s: Repeat(RandomAllocation(Gaussian(s), 100), 10), epsilon=1.0, delta=1e-5)
    assert curve(Repeat(RandomAllocation(Gaussian(noise), 100), 10)).epsilon(1e-5) <= 1.0
    assert noise < calibrate(lambda s: Repeat(Poisson(0.01, Gaussian(s)), 1000), epsilon=1.0, delta=1e-5)
