"""Private discovery of what a schema leaves open: categories, bin edges, and frequent values.

Categories and shared values are those whose noisy counts pass a threshold that no unit passes alone; edges are private
quantiles. All noise is fixed before a row is read, and its cost is inside the one charge of the fit.
docs/theory/synth-domain.md has the argument.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from discreet.core import Event
from discreet.query.quantiles import Quantiles
from discreet.query.threshold import Threshold
from discreet.synth.cells import Cells, settled_edges
from discreet.synth.measure import Reach, concentrated_for
from discreet.synth.schema import Column

Ints = NDArray[np.int64]
SHARE, MOST_SHARE = 0.05, 0.3  # of the budget, for each thing that is found, and for all of them
FINE = {"timestamp": 256}  # parts of a range among which edges are found, 4096 for other types
MOST_CATEGORIES, MOST_MASS = 254, 16  # that are kept, the most frequent first


class Private(Protocol):
    """A private table: exact numbers, which may only be used with noise added."""

    def values(self, place: int) -> tuple[list[Any], Ints]: ...

    def histogram(self, place: int, cells: Cells) -> Ints: ...


@dataclass(frozen=True, slots=True)
class Open:
    """A column of which something is to be found."""

    place: int
    name: str
    column: Column
    kind: str


@dataclass(frozen=True, slots=True)
class Domain:
    """The mechanism that finds what the schema leaves open.

    >>> found = Domain((Open(0, "job", Column("categorical", find=("categories",)), "text"),), Reach(), 1.0, 1e-6)
    >>> found.events
    (Approximate(epsilon=0.05, delta=5e-07),)
    """

    open: tuple[Open, ...]
    reach: Reach
    epsilon: float
    delta: float

    @property
    def _tasks(self) -> list[tuple[Open, str]]:
        return [(open_column, aspect) for open_column in self.open for aspect in open_column.column.find]

    def _share(self) -> float:
        return min(SHARE, MOST_SHARE / len(self._tasks))

    def threshold(self) -> Threshold:
        """Counts of values, shown where they are large; each column's gets the same part of epsilon and of half of delta."""
        times = sum(aspect != "bins" for _, aspect in self._tasks)
        unit_weight = self.reach.rows * self.reach.grain
        return _threshold(self._share() * self.epsilon, self.delta / (2 * times), self.reach.score, unit_weight)

    def quantiles(self, bins: int) -> Quantiles:
        """The edges of equally full bins: choices of range e with e^2 / 8 each, together a share of the budget in zCDP."""
        rho = self._share() * concentrated_for(self.epsilon, self.delta)
        epsilon = math.sqrt(8 * rho * (bins + 1))  # of all choices together: bins + 1 times that of one
        return _quantiles(bins, epsilon, self.reach.score)

    @property
    def events(self) -> tuple[Event, ...]:
        result: list[Event] = []
        for open_column, aspect in self._tasks:
            result += self.quantiles(_bins(open_column.column)).events if aspect == "bins" else [self.threshold().event]
        return tuple(result)

    def explain(self) -> list[str]:
        """The cost and accuracy of each discovery, from public numbers alone."""
        return [f"{open_column.name}: {self._explained(open_column, aspect)}" for open_column, aspect in self._tasks]

    def _explained(self, open_column: Open, aspect: str) -> str:
        if aspect == "bins":
            chosen = self.quantiles(_bins(open_column.column))
            off = chosen.rank_error(0.5, _fine(open_column).bins) / self.reach.grain
            return f"{_bins(open_column.column)} bins by private quantiles, each edge within {off:,.0f} rows of its rank (95 %)"
        threshold = self.threshold()
        least = 2 * threshold.bound / self.reach.grain
        which = "categories" if aspect == "categories" else "values with a cell of their own"
        cost = f"epsilon {float(threshold.epsilon):.3g}, delta {threshold.delta:.3g}"
        return f"{which} by private selection ({cost}): those of {least:,.0f} rows or more are found, the others are one cell"

    def find(self, table: Private) -> dict[int, Column]:
        """The resolved columns by position; every decision about them uses noisy numbers only."""
        return {open_column.place: self._resolved(open_column, table) for open_column in self.open}

    def _resolved(self, open_column: Open, table: Private) -> Column:
        column = open_column.column
        if "categories" in column.find:
            values = [value for value, _ in self._frequent(open_column, table)[:MOST_CATEGORIES]]
            return replace(column, find=(), values=tuple(sorted(value for value in values if value != column.other)))
        mass = set(column.mass)
        if "mass" in column.find:
            mass |= self._mass(open_column, table)
        inner = Cells.of(open_column.name, replace(column, find=(), mass=()), open_column.kind).edges[1:-1]
        if "bins" in column.find:
            inner = self._edges(open_column, table)
        return replace(column, find=(), bins=settled_edges(column, inner, mass), mass=tuple(sorted(mass)))

    def _frequent(self, open_column: Open, table: Private) -> list[tuple[Any, int]]:
        """The values that are shown, with their noisy counts, the most frequent first; the missing one is always a cell."""
        values, counts = table.values(open_column.place)
        passed, noisy = self.threshold().run(counts)
        frequent = [(values[i], int(noisy[i])) for i in np.flatnonzero(passed) if values[i] is not None]
        return sorted(frequent, key=lambda pair: (-pair[1], str(pair[0])))

    def _mass(self, open_column: Open, table: Private) -> set[Any]:
        """Values with more than twice the rows that a bin has on average, of all rows with values that are shown."""
        low, high = open_column.column.bounds or (0, 0)
        frequent = [(value, n) for value, n in self._frequent(open_column, table) if low <= value <= high]
        least = 2 * sum(n for _, n in frequent) / _bins(open_column.column)
        return {open_column.column.point("mass", value) for value, n in frequent[:MOST_MASS] if n >= least}

    def _edges(self, open_column: Open, table: Private) -> tuple[Any, ...]:
        fine = _fine(open_column)
        weights = table.histogram(open_column.place, fine)[: fine.bins]
        chosen = self.quantiles(_bins(open_column.column)).run(weights[None, :]).value[0]
        places = {int(chosen[0]), *(int(place) + 1 for place in chosen[1:])}
        return tuple(fine.edges[i] for i in sorted(places) if 0 < i < fine.bins)


