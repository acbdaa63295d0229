"""Rules for casts: which kinds can be made of which, and what stays known of the value."""

from __future__ import annotations

import math
from typing import Any

from sqlglot import exp

from discreet.errors import InvalidQuery
from discreet.query.operations import MOMENTS, NUMBERS, Kind, Op
from discreet.query.scalars.operands import Inner, Rules, alike, finite, number, text_of
from discreet.query.tree import Scalar


def _cast(node: Any, inner: Inner) -> Scalar:
    kind = _cast_kind(node)
    value = inner(node.this)
    if value.kind == Kind.NULL:
        return Scalar(Op.NULL, kind)
    if value.op == Op.LITERAL and value.kind == Kind.TEXT and kind in MOMENTS:
        return alike(value, Scalar(Op.COLUMN, kind), node)[0]
    if value.kind == kind:
        return value
    if kind in MOMENTS and value.kind not in (Kind.TEXT, Kind.DATE, Kind.TIMESTAMP):
        raise InvalidQuery(f"{text_of(node, 80)} makes a {kind} of {value.kind}. Only texts can be read so.")
    if value.kind in MOMENTS and kind not in (Kind.TEXT, Kind.DATE, Kind.TIMESTAMP):
        raise InvalidQuery(f"{text_of(node, 80)} makes {kind} of a {value.kind}. Use EXTRACT(YEAR FROM …) and the like.")
    if value.kind == Kind.BOOLEAN and kind in NUMBERS:
        return number(value, node)
    bounds = finite(value.bounds)
    if kind == Kind.INTEGER and bounds:
        bounds = (float(math.floor(bounds[0])), float(math.ceil(bounds[1])))
    sure = value.required and kind in NUMBERS and value.kind in NUMBERS and bounds is not None
    return Scalar(Op(f"to_{kind}"), kind, (value,), None, bounds if kind in NUMBERS else None, required=sure)


def _cast_kind(node: Any) -> Kind:
    to = node.args["to"]
    name = to.this.name if hasattr(to.this, "name") else str(to.this)
    for kind, names in (
        (Kind.INTEGER, ("TINYINT", "SMALLINT", "INT", "MEDIUMINT", "BIGINT")),
        (Kind.NUMBER, ("FLOAT", "DOUBLE")),
        (Kind.TEXT, ("VARCHAR", "TEXT", "CHAR", "NVARCHAR")),
        (Kind.BOOLEAN, ("BOOLEAN",)),
        (Kind.DATE, ("DATE",)),
        (Kind.TIMESTAMP, ("TIMESTAMP", "TIMESTAMPNTZ", "DATETIME")),
    ):
        if name in names and not (to.args.get("nested") or to.expressions):
            return kind
    if name == "DECIMAL":
        raise InvalidQuery(f"CAST(… AS {text_of(to, 40)}) rounds to so many digits; write ROUND(…, digits), a DOUBLE here.")
    raise InvalidQuery(
        f"CAST(… AS {text_of(to, 40)}) is not known here; cast to BIGINT, DOUBLE, VARCHAR, BOOLEAN, DATE or TIMESTAMP."
    )


RULES: Rules = {exp.Cast: _cast, exp.TryCast: _cast}
