"""Neighbouring worlds: the same tables with and without the rows of one unit, whose rows are as odd as a column allows.

A world says how tables are given to an engine (types, collations, files, views) and which rows the unit brings. Both sides
declare the same, so that whatever differs between them was decided by the unit's rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

import spark
from discreet import Unit, record, user

Rows = Sequence[tuple[Any, ...]]
COLLAPSED = 1 << 62  # whole numbers near it are one number as doubles


@dataclass(frozen=True)
class Place:
    """Where a side of a world is made: a folder of its own, or a schema of a PostgreSQL database."""

    folder: Path
    url: str = ""

    def sql(self, statements: str) -> None:
        """Run statements in PostgreSQL."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as link:
            name = self.url.split("%3D")[-1]
            link.execute(f"CREATE SCHEMA IF NOT EXISTS {name}".encode())
            link.execute(statements.encode())


@dataclass(frozen=True)
class World:
    """`make(place, present)` gives what `connect` opens, with the unit's rows or without them."""

    name: str
    engine: str
    make: Callable[[Place, bool], Any]
    unit: Unit = field(default_factory=lambda: user("id", rows=2))
    schema: Any = None
    tables: tuple[str, ...] = ("people",)
    texts: bool = True  # whether g is a text
    refused: str = ""  # what connecting says on both sides, where it is refused
    after: Callable[[Place, bool], Any] = lambda place, present: None  # what becomes of the tables once they are connected


# ---- DuckDB: files and frames ------------------------------------------------------------------------------------------

OTHERS: Rows = [(i, "ab"[i % 2], float(i % 7)) for i in range(1, 41) for _ in range(1 + i % 3)]
SCHEMA = {"people": {"x": {"bounds": [0, 10]}, "g": {"values": ["a", "A", "b", None]}}}
TYPED = {"people": {"id": {"type": "integer"}, "g": {"type": "text", "values": ["a", "A", "b", None]},
                    "x": {"type": "number", "bounds": [0, 10]}}}  # fmt: skip
ODD_VALUES: Rows = [
    (77, "a", math.nan), (77, "A", math.inf), (77, "b", -1e308), (77, None, None), (77, "zz" * 40, 5e-324), (77, "", 1e300),
    (None, "a", 3.0), *[(77, "a", 9.0)] * 31,
]  # fmt: skip


def arrow(place: Place, present: bool) -> Any:
    rows = [*OTHERS, *(ODD_VALUES if present else ())]
    kinds = (pa.int64(), pa.string(), pa.float64())
    return {"people": pa.table({n: pa.array([row[i] for row in rows], kinds[i]) for i, n in enumerate(("id", "g", "x"))})}


def one_record(place: Place, present: bool) -> Any:
    """Where a record is the unit, one row is one unit."""
    rows = [*OTHERS, *([(77, "b", math.nan)] if present else [])]
    return {"people": pa.table({n: pa.array([row[i] for row in rows]) for i, n in enumerate(("id", "g", "x"))})}


def bad_utf8(place: Place, present: bool) -> Any:
    """A text that is not UTF-8 in one row."""
    texts = [str(row[1]).encode() for row in OTHERS] + ([b"\xff\xfe"] if present else [])
    ids = [row[0] for row in OTHERS] + ([77] if present else [])
    ends = pa.array([0, *_ends(texts)], pa.int32())
    strings = pa.Array.from_buffers(pa.string(), len(texts), [None, ends.buffers()[1], pa.py_buffer(b"".join(texts))])
    return {"people": pa.table({"id": ids, "g": strings, "x": [1.0] * len(ids)})}


def _ends(texts: Sequence[bytes]) -> list[int]:
    ends, end = [], 0
    for text in texts:
        end += len(text)
        ends.append(end)
    return ends


def objects(place: Place, present: bool) -> Any:
    """A pandas frame of Python objects; one row holds a text where others hold numbers, and a list."""
    import pandas as pd

    rows = [(row[0], row[1], row[2]) for row in OTHERS] + ([(77, 5, "many"), (77, ["a"], {"x": 1})] if present else [])
    frame = pd.DataFrame({"id": [row[0] for row in rows]})
    for i, name in ((1, "g"), (2, "x")):
        column = pd.Series([None] * len(rows), dtype=object)
        for j, row in enumerate(rows):
            column.iat[j] = row[i]
        frame[name] = column
    return {"people": frame}


