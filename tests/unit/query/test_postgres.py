"""PostgreSQL under private SQL: it only reads, no value makes it fail, and no error tells anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import postgres
from discreet import Ledger, connect, record, user
from discreet.errors import EngineFailed, EngineUnreachable, InvalidQuery, InvalidValue
from discreet.query import Database

psycopg = pytest.importorskip("psycopg")
STRANGE = """
CREATE DOMAIN amount AS numeric;
CREATE DOMAIN fee AS amount CHECK (VALUE IS NULL OR VALUE > -1e500);
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TABLE "Odd ""one" (
    "Id" uuid, n numeric, small real, f fee, m mood, c char(5), v varchar(9), d date, t timestamp, z timestamptz, j jsonb, a int[],
    s smallint, b boolean
);
INSERT INTO "Odd ""one" VALUES
    ('00000000-0000-0000-0000-000000000001', 'NaN', 'NaN', 1e400, 'ok', 'ab', 'é', 'infinity', 'infinity', 'infinity', '{}', '{1}', 1, true),
    ('00000000-0000-0000-0000-000000000001', 1e-400, 1e38, 1e-300, 'sad', '', '', '-infinity', '-infinity', '-infinity', null, null, -1, false),
    ('00000000-0000-0000-0000-000000000002', -1e4000, 1e-45, 0, 'ok', null, null, '4713-01-01 BC', '4713-01-01 BC', '4713-01-01 BC', null, null, 0, null),
    ('00000000-0000-0000-0000-000000000002', 5.5, -0.0, 7, 'ok', 'x', 'x', '5874897-12-31', '294276-12-31', '294276-12-31', null, null, 0, null),
    (null, 12345678901234567890.123456789, 'Infinity', -5, null, 'x', 'x', '2024-02-29', '2024-02-29 12:30', '2024-02-29 12:30+02', null, null, 0, null);
