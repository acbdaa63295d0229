"""A tree of pairs in closed form: from noisy counts to tables that agree with one another, without iterating over the model.

Each column's counts are the mean of all measurements that tell of it, weighed by their precision, moved to the nearest
counts that are not negative. Each pair's table is moved to the nearest one with these margins.
docs/theory/synth-estimation.md has the derivation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from discreet.synth.measure import Measurement

Floats = NDArray[np.float64]
Pair = tuple[int, int]
SWEEPS, CLOSE, FLOOR = 200, 1e-7, 1e-4


def simplex(values: Floats, total: float) -> Floats:
    """The nearest point with entries not below 0 and this sum (Held, Wolfe & Crowder 1974).

    >>> simplex(np.array([3.0, 1.0, -1.0]), 3.0).tolist()
    [2.5, 0.5, 0.0]
    """
    falling = np.sort(values, axis=None)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, falling.size + 1)
    last = np.flatnonzero(falling > excess)[-1]
    made: Floats = np.maximum(values - excess[last], 0.0)
    return made


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
    """The table nearest to the measured one with these margins, none of its cells below zero, near enough.

    First the least-squares move to the margins, then to the simplex, then iterative proportional fitting. A little of the
    independent table is mixed in, so that no margin is out of reach.
    """
    total = float(rows.sum())
    height, width = measured.shape
    moved = measured + ((rows - measured.sum(axis=1)) / width)[:, None] + ((columns - measured.sum(axis=0)) / height)[None, :]
    moved -= (total - measured.sum()) / measured.size
    table: Floats = (1 - FLOOR) * simplex(moved, total) + FLOOR * np.outer(rows, columns) / total
    across, down = np.ones(height), np.ones(width)  # factors of rows and of columns: a sweep is two products with a vector
    for _ in range(SWEEPS):
        down = _ratio(columns, across @ table)
        sums = table @ down
        off = np.abs(across * sums - rows).sum()
        across = _ratio(rows, sums)
        if off <= CLOSE * total:
            break
    table *= across[:, None]
    table *= down[None, :]
    return table


def tree_tables(pairs: Mapping[Pair, Floats], margins: Sequence[Floats]) -> dict[Pair, Floats]:
    """The tables of the measured pairs, with these margins."""
    return {pair: pair_table(table, margins[pair[0]], margins[pair[1]]) for pair, table in pairs.items()}


def _ratio(wanted: Floats, found: Floats) -> Floats:
    made: Floats = np.divide(wanted, found, out=np.zeros_like(wanted), where=found > 0)
    return made
