"""Rounding to a grid: order is kept, whole steps are kept, and distances in steps are as the theory page says."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.core import record, user
from discreet.noise import BoundedSum, Grid

granularities = st.one_of(
    st.integers(-40, 20).map(lambda k: Fraction(2) ** k),
    st.fractions(Fraction(1, 1000), 1000, max_denominator=1000),
    st.sampled_from([Fraction(0.1), Fraction(1, 3), Fraction(1)]),
)
finite = st.floats(-1e9, 1e9)


def exactly(value: float, granularity: Fraction) -> int:
    """The slow obvious rounding: nearest grid point, a half upwards, at most 2^62 steps from 0."""
    return max(-(2**62), min(2**62, math.floor(Fraction(value) / granularity + Fraction(1, 2))))


@given(granularities, st.lists(finite, max_size=20))
def test_arrays_and_single_numbers_round_the_same_way(granularity: Fraction, values: list[float]) -> None:
    grid = Grid(granularity)
    slow = [exactly(value, granularity) for value in values]
    assert [grid.steps(value) for value in values] == slow
    assert np.asarray(grid.steps(np.array(values))).tolist() == slow


@given(granularities, st.integers(-(10**6), 10**6), st.integers(-3, 3))
def test_halves_go_up_wherever_they_are(granularity: Fraction, k: int, ulps: int) -> None:
    value = float((k + Fraction(1, 2)) * granularity)
    for _ in range(abs(ulps)):
        value = math.nextafter(value, math.inf if ulps > 0 else -math.inf)
    assert np.asarray(Grid(granularity).steps([value])).tolist() == [exactly(value, granularity)]


@given(granularities, st.lists(st.tuples(finite, finite), min_size=1, max_size=5))
def test_l1_distance_in_steps(granularity: Fraction, pairs: list[tuple[float, float]]) -> None:
    distance = sum(abs(Fraction(a) - Fraction(b)) for a, b in pairs)
    grid = Grid(granularity)
    one, other = (np.asarray(grid.steps([pair[i] for pair in pairs])) for i in (0, 1))
    assert int(np.abs(one - other).sum()) <= grid.sensitivity(distance, len(pairs))


def test_the_l1_bound_is_reached() -> None:
    grid = Grid(1)
    distance = Fraction(1)  # three numbers, each moved by a third across a half
    assert grid.sensitivity(distance, 3) == 3
    assert np.abs(grid.steps([0.4, 0.4, 0.4]) - grid.steps([0.7, 0.7, 0.7])).sum() == 3


numbers = st.one_of(st.floats(), st.integers(-(10**30), 10**30))


@settings(deadline=None)
@given(granularities, st.lists(numbers, max_size=30), st.lists(numbers, min_size=1, max_size=4), finite, finite, st.randoms())
def test_one_unit_never_moves_a_sum_by_more_than_claimed(
    granularity: Fraction, rows: list[Any], mine: list[Any], a: float, b: float, shuffle: Any
) -> None:
    lower, upper = min(a, b), max(a, b)
    if lower == upper or max(abs(a), abs(b)) / granularity > 2**40:
        return
    mechanism = BoundedSum(lower, upper, granularity, "laplace", granularity, user("k", rows=len(mine)))
    mixed = rows + mine
    shuffle.shuffle(mixed)
    assert abs(mechanism.total(mixed) - mechanism.total(rows)) <= mechanism.sensitivity()
    one = BoundedSum(lower, upper, granularity, "laplace", granularity, record("replace"))
    assert abs(one.total([*rows, mine[0]]) - one.total([mine[-1], *rows])) <= one.sensitivity()


@given(granularities, st.integers(-(2**40), 2**40))
def test_grid_points_stay_where_they_are(granularity: Fraction, steps: int) -> None:
    assert Grid(granularity).steps(steps * granularity) == steps
