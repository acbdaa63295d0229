"""Operations on single values that no noise moves: texts, dates and casts of released keys, as they are of one row."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import Any

from discreet.query.engines.expressions import NO, PATTERNS, YES
from discreet.query.operations import Kind, Op

WHOLE = 1 << 63  # whole numbers have 64 bits
_WRITTEN = {kind: re.compile(pattern) for kind, pattern in PATTERNS.items()}


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
    try:
        made = OPERATIONS[op](row, option, kinds)
    except (ValueError, OverflowError):  # of a number or a date without an end: NULL, as in its row
        return None
    return None if missing(made) or (isinstance(made, float) and math.isinf(made)) else made


def _written(text: str, kind: Kind) -> str | None:
    """A text that is written like a value of this kind, without the blanks around it."""
    inner = text.strip(" ")
    return inner if _WRITTEN[kind].fullmatch(inner) else None


def _to_number(row: Sequence[Any], option: Any, kinds: Sequence[Kind]) -> float | None:
    if kinds[0] != Kind.TEXT:
        return float(row[0])
    text = _written(row[0], Kind.NUMBER)
    return None if text is None else float(text)


def _to_whole(row: Sequence[Any], option: Any, kinds: Sequence[Kind]) -> float | None:
    if kinds[0] != Kind.TEXT:
        return float(round(row[0]))
    text = _written(row[0], Kind.INTEGER)
    return None if text is None or not -WHOLE <= int(text.partition(".")[0]) < WHOLE else float(text)


def _to_text(row: Sequence[Any], option: Any, kinds: Sequence[Kind]) -> str:
    value, kind = row[0], kinds[0]
    if kind == Kind.BOOLEAN:
        return "true" if value else "false"
    if kind == Kind.INTEGER:
        return str(int(value))
    return value.isoformat(" ") if isinstance(value, datetime) else str(value)


def _to_truth(row: Sequence[Any], option: Any, kinds: Sequence[Kind]) -> bool | None:
    if kinds[0] != Kind.TEXT:
        return bool(row[0] != 0)
    text = row[0].strip(" ").lower()
    return True if text in YES else False if text in NO else None


def _to_moment(kind: type[date]) -> Callable[[Sequence[Any], Any, Sequence[Kind]], date | None]:
    def rule(row: Sequence[Any], option: Any, kinds: Sequence[Kind]) -> date | None:
        value = row[0]
        if isinstance(value, str):
            text = _written(value, Kind.DATE if kind is date else Kind.TIMESTAMP)
            return None if text is None else kind.fromisoformat(text)
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
    year, month, day, hour = (part if i < kept else least for i, (part, least) in enumerate(zip(whole, (1, 1, 1, 0))))
    return datetime(year, month, day, hour)


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
