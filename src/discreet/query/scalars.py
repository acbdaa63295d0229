"""Expressions over one row: from SQL to the closed table of operations, with their kinds and bounds.

Every operation is total: where SQL would raise an error (a division by zero, a cast that fails, the root of a negative
number), the result is NULL, so that no error can tell what is in a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any

from sqlglot import exp

from discreet.errors import InvalidQuery
from discreet.query.spans import moved
from discreet.query.tree import NUMBERS, Bounds, Field, Scalar

DEEPEST = 200  # operations inside one another
Node = exp.Expression


@dataclass(frozen=True, slots=True)
class Scope:
    """The columns in sight, by input: (alias, names, fields)."""

    inputs: tuple[tuple[str, tuple[str, ...], tuple[Field, ...]], ...]

    def column(self, node: exp.Column) -> Scalar:
        if node.args.get("db") or node.args.get("catalog"):
            raise InvalidQuery(f"{node.sql()} names a database. Write the column alone, or table.column.")
        table, name = node.table.lower(), node.name.lower()
        hits = [
            (i, names.index(hit), fields[names.index(hit)])
            for i, (alias, names, fields) in enumerate(self.inputs)
            if not table or alias.lower() == table
            for hit in names
            if hit.lower() == name
        ]
        if len(hits) == 1:
            i, place, found = hits[0]
            return Scalar("column", found.kind, (), (i, place), found.bounds, found.values, found.required)
        if hits:
            raise InvalidQuery(
                f"{node.sql()} is in more than one of {', '.join(it[0] for it in self.inputs)}. Say which: table.{node.name}."
            )
        there = [f"{alias}.{it}" if len(self.inputs) > 1 else it for alias, names, _ in self.inputs for it in names]
        raise InvalidQuery(f"There is no column {node.sql()}; there are {', '.join(there[:20]) or 'none'}"
                           f"{' and more' if len(there) > 20 else ''}.")  # fmt: skip


def scalar(node: Node, scope: Scope, depth: int = 0) -> Scalar:
    """The meaning of an expression over one row."""
    if depth > DEEPEST:
        raise InvalidQuery(f"The query is nested more than {DEEPEST} deep. Write it flatter.")
    if not isinstance(node, Node):
        raise InvalidQuery("A function lacks an argument.")
    rule = _RULES.get(type(node))
    if rule is None or any(part and name not in _PARTS_READ for name, part in node.args.items()):
        raise refused(node)
    return rule(node, lambda inner: scalar(inner, scope, depth + 1), scope)


_PARTS_READ = {
    "this", "expression", "expressions", "is_string", "table", "db", "catalog", "decimals", "low", "high", "negate", "to",
    "safe", "coalesce", "ignore_nulls", "ifs", "default", "true", "false", "start", "length", "unit", "position", "query",
    "unnest", "field", "date_part_boundary",
}  # fmt: skip
"""What the rules below look at; an option they would pass over (BETWEEN SYMMETRIC) is refused."""


def refused(node: Node) -> InvalidQuery:
    """What is outside the subset, and what is inside."""
    text = node.sql("duckdb")
    name = node.name if isinstance(node, exp.Anonymous) else type(node).__name__.upper()
    hint = _HINTS.get(type(node), "Of each row you may use its columns, arithmetic, comparisons, CASE, casts, and functions of "
                      "numbers, texts and dates: docs/guides/sql.md lists them.")  # fmt: skip
    return InvalidQuery(f"{name} is not among what private SQL may run (in: {text[:80]}). {hint}")


_HINTS = {
    exp.Window: "A window looks at other people's rows. Aggregate per unit in a sub-query: GROUP BY the unit key. Shares and "
    "ranks of the numbers in an answer are free: make them of the answer.",
    exp.Subquery: "A sub-query stands in FROM, or is a CTE, and keeps the unit key.",
    exp.Exists: "JOIN a public table; of private ones, keep the unit key and JOIN on it.",
    exp.Star: "Rows are not given out. Ask for statistics of them, such as COUNT(*) or AVG(x), by group if you like.",
    exp.CurrentDate: "Write the day out, like DATE '2026-01-31': a question that is asked again has the same answer.",
    exp.CurrentTimestamp: "Write it out, like TIMESTAMP '2026-01-31 12:00:00': a question asked again has the same answer.",
    exp.TimeToStr: "Group by DATE_TRUNC('month', x), or by EXTRACT(YEAR FROM x) and EXTRACT(MONTH FROM x).",
    exp.Rollup: "Ask the totals as a query of their own.",
    exp.Cube: "Ask the totals as a query of their own.",
    exp.Interval: "Add an interval to a date that is written out, and compare: x > DATE '2026-01-31' - INTERVAL 30 DAY.",
    exp.Mode: "GROUP BY the column, and take the largest count.",
}

Inner = Callable[[Node], Scalar]


def number(it: Scalar, node: Node) -> Scalar:
    """The operand as a number; a truth value counts as 0 or 1."""
    if it.kind in NUMBERS:
        return it
    if it.kind == "boolean":
        return Scalar("truth", "integer", (it,), bounds=(0.0, 1.0), required=it.required)
    raise InvalidQuery(f"{node.sql()[:80]} needs a number, and found {it.kind}. CAST it AS DOUBLE.")


def truth(it: Scalar, node: Node) -> Scalar:
    if it.kind != "boolean":
        raise InvalidQuery(f"{node.sql()[:80]} needs true or false, and found {it.kind}. Compare it with something.")
    return it


def _text(it: Scalar, node: Node) -> Scalar:
    if it.kind != "text":
        raise InvalidQuery(f"{node.sql()[:80]} needs text, and found {it.kind}. CAST it AS VARCHAR.")
    return it


def _literal(node: Any, inner: Inner, scope: Scope) -> Scalar:
    if node.is_string:
        return Scalar("literal", "text", value=node.this, required=True)
    try:
        value = int(node.this) if node.this.isdecimal() else float(node.this)
    except ValueError:
        raise refused(node) from None
    if not abs(value) < 1e15:
        raise InvalidQuery(f"{node.this[:30]} is too large for a number here; the most is 1e15.")
    return number_literal(value)


def number_literal(value: float) -> Scalar:
    return Scalar("literal", "integer" if isinstance(value, int) else "number", (), value, (float(value),) * 2, required=True)


def _arithmetic(op: str) -> Callable[[Any, Inner, Scope], Scalar]:
    def rule(node: Any, inner: Inner, scope: Scope) -> Scalar:
        return _of_numbers(op, inner(node.this), inner(node.expression), node)

    return rule


def _of_numbers(op: str, left: Scalar, right: Scalar, node: Node) -> Scalar:
    left, right = number(left, node), number(right, node)
    bounds = _BOUNDS[op](left.bounds, right.bounds) if left.bounds and right.bounds else None
    total = op in ("add", "sub", "mul")
    return Scalar(op, "number", (left, right), None, finite(bounds), required=total and left.required and right.required)


def _sum(node: Any, inner: Inner, scope: Scope) -> Scalar:
    if isinstance(node.expression, exp.Interval):
        return _moved(1, inner(node.this), node)
    return _of_numbers("add", inner(node.this), inner(node.expression), node)


def _difference(node: Any, inner: Inner, scope: Scope) -> Scalar:
    """Of two numbers; of two dates, in days."""
    if isinstance(node.expression, exp.Interval):
        return _moved(-1, inner(node.this), node)
    left, right = inner(node.this), inner(node.expression)
    kinds = {left.kind, right.kind}
    if kinds == {"date"}:
        return Scalar("days", "number", (right, left))
    if kinds <= {"date", "timestamp"}:
        raise InvalidQuery(f"{node.sql()[:80]} is a span of time. Write DATE_DIFF('day', from, to) for whole days.")
    return _of_numbers("sub", left, right, node)


def _moved(sign: int, it: Scalar, node: Any) -> Scalar:
    """A day or a moment that is written out, moved by an interval."""
    span = node.expression
    if it.op != "literal" or it.kind not in ("date", "timestamp"):
        raise refused(span)
    return replace(it, value=moved(it.value, sign, span))


def _days(node: Any, inner: Inner, scope: Scope) -> Scalar:
    """DATE_DIFF('day', from, to): how many midnights lie between."""
    unit = node.args.get("unit")
    if unit is not None and unit.name.lower() != "day":
        raise InvalidQuery(
            f"DATE_DIFF counts days here; got {unit.name[:20].lower()}. Divide: DATE_DIFF('day', a, b) / 365.25."
        )
    start, end = (_day(_moment(inner(part), node)) for part in (node.expression, node.this))
    return Scalar("days", "number", (start, end))


def _day(it: Scalar) -> Scalar:
    return it if it.kind == "date" else Scalar("to_date", "date", (it,))


def _corners(f: Callable[[float, float], float]) -> Callable[[Bounds, Bounds], Bounds]:
    def bounds(one: Bounds, two: Bounds) -> Bounds:
        ends = [f(a, b) for a in one for b in two]
        return min(ends), max(ends)

    return bounds


def _quotient(one: Bounds, two: Bounds) -> Bounds | None:
    return None if two[0] <= 0 <= two[1] else _corners(lambda a, b: a / b)(one, two)


def _remainder(one: Bounds, two: Bounds) -> Bounds:
    most = max(abs(end) for end in two)
    return (-most if one[0] < 0 else 0.0), most


_BOUNDS: dict[str, Callable[[Bounds, Bounds], Bounds | None]] = {
    "add": _corners(lambda a, b: a + b), "sub": _corners(lambda a, b: a - b), "mul": _corners(lambda a, b: a * b),
    "div": _quotient, "mod": _remainder, "power": lambda one, two: None,
}  # fmt: skip


def finite(bounds: Bounds | None) -> Bounds | None:
    return bounds if bounds and all(math.isfinite(end) and abs(end) < 1e15 for end in bounds) else None


def _whole_division(node: Any, inner: Inner, scope: Scope) -> Scalar:
    quotient = _arithmetic("div")(node, inner, scope)
    return _monotone("floor", quotient, math.floor)


def _monotone(op: str, it: Scalar, f: Callable[[float], float]) -> Scalar:
    known = finite(it.bounds)
    bounds = (float(f(known[0])), float(f(known[1]))) if known else None
    return Scalar(op, "number", (it,), None, bounds, required=it.required)


def _rounded(node: Any, inner: Inner, scope: Scope) -> Scalar:
    it = number(inner(node.this), node)
    digits = whole_literal(node.args.get("decimals"), 0, node) if node.args.get("decimals") else 0
    step = 10.0**-digits
    bounds = finite((it.bounds[0] - step, it.bounds[1] + step)) if it.bounds else None
    return Scalar("round", "number", (it,), digits, bounds, required=it.required)


def _function(op: str) -> Callable[[Any, Inner, Scope], Scalar]:
    def rule(node: Any, inner: Inner, scope: Scope) -> Scalar:
        it = number(inner(node.this), node)
        if op in ("floor", "ceil"):
            if node.args.get("decimals"):
                raise refused(node)
            return _monotone(op, it, math.floor if op == "floor" else math.ceil)
        bounds = None
        if op == "abs" and it.bounds:
            ends = [abs(end) for end in it.bounds]
            bounds = (0.0 if it.bounds[0] <= 0 <= it.bounds[1] else min(ends), max(ends))
        if op == "sqrt" and it.bounds:
            bounds = finite((0.0, math.sqrt(max(it.bounds[1], 0.0)) or 1.0))
        if op == "sign":
            bounds = (-1.0, 1.0)
        return Scalar(op, "number", (it,), None, bounds, required=op in ("abs", "sign") and it.required)

    return rule


def _negated(node: Any, inner: Inner, scope: Scope) -> Scalar:
    it = number(inner(node.this), node)
    if it.op == "literal":
        return number_literal(-it.value)
    return Scalar("neg", "number", (it,), None, (-it.bounds[1], -it.bounds[0]) if it.bounds else None, required=it.required)


def _logarithm(node: Any, inner: Inner, scope: Scope) -> Scalar:
    if node.expression:  # log(base, x)
        base = number(inner(node.this), node)
        if base.op != "literal" or base.value not in (2, 10):
            raise InvalidQuery("LOG takes base 2 or 10 here. Write LN(x) / LN(base).")
        above = Scalar("ln", "number", (number(inner(node.expression), node),))
        return Scalar("div", "number", (above, number_literal(math.log(base.value))))
    return Scalar("ln", "number", (number(inner(node.this), node),))


def _compared(op: str) -> Callable[[Any, Inner, Scope], Scalar]:
    def rule(node: Any, inner: Inner, scope: Scope) -> Scalar:
        left, right = alike(inner(node.this), inner(node.expression), node)
        return Scalar(op, "boolean", (left, right), required=left.required and right.required)

    return rule


def alike(left: Scalar, right: Scalar, node: Node) -> tuple[Scalar, Scalar]:
    """Both sides of one kind; a text literal beside a date is a date."""
    for kind, read in (("date", date.fromisoformat), ("timestamp", datetime.fromisoformat)):
        left, right = _as_moment(left, right, kind, read), _as_moment(right, left, kind, read)
    if {left.kind, right.kind} == {"date", "timestamp"}:
        left, right = (Scalar("to_timestamp", "timestamp", (it,)) if it.kind == "date" else it for it in (left, right))
    if left.kind == right.kind:
        return left, right
    if {left.kind, right.kind} <= {*NUMBERS, "boolean"}:
        return number(left, node), number(right, node)
    raise InvalidQuery(f"{node.sql()[:80]} compares {left.kind} with {right.kind}. CAST one of them.")


def _as_moment(it: Scalar, other: Scalar, kind: str, read: Callable[[str], Any]) -> Scalar:
    if it.op == "literal" and it.kind == "text" and other.kind == kind:
        try:
            return replace(it, kind=kind, value=read(it.value))
        except ValueError:
            raise InvalidQuery(f"{it.value[:40]!r} is not a {kind}; write it like 2026-01-31.") from None
    return it


def _logic(op: str) -> Callable[[Any, Inner, Scope], Scalar]:
    def rule(node: Any, inner: Inner, scope: Scope) -> Scalar:
        parts = tuple(truth(inner(part), node) for part in node.flatten())
        return Scalar(op, "boolean", parts, required=all(part.required for part in parts))

    return rule


def _not(node: Any, inner: Inner, scope: Scope) -> Scalar:
    it = truth(inner(node.this), node)
    return Scalar("not", "boolean", (it,), required=it.required)


def _is(node: Any, inner: Inner, scope: Scope) -> Scalar:
    it = inner(node.this)
    if isinstance(node.expression, exp.Null):
        return Scalar("is_null", "boolean", (it,), required=True)
    if isinstance(node.expression, exp.Boolean):
        literal = Scalar("literal", "boolean", value=bool(node.expression.this), required=True)
        same = Scalar("eq", "boolean", (truth(it, node), literal))
        return Scalar("coalesce", "boolean", (same, Scalar("literal", "boolean", value=False, required=True)), required=True)
    raise refused(node)


def _in(node: Any, inner: Inner, scope: Scope) -> Scalar:
    if node.args.get("query") or node.args.get("unnest") or node.args.get("field"):
        raise InvalidQuery(
            "IN takes a list of values here. For a public table, JOIN it; for people, keep the unit key and JOIN."
        )
    it = inner(node.this)
    same = []
    for item in node.expressions:
        left, right = alike(it, inner(item), node)
        if right.op != "literal":
            raise InvalidQuery(f"IN takes plain values; {item.sql()[:60]} is not one. Write OR.")
        same.append(Scalar("eq", "boolean", (left, right), required=left.required))
    if not same:
        raise InvalidQuery("IN () has no values. Name at least one.")
    return same[0] if len(same) == 1 else Scalar("or", "boolean", tuple(same), required=it.required)


def _between(node: Any, inner: Inner, scope: Scope) -> Scalar:
    it = inner(node.this)
    sides = []
    for op, end in (("ge", node.args["low"]), ("le", node.args["high"])):
        sides.append(Scalar(op, "boolean", alike(it, inner(end), node)))
    return Scalar("and", "boolean", tuple(sides), required=all(arg.required for side in sides for arg in side.args))


def _like(node: Any, inner: Inner, scope: Scope) -> Scalar:
    pattern = inner(node.expression)
    if pattern.op != "literal" or pattern.kind != "text":
        raise InvalidQuery("LIKE takes a pattern written out, such as 'A%'.")
    it = _text(inner(node.this), node)
    if isinstance(node, exp.ILike):
        it, pattern = Scalar("lower", "text", (it,)), replace(pattern, value=pattern.value.lower())
    like = Scalar("like", "boolean", (it, pattern), required=it.required)
    return Scalar("not", "boolean", (like,), required=it.required) if node.args.get("negate") else like


def _case(node: Any, inner: Inner, scope: Scope) -> Scalar:
    args: list[Scalar] = []
    results: list[Scalar] = []
    for branch in node.args["ifs"]:
        test = exp.EQ(this=node.this.copy(), expression=branch.this.copy()) if node.this else branch.this
        args.append(truth(inner(test), node))
        results.append(inner(branch.args["true"]))
    default = node.args.get("default")
    results.append(inner(default) if default is not None else Scalar("null", "null"))
    results = one_kind(results, node)
    pairs = tuple(it for pair in zip(args, results[:-1]) for it in pair)
    return Scalar(
        "case", results[0].kind, (*pairs, results[-1]), None, hull(results), required=all(it.required for it in results)
    )


def _if(node: Any, inner: Inner, scope: Scope) -> Scalar:
    default = node.args.get("false")
    results = [inner(node.args["true"]), inner(default) if default is not None else Scalar("null", "null")]
    results = one_kind(results, node)
    args = (truth(inner(node.this), node), *results)
    return Scalar("case", results[0].kind, args, None, hull(results), required=all(it.required for it in results))


def one_kind(items: Sequence[Scalar], node: Node) -> list[Scalar]:
    """All of one kind; a NULL is of any."""
    kinds = {it.kind for it in items if it.kind != "null"}
    if not kinds:
        raise InvalidQuery(f"{node.sql()[:80]} is always NULL. Give it a value.")
    if len(kinds) > 1 and kinds <= {*NUMBERS, "boolean"}:
        return [it if it.kind == "null" else number(it, node) for it in items] if "boolean" in kinds else list(items)
    if len(kinds) > 1:
        raise InvalidQuery(f"{node.sql()[:80]} mixes {' and '.join(sorted(kinds))}. CAST them to one.")
    return [replace(it, kind=next(iter(kinds))) if it.kind == "null" else it for it in items]


def hull(items: Sequence[Scalar]) -> Bounds | None:
    """Bounds that hold for all; a NULL has none to add."""
    found = [it.bounds for it in items if it.op != "null"]
    if any(it is None for it in found):
        return None
    return min(it[0] for it in found if it), max(it[1] for it in found if it)


def _coalesce(node: Any, inner: Inner, scope: Scope) -> Scalar:
    items = one_kind([inner(node.this), *(inner(it) for it in node.expressions)], node)
    return Scalar("coalesce", items[0].kind, tuple(items), None, hull(items), required=any(it.required for it in items))


def _extreme(op: str) -> Callable[[Any, Inner, Scope], Scalar]:
    def rule(node: Any, inner: Inner, scope: Scope) -> Scalar:
        items = [number(inner(it), node) for it in (node.this, *node.expressions)]
        best = max if op == "greatest" else min
        known = [it.bounds or (-math.inf, math.inf) for it in items]  # one end may be known: LEAST(GREATEST(x, 0), 9)
        bounds = (best(b[0] for b in known), best(b[1] for b in known))
        return Scalar(op, "number", tuple(items), None, bounds, required=all(it.required for it in items))

    return rule


def _nullif(node: Any, inner: Inner, scope: Scope) -> Scalar:
    left, right = alike(inner(node.this), inner(node.expression), node)
    same = Scalar("eq", "boolean", (left, right))
    return Scalar("case", left.kind, (same, Scalar("null", left.kind), left), None, left.bounds)


def _on_text(op: str, kind: str) -> Callable[[Any, Inner, Scope], Scalar]:
    def rule(node: Any, inner: Inner, scope: Scope) -> Scalar:
        if op == "trim" and (node.expression or node.args.get("position")):
            raise refused(node)
        it = _text(inner(node.this), node)
        return Scalar(op, kind, (it,), required=it.required)

    return rule


def whole_literal(node: Any, least: int, where: Node) -> int:
    """A whole number written out in the query."""
    sign, inner = (-1, node.this) if isinstance(node, exp.Neg) else (1, node)
    if not (isinstance(inner, exp.Literal) and not inner.is_string and inner.this.isdecimal() and len(inner.this) < 10):
        raise InvalidQuery(f"{where.sql()[:80]} needs a whole number written out.")
    value = sign * int(inner.this)
    if value < least:
        raise InvalidQuery(f"{where.sql()[:80]} needs a whole number of at least {least}; got {value}.")
    return value


def _substring(node: Any, inner: Inner, scope: Scope) -> Scalar:
    start = whole_literal(node.args.get("start"), 1, node)
    length = whole_literal(node.args["length"], 0, node) if node.args.get("length") else 1 << 20
    it = _text(inner(node.this), node)
    return Scalar("substring", "text", (it,), (start, length), required=it.required)


def _left(node: Any, inner: Inner, scope: Scope) -> Scalar:
    it = _text(inner(node.this), node)
    return Scalar("substring", "text", (it,), (1, whole_literal(node.expression, 0, node)), required=it.required)


def _concat(node: Any, inner: Inner, scope: Scope) -> Scalar:
    parts = (node.this, node.expression) if isinstance(node, exp.DPipe) else node.expressions
    items = tuple(_text(inner(part), node) for part in parts)
    return Scalar("concat", "text", items, required=all(it.required for it in items))


PARTS = {"year": (1.0, 9999.0), "quarter": (1.0, 4.0), "month": (1.0, 12.0), "day": (1.0, 31.0), "hour": (0.0, 23.0),
         "minute": (0.0, 59.0), "dow": (0.0, 6.0)}  # fmt: skip


def _moment(it: Scalar, node: Node) -> Scalar:
    if it.kind not in ("date", "timestamp"):
        raise InvalidQuery(f"{node.sql()[:80]} needs a date, and found {it.kind}. CAST it AS DATE.")
    return it


def _part(name: str | None = None) -> Callable[[Any, Inner, Scope], Scalar]:
    def rule(node: Any, inner: Inner, scope: Scope) -> Scalar:
        return _part_of(name or node.this.name, inner(node.this if name else node.expression), node)

    return rule


def _part_of(name: str, it: Scalar, node: Node) -> Scalar:
    """A part of a date; weeks begin with Sunday, 0."""
    part = "dow" if name.lower() in ("dayofweek", "weekday") else name.lower()
    if part not in PARTS:
        raise InvalidQuery(f"{part[:20]} of a date is not known here; {', '.join(PARTS)} are.")
    it = _moment(it, node)
    if it.kind == "date" and part in ("hour", "minute"):
        raise InvalidQuery(f"A date has no {part}; a timestamp has.")
    return Scalar("part", "integer", (it,), part, PARTS[part], required=it.required)


def _truncated(node: Any, inner: Inner, scope: Scope) -> Scalar:
    unit = node.args["unit"].name.lower()
    if unit not in ("year", "quarter", "month", "day", "hour"):
        raise InvalidQuery(f"DATE_TRUNC takes year, quarter, month, day or hour; got {unit[:20]}.")
    it = _moment(inner(node.this), node)
    return Scalar("truncate", "timestamp", (it,), unit, required=it.required)


def _cast(node: Any, inner: Inner, scope: Scope) -> Scalar:
    kind = _cast_kind(node)
    it = inner(node.this)
    if it.op == "literal" and it.kind == "text" and kind in ("date", "timestamp"):
        return alike(it, Scalar("column", kind), node)[0]
    if it.kind == kind:
        return it
    if kind in ("date", "timestamp") and it.kind not in ("text", "date", "timestamp"):
        raise InvalidQuery(f"{node.sql()[:80]} makes a {kind} of {it.kind}. Only texts can be read so.")
    if it.kind in ("date", "timestamp") and kind not in ("text", "date", "timestamp"):
        raise InvalidQuery(f"{node.sql()[:80]} makes {kind} of a {it.kind}. Use EXTRACT(YEAR FROM …) and the like.")
    if it.kind == "boolean" and kind in NUMBERS:
        return number(it, node)
    bounds = finite(it.bounds)
    if kind == "integer" and bounds:
        bounds = (float(math.floor(bounds[0])), float(math.ceil(bounds[1])))
    sure = it.required and kind in NUMBERS and it.kind in NUMBERS and bounds is not None
    return Scalar("to_" + kind, kind, (it,), None, bounds if kind in NUMBERS else None, required=sure)


def _cast_kind(node: Any) -> str:
    to = node.args["to"]
    name = to.this.name if hasattr(to.this, "name") else str(to.this)
    for kind, names in (
        ("integer", ("TINYINT", "SMALLINT", "INT", "MEDIUMINT", "BIGINT")),
        ("number", ("FLOAT", "DOUBLE", "DECIMAL")),
        ("text", ("VARCHAR", "TEXT", "CHAR", "NVARCHAR")),
        ("boolean", ("BOOLEAN",)),
        ("date", ("DATE",)),
        ("timestamp", ("TIMESTAMP", "TIMESTAMPNTZ", "DATETIME")),
    ):
        if name in names and not (to.args.get("nested") or (to.expressions and kind != "number")):
            return kind
    raise InvalidQuery(
        f"CAST(… AS {to.sql()[:40]}) is not known here; cast to BIGINT, DOUBLE, VARCHAR, BOOLEAN, DATE or TIMESTAMP."
    )


def _boolean(node: Any, inner: Inner, scope: Scope) -> Scalar:
    return Scalar("literal", "boolean", value=bool(node.this), required=True)


def _named(node: Any, inner: Inner, scope: Scope) -> Scalar:
    """Functions that sqlglot has no type for."""
    name, items = node.name.lower(), node.expressions
    if name in ("date_part", "datepart") and len(items) == 2 and items[0].is_string:
        return _part_of(items[0].name, inner(items[1]), node)
    if name != "bucket" or len(items) != 2:
        raise refused(node)
    return _bucket(node, inner)


def _bucket(node: Any, inner: Inner) -> Scalar:
    """BUCKET(x, n): the lower end of the one of n equal parts of x's bounds that x falls into; a public list."""
    it = number(inner(node.expressions[0]), node)
    parts = whole_literal(node.expressions[1], 1, node)
    if not finite(it.bounds) or it.bounds is None or parts > 10_000:
        raise InvalidQuery(f"{node.sql()[:80]} needs bounds of what it divides, and at most 10,000 parts: "
                           "give bounds={'column': (low, high)}.")  # fmt: skip
    low, high = it.bounds
    ends = tuple(low + (high - low) * i / parts for i in range(parts))
    return Scalar("bucket", "number", (it,), ends, (low, high), ends, it.required)


