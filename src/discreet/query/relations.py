"""Rows: from FROM, JOIN, sub-queries and CTEs to relations in which every row belongs to one unit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from discreet.errors import InvalidQuery
from discreet.query.groups import grouping
from discreet.query.operations import Kind, Op
from discreet.query.scalars.expression import Scope, given_name, scalar, spelled
from discreet.query.scalars.operands import alike, number, refused, text_of, truth
from discreet.query.tree import Base, Field, Join, Relation, Scalar, Select, Union, is_unit

MOST_INPUTS = 16
DEEPEST = 32


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The tables that may be asked, by name, and which column says whose row it is (None: each row is a unit).

    `refused` says of the others why they may not be asked. With `exact`, names that differ in case only are two names. `places`
    has the database and schema of each table.
    """

    tables: Mapping[str, Base]
    key: str | None
    views: Mapping[str, Relation] = field(default_factory=dict)
    depth: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)
    exact: bool = False
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def same(self, one: str, two: str) -> bool:
        """Whether two names are one."""
        return one == two if self.exact else one.lower() == two.lower()

    def find(self, node: exp.Table) -> Relation:
        if not isinstance(node.this, exp.Identifier):
            raise InvalidQuery(f"{text_of(node, 80)} is not a table of this source. Functions and files cannot stand in FROM.")
        if any(part for name, part in node.args.items() if name not in ("this", "alias", "db", "catalog", "joins")):
            raise InvalidQuery(f"{text_of(node, 80)} asks more of a table than its rows. Leave the rest out.")
        path = [spelled(node.args.get(part), self.exact) for part in ("catalog", "db", "this") if node.args.get(part)]
        views = list(self.views.items()) if len(path) == 1 else []
        for known, found in [*views, *self.tables.items()]:
            if self._named(known, path):
                return found
        for known, reason in self.refused.items():
            if self._named(known, path):
                raise InvalidQuery(reason)
        there = ", ".join([*self.tables, *self.views]) or "none"
        raise InvalidQuery(f"There is no table {'.'.join(path)[:80]}; there are {there}.")

    def _named(self, known: str, path: list[str]) -> bool:
        """Whether a path is that of a table: its name, as much of database and schema before it as is written, or a name that
        has dots itself."""
        whole = (*self.places.get(known, ()), known.split(".")[-1] if known in self.places else known)
        dotted = self.same(known, ".".join(path))
        if len(path) == 1 or dotted:
            return dotted
        return len(path) <= len(whole) and all(self.same(one, two) for one, two in zip(path, whole[-len(path) :]))

    def inside(self) -> Catalogue:
        if self.depth >= DEEPEST:
            raise InvalidQuery(f"Sub-queries are nested more than {DEEPEST} deep. Write the query flatter.")
        return replace(self, depth=self.depth + 1)

    def with_views(self, node: Any) -> Catalogue:
        """The catalogue, with the CTEs of a query."""
        clause = node.args.get("with_") or node.args.get("with")
        if clause is None:
            return self
        if clause.args.get("recursive"):
            raise InvalidQuery("WITH RECURSIVE is not among what private SQL may run. Write the steps out.")
        known = self
        for cte in clause.expressions:
            if cte.args["alias"].args.get("columns"):
                raise InvalidQuery("Name the columns of a CTE inside it, with AS.")
            views = {**known.views, spelled(cte.args["alias"].this, self.exact): relation(cte.this, known.inside())}
            known = replace(self, views=views)
        return known


_KNOWN_PARTS = {"expressions", "from", "from_", "joins", "where", "group", "having", "order", "limit", "with", "with_", "kind",
                "operation_modifiers"}  # fmt: skip


_DISTINCT = (
    "To count different rows, write COUNT(DISTINCT (a, b)) outside; for those of each unit, GROUP BY the unit key and these "
    "columns."
)


def plain(node: Any, more: tuple[str, ...] = ()) -> None:
    """Refuse every part of a SELECT that is not understood here."""
    if not isinstance(node, exp.Select):
        raise InvalidQuery(f"Private SQL answers one SELECT; got {type(node).__name__.upper()}: {text_of(node)}.")
    for name, part in node.args.items():
        if part and name not in _KNOWN_PARTS and name not in more:
            hint = _DISTINCT if name == "distinct" else "Leave it out."
            raise InvalidQuery(f"{name.upper()} in a SELECT is not among what private SQL may run. {hint}")


