"""Queries that try to get more than private answers: all are refused before anything is read or spent."""

from __future__ import annotations

import random
import traceback
from pathlib import Path

import pyarrow as pa
import pytest
import sqlglot

from discreet import Ledger, connect, record, user
from discreet.errors import DiscreetError, InvalidQuery
from discreet.query import Database

HOSTILE = """
DROP TABLE people
DELETE FROM people
INSERT INTO people VALUES (1, 'A', 1, DATE '2020-01-01')
UPDATE people SET age = 0
CREATE TABLE stolen AS SELECT * FROM people
CREATE VIEW v AS SELECT * FROM people
ALTER TABLE people ADD COLUMN x INT
TRUNCATE people
COPY people TO '/tmp/stolen.csv'
COPY (SELECT * FROM people) TO '/tmp/stolen.parquet' (FORMAT parquet)
EXPORT DATABASE '/tmp/stolen'
ATTACH '/tmp/other.db' AS other
DETACH people
INSTALL httpfs
LOAD httpfs
PRAGMA database_list
SET enable_external_access = true
RESET enable_external_access
CALL pragma_version()
EXPLAIN ANALYZE SELECT COUNT(*) FROM people
DESCRIBE people
SHOW TABLES
SELECT 1; DROP TABLE people
SELECT COUNT(*) FROM people; SELECT COUNT(*) FROM people
SELECT * FROM people
SELECT age FROM people
SELECT patient_id, COUNT(*) AS n FROM people GROUP BY patient_id ORDER BY age
SELECT ANY_VALUE(age) FROM people
SELECT FIRST(age) FROM people
SELECT LIST(age) FROM people
SELECT STRING_AGG(ward, ',') FROM people
SELECT ARRAY_AGG(age) FROM people
SELECT ARG_MAX(ward, age) FROM people
SELECT MODE(age) FROM people
SELECT BIT_XOR(age) FROM people
SELECT PRODUCT(age) FROM people
SELECT COUNT(*) OVER () FROM people
SELECT SUM(age) OVER (PARTITION BY ward) FROM people
SELECT ROW_NUMBER() OVER () FROM people
SELECT COUNT(*) FROM people QUALIFY ROW_NUMBER() OVER () = 1
SELECT COUNT(*) FROM read_csv('/etc/passwd')
SELECT COUNT(*) FROM read_parquet('people.parquet')
SELECT COUNT(*) FROM read_text('/etc/passwd')
SELECT COUNT(*) FROM '/etc/passwd'
SELECT COUNT(*) FROM glob('/*')
SELECT COUNT(*) FROM 'https://example.org/x.parquet'
SELECT COUNT(*) FROM sqlite_scan('x.db', 't')
SELECT COUNT(*) FROM postgres_scan('', 'public', 't')
SELECT COUNT(*) FROM range(10)
SELECT COUNT(*) FROM duckdb_settings()
SELECT COUNT(*) FROM information_schema.tables
SELECT COUNT(*) FROM sqlite_master
SELECT COUNT(*) FROM other.people
SELECT COUNT(*) FROM people TABLESAMPLE 10%
SELECT COUNT(*) FROM (VALUES (1), (2)) AS t(x)
SELECT COUNT(*) FROM people, wards
SELECT COUNT(*) FROM people CROSS JOIN wards
SELECT COUNT(*) FROM people NATURAL JOIN wards
SELECT COUNT(*) FROM people p RIGHT JOIN wards w ON p.ward = w.ward
SELECT COUNT(*) FROM people p FULL JOIN wards w ON p.ward = w.ward
SELECT COUNT(*) FROM wards w LEFT JOIN people p ON p.ward = w.ward
SELECT COUNT(*) FROM people p ANTI JOIN wards w ON p.ward = w.ward
SELECT COUNT(*) FROM people a JOIN people b ON a.age = b.age
SELECT COUNT(*) FROM people a JOIN people b ON a.patient_id < b.patient_id
SELECT COUNT(*) FROM people a JOIN people b ON a.patient_id = b.patient_id OR TRUE
SELECT COUNT(*) FROM people a JOIN people b ON a.patient_id = b.patient_id + 1
SELECT COUNT(*) FROM people WHERE age = (SELECT MAX(age) FROM people)
SELECT COUNT(*) FROM people WHERE age IN (SELECT age FROM people)
SELECT COUNT(*) FROM people WHERE EXISTS (SELECT 1 FROM people)
SELECT COUNT(*) FROM people WHERE age > ALL (SELECT age FROM people)
SELECT (SELECT COUNT(*) FROM people) FROM people
SELECT COUNT(*) FROM (SELECT * FROM people LIMIT 1)
SELECT COUNT(*) FROM (SELECT * FROM people ORDER BY age LIMIT 1) t
SELECT COUNT(*) FROM (SELECT DISTINCT ward FROM people) t
SELECT COUNT(*) FROM (SELECT ward, SUM(age) AS s FROM people GROUP BY ward) t
SELECT COUNT(*) FROM (SELECT patient_id, COUNT(*) AS n FROM people GROUP BY patient_id HAVING COUNT(*) > 3) t
SELECT COUNT(*) FROM (SELECT patient_id FROM people UNION SELECT patient_id FROM people) t
SELECT COUNT(*) FROM (SELECT patient_id FROM people EXCEPT SELECT patient_id FROM people WHERE age > 3) t
SELECT COUNT(*) FROM (SELECT patient_id FROM people INTERSECT SELECT patient_id FROM people) t
SELECT COUNT(*) FROM people UNION ALL SELECT COUNT(*) FROM people
WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT COUNT(*) FROM t
SELECT SUM(DISTINCT age) FROM people
SELECT SUM(salary) FROM people
SELECT SUM(patient_id) FROM people
SELECT AVG(age / (age - 50)) FROM people
SELECT SUM(error('boom')) FROM people
SELECT COUNT(*) FROM people WHERE error('boom')
SELECT COUNT(*) FROM people WHERE getenv('HOME') = 'x'
SELECT COUNT(*) FROM people WHERE current_setting('threads') = '1'
SELECT COUNT(*) FROM people WHERE random() < 0.5
SELECT COUNT(*) FROM people WHERE nextval('s') > 0
SELECT COUNT(*) FROM people WHERE regexp_matches(ward, '(a+)+$')
SELECT COUNT(*) FROM people WHERE ward LIKE ward
SELECT COUNT(*) FROM people WHERE sleep(10) = 1
SELECT COUNT(*) FROM people WHERE pg_read_file('/etc/passwd') IS NOT NULL
SELECT COUNT(*) FROM people WHERE list_aggregate([age], 'sum') > 1
SELECT COUNT(*) FROM people WHERE CAST(age AS BLOB) IS NULL
SELECT COUNT(*) FROM people WHERE CAST(age AS INTEGER[]) IS NULL
SELECT COUNT(*) FROM people WHERE age = ANY([1, 2])
SELECT COUNT(*) FROM people WHERE struct_pack(a := age).a = 1
SELECT COUNT(*) FROM people WHERE list_transform([1], x -> x + age) IS NULL
SELECT COUNT(*) FROM people WHERE age = $1
SELECT COUNT(*) FROM people WHERE age = ?
SELECT COUNT(*) FROM people WHERE rowid = 0
SELECT COUNT(*) FROM people WHERE "discreet weight" = 1
SELECT COUNT(*) FROM people FOR UPDATE
SELECT COUNT(*) INTO stolen FROM people
SELECT QUANTILE(age, age) FROM people
SELECT QUANTILE(age, 1.5) FROM people
SELECT COUNT(*) FROM people LIMIT (SELECT age FROM people)
SELECT COUNT(*) AS n FROM people ORDER BY age
SELECT COUNT(*) AS n FROM people HAVING age > 3
SELECT ward, COUNT(*) FROM people
PIVOT people ON ward USING SUM(age)
FROM people
not sql at all (
""".strip().splitlines()

