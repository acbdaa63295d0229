"""Public values of a column: converted to its type when they are given, and refused where they do not fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

from discreet.core import check
from discreet.errors import InvalidValue
from discreet.query.operations import Kind

MOST = 1_000_000


def public_values(name: str, values: Any) -> tuple[Any, ...]:
    """A public list of values: all different, and texts, numbers, truth values, dates or None."""
    public = check.items(f"values of {name}", values, "a list of public values")
    if any(isinstance(value, (list, dict)) for value in public):
        raise InvalidValue(f"values of {name} must be texts, numbers, truth values or dates; got {check.shown(values)}.")
    if not public or len(set(public)) != len(public):
        raise InvalidValue(f"values of {name} must be a list of different values, at least one; got {check.shown(values)}.")
    if len(public) > MOST:
        raise InvalidValue(f"values of {name} may be at most a million; got {len(public)}.")
    if any(isinstance(value, float) and not math.isfinite(value) for value in public):
        raise InvalidValue(f"values of {name} must be finite; got {check.shown(values)}.")
    return public


def converted(name: str, values: Sequence[Any], kind: Kind) -> tuple[Any, ...]:
    """The values as a column of this kind holds them. Compared as they are, 1 and '1' would be two groups, one of them empty.

    >>> converted("day", ["2026-01-31"], Kind.DATE)
    (datetime.date(2026, 1, 31),)
    """
    public = tuple(None if value is None else _one(name, value, kind) for value in values)
    if len(set(public)) != len(public):
        raise InvalidValue(f"values of {name} hold one value twice, as {kind}; got {check.shown(list(values))}.")
    return public


def _one(name: str, value: Any, kind: Kind) -> Any:
    value = value.item() if hasattr(value, "item") and not hasattr(value, "__len__") else value
    read = _READ[kind](value)
    if read is None:
        raise InvalidValue(f"values of {name} lists {check.shown(value)}, which is no {kind}; the column holds {kind}. "
                           f"{_HINTS[kind]}")  # fmt: skip
    return read


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _integer(value: Any) -> int | None:
    whole = not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    return int(value) if whole and -(2**63) <= value < 2**63 else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e300:
        return None
    return float(value) + 0.0  # one zero


def _text(value: Any) -> str | None:
    if not isinstance(value, str) or "\x00" in value:
        return None
    return value if value.isascii() or value.encode("utf-8", "replace").decode("utf-8") == value else None


def _date(value: Any) -> date | None:
    if isinstance(value, str):
        value = _read(date.fromisoformat, value)
    return value if isinstance(value, date) and not isinstance(value, datetime) else None


def _timestamp(value: Any) -> datetime | None:
    if isinstance(value, str):
        value = _read(datetime.fromisoformat, value)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    return value if isinstance(value, datetime) and value.tzinfo is None else None


def _read(parse: Any, text: str) -> Any:
    try:
        return parse(text)
    except ValueError:
        return None


_READ = {Kind.BOOLEAN: _boolean, Kind.INTEGER: _integer, Kind.NUMBER: _number, Kind.TEXT: _text, Kind.DATE: _date,
         Kind.TIMESTAMP: _timestamp}  # fmt: skip
_HINTS = {
    Kind.BOOLEAN: "Write true or false.", Kind.INTEGER: "Write whole numbers, without quotes.",
    Kind.NUMBER: "Write numbers, without quotes.", Kind.TEXT: "Write texts, in quotes.",
    Kind.DATE: "Write days like 2026-01-31.", Kind.TIMESTAMP: "Write moments like 2026-01-31 12:00:00, without a time zone.",
}  # fmt: skip
