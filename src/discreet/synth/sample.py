"""Rows of a junction tree whose counts keep close to the model's: rounded at random given the parent, then shuffled.

Given a value of the separator, m rows get the conditional table in proportion: cell k gets its share of m rounded up or
down, all together just m. Which row gets which cell is a fresh random order: without it, cliques with the same parent would
be sorted alike, and columns that the model holds independent would come out correlated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.synth.junction import Floats, JunctionTree

Codes = NDArray[np.signedinteger[Any]]


def sample(tree: JunctionTree, conditionals: Sequence[Floats], count: int, random: np.random.Generator) -> list[Codes]:
    """`count` rows as codes, one array per column."""
    columns: list[Codes] = [np.zeros(0, np.int32)] * len(tree.sizes)
    for clique, separator, conditional in zip(tree.cliques, tree.separators, conditionals):
        fresh = tuple(column for column in clique if column not in separator)
        shape = [tree.sizes[column] for column in fresh]
        table = conditional.transpose([clique.index(column) for column in (*separator, *fresh)])
        table = table.reshape(-1, int(np.prod(shape, dtype=np.int64)))
        group = _mixed([columns[column] for column in separator], [tree.sizes[column] for column in separator], count)
        drawn = grouped(table, group, random)
        if len(fresh) == 1:
            columns[fresh[0]] = drawn
            continue
        for column, codes in zip(fresh, np.unravel_index(drawn, shape)):
            columns[column] = codes.astype(np.int32)
    return columns


def grouped(table: Floats, group: Codes, random: np.random.Generator) -> Codes:
    """For each row a column of the table, in proportion to the row of the table that its group names."""
    sizes = np.bincount(group, minlength=len(table))
    present = np.flatnonzero(sizes)
    counts = rounded(table[present], sizes[present], random)
    cells = np.repeat(np.tile(np.arange(table.shape[1], dtype=np.int32), len(present)), counts.reshape(-1))
    order = np.arange(len(group), dtype=np.int32)
    random.shuffle(order)
    if len(present) > 1:
        order = order[np.argsort(group[order].astype(_smallest(len(table))), kind="stable")]
    result = np.empty(len(group), np.int32)
    result[order] = cells
    return result


def rounded(shares: Floats, sizes: Codes, random: np.random.Generator) -> Codes:
    """For each row of shares, whole numbers that add up to its size, each its share rounded up or down, right on average.

    Systematic sampling: the cumulative shares, moved by one uniform number per row, are cut to whole numbers.
    """
    ends = np.cumsum(shares, axis=1)
    ends *= (sizes / np.where(ends[:, -1] > 0, ends[:, -1], 1.0))[:, None]
    past = ends >= ends[:, -1:]  # nothing is left for further cells, whatever the last digits say
    cut = np.floor(ends + random.random(len(sizes))[:, None]).astype(np.int64)
    cut = np.where(past, sizes[:, None], cut)
    np.minimum(cut, sizes[:, None], out=cut)
    return np.diff(cut, axis=1, prepend=0)


def _mixed(columns: list[Codes], sizes: list[int], count: int) -> Codes:
    group = np.zeros(count, np.int64) if len(columns) != 1 else columns[0]
    for codes, size in zip(columns, sizes) if len(columns) > 1 else ():
        group = group * size + codes
    return group


def _smallest(size: int) -> type:
    """numpy sorts 16-bit numbers by their digits."""
    return np.uint16 if size <= 1 << 16 else np.int64
