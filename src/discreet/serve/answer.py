"""An answer as pages and documents show it: numbers with their intervals, from a table that was released."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from markupsafe import Markup

from discreet.charts import intervals

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


def columns(found: Mapping[str, Sequence[Any]]) -> list[Column]:
    """Columns with their intervals beside them instead of after them."""
    made = []
    for name, values in found.items():
        low, high = found.get(f"{name}_low"), found.get(f"{name}_high")
        ends = name.rpartition("_")
        if ends[2] in ("low", "high") and f"{ends[0]}_low" in found and f"{ends[0]}_high" in found and ends[0] in found:
            continue
        made.append(Column(name, values, low, high) if low is not None and high is not None else Column(name, values))
    return made


def rows(made: Sequence[Column]) -> list[list[tuple[Any, Any, Any]]]:
    """Line by line: (value, low, high) of each column; ends are None where there is no interval."""
    count = len(made[0].values) if made else 0
    return [
        [(it.values[i], it.low[i] if it.low is not None else None, it.high[i] if it.high is not None else None) for it in made]
        for i in range(count)
    ]


def picture(made: Sequence[Column]) -> Markup:
    """The first number of the answer, group by group."""
    number = next((it for it in made if it.low is not None and it.high is not None), None)
    if number is None or not number.values or len(number.values) > DRAWN or number.low is None or number.high is None:
        return Markup()
    keys = [it for it in made if it.low is None]
    labels = [
        " · ".join("–" if it.values[i] is None else str(it.values[i]) for it in keys) or number.name
        for i in range(len(number.values))
    ]
    return Markup(intervals(labels, number.values, number.low, number.high, f"{number.name}, with 95 % intervals"))
