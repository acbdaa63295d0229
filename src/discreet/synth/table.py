"""The private table behind an engine: contingency tables come out of it, rows never do.

This is the one place of `synth` that knows engines. They live in `query`, which SQL is made of; synthesis asks them for
counts and uses nothing else of SQL.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
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
from discreet.query.engines.request import MOST_CODES, Marginals, Plan
from discreet.query.operations import Kind, Op, PlanKind
from discreet.query.tree import Base, Field, Scalar, Select
from discreet.synth.cells import Cells, declared_kind
from discreet.synth.schema import Schema

Ints = NDArray[np.int64]
Set = tuple[int, ...]
AT_ONCE, WIDTH = 400, 20  # contingency tables and columns of one pass
assert WIDTH <= MOST_CODES


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
        self.plan = plan(unit)
        described = Declared((*schema.columns, *schema.omitted))
        self.engine: Engine = open_engine(location, dict.fromkeys(_text_files(location), described))
        try:
            self.name, stored = _one_table(self.engine, name)
            kinds = _declared_kinds(stored, schema) if self.name in _text_files(location) else stored
            self.cells = _domains(self.name, kinds, schema)
            self.sizes = tuple(cells.size for cells in self.cells)  # how many cells each column has
            fields = tuple(_field(kinds[column], stored[column]) for column in kinds)
            self._base = Base(self.name, tuple(kinds), fields, True, None)
            self._opened = self.engine.fingerprint()
        except BaseException:
            self.engine.close()
            raise
        places = {column: i for i, column in enumerate(kinds)}
        self._codes = tuple(
            cells.code(Scalar(Op.COLUMN, Kind(cells.kind), (), (0, places[cells.name]))) for cells in self.cells
        )

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
        asked = list(sets)
        self.unchanged()
        made: dict[Set, Ints] = {}
        for some in _passes(asked):
            self._read(some, made)
        self.unchanged()
        return [made[columns] for columns in asked]

    def _read(self, sets: Sequence[Set], made: dict[Set, Ints]) -> None:
        used = sorted({column for columns in sets for column in columns})
        local = {column: i for i, column in enumerate(used)}
        request = Marginals(Select(self._base, (), None, (), (), True), self._codes, self.sizes, tuple(sets), self.plan)
        found = self.engine.aggregate(request)
        which, cell, weight = (np.asarray(found[name], np.int64) for name in ("s", "k", "s0"))
        order = np.argsort(which, kind="stable")
        which, cell, weight = which[order], cell[order], weight[order]
        for columns in sets:
            digit = sum(1 << local[column] for column in columns)
            first, last = np.searchsorted(which, [digit, digit + 1])
            counts = np.zeros(math.prod(self.sizes[column] for column in columns), np.int64)
            counts[cell[first:last]] = weight[first:last]
            made[columns] = counts.reshape([self.sizes[column] for column in columns])

    def measured(self) -> None:
        """No more counts are asked: an engine that was opened for one fit is closed, and estimation may use its memory."""
        if self._once:
            self.close()

    def close(self) -> None:
        self.engine.close()

    def __enter__(self) -> Table:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def plan(unit: Unit) -> Plan:
    """How the rows of one unit count. Only units of one row each: their rows need no bounding."""
    if not isinstance(unit, Unit):
        raise InvalidValue(f"unit must be a Unit, such as discreet.record(); got {check.shown(unit)}.")
    if unit.relation == "zero_out":
        raise InvalidValue("Synthesis protects units that are added, removed or replaced; this one is blanked out.")
    if unit.key is not None or unit.rows != 1:
        raise InvalidValue(f"Synthesis protects records: unit=discreet.record(). Got {unit}. Make one row per unit first, "
                           "for instance in a table that keeps one row of each.")  # fmt: skip
    return Plan(PlanKind.ROWS, 1)


def _one_table(engine: Engine, name: str | None) -> tuple[str, dict[str, str]]:
    found = engine.tables()
    if name is None:
        if len(found) != 1:
            raise InvalidValue(f"There are {len(found)} tables here, {', '.join(list(found)[:12])}; name one: table=….")
        name = next(iter(found))
    if name not in found:
        raise InvalidValue(f"There is no table {check.shown(name)}; there are {', '.join(list(found)[:12])}.")
    if found[name].derived:
        raise InvalidValue(f"{name} is {found[name].derived}: one record may be in many of its rows, or a row may tell of "
                           "others. Make a table of it, with one row for each record.")  # fmt: skip
    return name, dict(found[name].kinds)


def _text_files(location: Any) -> dict[str, Path]:
    """The text files of a location, by the table they are: their types are what the schema says."""
    places = location if isinstance(location, Mapping) else {}
    if isinstance(location, (str, os.PathLike)) and "://" not in str(location):
        places = {Path(location).stem: location}
    paths = {name: Path(place) for name, place in places.items() if isinstance(place, (str, os.PathLike))}
    return {name: path for name, path in paths.items() if path.suffix.lower() in TEXT_FILES}


def _declared_kinds(stored: Mapping[str, str], schema: Schema) -> dict[str, str]:
    return {name: declared_kind(schema.columns[name]) if name in schema.columns else kind for name, kind in stored.items()}


def _field(kind: str, stored: str) -> Field:
    return Field(Kind(kind), stored=None if kind == stored else Kind(stored)) if kind != "other" else Field(Kind.TEXT)


def _domains(name: str, kinds: dict[str, str], schema: Schema) -> tuple[Cells, ...]:
    """The cells of each column that the schema describes, in the table's order; every column must be spoken for."""
    unknown = [column for column in [*schema.columns, *schema.omitted] if column not in kinds]
    if unknown:
        raise InvalidValue(f"The schema describes {unknown[0]!r}, and {name} has no such column; it has "
                           f"{', '.join(list(kinds)[:20])}.")  # fmt: skip
    silent = [column for column in kinds if column not in schema.columns and column not in schema.omitted]
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
    for columns in sorted(dict.fromkeys(sets), key=lambda it: ([column // (WIDTH // 2) for column in it], it)):
        if not groups or len(groups[-1]) >= AT_ONCE or len(used | set(columns)) > WIDTH:
            groups.append([])
            used = set()
        groups[-1].append(columns)
        used |= set(columns)
    return groups
