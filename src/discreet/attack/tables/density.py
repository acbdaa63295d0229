"""How dense a table is at a row: by a kernel over all of its columns, or by the counts of its pairs of columns."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.attack.tables.encode import Encoding

Floats = NDArray[np.float64]
OTHER = 0.1  # the kernel's weight for any other category
WIDTH = 0.01  # of the kernel for ranks: narrow enough that a copy stands out
AT_ONCE = 1 << 24  # numbers in memory
MOST_ROWS = 20_000  # that are compared with each row in question; more are thinned out


def kernel(encoding: Encoding, rows: Floats, at: Floats) -> Floats:
    """The logarithm of a kernel density of `rows` at each row of `at`: near rows in all columns together count.

    Aitchison and Aitken's kernel for categories (Biometrika 63, 1976), an exponential one for ranks.
    """
    rows = _thinned(rows)
    made = np.empty(len(at))
    step = max(1, AT_ONCE // max(len(rows), 1))
    for start in range(0, len(at), step):
        some = at[start : start + step]
        logs = np.zeros((len(some), len(rows)), np.float32)
        for i, scale in enumerate(encoding.scales):
            logs += _column(scale, rows[:, i], some[:, i])
        most = logs.max(axis=1)
        made[start : start + step] = most + np.log(np.exp(logs - most[:, None]).mean(axis=1))
    return made


def _column(scale: Any, rows: Floats, at: Floats) -> NDArray[np.float32]:
    """The logarithm of one column's kernel between every two rows; a missing value is a category of its own."""
    here, there = at.astype(np.float32)[:, None], rows.astype(np.float32)[None, :]
    missing = np.isnan(here), np.isnan(there)
    if scale.categories is not None:
        other = np.float32(np.log(OTHER / max(scale.size - 1, 1)))
        same = (here == there) | (missing[0] & missing[1])
        return np.where(same, np.float32(np.log(1 - OTHER)), other)
    far = -np.abs(here - there) / np.float32(WIDTH) - np.float32(np.log(2 * WIDTH))
    both = missing[0] & missing[1]
    either = missing[0] ^ missing[1]
    result: NDArray[np.float32] = np.where(both, np.float32(0.0), np.where(either, np.float32(np.log(OTHER)), far))
    return result


def pairs(encoding: Encoding, rows: Floats, at: Floats) -> Floats:
    """A composite log-likelihood: of the share of `rows` in the cell of each row of `at`, over all pairs of columns.

    This is what a generator that keeps marginals can give away. Half a row is added to every cell; each column counts once.
    """
    inside, cells = encoding.cells(rows), encoding.cells(at)
    sizes = [scale.size for scale in encoding.scales]
    if len(sizes) == 1:
        return _shares(inside[:, 0], cells[:, 0], sizes[0])
    total = np.zeros(len(at))
    for a, b in combinations(range(len(sizes)), 2):
        both = sizes[a] * sizes[b]
        total += _shares(inside[:, a] * sizes[b] + inside[:, b], cells[:, a] * sizes[b] + cells[:, b], both)
    return total / (len(sizes) - 1)  # each column is in so many pairs, and a pair has two


def _shares(rows: NDArray[np.int64], at: NDArray[np.int64], size: int) -> Floats:
    counts = np.bincount(rows, minlength=size)
    result: Floats = np.log((counts[at] + 0.5) / (len(rows) + 0.5 * size))
    return result


def nearest(encoding: Encoding, rows: Floats, at: Floats, count: int = 1) -> tuple[NDArray[np.int64], Floats]:
    """The `count` rows nearest to each row of `at`, and their distances: Gower's, the mean over columns of 0 to 1 each.

    Rows beyond the first `MOST_ROWS` are not looked at.
    """
    rows = rows[:MOST_ROWS]
    places, far = np.empty((len(at), count), np.int64), np.empty((len(at), count))
    step = max(1, AT_ONCE // max(len(rows), 1))
    for start in range(0, len(at), step):
        some = at[start : start + step]
        away = np.zeros((len(some), len(rows)), np.float32)
        for i, scale in enumerate(encoding.scales):
            away += _away(scale, rows[:, i], some[:, i])
        away /= len(encoding.scales)
        best = np.argpartition(away, count - 1, axis=1)[:, :count] if count < len(rows) else np.argsort(away, axis=1)[:, :count]
        places[start : start + step] = best
        far[start : start + step] = np.take_along_axis(away, best, axis=1)
    return places, far


def _away(scale: Any, rows: Floats, at: Floats) -> NDArray[np.float32]:
    here, there = at.astype(np.float32)[:, None], rows.astype(np.float32)[None, :]
    missing = np.isnan(here), np.isnan(there)
    differ = (here != there) if scale.categories is not None else np.abs(here - there)
    result: NDArray[np.float32] = np.where(missing[0] | missing[1], missing[0] ^ missing[1], differ).astype(np.float32)
    return result


def _thinned(rows: Floats) -> Floats:
    """Evenly spaced rows, where there are too many."""
    return rows if len(rows) <= MOST_ROWS else rows[np.linspace(0, len(rows) - 1, MOST_ROWS).astype(np.int64)]
