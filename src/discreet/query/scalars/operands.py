"""Helpers of the rules: operands of a required kind, literals, common bounds, and refusals."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import Any

from sqlglot import ErrorLevel, exp

from discreet.errors import InvalidQuery
from discreet.query.operations import NUMBERS, Kind, Op
from discreet.query.tree import Bounds, Scalar

_NUMBER = re.compile("[+-]?([0-9]{1,14}([.][0-9]{0,14})?|[.][0-9]{1,14})")
Node = exp.Expression
LONG = 100_000  # letters that are never cut
Inner = Callable[[Node], Scalar]  # reads a part of the node
Rule = Callable[[Any, Inner], Scalar]
Rules = dict[type[Node], Rule]


def text_of(node: Node, length: int = 60, dialect: str = "") -> str:
    """The expression as SQL, for names and messages. Of trees that sqlglot cannot write it is the name of the node."""
    try:
        return node.sql(dialect, unsupported_level=ErrorLevel.IGNORE)[:length]
    except Exception:  # its writer reads some parts again, in a dialect that does not know them
        return f"{type(node).__name__.upper()}(…)"


def refused(node: Node) -> InvalidQuery:
    """The error for SQL outside the supported subset, with a hint."""
    text = text_of(node, 80, "duckdb")
    name = node.name if isinstance(node, exp.Anonymous) else type(node).__name__.upper()
    hint = _HINTS.get(type(node), "Of each row you may use its columns, arithmetic, comparisons, CASE, casts, and functions of "
                      "numbers, texts and dates: docs/guides/sql.md lists them.")  # fmt: skip
    return InvalidQuery(f"{name} is not among what private SQL may run (in: {text}). {hint}")


_HINTS: dict[type[Node], str] = {
    exp.Window: "A window looks at other people's rows. Aggregate per unit in a sub-query: GROUP BY the unit key. Of the "
    "answer itself, SUM(COUNT(*)) OVER () is the total of a column, for shares; ranks are made by ORDER BY.",
    exp.Subquery: "A sub-query stands in FROM, or is a CTE, and keeps the unit key.",
    exp.Exists: "JOIN a public table; of private ones, keep the unit key and JOIN on it.",
    exp.Star: "Rows are not given out. Ask for statistics of them, such as COUNT(*) or AVG(x), by group if you like.",
    exp.CurrentDate: "Write the day out, like DATE '2026-01-31': a question that is asked again has the same answer.",
    exp.CurrentTimestamp: "Write it out, like TIMESTAMP '2026-01-31 12:00:00': a question asked again has the same answer.",
    exp.TimeToStr: "Group by DATE_TRUNC('month', x), or by EXTRACT(YEAR FROM x) and EXTRACT(MONTH FROM x).",
    exp.Interval: "Add an interval to a date that is written out, and compare: x > DATE '2026-01-31' - INTERVAL 30 DAY.",
    exp.Rand: "Leave it out: a question that is asked again has the same answer, and its noise is random already.",
    exp.Mode: "GROUP BY the column, and take the largest count.",
    **dict.fromkeys(
        (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max),
        "Here it would be of one row. In a sub-query name it by itself, and use the name outside: SELECT AVG(LEAST(n, 9)) FROM "
        "(SELECT id, COUNT(*) AS n FROM … GROUP BY id). To choose among groups of the answer, write HAVING.",
    ),
}


def number(value: Scalar, node: Node) -> Scalar:
    """The operand as a number; a truth value counts as 0 or 1."""
    if value.kind in NUMBERS:
        return value
    if value.kind == Kind.BOOLEAN:
        return Scalar(Op.TRUTH, Kind.INTEGER, (value,), bounds=(0.0, 1.0), required=value.required)
    raise InvalidQuery(f"{text_of(node, 80)} needs a number, and found {value.kind}. CAST it AS DOUBLE.")


def truth(value: Scalar, node: Node) -> Scalar:
    """The operand as a condition; a whole number holds where it is not 0."""
    if value.kind == Kind.INTEGER:
        return Scalar(Op.NE, Kind.BOOLEAN, (value, number_literal(0)), required=value.required)
    if value.kind != Kind.BOOLEAN:
        raise InvalidQuery(f"{text_of(node, 80)} needs true or false, and found {value.kind}. Compare it with something.")
    return value


def alike(left: Scalar, right: Scalar, node: Node) -> tuple[Scalar, Scalar]:
    """Both sides of one kind; a text literal beside a date is a date."""
    for kind, read in ((Kind.DATE, date.fromisoformat), (Kind.TIMESTAMP, datetime.fromisoformat)):
        left, right = _as_moment(left, right, kind, read), _as_moment(right, left, kind, read)
    if {left.kind, right.kind} == {Kind.DATE, Kind.TIMESTAMP}:
        left, right = (
            Scalar(Op.TO_TIMESTAMP, Kind.TIMESTAMP, (side,)) if side.kind == Kind.DATE else side for side in (left, right)
        )
    if left.kind == right.kind != Kind.NULL:
        return left, right
    left, right = _as_number(left, right), _as_number(right, left)
    if {left.kind, right.kind} <= {*NUMBERS, Kind.BOOLEAN}:
        return number(left, node), number(right, node)
    raise InvalidQuery(f"{text_of(node, 80)} compares {left.kind} with {right.kind}. CAST one of them.")


def _as_moment(value: Scalar, other: Scalar, kind: Kind, read: Callable[[str], Any]) -> Scalar:
    if value.op == Op.LITERAL and value.kind == Kind.TEXT and other.kind == kind:
        try:
            return replace(value, kind=kind, value=read(value.value))
        except ValueError:
            raise InvalidQuery(f"{value.value[:40]!r} is not a {kind}; write it like 2026-01-31.") from None
    return value


def _as_number(value: Scalar, other: Scalar) -> Scalar:
    """A text that is written out beside a number is the number, if it is written like one."""
    if value.op != Op.LITERAL or value.kind != Kind.TEXT or other.kind not in NUMBERS or other.op == Op.LITERAL:
        return value
    text = value.value.strip(" ")
    if not _NUMBER.fullmatch(text):
        return value
    return number_literal(int(text) if text.lstrip("+-").isdecimal() else float(text))


def one_kind(items: Sequence[Scalar], node: Node) -> list[Scalar]:
    """All of one kind; a NULL is of any, and numbers are whole only where all of them are."""
    kinds = {item.kind for item in items if item.kind != Kind.NULL}
    if not kinds:
        raise InvalidQuery(f"{text_of(node, 80)} is always NULL. Give it a value.")
    if len(kinds) == 1:
        return [_of_kind(item, next(iter(kinds)), node) for item in items]
    if kinds <= {*NUMBERS, Kind.BOOLEAN}:
        return [_of_kind(item, Kind.NUMBER if Kind.NUMBER in kinds else Kind.INTEGER, node) for item in items]
    raise InvalidQuery(f"{text_of(node, 80)} mixes {' and '.join(sorted(kinds))}. CAST them to one.")


def _of_kind(value: Scalar, kind: Kind, node: Node) -> Scalar:
    """A NULL of any kind, a truth value as a number, or a whole number as one that need not be."""
    if value.kind == kind:
        return value
    if value.kind == Kind.NULL:
        return replace(value, kind=kind)
    numeric = number(value, node)
    if numeric.kind == kind:
        return numeric
    if numeric.op == Op.LITERAL:
        return number_literal(float(numeric.value))
    return Scalar(Op.TO_NUMBER, Kind.NUMBER, (numeric,), None, numeric.bounds, required=numeric.required)


def hull(items: Sequence[Scalar]) -> Bounds | None:
    """Bounds that hold for all; a NULL has none to add."""
    bounds = [item.bounds for item in items if item.op != Op.NULL]
    if not bounds or any(pair is None for pair in bounds):
        return None
    return min(pair[0] for pair in bounds if pair), max(pair[1] for pair in bounds if pair)


def known_values(items: Sequence[Scalar]) -> tuple[Any, ...] | None:
    """All that a choice between these can be, where each is written out or has a public list."""
    lists = [(item.value,) if item.op in (Op.LITERAL, Op.NULL) else item.values for item in items]
    if any(values is None for values in lists):
        return None
    return tuple(dict.fromkeys(value for values in lists for value in values or ()))


def finite(bounds: Bounds | None) -> Bounds | None:
    return bounds if bounds and all(math.isfinite(end) and abs(end) < 1e15 for end in bounds) else None


def number_literal(value: float) -> Scalar:
    kind = Kind.INTEGER if isinstance(value, int) else Kind.NUMBER
    return Scalar(Op.LITERAL, kind, (), value, (float(value),) * 2, required=True)


def whole_literal(node: Any, least: int, where: Node) -> int:
    """A whole number written out in the query."""
    sign, inner = (-1, node.this) if isinstance(node, exp.Neg) else (1, node)
    if not (isinstance(inner, exp.Literal) and not inner.is_string and inner.this.isdecimal() and len(inner.this) < 10):
        raise InvalidQuery(f"{text_of(where, 80)} needs a whole number written out.")
    value = sign * int(inner.this)
    if value < least:
        raise InvalidQuery(f"{text_of(where, 80)} needs a whole number of at least {least}; got {value}.")
    return value
