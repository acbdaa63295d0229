"""Poisson samples with one unit replaced, against computations that share nothing with the code: mixtures written out.

The slow path has no search, no logarithms and no closed form: two mixtures on a grid, on whole numbers, or over a handful of
answers, and sums of (P - aQ)+ and of P^a Q^(1-a) over them.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    PoissonReplace,
    Pure,
    Repeat,
    Sequence,
    Zero,
    calibrate,
    curve,
    renyi,
)
from discreet.accounting import profile as profiles
from discreet.accounting.filter import EPSILON_UNIT
from discreet.accounting.plan import plan
from discreet.accounting.replaced import gaussian_replaced, replaced
from discreet.core import Event

EPSILONS = (0.0, 1e-3, 0.03, 0.3, 1.0, 2.5)


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def mixed(rate: float, one: np.ndarray, none: np.ndarray) -> np.ndarray:
    return (1 - rate) * none + rate * one


def on_a_grid(event: Event, width: float = 1e-3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The masses of noise around 1, 0 and -1 in cells of a fine grid, most of which hold one best answer."""
    from scipy.special import ndtr

    noise = event.noise_multiplier  # type: ignore[attr-defined]
    reach = 12 * noise if isinstance(event, Gaussian) else 40 * noise
    edges = np.arange(-math.ceil((1 + reach) / width), math.ceil((1 + reach) / width) + 1) * width

    def masses(x: np.ndarray) -> np.ndarray:
        """Of the cells between edges, each computed in the half that has no cancellation."""
        x = np.round(x, 9)
        lower, upper = np.where(x[:-1] < 0, x[:-1], -x[1:]), np.where(x[:-1] < 0, x[1:], -x[:-1])
        return ndtr(upper / noise) - ndtr(lower / noise) if isinstance(event, Gaussian) else (
            np.exp(upper / noise) - np.exp(lower / noise)
        ) / 2  # fmt: skip

    return tuple(masses(edges - shift) for shift in (1, 0, -1))  # type: ignore[return-value]


