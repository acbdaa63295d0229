"""Rules for dates and timestamps: their parts, differences in days, and literals plus or minus an interval.

Intervals are added here, so that every engine sees the same literal.
"""

from __future__ import annotations

import calendar
from dataclasses import replace
from datetime import date, timedelta
from typing import Any, TypeVar

from sqlglot import exp

from discreet.errors import InvalidQuery
from discreet.query.operations import MOMENTS, Kind, Op
from discreet.query.scalars.operands import Inner, Node, Rule, Rules, refused, text_of
from discreet.query.tree import Scalar

Moment = TypeVar("Moment", bound=date)
SPANS = {"year": (12, 0), "quarter": (3, 0), "month": (1, 0), "week": (0, 7), "day": (0, 1)}  # months, days
PARTS = {"year": (1.0, 9999.0), "quarter": (1.0, 4.0), "month": (1.0, 12.0), "day": (1.0, 31.0), "hour": (0.0, 23.0),
         "minute": (0.0, 59.0), "dow": (0.0, 6.0)}  # fmt: skip


def _moment(value: Scalar, node: Node) -> Scalar:
    if value.kind not in MOMENTS:
        raise InvalidQuery(f"{text_of(node, 80)} needs a date, and found {value.kind}. CAST it AS DATE.")
    return value


def _part(name: str | None = None) -> Rule:
    def rule(node: Any, inner: Inner) -> Scalar:
        return part_of(name or node.this.name, inner(node.this if name else node.expression), node)

    return rule


def part_of(name: str, moment: Scalar, node: Node) -> Scalar:
    """A part of a date; weeks begin with Sunday, 0."""
    part = "dow" if name.lower() in ("dayofweek", "weekday") else name.lower()
    if part not in PARTS:
        raise InvalidQuery(f"{part[:20]} of a date is not known here; {', '.join(PARTS)} are.")
    moment = _moment(moment, node)
    if moment.kind == Kind.DATE and part in ("hour", "minute"):
        raise InvalidQuery(f"A date has no {part}; a timestamp has.")
    return Scalar(Op.PART, Kind.INTEGER, (moment,), part, PARTS[part], required=moment.required)


def _truncated(node: Any, inner: Inner) -> Scalar:
    unit = node.args["unit"].name.lower()
    if unit not in ("year", "quarter", "month", "day", "hour"):
        raise InvalidQuery(f"DATE_TRUNC takes year, quarter, month, day or hour; got {unit[:20]}.")
    moment = _moment(inner(node.this), node)
    return Scalar(Op.TRUNCATE, Kind.TIMESTAMP, (moment,), unit, required=moment.required)


def _days(node: Any, inner: Inner) -> Scalar:
    """DATE_DIFF('day', from, to): how many midnights lie between."""
    unit = node.args.get("unit")
    if unit is not None and unit.name.lower() != "day":
        raise InvalidQuery(
            f"DATE_DIFF counts days here; got {unit.name[:20].lower()}. Divide: DATE_DIFF('day', a, b) / 365.25."
        )
    start, end = (_day(_moment(inner(part), node)) for part in (node.expression, node.this))
    return Scalar(Op.DAYS, Kind.NUMBER, (start, end))


def _day(moment: Scalar) -> Scalar:
    return moment if moment.kind == Kind.DATE else Scalar(Op.TO_DATE, Kind.DATE, (moment,))


def moved_literal(sign: int, literal: Scalar, node: Any) -> Scalar:
    """A day or a moment that is written out, moved by an interval."""
    span = node.expression
    if literal.op != Op.LITERAL or literal.kind not in MOMENTS:
        raise refused(span)
    return replace(literal, value=moved(literal.value, sign, span))


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
        raise InvalidQuery(f"{moment} and {text_of(span)} make no date of the years 1 to 9999.") from None


def _read(span: Any) -> tuple[int, str]:
    """How many of what; sqlglot reads INTERVAL '30 days' and INTERVAL 30 DAY alike."""
    text = span.this.name if isinstance(span.this, exp.Literal) else ""
    unit = (span.args["unit"].name if span.args.get("unit") else "").lower().removesuffix("s")
    if not text.isdecimal() or len(text) > 6 or unit not in SPANS:
        known = ", ".join(SPANS)
        raise InvalidQuery(f"{text_of(span)} is not known here; write it like INTERVAL 30 DAY, with one of {known}.")
    return int(text), unit


def _months_later(moment: Moment, months: int) -> Moment:
    """The 31st of a short month is its last day, as in SQL."""
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise ValueError
    return moment.replace(year=year, month=month + 1, day=min(moment.day, calendar.monthrange(year, month + 1)[1]))


RULES: Rules = {
    exp.Year: _part("year"), exp.Quarter: _part("quarter"), exp.Month: _part("month"), exp.Day: _part("day"),
    exp.Hour: _part("hour"), exp.Minute: _part("minute"), exp.DayOfWeek: _part("dow"), exp.Extract: _part(),
    exp.TimestampTrunc: _truncated, exp.DateTrunc: _truncated, exp.DateDiff: _days,
}  # fmt: skip
