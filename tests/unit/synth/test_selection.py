"""Scores move by no more than their stated sensitivity, whatever the table and wherever the record; choices follow scores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.core import record
from discreet.errors import InvalidValue
from discreet.noise.source import seeded_for_tests
from discreet.synth import Aim, Junction, Synthesis, oneshot, select
from discreet.synth.junction import JunctionTree
from discreet.synth.measure import Measurement, Reach
from discreet.synth.methods import Public
from discreet.synth.oneshot import shared
from unit.synth.rows import chain

shapes = st.tuples(st.integers(1, 4), st.integers(1, 4))
counts = st.one_of(st.integers(0, 5), st.sampled_from([10**3, 10**6, 2**31, 2**33, 2**40]))


@st.composite
def neighbours(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """A table, and the same with one record more."""
    shape = draw(shapes)
    table = np.array([draw(counts) for _ in range(shape[0] * shape[1])], np.int64)
    more = table.copy()
    more[draw(st.integers(0, len(table) - 1))] += 1
    return table.reshape(shape), more.reshape(shape)


@settings(max_examples=300)
@given(pair=neighbours(), expected=st.lists(st.floats(0, 1e12), min_size=16, max_size=16))
def test_one_record_moves_the_gap_by_at_most_one(pair: tuple, expected: list[float]) -> None:  # type: ignore[type-arg]
    public = np.array(expected[: pair[0].size]).reshape(pair[0].shape)
    assert abs(select.gap(pair[0], public) - select.gap(pair[1], public)) <= 1


@settings(max_examples=300)
@given(pair=neighbours())
def test_one_record_moves_mutual_information_by_at_most_its_sensitivity(pair: tuple) -> None:  # type: ignore[type-arg]
    assert abs(select.information(pair[0]) - select.information(pair[1])) <= select.information_sensitivity()


def test_mutual_information_comes_near_its_sensitivity_for_its_rows() -> None:
    """The bound ln(n + 1) + 1 is not loose: one record in a new row and a new column of a table with n others in one cell."""
    table = np.array([[10**6, 0], [0, 0]])
    more = np.array([[10**6, 0], [0, 1]])
    moved = (select.information(more) - select.information(table)) / select.FINE
    assert math.log(10**6) < moved <= math.log(10**6 + 1) + 1


def test_mutual_information_is_what_it_says() -> None:
    table = np.array([[40, 10], [5, 45]])
    p = table / table.sum()
    plain = 100 * (p * np.log(p / np.outer(p.sum(axis=1), p.sum(axis=0)))).sum()
    assert math.isclose(select.information(table) / select.FINE, plain, abs_tol=2 / select.FINE)


def test_a_tree_of_large_scores_is_found_where_noise_is_small() -> None:
    pairs = list(itertools.combinations(range(5), 2))
    scores = [1000 if pair in ((0, 1), (1, 2), (2, 3), (3, 4)) else 0 for pair in pairs]
    with seeded_for_tests(b"tree"):
        assert sorted(select.spanning_tree(pairs, scores, 5, 2.0, 1)) == [(0, 1), (1, 2), (2, 3), (3, 4)]
        for _ in range(20):
            assert len(JunctionTree.of((2,) * 5, select.spanning_tree(pairs, scores, 5, 1e-6, 1)).cliques) == 4


def test_pairs_that_do_not_fit_are_no_candidates_whatever_was_drawn_before() -> None:
    """A pair that did not fit at an earlier step is none later, even where the rule, as a heuristic, would take it back: else
    it would matter whether it had been drawn in vain, which the choices do not tell."""
    pairs = [(0, 1), (1, 2), (0, 2), (2, 3)]

    def fits(some: Sequence[tuple[int, int]]) -> bool:
        return some != [(1, 2)] and (2, 3) not in some[:1]

    for best in range(4):  # by an epsilon without mercy, the best of the candidates is drawn
        scores = [1000 if i == best else 100 - i for i in range(4)]
        chosen = select.spanning_tree(pairs, scores, 4, 1e4, 1, fits=fits)
        assert chosen == ([(0, 2), (0, 1)] if best == 2 else [(0, 1), (0, 2)])
    assert select.spanning_tree(pairs, [1, 2, 3, 4], 4, 1.0, 1, fits=lambda some: False) == []


def test_a_workload_decides_what_may_be_chosen_and_what_it_weighs() -> None:
    public = Public((2, 3, 4, 5), Reach(), 1.0, 1e-6)
    assert Aim(((0, 1, 2), (1, 2))).candidates(public) == {(0, 1): 3, (0, 1, 2): 5, (0, 2): 3, (1, 2): 4}
    assert set(Aim().candidates(public)) == set(itertools.combinations(range(4), 2))
    assert (0, 1, 2) not in Aim(((0, 1, 2),), most_cells=20).candidates(public)


def test_rounds_are_as_many_as_were_paid_for() -> None:
    rows = chain(2000, (3, 3, 3, 3), np.random.default_rng(1))
    mechanism = Synthesis(rows.sizes, record(), 4.0, 1e-6, Aim(((0, 1, 2),)))
    with seeded_for_tests(b"aim"):
        model = mechanism.run(rows)
    chosen = [it.columns for it in model.measurements if len(it.columns) > 1]
    assert len(chosen) == 8
    assert {column for columns in chosen for column in columns} <= {0, 1, 2}
    truth = rows.counts([(0, 1, 2)])[0] / 2000
    assert np.abs(model.probabilities("c0", "c1", "c2") - truth).sum() < 0.1


@pytest.mark.parametrize("rows", [1, 2**20, 2**40])
def test_scores_beyond_64_bits_are_no_error(rows: int) -> None:
    """An error would tell of the number of rows."""
    public = Public((2, 2, 2), Reach(rows=3, grain=2**20), 1.0, 1e-6)
    near, far = np.full((2, 2), rows * 2**20), np.array([[rows * 2**22, 0], [0, 0]])
    exact = {(0, 1): near, (0, 2): near, (1, 2): far}
    ones = [Measurement((column,), np.full(2, 2.0 * rows), 1.0) for column in range(3)]
    method = Aim()
    with seeded_for_tests(b"large"):
        chosen = method.choose(exact, dict.fromkeys(exact, 2**21), ones, public, method.plan(public))
    assert chosen in exact
    assert rows < 2**20 or chosen == (1, 2)


def test_a_workload_that_does_not_fit_is_told_before_anything_is_spent() -> None:
    with pytest.raises(InvalidValue, match="No table of the workload fits"):
        Synthesis((50, 50, 50), record(), 1.0, 1e-6, Aim(((0, 1, 2),), most_cells=2000)).claims()


def test_no_more_tables_are_chosen_than_there_are_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oneshot, "SLOTS", 2)
    columns = 8
    public = Public((2,) * columns, Reach(), 1.0, 1e-6)
    pairs = list(itertools.combinations(range(columns), 2))
    method = Junction(most_cells=10**9)
    many = method.choose(public, pairs, [10.0**9] * len(pairs), 1e-9)
    assert columns - 1 <= len(many) <= 2 * columns < len(pairs)
    times = shared(many, public.sizes, 2 * columns)
    assert sum(times) == 2 * columns
    assert min(times) >= 1


def test_triangles_of_few_cells_are_one_table() -> None:
    pairs = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (3, 4)]
    gap = dict(zip(pairs, [1.0, 1.0, 9.0, 5.0, 5.0, 2.0]))
    sizes = (2, 2, 2, 3, 40)
    assert Junction(triples=12).joined(pairs, gap, sizes) == [(0, 1), (0, 2), (3, 4), (1, 2, 3)]  # the larger gaps
    assert Junction(triples=8).joined(pairs, gap, sizes) == [(1, 3), (2, 3), (3, 4), (0, 1, 2)]
    assert Junction(triples=0).joined(pairs, gap, sizes) == pairs


def test_as_many_measurements_as_are_paid_for_with_triples() -> None:
    """The event says how often tables are measured; which columns they have must not change that."""
    rows = chain(4000, (2, 2, 2, 2, 2), np.random.default_rng(3), noise=0.2)
    synthesis = Synthesis(rows.sizes, record(), 4.0, 1e-6, Junction())
    spending = synthesis.spending()
    measured = Junction().measure(rows, synthesis.public, spending)
    tables = [it for it in measured if len(it.columns) > 1]
    assert any(len(it.columns) == 3 for it in tables)
    assert sum((spending.parts["tables"] / it.sigma) ** 2 for it in tables) == pytest.approx(oneshot.SLOTS * 5)
    covered = {pair for it in tables for pair in itertools.combinations(it.columns, 2)}
    assert len(covered) >= 4
