"""Profiles against slow, obvious computations of the same divergence."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy import integrate, stats

from discreet.accounting import profile as P

EPSILONS = np.array([0.0, 0.05, 0.3, 0.9, 1.7, 4.0])


def hockey_stick(p, q, epsilon: float) -> float:
    """The sum over outcomes of (p - e^epsilon q)+."""
    return float(np.maximum(np.asarray(p) - math.exp(epsilon) * np.asarray(q), 0).sum())


def check_discrete(profile: P.Profile, p, q) -> None:
    for epsilon in EPSILONS:
        at = np.array([epsilon])
        assert profile.forward(at)[0] == pytest.approx(hockey_stick(p, q, epsilon), rel=1e-9, abs=1e-13)
        assert profile.backward(at)[0] == pytest.approx(hockey_stick(q, p, epsilon), rel=1e-9, abs=1e-13)


@pytest.mark.parametrize(("scale", "sensitivity"), [(1.0, 1), (2.5, 3), (0.7, 2), (10.0, 7), (30.0, 1)])
def test_discrete_laplace(scale: float, sensitivity: int) -> None:
    x = np.arange(-2000, 2001)
    law = np.exp(-np.abs(x) / scale)
    moved = np.exp(-np.abs(x - sensitivity) / scale)
    check_discrete(P.discrete_laplace(scale, sensitivity), moved / law.sum(), law / law.sum())


@pytest.mark.parametrize(
    ("sigma", "sensitivity"), [(0.4, 1), (1.0, 1), (3.0, 2), (20.0, 5), (63.0, 90), (64.0, 90), (200.0, 9)]
)
def test_discrete_gaussian(sigma: float, sensitivity: int) -> None:
    x = np.arange(-9000, 9001)
    law, moved = np.exp(-((x / sigma) ** 2) / 2), np.exp(-(((x - sensitivity) / sigma) ** 2) / 2)
    check_discrete(P.discrete_gaussian(sigma, sensitivity), moved / law.sum(), law / law.sum())


@pytest.mark.parametrize(("epsilon", "categories"), [(0.1, 2), (1.0, 2), (1.0, 7), (3.0, 100)])
def test_randomized_response(epsilon: float, categories: int) -> None:
    q = np.ones(categories)
    p = np.ones(categories)
    p[0] = q[1] = math.exp(epsilon)
    check_discrete(P.randomized_response(epsilon, categories), p / p.sum(), q / q.sum())


def test_approximate() -> None:
    keep, e = 1 - 1e-3, math.exp(1.2)
    p = np.array([1e-3, 0, keep * e / (1 + e), keep / (1 + e)])
    q = np.array([0, 1e-3, keep / (1 + e), keep * e / (1 + e)])
    check_discrete(P.approximate(1.2, 1e-3), p, q)


def test_exponential_is_the_envelope_of_bounded_range() -> None:
    """At each epsilon, the largest delta over all two-answer mechanisms with losses t and t - range."""
    width = 1.3
    for epsilon in (0.0, 0.2, 0.7, 1.2, 1.3):
        t = np.linspace(0, width, 200_001)
        chance = (math.exp(width) - np.exp(t)) / math.expm1(width)
        best = float((chance * np.maximum(1 - np.exp(epsilon - t), 0)).max())
        assert P.exponential(width).forward(np.array([epsilon]))[0] == pytest.approx(best, abs=1e-9)


def test_exponential_dominates_real_exponential_mechanisms() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        width = rng.uniform(0.1, 4)
        scores = rng.normal(size=rng.integers(2, 8))
        moved = scores + rng.uniform(-1, 1, size=len(scores))
        p, q = (np.exp(width * s / 2) / np.exp(width * s / 2).sum() for s in (scores, moved))
        grid = np.linspace(0, width, 50)
        allowed = P.exponential(width).forward(grid)
        assert all(hockey_stick(p, q, e) <= d + 1e-12 for e, d in zip(grid, allowed))


@pytest.mark.parametrize("sigma", [0.3, 1.0, 5.0, 1e3, 1e6])
def test_gaussian_to_many_digits(sigma: float) -> None:
    """Relative precision where it matters: in the tail, against 60 digits."""
    with mpmath.workdps(60):
        for share in (0.0, 0.5, 1.0, 3.0, 6.0):
            epsilon = share / sigma
            mu = mpmath.mpf(1) / mpmath.mpf(sigma)
            truth = mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)
            found = P.gaussian(sigma).forward(np.array([epsilon]))[0]
            assert float(abs(found - truth) / truth) < 1e-14 * max(sigma, 10)


def test_laplace_by_integration() -> None:
    for scale in (0.5, 2.0):
        for epsilon in (0.0, 0.1, 0.4):

            def gap(x: float, scale: float = scale, epsilon: float = epsilon) -> float:
                return max(stats.laplace.pdf(x, 1, scale) - math.exp(epsilon) * stats.laplace.pdf(x, 0, scale), 0)

            truth = integrate.quad(gap, -60, 60, points=[0, 0.5, 1], limit=400)[0]
            assert P.laplace(scale).forward(np.array([epsilon]))[0] == pytest.approx(truth, abs=1e-8)


def test_two_laplace_coordinates_leak_no_more_than_one() -> None:
    """The l1 ball: moving two coordinates by half each is dominated by moving one by the whole."""
    from discreet.accounting import Laplace, Repeat, curve

    for scale in (0.5, 1.0, 3.0):
        halves, whole = curve(Repeat(Laplace(2 * scale), 2)), curve(Laplace(scale))
        for epsilon in np.linspace(0, 0.99 / scale, 9):
            assert halves.delta(epsilon) <= whole.delta(epsilon) * (1 + 1e-4) + 1e-12


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.9])
def test_poisson_sampling_by_enumeration(rate: float) -> None:
    x = np.arange(-300, 301)
    law = np.exp(-np.abs(x) / 2)
    without = law / law.sum()
    inside = np.exp(-np.abs(x - 1) / 2) / law.sum()
    check_discrete(P.poisson(rate, P.discrete_laplace(2.0, 1)), (1 - rate) * without + rate * inside, without)


@pytest.mark.parametrize("rate", [0.01, 0.3])
def test_sampling_without_replacement_is_symmetric_and_dominates(rate: float) -> None:
    """Mixtures that share their common part: (1-q) A + q P against (1-q) A + q P', A anything between."""
    rng = np.random.default_rng(5)
    profile = P.without_replacement(rate, P.pure(1.0))
    e = math.e
    for _ in range(300):
        p, q = np.array([e, 1.0]) / (1 + e), np.array([1.0, e]) / (1 + e)
        low = rng.uniform(1 / (1 + e), e / (1 + e))
        shared = np.array([low, 1 - low])
        a, b = (1 - rate) * shared + rate * p, (1 - rate) * shared + rate * q
        grid = np.linspace(0, 1, 20)
        assert all(hockey_stick(a, b, x) <= d + 1e-12 for x, d in zip(grid, profile.forward(grid)))
    assert profile.symmetric


def test_groups_of_gaussians_are_dominated_by_the_path_bound() -> None:
    wide = P.group(3, P.gaussian(4.0))
    grid = np.linspace(0, 5, 30)
    assert (wide.forward(grid) >= P.gaussian(4.0 / 3).forward(grid) - 1e-15).all()


def test_a_table_gives_back_the_pair_it_came_from() -> None:
    """Between the losses of a finite pair its profile is linear in e^epsilon, as chords are."""
    rng = np.random.default_rng(1)
    p, q = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6))
    loss = np.sort(np.log(p / q))
    up, down = np.append(0.0, loss[loss > 0]), np.append(0.0, -loss[loss < 0][::-1])
    sides = [(up, np.array([hockey_stick(p, q, x) for x in up])), (down, np.array([hockey_stick(q, p, x) for x in down]))]
    check_discrete(P.from_table(*sides), p, q)
