"""Spark under private SQL: what is the user's stays as it was, whatever the settings of the session are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import spark
from discreet import connect, record, user
from discreet.errors import EngineFailed, EngineUnreachable, InvalidValue

pytestmark = pytest.mark.skipif(spark.missing() is not None, reason=spark.missing() or "")


@pytest.fixture(scope="module")
def session() -> Any:
    return spark.session()


@pytest.fixture
def people(session: Any) -> Iterator[Any]:
    frame = session.createDataFrame(
        [(i % 10, float(i), f"it's {i % 3} \\ `") for i in range(100)], "id int, x double, `a b` string"
    )
    frame.createOrReplaceTempView("people")
    yield frame
    session.catalog.dropTempView("people")


def count(db: Any, query: str = "SELECT COUNT(*) AS n FROM people", epsilon: float = 50.0) -> float:
    return float(db.sql(query, epsilon=epsilon).value.to_pydict()["n"][0])


def test_a_session_is_asked_for_its_views(session: Any, people: Any) -> None:
    with connect(session, unit=user("id", rows=2), bounds={"x": (0, 100)}) as db:
        assert db.tables()["people"] == {"id": "integer", "x": "number", "a b": "text"}
        assert abs(count(db) - 20) < 2  # noise of scale 1/25: beyond with probability below 1e-20
        db.register("people")
        assert abs(count(db) - 20) < 2
    assert [it.name for it in session.catalog.listTables()] == ["people"], "our own views are gone, the user's is there"


def test_a_cluster_is_named_by_its_address(session: Any, people: Any) -> None:
    with connect(session.sparkContext.master, unit=user("id", rows=2)) as db:
        assert abs(count(db) - 20) < 2


def test_a_frame_is_asked_as_data(people: Any) -> None:
    with connect(people, unit=record()) as db:
        assert abs(count(db, "SELECT COUNT(*) AS n FROM data WHERE \"a b\" = 'it''s 1 \\ `'") - 33) < 2


def test_a_stream_is_refused(session: Any) -> None:
    with pytest.raises(InvalidValue, match="stream"):
        connect({"s": session.readStream.format("rate").load()}, unit=record())


def test_a_table_of_the_catalogue_is_looked_up_again(session: Any, tmp_path: Any) -> None:
    """Rows may come and go; what has its name must stay a table with its columns, and a view over others is not asked."""
    session.sql(f"CREATE TABLE stored (id int, x double) USING parquet LOCATION '{tmp_path / 'stored'}'")
    session.sql("INSERT INTO stored SELECT id, id FROM range(30)")
    with connect(session, unit=record(), bounds={"x": (0, 100)}) as db:
        assert abs(count(db, "SELECT COUNT(*) AS n FROM stored") - 30) < 2
        session.sql("INSERT OVERWRITE stored SELECT id, id FROM range(50)")
        assert abs(count(db, "SELECT COUNT(*) AS n FROM stored") - 50) < 2
        session.sql("DROP TABLE stored")
        session.sql("CREATE VIEW stored AS SELECT CAST(id AS INT) AS id, CAST(1 AS DOUBLE) AS x FROM range(10)")
        with pytest.raises(EngineUnreachable, match="connect again"):
            db.sql("SELECT COUNT(*) AS n FROM stored", epsilon=1.0)
        session.sql("DROP VIEW stored")
        with pytest.raises(EngineUnreachable, match="connect again"):
            db.sql("SELECT COUNT(*) AS n FROM stored", epsilon=1.0)


def test_functions_of_the_names_of_spark_s_own_are_refused(session: Any, people: Any) -> None:
    own = session.newSession()
    own.createDataFrame([(1, 2.0)], "id int, x double").createOrReplaceTempView("mine")
    with connect(own, unit=record(), bounds={"x": (0, 100)}) as db:
        own.sql("CREATE TEMPORARY FUNCTION abs(x DOUBLE) RETURNS DOUBLE RETURN 5")
        with pytest.raises(EngineUnreachable, match="abs"):
            db.sql("SELECT COUNT(*) AS n FROM mine", epsilon=1.0)
    with pytest.raises(InvalidValue, match="rename"):
        connect(own, unit=record())


def test_errors_stay_with_the_owner(session: Any, people: Any) -> None:
    with connect(session, unit=record(), bounds={"x": (0, 100)}) as db:
        for name in db.engine._views:  # type: ignore[attr-defined]
            session.catalog.dropTempView(name)
        with pytest.raises(EngineFailed) as caught:
            db.sql("SELECT SUM(x) AS s FROM people", epsilon=1.0)
        assert "people" not in str(caught.value)
        assert caught.value.__cause__ is not None


@pytest.mark.parametrize("settings", [
    {"spark.sql.ansi.enabled": "false", "spark.sql.parser.escapedStringLiterals": "true"},
    {"spark.sql.ansi.enabled": "true", "spark.sql.ansi.doubleQuotedIdentifiers": "true"},
    {"spark.sql.ansi.enabled": "true", "spark.sql.caseSensitive": "true", "spark.sql.session.timeZone": "Asia/Tokyo"},
], ids=["lenient", "quoted", "sensitive"])  # fmt: skip
def test_settings_of_the_session_change_nothing(session: Any, settings: dict[str, str]) -> None:
    from conform.engines import opened
    from conform.test_query_engines import EXPRESSIONS, NASTY, _alike, true_values, values

    before = {name: session.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            session.conf.set(name, value)
        with opened("spark", {"nasty": NASTY}, None, record(), None) as db:
            found = values(db)
    finally:
        for name, value in before.items():
            session.conf.set(name, value)
    for text in EXPRESSIONS:
        for (_, a, b, *_), one, right in zip(NASTY.rows, found[text], true_values()[text], strict=True):
            if all(it is None or it != it or it == 0 or 1e-15 < abs(it) < 1e16 for it in (a, b)):
                assert _alike(one, right, text), (text, a, b)