def csv(place: Place, present: bool) -> Any:
    """One person's line has a text for a number, a broken byte, too few fields, too many, a quote that never closes."""
    lines = [f"{i},{g},{x}".encode() for i, g, x in OTHERS]
    odd = [b"77,a,many", b"77,\xff\xfe,3", b"77", b"77,a,1,2,3", b'77,"two\nlines",4', b"x77,b,1", b"77,NA,1e999", b'77,"a']
    (place.folder / "people.csv").write_bytes(b"\n".join([b"id,g,x", *(odd if present else ()), *lines]) + b"\n")
    return place.folder / "people.csv"


def jsonl(place: Place, present: bool) -> Any:
    lines = [json.dumps({"id": i, "g": g, "x": x}) for i, g, x in OTHERS]
    odd = ['{"id": 77, "g": ["a"], "x": "many", "extra": 1}', '{"id": "77", "g": 5, "x": true}', '{"id": 77', "[1]", "NaN"]
    (place.folder / "people.jsonl").write_text("\n".join([*lines, *(odd if present else ())]))
    return place.folder / "people.jsonl"


def parquet_file(place: Place, present: bool) -> Any:
    parquet.write_table(arrow(place, present)["people"], place.folder / "people.parquet")
    return place.folder / "people.parquet"


def twice(place: Place, present: bool) -> Any:
    """One frame under two names: a record would be in two rows of their union."""
    table = one_record(place, present)["people"]
    return {"people": table, "again": table}


# ---- databases, by statements ------------------------------------------------------------------------------------------


def statements(place: Place, engine: str, text: str) -> Any:
    """A database in which statements were run: a file of DuckDB, or a schema of PostgreSQL."""
    if engine == "postgres":
        place.sql(text)
        return place.url
    import duckdb

    path = place.folder / "world.duckdb"
    with closing(duckdb.connect(str(path))) as link:
        for statement in filter(None, map(str.strip, text.split(";"))):
            link.execute(statement).fetchall()
    return path


def _values(rows: Rows) -> str:
    return ", ".join(f"({', '.join(map(str, row))})" for row in rows)


def keys(engine: str, one: str, two: str, odd: str) -> Callable[[Place, bool], Any]:
    """People whose keys are one number as doubles, and visits of one unit whose key has another type."""
    people = _values([(COLLAPSED + 8 * i, "'a'", i % 7) for i in range(30)])

    def make(place: Place, present: bool) -> Any:
        visits = _values([(17, 5), *([(odd, 9)] * 31 if present else [])])
        return statements(place, engine, f"CREATE TABLE people (id {one}, g text, x double precision); "
                          f"CREATE TABLE visits (id {two}, cost double precision); "
                          f"INSERT INTO people VALUES {people}; INSERT INTO visits VALUES {visits}")  # fmt: skip

    return make


def collation(engine: str, kind: str, before: str = "") -> Callable[[Place, bool], Any]:
    """Everybody writes the group as a; one person writes it A, and comes first."""
    others = [(i, "'a'", i % 7) for i in range(40)]

    def make(place: Place, present: bool) -> Any:
        rows = _values([*([(77, "'A'", 3)] if present else []), *others])
        return statements(place, engine, f"{before}; CREATE TABLE people (id bigint, g {kind}, x double precision); "
                          f"INSERT INTO people VALUES {rows}")  # fmt: skip

    return make


def collated_keys(engine: str, kind: str, before: str = "") -> Callable[[Place, bool], Any]:
    """One person under many spellings of one key."""
    others = [(f"'u{i}'", "'a'", i % 7) for i in range(40)]
    spellings = [
        ("'" + "".join(c.upper() if i >> j & 1 else c for j, c in enumerate("abcde")) + "'", "'a'", 9) for i in range(31)
    ]

    def make(place: Place, present: bool) -> Any:
        rows = _values([*others, *(spellings if present else [])])
        return statements(place, engine, f"{before}; CREATE TABLE people (id {kind}, g text, x double precision); "
                          f"INSERT INTO people VALUES {rows}")  # fmt: skip

    return make


