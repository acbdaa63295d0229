"""Calls of aggregate functions in SQL: what is aggregated, under which FILTER, at which rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from discreet.errors import InvalidQuery
from discreet.query.operations import Kind, Op
from discreet.query.relations import more_than_one
from discreet.query.scalars.expression import Scope, scalar
from discreet.query.scalars.operands import LONG, finite, number, number_literal, refused, text_of, truth
from discreet.query.tree import Join, Relation, Scalar, is_unit

MOST_TOGETHER = 16  # columns whose combinations are counted
_RANKED = (exp.Quantile, exp.PercentileCont, exp.PercentileDisc, exp.ApproxQuantile)


@dataclass(frozen=True, slots=True)
class Sources:
    """What the arguments of a call may name: columns in scope, the tables they come from, and the unit's key."""

    scope: Scope
    unit: str | None
    first: Relation
    joins: tuple[Join, ...] = ()

    def is_unit(self, column: Scalar) -> bool:
        """Whether a column is the unit's key, and not NULL for want of a match."""
        source, place = column.value
        if source == 0:
            return is_unit(self.first, place)
        return not self.joins[source - 1].keep and is_unit(self.joins[source - 1].relation, place)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an aggregate function, for `Statistic.read`. Nothing is checked until it is asked for."""

    name: str  # of the function, in capitals
    node: Any
    argument: Any  # the expression that is aggregated
    rank_node: Any
    filter: Any  # the condition of FILTER (WHERE …), or None
    sources: Sources
    second: Any = None  # the other expression, of functions of two

    @property
    def star(self) -> bool:
        return isinstance(self.argument, exp.Star)

    @property
    def distinct(self) -> bool:
        return isinstance(self.argument, exp.Distinct)

    def check_single(self) -> None:
        """Refuse more than one argument, and none."""
        if self.node.expressions or self.argument is None:
            raise InvalidQuery(f"{text_of(self.node)}: COUNT takes one expression.")

    def expression(self) -> Scalar:
        """The argument, of any kind but NULL."""
        value = scalar(self._kept(), self.sources.scope)
        if value.kind == Kind.NULL:
            raise InvalidQuery(f"{text_of(self.node)} is always 0. Leave it out.")
        return value

    def bounded(self) -> Scalar:
        """The argument as a number with bounds."""
        if self.rank_node is None and (
            self.argument is None
            or (not isinstance(self.node, exp.Anonymous) and more_than_one(self.node))
            or isinstance(self.argument, (exp.Distinct, exp.Order, exp.Star))
        ):
            raise InvalidQuery(f"{text_of(self.node)} is not known here; it takes one expression over the columns of a row.")
        kept = self._kept()
        value = number(scalar(kept, self.sources.scope), self.node)
        if finite(value.bounds) is None or value.bounds is None:
            asked, text = text_of(self.node, 60, "duckdb"), text_of(kept, LONG, "duckdb")
            text = text if len(text) < 80 else "…"
            raise InvalidQuery(
                f"{asked} needs bounds: without them one person could move it by any amount. Say them, "
                f"such as bounds={{'{kept.name or 'column'}': (0, 100)}}, or clip it: LEAST(GREATEST({text}, 0), 100)."
            )
        if value.bounds[0] == value.bounds[1]:
            raise InvalidQuery(f"{text_of(self.node)} is of a constant. Use COUNT(*).")
        return value

    def rows_where(self, condition: Any) -> Scalar:
        """1 where the condition and the FILTER hold, else NULL."""
        parts = [part for part in (condition, self.filter) if part is not None]
        both: Any = parts[0] if len(parts) == 1 else exp.and_(*(part.copy() for part in parts))
        holds = truth(scalar(both, self.sources.scope), parts[0])
        return Scalar(Op.CASE, Kind.INTEGER, (holds, number_literal(1), Scalar(Op.NULL, Kind.INTEGER)))

    def rank(self) -> float:
        """The rank of a quantile, written out."""
        return _rank(self.rank_node)

    def ranks(self) -> list[float] | None:
        """The ranks of a list of quantiles; None where one is asked for."""
        if self.filter is not None or not isinstance(self.rank_node, (exp.Array, exp.List)):
            return None
        return [_rank(item) for item in self.rank_node.expressions]

    def distinct_unit(self) -> bool:
        """Whether DISTINCT is of the unit's key, so that units are counted."""
        items = self.argument.expressions
        if len(items) != 1 or isinstance(items[0], exp.Tuple):
            return False
        value = scalar(items[0], self.sources.scope)
        return self.sources.unit is not None and self.filter is None and value.op == Op.COLUMN and self.sources.is_unit(value)

    def distinct_values(self) -> tuple[tuple[Scalar, ...], Scalar | None]:
        """What DISTINCT is of, and which rows count: of (a, b) all, as of a tuple in DuckDB; of a, b those without a NULL."""
        items = self.argument.expressions
        whole = len(items) == 1 and isinstance(items[0], exp.Tuple)
        items = items[0].expressions if whole else items
        if not items:
            raise InvalidQuery(f"{text_of(self.node)}: DISTINCT takes at least one column.")
        if len(items) > MOST_TOGETHER:
            raise InvalidQuery(f"{text_of(self.node)}: DISTINCT takes at most {MOST_TOGETHER} columns.")
        if len(items) == 1 and not whole:
            alone = (replace(self, argument=items[0]).expression(),)
            return alone, _known(alone)
        values = tuple(replace(self, argument=item, filter=None).expression() for item in items)
        held = None if self.filter is None else truth(scalar(self.filter, self.sources.scope), self.filter)
        parts = [part for part in (held, None if whole else _known(values)) if part is not None]
        return values, Scalar(Op.AND, Kind.BOOLEAN, tuple(parts)) if len(parts) == 2 else parts[0] if parts else None

    def bounded_pair(self) -> tuple[Scalar, Scalar]:
        """Both arguments as numbers with bounds."""
        first, second = (replace(self, node=exp.Sum(this=part), argument=part) for part in (self.argument, self.second))
        return first.bounded(), second.bounded()

    def _kept(self) -> Any:
        """The argument, NULL where the condition of a FILTER does not hold."""
        if self.filter is None or self.argument is None:
            return self.argument
        return exp.If(this=self.filter.copy(), true=self.argument.copy())