def on_whole_numbers(event: DiscreteGaussian | DiscreteLaplace) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The masses of noise around +sensitivity, 0 and -sensitivity."""
    x = np.arange(-400, 401, dtype=np.float64)
    if isinstance(event, DiscreteGaussian):
        weights = [np.exp(-(((x - s * event.sensitivity) / event.sigma) ** 2) / 2) for s in (1, 0, -1)]
    else:
        weights = [np.exp(-np.abs(x - s * event.sensitivity) / event.scale) for s in (1, 0, -1)]
    return tuple(weight / weights[1].sum() for weight in weights)  # type: ignore[return-value]


NOISES = [Gaussian(0.5), Gaussian(1.0), Gaussian(4.0), Laplace(0.4), Laplace(2.0)]
WHOLE = [DiscreteGaussian(1.0), DiscreteGaussian(5.0, 3), DiscreteLaplace(1.0), DiscreteLaplace(3.0, 2)]


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
@pytest.mark.parametrize("event", [*NOISES, *WHOLE], ids=repr)
def test_noise_on_a_number_is_the_pair_of_versions_at_plus_and_minus_one(event: Event, rate: float) -> None:
    inside, out, other = on_a_grid(event) if event in NOISES else on_whole_numbers(event)  # type: ignore[arg-type]
    one, two = mixed(rate, inside, out), mixed(rate, other, out)
    bound = curve(PoissonReplace(rate, event))
    for epsilon in EPSILONS:
        truth = max(hockey_stick(one, two, epsilon), hockey_stick(two, one, epsilon))
        assert truth * (1 - 1e-9) - 1e-14 <= bound.delta(epsilon) <= truth * (1 + 2e-3) + 1e-11, epsilon


def test_small_deltas_keep_their_digits() -> None:
    """The threshold test of Gaussian noise at 50 digits, down to deltas of 1e-200; beyond noise 1e6 a slope takes over."""
    mpmath.mp.dps = 50
    for rate, sigma, epsilon in [(0.01, 1.0, 3.0), (0.5, 2.0, 9.0), (1e-6, 0.5, 40.0), (0.9, 10.0, 2.5), (0.1, 1e7, 1e-7)]:
        a, q, s = mpmath.exp(epsilon), mpmath.mpf(rate), mpmath.mpf(sigma)

        low, high = mpmath.mpf(0), mpmath.mpf(10) ** 17
        for _ in range(300):  # where the likelihood ratio of the two mixtures crosses e^epsilon
            at = (low + high) / 2
            up, down = (mpmath.exp((sign * 2 * at - 1) / (2 * s * s)) for sign in (1, -1))
            low, high = (at, high) if (1 - q) * (1 - a) + q * up - a * q * down < 0 else (low, at)
        inside, out, other = (mpmath.ncdf((shift - at) / s) for shift in (1, 0, -1))
        truth = (1 - q) * (1 - a) * out + q * inside - a * q * other
        assert (
            0
            <= float(gaussian_replaced(rate, sigma).delta(np.array([epsilon]))[0] / truth) - 1
            < (1e-9 if sigma < 1e6 else 1e-7)
        )


@pytest.mark.parametrize("event", [*NOISES, *WHOLE[:2]], ids=repr)
def test_the_search_finds_what_the_closed_form_knows(event: Event) -> None:
    epsilons = np.array(EPSILONS)
    for rate in (1e-4, 0.2, 0.99):
        found = curve(PoissonReplace(rate, event))
        many = replaced(rate, profiles.basic(event)).delta(np.linspace(0, 2.5, 2501))[::500]  # by interpolated b
        few = np.array([found.delta(each) for each in np.linspace(0, 2.5, 6)])
        assert np.all(many >= few * (1 - 1e-9))
        assert np.all(many <= few * (1 + 1e-3) + 1e-15)
        if isinstance(event, Gaussian):
            assert replaced(rate, profiles.gaussian(event.noise_multiplier)).delta(epsilons) == pytest.approx(
                [found.delta(each) for each in EPSILONS], rel=1e-9
            )


def near(random: np.random.Generator, law: np.ndarray, epsilon: float) -> np.ndarray:
    """Another law on the same answers, none of whose odds differ by more than e^epsilon."""
    tilt = np.exp(random.choice([-0.5, 0.5, random.uniform(-0.5, 0.5)], len(law)) * epsilon)
    return law * tilt / (law * tilt).sum()


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.01, 3), st.floats(0.01, 1), st.integers(2, 6), st.floats(0, 2))
def test_no_mechanism_is_above_its_bound(seed: int, epsilon: float, rate: float, answers: int, at: float) -> None:
    """Any three laws, two of them within epsilon of the first: the hockey-stick and the divergence, in both directions."""
    random = np.random.default_rng(seed)
    out = random.dirichlet(np.ones(answers))
    inside, other = near(random, out, epsilon), near(random, out, epsilon)
    one, two = mixed(rate, inside, out), mixed(rate, other, out)
    event = PoissonReplace(rate, Pure(epsilon))
    assert curve(event).delta(at) >= max(hockey_stick(one, two, at), hockey_stick(two, one, at)) - 1e-12
    order = 1.5 + 6 * at
    for p, q in ((one, two), (two, one)):
        assert renyi(event, order) >= math.log((p**order * q ** (1 - order)).sum()) / (order - 1) - 1e-12
    assert Filter(50.0, 1e-6).pure_cost(event) / EPSILON_UNIT >= np.abs(np.log(one / two)).max() - 1e-9


@pytest.mark.parametrize("angle", [0.0, 0.5, 1.5, 2.5, math.pi])
def test_vectors_that_point_elsewhere_are_never_worse(angle: float) -> None:
    """Gaussian noise in the plane, the two versions at an angle: at most the bound, which opposite vectors reach."""
    rate, sigma, epsilon = 0.2, 0.8, 0.5
    x = np.arange(-6.5, 6.5, 0.02)
    square = [np.exp(-((x[:, None] - a) ** 2 + (x[None, :] - b) ** 2) / (2 * sigma**2)) for a, b in
              ((1, 0), (0, 0), (math.cos(angle), math.sin(angle)))]  # fmt: skip
    inside, out, other = (each / square[1].sum() for each in square)
    truth = hockey_stick(mixed(rate, inside, out), mixed(rate, other, out), epsilon)
    bound = curve(PoissonReplace(rate, Gaussian(sigma))).delta(epsilon)
    assert truth <= bound * (1 + 1e-4)
    if angle == math.pi:
        assert truth == pytest.approx(bound, rel=1e-3)


def test_blanked_out_units_have_the_curve_of_removed_ones() -> None:
    """A blank contributes nothing: the second mixture is of twice the same law, and Poisson's curve is met exactly."""
    for rate in (0.05, 0.6):
        inside, out, _ = on_a_grid(Gaussian(1.0))
        one, two = mixed(rate, inside, out), mixed(rate, out, out)
        for epsilon in EPSILONS:
            truth = max(hockey_stick(one, two, epsilon), hockey_stick(two, one, epsilon))
            assert curve(Poisson(rate, Gaussian(1.0))).delta(epsilon) == pytest.approx(truth, rel=2e-3, abs=1e-11)


