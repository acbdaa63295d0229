"""Rules for arithmetic and functions of numbers, and the bounds of what they make."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from sqlglot import exp

from discreet.errors import InvalidQuery
from discreet.query.operations import MOST_DIGITS, Kind, Op
from discreet.query.scalars.dates import moved_literal
from discreet.query.scalars.operands import (
    Inner,
    Node,
    Rule,
    Rules,
    finite,
    number,
    number_literal,
    refused,
    text_of,
    whole_literal,
)
from discreet.query.tree import Bounds, Scalar


def _arithmetic(op: Op) -> Rule:
    def rule(node: Any, inner: Inner) -> Scalar:
        return _of_numbers(op, inner(node.this), inner(node.expression), node)

    return rule


def _of_numbers(op: Op, left: Scalar, right: Scalar, node: Node) -> Scalar:
    left, right = number(left, node), number(right, node)
    bounds = _BOUNDS[op](left.bounds, right.bounds) if left.bounds and right.bounds else None
    total = op in (Op.ADD, Op.SUB, Op.MUL)
    return Scalar(op, Kind.NUMBER, (left, right), None, finite(bounds), required=total and left.required and right.required)


def _sum(node: Any, inner: Inner) -> Scalar:
    if isinstance(node.expression, exp.Interval):
        return moved_literal(1, inner(node.this), node)
    return _of_numbers(Op.ADD, inner(node.this), inner(node.expression), node)


def _difference(node: Any, inner: Inner) -> Scalar:
    """Of two numbers; of two dates, in days."""
    if isinstance(node.expression, exp.Interval):
        return moved_literal(-1, inner(node.this), node)
    left, right = inner(node.this), inner(node.expression)
    kinds = {left.kind, right.kind}
    if kinds == {Kind.DATE}:
        return Scalar(Op.DAYS, Kind.NUMBER, (right, left))
    if kinds <= {Kind.DATE, Kind.TIMESTAMP}:
        raise InvalidQuery(f"{text_of(node, 80)} is a span of time. Write DATE_DIFF('day', from, to) for whole days.")
    return _of_numbers(Op.SUB, left, right, node)


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


_BOUNDS: dict[Op, Callable[[Bounds, Bounds], Bounds | None]] = {
    Op.ADD: _corners(lambda a, b: a + b), Op.SUB: _corners(lambda a, b: a - b), Op.MUL: _corners(lambda a, b: a * b),
    Op.DIV: _quotient, Op.MOD: _remainder, Op.POWER: lambda one, two: None,
}  # fmt: skip


def _whole_division(node: Any, inner: Inner) -> Scalar:
    """The quotient without what follows its point, so that a = a // b * b + a % b."""
    quotient = _arithmetic(Op.DIV)(node, inner)
    size, sign = (Scalar(op, Kind.NUMBER, (quotient,)) for op in (Op.ABS, Op.SIGN))
    known = finite(quotient.bounds)
    bounds = (float(math.trunc(known[0])), float(math.trunc(known[1]))) if known else None
    return Scalar(Op.MUL, Kind.NUMBER, (sign, Scalar(Op.FLOOR, Kind.NUMBER, (size,))), None, bounds)


def _monotone(op: Op, operand: Scalar, f: Callable[[float], float]) -> Scalar:
    known = finite(operand.bounds)
    bounds = (float(f(known[0])), float(f(known[1]))) if known else None
    return Scalar(op, Kind.NUMBER, (operand,), None, bounds, required=operand.required)


def _rounded(node: Any, inner: Inner) -> Scalar:
    operand = number(inner(node.this), node)
    digits = whole_literal(node.args.get("decimals"), 0, node) if node.args.get("decimals") else 0
    if digits > MOST_DIGITS:
        raise InvalidQuery(f"ROUND takes at most {MOST_DIGITS} digits; got {digits}.")
    step = 10.0**-digits
    bounds = finite((operand.bounds[0] - step, operand.bounds[1] + step)) if operand.bounds else None
    return Scalar(Op.ROUND, Kind.NUMBER, (operand,), digits, bounds, required=operand.required)


