"""The syntax tree of a query after parsing: all that an engine ever sees of it.

No text of the query reaches an engine. Names are resolved to positions, literals are values, and every
operation is one of a closed table that each engine writes in its own words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.query.operations import Kind, Op, OutputOp

if TYPE_CHECKING:
    from discreet.query.statistics import Statistic

Bounds = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Field:
    """One column: what it holds, and what is publicly known of it."""

    kind: Kind
    bounds: Bounds | None = None  # values outside are moved to the nearer bound when they are added up
    values: tuple[Any, ...] | None = None  # the public list of its values
    required: bool = False  # never NULL; a NULL that is there all the same counts as the middle of the bounds
    stored: Kind | None = None  # what the engine stores, where the schema declares another type
    compared: str = ""  # of the unit's key: the rule by which it is compared in all tables


@dataclass(frozen=True, slots=True)
class Scalar:
    """An expression over one row."""

    op: Op
    kind: Kind
    args: tuple[Scalar, ...] = ()
    value: Any = None  # of a literal; (input, position) of a column; an option of an operation
    bounds: Bounds | None = None
    values: tuple[Any, ...] | None = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Base:
    """A table of the source; `unit` is the position of the column that says whose row it is.

    `most` is how often a unit's record is in it, where its owner declared that of a derived table; `unique` are the columns
    on which a public table was declared, and found, to have no two rows alike, or no more than `repeats`.
    """

    table: str
    names: tuple[str, ...]
    fields: tuple[Field, ...]
    private: bool
    unit: int | None = None
    most: int = 0
    unique: tuple[int, ...] = ()
    repeats: int = 1


@dataclass(frozen=True, slots=True)
class Join:
    """One more input of a Select, the condition over all inputs so far, and whether rows without a match stay."""

    relation: Relation
    on: Scalar
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Select:
    """Rows made of other rows, each of one unit; grouped, one row per unit and group.

    Inputs are numbered in order: the first, then those joined. Among `outputs`, the ops sum_of, count_of, avg_of, min_of
    and max_of occur only if `grouped`; they gather rows of one unit.
    """

    first: Relation
    joins: tuple[Join, ...]
    where: Scalar | None
    names: tuple[str, ...]
    outputs: tuple[Scalar, ...]
    private: bool
    grouped: tuple[Scalar, ...] | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(Field(output.kind, output.bounds, output.values, output.required) for output in self.outputs)


@dataclass(frozen=True, slots=True)
class Union:
    """The rows of several relations of the same shape, one after another."""

    parts: tuple[Relation, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return self.parts[0].names

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(_both(fields) for fields in zip(*(part.fields for part in self.parts), strict=True))

    @property
    def private(self) -> bool:
        return self.parts[0].private


Relation = Base | Select | Union


def bases(relation: Relation) -> list[Base]:
    """The tables that a relation is made of, with those that are there twice."""
    if isinstance(relation, Base):
        return [relation]
    if isinstance(relation, Union):
        return [base for part in relation.parts for base in bases(part)]
    return [base for part in (relation.first, *(join.relation for join in relation.joins)) for base in bases(part)]


def copies(relation: Relation) -> int | None:
    """In how many rows of the relation one record can be, where a record is the unit; None where there is no bound.

    A record is in one of the base tables, so the largest of their numbers counts; derived tables it may be in all at once.
    """
    rows = _rows_by_table(relation)
    if rows is None:
        return None
    most = {base.table: base.most for base in bases(relation)}
    alone = max((count for table, count in rows.items() if not most[table]), default=0)
    return alone + sum(count * most[table] for table, count in rows.items())


def _rows_by_table(relation: Relation) -> dict[str, int] | None:
    """How many rows of the relation one row of each table may give; None where rows are gathered, or join without a bound."""
    if isinstance(relation, Base):
        return {relation.table: 1}
    if isinstance(relation, Select):
        times = 1
        for place, join in enumerate(relation.joins, 1):
            times *= _matches(join, place)
        found = _rows_by_table(relation.first)
        if found is None or not times or relation.grouped is not None:
            return None
        return {table: count * times for table, count in found.items()}
    parts = [_rows_by_table(part) for part in relation.parts]
    if None in parts:
        return None
    added: dict[str, int] = {}
    for part in parts:
        for table, count in (part or {}).items():
            added[table] = added.get(table, 0) + count
    return added


def _matches(join: Join, place: int) -> int:
    """How many rows of a public table a row finds at most: each column on which that is unique equals a value of the row. 0
    where there is no bound."""
    base = join.relation
    if not isinstance(base, Base) or base.private or not base.unique:
        return 0
    equal = set()
    for part in join.on.args if join.on.op == Op.AND else (join.on,):
        if part.op == Op.EQ and part.args[0].kind == part.args[1].kind:
            for one, other in (part.args, part.args[::-1]):
                if one.op == Op.COLUMN and one.value[0] == place and not _mentions(other, place):
                    equal.add(one.value[1])
    return base.repeats if equal >= set(base.unique) else 0


def _mentions(value: Scalar, place: int) -> bool:
    return (value.op == Op.COLUMN and value.value[0] == place) or any(_mentions(arg, place) for arg in value.args)


def is_unit(relation: Relation, place: int) -> bool:
    """Whether a column is the unit's key: by where it comes from, whatever it is called."""
    if isinstance(relation, Base):
        return relation.private and relation.unit == place
    if isinstance(relation, Union):
        return all(is_unit(part, place) for part in relation.parts)
    output = relation.outputs[place]
    if output.op != Op.COLUMN:
        return False
    source, column = output.value
    if source and relation.joins[source - 1].keep:
        return False  # NULL where nothing matched
    return is_unit(relation.joins[source - 1].relation if source else relation.first, column)


