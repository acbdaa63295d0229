"""The same tables in every engine, and the whole numbers that each gives before noise."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import spark
from discreet import Unit, connect
from discreet.query import Database
from discreet.query.answer import requests
from discreet.query.engines.request import Term
from discreet.query.operations import TermKind
from discreet.query.price import Priced
from discreet.query.statistics.quantity import Measure

ENGINES = ("duckdb", "postgres", "spark")
KINDS = {  # kind -> (Arrow, PostgreSQL, Spark)
    "integer": (pa.int64(), "bigint", "bigint"), "number": (pa.float64(), "double precision", "double"),
    "text": (pa.string(), "text", "string"), "boolean": (pa.bool_(), "boolean", "boolean"),
    "date": (pa.date32(), "date", "date"), "timestamp": (pa.timestamp("us"), "timestamp", "timestamp_ntz"),
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Rows of Python values; `columns`: name -> kind."""

    columns: Mapping[str, str]
    rows: list[tuple[Any, ...]]

    def without(self, column: str, value: Any) -> Table:
        place = list(self.columns).index(column)
        return Table(self.columns, [row for row in self.rows if row[place] != value or type(row[place]) is not type(value)])


Tables = Mapping[str, Table]


def arrow(table: Table) -> pa.Table:
    columns = list(zip(*table.rows)) if table.rows else [()] * len(table.columns)
    types = [KINDS[kind][0] for kind in table.columns.values()]
    return pa.table({name: pa.array(column, kind) for name, kind, column in zip(table.columns, types, columns)})


def fill(url: str, tables: Tables) -> str:
    """The tables in PostgreSQL, in place of those of the same names."""
    import psycopg

    with psycopg.connect(url) as link, link.cursor() as cursor:
        if "search_path" in url:
            cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {url.split('%3D')[-1]}".encode())
        for name, table in tables.items():
            columns = ", ".join(f'"{column}" {KINDS[kind][1]}' for column, kind in table.columns.items())
            cursor.execute(f'DROP TABLE IF EXISTS "{name}"')
            cursor.execute(f'CREATE TABLE "{name}" ({columns})')
            with cursor.copy(f'COPY "{name}" FROM STDIN') as copy:
                for row in table.rows:
                    copy.write_row(row)
    return url


def frames(tables: Tables) -> dict[str, Any]:
    session = spark.session()
    made = {}
    for name, table in tables.items():
        schema = ", ".join(f"`{column}` {KINDS[kind][2]}" for column, kind in table.columns.items())
        made[name] = session.createDataFrame(table.rows, schema)
    return made


def location(engine: str, tables: Tables, url: str | None = None) -> Any:
    """What `connect` opens."""
    if engine == "duckdb":
        return {name: arrow(table) for name, table in tables.items()}
    if engine == "postgres":
        assert url is not None
        return fill(url, tables)
    return frames(tables)


def opened(engine: str, tables: Tables, url: str | None, unit: Unit, schema: Any) -> Database:
    return connect(location(engine, tables, url), unit=unit, schema=schema)


Cells = dict[tuple[Any, ...], int]


def priced(db: Database, query: str, groups: int | None = None, *, bias: bool = False, given: Any = None) -> Priced:
    return db._price(query, 1.0, 1e-6, groups, given, None, bias)


def exact(
    db: Database, query: str, groups: int | None = None, *, bias: bool = False, given: Any = None
) -> list[tuple[Measure, Cells]]:
    """Each measurement, and its exact whole numbers by group (and part, of a histogram); no zeros."""
    return [part for one in priced(db, query, groups, bias=bias, given=given).sets for part in _exact(db, one)]


def _exact(db: Database, asked: Priced) -> list[tuple[Measure, Cells]]:
    made = []
    found = [db.engine.aggregate(request) for request in requests(asked)]
    added = asked.cut is not None or not all(it.alone for it in asked.measures)
    sums, others = (found[0], found[1:]) if added else ({}, found)
    cut = _cut(asked, sums, others)
    keys = len(asked.question.keys)
    place = 0
    for measure in asked.measures:
        if measure.bins is not None:
            made.append((measure, cells(others.pop(0), keys, "s0", bins=True)))
            continue
        if measure.values is not None:
            made.append((measure, different(others.pop(0), keys)))
            continue
        name = "units" if measure.term is None else f"s{place}"
        place += measure.term is not None
        made.append((measure, cells(sums, keys, name)))
    return made + cut


def _cut(asked: Priced, sums: Mapping[str, Any], others: list[Mapping[str, Any]]) -> list[tuple[Measure, Cells]]:
    """The two vectors of which the share of rows cut is made."""
    if asked.cut is None:
        return []
    keys, first = len(asked.question.keys), sum(it.term is not None for it in asked.measures)
    made = [cells(sums, keys, f"s{first + i}") for i in range(len(asked.cut.terms()))]
    made += [cells(others.pop(0), 0, "s0") for _ in asked.cut.requests(asked.question.rows)]
    wide = Term(TermKind.WIDE)
    return [
        (Measure(term, most, 1.0), it) for term, most, it in zip((Term(TermKind.COUNT), wide), asked.cut.sensitivities, made)
    ]


def different(found: Mapping[str, Any], keys: int) -> Cells:
    """How many different values each group has."""
    made: Cells = {}
    for row in {
        tuple(row) for row in zip(*(found[name] for name in sorted(found, key=lambda k: (len(k), k)) if name[0] == "k"))
    }:
        made[row[:keys]] = made.get(row[:keys], 0) + 1
    return made


def cells(found: Mapping[str, Any], keys: int, name: str, *, bins: bool = False) -> Cells:
    columns = [found[f"k{i}"] for i in range(keys)] + ([found["b"]] if bins else [])
    made: Cells = {}
    for *key, value in zip(*columns, found[name]):
        assert type(value) is int, f"{value!r} is no whole number"
        plain = tuple(part + 0.0 if isinstance(part, float) else part for part in key)
        assert plain not in made, f"the group {plain} came twice"
        made[plain] = value
    return {key: value for key, value in made.items() if value}


def distance(one: Cells, two: Cells) -> int:
    return sum(abs(one.get(key, 0) - two.get(key, 0)) for key in one.keys() | two.keys())


DAY = datetime.date
MOMENT = datetime.datetime
