"""Private SQL means the same in every engine: the same whole numbers before noise, the same bounds on what a unit moves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlglot

import postgres
import spark
from conform.engines import DAY, ENGINES, MOMENT, Cells, Table, exact, location, opened
from discreet import Ledger, connect, record, user
from discreet.errors import InvalidQuery, InvalidValue
from discreet.query import Database
from discreet.query.answer import requests
from discreet.query.engines.expressions import _OPERATIONS
from discreet.query.engines.request import Request
from discreet.query.engines.writer import Writer
from discreet.query.scalars.expression import Scope, scalar
from discreet.query.tree import Base, Field, Scalar, Select

# ---- the data ----------------------------------------------------------------------------------------------------------

INF, NAN = math.inf, math.nan
TEXTS = ["it's", 'say "A"', "", "Ünï", "日本", "a\\b", "100%", "semi;--", None]
PEOPLE = Table(
    {"pid": "integer", "ward": "text", "x": "number", "age": "integer", "smoker": "boolean", "day": "date", "at": "timestamp"},
    [
        (
            None if i % 17 == 0 else 1 if i % 5 == 0 else i % 11,  # NULL units; unit 1 has many rows
            TEXTS[i % len(TEXTS)],
            [1.5, -2.25, 7.0, None, NAN, INF, -INF, 1e300, -1e300, 5e-324, 0.1, 9.95][i % 12],
            [None, 0, 35, 120, -5, 2**62, 64][i % 7],
            [True, False, None][i % 3],
            [DAY(2024, 2, 29), DAY(2024, 3, 1), None, DAY(1, 1, 1), DAY(9999, 12, 31)][i % 5],
            [MOMENT(2024, 3, 10, 2, 30), MOMENT(1969, 12, 31, 23, 59, 59, 999999), None, MOMENT(2024, 11, 3, 1, 15)][i % 4],
        )
        for i in range(200)
    ],
)
VISITS = Table(
    {"pid": "integer", "cost": "number", "ward": "text"},
    [(None if i % 9 == 0 else i % 13, [10.1, 20.2, NAN, 1e308, -3.3, None][i % 6], TEXTS[i % 4]) for i in range(60)],
)
WARDS = Table({"ward": "text", "floor": "integer"}, [(text, i) for i, text in enumerate(TEXTS[:6])] + [("it's", 9), (None, 8)])
EMPTY = Table({"pid": "integer", "x": "number"}, [])
TABLES = {"people": PEOPLE, "visits": VISITS, "wards": WARDS, "empty": EMPTY}
SCHEMA = {
    "people": {"x": {"bounds": [-10, 10]}, "age": {"bounds": [0, 120]}}, "visits": {"cost": {"bounds": [0, 50]}},
    "empty": {"x": {"bounds": [0, 1]}}, "wards": {"public": True},
}  # fmt: skip


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    reason = {"postgres": postgres.missing(), "spark": spark.missing()}.get(request.param)
    if reason:
        pytest.skip(reason)
    return str(request.param)


@pytest.fixture(scope="module")
def url(engine: str, request: pytest.FixtureRequest) -> Iterator[str | None]:
    """A database for the PostgreSQL of this module."""
    if engine != "postgres":
        yield None
        return
    with postgres.database(request.getfixturevalue("postgres_server")) as made:
        yield made


@pytest.fixture(scope="module")
def where(engine: str, url: str | None) -> Any:
    return location(engine, TABLES, url)


@pytest.fixture(scope="module")
def by_record(where: Any) -> Iterator[Database]:
    with connect(where, unit=record(), schema=SCHEMA) as db:
        yield db


@pytest.fixture(scope="module")
def by_person(where: Any) -> Iterator[Database]:
    with connect(where, unit=user("pid", rows=3), schema=SCHEMA) as db:
        yield db


@pytest.fixture(scope="module")
def registered(where: Any) -> Iterator[Database]:
    with connect(where, unit=user("pid", rows=3), schema=SCHEMA) as db:
        yield db.register("people")


# ---- whole numbers, the same everywhere --------------------------------------------------------------------------------

MOMENTS = "COUNT(*) AS n, COUNT(x) AS k, SUM(x) AS s, AVG(x) AS m, VARIANCE(x) AS v, SUM(age) AS a"
PLAIN = [
    f"SELECT {MOMENTS} FROM people",
    f"SELECT ward, {MOMENTS}, MEDIAN(x) AS h FROM people GROUP BY ward",
    "SELECT day, smoker, COUNT(*) AS n FROM people GROUP BY day, smoker",
    "SELECT DATE_TRUNC('hour', at) AS t, AVG(age) AS a FROM people WHERE x > -5 OR ward LIKE '%\"%' GROUP BY 1",
    "SELECT x, BUCKET(age, 7) AS b, COUNT(*) AS n FROM people GROUP BY x, BUCKET(age, 7)",
    "SELECT COUNT(*) AS n, SUM(x) AS s, MAX(x) AS h FROM empty",
    "SELECT COUNT(*) AS n, SUM(x) AS s FROM people WHERE x > 1e14",
    "SELECT x, COUNT(*) AS n FROM empty GROUP BY x",
    "SELECT w.floor, COUNT(*) AS n, SUM(p.age / 2) AS s FROM people p JOIN wards w ON p.ward = w.ward GROUP BY w.floor",
    "SELECT w.floor, COUNT(*) AS n FROM people p LEFT JOIN wards w USING (ward) WHERE YEAR(p.day) = 2024 GROUP BY 1",
    "WITH a AS (SELECT pid, x * 2 AS z FROM people WHERE age IS NOT NULL UNION ALL SELECT pid, cost FROM visits) "
    "SELECT COUNT(z) AS n, SUM(LEAST(GREATEST(z, 0), 9)) AS s FROM a",
    "SELECT ward, smoker, COUNT(*) AS n, COVAR_POP(x, age) AS c, CORR(x, age) AS r FROM people GROUP BY ROLLUP (ward, smoker)",
    "SELECT smoker, COUNT_IF(NOT age) AS d, SUM(CASE WHEN age THEN x END) AS e FROM people WHERE age OR day IS NULL GROUP BY 1",
    "SELECT p.day, w.floor > 2 AS f, COUNT(*) AS n FROM (people p JOIN wards w USING (ward)) GROUP BY CUBE (1, 2)",
]
DIFFERENT = [
    "SELECT smoker, COUNT(DISTINCT (x, ward)) AS d, COUNT(DISTINCT ward, age) FILTER (WHERE age) AS e, COUNT(*) AS n FROM "
    "people WHERE NOT age OR day IS NULL GROUP BY smoker",
    "SELECT smoker, COUNT(DISTINCT ward) AS w, COUNT(DISTINCT x) AS d, COUNT(*) AS n FROM people GROUP BY smoker",
    "SELECT COUNT(DISTINCT at) AS a, COUNT(DISTINCT day) FILTER (WHERE age > 30) AS d, COUNT(DISTINCT LOWER(ward)) AS l "
    "FROM people",
]
OF_PEOPLE = [
    "WITH a AS (SELECT pid, SUM(x) AS s, AVG(x) AS m, MIN(x) AS l, MAX(x) AS h, COUNT(x) AS n, COUNT(*) AS k FROM people "
    "GROUP BY pid) SELECT n, k, COUNT(*) AS c, SUM(LEAST(GREATEST(s, -9), 9)) AS s, AVG(m) AS m, SUM(l) AS l, SUM(h) AS h "
    "FROM a GROUP BY n, k",
    "SELECT ward, COUNT(*) AS n, AVG(s) AS s FROM (SELECT pid, ward, MAX(cost) AS s FROM visits GROUP BY pid, ward) q "
    "GROUP BY 1",
    "SELECT p.smoker, COUNT(*) AS n, SUM(v.cost) AS c FROM people p JOIN visits v ON p.pid = v.pid AND p.ward = v.ward "
    "GROUP BY 1",
    "SELECT COUNT(v.cost) AS n, SUM(p.age) AS c FROM people p LEFT JOIN visits v ON p.pid = v.pid",
]


@lru_cache
def truth(kind: str) -> Database:
    """DuckDB's own answers, to compare with."""
    unit = record() if kind == "rows" else user("pid", rows=3)
    db = connect(location("duckdb", TABLES), unit=unit, schema=SCHEMA)
    return db.register("people") if kind == "registered" else db


