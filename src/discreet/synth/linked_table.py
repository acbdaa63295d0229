"""Two linked tables behind one engine: parents with their number of children, and children with their parent's columns.

Tables are joined by the unit's key and nothing else, so every row that is counted belongs to one unit. Its rows weigh at most
one among parents, and at most `unit.rows` among children, whatever the tables hold: keys that are there twice included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from discreet.core import Unit, check
from discreet.errors import DiscreetError, InvalidValue
from discreet.query.engines import Engine
from discreet.query.engines.frames import Declared
from discreet.query.engines.places import open_engine
from discreet.query.engines.stored import NO_RULE, common_rule
from discreet.query.operations import Kind, Op
from discreet.query.tree import Base, Join, Scalar, Select
from discreet.synth.cells import ARROW, Cells
from discreet.synth.measure import Ints, Set
from discreet.synth.schema import Column, Schema
from discreet.synth.table import Coded, declared_kinds, domains, field, one_table, plan, text_files

MOST_CHILDREN = 1000


class Part:
    """Rows of linked tables, as methods count them. Private, as all counts are."""

    def __init__(self, whole: LinkedTable, coded: Coded, cells: tuple[Cells, ...]) -> None:
        self._whole, self._coded, self.cells = whole, coded, cells
        self.sizes = coded.sizes

    def counts(self, sets: Iterable[Set]) -> list[Ints]:
        self._whole.unchanged()
        tables = self._coded.counts(list(sets))
        self._whole.unchanged()
        return tables

    def measured(self) -> None:
        """Do nothing: the engine is still needed for the other part."""


class LinkedTable:
    """`parents` has the columns of parents and how many children each has; `children` has those, and the children's own."""

    def __init__(self, location: Any, schemas: Mapping[str, Schema], parent: str, child: str, unit: Unit) -> None:
        if unit.key is None or unit.rows is None or not 1 <= unit.rows <= MOST_CHILDREN:
            raise InvalidValue("Linked tables protect a parent with its children, known by a key, with a bound on those that "
                               f"count: unit=user('user_id', rows=20), of at most {MOST_CHILDREN:,}; got {unit}.")  # fmt: skip
        self.names, self.key, self.unit = (parent, child), unit.key, unit
        for name, schema in schemas.items():
            _listed_only(name, schema)
        texts = text_files(location)
        described = {
            name: Declared((*schemas[name].columns, *schemas[name].omitted, unit.key)) for name in texts if name in schemas
        }
        self.engine: Engine = open_engine(location, described)
        try:
            self._open(schemas, set(texts))
            self._opened = self.engine.fingerprint()
        except BaseException:
            self.engine.close()
            raise

    def _open(self, schemas: Mapping[str, Schema], texts: set[str]) -> None:
        bases, cells, self.columns, self.types = [], [], [], []
        for name in self.names:
            _, stored = one_table(self.engine, name)
            text = name in texts
            kinds = declared_kinds(stored.kinds, schemas[name]) if text else dict(stored.kinds)
            types = {} if text else self.engine.types(name)
            own = domains(name, kinds, schemas[name], self.key)
            cells.append(
                tuple(
                    column_cells.typed(types[column_cells.name]) if column_cells.name in types else column_cells
                    for column_cells in own
                )
            )
            fields = tuple(field(kinds[column], column, stored, self.key) for column in kinds)
            bases.append(Base(name, tuple(kinds), fields, True, list(kinds).index(self.key)))
            included = {self.key, *schemas[name].columns}
            self.columns.append(tuple(column for column in kinds if column in included))
            plain = ARROW.get(kinds[self.key], ARROW["text"])
            self.types.append(types.get(self.key) or plain())
        bases = self._same_rule(bases)
        self._parts(bases[0], bases[1], cells[0], cells[1])

    def _same_rule(self, bases: list[Base]) -> list[Base]:
        """Both tables with the same exact rule for comparing keys."""
        rules = [base.fields[base.unit or 0].compared for base in bases]
        rule = common_rule(rules)
        if rule == NO_RULE:
            raise InvalidValue(f"{self.key} is compared as {rules[0]} in {self.names[0]} and as {rules[1]} in {self.names[1]}, "
                               "so nobody knows which rows belong together. Store it in one type.")  # fmt: skip
        return [
            replace(
                base,
                fields=tuple(
                    replace(base_field, compared=rule) if i == base.unit else base_field
                    for i, base_field in enumerate(base.fields)
                ),
            )
            for base in bases
        ]

    def _parts(self, parents: Base, children: Base, first: tuple[Cells, ...], second: tuple[Cells, ...]) -> None:
        most = self.unit.rows or 1
        name = f"number of {self.names[1]}"
        number = Cells.of(
            name, Column("integer", bounds=(0, most), bins=min(most + 1, 32), mass=(0,), required=True), "integer"
        )
        if name in parents.names:
            raise InvalidValue(f"{self.names[0]} has a column called {name}, as the model calls its own. Rename it.")
        many = Select(children, (), None, ("n",), (Scalar(Op.COUNT_OF, Kind.INTEGER),), True, ())
        of_parents = Select(parents, (Join(many, _same(1), keep=True),), None, (), (), True)
        of_children = Select(children, (Join(parents, _same(1)), Join(many, _same(2))), None, (), (), True)
        own = (*first, number)
        self.parents = Part(self, self._coded(of_parents, [*_codes(first, parents, 0), _number(number, 1)], own, 1), own)
        beside = tuple(replace(column_cells, name=f"{self.names[0]}.{column_cells.name}") for column_cells in (*first, number))
        codes = [*_codes(first, parents, 1), _number(number, 2), *_codes(second, children, 0)]
        self.children = Part(self, self._coded(of_children, codes, (*beside, *second), most), (*beside, *second))

    def _coded(self, rows: Select, codes: Sequence[Scalar], cells: Sequence[Cells], most: int) -> Coded:
        return Coded(
            self.engine,
            rows,
            tuple(codes),
            tuple(column_cells.size for column_cells in cells),
            plan(replace(self.unit, rows=most)),
        )

    def unchanged(self) -> None:
        """Raise where the data is not what was opened, as far as the engine can tell without reading it."""
        try:
            now = self.engine.fingerprint()
        except OSError:
            now = ""
        if now != self._opened:
            raise DiscreetError(f"{self.names[0]} or {self.names[1]} has changed since it was opened. Fit again; what was "
                                "charged, if anything, stays.")  # fmt: skip

    def __enter__(self) -> LinkedTable:
        return self

    def __exit__(self, *error: object) -> None:
        self.engine.close()


