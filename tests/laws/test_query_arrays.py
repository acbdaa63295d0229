"""Whatever a unit's rows hold, it moves weights and sums by no more than the sensitivity that the noise is made for."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.core import record, user
from discreet.query.array_mechanisms import NoisySum, bounds_pair
from discreet.query.rows import Contribution, Rows, clipped_table, codes, identities, numbers, weigh

VALUES = (
    st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(10**30), 10**30) | st.sampled_from([None, "x", True, 1j])
)
IDS = st.sampled_from(["ann", "bob", None, 7, 7.0, "7"])
LIMITS = st.sampled_from([(0, 1), (-3, 2), (0.1, 0.7), (-1e-9, 1e9), (5, 6), (0, 2**60)])
rows = st.lists(st.tuples(VALUES, IDS), max_size=12)
mine = st.lists(VALUES, max_size=12)


def world(others, own):
    return [value for value, _ in others] + own, [owner for _, owner in others] + ["me"] * len(own)


@given(rows, mine, mine, LIMITS, st.integers(1, 4), st.sampled_from(["add_remove", "replace"]))
def test_a_person_moves_sums_by_no_more_than_the_sensitivity(others, own, instead, bounds, most, relation):
    contribution = Contribution(user("id", rows=most, relation=relation))
    limits = bounds_pair(bounds)
    noisy_sum = NoisySum(contribution, Fraction(1), max(map(abs, limits)))
    count = NoisySum(contribution, Fraction(1))
    totals, counts = [], []
    for part in (own, instead if relation == "replace" else []):
        values, ids = world(others, part)
        table, weights = clipped_table(Rows([values], ids), contribution, [limits])
        totals.append(noisy_sum.total(table[0], weights))
        counts.append(count.total(None, weights))
    assert abs(totals[0] - totals[1]) <= noisy_sum.sensitivity
    assert abs(counts[0] - counts[1]) <= count.sensitivity


@given(rows, mine, st.integers(1, 4))
def test_a_person_moves_cells_by_no_more_than_the_sensitivity_together(others, own, most):
    contribution = Contribution(user("id", rows=most))
    cells = []
    for part in (own, []):
        values, ids = world(others, part)
        place = np.array([hash(repr(value)) % 5 for value in values], np.int64)
        cells.append(weigh(place, contribution.weights(len(values), ids), 5))
    assert np.abs(cells[0] - cells[1]).sum() <= contribution.sensitivity


@given(rows, VALUES, VALUES, LIMITS)
def test_one_bad_row_changes_its_own_contribution_only(others, one, other, bounds):
    limits = bounds_pair(bounds)
    contribution = Contribution(record())
    noisy_sum = NoisySum(contribution, Fraction(1), max(map(abs, limits)))
    totals = []
    for value in (one, other):
        table, weights = clipped_table(Rows([[v for v, _ in others] + [value]]), contribution, [limits])
        assert np.isfinite(table[0]).all()
        totals.append(noisy_sum.total(table[0], weights))
    assert abs(totals[0] - totals[1]) <= 2 * noisy_sum.sensitivity


@given(st.lists(IDS, max_size=20))
def test_ids_are_told_apart_as_python_tells_them(ids):
    found = identities(ids)
    for i, a in enumerate(ids):
        for j, b in enumerate(ids):
            assert (found[i] == found[j]) == (a == b)
        assert (found[i] == -1) == (a is None)


@given(st.lists(st.integers(-(2**60), 2**60)))
def test_integer_arrays_have_the_ids_that_lists_have(ids):
    one, other = identities(ids), identities(np.array(ids, np.int64))
    assert [a == b for a in one for b in one] == [a == b for a in other for b in other]


@given(st.lists(st.floats(allow_nan=False, width=32)))
def test_columns_are_read_alike_however_they_are_kept(values):
    as_list, as_array = numbers(values), numbers(np.array(values, np.float32))
    assert np.array_equal(as_list, as_array)
    known = sorted(set(values))[:3]
    if known:
        assert np.array_equal(codes(values, known), codes(np.array(values, np.float64), known))


def test_what_is_not_a_number_is_missing():
    found = numbers([1, 2.5, None, math.nan, "3", True, 10**400, -(10**400), Fraction(1, 2), 1j])
    assert np.array_equal(found, [1, 2.5, np.nan, np.nan, np.nan, 1, np.inf, -np.inf, 0.5, np.nan], equal_nan=True)
    with pytest.raises(ValueError, match="column of numbers"):
        numbers(np.array(["a"]))