def view(engine: str, body: str) -> Callable[[Place, bool], Any]:
    """People as a view: a row that is there many times, or tells how many others there are."""

    def make(place: Place, present: bool) -> Any:
        rows = _values([(i, "'a'", i % 7) for i in range(40)] + ([(77, "'b'", 9)] if present else []))
        return statements(place, engine, "CREATE TABLE base (id bigint, g text, x double precision); "
                          f"INSERT INTO base VALUES {rows}; CREATE VIEW people AS {body}")  # fmt: skip

    return make


REPEATED = "SELECT b.id, b.g, b.x FROM base b, generate_series(1, 31) AS s"
OTHERS_TOLD = "SELECT id, g, CAST(count(*) OVER () AS double precision) / 10 AS x FROM base"


def children(place: Place, present: bool) -> Any:
    """A table of PostgreSQL and its child, whose rows are in both."""
    rows = _values([(i, "'a'", i % 7) for i in range(40)] + ([(77, "'b'", 9)] if present else []))
    return statements(place, "postgres", "CREATE TABLE people (id bigint, g text, x double precision); "
                      f"CREATE TABLE again () INHERITS (people); INSERT INTO again VALUES {rows}")  # fmt: skip


def later(text: str) -> Callable[[Place, bool], Any]:
    """Statements for PostgreSQL, run after connecting."""
    return lambda place, present: place.sql(text)


def public_file(place: Place, present: bool) -> Any:
    """Records in a frame, and a public table in a file."""
    wards_file(place, UNIQUE_WARDS)
    return {**one_record(place, present), "wards": place.folder / "wards.parquet"}


def wards_file(place: Place, wards: Sequence[str]) -> None:
    parquet.write_table(pa.table({"ward": wards, "floor": [1] * len(wards)}), place.folder / "wards.parquet")


def quoted(place: Place, present: bool) -> Any:
    """Two columns of PostgreSQL that differ in case: whose row it is says id, and "ID" is another for each row."""
    rows = _values([(i, i, "'a'", i % 7) for i in range(40)] + [(100 + i, 77, "'b'", 9) for i in range(31 * present)])
    return statements(place, "postgres", 'CREATE TABLE people ("ID" bigint, id bigint, g text, x double precision); '
                      f"INSERT INTO people VALUES {rows}")  # fmt: skip


def public_join(engine: str, floors: str) -> Callable[[Place, bool], Any]:
    """Records, and a public table that may have a ward 31 times."""

    def make(place: Place, present: bool) -> Any:
        rows = _values([(i, "'a'", i % 7) for i in range(40)] + ([(77, "'b'", 9)] if present else []))
        return statements(place, engine, "CREATE TABLE people (id bigint, g text, x double precision); CREATE TABLE wards "
                          f"(ward text, floor bigint); INSERT INTO people VALUES {rows}; "
                          f"INSERT INTO wards VALUES {floors}")  # fmt: skip

    return make


# ---- Spark -------------------------------------------------------------------------------------------------------------


def frames(types: str, others: Rows, odd: Rows, change: Callable[[Any], Any] = lambda frame: frame) -> Any:
    def make(place: Place, present: bool) -> Any:
        return {"people": change(spark.session().createDataFrame([*(odd if present else ()), *others], types))}

    return make


def two_frames(one: str, two: str, odd: Any) -> Callable[[Place, bool], Any]:
    def make(place: Place, present: bool) -> Any:
        session = spark.session()
        rows = [(Decimal(COLLAPSED + 8 * i), "a", float(i % 7)) for i in range(30)]
        people = session.createDataFrame(rows, f"id {one}, g string, x double")
        visits = session.createDataFrame([(17.0, 5.0), *([(odd, 9.0)] * 31 if present else [])], f"id {two}, cost double")
        return {"people": people, "visits": visits}

    return make


def session_view(place: Place, present: bool) -> Any:
    """A session of its own, with people as a temporary view."""
    session = spark.session().newSession()
    SESSIONS[place] = session
    rows = [*OTHERS, *([(77, "b", 3.0)] if present else [])]
    session.createDataFrame(rows, "id bigint, g string, x double").createOrReplaceTempView("people")
    return session


