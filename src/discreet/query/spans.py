"""Days and moments that are written out, moved by an interval: done here, so that every engine sees the same literal."""

from __future__ import annotations

import calendar
from datetime import date, timedelta
from typing import Any, TypeVar

from sqlglot import exp

from discreet.errors import InvalidQuery

Moment = TypeVar("Moment", bound=date)
SPANS = {"year": (12, 0), "quarter": (3, 0), "month": (1, 0), "week": (0, 7), "day": (0, 1)}  # months, days


def moved(moment: Moment, sign: int, span: exp.Interval) -> Moment:
    """So much later, or earlier.

    >>> import sqlglot, datetime
    >>> moved(datetime.date(2024, 3, 31), -1, sqlglot.parse_one("INTERVAL 1 MONTH"))
    datetime.date(2024, 2, 29)
    """
    count, unit = _read(span)
    months, days = SPANS[unit]
    try:
        return _months_later(moment, sign * count * months) + timedelta(sign * count * days)
    except (OverflowError, ValueError):
        raise InvalidQuery(f"{moment} and {span.sql()[:60]} make no date of the years 1 to 9999.") from None


def _read(span: Any) -> tuple[int, str]:
    """How many of what; sqlglot reads INTERVAL '30 days' and INTERVAL 30 DAY alike."""
    text = span.this.name if isinstance(span.this, exp.Literal) else ""
    unit = (span.args["unit"].name if span.args.get("unit") else "").lower().removesuffix("s")
    if not text.isdecimal() or len(text) > 6 or unit not in SPANS:
        known = ", ".join(SPANS)
        raise InvalidQuery(f"{span.sql()[:60]} is not known here; write it like INTERVAL 30 DAY, with one of {known}.")
    return int(text), unit


def _months_later(moment: Moment, months: int) -> Moment:
    """The 31st of a short month is its last day, as in SQL."""
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise ValueError
    return moment.replace(year=year, month=month + 1, day=min(moment.day, calendar.monthrange(year, month + 1)[1]))
