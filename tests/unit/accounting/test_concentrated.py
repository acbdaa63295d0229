"""Concentrated: its curve is above that of every mechanism it stands for, and adds up and groups as zCDP does."""

from __future__ import annotations

import math

import numpy as np
import pytest

from discreet.accounting import concentrated, curve, epsilon_from_concentrated, renyi
from discreet.core import Approximate, Concentrated, Exponential, Gaussian, Group, Repeat, Sequence


def divergence(shift: tuple[int, ...], sigma: float, epsilon: float) -> float:
    """The hockey-stick divergence of discrete Gaussians on a vector from the same ones moved, cell by cell."""
    reach = math.ceil(12 * sigma) + max(shift)
    line = np.arange(-reach, reach + max(shift) + 1)
    law = np.exp(-((line / sigma) ** 2) / 2)
    law /= law.sum()
    here, there = np.array(1.0), np.array(1.0)
    for step in shift:
        moved = np.exp(-(((line - step) / sigma) ** 2) / 2)
        here, there = np.multiply.outer(here, law), np.multiply.outer(there, moved / moved.sum())
    return float(np.maximum(here - math.exp(epsilon) * there, 0).sum())


@pytest.mark.parametrize("sigma", [0.4, 1.0, 3.0])
@pytest.mark.parametrize("shift", [(3,), (2, 1), (1, 1, 1), (2, 2), (1, 2)])
def test_a_vector_of_discrete_gaussians_is_below_it(shift: tuple[int, ...], sigma: float) -> None:
    """However a unit of l2 length D is spread over the cells, rho = D^2 / 2 sigma^2 covers it."""
    known = curve(Concentrated(sum(step**2 for step in shift) / (2 * sigma**2)))
    spread = curve(Concentrated(sum(shift) ** 2 / (2 * sigma**2)))
    for epsilon in (0.0, 0.3, 1.0, 2.5, 6.0):
        true = divergence(shift, sigma, epsilon)
        assert true <= known.delta(epsilon) * (1 + 1e-9) + 1e-15
        assert known.delta(epsilon) <= spread.delta(epsilon) * (1 + 1e-9)  # a length is at most the sum of its parts


def test_it_adds_up_and_groups() -> None:
    assert renyi(Concentrated(0.2), 5.0) == pytest.approx(1.0)
    assert concentrated(Sequence([Repeat(Concentrated(0.1), 3), Concentrated(0.2)])) == pytest.approx(0.5)
    assert concentrated(Group(Concentrated(0.1), 3)) == pytest.approx(0.9)
    parts = curve(Sequence([Repeat(Concentrated(0.01), 10), Concentrated(0.1)])).epsilon(1e-6)
    assert parts == pytest.approx(curve(Concentrated(0.2)).epsilon(1e-6), rel=1e-12)
    assert curve(Concentrated(0)).epsilon(0) == 0


@pytest.mark.parametrize("rho", [1e-4, 0.015, 0.5, 20.0])
def test_it_is_near_the_best_conversion_and_above_the_gaussian(rho: float) -> None:
    for delta in (1e-9, 1e-5):
        best = epsilon_from_concentrated(rho, delta)
        assert best * (1 - 1e-9) <= curve(Concentrated(rho)).epsilon(delta) <= best * 1.005
        assert curve(Concentrated(rho)).epsilon(delta) >= curve(Gaussian(math.sqrt(1 / (2 * rho)))).epsilon(delta)


def test_it_composes_with_what_has_no_divergence() -> None:
    mixed = curve(Sequence([Concentrated(0.01), Repeat(Exponential(0.05), 10), Approximate(0.1, 1e-10)]))
    alone = curve(Sequence([Concentrated(0.01), Repeat(Exponential(0.05), 10)]))
    assert alone.epsilon(1e-9) < mixed.epsilon(1e-9) <= 1.01 * (alone.epsilon(9e-10) + 0.1)