def read_call(node: Any, sources: Sources, condition: Any = None) -> Call | None:
    """The call of a function that a node is; None if it is none."""
    if isinstance(node, exp.Filter):
        if condition is not None:
            raise refused(node)
        return read_call(node.this, sources, node.expression.this)
    if isinstance(node, exp.WithinGroup) and isinstance(node.this, _RANKED) and isinstance(node.expression, exp.Order):
        ordered = node.expression.expressions
        if len(ordered) != 1 or ordered[0].args.get("desc"):
            raise InvalidQuery("WITHIN GROUP takes one rising order: (ORDER BY x).")
        return Call(_name(node.this), node, ordered[0].this, node.this.this, condition, sources)
    if isinstance(node, _RANKED):
        if any(part for name, part in node.args.items() if name not in ("this", "quantile", "expression")):
            raise refused(node)
        rank = node.args.get("quantile") or node.args.get("expression")
        return Call(_name(node), node, node.this, rank, condition, sources)
    if not isinstance(node, exp.Func):
        return None
    if isinstance(node, exp.Anonymous):
        argument = node.expressions[0] if len(node.expressions) == 1 else None
        return Call(node.name.upper(), node, argument, None, condition, sources)
    return Call(_name(node), node, node.args.get("this"), None, condition, sources, node.args.get("expression"))


def _known(values: tuple[Scalar, ...]) -> Scalar:
    """Whether none of them is NULL."""
    parts = tuple(Scalar(Op.NOT, Kind.BOOLEAN, (Scalar(Op.IS_NULL, Kind.BOOLEAN, (value,)),)) for value in values)
    return parts[0] if len(parts) == 1 else Scalar(Op.AND, Kind.BOOLEAN, parts)


def _name(node: exp.Func) -> str:
    return type(node).sql_names()[0]


def _rank(node: Any) -> float:
    if isinstance(node, exp.Literal) and not node.is_string:
        try:
            value = float(node.this)
        except ValueError:
            raise refused(node) from None
        if 0 < value < 1:
            return value
    raise InvalidQuery("The rank of a quantile is a number above 0 and below 1, written out; for the ends ask MIN and MAX.")