def sources(node: Any, catalogue: Catalogue) -> tuple[Relation, tuple[Join, ...], Scope]:
    """What stands in FROM and JOIN."""
    clause = node.args.get("from_") or node.args.get("from")
    if clause is None:
        raise InvalidQuery("The query has no FROM, so it asks nothing of the data.")
    start, inner = _opened(clause.this)
    alias, first = _source(start, catalogue)
    scope = Scope(((alias, first.names, first.fields),), catalogue.exact)
    joins: list[Join] = []
    for join in [*inner, *(node.args.get("joins") or ())]:
        joined, scope = _join(join, scope, [first, *(before.relation for before in joins)], catalogue)
        joins.append(joined)
    if len(joins) >= MOST_INPUTS:
        raise InvalidQuery(f"A query may join at most {MOST_INPUTS} tables.")
    return first, tuple(joins), scope


def _unwrapped(node: Any) -> Any:
    """((a)) AS x is (a) AS x."""
    while isinstance(node, exp.Subquery) and isinstance(node.this, exp.Subquery) and node.this.args.get("alias") is None \
            and not any(part for name, part in node.args.items() if name not in ("this", "alias")) \
            and not any(part for name, part in node.this.args.items() if name != "this"):  # fmt: skip
        alias, node = node.args.get("alias"), node.this.copy()
        node.set("alias", alias)
    return node


def _source(node: Any, catalogue: Catalogue) -> tuple[str, Relation]:
    node = _unwrapped(node)
    if isinstance(node, exp.Table):
        alias = node.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            raise InvalidQuery("Name columns with AS inside a sub-query, not in the alias of a table.")
        named = node.this if alias is None else alias.this
        return given_name(named, catalogue.exact, node.alias_or_name), catalogue.find(node)
    if isinstance(node, exp.Subquery) and not any(node.args.get(name) for name in node.args if name not in ("this", "alias")):
        alias = node.args.get("alias")
        named = None if alias is None else alias.this
        if isinstance(node.this, exp.Table):
            return _in_parentheses(node.this, named, catalogue)
        return given_name(named, catalogue.exact, f"sub{catalogue.depth}"), relation(node.this, catalogue.inside())
    raise InvalidQuery(f"{text_of(node, 80)} cannot stand in FROM. Use a table of this source, a CTE or a sub-query.")


def _opened(node: Any) -> tuple[Any, list[Any]]:
    """FROM (a JOIN b …) is FROM a JOIN b …: the names of a and b can be used outside."""
    inner: list[Any] = []
    node = _unwrapped(node)
    while isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table) and node.args.get("alias") is None \
            and not any(node.args.get(name) for name in node.args if name != "this"):  # fmt: skip
        inner = [*(node.this.args.get("joins") or ()), *inner]
        node = node.this.copy()
        node.set("joins", None)
    return node, inner


def _in_parentheses(node: Any, named: Any, catalogue: Catalogue) -> tuple[str, Relation]:
    """(a) AS x is a AS x, and (a JOIN b USING (k)) AS x is (SELECT * FROM a JOIN b USING (k)) AS x."""
    joins = node.args.get("joins")
    if not joins:
        alias, found = _source(node, catalogue)
        return given_name(named, catalogue.exact, alias), found
    table = node.copy()
    table.set("joins", None)
    inner = exp.Select(expressions=[exp.Star()], from_=exp.From(this=table), joins=[join.copy() for join in joins])
    return given_name(named, catalogue.exact, f"sub{catalogue.depth}"), relation(inner, catalogue.inside())


def _join(node: Any, scope: Scope, before: list[Relation], catalogue: Catalogue) -> tuple[Join, Scope]:
    side, kind, method = (str(node.args.get(name) or "").upper() for name in ("side", "kind", "method"))
    if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER") or method:
        raise InvalidQuery(
            f"{side or kind or method} JOIN is not among what private SQL may run. Use JOIN or LEFT JOIN with ON."
        )
    alias, joined = _source(node.this, catalogue)
    if scope.known(alias) in {scope.known(source[0]) for source in scope.inputs}:
        raise InvalidQuery(f"{alias} stands twice in FROM. Give one of them another name with AS.")
    if joined.private and not before[0].private:
        raise InvalidQuery(f"Put the private table first: FROM {alias} JOIN {scope.inputs[0][0]} ON …")
    fields = (
        tuple(replace(field, required=False) for field in joined.fields) if side == "LEFT" else joined.fields
    )  # none may match
    wider = Scope((*scope.inputs, (alias, joined.names, fields)), scope.exact, scope.merged)
    on = _condition(node, wider, len(before))
    wider = replace(wider, merged=scope.merged | _merged(node, wider, len(before)))
    if joined.private:
        on = _same_unit(on, before, joined, catalogue, alias)
    return Join(joined, on, side == "LEFT"), wider


def _condition(node: Any, scope: Scope, place: int) -> Scalar:
    using = node.args.get("using")
    if using:
        return _all([_equal_by_name(name, scope, place) for name in using])
    if node.args.get("on") is None:
        asked = text_of(node, 80).lstrip(", ")
        raise InvalidQuery(f"{asked} has no ON, so it pairs every row with every row. Say on what: ON a.key = b.key.")
    return truth(scalar(node.args["on"], scope), node)