TABLE = pa.table(
    {"patient_id": [1, 1, 2, 3], "ward": ["A", "B", "A", "A"], "age": [30, 31, 50, 60], "salary": [1.0, 2.0, 3.0, 4.0]}
)
WARDS = pa.table({"ward": ["A", "B"], "floor": [1, 2]})


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Database, Ledger]:
    unit = user("patient_id", rows=2)
    ledger = Ledger(tmp_path_factory.mktemp("hostile") / "ledger.db")
    ledger.open("people", unit=unit, epsilon=1.0, delta=1e-6)
    tables = {"people": TABLE, "wards": WARDS}
    schema = {"wards": {"public": True}}
    return connect(tables, unit=unit, bounds={"age": (0, 120)}, schema=schema, ledger=ledger, source="people"), ledger


@pytest.mark.parametrize("query", HOSTILE)
def test_hostile_queries_get_nowhere(query: str, asked: tuple[Database, Ledger]) -> None:
    db, ledger = asked
    with pytest.raises(InvalidQuery) as told:
        db.sql(query, epsilon=0.01, delta=1e-9)
    assert ledger.spent("people") == 0
    assert len(str(told.value)) < 600
    with pytest.raises(InvalidQuery):
        db.explain(query, epsilon=0.01, delta=1e-9)


