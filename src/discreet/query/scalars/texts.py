"""Rules for texts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp

from discreet.errors import InvalidQuery
from discreet.query.operations import Kind, Op
from discreet.query.scalars.operands import Inner, Node, Rule, Rules, refused, text_of, whole_literal
from discreet.query.tree import Scalar


def _text(value: Scalar, node: Node) -> Scalar:
    if value.kind != Kind.TEXT:
        raise InvalidQuery(f"{text_of(node, 80)} needs text, and found {value.kind}. CAST it AS VARCHAR.")
    return value


def _like(node: Any, inner: Inner) -> Scalar:
    pattern = inner(node.expression)
    if pattern.op != Op.LITERAL or pattern.kind != Kind.TEXT:
        raise InvalidQuery("LIKE takes a pattern written out, such as 'A%'.")
    text = _text(inner(node.this), node)
    if isinstance(node, exp.ILike):
        text, pattern = Scalar(Op.LOWER, Kind.TEXT, (text,)), replace(pattern, value=pattern.value.lower())
    like = Scalar(Op.LIKE, Kind.BOOLEAN, (text, pattern), required=text.required)
    return Scalar(Op.NOT, Kind.BOOLEAN, (like,), required=text.required) if node.args.get("negate") else like


def _on_text(op: Op, kind: Kind) -> Rule:
    def rule(node: Any, inner: Inner) -> Scalar:
        if op == Op.TRIM and (node.expression or node.args.get("position")):
            raise refused(node)
        text = _text(inner(node.this), node)
        return Scalar(op, kind, (text,), required=text.required)

    return rule


def _substring(node: Any, inner: Inner) -> Scalar:
    start = whole_literal(node.args.get("start"), 1, node)
    length = whole_literal(node.args["length"], 0, node) if node.args.get("length") else 1 << 20
    text = _text(inner(node.this), node)
    return Scalar(Op.SUBSTRING, Kind.TEXT, (text,), (start, length), required=text.required)


def _left(node: Any, inner: Inner) -> Scalar:
    text = _text(inner(node.this), node)
    return Scalar(Op.SUBSTRING, Kind.TEXT, (text,), (1, whole_literal(node.expression, 0, node)), required=text.required)


def _concat(node: Any, inner: Inner) -> Scalar:
    """Of `||`, NULL where a part is; CONCAT leaves such parts out. Whole numbers are written in digits."""
    if isinstance(node, exp.DPipe):
        items = [_written(inner(part), node) for part in (node.this, node.expression)]
    else:
        items = [_or_empty(_written(inner(_bare(part)), node)) for part in node.expressions]
    return Scalar(Op.CONCAT, Kind.TEXT, tuple(items), required=all(item.required for item in items))


def _bare(part: Any) -> Any:
    """COALESCE(x, '') is how the parser says that CONCAT leaves x out."""
    empty = isinstance(part, exp.Coalesce) and len(part.expressions) == 1 and part.expressions[0] == exp.Literal.string("")
    return part.this if empty else part


def _written(value: Scalar, node: Node) -> Scalar:
    return Scalar(Op.TO_TEXT, Kind.TEXT, (value,)) if value.kind == Kind.INTEGER else _text(value, node)


def _or_empty(text: Scalar) -> Scalar:
    empty = Scalar(Op.LITERAL, Kind.TEXT, value="", required=True)
    return text if text.required else Scalar(Op.COALESCE, Kind.TEXT, (text, empty), required=True)


RULES: Rules = {
    exp.Like: _like, exp.ILike: _like, exp.Lower: _on_text(Op.LOWER, Kind.TEXT), exp.Upper: _on_text(Op.UPPER, Kind.TEXT),
    exp.Trim: _on_text(Op.TRIM, Kind.TEXT), exp.Length: _on_text(Op.LENGTH, Kind.INTEGER), exp.Substring: _substring,
    exp.Left: _left, exp.DPipe: _concat, exp.Concat: _concat,
}  # fmt: skip