def view_exchanged(place: Place, present: bool) -> None:
    """The view tells of others, once it is connected."""
    windowed(SESSIONS[place].table("people")).createOrReplaceTempView("people")


def spark_join(wards: Rows) -> Callable[[Place, bool], Any]:
    def make(place: Place, present: bool) -> Any:
        session = spark.session()
        people = session.createDataFrame([*([(77, "b", 9.0)] if present else []), *OTHERS], "id bigint, g string, x double")
        return {"people": people, "wards": session.createDataFrame(wards, "ward string, floor bigint")}

    return make


SESSIONS: dict[Place, Any] = {}


def windowed(frame: Any) -> Any:
    return frame.selectExpr("id", "g", "CAST(count(*) OVER () % 2 * 9 AS DOUBLE) AS x")


KEYED = {"people": {"x": {"bounds": [0, 10]}, "g": {"values": ["a", "A", "b"]}}, "visits": {"cost": {"bounds": [0, 10]}}}
JOINED = {**SCHEMA, "wards": {"public": True, "unique": ["ward"]}}
REPEATING = {**SCHEMA, "wards": {"public": True, "unique": ["ward"], "repeats": 31}}
ICU = "CREATE COLLATION IF NOT EXISTS anycase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
UNIQUE, FANNED = "('a', 1), ('b', 2)", ", ".join(["('b', 1)"] * 31)
UNIQUE_WARDS, FANNED_WARDS = ("a", "b"), ("b",) * 31
FANNED_ROWS: Rows = [("b", 1)] * 31
DECLARED = {"people": {**SCHEMA["people"], "rows": 2, "depends_on_one_unit": True}}
WEIGHTLESS = "CREATE MACRO least(one, two) AS 31 * one"