def test_there_are_many() -> None:
    assert len(set(HOSTILE)) >= 60


def test_deep_and_long_queries_are_refused(asked: tuple[Database, Ledger]) -> None:
    db, _ = asked
    deep = "SELECT COUNT(*) FROM people WHERE " + "(" * 3_000 + "TRUE" + ")" * 3_000
    sums = "SELECT SUM(" + " + ".join(["age"] * 3_000) + ") FROM people"
    nested = "SELECT COUNT(*) FROM " + "(SELECT * FROM " * 60 + "people" + ") t" * 60
    for query in (deep, sums, nested, "SELECT COUNT(*) FROM people WHERE ward = '" + "x" * 200_000 + "'"):
        with pytest.raises(InvalidQuery):
            db.sql(query, epsilon=0.01)


def test_names_and_texts_are_only_names_and_texts(tmp_path: Path) -> None:
    table = pa.table({'we"ird; DROP TABLE x --': [1, 2], "t": ["it's", "'; DROP TABLE people; --"]})
    unit = user('we"ird; DROP TABLE x --', rows=1)
    with connect({'ta"ble': table}, unit=unit) as db:
        found = db.sql("""SELECT COUNT(*) AS n FROM "ta""ble" WHERE t = '''; DROP TABLE people; --'""", epsilon=50)
        assert found.value["n"][0].as_py() == pytest.approx(1, abs=0.9)
        assert db.sql("""SELECT COUNT(*) AS n FROM "ta""ble" WHERE t LIKE 'it''%'""", epsilon=50).value.num_rows == 1


def test_the_engine_itself_opens_nothing_else(tmp_path: Path) -> None:
    import duckdb

    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    own = tmp_path / "own.csv"
    own.write_text("age\n1\n")
    with connect(own, unit=user("age", rows=1), schema={"own": {"age": {"type": "integer"}}}) as db:
        link = db.engine._link  # type: ignore[attr-defined]
        for text in (
            f"SELECT * FROM read_csv('{secret}')", f"COPY (SELECT 1) TO '{tmp_path / 'out.csv'}'", "INSTALL httpfs",
            f"ATTACH '{tmp_path / 'x.db'}'", "SET enable_external_access = true", "SET allowed_paths = ['/']",
        ):  # fmt: skip
            with pytest.raises(duckdb.Error):
                link.execute(text).fetchall()
        assert not (tmp_path / "out.csv").exists()


NASTY = [
    "age / (age - 30)", "age % (age - 30)", "SQRT(age - 50)", "LN(age - 50)", "EXP(age * 100)", "POWER(age - 50, 0.5)",
    "POWER(age, 999)", "CAST(ward AS DOUBLE)", "CAST(ward AS BIGINT)", "CAST(age * 1e14 AS BIGINT)", "age * 1e14 * 1e14 * 1e14",
    "CAST(ward AS DATE) IS NULL", "LOG10(age - 50)", "age // (age - 30)", "ROUND(age, 2)", "SIGN(age)", "100 - age",
]  # fmt: skip


@pytest.mark.parametrize("expression", NASTY)
def test_no_error_depends_on_a_value(expression: str, asked: tuple[Database, Ledger]) -> None:
    """Divisions by zero, overflows and casts give NULL, whatever is in the rows."""
    with connect({"people": TABLE}, unit=user("patient_id", rows=2), bounds={"age": (0, 120)}) as db:
        clipped = expression if "IS NULL" in expression else f"LEAST(GREATEST({expression}, 0), 100)"
        statistic = f"COUNT({clipped})" if "IS NULL" in expression else f"SUM({clipped})"
        found = db.sql(f"SELECT {statistic} AS s FROM people", epsilon=1.0)
        assert found.value.num_rows == 1
        assert abs(found.value["s"][0].as_py()) < 1e6