def _merged(node: Any, scope: Scope, place: int) -> set[tuple[int, int]]:
    """The columns of a USING on the right: the name alone means the left one."""
    names = {scope.spelled(name.this if isinstance(name, exp.Column) else name) for name in node.args.get("using") or ()}
    return {(place, i) for i, name in enumerate(scope.inputs[place][1]) if scope.known(name) in names}


def _equal_by_name(name: Any, scope: Scope, place: int) -> Scalar:
    named = exp.Column(this=(name.this if isinstance(name, exp.Column) else name).copy())
    left = Scope(scope.inputs[:place], scope.exact, scope.merged).column(named)
    right = Scope(scope.inputs[place:], scope.exact).column(named)
    right = Scalar(Op.COLUMN, right.kind, (), (place, right.value[1]), right.bounds, right.values, right.required)
    return Scalar(Op.EQ, Kind.BOOLEAN, alike(left, right, named))


def _same_unit(on: Scalar, before: list[Relation], joined: Relation, catalogue: Catalogue, alias: str) -> Scalar:
    """Private tables may only be joined person by person."""
    if catalogue.key is None:
        raise InvalidQuery(
            "Two private tables can be joined only where the unit has a key: connect(…, unit=user('key', rows=…))."
        )
    place = len(before)
    parts = on.args if on.op == Op.AND else (on,)
    for part in parts:
        if part.op == Op.EQ and part.args[0].kind != part.args[1].kind:
            kinds = " with ".join(arg.kind for arg in part.args)
            raise InvalidQuery(f"{alias} is joined on a column that compares {kinds}, which is not exact. CAST one of them.")
    for part in parts:
        if part.op == Op.EQ and all(arg.op == Op.COLUMN for arg in part.args):
            ends = {arg.value[0]: arg.value[1] for arg in part.args}
            others = [i for i in ends if i != place]
            if place in ends and len(others) == 1 and is_unit(before[others[0]], ends[others[0]]) \
                    and is_unit(joined, ends[place]):  # fmt: skip
                return _all([on, Scalar(Op.SAME_UNIT, Kind.BOOLEAN, value=(0, place))])
    raise InvalidQuery(
        f"{alias} is private, and is not joined on the unit key. Add it: ON … AND a.{catalogue.key} = {alias}.{catalogue.key}."
    )


def _all(parts: list[Scalar]) -> Scalar:
    return parts[0] if len(parts) == 1 else Scalar(Op.AND, Kind.BOOLEAN, tuple(parts))


def relation(node: Any, catalogue: Catalogue) -> Relation:
    """A sub-query, whose rows each belong to one unit."""
    if isinstance(node, exp.Subquery):
        node = node.unnest()
    if isinstance(node, exp.Union):
        return _union(node, catalogue)
    plain(node)
    for name, hint in (("having", "Filter outside it, or with WHERE."), ("order", "Order the answer, not a sub-query."),
                       ("limit", "Limit the answer, not a sub-query.")):  # fmt: skip
        if node.args.get(name):
            raise InvalidQuery(f"{name.upper()} in a sub-query lets one person's rows decide about another's. {hint}")
    known = catalogue.with_views(node)
    first, joins, scope = sources(node, known)
    where = where_of(node, scope)
    items = [_named(item, i, known.exact) for i, item in enumerate(_expanded(node.expressions, scope))]
    names = tuple(name for name, _ in items)
    if len({name if known.exact else name.lower() for name in names}) != len(names):
        raise InvalidQuery(f"Two columns of a sub-query have one name ({', '.join(names)[:80]}). Tell them apart with AS.")
    if node.args.get("group") is None:
        outputs = tuple(_owned(scalar(item, scope), item) for _, item in items)
        return Select(first, joins, where, names, outputs, first.private)
    return _grouped(node, first, joins, where, items, scope, known)


def _owned(value: Scalar, node: Any) -> Scalar:
    if value.kind == Kind.NULL:
        raise InvalidQuery(f"{text_of(node)} is always NULL. Leave it out.")
    return value


def where_of(node: Any, scope: Scope) -> Scalar | None:
    clause = node.args.get("where")
    return None if clause is None else truth(scalar(clause.this, scope), clause)


def _expanded(items: list[Any], scope: Scope) -> list[Any]:
    """The columns that a star stands for."""
    expanded: list[Any] = []
    for item in items:
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            if any(item.args.get(name) for name in ("except", "except_", "replace", "rename")):
                raise refused(item)
            wanted = scope.spelled(item.args.get("table")) if isinstance(item, exp.Column) and item.table else ""
            for place, (alias, names, _) in enumerate(scope.inputs):
                if not wanted or scope.known(alias) == wanted:
                    expanded += [exp.column(name, table=alias, quoted=True) for i, name in enumerate(names)
                                 if wanted or (place, i) not in scope.merged]  # fmt: skip
        else:
            expanded.append(item)
    return expanded


