"""Tables of mixed types as numbers: categories as codes, numbers as ranks in a public table, missing values as a category.

The order in which values are numbered and the scale of numbers come from tables that the attacker has, never from the secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.columns import Column, columns, missing
from discreet.errors import InvalidValue

Floats = NDArray[np.float64]
BINS = 16  # of a column of numbers, where pairs of columns are counted
FEW = 24  # different numbers at most, in a column that is taken to hold categories


@dataclass(frozen=True, slots=True)
class Scale:
    """One column: the categories it is known to have, or the sorted numbers that ranks are taken in."""

    name: str
    categories: dict[Any, int] | None
    numbers: Floats

    @classmethod
    def of(cls, name: str, values: Column) -> Scale:
        known = np.array([not missing(value) for value in values.tolist()])
        if values.dtype.kind in "iuf" and len(np.unique(values[known])) > FEW:
            return cls(name, None, np.sort(values[known].astype(np.float64)))
        plain = {value.item() if hasattr(value, "item") else value for value in values[known].tolist()}
        return cls(name, {value: place for place, value in enumerate(sorted(plain, key=_order))}, np.zeros(0))

    @property
    def size(self) -> int:
        """How many cells it has when it is counted: the known ones, one for anything else, one for a missing value."""
        return (BINS if self.categories is None else len(self.categories)) + 2

    def values(self, column: Column) -> Floats:
        """Codes of categories, or ranks from 0 to 1; -1 for a category that is not known, and NaN for a missing value."""
        listed = column.tolist()
        if self.categories is not None:
            codes = (np.nan if missing(value) else self.categories.get(value, -1) for value in listed)
            return np.fromiter(codes, np.float64, len(listed))
        known = np.array([not missing(value) for value in listed])
        ranks = np.full(len(listed), np.nan)
        try:
            given = np.array([value for value, there in zip(listed, known) if there], np.float64)
        except (TypeError, ValueError):
            raise InvalidValue(f"{self.name} holds numbers in one table and something else in another.") from None
        sides = [np.searchsorted(self.numbers, given, side) for side in ("left", "right")]
        ranks[known] = (sides[0] + sides[1]) / (2 * len(self.numbers))
        return ranks

    def cells(self, values: Floats) -> NDArray[np.int64]:
        """The cell of each value when the column is counted."""
        known = self.size - 2
        place = np.nan_to_num(values if self.categories is not None else np.minimum(values * BINS, BINS - 1), nan=known + 1.0)
        return np.where(place < 0, known, place).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Encoding:
    """How the columns of some tables are numbered.

    >>> Encoding.of({"sex": ["f", "m"], "age": list(range(2))}).rows({"sex": ["m"], "age": [0]}).tolist()
    [[1.0, 0.0]]
    """

    scales: tuple[Scale, ...]

    @classmethod
    def of(cls, table: Any, names: Sequence[str] | None = None) -> Encoding:
        return cls(tuple(Scale.of(name, values) for name, values in columns(table, names).items()))

    @property
    def names(self) -> list[str]:
        return [scale.name for scale in self.scales]

    def rows(self, table: Any) -> Floats:
        """The rows of a table as numbers [rows, columns]."""
        found = columns(table, self.names)
        return np.stack([scale.values(found[scale.name]) for scale in self.scales], axis=1)

    def cells(self, rows: Floats) -> NDArray[np.int64]:
        """The cell of every value of such rows."""
        return np.stack([scale.cells(rows[:, i]) for i, scale in enumerate(self.scales)], axis=1)


def _order(value: Any) -> tuple[str, Any]:
    return ("", value) if isinstance(value, (bool, int, float)) else (type(value).__name__, str(value))


def chosen(table: Any, rows: Any) -> dict[str, Column]:
    """Some rows of a table, as columns."""
    return {name: values[rows] for name, values in columns(table).items()}


def joined(*tables: Any) -> dict[str, Column]:
    """The rows of several tables below each other; columns are those of the first."""
    parts = [columns(tables[0])]
    parts += [columns(table, list(parts[0])) for table in tables[1:]]
    below = {}
    for name in parts[0]:
        arrays = [part[name] for part in parts]
        if any(array.dtype == object for array in arrays):
            arrays = [array.astype(object) for array in arrays]
        below[name] = np.concatenate(arrays)
    return below