_RULES: dict[type[Node], Callable[[Any, Inner, Scope], Scalar]] = {
    exp.Column: lambda node, inner, scope: scope.column(node),
    exp.Literal: _literal, exp.Boolean: _boolean, exp.Null: lambda *_: Scalar("null", "null"),
    exp.Paren: lambda node, inner, scope: inner(node.this), exp.Neg: _negated,
    exp.Add: _sum, exp.Sub: _difference, exp.DateDiff: _days, exp.Mul: _arithmetic("mul"), exp.Div: _arithmetic("div"),
    exp.Mod: _arithmetic("mod"), exp.Pow: _arithmetic("power"), exp.IntDiv: _whole_division,
    exp.Abs: _function("abs"), exp.Sqrt: _function("sqrt"), exp.Exp: _function("exp"), exp.Ln: _function("ln"),
    exp.Log: _logarithm,
    exp.Floor: _function("floor"), exp.Ceil: _function("ceil"), exp.Sign: _function("sign"), exp.Round: _rounded,
    exp.Greatest: _extreme("greatest"), exp.Least: _extreme("least"),
    exp.EQ: _compared("eq"), exp.NEQ: _compared("ne"), exp.LT: _compared("lt"), exp.LTE: _compared("le"),
    exp.GT: _compared("gt"), exp.GTE: _compared("ge"), exp.And: _logic("and"), exp.Or: _logic("or"), exp.Not: _not,
    exp.Is: _is, exp.In: _in, exp.Between: _between, exp.Like: _like, exp.ILike: _like, exp.Case: _case, exp.If: _if,
    exp.Coalesce: _coalesce, exp.Nullif: _nullif, exp.Lower: _on_text("lower", "text"), exp.Upper: _on_text("upper", "text"),
    exp.Trim: _on_text("trim", "text"), exp.Length: _on_text("length", "integer"), exp.Substring: _substring, exp.Left: _left,
    exp.DPipe: _concat, exp.Concat: _concat, exp.Year: _part("year"), exp.Quarter: _part("quarter"), exp.Month: _part("month"),
    exp.Day: _part("day"), exp.Hour: _part("hour"), exp.Minute: _part("minute"),
    exp.DayOfWeek: _part("dow"), exp.Extract: _part(),
    exp.TimestampTrunc: _truncated, exp.DateTrunc: _truncated, exp.Cast: _cast, exp.TryCast: _cast, exp.Anonymous: _named,
}  # fmt: skip