def _listed_only(name: str, schema: Schema) -> None:
    names = [column for column, spec in schema.columns.items() if spec.find]
    if names:
        raise InvalidValue(f"{name}.{names[0]}: nothing is found privately in linked tables. List its categories, or the edges "
                           "of its bins.")  # fmt: skip
    if schema.constraints or schema.workload:
        raise InvalidValue("Linked tables take no constraints and no workload.")


def _same(place: int) -> Scalar:
    return Scalar(Op.SAME_UNIT, Kind.BOOLEAN, value=(0, place))


def _codes(cells: Sequence[Cells], base: Base, source: int) -> list[Scalar]:
    return [
        column_cells.code(Scalar(Op.COLUMN, Kind(column_cells.kind), (), (source, base.names.index(column_cells.name))))
        for column_cells in cells
    ]


def _number(cells: Cells, source: int) -> Scalar:
    """The number of children, 0 where the join found none."""
    count = Scalar(Op.COLUMN, Kind.INTEGER, (), (source, 0))
    return cells.code(Scalar(Op.COALESCE, Kind.INTEGER, (count, Scalar(Op.LITERAL, Kind.INTEGER, (), 0))))


def schemas_of(schema: Any, parent: str, child: str) -> dict[str, Schema]:
    """The schema of each table: a mapping from table to schema, or a TOML file whose tables are those."""
    if parent == check.word("child", child) or not check.word("parent", parent):
        raise InvalidValue("parent and child are two tables.")
    schemas = Schema.tables(schema)
    if set(schemas) != {parent, child}:
        raise InvalidValue(f"The schema must describe the tables {parent} and {child}: schema={{{parent!r}: …, {child!r}: …}}, "
                           f"or [{parent}.column] in TOML; it describes {', '.join(schemas)}.")  # fmt: skip
    return schemas