@cache
def expected(kind: str, query: str) -> list[Cells]:
    return [found for _, found in exact(truth(kind), query, bias=kind != "rows")]


def same(kind: str, db: Database, query: str) -> None:
    found = [cells for _, cells in exact(db, query, bias=kind != "rows")]
    assert found == expected(kind, query)
    assert any(found) or "empty" in query or "1e14" in query


@pytest.mark.parametrize("query", [query for query in PLAIN if " JOIN " not in query])
def test_a_row_is_a_unit(by_record: Database, query: str) -> None:
    same("rows", by_record, query)


@pytest.mark.parametrize("query", PLAIN + OF_PEOPLE)
def test_rows_of_a_unit_are_weighted(by_person: Database, query: str) -> None:
    same("weighted", by_person, query)


@pytest.mark.parametrize("query", PLAIN[:3] + OF_PEOPLE[2:3])
def test_registered_rows_carry_their_weight(registered: Database, query: str) -> None:
    same("registered", registered, query)
    weighted = expected("weighted", "SELECT COUNT(*) AS n FROM people")
    assert [cells for _, cells in exact(registered, "SELECT COUNT(*) AS n FROM people", bias=True)] == weighted


@pytest.mark.parametrize("query", DIFFERENT)
def test_different_values_are_counted_alike(by_record: Database, query: str) -> None:
    same("rows", by_record, query)