PARTS = [
    "i", "g", "x", "f", "d", "i // 2", "g || 'x'", "-i", "(i, g)", "g[1]", "NOT f", "$1", "*", "i ** 2", "i ^ 2",
    "x::DECIMAL(3, 1)", "x AT TIME ZONE 'UTC'", "INTERVAL 1 DAY", "z -> z + 1", "COLUMNS(*)", "i IN (SELECT i FROM t)",
    "{'a': i}", "MAP {1: 2}", "EXISTS(SELECT 1)", "b'1'", "1e400", "CASE WHEN f THEN i END", "i ISNULL", "TRY_CAST(g AS INT)",
    "g ~ 'a'",
]  # fmt: skip
CALLS = ["COUNT", "SUM", "AVG", "MIN", "MEDIAN", "STDDEV", "QUANTILE", "CORR", "COUNT_IF", "PERCENTILE_CONT"]
AROUND = ["", "", "", " FILTER (WHERE f)", " OVER ()", " WITHIN GROUP (ORDER BY x)", " OVER (PARTITION BY g)"]
RESTS = [
    "",
    " WHERE {}",
    " GROUP BY {}",
    " GROUP BY ROLLUP ({})",
    " GROUP BY g HAVING {} > 1",
    " GROUP BY g ORDER BY {} DESC LIMIT 1",
]


def made_up(draw: random.Random) -> str:
    """A query of parts that may not fit together."""
    functions = [*CALLS, *draw.sample(sorted(sqlglot.exp.FUNCTION_BY_NAME), 10)]

    def part(depth: int) -> str:
        if depth > 2 or draw.random() < 0.5:
            return draw.choice(PARTS)
        if draw.random() < 0.4:
            return f"{part(depth + 1)} {draw.choice(['+', '/', '//', '%', '||', '=', 'AND', 'IS', 'LIKE'])} {part(depth + 1)}"
        return call(depth + 1, draw.choice(functions))

    def call(depth: int, name: str) -> str:
        inner = ", ".join(part(depth) for _ in range(draw.choice([0, 1, 1, 1, 2, 3])))
        return f"{name}({draw.choice(['', '', 'DISTINCT '])}{inner}){draw.choice(AROUND)}"

    shown = ", ".join(call(0, draw.choice(CALLS)) for _ in range(draw.choice([1, 1, 2])))
    return f"SELECT {shown} FROM t{draw.choice(RESTS).format(part(0))}"


@pytest.mark.parametrize("seed", range(4))
def test_no_error_but_ours_comes_of_any_query(seed: int) -> None:
    """sqlglot writes a part of a query again to read it in another dialect, and fails in its own ways; some of its readers too.
    What no rule of ours foresaw would be told as a part that cannot be read: it must have come from sqlglot's reader."""
    table = pa.table({"i": [1, 2], "g": ["a", "b"], "x": [1.0, None], "f": [True, None], "d": pa.array([1, 2], pa.date32())})
    draw = random.Random(seed)
    told = []
    with connect({"t": table}, unit=record(), bounds={"x": (0, 5), "i": (0, 9)}) as db:
        for query in (made_up(draw) for _ in range(200)):
            try:
                db.explain(query, epsilon=1.0, delta=1e-6)
            except DiscreetError as error:
                told.append((query, error))
    assert len(told) > 100
    for query, error in told:
        frames = traceback.extract_tb(error.__cause__.__traceback__) if error.__cause__ else []
        assert not frames or "sqlglot" in frames[-1].filename, query
        assert "\x1b" not in str(error), query


@pytest.mark.parametrize("query", ["SELECT COUNT(DISTINCT i // 2, i) AS n FROM t", "SELECT COUNT(DISTINCT i // 2, -i) FROM t"])
def test_what_sqlglot_cannot_write_is_answered_all_the_same(query: str) -> None:
    with connect({"t": pa.table({"i": range(40)})}, unit=record()) as db:
        assert db.sql(query, epsilon=50.0).value.column(0).to_pylist()[0] == pytest.approx(40, abs=2)
