"""The private table behind an engine, which returns contingency tables and never rows.

Only this module and `linked_table` use the engines of `query`, and only for counts.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import Unit, check
from discreet.errors import DiscreetError, InvalidValue
from discreet.query.engines import Engine
from discreet.query.engines.frames import TEXT_FILES, Declared
from discreet.query.engines.places import open_engine
from discreet.query.engines.request import MOST_CODES, Marginals, Plan, Request, Term
from discreet.query.engines.stored import NO_RULE, Stored
from discreet.query.operations import Kind, Op, PlanKind, TermKind
from discreet.query.tree import Base, Field, Scalar, Select
from discreet.synth.cells import Cells, declared_kind
from discreet.synth.domain import largest, open_columns
from discreet.synth.measure import Reach
from discreet.synth.schema import Column, Schema

Ints = NDArray[np.int64]
Set = tuple[int, ...]
AT_ONCE, WIDTH = 400, 20  # contingency tables and columns of one pass
assert WIDTH <= MOST_CODES


@dataclass(frozen=True, slots=True)
class Coded:
    """Rows inside an engine as codes, one for each column; `counts` is private, and only for noise to be added."""

    engine: Engine
    rows: Select
    codes: tuple[Scalar, ...]
    sizes: tuple[int, ...]
    plan: Plan

    def counts(self, sets: Sequence[Set]) -> list[Ints]:
        """The exact contingency table of each set of columns, as an array of their sizes."""
        tables: dict[Set, Ints] = {}
        for some in _passes(sets):
            self._read(some, tables)
        return [tables[columns] for columns in sets]

    def _read(self, sets: Sequence[Set], tables: dict[Set, Ints]) -> None:
        used = sorted({column for columns in sets for column in columns})
        local = {column: i for i, column in enumerate(used)}
        result = self.engine.aggregate(Marginals(self.rows, self.codes, self.sizes, tuple(sets), self.plan))
        which, cell, weight = (np.asarray(result[name], np.int64) for name in ("s", "k", "s0"))
        order = np.argsort(which, kind="stable")
        which, cell, weight = which[order], cell[order], weight[order]
        for columns in sets:
            digit = sum(1 << local[column] for column in columns)
            first, last = np.searchsorted(which, [digit, digit + 1])
            counts = np.zeros(math.prod(self.sizes[column] for column in columns), np.int64)
            counts[cell[first:last]] = weight[first:last]
            tables[columns] = counts.reshape([self.sizes[column] for column in columns])


class Table:
    """One table, its columns as finite domains. `counts` reads it; nothing else does.

    >>> import pyarrow as pa
    >>> from discreet.core import record
    >>> rows = pa.table({"sex": ["f", "m", "f"], "age": [31, 45, 62]})
    >>> with Table(rows, Schema.of({"sex": ["f", "m"], "age": (0, 99)}), record()) as table:
    ...     table.sizes, table.counts([(0,)])[0].tolist()
    ((3, 33), [2, 1, 0])
    """

    def __init__(self, location: Any, schema: Schema, unit: Unit, *, name: str | None = None, once: bool = False) -> None:
        self._once = once
        self.schema = schema
        self.plan = plan(unit)
        described = Declared((*schema.columns, *schema.omitted, *([] if unit.key is None else [unit.key])))
        self.engine: Engine = open_engine(location, dict.fromkeys(text_files(location), described))
        try:
            self.name, stored = one_table(self.engine, name)
            text = self.name in text_files(location)
            kinds = declared_kinds(stored.kinds, schema) if text else dict(stored.kinds)
            self._types = {} if text else self.engine.types(self.name)
            self.cells = self._typed(domains(self.name, kinds, schema, unit.key))
            self.open = open_columns(self.cells)  # of these columns something is yet to be found
            key = None if unit.key is None else list(kinds).index(unit.key)
            fields = tuple(field(kinds[column], column, stored, unit.key) for column in kinds)
            self._base = Base(self.name, tuple(kinds), fields, True, key)
            self._opened = self.engine.fingerprint()
        except BaseException:
            self.engine.close()
            raise
        self._places = {column: i for i, column in enumerate(kinds)}
        self._rows = Select(self._base, (), None, (), (), True)
        self.sizes = tuple(map(largest, self.cells))  # how many cells each column has, or can have
        self._codes = tuple(self._code(cells) for cells in self.cells)

    def _code(self, cells: Cells) -> Scalar:
        return cells.code(self._column(cells))

    def _column(self, cells: Cells) -> Scalar:
        return Scalar(Op.COLUMN, Kind(cells.kind), (), (0, self._places[cells.name]))

    def _typed(self, cells: Iterable[Cells]) -> tuple[Cells, ...]:
        """Cells whose values are sampled in the types that the table has."""
        return tuple(
            column_cells.typed(self._types[column_cells.name]) if column_cells.name in self._types else column_cells
            for column_cells in cells
        )

    def settle(self, settled: Mapping[int, Column]) -> None:
        """Set the cells of open columns, now that they are found."""
        self.cells = self._typed(
            Cells.of(column_cells.name, settled[i], column_cells.kind) if i in settled else column_cells
            for i, column_cells in enumerate(self.cells)
        )
        self.open, self.sizes = (), tuple(cells.size for cells in self.cells)
        self._codes = tuple(self._code(cells) for cells in self.cells)

    def settle_like(self, cells: Sequence[Cells]) -> None:
        """Set the cells of open columns to those that an earlier fit of the same columns found."""
        if self.open and len(cells) == len(self.cells):
            self.settle({open_column.place: cells[open_column.place].column for open_column in self.open})

    def values(self, place: int) -> tuple[list[Any], Ints]:
        """Every value of a column and the weight of its rows. Private: only for noise to be added, none shown without."""
        self.unchanged()
        result = self.engine.aggregate(
            Request(self._rows, (self._column(self.cells[place]),), self.plan, (Term(TermKind.COUNT),))
        )
        self.unchanged()
        return list(result["k0"]), np.asarray(result["s0"], np.int64)

    def histogram(self, place: int, cells: Cells) -> Ints:
        """The exact counts of a column by other cells than its own. Private: only for noise to be added."""
        self.unchanged()
        result = self.engine.aggregate(Marginals(self._rows, (self._code(cells),), (cells.size,), ((0,),), self.plan))
        self.unchanged()
        counts = np.zeros(cells.size, np.int64)
        counts[np.asarray(result["k"], np.int64)] = np.asarray(result["s0"], np.int64)
        return counts

    def unchanged(self) -> None:
        """Raise where the data is not what was opened, as far as the engine can tell without reading it."""
        try:
            now = self.engine.fingerprint()
        except OSError:
            now = ""
        if now != self._opened:
            raise DiscreetError(
                f"{self.name} has changed since it was opened. Fit again; what was charged, if anything, stays."
            )

    def counts(self, sets: Iterable[Set]) -> list[Ints]:
        """The exact contingency table of each set of columns, as an array of their sizes. Private: only for noise to be
        added.
        """
        wanted = list(sets)
        self.unchanged()
        tables = Coded(self.engine, self._rows, self._codes, self.sizes, self.plan).counts(wanted)
        self.unchanged()
        return tables

    def measured(self) -> None:
        """Called after the last count: an engine opened for one fit is closed, which frees its memory for estimation."""
        if self._once:
            self.close()

    def close(self) -> None:
        self.engine.close()

    def __enter__(self) -> Table:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def reach(unit: Unit) -> Reach:
    """How far one unit moves a table, by how its rows are bounded."""
    bounded = plan(unit)
    return Reach(2 if unit.relation == "replace" else 1, bounded.rows, bounded.scale)


def plan(unit: Unit) -> Plan:
    """How the rows of one unit count: one each; or each of a user's n rows as min(1, rows / n), bounded in the engine."""
    if not isinstance(unit, Unit):
        raise InvalidValue(f"unit must be a Unit, such as discreet.record(); got {check.shown(unit)}.")
    if unit.relation == "zero_out":
        raise InvalidValue("Synthesis protects units that are added, removed or replaced; this one is blanked out.")
    if unit.rows is None:
        raise InvalidValue(f"{unit} has no bound on its rows, so nothing can be counted. Say one: user({unit.key!r}, rows=…).")
    if unit.key is None and unit.rows != 1:
        raise InvalidValue(f"A unit of {unit.rows} rows needs a key: user('column', rows={unit.rows}).")
    return Plan(PlanKind.ROWS, 1) if unit.key is None else Plan(PlanKind.WEIGHTED, unit.rows)