def _function(op: Op) -> Rule:
    def rule(node: Any, inner: Inner) -> Scalar:
        operand = number(inner(node.this), node)
        if op in (Op.FLOOR, Op.CEIL):
            if node.args.get("decimals"):
                raise refused(node)
            return _monotone(op, operand, math.floor if op == Op.FLOOR else math.ceil)
        bounds = None
        if op == Op.ABS and operand.bounds:
            ends = [abs(end) for end in operand.bounds]
            bounds = (0.0 if operand.bounds[0] <= 0 <= operand.bounds[1] else min(ends), max(ends))
        if op == Op.SQRT and operand.bounds:
            bounds = finite((0.0, math.sqrt(max(operand.bounds[1], 0.0)) or 1.0))
        if op == Op.SIGN:
            bounds = (-1.0, 1.0)
        return Scalar(op, Kind.NUMBER, (operand,), None, bounds, required=op in (Op.ABS, Op.SIGN) and operand.required)

    return rule


def _negated(node: Any, inner: Inner) -> Scalar:
    operand = number(inner(node.this), node)
    if operand.op == Op.LITERAL:
        return number_literal(-operand.value)
    return Scalar(
        Op.NEG,
        Kind.NUMBER,
        (operand,),
        None,
        (-operand.bounds[1], -operand.bounds[0]) if operand.bounds else None,
        required=operand.required,
    )


def _logarithm(node: Any, inner: Inner) -> Scalar:
    if node.expression:  # log(base, x)
        base = number(inner(node.this), node)
        if base.op != Op.LITERAL or base.value not in (2, 10):
            raise InvalidQuery("LOG takes base 2 or 10 here. Write LN(x) / LN(base).")
        return Scalar(Op.LOG2 if base.value == 2 else Op.LOG10, Kind.NUMBER, (number(inner(node.expression), node),))
    return Scalar(Op.LOG10, Kind.NUMBER, (number(inner(node.this), node),))


def _extreme(op: Op) -> Rule:
    def rule(node: Any, inner: Inner) -> Scalar:
        """What is NULL is passed over, so that only the others move an end for sure: those of GREATEST the lower one."""
        items = [number(inner(item), node) for item in (node.this, *node.expressions)]
        lows, highs = zip(*(_ends(item) for item in items))
        sure = [_ends(item) for item in items if item.required]
        bounds = (min(lows), max(highs))
        if sure:
            low, high = zip(*sure)
            bounds = (max(low), max(highs)) if op == Op.GREATEST else (min(lows), min(high))
        return Scalar(op, Kind.NUMBER, tuple(items), None, bounds, required=bool(sure))

    return rule


def _ends(value: Scalar) -> Bounds:
    """One end may be known alone: LEAST(GREATEST(x, 0), 9)."""
    return value.bounds or (-math.inf, math.inf)


def bucket(node: Any, inner: Inner) -> Scalar:
    """BUCKET(x, n): the lower end of the one of n equal parts of x's bounds that x falls into; a public list."""
    operand = number(inner(node.expressions[0]), node)
    parts = whole_literal(node.expressions[1], 1, node)
    if not finite(operand.bounds) or operand.bounds is None or operand.bounds[0] == operand.bounds[1] or parts > 10_000:
        raise InvalidQuery(f"{text_of(node, 80)} needs bounds of what it divides, and at most 10,000 parts: "
                           "give bounds={'column': (low, high)}.")  # fmt: skip
    low, high = operand.bounds
    ends = tuple(low + (high - low) * i / parts for i in range(parts))
    return Scalar(Op.BUCKET, Kind.NUMBER, (operand,), ends, (low, high), ends, operand.required)


RULES: Rules = {
    exp.Neg: _negated, exp.Add: _sum, exp.Sub: _difference, exp.Mul: _arithmetic(Op.MUL), exp.Div: _arithmetic(Op.DIV),
    exp.Mod: _arithmetic(Op.MOD), exp.Pow: _arithmetic(Op.POWER), exp.IntDiv: _whole_division,
    exp.Abs: _function(Op.ABS), exp.Sqrt: _function(Op.SQRT), exp.Exp: _function(Op.EXP), exp.Ln: _function(Op.LN),
    exp.Log: _logarithm,
    exp.Floor: _function(Op.FLOOR), exp.Ceil: _function(Op.CEIL), exp.Sign: _function(Op.SIGN), exp.Round: _rounded,
    exp.Pi: lambda *_: number_literal(math.pi), exp.Greatest: _extreme(Op.GREATEST), exp.Least: _extreme(Op.LEAST),
}  # fmt: skip
