"""The lectures' closed forms, each against the tight value."""

from __future__ import annotations

import math

import pytest

from discreet.accounting import (
    Gaussian,
    Group,
    Laplace,
    Poisson,
    Pure,
    RandomizedResponse,
    Repeat,
    WithoutReplacement,
    calibrate,
    closed,
    curve,
)
from discreet.errors import InvalidValue


def test_laplace_scale_is_tight() -> None:
    for epsilon in (0.1, 1.0, 5.0):
        scale = closed.laplace_scale(3.0, epsilon)
        assert curve(Laplace(scale / 3.0)).epsilon(0) == pytest.approx(epsilon)
        assert calibrate(Laplace, epsilon, 0) == pytest.approx(scale / 3.0, rel=1e-5)


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0])
def test_classic_gaussian_is_valid_and_wasteful(epsilon: float) -> None:
    classic = closed.gaussian_sigma_classic(1.0, epsilon, 1e-5)
    assert curve(Gaussian(classic)).epsilon(1e-5) < epsilon
    assert closed.gaussian_sigma(1.0, epsilon, 1e-5) < classic


def test_classic_gaussian_fails_beyond_one() -> None:
    with pytest.raises(InvalidValue, match=r"up to 1 only; got 10.*gaussian_sigma"):
        closed.gaussian_sigma_classic(1.0, 10.0, 1e-5)
    assert curve(Gaussian(math.sqrt(2 * math.log(1.25e5)) / 10)).delta(10.0) > 2e-5


@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 1e-9), (1.0, 1e-5), (10.0, 1e-6), (0.0, 0.1)])
def test_analytic_gaussian_is_exact(epsilon: float, delta: float) -> None:
    sigma = closed.gaussian_sigma(2.0, epsilon, delta) / 2.0
    assert curve(Gaussian(sigma)).delta(epsilon) <= delta
    assert curve(Gaussian(sigma * (1 - 1e-6))).delta(epsilon) > delta


def test_group_privacy() -> None:
    assert curve(Group(Pure(0.1), 5)).epsilon(0) == pytest.approx(closed.group_epsilon(0.1, 5))
    assert closed.group_delta(1.0, 1e-6, 3) == pytest.approx(1e-6 * (1 + math.e + math.e**2))
    assert curve(Group(Gaussian(3.0), 3)).delta(3.0) <= closed.group_delta(1.0, curve(Gaussian(3.0)).delta(1.0), 3)


def test_alpha_privacy_of_the_coin() -> None:
    """Truth with 3/4, a lie with 1/4: 2-private in the lecture's sense."""
    epsilon = closed.epsilon_of_alpha(2.0)
    assert epsilon == pytest.approx(math.log(3))
    assert math.exp(epsilon) / (1 + math.exp(epsilon)) == pytest.approx(0.75)
    assert curve(RandomizedResponse(epsilon)).epsilon(0) == epsilon


def test_sampling() -> None:
    for epsilon, rate in ((0.1, 0.5), (2.0, 0.01), (50.0, 0.1)):
        assert curve(Poisson(rate, Pure(epsilon))).epsilon(0) == pytest.approx(closed.sampled_epsilon(epsilon, rate))
    assert closed.sampled_epsilon(1.0, 0.5) > 0.5  # the lecture's rate x epsilon is too small


@pytest.mark.parametrize(("steps", "rows"), [(1000, 1000), (10_000, 2000)])
def test_sgd_noise_is_enough_and_far_too_much(steps: int, rows: int) -> None:
    sigma = closed.sgd_sigma(1.0, steps, rows, epsilon=1.0, delta=1e-5)

    def run(noise: float):
        return Repeat(WithoutReplacement(1 / rows, Gaussian(noise / 2)), steps)  # replacing a row moves a gradient by 2 l

    assert curve(run(sigma)).epsilon(1e-5) < 1.0
    assert calibrate(run, 1.0, 1e-5) < sigma / 4


def test_broken_probability() -> None:
    assert closed.broken_probability(0.0, 0.0, 1e6) == pytest.approx(1e-6)
    assert closed.broken_probability(50.0, 0.0, 10) == 1.0
    # no mechanism does better: the power at false-positive rate 1/N is what an identification can reach
    assert curve(Pure(1.0)).power(1e-6) <= closed.broken_probability(1.0, 0.0, 1e6) * (1 + 1e-9)


def test_compositions() -> None:
    assert closed.basic_composition([(0.25, 1e-6)] * 4) == (1.0, pytest.approx(4e-6))
    epsilon, delta = closed.advanced_composition(0.01, 0.0, 10_000, slack=1e-6)
    assert curve(Repeat(Pure(0.01), 10_000)).epsilon(delta) < epsilon < 100


@pytest.mark.parametrize(
    ("make", "epsilon", "delta"),
    [
        (lambda s: Repeat(Poisson(0.01, Gaussian(s)), 1000), 0.5, 1e-5),
        (lambda s: Repeat(Poisson(0.1, Gaussian(s)), 100), 8.0, 1e-6),
        (lambda s: Repeat(Poisson(0.001, Gaussian(s)), 1000), 0.3, 1e-5), (lambda s: Repeat(Laplace(s), 200), 1.0, 1e-6),
        (lambda s: Group(Gaussian(s), 10), 2.0, 1e-9), (Gaussian, 0.001, 1e-5), (Gaussian, 200.0, 1e-5),
    ],
)  # fmt: skip
def test_calibration_meets_the_budget_and_wastes_nothing(make, epsilon: float, delta: float) -> None:
    noise = calibrate(make, epsilon, delta)
    assert curve(make(noise)).epsilon(delta) <= epsilon
    assert curve(make(noise * 0.9995)).epsilon(delta) > epsilon * (1 - 1e-6)


def test_calibration_says_what_cannot_be() -> None:
    with pytest.raises(InvalidValue, match="No noise up to"):
        calibrate(lambda s: Repeat(Pure(1.0), 5), 1.0, 1e-5)
    with pytest.raises(InvalidValue, match="may not depend on the noise"):
        calibrate(lambda s: Pure(0.1), 1.0, 1e-5)
    with pytest.raises(InvalidValue, match="No noise up to"):
        calibrate(Gaussian, 1.0, 0.0)
    with pytest.raises(InvalidValue, match="make_event"):
        calibrate(3.0, 1.0, 1e-5)  # type: ignore[arg-type]