"""  # noqa: E501


@pytest.fixture
def link(postgres_url: str) -> Iterator[Any]:
    with psycopg.connect(postgres_url, autocommit=True) as made:
        yield made


@pytest.fixture
def people(link: Any, postgres_url: str) -> Iterator[Database]:
    link.execute("CREATE TABLE people (id bigint, x double precision)")
    link.execute("INSERT INTO people SELECT i % 10, i FROM generate_series(1, 100) AS i")
    with connect(postgres_url, unit=user("id", rows=2), bounds={"x": (0, 100)}) as db:
        yield db


def test_strange_types_are_known_or_left_out(link: Any, postgres_url: str) -> None:
    link.execute(STRANGE)
    with connect(postgres_url, unit=user("Id", rows=2), bounds={"n": (0, 10), "f": (0, 10), "small": (0, 10)}) as db:
        assert db.tables() == {
            'Odd "one': {
                "Id": "text", "n": "number", "small": "number", "f": "number", "m": "text", "c": "text", "v": "text",
                "d": "date", "t": "timestamp", "z": "timestamp", "s": "integer", "b": "boolean",
            }
        }  # fmt: skip


EVERYTHING = [
    'SELECT COUNT(n) AS a, SUM(n) AS b, SUM(f) AS c, AVG(small) AS d, VARIANCE(n) AS e FROM "Odd ""one"',
    'SELECT d, t, z, COUNT(*) AS k FROM "Odd ""one" GROUP BY d, t, z',
    "SELECT m, c, v, n, COUNT(*) AS k FROM \"Odd \"\"one\" WHERE c >= '' OR v LIKE '%\\' GROUP BY m, c, v, n",
    'SELECT YEAR(d) AS y, MONTH(t) AS mo, HOUR(z) AS h, COUNT(*) AS k FROM "Odd ""one" GROUP BY YEAR(d), MONTH(t), HOUR(z)',
    "SELECT DATE_TRUNC('month', d) AS y, DATE_TRUNC('year', t) AS z, COUNT(*) AS k FROM \"Odd \"\"one\" GROUP BY 1, 2",
    'SELECT CAST(d AS VARCHAR) AS y, CAST(t AS DATE) AS z, CAST(z AS VARCHAR) AS w FROM "Odd ""one" GROUP BY 1, 2, 3',
    'SELECT COUNT(*) AS k FROM "Odd ""one" WHERE d < t OR n * f / small > 1 OR EXP(n) ** f < small % n OR ROUND(f) > SQRT(n)',
    'SELECT SUM(LEAST(GREATEST(q, 0), 1)) AS s FROM (SELECT "Id", SUM(n * n * n) AS q FROM "Odd ""one" GROUP BY "Id") x',
]


@pytest.mark.parametrize("unit", [record(), user("Id", rows=1)], ids=["record", "user"])
def test_no_value_makes_it_fail(link: Any, postgres_url: str, unit: Any) -> None:
    link.execute(STRANGE)
    with connect(postgres_url, unit=unit, bounds={"n": (0, 10), "f": (0, 10), "small": (0, 10)}) as db:
        for query in EVERYTHING[: None if unit.key else -1]:
            db.sql(query, epsilon=1.0, delta=1e-6)


def test_it_cannot_write(people: Database, link: Any) -> None:
    engine: Any = people.engine
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        engine._link.execute("DELETE FROM public.people")
    with pytest.raises(EngineFailed), engine._reading() as cursor:
        cursor.execute("DELETE FROM public.people")
    assert link.execute("SELECT count(*) FROM people").fetchone() == (100,)


def test_errors_of_the_server_stay_with_the_owner(people: Database, link: Any) -> None:
    link.execute("ALTER TABLE people RENAME x TO secret_column")
    people.engine.ready = lambda tables: None  # type: ignore[method-assign]
    with pytest.raises(EngineFailed) as caught:
        people.sql("SELECT SUM(x) AS s FROM people", epsilon=1.0)
    assert "column" not in str(caught.value)
    assert isinstance(caught.value.__cause__, psycopg.Error)


@pytest.mark.parametrize("url", ["postgresql://me:hunter2@127.0.0.1:1/db", "postgresql://me:hunter%zz2@127.0.0.1:1/db"])
def test_a_password_is_never_told(url: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        connect(url, unit=record())
    assert "hunter" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_text_that_is_not_utf8_is_refused(postgres_server: str) -> None:
    options = "ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    with postgres.database(postgres_server, options) as url, pytest.raises(InvalidValue, match="SQL_ASCII"):
        connect(url, unit=record())


def test_only_tables_that_may_be_read_are_seen(link: Any, postgres_url: str) -> None:
    link.execute(
        "CREATE TABLE open (id bigint); CREATE TABLE shut (id bigint); CREATE ROLE reader LOGIN; GRANT SELECT ON open TO reader"
    )
    try:
        with connect(postgres_url.replace("tests@", "reader@"), unit=record()) as db:
            assert list(db.tables()) == ["open"]
            assert abs(db.sql("SELECT COUNT(*) AS n FROM open", epsilon=10.0).value.to_pydict()["n"][0]) < 10
    finally:
        link.execute("DROP OWNED BY reader; DROP ROLE reader")


def test_registering_makes_only_a_temporary_table(people: Database, link: Any) -> None:
    people.register()
    assert link.execute(
        "SELECT count(*) FROM pg_class WHERE relname LIKE 'discreet%' AND relpersistence <> 't'"
    ).fetchone() == (0,)
    assert abs(people.sql("SELECT COUNT(*) AS n FROM people", epsilon=50.0).value.to_pydict()["n"][0] - 20) < 2  # scale 0.04


def test_registering_needs_the_right_to(link: Any, postgres_url: str) -> None:
    name = postgres_url.split("/")[3].split("?")[0]
    link.execute(f"CREATE TABLE people (id bigint); REVOKE TEMPORARY ON DATABASE {name} FROM PUBLIC")
    link.execute("CREATE ROLE reader LOGIN; GRANT SELECT ON people TO reader")
    try:
        with connect(postgres_url.replace("tests@", "reader@"), unit=user("id", rows=2)) as db, \
                pytest.raises(InvalidValue, match="GRANT TEMPORARY"):  # fmt: skip
            db.register()
    finally:
        link.execute("DROP OWNED BY reader; DROP ROLE reader")


def test_a_lost_session_comes_back_with_what_was_registered(people: Database, link: Any) -> None:
    people.register()
    engine: Any = people.engine
    link.execute(f"SELECT pg_terminate_backend({engine._link.info.backend_pid})")
    assert abs(people.sql("SELECT COUNT(*) AS n FROM people", epsilon=50.0).value.to_pydict()["n"][0] - 20) < 2


def test_the_fingerprint_does_not_tell_that_rows_changed(people: Database, link: Any, postgres_url: str) -> None:
    before = people.engine.fingerprint()
    link.execute("DELETE FROM people WHERE id = 3")
    with connect(postgres_url, unit=record(), bounds={"x": (0, 100)}) as db:
        assert db.engine.fingerprint() == before
    link.execute("DROP TABLE people; CREATE TABLE people (id bigint, x double precision)")
    with connect(postgres_url, unit=record(), bounds={"x": (0, 100)}) as db:
        assert db.engine.fingerprint() != before


def test_names_in_quotes_are_names_of_their_own(link: Any, postgres_url: str) -> None:
    link.execute('CREATE TABLE wards (id bigint, "ID" bigint, x float8); CREATE TABLE "Wards" (id bigint, "X" float8)')
    link.execute("INSERT INTO wards SELECT i, 1, 1 FROM generate_series(1, 50) AS i")
    with connect(postgres_url, unit=user("id", rows=1), schema={"wards": {"x": {"bounds": [0, 1]}}}) as db:
        assert set(db.tables()) == {"wards", "Wards"}
        whole = [(name, _first(db, f"SELECT COUNT(*) AS n FROM {name}")) for name in ("WARDS", "wards", '"wards"', '"Wards"')]
        assert [count for _, count in whole] == pytest.approx([50, 50, 50, 0], abs=2)  # noise of scale 1/50
        assert _first(db, 'SELECT COUNT(DISTINCT "ID") AS n FROM wards') == pytest.approx(1, abs=2), "of another column"
        assert _first(db, 'SELECT COUNT("ID") AS n FROM Wards w WHERE W.X = 1') == pytest.approx(50, abs=2)
        for what in ('COUNT("X") AS n FROM wards', 'COUNT(x) AS n FROM "Wards"', 'COUNT(*) AS n FROM "WARDS"'):
            with pytest.raises(InvalidQuery):
                db.sql(f"SELECT {what}", epsilon=1.0)
    with pytest.raises(InvalidValue, match="no column Id"):
        connect(postgres_url, unit=user("Id", rows=1))
    with pytest.raises(InvalidValue, match="Did you mean x"):
        connect(postgres_url, unit=record(), schema={"wards": {"X": {"bounds": [0, 1]}}})


def _first(db: Database, query: str) -> float:
    return float(db.sql(query, epsilon=50.0).value["n"][0].as_py())


DERIVED = {
    "view": "CREATE VIEW d AS SELECT * FROM people",
    "materialised view": "CREATE MATERIALIZED VIEW d AS SELECT * FROM people",
    "child of another": "CREATE TABLE d () INHERITS (people)",
    "row-level security": "CREATE TABLE d (id bigint); ALTER TABLE d ENABLE ROW LEVEL SECURITY",
}


@pytest.mark.parametrize("told", DERIVED)
def test_what_is_no_base_table_is_refused(link: Any, postgres_url: str, told: str) -> None:
    link.execute(f"CREATE TABLE people (id bigint); {DERIVED[told]}; CREATE ROLE reader LOGIN")
    link.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    try:
        with connect(postgres_url.replace("tests@", "reader@"), unit=record()) as db:
            assert list(db.tables()) == ["people"]
            with pytest.raises(InvalidQuery, match=told):
                db.sql("SELECT COUNT(*) AS n FROM d", epsilon=1.0)
    finally:
        link.execute("DROP OWNED BY reader; DROP ROLE reader")


def test_a_partitioned_table_is_asked_as_a_whole(link: Any, postgres_url: str) -> None:
    link.execute("CREATE TABLE people (id bigint) PARTITION BY HASH (id)")
    for part in (0, 1):
        link.execute(f"CREATE TABLE part{part} PARTITION OF people FOR VALUES WITH (MODULUS 2, REMAINDER {part})")
    link.execute("INSERT INTO people SELECT generate_series(1, 60)")
    with connect(postgres_url, unit=record()) as db:
        assert list(db.tables()) == ["people"]
        assert _first(db, "SELECT COUNT(*) AS n FROM people") == pytest.approx(60, abs=2)


def test_a_server_that_is_gone_costs_nothing(tmp_path: Any) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", unit=record(), epsilon=3.0, delta=1e-6)
    with postgres.server() as url:
        with psycopg.connect(url, autocommit=True) as link:
            link.execute("CREATE TABLE people (id bigint)")
        db = connect(url, unit=record(), ledger=ledger, source="people")
    for _ in range(2):
        with pytest.raises(EngineUnreachable, match="nothing was spent") as caught:
            db.sql("SELECT COUNT(*) AS n FROM people", epsilon=1.0)
        assert "socket" not in str(caught.value)
    assert [entry.kind for entry in ledger.history("people")] == ["open"]
    db.close()
    ledger.close()


SWAPPED = {
    "view": "ALTER TABLE people RENAME TO hidden; CREATE VIEW people AS SELECT p.* FROM hidden p, generate_series(1, 31)",
    "another table": "DROP TABLE people; CREATE TABLE people (id bigint, x double precision)",
    "type": "ALTER TABLE people ALTER COLUMN x TYPE text",
    "collation of the key": "ALTER TABLE people ALTER COLUMN id TYPE text COLLATE \"C\"",
    "child": "CREATE TABLE people_child () INHERITS (people); CREATE TABLE other (id bigint, x double precision); "
             "ALTER TABLE people_child INHERIT other",
}  # fmt: skip


@pytest.mark.parametrize("how", SWAPPED)
def test_a_table_that_was_exchanged_is_not_asked(people: Database, link: Any, how: str, tmp_path: Any) -> None:
    """What a table is was looked up when connecting; it must still be so when the question runs."""
    query = "SELECT COUNT(*) AS n FROM people"
    assert _first(people, query) == pytest.approx(20, abs=2)
    link.execute(SWAPPED[how])
    with pytest.raises(EngineUnreachable, match="connect again"):
        people.sql(query, epsilon=50.0)
    people.engine.ready = lambda tables: None  # type: ignore[method-assign]
    with pytest.raises(EngineFailed):  # exchanged between the look and the question
        people.sql(query, epsilon=50.0)


def test_functions_are_those_of_postgres_alone(people: Database) -> None:
    """A function or an operator of another schema might fit the types of a column better."""
    engine: Any = people.engine
    assert engine._link.execute("SHOW search_path").fetchone() == ("pg_catalog, pg_temp",)


def test_other_tables_may_come_and_go(people: Database, link: Any) -> None:
    link.execute("CREATE TABLE more (x int)")
    assert _first(people, "SELECT COUNT(*) AS n FROM people") == pytest.approx(20, abs=2)
    link.execute("INSERT INTO people SELECT 1000 + i, i FROM generate_series(1, 20) AS i; ANALYZE people")
    assert _first(people, "SELECT COUNT(*) AS n FROM people") == pytest.approx(40, abs=2)
