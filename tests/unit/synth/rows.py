"""Coded rows in memory that answer like a table behind an engine: the slow, obvious way to count."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from discreet.synth.cells import Cells
from discreet.synth.schema import Column


class Rows:
    """Rows of codes, column by column; each column is categorical and required."""

    def __init__(self, codes: Any, sizes: Iterable[int]) -> None:
        self.sizes = tuple(sizes)
        self.codes = np.asarray(codes, np.int64).reshape(-1, len(self.sizes))
        self.cells = tuple(
            Cells.of(f"c{i}", Column("categorical", values=tuple(range(size)), required=True), "integer")
            for i, size in enumerate(self.sizes)
        )

    def measured(self) -> None:
        """Nothing to close."""

    def counts(self, sets: Iterable[tuple[int, ...]]) -> list[Any]:
        made = []
        for columns in sets:
            table = np.zeros([self.sizes[column] for column in columns], np.int64)
            np.add.at(table, tuple(self.codes[:, column] for column in columns), 1)
            made.append(table)
        return made


def chain(count: int, sizes: Iterable[int], random: np.random.Generator, noise: float = 0.3) -> Rows:
    """Rows in which each column mostly follows the one before."""
    sizes = tuple(sizes)
    codes = [random.integers(0, sizes[0], count)]
    for size in sizes[1:]:
        own = random.integers(0, size, count)
        codes.append(np.where(random.random(count) < noise, own, codes[-1] % size))
    return Rows(np.stack(codes, axis=1), sizes)