def preserves(relation: Relation, name: str) -> bool:
    """Whether each row of the table `name` gives at most one row of this relation, and nothing else does."""
    if isinstance(relation, Base):
        return relation.table == name
    if isinstance(relation, Select):
        return not relation.joins and relation.grouped is None and preserves(relation.first, name)
    return False


@dataclass(frozen=True, slots=True)
class Output:
    """An expression over a released row: keys, noisy statistics, literals. It costs nothing."""

    op: OutputOp | Op
    args: tuple[Output, ...] = ()
    value: Any = None  # of a literal; the position of a key or of a statistic; the keys of a total; an option of an operation
    kind: Kind = Kind.NUMBER

    def statistics(self) -> set[int]:
        """The positions of the statistics in it."""
        return {self.value} if self.op == OutputOp.STATISTIC else set[int]().union(*(part.statistics() for part in self.args))

    def totals(self) -> bool:
        """Whether a total over rows is in it."""
        return self.op == OutputOp.TOTAL or any(part.totals() for part in self.args)


@dataclass(frozen=True, slots=True)
class Listed:
    """A public list of tuples: the values of the keys at some `places`, row by row."""

    places: tuple[int, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A whole query: rows, group keys, statistics, and what is made of them after the noise.

    `sets` are the places of the keys of each grouping set, among the keys that are written out; None: one set, of all of them.
    Of a question about one set, `keys` are those of the set.
    """

    rows: Select
    keys: tuple[Scalar, ...]
    aggregates: tuple[Statistic, ...]
    names: tuple[str, ...]
    outputs: tuple[Output, ...]
    having: Output | None = None
    order: tuple[tuple[Output, bool], ...] = ()  # and whether it falls
    limit: int | None = None
    skipped: int = 0  # rows of the answer before the first that is given
    listed: tuple[Listed, ...] = ()
    sets: tuple[tuple[int, ...], ...] | None = None

    def only_later(self) -> list[int]:
        """The positions of the statistics that HAVING or ORDER BY need and no column of the answer has."""
        later = [*([] if self.having is None else [self.having]), *(output for output, _ in self.order)]
        shown = set[int]().union(*(output.statistics() for output in self.outputs))
        return sorted(set[int]().union(*(output.statistics() for output in later)) - shown)


def _both(fields: tuple[Field, ...]) -> Field:
    bounds = [field.bounds for field in fields if field.bounds is not None]
    whole = len(bounds) == len(fields)
    kind = fields[0].kind if all(field.kind == fields[0].kind for field in fields) else Kind.NUMBER
    return Field(
        kind,
        (min(low for low, _ in bounds), max(high for _, high in bounds)) if whole else None,
        _all_values(fields) if kind == fields[0].kind else None,
        all(field.required for field in fields),
    )


def _all_values(fields: tuple[Field, ...]) -> tuple[Any, ...] | None:
    """The public values of all parts together, if all have some."""
    lists = [field.values for field in fields if field.values is not None]
    return tuple(dict.fromkeys(value for values in lists for value in values)) if len(lists) == len(fields) else None
