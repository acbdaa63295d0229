"""Rules for comparisons, logic, and what depends on a condition: CASE, COALESCE, NULLIF."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp

from discreet.errors import InvalidQuery
from discreet.query.operations import Kind, Op
from discreet.query.scalars.operands import Inner, Rule, Rules, alike, hull, known_values, one_kind, refused, text_of, truth
from discreet.query.tree import Scalar


def _compared(op: Op) -> Rule:
    def rule(node: Any, inner: Inner) -> Scalar:
        left, right = alike(inner(node.this), inner(node.expression), node)
        return Scalar(op, Kind.BOOLEAN, (left, right), required=left.required and right.required)

    return rule


def _logic(op: Op) -> Rule:
    def rule(node: Any, inner: Inner) -> Scalar:
        values = [inner(part) for part in node.flatten()]
        known = any(value.kind != Kind.NULL for value in values)  # beside a condition, NULL is one: COUNT(x > 3 OR NULL)
        values = [replace(value, kind=Kind.BOOLEAN) if known and value.kind == Kind.NULL else value for value in values]
        parts = tuple(truth(value, node) for value in values)
        return Scalar(op, Kind.BOOLEAN, parts, required=all(part.required for part in parts))

    return rule


def _not(node: Any, inner: Inner) -> Scalar:
    value = truth(inner(node.this), node)
    return Scalar(Op.NOT, Kind.BOOLEAN, (value,), required=value.required)


def _is(node: Any, inner: Inner) -> Scalar:
    value = inner(node.this)
    if isinstance(node.expression, exp.Null):
        if value.kind == Kind.NULL:
            return Scalar(Op.LITERAL, Kind.BOOLEAN, value=True, required=True)
        return Scalar(Op.IS_NULL, Kind.BOOLEAN, (value,), required=True)
    if isinstance(node.expression, exp.Boolean):
        literal = Scalar(Op.LITERAL, Kind.BOOLEAN, value=bool(node.expression.this), required=True)
        same = Scalar(Op.EQ, Kind.BOOLEAN, (truth(value, node), literal))
        no = Scalar(Op.LITERAL, Kind.BOOLEAN, value=False, required=True)
        return Scalar(Op.COALESCE, Kind.BOOLEAN, (same, no), required=True)
    raise refused(node)


def _in(node: Any, inner: Inner) -> Scalar:
    if node.args.get("query") or node.args.get("unnest") or node.args.get("field"):
        raise InvalidQuery(
            "IN takes a list of values here. For a public table, JOIN it; for people, keep the unit key and JOIN."
        )
    value = inner(node.this)
    same = []
    for item in node.expressions:
        left, right = alike(value, inner(item), node)
        if right.op != Op.LITERAL:
            raise InvalidQuery(f"IN takes plain values; {text_of(item)} is not one. Write OR.")
        same.append(Scalar(Op.EQ, Kind.BOOLEAN, (left, right), required=left.required))
    if not same:
        raise InvalidQuery("IN () has no values. Name at least one.")
    return same[0] if len(same) == 1 else Scalar(Op.OR, Kind.BOOLEAN, tuple(same), required=all(one.required for one in same))


def _between(node: Any, inner: Inner) -> Scalar:
    value = inner(node.this)
    sides = []
    for op, end in ((Op.GE, node.args["low"]), (Op.LE, node.args["high"])):
        sides.append(Scalar(op, Kind.BOOLEAN, alike(value, inner(end), node)))
    return Scalar(Op.AND, Kind.BOOLEAN, tuple(sides), required=all(arg.required for side in sides for arg in side.args))


def _case(node: Any, inner: Inner) -> Scalar:
    args: list[Scalar] = []
    results: list[Scalar] = []
    for branch in node.args["ifs"]:
        test = exp.EQ(this=node.this.copy(), expression=branch.this.copy()) if node.this else branch.this
        args.append(truth(inner(test), node))
        results.append(inner(branch.args["true"]))
    default = node.args.get("default")
    results.append(inner(default) if default is not None else Scalar(Op.NULL, Kind.NULL))
    results = one_kind(results, node)
    pairs = tuple(part for pair in zip(args, results[:-1]) for part in pair)
    return Scalar(
        Op.CASE,
        results[0].kind,
        (*pairs, results[-1]),
        None,
        hull(results),
        known_values(results),
        all(result.required for result in results),
    )


def _if(node: Any, inner: Inner) -> Scalar:
    default = node.args.get("false")
    results = [inner(node.args["true"]), inner(default) if default is not None else Scalar(Op.NULL, Kind.NULL)]
    results = one_kind(results, node)
    args = (truth(inner(node.this), node), *results)
    sure = all(result.required for result in results)
    return Scalar(Op.CASE, results[0].kind, args, None, hull(results), known_values(results), sure)


def _coalesce(node: Any, inner: Inner) -> Scalar:
    items = one_kind([inner(node.this), *(inner(item) for item in node.expressions)], node)
    values, sure = known_values(items), any(item.required for item in items)
    kept = None if values is None else tuple(value for value in values if not sure or value is not None)
    return Scalar(Op.COALESCE, items[0].kind, tuple(items), None, hull(items), kept, sure)


def _nullif(node: Any, inner: Inner) -> Scalar:
    left, right = alike(inner(node.this), inner(node.expression), node)
    same = Scalar(Op.EQ, Kind.BOOLEAN, (left, right))
    return Scalar(Op.CASE, left.kind, (same, Scalar(Op.NULL, left.kind), left), None, left.bounds)


RULES: Rules = {
    exp.EQ: _compared(Op.EQ), exp.NEQ: _compared(Op.NE), exp.LT: _compared(Op.LT), exp.LTE: _compared(Op.LE),
    exp.GT: _compared(Op.GT), exp.GTE: _compared(Op.GE), exp.And: _logic(Op.AND), exp.Or: _logic(Op.OR), exp.Not: _not,
    exp.Is: _is, exp.In: _in, exp.Between: _between, exp.Case: _case, exp.If: _if, exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
}  # fmt: skip