@lru_cache(64)
def _threshold(epsilon: float, delta: float, sensitivity: int, unit_weight: int) -> Threshold:
    return Threshold(epsilon, delta, sensitivity, unit_weight)


@lru_cache(64)
def _quantiles(bins: int, epsilon: float, sensitivity: int) -> Quantiles:
    """The ends of the data as well as the edges between bins: else the outer bins would reach to the public bounds."""
    return Quantiles([i / bins for i in range(bins + 1)], epsilon, sensitivity, interval_share=0)


def _bins(column: Column) -> int:
    return column.bins if isinstance(column.bins, int) else len(column.bins) + 1


def _fine(open_column: Open) -> Cells:
    """The public grid among whose ends the edges are chosen; a missing value is in none of its bins."""
    plain = replace(open_column.column, find=(), mass=(), required=False, bins=FINE.get(open_column.column.type, 4096))
    return Cells.of(open_column.name, plain, open_column.kind)


def open_columns(cells: Sequence[Cells]) -> tuple[Open, ...]:
    return tuple(
        Open(i, column_cells.name, column_cells.column, column_cells.kind)
        for i, column_cells in enumerate(cells)
        if column_cells.column.find
    )


def largest(cells: Cells) -> int:
    """The most cells that a column can have when all is found."""
    if "categories" in cells.column.find:
        return MOST_CATEGORIES + 2
    return cells.size + 2 * ("bins" in cells.column.find) + 2 * MOST_MASS * ("mass" in cells.column.find)