def composed_delta(rate: float, sigma: float, times: int, epsilon: float) -> float:
    """The hockey-stick of a run, from above by losses rounded up to a grid and added by a plain Fourier transform."""
    step, size = 2e-4, 1 << 18
    inside, out, other = on_a_grid(Gaussian(sigma))
    one, two = mixed(rate, inside, out), mixed(rate, other, out)
    keep = (one > 0) & (two > 0)
    places = np.round(np.log(one[keep] / two[keep]) / step).astype(np.int64) % size
    wrapped = np.fft.irfft(np.fft.rfft(np.bincount(places, one[keep], size)) ** times, size)
    loss = (np.arange(size) + size // 2) % size - size // 2
    return float((wrapped * np.maximum(1 - np.exp(epsilon - loss * step), 0)).sum())


@pytest.mark.parametrize(("rate", "sigma", "times"), [(0.01, 1.0, 1000), (0.3, 2.0, 20), (0.05, 0.8, 3)])
def test_composition_and_what_add_remove_would_have_said(rate: float, sigma: float, times: int) -> None:
    right, wrong = (Repeat(kind(rate, Gaussian(sigma)), times) for kind in (PoissonReplace, Poisson))
    epsilon = curve(right).epsilon(1e-5)
    assert composed_delta(rate, sigma, times, epsilon) == pytest.approx(1e-5, rel=0.02)
    assert composed_delta(rate, sigma, times, curve(wrong).epsilon(1e-5)) > 1.3e-5  # the broken twin
    if times == 1000:
        assert composed_delta(rate, sigma, times, curve(wrong).epsilon(1e-5)) > 1e-3
        assert (round(epsilon, 2), round(curve(wrong).epsilon(1e-5), 2)) == (2.84, 1.83)


def divergence(rate: float, sigma: float, order: float) -> mpmath.mpf:
    """log E[r^a] / (a - 1) by quadrature at 40 digits."""
    mpmath.mp.dps = 40
    q, s = mpmath.mpf(rate), mpmath.mpf(sigma)

    def density(x: mpmath.mpf, shift: int) -> mpmath.mpf:
        return (1 - q) * mpmath.npdf(x, 0, s) + q * mpmath.npdf(x, shift, s)

    def term(x: mpmath.mpf) -> mpmath.mpf:
        return density(x, 1) ** order * density(x, -1) ** (1 - order)

    marks = sorted({-14 * sigma - 2, -2, 0, 2, order, order + 14 * sigma + 2})
    return mpmath.log(mpmath.quad(term, marks, maxdegree=8)) / (order - 1)


@pytest.mark.parametrize(
    ("rate", "sigma", "order"),
    [(0.01, 1.0, 1.05), (0.01, 1.0, 8.0), (0.1, 0.5, 32.0), (1e-4, 1.0, 2.0), (0.5, 5.0, 3.7), (1e-3, 50.0, 64.0)],
)  # fmt: skip
def test_divergences_are_tight_and_from_above(rate: float, sigma: float, order: float) -> None:
    ratio = renyi(PoissonReplace(rate, Gaussian(sigma)), order) / divergence(rate, sigma, order)
    assert 1 <= ratio < 1 + 1e-4


@pytest.mark.parametrize("event", WHOLE, ids=repr)
def test_divergences_of_whole_numbers(event: DiscreteGaussian | DiscreteLaplace) -> None:
    inside, out, other = on_whole_numbers(event)
    for rate, order in ((0.05, 1.3), (0.05, 6.0), (0.6, 3.0)):
        one, two = mixed(rate, inside, out), mixed(rate, other, out)
        one, two = one[two > 0], two[two > 0]
        truth = math.log((two * (one / two) ** order).sum()) / (order - 1)
        assert truth * (1 - 1e-9) <= renyi(PoissonReplace(rate, event), order) <= truth * (1 + 1e-2)


@pytest.mark.parametrize("sigma", [1e-2, 1.0, 1e3, 1e8, 1e15])
@pytest.mark.parametrize("rate", [1e-300, 1e-9, 0.01, 0.999999, 1.0])
def test_extremes_give_bounds(sigma: float, rate: float) -> None:
    """Never zero, never not a number, never below the curve of one unit added."""
    epsilons = np.concatenate([[0.0], np.geomspace(1e-15, 1e6, 60)])
    for noise in (Gaussian(sigma), Laplace(sigma)):
        event, added = PoissonReplace(rate, noise), Poisson(rate, noise)
        found = plan(event).parts[0][0].delta(epsilons)
        assert np.all(np.isfinite(found))
        assert np.all(np.diff(found) <= 1e-9 * found[:-1])
        assert found[0] > 0
        if rate > 1e-100:
            assert np.all(found >= plan(added).parts[0][0].delta(epsilons) * (1 - 1e-9))
        for order in (1.0001, 2.0, 30.0):
            assert 0 < renyi(event, order) < math.inf
        assert renyi(event, 2.0) >= renyi(added, 2.0) * (1 - 1e-9)


INNER = [
    Pure(1.0), NoisyMax(0.5), Exponential(1.0), Approximate(1.0, 1e-6), Repeat(Gaussian(2.0), 3),
    Sequence([Gaussian(2.0), Laplace(2.0)]), Poisson(0.5, Gaussian(1.0)), DiscreteGaussian(2.0, 2),
]  # fmt: skip


@pytest.mark.parametrize("inner", INNER, ids=repr)
def test_between_one_unit_added_and_two_together(inner: Event) -> None:
    for times in (1, 20):
        added, swapped, two = (
            curve(Repeat(each, times)).epsilon(1e-5)
            for each in (Poisson(0.1, inner), PoissonReplace(0.1, inner), Group(Poisson(0.1, inner), 2))
        )
        assert added * (1 - 1e-6) <= swapped <= two * (1 + 1e-3)
    assert renyi(PoissonReplace(0.1, inner), 4.0) <= renyi(Group(inner, 2), 4.0) * (1 + 1e-9)


def test_ends() -> None:
    assert curve(PoissonReplace(0.0, Gaussian(1.0))).epsilon(0) == curve(PoissonReplace(0.5, Zero())).epsilon(0) == 0
    assert renyi(PoissonReplace(0.0, Gaussian(1.0)), 2.0) == renyi(PoissonReplace(0.5, Pure(0.0)), 2.0) == 0
    assert curve(PoissonReplace(0.5, NonPrivate())).epsilon(0.1) == renyi(PoissonReplace(0.5, NonPrivate()), 2.0) == math.inf
    whole = PoissonReplace(1.0, Gaussian(1.0))
    assert curve(whole).epsilon(1e-5) == curve(Gaussian(0.5)).epsilon(1e-5)
    assert renyi(whole, 3.0) == pytest.approx(renyi(Gaussian(0.5), 3.0), rel=1e-12)
    assert Filter(50.0, 1e-6).pure_cost(PoissonReplace(1.0, Pure(0.25))) == Filter(50.0, 1e-6).pure_cost(Pure(0.5))


def test_noise_is_found_for_a_budget() -> None:
    noise = calibrate(lambda s: Repeat(PoissonReplace(0.05, Gaussian(s)), 200), epsilon=2.0, delta=1e-6)
    assert 1.99 < curve(Repeat(PoissonReplace(0.05, Gaussian(noise)), 200)).epsilon(1e-6) <= 2.0