WORLDS = [
    World("values", "duckdb", arrow, schema=SCHEMA),
    World("values of records", "duckdb", one_record, record(), SCHEMA),
    World("parquet", "duckdb", parquet_file, schema=SCHEMA),
    World("encoding", "duckdb", bad_utf8, schema=SCHEMA),
    World("objects", "duckdb", objects, schema=TYPED),
    World("objects undeclared", "duckdb", objects, schema=SCHEMA, refused="holds text"),
    World("csv", "duckdb", csv, schema=TYPED),
    World("jsonl", "duckdb", jsonl, schema=TYPED),
    World("csv undeclared", "duckdb", csv, refused="text file"),
    World("one frame twice", "duckdb", twice, record(), {**SCHEMA, "again": SCHEMA["people"]}, ("people", "again")),
    World("collation", "duckdb", collation("duckdb", "VARCHAR COLLATE NOCASE"), schema=SCHEMA),
    World("keys ubigint double", "duckdb", keys("duckdb", "UBIGINT", "DOUBLE", str(COLLAPSED)), schema=KEYED,
          tables=("people", "visits"), refused="compared as wide in people and as double in visits"),
    World("keys decimal double", "duckdb", keys("duckdb", "DECIMAL(38, 0)", "DOUBLE", str(COLLAPSED)), schema=KEYED,
          tables=("people", "visits"), refused="compared as wide in people and as double in visits"),
    World("keys bigint hugeint", "duckdb", keys("duckdb", "BIGINT", "HUGEINT", str(COLLAPSED)), schema=KEYED,
          tables=("people", "visits")),
    World("spelled keys", "duckdb", collated_keys("duckdb", "VARCHAR COLLATE NOCASE"), schema=SCHEMA, refused="two spellings"),
    World("view repeats", "duckdb", view("duckdb", REPEATED), record(), SCHEMA),
    World("view tells of others", "duckdb", view("duckdb", OTHERS_TOLD), schema=SCHEMA),
    World("join unique", "duckdb", public_join("duckdb", UNIQUE), record(), JOINED, ("people", "wards")),
    World("join fanned out", "duckdb", public_join("duckdb", FANNED), record(), JOINED, ("people", "wards"),
          refused="has more"),
    World("join repeated", "duckdb", public_join("duckdb", FANNED), record(), REPEATING, ("people", "wards")),
    World("join repeated", "postgres", public_join("postgres", FANNED), record(), REPEATING, ("people", "wards")),
    World("repeats changed", "postgres", public_join("postgres", FANNED), record(), REPEATING, ("people", "wards"),
          after=later(f"INSERT INTO wards VALUES {FANNED}")),
    World("join repeated", "spark", spark_join(FANNED_ROWS), record(), REPEATING, ("people", "wards")),
    World("public file written anew", "duckdb", public_file, record(), JOINED, ("people", "wards"),
          after=lambda place, present: wards_file(place, FANNED_WARDS)),
    World("macro", "duckdb", collation("duckdb", "text", WEIGHTLESS), schema=SCHEMA, refused="macros of the names"),
    World("view exchanged", "postgres", view("postgres", "SELECT * FROM base"), schema=DECLARED,
          after=later(f"CREATE OR REPLACE VIEW people AS {OTHERS_TOLD}")),
    World("view below exchanged", "postgres",
          view("postgres", "SELECT * FROM base; CREATE VIEW below AS SELECT * FROM base; CREATE OR REPLACE VIEW people AS "
               "SELECT * FROM below"), schema={**DECLARED, "below": {"rows": 2, "depends_on_one_unit": True}},
          after=later(f"CREATE OR REPLACE VIEW below AS {OTHERS_TOLD}")),
    World("table exchanged", "postgres", public_join("postgres", UNIQUE), record(), {**SCHEMA, "wards": {"public": True}},
          after=later(f"ALTER TABLE people RENAME TO base; CREATE VIEW people AS {REPEATED}")),
    World("public table changed", "postgres", public_join("postgres", UNIQUE), record(), JOINED, ("people", "wards"),
          after=later(f"INSERT INTO wards VALUES {FANNED}")),
    World("keys numeric float8", "postgres", keys("postgres", "numeric", "float8", str(COLLAPSED)), schema=KEYED,
          tables=("people", "visits"), refused="compared as wide in people and as double in visits"),
    World("keys bigint numeric", "postgres", keys("postgres", "bigint", "numeric", f"{COLLAPSED}.00"), schema=KEYED,
          tables=("people", "visits")),
    World("collation", "postgres", collation("postgres", "text COLLATE anycase", ICU), schema=SCHEMA),
    World("citext", "postgres", collation("postgres", "public.citext", "CREATE EXTENSION IF NOT EXISTS citext SCHEMA public"),
          schema=SCHEMA),
    World("spelled keys", "postgres", collated_keys("postgres", "text COLLATE anycase", ICU), schema=SCHEMA,
          refused="two spellings"),
    World("names", "postgres", quoted, schema=SCHEMA),
    World("view tells of others", "postgres", view("postgres", OTHERS_TOLD), schema=SCHEMA),
    World("view repeats", "postgres", view("postgres", REPEATED), record(), SCHEMA),
    World("children", "postgres", children, record(), {**SCHEMA, "again": SCHEMA["people"]}, ("people", "again")),
    World("join unique", "postgres", public_join("postgres", UNIQUE), record(), JOINED, ("people", "wards")),
    World("values", "spark", frames("id bigint, g string, x double", OTHERS, ODD_VALUES), schema=SCHEMA),
    World("collation", "spark", frames("id bigint, g string collate UTF8_LCASE, x double", [(i, "a", 1.0) for i in range(40)],
                                       [(77, "A", 3.0)]), record(), SCHEMA),
    World("spelled keys", "spark", frames("id string collate UTF8_LCASE, g string, x double", [("u", "a", 1.0)] * 9,
                                          [("U", "A", 3.0)]), schema=SCHEMA, refused="two spellings"),
    World("view exchanged", "spark", session_view, schema=SCHEMA, after=view_exchanged),
    World("window", "spark", frames("id bigint, g string, x double", OTHERS, [(77, "b", 3.0)], windowed), schema=SCHEMA,
          refused="made by"),
    World("keys decimal double", "spark", two_frames("decimal(38, 0)", "double", float(COLLAPSED)), schema=KEYED,
          tables=("people", "visits"), refused="compared as wide in people and as double in visits"),
]  # fmt: skip