def one_table(engine: Engine, name: str | None) -> tuple[str, Stored]:
    tables = engine.tables()
    if name is None:
        if len(tables) != 1:
            raise InvalidValue(
                f"There are {len(tables)} tables here, {', '.join(list(tables)[:12])}; name one: name=…, or --table."
            )
        name = next(iter(tables))
    if name not in tables:
        raise InvalidValue(f"There is no table {check.shown(name)}; there are {', '.join(list(tables)[:12])}.")
    if tables[name].derived:
        raise InvalidValue(f"{name} is {tables[name].derived}: one record may be in many of its rows, or a row may tell of "
                           "others. Make a table of it, with one row for each record.")  # fmt: skip
    return name, tables[name]


def text_files(location: Any) -> dict[str, Path]:
    """The text files of a location, by the table they are: their types are what the schema says."""
    places = location if isinstance(location, Mapping) else {}
    if isinstance(location, (str, os.PathLike)) and "://" not in str(location):
        places = {Path(location).stem: location}
    paths = {name: Path(place) for name, place in places.items() if isinstance(place, (str, os.PathLike))}
    return {name: path for name, path in paths.items() if path.suffix.lower() in TEXT_FILES}


def declared_kinds(stored: Mapping[str, str], schema: Schema) -> dict[str, str]:
    return {name: declared_kind(schema.columns[name]) if name in schema.columns else kind for name, kind in stored.items()}


