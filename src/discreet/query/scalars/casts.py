"""Rules for casts: which kinds can be made of which, and what stays known of the value."""

from __future__ import annotations

import math
from typing import Any

from sqlglot import exp

from discreet.errors import InvalidQuery
from discreet.query.scalars.operands import Inner, Rules, alike, finite, number
from discreet.query.tree import NUMBERS, Scalar


def _cast(node: Any, inner: Inner) -> Scalar:
    kind = _cast_kind(node)
    it = inner(node.this)
    if it.kind == "null":
        return Scalar("null", kind)
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
        ("number", ("FLOAT", "DOUBLE")),
        ("text", ("VARCHAR", "TEXT", "CHAR", "NVARCHAR")),
        ("boolean", ("BOOLEAN",)),
        ("date", ("DATE",)),
        ("timestamp", ("TIMESTAMP", "TIMESTAMPNTZ", "DATETIME")),
    ):
        if name in names and not (to.args.get("nested") or to.expressions):
            return kind
    if name == "DECIMAL":
        raise InvalidQuery(f"CAST(… AS {to.sql()[:40]}) rounds to so many digits; write ROUND(…, digits), a DOUBLE here.")
    raise InvalidQuery(
        f"CAST(… AS {to.sql()[:40]}) is not known here; cast to BIGINT, DOUBLE, VARCHAR, BOOLEAN, DATE or TIMESTAMP."
    )


RULES: Rules = {exp.Cast: _cast, exp.TryCast: _cast}
