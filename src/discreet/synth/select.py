"""Selection of tables to measure, by scores of low sensitivity.

Scores are whole numbers, made of exact counts and public (already noisy) numbers in integer arithmetic, so that their
sensitivity is the one that is proven, without rounding. docs/theory/synth-selection.md has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from discreet.noise import exponential_rows

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Pair = tuple[int, int]
FINE = 1 << 10  # parts of a nat in which mutual information is counted
MOST_ROWS = 1 << 32  # counts are cut there for mutual information, whose sensitivity grows with their logarithm


def gap(counts: Ints, expected: Floats, grain: int = 1) -> int:
    """The l1 distance of a table, in grains, to what is expected of it, in rows: one record added or removed moves it by at
    most 1, a user of k rows by at most k x grain.

    What is expected is public, and rounded to whole numbers, so the distance is exact.
    """
    return int(np.abs(counts - np.rint(expected * grain).astype(np.int64)).sum())


def information(counts: Ints) -> int:
    """n times the mutual information of a pair of columns, in parts of a nat; see `information_sensitivity`."""
    cut = np.minimum(counts, MOST_ROWS // counts.size)
    sums = [cut, cut.sum(axis=0), cut.sum(axis=1), cut.sum()]
    cells, columns, rows, whole = (math.fsum(np.ravel(_entropy_term(part)).tolist()) for part in sums)
    return round(FINE * (cells - columns - rows + whole))


def information_sensitivity() -> int:
    """How far one record added or removed moves `information`: ln(n + 1) + 1 nats with n at most 2^32, and the rounding of
    both.

    It is the price of the lectures' score: the l1 gap moves by 1 where its values are as large as n.
    """
    return math.ceil(FINE * (math.log(MOST_ROWS + 1) + 1)) + 4


def spanning_tree(
    pairs: Sequence[Pair], scores: Sequence[int], columns: int, epsilon: float, sensitivity: int, together: int = 1,
    fits: Callable[[Sequence[Pair]], bool] | None = None,
) -> list[Pair]:  # fmt: skip
    """A spanning tree of large scores: Kruskal's algorithm, each edge drawn by the exponential mechanism at `epsilon`.

    The candidates of a step are the pairs that join two components and pass `fits` with those chosen before, at this step and
    at every earlier one: so the choices alone decide who is a candidate. A pair that does not pass is drawn again without it,
    which draws from those that do. Where none is left, the tree stays a forest. The first `together` columns are one component
    to begin with.
    """
    component = np.arange(columns)
    component[:together] = 0
    ends, known = np.array(pairs).reshape(-1, 2), np.array(scores, np.int64)
    passed = np.ones(len(ends), bool)
    chosen: list[Pair] = []
    while len(chosen) < columns - together:
        open_ = np.flatnonzero(passed & (component[ends[:, 0]] != component[ends[:, 1]]))
        if not open_.size:
            break
        place = open_[exponential_rows(known[open_][None, :], epsilon, sensitivity)[0]]
        first, second = map(int, ends[place])
        if fits is not None and not all(fits([*chosen[:n], (first, second)]) for n in range(len(chosen), -1, -1)):
            passed[place] = False
            continue
        chosen.append((first, second))
        component[component == component[second]] = component[first]
    return chosen


def _entropy_term(counts: Ints) -> Floats:
    values = np.asarray(counts, np.float64)
    terms: Floats = values * np.log(np.maximum(values, 1.0))
    return terms
