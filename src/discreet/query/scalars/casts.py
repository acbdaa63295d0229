"""Rules for casts: which kinds can be made of which, and what stays known of the value."""

from __future__ import annotations

import math
from typing import Any

from sqlglot import exp

from discreet.errors import InvalidQuery
from discreet.query.operations import MOMENTS, NUMBERS, Kind, Op
from discreet.query.scalars.operands import Inner, Rules, alike, finite, number
from discreet.query.tree import Scalar


def _cast(node: Any, inner: Inner) -> Scalar:
    kind = _cast_kind(node)
    it = inner(node.this)
    if it.kind == Kind.NULL:
        return Scalar(Op.NULL, kind)
    if it.op == Op.LITERAL and it.kind == Kind.TEXT and kind in MOMENTS:
        return alike(it, Scalar(Op.COLUMN, kind), node)[0]
    if it.kind == kind:
        return it
    if kind in MOMENTS and it.kind not in (Kind.TEXT, Kind.DATE, Kind.TIMESTAMP):
        raise InvalidQuery(f"{node.sql()[:80]} makes a {kind} of {it.kind}. Only texts can be read so.")
    if it.kind in MOMENTS and kind not in (Kind.TEXT, Kind.DATE, Kind.TIMESTAMP):
        raise InvalidQuery(f"{node.sql()[:80]} makes {kind} of a {it.kind}. Use EXTRACT(YEAR FROM …) and the like.")
    if it.kind == Kind.BOOLEAN and kind in NUMBERS:
        return number(it, node)
    bounds = finite(it.bounds)
    if kind == Kind.INTEGER and bounds:
        bounds = (float(math.floor(bounds[0])), float(math.ceil(bounds[1])))
    sure = it.required and kind in NUMBERS and it.kind in NUMBERS and bounds is not None
    return Scalar(Op(f"to_{kind}"), kind, (it,), None, bounds if kind in NUMBERS else None, required=sure)


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
        raise InvalidQuery(f"CAST(… AS {to.sql()[:40]}) rounds to so many digits; write ROUND(…, digits), a DOUBLE here.")
    raise InvalidQuery(
        f"CAST(… AS {to.sql()[:40]}) is not known here; cast to BIGINT, DOUBLE, VARCHAR, BOOLEAN, DATE or TIMESTAMP."
    )


RULES: Rules = {exp.Cast: _cast, exp.TryCast: _cast}
