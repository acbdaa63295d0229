"""Parsing an expression over one row: columns in scope, literals, and a rule for every other node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from discreet.errors import InvalidQuery
from discreet.query.operations import Kind, Op
from discreet.query.scalars import casts, conditions, dates, numbers, texts
from discreet.query.scalars.operands import LONG, Inner, Node, Rules, number_literal, refused, text_of
from discreet.query.tree import Field, Scalar

DEEPEST = 200  # operations inside one another


def spelled(identifier: Any, exact: bool) -> str:
    """A name as it is looked up: in lower case, or as it stands in quotes where names are `exact`."""
    if not isinstance(identifier, exp.Identifier):
        return ""
    return identifier.name if exact and identifier.quoted else identifier.name.lower()


def given_name(identifier: Any, exact: bool, otherwise: str = "") -> str:
    """A name that a query gives to a table or column, as it is kept."""
    if not isinstance(identifier, exp.Identifier):
        return otherwise
    return spelled(identifier, exact) if exact else identifier.name


@dataclass(frozen=True, slots=True)
class Scope:
    """The columns in scope, by input: (alias, names, fields). With `exact`, names that differ in case only are two names.

    Those in `merged`, (input, place), are columns of a USING: without a table, their name means the other one.
    """

    inputs: tuple[tuple[str, tuple[str, ...], tuple[Field, ...]], ...]
    exact: bool = False
    merged: frozenset[tuple[int, int]] = frozenset()

    def spelled(self, identifier: Any) -> str:
        """A name in the query, as it is looked up."""
        return spelled(identifier, self.exact)

    def known(self, name: str) -> str:
        """A name of a table or column, as it is looked up."""
        return name if self.exact else name.lower()

    def has(self, node: exp.Column) -> bool:
        """Whether some input has a column of this name."""
        return any(self.spelled(node.this) == self.known(name) for _, names, _ in self.inputs for name in names)

    def column(self, node: exp.Column) -> Scalar:
        if node.args.get("db") or node.args.get("catalog"):
            raise InvalidQuery(f"{text_of(node, LONG)} names a database. Write the column alone, or table.column.")
        table, name = self.spelled(node.args.get("table")), self.spelled(node.this)
        hits = [
            (i, names.index(hit), fields[names.index(hit)])
            for i, (alias, names, fields) in enumerate(self.inputs)
            if not table or self.known(alias) == table
            for hit in names
            if self.known(hit) == name and (table or (i, names.index(hit)) not in self.merged)
        ]
        if len(hits) == 1:
            i, place, field = hits[0]
            return Scalar(Op.COLUMN, field.kind, (), (i, place), field.bounds, field.values, field.required)
        if hits:
            raise InvalidQuery(
                f"{text_of(node, LONG)} is in more than one of {', '.join(alias for alias, _, _ in self.inputs)}. "
                f"Say which: table.{node.name}."
            )
        there = [f"{alias}.{column}" if len(self.inputs) > 1 else column for alias, names, _ in self.inputs for column in names]
        raise InvalidQuery(f"There is no column {text_of(node, LONG)}; there are {', '.join(there[:20]) or 'none'}"
                           f"{' and more' if len(there) > 20 else ''}.")  # fmt: skip


def scalar(node: Node, scope: Scope, depth: int = 0) -> Scalar:
    """The meaning of an expression over one row."""
    if depth > DEEPEST:
        raise InvalidQuery(f"The query is nested more than {DEEPEST} deep. Write it flatter.")
    if not isinstance(node, Node):
        raise InvalidQuery("A function lacks an argument.")
    if any(part and name not in _PARTS_READ for name, part in node.args.items()):
        raise refused(node)
    if type(node) is exp.Column:  # what looks like one, such as a pseudo-column, is none
        return scope.column(node)
    rule = _RULES.get(type(node))
    if rule is None:
        raise refused(node)
    return rule(node, lambda inner: scalar(inner, scope, depth + 1))


def has_rule(node: Node) -> bool:
    """Whether a function is among those of one row."""
    return node.name.lower() in _NAMED if isinstance(node, exp.Anonymous) else type(node) in _RULES


_PARTS_READ = {
    "this", "expression", "expressions", "is_string", "table", "db", "catalog", "decimals", "low", "high", "negate", "to",
    "safe", "coalesce", "ignore_nulls", "ifs", "default", "true", "false", "start", "length", "unit", "position", "query",
    "unnest", "field", "date_part_boundary",
}  # fmt: skip
"""What the rules look at; an option they would pass over (BETWEEN SYMMETRIC) is refused."""


def _literal(node: Any, inner: Inner) -> Scalar:
    if node.is_string:
        return Scalar(Op.LITERAL, Kind.TEXT, value=node.this, required=True)
    try:
        value = int(node.this) if node.this.isdecimal() else float(node.this)
    except ValueError:
        raise refused(node) from None
    if not abs(value) < 1e15:
        raise InvalidQuery(f"{node.this[:30]} is too large for a number here; the most is 1e15.")
    return number_literal(value)


def _boolean(node: Any, inner: Inner) -> Scalar:
    return Scalar(Op.LITERAL, Kind.BOOLEAN, value=bool(node.this), required=True)


_NAMED = ("bucket", "date_part", "datepart")


def _named(node: Any, inner: Inner) -> Scalar:
    """Functions that sqlglot has no type for."""
    name, items = node.name.lower(), node.expressions
    if name not in _NAMED or len(items) != 2:
        raise refused(node)
    if name != "bucket":
        if not items[0].is_string:
            raise refused(node)
        return dates.part_of(items[0].name, inner(items[1]), node)
    return numbers.bucket(node, inner)


_RULES: Rules = {
    exp.Literal: _literal, exp.Boolean: _boolean, exp.Null: lambda *_: Scalar(Op.NULL, Kind.NULL),
    exp.Paren: lambda node, inner: inner(node.this), exp.Anonymous: _named,
    **numbers.RULES, **conditions.RULES, **texts.RULES, **dates.RULES, **casts.RULES,
}  # fmt: skip
