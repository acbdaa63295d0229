"""Estimation against slow, obvious computations: whole joint tables, and brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.synth import closed
from discreet.synth.junction import JunctionTree, onto
from discreet.synth.measure import Measurement, total

RNG = np.random.default_rng(5)
SIZES = (2, 3, 2, 4, 3)


def graphs() -> st.SearchStrategy[list[tuple[int, ...]]]:
    pairs = [*itertools.combinations(range(len(SIZES)), 2), (0, 1, 2), (1, 3, 4)]
    return st.lists(st.sampled_from(pairs), max_size=7)


def joint(tree: JunctionTree, potentials: list[np.ndarray]) -> np.ndarray:  # type: ignore[type-arg]
    """exp of the sum of all potentials over every cell there is."""
    whole = np.zeros(tree.sizes)
    for clique, potential in zip(tree.cliques, potentials):
        whole = whole + potential.reshape([tree.sizes[c] if c in clique else 1 for c in range(len(tree.sizes))])
    return np.exp(whole)


@settings(max_examples=60)
@given(sets=graphs(), seed=st.integers(0, 1000))
def test_a_junction_tree_is_the_whole_joint(sets: list[tuple[int, ...]], seed: int) -> None:
    random = np.random.default_rng(seed)
    tree = JunctionTree.of(SIZES, sets)
    assert all(tree.home(columns) is not None for columns in sets)
    assert {column for clique in tree.cliques for column in clique} == set(range(len(SIZES)))
    potentials = [random.normal(size=table.shape) for table in tree.zeros()]
    whole = joint(tree, potentials)
    conditionals, log_total = tree.conditionals(potentials)
    assert math.isclose(log_total, math.log(whole.sum()), abs_tol=1e-9)
    for clique, belief in zip(tree.cliques, tree.beliefs(conditionals)):
        assert np.allclose(belief, onto(whole / whole.sum(), tuple(range(len(SIZES))), clique))
    for columns in ((0,), (4, 0), (3, 1, 0), (2, 4)):
        assert np.allclose(tree.marginal(conditionals, columns), onto(whole / whole.sum(), tuple(range(len(SIZES))), columns))
    assert math.isclose(tree.most(potentials), math.log(whole.max()), abs_tol=1e-9)


def test_what_is_impossible_stays_impossible() -> None:
    tree = JunctionTree.of(SIZES, [(0, 1), (1, 2), (2, 3), (3, 4)])
    potentials = [RNG.normal(size=table.shape) for table in tree.zeros()]
    for potential in potentials:
        potential[0, 0] = -np.inf
    whole = joint(tree, potentials)
    conditionals, _ = tree.conditionals(potentials)
    for clique, belief in zip(tree.cliques, tree.beliefs(conditionals)):
        assert np.allclose(belief, onto(whole / whole.sum(), tuple(range(len(SIZES))), clique))


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=12), st.floats(0.1, 50))
def test_the_simplex_is_reached_at_its_nearest_point(values: list[float], amount: float) -> None:
    point = closed.simplex(np.array(values), amount)
    assert point.min() >= 0
    assert math.isclose(point.sum(), amount, rel_tol=1e-9)
    moved = np.array(values) - point  # the normal cone: one number where the point is positive, and no more elsewhere
    level = moved[point > 1e-12]
    assert np.ptp(level) < 1e-7
    assert (moved[point <= 1e-12] <= level.min() + 1e-7).all()


def test_a_tree_without_noise_comes_back_exactly() -> None:
    counts = RNG.integers(1, 50, (4, 5)).astype(float)
    rows, columns = counts.sum(axis=1), counts.sum(axis=0)
    assert np.allclose(closed.pair_table(counts, rows, columns), counts, atol=counts.sum() * 2 * closed.FLOOR)


def test_margins_hold_even_where_the_measured_table_is_empty() -> None:
    rows, columns = np.array([10.0, 0.0, 5.0]), np.array([7.0, 8.0])
    table = closed.pair_table(np.array([[-9.0, -9.0], [3.0, 3.0], [50.0, -50.0]]), rows, columns)
    assert np.allclose(table.sum(axis=1), rows)
    assert np.allclose(table.sum(axis=0), columns, atol=1e-4)
    assert table.min() >= 0


def test_columns_are_weighed_by_their_precision() -> None:
    ones = [Measurement((0,), np.array([10.0, 20.0]), 1.0), Measurement((1,), np.array([15.0, 15.0]), 1.0)]
    pair = Measurement((0, 1), np.array([[8.0, 8.0], [8.0, 6.0]]), 1.0)
    first, _ = closed.columns_of(2, [*ones, pair], 30.0, (2, 2))
    assert np.allclose(first, [(10 + 16 / 2) / 1.5, (20 + 14 / 2) / 1.5])  # a sum of two cells has twice the variance
    assert math.isclose(total([*ones, pair]), (30 / 2 + 30 / 2 + 30 / 4) / (1 / 2 + 1 / 2 + 1 / 4))


def test_summing_cells_adds_up_their_noise() -> None:
    view = Measurement((0, 1), np.zeros((3, 4)), 2.0).onto((0,))
    assert view.counts.shape == (3,)
    assert view.sigma == pytest.approx(4.0)
