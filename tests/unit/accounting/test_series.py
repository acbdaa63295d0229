"""The short series against convolution by hand on the same lattice: never below it, and hardly above."""

from __future__ import annotations

import math

import numpy as np
import pytest

from discreet.accounting import Gaussian, Poisson, Repeat, curve
from discreet.accounting.lattice import Lattice, discretise, reach
from discreet.accounting.profile import gaussian, poisson
from discreet.accounting.series import _Spectrum, series

STEP, TIMES = 0.012, 128


def sampled(direction: int, sigma: float = 2.0, rate: float = 0.1) -> Lattice:
    profile = poisson(rate, gaussian(sigma))
    pair = discretise(profile, STEP, *reach(profile, 1e-14))
    return pair.backward if direction else pair.forward


def convolved(part: Lattice, doublings: int) -> tuple[np.ndarray, np.ndarray]:
    """Losses and masses of 2^doublings of them, term by term: no transform, no tilt."""
    mass = part.mass
    for _ in range(doublings):
        mass = np.convolve(mass, mass)
    return part.step * (part.start * 2**doublings + np.arange(len(mass))), mass


def delta_by_hand(loss: np.ndarray, mass: np.ndarray, epsilon: float) -> float:
    return float((mass * -np.expm1(np.minimum(epsilon - loss, 0))).sum())


@pytest.fixture(scope="module", params=[0, 1], ids=["forward", "backward"])
def both(request) -> tuple[Lattice, np.ndarray, np.ndarray]:
    part = sampled(request.param)
    return (part, *convolved(part, 7))


@pytest.mark.parametrize("tilt", [1.0, 3.0, 6.0])
def test_never_below_the_convolution_and_hardly_above(both, tilt: float) -> None:
    part, loss, mass = both
    found = series([(part, TIMES)], tilt, (math.log(1e9) + 16) / tilt + 8)
    assert found is not None
    for epsilon in (0.2, 0.5, 0.777, 1.0, 1.5):
        truth = found.base + delta_by_hand(loss, mass, epsilon)
        value = found.delta(epsilon)
        assert truth * (1 - 1e-12) <= value <= truth * (1 + 1e-6)
        if truth > 10 * found.base:
            assert found.epsilon(value, near=epsilon + 0.1) == pytest.approx(epsilon, abs=1e-9)
            assert found.epsilon(value, near=max(epsilon - 0.3, 0)) == pytest.approx(epsilon, abs=1e-9)


def test_a_period_too_short_only_adds(both) -> None:
    part, loss, mass = both
    for width in (0.8, 1.5, 3.0):
        found = series([(part, TIMES)], 3.0, width)
        assert found is not None
        for epsilon in (0.2, 0.777, 1.5):
            assert found.delta(epsilon) >= found.base + delta_by_hand(loss, mass, epsilon) * (1 - 1e-12)


def test_epsilon_at_the_ends(both) -> None:
    part, _, _ = both
    found = series([(part, TIMES)], 3.0, 12.0)
    assert found is not None
    assert found.epsilon(0.999, near=0.5) == 0.0
    assert found.epsilon(1e-200, near=0.5) == math.inf  # below what goes to infinity


def test_parts_of_two_kinds() -> None:
    one, two = sampled(0), sampled(0, sigma=1.5)
    (_, first), (_, second) = convolved(one, 6), convolved(two, 6)
    mass = np.convolve(first, second)
    loss = STEP * ((one.start + two.start) * 64 + np.arange(len(mass)))
    found = series([(one, 64), (two, 64)], 3.0, 16.0)
    assert found is not None
    for epsilon in (0.5, 1.0, 1.5):
        truth = found.base + delta_by_hand(loss, mass, epsilon)
        assert truth * (1 - 1e-12) <= found.delta(epsilon) <= truth * (1 + 1e-6)


def test_refused_where_the_spectrum_does_not_fade() -> None:
    """Losses on every other point come back at the highest frequency; few losses never fade."""
    two = Lattice(0.01, -200, np.where(np.arange(401) % 2, 0.0, 1 / 201), 0.0)
    assert series([(two, 1000)], 1.0, 100.0) is None
    assert series([(Lattice(0.01, -1, np.array([0.5, 0.0, 0.5]), 0.0), 10_000)], 1.0, 100.0) is None
    assert series([(Lattice(0.01, 0, np.array([1.0]), 0.0), 10_000)], 1.0, 100.0) is None
    assert series([(sampled(0), 1)], 1.0, 100.0) is None


@pytest.mark.parametrize("seed", range(12))
def test_no_frequency_left_out_is_larger_than_said(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weight = rng.gamma(0.3, size=int(rng.integers(2, 400)))
    weight *= np.exp(-np.arange(len(weight)) * rng.uniform(0, 0.2))
    weight /= weight.sum()
    look = _Spectrum(weight)
    turn = np.linspace(0, math.pi, 20_001)
    lost = 1 - np.abs(np.exp(1j * np.multiply.outer(turn, np.arange(len(weight)))) @ weight) ** 2
    for first in (10, 100, 1000, 5000, 15_000):
        assert look.lost_from(float(turn[first])) <= lost[first:].min() + 1e-11


@pytest.mark.parametrize(("sigma", "rate", "times"), [(2.0, 0.1, 60_000), (4.0, 0.1, 100), (1.0, 0.01, 1000)])
def test_the_transform_says_the_same(monkeypatch, sigma: float, rate: float, times: int) -> None:
    """With and without the series: the same epsilon and delta to well within the grid's own excess."""
    event = Repeat(Poisson(rate, Gaussian(sigma)), times)
    for small in (1e-3, 1e-5, 1e-9):
        quick = curve(event).epsilon(small)
        quick_delta = curve(event).delta(quick)
        with monkeypatch.context() as patch:
            patch.setattr("discreet.accounting.composition.series", lambda *_: None)
            slow = curve(event).epsilon(small)
            assert curve(event).delta(quick) == pytest.approx(quick_delta, rel=1e-3)
        assert quick == pytest.approx(slow, rel=3e-5)
