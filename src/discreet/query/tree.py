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
    """A table of the source; `unit` is the position of the column that says whose row it is."""

    table: str
    names: tuple[str, ...]
    fields: tuple[Field, ...]
    private: bool
    unit: int | None = None


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


def single(relation: Relation) -> bool:
    """Whether no row of a table can be in two rows of the relation."""
    tables = _tables(relation)
    return tables is not None and len(set(tables)) == len(tables)


def _tables(relation: Relation) -> list[str] | None:
    """The tables whose rows go through one by one; None where rows are joined or gathered."""
    if isinstance(relation, Base):
        return [relation.table]
    if isinstance(relation, Select):
        return None if relation.joins or relation.grouped is not None else _tables(relation.first)
    parts = [_tables(part) for part in relation.parts]
    return None if None in parts else [table for part in parts for table in part or ()]


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

    op: OutputOp
    args: tuple[Output, ...] = ()
    value: Any = None  # of a literal; the position of a key or of a statistic


@dataclass(frozen=True, slots=True)
class Question:
    """A whole query: rows, group keys, statistics, and what is made of them after the noise."""

    rows: Select
    keys: tuple[Scalar, ...]
    aggregates: tuple[Statistic, ...]
    names: tuple[str, ...]
    outputs: tuple[Output, ...]
    having: Output | None = None
    order: tuple[tuple[Output, bool], ...] = ()  # and whether it falls
    limit: int | None = None


def _both(fields: tuple[Field, ...]) -> Field:
    bounds = [field.bounds for field in fields if field.bounds is not None]
    whole = len(bounds) == len(fields)
    kind = fields[0].kind if all(field.kind == fields[0].kind for field in fields) else Kind.NUMBER
    return Field(
        kind,
        (min(low for low, _ in bounds), max(high for _, high in bounds)) if whole else None,
        None,
        all(field.required for field in fields),
    )