def _named(item: Any, place: int, exact: bool) -> tuple[str, Any]:
    if isinstance(item, exp.Alias):
        return given_name(item.args["alias"], exact, item.alias), item.this
    return (given_name(item.this, exact, item.name) if isinstance(item, exp.Column) else f"column{place}"), item


_GATHER = {exp.Sum: Op.SUM_OF, exp.Avg: Op.AVG_OF, exp.Min: Op.MIN_OF, exp.Max: Op.MAX_OF, exp.Count: Op.COUNT_OF}


def _grouped(
    node: Any, first: Relation, joins: tuple[Join, ...], where: Scalar | None, items: list[tuple[str, Any]], scope: Scope,
    catalogue: Catalogue,
) -> Select:  # fmt: skip
    """One row per unit (and further keys): what is gathered is one person's own."""
    if not first.private:
        raise InvalidQuery("GROUP BY over public tables alone is not known here. Prepare the public table beforehand.")
    groups = grouping(node, [item for _, item in items], scope)
    if groups.sets is not None:
        raise InvalidQuery("ROLLUP, CUBE and GROUPING SETS stand in the outermost SELECT, not in a sub-query.")
    keys = [scalar(key, scope) for key in groups.keys]
    if not any(key.op == Op.COLUMN and is_unit_column(key, first, joins, catalogue) for key in keys):
        raise InvalidQuery("A sub-query that groups must keep the unit: GROUP BY "
                           f"{catalogue.key or 'the unit key (this source has none)'}, …. To choose among groups of the "
                           "answer, write HAVING.")  # fmt: skip
    outputs = tuple(_gathered(item, scope, keys) for _, item in items)
    return Select(first, joins, where, tuple(name for name, _ in items), outputs, True, tuple(keys))


def is_unit_column(value: Scalar, first: Relation, joins: tuple[Join, ...], catalogue: Catalogue) -> bool:
    if catalogue.key is None:
        return False
    table = [first, *(join.relation for join in joins)][value.value[0]]
    place = value.value[0]
    return is_unit(table, value.value[1]) and not (place and joins[place - 1].keep)


def more_than_one(node: Any) -> bool:
    """Whether a function was given more than its one argument: MIN(x, 3) is not MIN(x)."""
    return any(part for name, part in node.args.items() if name not in ("this", "big_int"))


def _gathered(node: Any, scope: Scope, keys: list[Scalar]) -> Scalar:
    op = _GATHER.get(type(node))
    if op is None:
        value = scalar(node, scope)
        if value not in keys:
            raise InvalidQuery(f"{text_of(node)} is neither in GROUP BY nor gathered with SUM, AVG, MIN, MAX or COUNT.")
        return value
    if more_than_one(node):
        raise InvalidQuery(f"{text_of(node)} is not known here; it takes one expression over the columns of a row.")
    if isinstance(node.this, exp.Star):
        return Scalar(Op.COUNT_OF, Kind.INTEGER, (), bounds=(0.0, math.inf), required=True)
    if isinstance(node.this, exp.Distinct):
        raise InvalidQuery("COUNT(DISTINCT …) inside a sub-query is not known here. Group by the column as well.")
    value = _owned(scalar(node.this, scope), node)
    if op == Op.COUNT_OF:
        return Scalar(op, Kind.INTEGER, (value,), bounds=(0.0, math.inf), required=True)
    value = number(value, node)
    return Scalar(op, Kind.NUMBER, (value,), None, value.bounds if op != Op.SUM_OF else None)


def _union(node: Any, catalogue: Catalogue) -> Union:
    if (
        type(node) is not exp.Union
        or node.args.get("distinct")
        or any(node.args.get(name) for name in ("by_name", "side", "on", "order", "limit"))
    ):
        raise InvalidQuery(
            "Of set operations only UNION ALL is known here: the others compare one person's rows with another's."
        )
    known = catalogue.with_views(node)
    parts: list[Relation] = []
    for side in (node.left, node.right):
        part = relation(side, known.inside())
        parts += part.parts if isinstance(part, Union) else [part]
    shapes = {(len(part.names), tuple(_sort(field) for field in part.fields), part.private) for part in parts}
    if len(shapes) != 1:
        raise InvalidQuery("The parts of a UNION ALL must have as many columns of the same types, all private or all public.")
    if catalogue.key and len({tuple(is_unit(part, i) for i in range(len(part.names))) for part in parts}) != 1:
        raise InvalidQuery("The unit key must be the same column in every part of a UNION ALL.")
    return Union(tuple(parts))


def _sort(field: Field) -> str:
    return Kind.NUMBER if field.kind == Kind.INTEGER else field.kind
