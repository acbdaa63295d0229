"""Operations on single values that no noise moves: texts, dates and casts of released keys, as they are of one row."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import Any

from discreet.query.operations import Kind, Op

_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
_TRUTHS = {"true": True, "t": True, "1": True, "yes": True, "false": False, "f": False, "0": False, "no": False}


def missing(value: Any) -> bool:
    """Whether a value is NULL."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def one(op: Op, row: Sequence[Any], option: Any, kinds: Sequence[Kind]) -> Any:
    """The result for one row; NULL where an operand is, or where there is none.

    >>> one(Op.UPPER, ["a"], None, [Kind.TEXT])
    'A'
    """
    if any(missing(value) for value in row):
        return None
    made = OPERATIONS[op](row, option, kinds)
    return None if missing(made) else made


def _parsed(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _to_number(row: Sequence[Any], option: Any, kinds: Sequence[Kind]) -> float | None:
    return _parsed(row[0]) if kinds[0] == Kind.TEXT else float(row[0])


def _to_whole(row: Sequence[Any], option: Any, kinds: Sequence[Kind]) -> float | None:
    number = _to_number(row, option, kinds)
    return None if number is None or not math.isfinite(number) else float(round(number))


def _to_text(row: Sequence[Any], option: Any, kinds: Sequence[Kind]) -> str:
    value, kind = row[0], kinds[0]
    if kind == Kind.BOOLEAN:
        return "true" if value else "false"
    if kind == Kind.INTEGER:
        return str(int(value))
    return value.isoformat(" ") if isinstance(value, datetime) else str(value)


def _to_truth(row: Sequence[Any], option: Any, kinds: Sequence[Kind]) -> bool | None:
    return _TRUTHS.get(row[0].strip().lower()) if kinds[0] == Kind.TEXT else bool(row[0] != 0)


def _to_moment(kind: type[date]) -> Callable[[Sequence[Any], Any, Sequence[Kind]], date | None]:
    def rule(row: Sequence[Any], option: Any, kinds: Sequence[Kind]) -> date | None:
        value = row[0]
        if isinstance(value, str):
            try:
                return kind.fromisoformat(value.strip())
            except ValueError:
                return None
        if kind is datetime:
            return value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
        return value.date() if isinstance(value, datetime) else value

    return rule


def _like(row: Sequence[Any], option: Any, kinds: Sequence[Kind]) -> bool:
    pattern = "".join({"%": ".*", "_": "."}.get(letter, re.escape(letter)) for letter in row[1])
    return re.fullmatch(pattern, row[0], re.DOTALL) is not None


def _part(row: Sequence[Any], option: Any, kinds: Sequence[Kind]) -> float:
    moment = row[0]
    if option == "dow":
        return float(moment.isoweekday() % 7)
    return float((moment.month + 2) // 3 if option == "quarter" else getattr(moment, option))


def _truncated(row: Sequence[Any], option: Any, kinds: Sequence[Kind]) -> datetime:
    moment, units = row[0], ("year", "month", "day", "hour")
    whole = [getattr(moment, unit, 0) for unit in units]
    if option == "quarter":
        return datetime(moment.year, 3 * ((moment.month - 1) // 3) + 1, 1)
    kept = units.index(option) + 1
    return datetime(*whole[:kept], *(1, 1, 0)[kept - 1 : 2])


def _days(row: Sequence[Any], option: Any, kinds: Sequence[Kind]) -> float:
    start, end = (value.date() if isinstance(value, datetime) else value for value in row)
    return float((end - start).days)


OPERATIONS: dict[Op, Callable[[Sequence[Any], Any, Sequence[Kind]], Any]] = {
    Op.EQ: lambda row, *_: row[0] == row[1], Op.NE: lambda row, *_: row[0] != row[1],
    Op.LT: lambda row, *_: row[0] < row[1], Op.LE: lambda row, *_: row[0] <= row[1],
    Op.GT: lambda row, *_: row[0] > row[1], Op.GE: lambda row, *_: row[0] >= row[1],
    Op.LOWER: lambda row, *_: row[0].lower(), Op.UPPER: lambda row, *_: row[0].upper(),
    Op.TRIM: lambda row, *_: row[0].strip(" "), Op.LENGTH: lambda row, *_: float(len(row[0])),
    Op.SUBSTRING: lambda row, cut, _: row[0][cut[0] - 1 : cut[0] - 1 + cut[1]], Op.CONCAT: lambda row, *_: "".join(row),
    Op.LIKE: _like, Op.PART: _part, Op.TRUNCATE: _truncated, Op.DAYS: _days,
    Op.TO_INTEGER: _to_whole, Op.TO_NUMBER: _to_number, Op.TO_TEXT: _to_text, Op.TO_BOOLEAN: _to_truth,
    Op.TO_DATE: _to_moment(date), Op.TO_TIMESTAMP: _to_moment(datetime),
}  # fmt: skip
"""What a text, a date or a cast may be asked for; numbers have rules of their own, with intervals (after.py)."""
