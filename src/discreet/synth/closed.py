"""Estimation of a tree of pairs in closed form: consistent tables from noisy counts, without iterating over the model.

Each column's counts are the precision-weighted mean of all measurements that contain it, projected onto non-negative counts.
Each pair's table is projected onto the non-negative tables with these margins.
docs/theory/synth-estimation.md has the derivation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from discreet.synth.measure import Measurement

Floats = NDArray[np.float64]
Pair = tuple[int, int]
TURNS, NEAR = 100, 1e-4
SWEEPS, CLOSE, FLOOR = 200, 1e-7, 1e-4


def simplex(values: Floats, total: float) -> Floats:
    """The nearest point with entries not below 0 and this sum (Held, Wolfe & Crowder 1974).

    >>> simplex(np.array([3.0, 1.0, -1.0]), 3.0).tolist()
    [2.5, 0.5, 0.0]
    """
    falling = np.sort(values, axis=None)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, falling.size + 1)
    last = np.flatnonzero(falling > excess)[-1]
    projected: Floats = np.maximum(values - excess[last], 0.0)
    return projected


def columns_of(size: int, measurements: Sequence[Measurement], total: float, shapes: Sequence[int]) -> list[Floats]:
    """The counts of each column, by every measurement that holds it."""
    sums = [np.zeros(shapes[column]) for column in range(size)]
    weights = [0.0] * size
    for measurement in measurements:
        for column in measurement.columns:
            view = measurement.onto((column,))
            weight = 1 / view.sigma**2
            sums[column] += weight * view.counts
            weights[column] += weight
    return [simplex(sums[column] / weights[column], total) for column in range(size)]


def pair_table(measured: Floats, rows: Floats, columns: Floats) -> Floats:
    """The table nearest to the measured one with these margins and no cell below zero, by least squares.

    It is max(measured - a_i - b_j, 0) for some a, b. Setting a and b in turn so that their margins hold is coordinate ascent
    on a concave dual. Iterative proportional fitting removes the rest of the error; a little of the independent table is
    mixed in, so that every margin can be reached.

    >>> pair_table(np.array([[9.0, -4.0], [0.0, 5.0]]), np.array([6.0, 4.0]), np.array([6.0, 4.0])).round(2).tolist()
    [[6.0, 0.0], [0.0, 4.0]]
    """
    total = float(rows.sum())
    down = (measured.sum(axis=0) - columns) / len(rows)
    for _ in range(TURNS):
        across = _levels(measured - down, rows)
        down = _levels((measured - across[:, None]).T, columns)
        table = np.maximum(measured - across[:, None] - down, 0.0)
        if np.abs(table.sum(axis=1) - rows).sum() <= NEAR * total:
            break
    return _fitted((1 - FLOOR) * table + FLOOR * np.outer(rows, columns) / total, rows, columns)


def _levels(values: Floats, sums: Floats) -> Floats:
    """For each row of values the level above which they add up to its sum; the row's maximum where that is 0."""
    falling = -np.sort(-values, axis=1)
    levels = (np.cumsum(falling, axis=1) - sums[:, None]) / np.arange(1, values.shape[1] + 1)
    last = np.maximum((falling > levels).sum(axis=1) - 1, 0)
    chosen: Floats = levels[np.arange(len(values)), last]
    return chosen


def _fitted(table: Floats, rows: Floats, columns: Floats) -> Floats:
    """The table with these margins: a sweep is two products with a vector."""
    across, down = np.ones(len(rows)), np.ones(len(columns))
    for _ in range(SWEEPS):
        down = _ratio(columns, across @ table)
        sums = table @ down
        off = np.abs(across * sums - rows).sum()
        across = _ratio(rows, sums)
        if off <= CLOSE * rows.sum():
            break
    table *= across[:, None]
    table *= down[None, :]
    return table


def tree_tables(pairs: Mapping[Pair, Floats], margins: Sequence[Floats]) -> dict[Pair, Floats]:
    """The tables of the measured pairs, with these margins."""
    return {pair: pair_table(table, margins[pair[0]], margins[pair[1]]) for pair, table in pairs.items()}


def _ratio(wanted: Floats, current: Floats) -> Floats:
    ratio: Floats = np.divide(wanted, current, out=np.zeros_like(wanted), where=current > 0)
    return ratio