def field(kind: str, column: str, stored: Stored, key: str | None) -> Field:
    """A column as it is read; the key by the rule for its type."""
    if kind == "other":
        return Field(Kind.TEXT)
    rule = stored.compared.get(column, NO_RULE) if column == key else ""
    if column == key and rule == NO_RULE:
        raise InvalidValue(f"{key} is of a type or collation that may take two spellings for one, so nobody knows whose row "
                           "each is. Keep the key as plain text or whole numbers.")  # fmt: skip
    return Field(Kind(kind), stored=None if kind == stored.kinds[column] else Kind(stored.kinds[column]), compared=rule)


def domains(name: str, kinds: dict[str, str], schema: Schema, key: str | None) -> tuple[Cells, ...]:
    """The cells of each column that the schema describes, in the table's order; every column but the key must be spoken for."""
    if key is not None and key not in kinds:
        raise InvalidValue(
            f"The unit is known by {key!r}, and {name} has no such column; it has {', '.join(list(kinds)[:20])}."
        )
    if key in schema.columns:
        raise InvalidValue(
            f"{key!r} says whose row it is, and does not come into the synthetic table. Take it out of the schema."
        )
    unknown = [column for column in [*schema.columns, *schema.omitted] if column not in kinds]
    if unknown:
        raise InvalidValue(f"The schema describes {unknown[0]!r}, and {name} has no such column; it has "
                           f"{', '.join(list(kinds)[:20])}.")  # fmt: skip
    silent = [column for column in kinds if column not in schema.columns and column not in schema.omitted and column != key]
    if silent:
        raise InvalidValue(
            f"The schema says nothing of {', '.join(map(repr, silent[:8]))}, and nothing is read off the data. Describe "
            f'{"it" if len(silent) == 1 else "them"}, or leave out with None (type = "omit" in TOML).'
        )
    return tuple(Cells.of(column, schema.columns[column], kind) for column, kind in kinds.items() if column in schema.columns)


def _passes(sets: Sequence[Set]) -> list[list[Set]]:
    """The sets in groups that one pass over the rows answers: few columns each, as all of them come back with each cell."""
    groups: list[list[Set]] = []
    used: set[int] = set()
    for columns in sorted(dict.fromkeys(sets), key=lambda members: ([column // (WIDTH // 2) for column in members], members)):
        if not groups or len(groups[-1]) >= AT_ONCE or len(used | set(columns)) > WIDTH:
            groups.append([])
            used = set()
        groups[-1].append(columns)
        used |= set(columns)
    return groups
