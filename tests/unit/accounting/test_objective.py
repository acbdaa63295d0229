"""Objective perturbation against the slow, obvious integral."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad

from discreet.accounting import Filter, Gaussian, ObjectivePerturbation, Repeat, Sequence, calibrate, curve, renyi
from discreet.core import Group
from discreet.errors import BudgetExceeded

SHARES = np.linspace(0, 1, 2001)
CASES = [
    (0.5, 0.02, True),
    (0.5, 0.3, True),
    (2.0, 0.1, True),
    (5.0, 0.25, True),
    (30.0, 0.02, True),
    (5.0, 0.1, False),
    (0.7, 2.0, False),
]


def psi(z: float, event: ObjectivePerturbation, *, linear: bool) -> float:
    m = event.noise_multiplier
    bend = 4 * event.curvature * SHARES * (1 - SHARES) if event.tapered else np.full_like(SHARES, event.curvature)
    bend = bend if linear and event.tapered else np.log1p(bend)
    return float((bend + SHARES**2 / (2 * m * m) + SHARES * z / m).max())


def slow_delta(event: ObjectivePerturbation, epsilon: float, *, linear: bool) -> float:
    def inside(z: float) -> float:
        return max(-math.expm1(epsilon - psi(z, event, linear=linear)), 0.0) * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)

    return sum(quad(inside, low, low + 1, limit=100)[0] for low in range(-9, 12))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.5, 4.0])
def test_delta_is_the_integral(case: tuple[float, float, bool], share: float) -> None:
    """Never below the exact bound; and above epsilon = 0, where a pair must dominate, as near as the parabola allows."""
    event = ObjectivePerturbation(*case)
    epsilon = share / event.noise_multiplier
    found = curve(event).delta(epsilon)
    assert found >= slow_delta(event, epsilon, linear=False) * (1 - 1e-5) - 1e-9
    at_zero = curve(event).delta(0.0)
    response = at_zero - (1 - at_zero) / 2 * math.expm1(epsilon)
    assert found == pytest.approx(max(slow_delta(event, epsilon, linear=True), response), rel=2e-4, abs=1e-8)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("order", [1.2, 2.0, 8.0])
def test_the_divergence_is_the_integral(case: tuple[float, float, bool], order: float) -> None:
    event = ObjectivePerturbation(*case)
    if event.tapered and 4 * event.curvature <= 1 / (2 * event.noise_multiplier**2):  # the Gaussian pair dominates
        assert renyi(event, order) == pytest.approx(renyi(Gaussian(event.noise_multiplier), order), rel=1e-9)
        return

    def inside(z: float) -> float:
        return math.exp((order - 1) * psi(z, event, linear=False) - z * z / 2) / math.sqrt(2 * math.pi)

    far = int((order - 1) / event.noise_multiplier) + 12
    slow = math.log(sum(quad(inside, low, low + 1, limit=100)[0] for low in range(-12, far))) / (order - 1)
    assert slow * (1 - 1e-6) <= renyi(event, order) <= slow * 1.2 + 0.02


@pytest.mark.parametrize("case", CASES)
def test_the_profile_belongs_to_a_pair(case: tuple[float, float, bool]) -> None:
    """Convex in e^epsilon, across 0 too: what composition relies on."""
    bound = curve(ObjectivePerturbation(*case))
    top = 3 / case[0] + 1
    up = np.array([bound.delta(e) for e in np.linspace(0, top, 120)])
    a = np.exp(np.linspace(0, top, 120))
    whole = np.concatenate([(1 - 1 / a + up / a)[:0:-1], up])  # by parity at 1/a
    slopes = np.diff(whole) / np.diff(np.concatenate([(1 / a)[:0:-1], a]))
    assert (np.diff(slopes) >= -1e-7).all()


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_logistic_loss_costs_what_a_gaussian_costs(epsilon: float) -> None:
    """From alpha = 1 / epsilon on the curvature is free."""
    noise = calibrate(lambda s: ObjectivePerturbation(s, 0.25 * epsilon, True), epsilon, 1e-6)
    assert noise == pytest.approx(calibrate(Gaussian, epsilon, 1e-6), rel=1e-5)


def test_it_composes_and_no_curvature_is_a_gaussian() -> None:
    alone = ObjectivePerturbation(3.0, 0.0, True)
    assert curve(alone).epsilon(1e-6) == pytest.approx(curve(Gaussian(3.0)).epsilon(1e-6), rel=1e-9)
    twice = curve(Repeat(ObjectivePerturbation(3.0, 0.05, True), 2)).epsilon(1e-6)
    assert curve(Repeat(Gaussian(3.0), 2)).epsilon(1e-6) <= twice <= 2 * curve(alone).epsilon(5e-7)
    both = curve(Sequence([ObjectivePerturbation(3.0, 0.05, True), Gaussian(150.0)])).epsilon(1e-6)
    assert curve(alone).epsilon(1e-6) < both < 1.001 * curve(alone).epsilon(1e-6)
    assert curve(Group(alone, 2)).epsilon(1e-6) > curve(Gaussian(1.5)).epsilon(1e-6)
    assert curve(ObjectivePerturbation(1e-200, 1.0)).epsilon(1e-6) == math.inf


@pytest.mark.parametrize("order", [1.01, 1.5, 8.0, 20.0, 200.0, 1e6])
@pytest.mark.parametrize("noise_multiplier", [1e-160, 0.2, 0.5, 1.0, 30.0, 1e160])
@pytest.mark.parametrize("curvature", [0.0, 0.25, 10.0, 158.5, 2500.0])
@pytest.mark.parametrize("tapered", [True, False])
def test_the_divergence_is_never_below_the_gaussian_mechanisms(
    noise_multiplier: float, curvature: float, tapered: bool, order: float
) -> None:
    """A Gaussian mechanism is a case of the event; cells far out in a tail have a mass, too."""
    assert renyi(ObjectivePerturbation(noise_multiplier, curvature, tapered), order) >= renyi(Gaussian(noise_multiplier), order)


def test_a_filter_refuses_what_the_gaussian_mechanism_exceeds() -> None:
    for epsilon, delta, event in [
        (20.0, 1e-100, ObjectivePerturbation(1.0, 10.0, True)),
        (80.0, 1e-300, ObjectivePerturbation(0.28183829, 158.489, True)),
    ]:
        with pytest.raises(BudgetExceeded):
            Filter(epsilon, delta).spend(event)
