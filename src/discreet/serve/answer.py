"""An answer as pages and documents show it: numbers with their intervals, from a table that was released."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from markupsafe import Markup

from discreet.charts import intervals
from discreet.core import Release
from discreet.errors import DiscreetError

INLINE = 2000  # cells that a document holds itself; a longer answer is beside it, in table.parquet
DRAWN = 30  # groups that a picture has room for


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an answer; of a number also between what it lies."""

    name: str
    values: Sequence[Any]
    low: Sequence[Any] | None = None
    high: Sequence[Any] | None = None


def plain(table: Any) -> dict[str, list[Any]]:
    """The columns of an Arrow table as JSON; what is infinite or not a number is null."""
    return {name: [_plain(value) for value in values] for name, values in table.to_pydict().items()}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def columns(table: Mapping[str, Sequence[Any]]) -> list[Column]:
    """Columns, each with its interval: NAME_low and NAME_high belong to NAME."""
    bounded = {name for name in table if f"{name}_low" in table and f"{name}_high" in table}
    ends = {f"{name}_{end}" for name in bounded for end in ("low", "high")}
    return [
        Column(name, values, table[f"{name}_low"], table[f"{name}_high"]) if name in bounded else Column(name, values)
        for name, values in table.items()
        if name not in ends
    ]


def rows(columns: Sequence[Column]) -> list[list[tuple[Any, Any, Any]]]:
    """Line by line: (value, low, high) of each column; ends are None where there is no interval."""
    count = len(columns[0].values) if columns else 0
    return [[(column.values[i], _end(column.low, i), _end(column.high, i)) for column in columns] for i in range(count)]


def why_empty(release: Release[Any], columns: Sequence[Column]) -> str:
    """What it means that an answer has no rows; nothing where it has some."""
    from discreet.query.explain import why_empty as why

    if not columns or len(columns[0].values):
        return ""
    try:
        return why(release)
    except DiscreetError:  # a document may hold anything
        return "The answer has no rows."


def _end(ends: Sequence[Any] | None, place: int) -> Any:
    return None if ends is None else ends[place]


def picture(columns: Sequence[Column]) -> Markup:
    """The first number of the answer, group by group."""
    number = next((column for column in columns if column.low is not None and column.high is not None), None)
    if number is None or not number.values or len(number.values) > DRAWN or number.low is None or number.high is None:
        return Markup()
    keys = [column for column in columns if column.low is None]
    labels = [
        " · ".join("–" if column.values[i] is None else str(column.values[i]) for column in keys) or number.name
        for i in range(len(number.values))
    ]
    return Markup(intervals(labels, number.values, number.low, number.high, f"{number.name}, with 95 % intervals"))
