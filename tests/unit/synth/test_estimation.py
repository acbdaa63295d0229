"""Estimation against slow, obvious computations: whole joint tables, and brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.synth import Junction, closed
from discreet.synth.dual import Problem, solve
from discreet.synth.junction import JunctionTree, onto
from discreet.synth.measure import Measurement, Reach, total
from discreet.synth.methods import Public
from discreet.synth.oneshot import independent, shared

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


def dykstra(measured: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """The nearest table with these margins and no cell below zero, by alternating projections (Boyle & Dykstra 1986)."""
    height, width = measured.shape
    table, kept = measured.copy(), np.zeros_like(measured)
    for _ in range(4000):
        off = [(rows - table.sum(axis=1)) / width, (columns - table.sum(axis=0)) / height]
        onto_margins = table + off[0][:, None] + off[1][None, :] - (rows.sum() - table.sum()) / table.size
        table = np.maximum(onto_margins + kept, 0.0)
        kept = onto_margins + kept - table
    return table


@pytest.mark.parametrize("noise", [1.0, 30.0, 300.0])
@pytest.mark.parametrize("seed", range(4))
def test_a_pair_is_the_nearest_table_that_there_can_be(seed: int, noise: float) -> None:
    """To a thousandth of the rows: what turns and the mixed-in table may leave. Fixed seeds, as few turns may leave more."""
    random = np.random.default_rng(seed)
    height, width = random.integers(2, 8, 2)
    true = random.dirichlet(np.full(height * width, 0.3)).reshape(height, width) * 1000
    rows, columns = true.sum(axis=1), true.sum(axis=0)
    measured = true + random.normal(size=true.shape) * noise
    found, nearest = closed.pair_table(measured, rows, columns), dykstra(measured, rows, columns)
    assert np.abs(found - nearest).sum() <= 1.0


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


# ---- the dual ----------------------------------------------------------------------------------------------------------


def problem(seed: int) -> tuple[Problem, list[Measurement], float]:
    random = np.random.default_rng(seed)
    total = 500.0
    truth = random.dirichlet(np.full(math.prod(SIZES[:4]), 0.4)).reshape(SIZES[:4]) * total
    sets = [(0,), (1,), (2,), (3,), (0, 1), (1, 2), (2, 3), (0, 3)]
    measured = [Measurement(c, onto(truth, (0, 1, 2, 3), c) + random.normal(size=[SIZES[i] for i in c]) * 5, 5.0) for c in sets]
    tree = JunctionTree.of(SIZES[:4], sets)
    start = independent(tree, [random.dirichlet(np.ones(size)) for size in SIZES[:4]])
    return Problem(tree, start, measured, total), measured, total


def objective(p: np.ndarray, start: np.ndarray, measured: list[Measurement], total: float, strength: float) -> float:  # type: ignore[type-arg]
    """What the estimate minimises, on the whole joint table."""
    fits = sum(float(((total * onto(p, (0, 1, 2, 3), m.columns) - m.counts) ** 2).sum()) / m.sigma**2 / 2 for m in measured)
    return fits + strength * float((p * np.log(p / start)).sum())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_dual_finds_what_direct_minimisation_of_the_joint_finds(seed: int) -> None:
    from scipy.optimize import minimize

    dual, measured, total = problem(seed)
    found = solve(dual, strength=20.0, tolerance=1e-6, evaluations=2000)
    start = joint(dual.tree, dual.start)
    start /= start.sum()
    p = dual.tree.marginal(found.conditionals, (0, 1, 2, 3))
    assert found.relative_gap <= 1e-6
    assert math.isclose(objective(p, start, measured, total, 20.0), found.objective, rel_tol=1e-9)

    def plain(logits: np.ndarray) -> float:  # type: ignore[type-arg]
        other = np.exp(logits - logits.max()).reshape(p.shape)
        return objective(other / other.sum(), start, measured, total, 20.0)

    near = np.log(p).reshape(-1)
    for offset in (0.0, 0.3):
        direct = minimize(plain, near + offset * np.random.default_rng(seed).normal(size=near.size), method="L-BFGS-B")
        assert direct.fun >= found.objective - found.gap - 1e-6


def test_the_gap_bounds_the_distance_to_the_optimum_at_every_point() -> None:
    dual, _, _ = problem(4)
    best = solve(dual, strength=20.0, tolerance=1e-9, evaluations=3000)
    for scale in (0.0, 0.5, 3.0):
        value, gradient, primal, _ = dual.at(RNG.normal(size=dual.size) * scale, 20.0)
        assert -value <= best.objective + 1e-6 <= primal + 2e-6
        assert gradient.shape == (dual.size,)


def test_the_gradient_is_that_of_the_dual() -> None:
    dual, _, _ = problem(5)
    z = RNG.normal(size=dual.size)
    _, gradient, _, _ = dual.at(z, 20.0)
    for place in range(0, dual.size, 5):
        step = np.zeros(dual.size)
        step[place] = 1e-5
        slope = (dual.at(z + step, 20.0)[0] - dual.at(z - step, 20.0)[0]) / 2e-5
        assert math.isclose(slope, gradient[place], rel_tol=1e-4, abs_tol=1e-4)


def test_too_few_evaluations_are_not_called_converged() -> None:
    dual, measured, _ = problem(6)
    short = solve(dual, strength=1.0, tolerance=1e-4, evaluations=3)
    assert short.relative_gap > 1e-4
    public = Public(SIZES[:4], Reach(), 1.0, 1e-6)
    assert not Junction(evaluations=3, tolerance=1e-6).estimate(public, measured).converged
    assert Junction(evaluations=3000, tolerance=1e-3).estimate(public, measured).converged


def test_slots_are_all_used_and_each_table_has_one() -> None:
    for sets in ([(0, 1)], [(0, 1), (1, 2), (3, 4)], [(a, b) for a in range(5) for b in range(a)]):
        times = shared(sets, SIZES, 80)
        assert sum(times) == 80
        assert min(times) >= 1
        assert all(type(it) is int for it in times)


def test_a_junction_tree_stays_below_its_cap() -> None:
    sizes = (30,) * 8
    public = Public(sizes, Reach(), 1.0, 1e-6)
    pairs = list(itertools.combinations(range(8), 2))
    method = Junction(most_cells=60_000)
    chosen = method.choose(public, pairs, [1e6 - i for i in range(len(pairs))], 1.0)
    assert 7 <= len(chosen) < len(pairs)
    assert JunctionTree.of(sizes, chosen).cells <= 60_000
    assert chosen[:7] == method.choose(public, pairs, [1e6 - i for i in range(len(pairs))], 1e9)[:7]  # a tree is always there