def test_nothing_is_known_of_no_rows(by_record: Database, by_person: Database) -> None:
    """An empty selection sums to 0, as a selection of others might."""
    for db in (by_record, by_person):
        found = db.engine.aggregate(_request(db, "SELECT COUNT(*) AS n, SUM(x) AS s FROM empty"))
        assert {"s0", "s1"} <= set(found)
        assert all([int(it) for it in column] == [0] for column in found.values())


def _request(db: Database, query: str) -> Request:
    return requests(db._price(query, 1.0, 1e-6, None, None, None))[0]


# ---- every operation of one row ----------------------------------------------------------------------------------------

NUMBERS = [
    None, 0.0, -0.0, 1.5, -2.5, 2.675, 0.1, 3.0, -7.0, 0.49999999999999994, 1e15, -1e15 + 0.5, 710.0, 1e150, 1e308, -1e308,
    5e-324, -5e-324, 1e-200, NAN, INF, -INF,
]  # fmt: skip
WHOLES = [None, 0, 1, -1, 7, -7, 2**53 + 1, 2**63 - 1, -(2**63)]
WORDS = [
    None, "", " 12 ", "12", "12.0", "-7.", "-3.7", "1e5", "1e999", "1e-999", "nan", "Infinity", "0x1A", "1_000", "9" * 19,
    "9" * 60, ".", "5.", ".5", "abc", "O'Brien", "a\\b", "a%b", "a_b", "ÀÉñ über", "日本語", "🎉 x", "  pad", "tab\t", "12\n",
    "x" * 300,
    "2024-02-29", "2023-02-29", "2023-02-30", "1900-02-29", "2000-02-29", "0000-01-01", "0001-01-01", "9999-12-31",
    "2024-1-5", "infinity", "2024-01-01 10:00", "2024-01-01T10:00:00.5", "2024-01-01 24:00:00", "2024-03-10 02:30:00",
    "true", "YES", "f", "0", "on",
]  # fmt: skip
DAYS: list[Any] = [None, DAY(2024, 2, 29), DAY(1, 1, 1), DAY(9999, 12, 31), DAY(1969, 12, 31), DAY(1900, 3, 1)]
TIMES = [
    None, MOMENT(2024, 3, 10, 2, 30), MOMENT(1969, 12, 31, 23, 59, 59, 999999), MOMENT(1, 1, 1),
    MOMENT(9999, 12, 31, 23, 59), MOMENT(2024, 11, 3, 1, 15, 7, 500000),
]  # fmt: skip
PAIRS = list(product(NUMBERS, NUMBERS))
NASTY = Table(
    {"id": "integer", "a": "number", "b": "number", "i": "integer", "j": "integer", "t": "text", "v": "text", "d": "date",
     "m": "timestamp", "f": "boolean"},
    [
        (k, a, b, WHOLES[k % 9], WHOLES[k // 9 % 9], WORDS[k % len(WORDS)], WORDS[k // 7 % len(WORDS)], DAYS[k % 6],
         TIMES[k // 5 % 6], [None, True, False][k % 3])
        for k, (a, b) in enumerate(PAIRS)
    ],
)  # fmt: skip
EXPRESSIONS = [
    "a + b", "a - b", "a * b", "a / b", "i + j", "i - j", "i * j", "i / j", "i % j", "a % b", "a ** b", "a ** 2", "i ** 2",
    "a ** 3", "i ** 3", "a ** 0", "i ** -1", "i // j", "log(a)", "log2(a)", "CASE WHEN f THEN i ELSE a END", "COALESCE(i, a)",
    "CASE WHEN f THEN 1 WHEN i = 1 THEN 0.25 END", "COALESCE(i, 2.5) % 2", "CAST(NULL AS DOUBLE)", "NULL IS NULL",
    "-a", "-i", "abs(a)", "abs(i)", "sqrt(a)", "sqrt(i)", "exp(a)", "ln(a)", "ln(i)", "floor(a)", "ceil(a)", "floor(i)",
    "sign(a)", "sign(i)", "round(a)", "round(a, 2)", "round(i, 1)", "round(a, 30)", "a // b", "greatest(a, b)",
    "least(a, i, 3)", "log(10, a)", "a = b", "a <> b", "a < b", "a <= b", "a > b", "a >= b", "i = a", "i < j", "t = v",
    "t < v", "t >= 'abc'", "d = '2024-02-29'", "d < m", "m >= '2024-01-01'", "f = true", "NOT f", "f AND a > 1",
    "f OR a > 1", "a IS NULL", "t IS NOT NULL", "f IS TRUE", "i IN (1, 7)", "t IN ('abc', 'O''Brien')", "a BETWEEN 0 AND 5",
    "t LIKE 'a%'", "t LIKE '%\\%'", "t LIKE 'a_b'", "t ILIKE 'ABC'", "CASE WHEN f THEN a ELSE i END",
    "CASE i WHEN 1 THEN 'one' WHEN 7 THEN t END", "COALESCE(a, b, 4)", "NULLIF(i, 7)", "IF(f, t, v)", "f + 1", "lower(t)",
    "upper(t)", "trim(t)", "length(t)", "substring(t, 2, 3)", "substring(t, 3)", "left(t, 2)", "t || v",
    "concat(t, 'x', v)", "t || t || t || v", "EXTRACT(YEAR FROM d)", "EXTRACT(QUARTER FROM m)", "month(d)", "day(m)",
    "hour(m)", "minute(m)", "dayofweek(d)", "EXTRACT(DOW FROM m)", "DATE_DIFF('day', d, m)", "d - DATE '2024-03-01'",
    "DATE_TRUNC('year', d)", "DATE_TRUNC('quarter', m)", "DATE_TRUNC('month', m)",
    "DATE_TRUNC('day', m)", "DATE_TRUNC('hour', m)", "DATE_TRUNC('hour', d)", "CAST(a AS BIGINT)", "CAST(i AS DOUBLE)",
    "CAST(t AS BIGINT)", "CAST(t AS DOUBLE)", "CAST(t AS BOOLEAN)", "CAST(t AS DATE)", "CAST(t AS TIMESTAMP)",
    "CAST(i AS VARCHAR)", "CAST(a AS VARCHAR)", "CAST(f AS VARCHAR)", "CAST(d AS VARCHAR)", "CAST(m AS VARCHAR)",
    "CAST(m AS DATE)", "CAST(d AS TIMESTAMP)", "CAST(a AS BOOLEAN)", "CAST(i AS BOOLEAN)", "CAST(f AS BIGINT)",
    "CASE WHEN f THEN a END", "bucket(least(greatest(a, -5), 5), 4)", "sqrt(a * a + b * b) - abs(a) * exp(b / 100)",
]  # fmt: skip
CURVED = ("exp", "ln", "log", "**", "%")  # as exact as the engine's own function of a double


def nasty() -> Base:
    return Base("nasty", tuple(NASTY.columns), tuple(Field(kind) for kind in NASTY.columns.values()), False)


def read(text: str) -> Scalar:
    table = nasty()
    return scalar(sqlglot.parse_one(text, read="duckdb"), Scope((("nasty", table.names, table.fields),)))


def values(db: Database) -> dict[str, list[Any]]:
    """Every expression for every row, straight from the engine."""
    outputs = (read("id"), *map(read, EXPRESSIONS))
    text = db.engine._writer.relation(Select(nasty(), (), None, tuple(map(str, range(len(outputs)))), outputs, False))
    rows = sorted(_rows(db.engine, text))
    assert [row[0] for row in rows] == list(range(len(PAIRS)))
    return dict(zip(EXPRESSIONS, [list(column) for column in zip(*rows)][1:]))


def _rows(engine: Any, text: str) -> list[tuple[Any, ...]]:
    if engine.name == "duckdb":
        return list(engine._run(text))
    if engine.name == "PostgreSQL":
        with engine._reading() as cursor:
            return list(cursor.execute(text).fetchall())
    return [tuple(row) for row in engine._session.sql(text).collect()]


@lru_cache
def true_values() -> dict[str, list[Any]]:
    return values(opened("duckdb", {"nasty": NASTY}, None, record(), None))


@pytest.fixture(scope="module")
def found_values(engine: str, url: str | None) -> dict[str, list[Any]]:
    with opened(engine, {"nasty": NASTY}, aside(url), record(), None) as db:
        return values(db)


def aside(url: str | None) -> str | None:
    """Another schema of the same database."""
    return url and f"{url}&options=-csearch_path%3Daside"


def test_every_operation_is_tried() -> None:
    tried: set[str] = set()

    def walk(it: Scalar) -> None:
        tried.add(it.op)
        for arg in it.args:
            walk(arg)

    for text in EXPRESSIONS:
        walk(read(text))
    known = set(_OPERATIONS) | {name[3:] for name in dir(Writer) if name.startswith("op_")}
    assert known - tried == set()


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_operations_mean_the_same(found_values: dict[str, list[Any]], text: str) -> None:
    """Exactly for ordinary numbers; beyond, where engines know infinity or not, they only must not fail."""
    ordinary = 0
    for (_, a, b, *_), found, right in zip(NASTY.rows, found_values[text], true_values()[text], strict=True):
        if all(it is None or not math.isfinite(it) or it == 0 or 1e-15 < abs(it) < 1e16 for it in (a, b)):
            ordinary += 1
            if text == "a % b" and found is not None and right is not None:  # PostgreSQL has no exact one of doubles
                found = right if abs(a / b) > 1e9 or math.isclose(abs(found - right), abs(b), rel_tol=1e-6) else found
            assert _alike(found, right, text), f"{text} of {a}, {b}: {found!r}, and DuckDB says {right!r}"
    assert ordinary > 100


def _alike(found: Any, right: Any, text: str) -> bool:
    if text == "CAST(a AS VARCHAR)" and None not in (found, right):
        return float(found) == float(right)  # each spells numbers in its own way
    if isinstance(right, float) and isinstance(found, float) and any(word in text for word in CURVED):
        return math.isclose(found, right, rel_tol=1e-9, abs_tol=1e-7)
    return bool(found == right) and (found is None) == (right is None)


def test_texts_are_read_as_python_reads_them() -> None:
    for text, day, moment in zip(NASTY.rows, true_values()["CAST(t AS DATE)"], true_values()["CAST(t AS TIMESTAMP)"]):
        word = (text[5] or "").strip(" ")
        iso = len(word) == 10 and word.count("-") == 2
        assert day == (_or_none(DAY.fromisoformat, word) if iso else None)
        assert moment == (_or_none(MOMENT.fromisoformat, word) if len(word) >= 10 and word[:4].isdigit() else None)


def _or_none(f: Callable[[str], Any], text: str) -> Any:
    try:
        return f(text)
    except ValueError:
        return None


BEYOND = [
    "SELECT d, COUNT(*) AS n FROM far GROUP BY d",
    "SELECT DATE_TRUNC('month', d) AS m, DATE_TRUNC('hour', d) AS h, COUNT(*) AS n FROM far GROUP BY 1, 2",
    "SELECT CAST(d AS TIMESTAMP) AS t, COUNT(*) AS n FROM far WHERE d > '2000-01-01' OR d < CAST('2000-01-01' AS TIMESTAMP) "
    "GROUP BY 1",
    "SELECT SUM(YEAR(d)) AS y, SUM(MONTH(d)) AS m, SUM(DAYOFWEEK(d)) AS w FROM far",
    "SELECT SUM(LEAST(GREATEST(DATE_DIFF('day', d, DATE '1970-01-31'), -99), 99)) AS n FROM far",
]


def test_days_beyond_the_calendar(engine: str, url: str | None) -> None:
    """Dates reach further than timestamps, and than Python's; a row that holds such a date must not make a query fail."""
    days = pa.array([2_000_000_000, -1_500_000_000, 10, None], pa.int32())  # days after 1970-01-01
    table = pa.table({"d": days.cast(pa.date32())})
    right = connect({"far": table}, unit=record())
    it: Any = {"far": table}
    if engine == "postgres":
        with psycopg_link(url) as link:
            link.execute("CREATE SCHEMA far CREATE TABLE far (d date)")
            link.execute("INSERT INTO far.far VALUES ('5477784-01-06'), ('4713-01-01 BC'), ('1970-01-11'), (NULL)")
        it = f"{url}&options=-csearch_path%3Dfar"
    elif engine == "spark":
        rows = ", ".join("(NULL)" if day is None else f"({day})" for day in days.to_pylist())
        it = {"far": spark.session().sql(f"SELECT date_add(DATE '1970-01-01', x) AS d FROM VALUES {rows} AS t(x)")}
    declared = {"far": {"rows": 1, "depends_on_one_unit": True}} if engine == "spark" else None  # Spark computes the dates
    with connect(it, unit=record(), schema=declared) as db:
        for query in BEYOND[: 3 if engine == "postgres" else None]:
            assert [cells for _, cells in exact(db, query)] == [cells for _, cells in exact(right, query)]


def psycopg_link(url: str | None) -> Any:
    import psycopg

    return psycopg.connect(str(url), autocommit=True)


def test_keys_of_one_kind_only() -> None:
    tables = {"a": Table({"id": "integer"}, [(1,)]), "b": Table({"id": "number"}, [(1.0,)])}
    with pytest.raises(InvalidValue, match="id is compared as whole in a and as double in b"):
        opened("duckdb", tables, None, user("id", rows=1), None)


def test_texts_do_not_grow_without_end(engine: str, url: str | None) -> None:
    """Engines fail on texts of gigabytes, and that a text is long is private."""
    table = Table({"id": "integer", "t": "text"}, [(1, "é" * 70_000), (2, "a")])
    again = "SELECT id, t || t || t AS t FROM "
    query = again + "t1"
    for _ in range(8):
        query = f"{again}({query}) q"
    with opened(engine, {"t1": table}, aside(url), record(), None) as db:
        lengths = "SELECT LENGTH(t) AS n, COUNT(*) AS c FROM"
        assert [cells for _, cells in exact(db, f"{lengths} ({query}) p GROUP BY LENGTH(t)")] == [{(65536,): 1, (3**9,): 1}]


def test_expressions_do_not_grow_without_end(by_record: Database) -> None:
    inner = "x"
    for _ in range(60):
        inner = f"({inner}) ** ({inner})" if len(inner) < 2_000 else f"ROUND({inner}, 1) ** 0.5"
    with pytest.raises(InvalidQuery, match=r"nested|grows to more than"):
        by_record.explain(f"SELECT COUNT(*) AS n FROM people WHERE {inner} > 1", epsilon=1.0)


# ---- from end to end ---------------------------------------------------------------------------------------------------


def test_answers_and_prices(where: Any, tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("clinic", unit=user("pid", rows=3), epsilon=1000.0, delta=1e-6)
        with connect(where, unit=user("pid", rows=3), schema=SCHEMA, ledger=ledger, source="clinic") as db:
            query = "SELECT smoker, COUNT(*) AS n, AVG(age) AS a, MEDIAN(x) AS m FROM people GROUP BY smoker"
            keys = {"smoker": [True, False, None]}
            told = db.explain(query, epsilon=90.0, keys=keys)
            assert told.epsilon == pytest.approx(90.0)
            assert "weigh at most 3" in str(told)
            assert told.sql[0].startswith("SELECT")
            release = db.sql(query, epsilon=90.0, keys=keys)
            table = release.value.to_pydict()
            assert table["smoker"] == keys["smoker"]
            weights = {key: value / 2**20 for (key,), value in expected("weighted", query)[0].items()}
            for key, count in zip(table["smoker"], table["n"]):
                assert abs(count - weights[key]) < 10  # noise of scale below 0.2: beyond with probability below 1e-20
            again = db.sql(query, epsilon=90.0, keys=keys)
            assert again.value.to_pydict() == table
            assert again.entry == release.entry, "a question asked again is not paid again"
            people = db.sql("SELECT COUNT(DISTINCT pid) AS n FROM people", epsilon=50.0).value.to_pydict()
            assert abs(people["n"][0] - 11) < 5  # noise of scale 1/50
        assert len([entry for entry in ledger.history() if entry.kind == "reserve"]) == 2
