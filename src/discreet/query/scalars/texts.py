"""Rules for texts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp

from discreet.errors import InvalidQuery
from discreet.query.operations import Kind, Op
from discreet.query.scalars.operands import Inner, Node, Rule, Rules, refused, whole_literal
from discreet.query.tree import Scalar


def _text(it: Scalar, node: Node) -> Scalar:
    if it.kind != Kind.TEXT:
        raise InvalidQuery(f"{node.sql()[:80]} needs text, and found {it.kind}. CAST it AS VARCHAR.")
    return it


def _like(node: Any, inner: Inner) -> Scalar:
    pattern = inner(node.expression)
    if pattern.op != Op.LITERAL or pattern.kind != Kind.TEXT:
        raise InvalidQuery("LIKE takes a pattern written out, such as 'A%'.")
    it = _text(inner(node.this), node)
    if isinstance(node, exp.ILike):
        it, pattern = Scalar(Op.LOWER, Kind.TEXT, (it,)), replace(pattern, value=pattern.value.lower())
    like = Scalar(Op.LIKE, Kind.BOOLEAN, (it, pattern), required=it.required)
    return Scalar(Op.NOT, Kind.BOOLEAN, (like,), required=it.required) if node.args.get("negate") else like


def _on_text(op: Op, kind: Kind) -> Rule:
    def rule(node: Any, inner: Inner) -> Scalar:
        if op == Op.TRIM and (node.expression or node.args.get("position")):
            raise refused(node)
        it = _text(inner(node.this), node)
        return Scalar(op, kind, (it,), required=it.required)

    return rule


def _substring(node: Any, inner: Inner) -> Scalar:
    start = whole_literal(node.args.get("start"), 1, node)
    length = whole_literal(node.args["length"], 0, node) if node.args.get("length") else 1 << 20
    it = _text(inner(node.this), node)
    return Scalar(Op.SUBSTRING, Kind.TEXT, (it,), (start, length), required=it.required)


def _left(node: Any, inner: Inner) -> Scalar:
    it = _text(inner(node.this), node)
    return Scalar(Op.SUBSTRING, Kind.TEXT, (it,), (1, whole_literal(node.expression, 0, node)), required=it.required)


def _concat(node: Any, inner: Inner) -> Scalar:
    """Of `||`, NULL where a part is; CONCAT leaves such parts out."""
    if isinstance(node, exp.DPipe):
        items = [_text(inner(part), node) for part in (node.this, node.expression)]
    else:
        items = [_or_empty(_text(inner(part), node)) for part in node.expressions]
    return Scalar(Op.CONCAT, Kind.TEXT, tuple(items), required=all(it.required for it in items))


def _or_empty(it: Scalar) -> Scalar:
    empty = Scalar(Op.LITERAL, Kind.TEXT, value="", required=True)
    return it if it.required else Scalar(Op.COALESCE, Kind.TEXT, (it, empty), required=True)


RULES: Rules = {
    exp.Like: _like, exp.ILike: _like, exp.Lower: _on_text(Op.LOWER, Kind.TEXT), exp.Upper: _on_text(Op.UPPER, Kind.TEXT),
    exp.Trim: _on_text(Op.TRIM, Kind.TEXT), exp.Length: _on_text(Op.LENGTH, Kind.INTEGER), exp.Substring: _substring,
    exp.Left: _left, exp.DPipe: _concat, exp.Concat: _concat,
}  # fmt: skip
