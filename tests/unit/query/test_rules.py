"""What is decided before a private row is read: types, public values, base tables, names, whether a question can be asked.

Where an answer has noise its scale is a fiftieth at most: one test in 10^15 would fail by it.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from conform.engines import exact
from discreet import Ledger, connect, record, user
from discreet.errors import EngineFailed, EngineUnreachable, InvalidDocument, InvalidQuery, InvalidValue

PEOPLE = pa.table({"id": [1, 2, 2, 3], "ward": ["A", "B", "B", None], "age": [31.0, 45.0, 45.0, 62.0]})
BOUNDS = {"age": (0, 120)}


def counted(db: Any, query: str) -> dict[Any, int]:
    """The exact counts of a query before noise, by group."""
    return exact(db, query)[0][1]


# ---- declared types ----------------------------------------------------------------------------------------------------

TYPED = {"t": {"id": {"type": "integer"}, "x": {"type": "number", "bounds": [0, 10]}, "day": {"type": "date"}}}


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
def test_text_files_are_read_as_declared(tmp_path: Path, suffix: str) -> None:
    rows = [("1", "2.5", "2026-01-31"), ("2", "many", "soon"), ("three", "4", "2026-02-01"), ("2", "", "NA")]
    lines = {
        "csv": "day,other,id,x\n" + "".join(f"{day},?,{i},{x}\n" for i, x, day in rows),
        "tsv": "day\tother\tid\tx\n" + "".join(f"{day}\t?\t{i}\t{x}\n" for i, x, day in rows),
        "jsonl": "\n".join(f'{{"id": "{i}", "x": "{x}", "day": "{day}"}}' for i, x, day in rows),
    }
    (tmp_path / f"t.{suffix}").write_text(lines[suffix])
    with connect(tmp_path / f"t.{suffix}", unit=user("id", rows=9), schema={"t": {**TYPED["t"], "null": ["NA"]}}) as db:
        assert db.tables() == {"t": {"id": "integer", "x": "number", "day": "date"}}
        whole = 1 << 20
        assert counted(db, "SELECT COUNT(*) AS n FROM t") == {(): 3 * whole}, "a row whose key is no number is nobody's"
        assert counted(db, "SELECT COUNT(x) AS n FROM t") == {(): whole}
        assert counted(db, "SELECT COUNT(*) AS n FROM t WHERE day > '2026-01-01'") == {(): whole}


def test_a_header_must_name_what_is_declared(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("7,secret,2026-01-31\n8,1,2026-01-31\n")
    with pytest.raises(InvalidValue, match=r"first line of t\.csv must name every declared column") as caught:
        connect(tmp_path / "t.csv", unit=record(), schema=TYPED)
    assert "secret" not in str(caught.value)


def test_a_file_that_cannot_be_read_shows_none_of_its_lines(tmp_path: Path) -> None:
    for body in ('[{"id": "secret", ', '[{"id": "1"}]', "[]", ""):
        (tmp_path / "t.json").write_text(body)
        with pytest.raises(InvalidValue, match="one object in each line") as caught:
            connect(tmp_path / "t.json", unit=record(), schema=TYPED)
        assert "secret" not in str(caught.value)


def test_a_broken_value_of_a_parquet_file_is_null_in_its_row(tmp_path: Path) -> None:
    """Refusing the file, as before, told that somebody's odd row is there."""
    strings = pa.Array.from_buffers(
        pa.string(), 3, [None, pa.array([0, 2, 3, 4], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfeab")]
    )
    plain = pa.table(
        {"s": strings, "c": pa.array(["x", "y", "x"]).dictionary_encode(), "m": pa.array([1, 2, 3], pa.timestamp("ms"))}
    )
    found = []
    for name, table in (("there", plain), ("gone", plain.slice(1))):
        (tmp_path / name).mkdir()
        parquet.write_table(table, tmp_path / name / "t.parquet")
        with connect(tmp_path / name / "t.parquet", unit=record()) as db:
            assert [value.type for value in db.sql("SELECT s, c, m, COUNT(*) AS n FROM t GROUP BY ALL", epsilon=1.0,
                                                   delta=1e-6).value.schema][:2] == [pa.string(), pa.string()]  # fmt: skip
            found.append((db.tables(), counted(db, "SELECT COUNT(s) AS n FROM t"), counted(db, "SELECT COUNT(*) AS n FROM t")))
    assert found[0][:2] == found[1][:2]
    assert (found[0][2], found[1][2]) == ({(): 3}, {(): 2})


def test_moments_that_duckdb_cannot_count_are_settled_when_connecting(tmp_path: Path) -> None:
    far = pa.array([0, 2**62], pa.int64())
    for kind in (pa.timestamp("s"), pa.timestamp("ms", "UTC")):
        with connect({"t": pa.table({"at": far.cast(kind)})}, unit=record()) as db:
            assert counted(db, "SELECT at IS NULL AS gone, COUNT(*) AS n FROM t GROUP BY at IS NULL") == {
                (True,): 1,
                (False,): 1,
            }
    parquet.write_table(pa.table({"at": far.cast(pa.timestamp("ms"))}), tmp_path / "t.parquet")
    with connect(tmp_path / "t.parquet", unit=record()) as db:
        assert counted(db, "SELECT COUNT(at) AS n FROM t") == {(): 1}


@pytest.mark.parametrize("frame", [PEOPLE, PEOPLE.to_pandas(), polars.from_arrow(PEOPLE)], ids=["arrow", "pandas", "polars"])
def test_a_declared_type_is_what_a_column_is_read_as(frame: Any) -> None:
    schema = {"t": {"age": {"type": "text"}, "id": {"type": "text"}, "ward": {"type": "number", "bounds": [0, 1]}}}
    with connect({"t": frame}, unit=user("id", rows=1), schema=schema) as db:
        assert db.tables() == {"t": {"id": "text", "ward": "number", "age": "text"}}
        assert counted(db, "SELECT COUNT(*) AS n FROM t WHERE ward IS NULL") == {(): 3 << 20}
    with pytest.raises(InvalidValue, match="cannot be read as date"):
        connect({"t": frame}, unit=record(), schema={"t": {"age": {"type": "date"}}})


def test_columns_of_python_objects_are_texts() -> None:
    values = [1, "two", 3.5, None, True, float("nan"), ["four"], pd.Timestamp("2026-01-31"), "\ud800"]
    frame = pd.DataFrame({"x": pd.Series(values, dtype=object)})
    with connect({"t": frame}, unit=record()) as db:
        assert db.tables() == {"t": {"x": "text"}}
        names = {key[0] for key in counted(db, "SELECT x, COUNT(*) AS n FROM t GROUP BY x")}
    assert names == {"1", "two", "3.5", None, "true", "2026-01-31 00:00:00"}


@pytest.mark.parametrize("frame", [polars.from_arrow(PEOPLE).lazy(), duckdb.sql("SELECT 1 AS id"), [1, 2]], ids=type)
def test_what_is_not_stored_is_refused(frame: Any) -> None:
    with pytest.raises(InvalidValue, match="not stored"):
        connect({"t": frame}, unit=record())


@pytest.mark.parametrize(("values", "told"), [
    (["1", "2"], "no integer"), ([1, 2.5], "no integer"), ([True], "no integer"), ([2**63], "no integer"),
    ([1, 1.0, 2], "different"),
])  # fmt: skip
def test_public_values_are_of_the_type_of_their_column(values: list[Any], told: str) -> None:
    with pytest.raises(InvalidValue, match=told):
        connect({"t": PEOPLE}, unit=record(), schema={"t": {"id": {"values": values}}})
    with connect({"t": PEOPLE}, unit=record()) as db, pytest.raises(InvalidValue, match=told):
        db.sql("SELECT id, COUNT(*) AS n FROM t GROUP BY id", epsilon=1.0, keys={"id": values})


def test_public_values_are_converted() -> None:
    with connect({"t": PEOPLE}, unit=record(), schema={"t": {"age": {"values": [31, 45]}}}) as db:
        found = db.sql("SELECT age, COUNT(*) AS n FROM t GROUP BY age", epsilon=50.0).value
    assert found["age"].to_pylist() == [31.0, 45.0]
    assert found["n"].to_pylist() == pytest.approx([1, 2], abs=0.9)  # noise of scale 1/50: beyond once in 1e19


@pytest.mark.parametrize(("given", "told"), [
    ({"bounds": {"agee": (0, 1)}}, "Did you mean age"), ({"schema": {"t": {"wardd": {"values": ["A"]}}}}, "Did you mean ward"),
    ({"unit": user("idd", rows=1)}, "Did you mean id"),
])  # fmt: skip
def test_a_misspelt_column_is_refused_with_the_near_one(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidValue, match=told):
        connect({"t": PEOPLE}, **{"unit": record(), **given})


@pytest.mark.parametrize(
    "schema", [{"t": {"public": 1}}, {"t": {"rows": 0}}, {"t": {"unique": "id"}}, {"t": {"id": {"type": "int"}}}]
)
def test_what_a_schema_cannot_say(schema: Any) -> None:
    with pytest.raises((InvalidDocument, InvalidValue)):
        connect({"t": PEOPLE}, unit=record(), schema=schema)


# ---- which rows --------------------------------------------------------------------------------------------------------


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "clinic.duckdb"
    with closing(duckdb.connect(str(path))) as link:
        link.execute("CREATE TABLE base AS SELECT i AS id, i % 7 AS x FROM range(100) r(i)")
        link.execute("CREATE VIEW thrice AS SELECT base.* FROM base, range(3)")
        link.execute(
            "CREATE SCHEMA other; CREATE TABLE other.base AS SELECT 1 AS y; CREATE TABLE other.visits AS SELECT 1 AS z"
        )
    return path


def test_a_view_is_asked_only_if_its_owner_declares_it(database: Path) -> None:
    with connect(database, unit=record()) as db:
        assert set(db.tables()) == {"base", "visits", "other.base"}, "of two schemas, main first"
        with pytest.raises(InvalidQuery, match="thrice is a view"):
            db.sql("SELECT COUNT(*) AS n FROM thrice", epsilon=1.0)
    schema = {"thrice": {"rows": 3, "depends_on_one_unit": True}}
    with connect(database, unit=record(), schema=schema) as db:
        ((measure, found),) = exact(db, "SELECT COUNT(*) AS n FROM thrice")
        assert (measure.sensitivity, found) == (3, {(): 300})
        ((measure, _),) = exact(db, "SELECT COUNT(*) AS n FROM (SELECT id FROM thrice UNION ALL SELECT id FROM base) q")
        assert measure.sensitivity == 4
        claim = db.sql("SELECT COUNT(*) AS n FROM thrice", epsilon=1.0).claims[0]
        assert any("thrice is no base table: one unit has at most 3 rows" in it for it in claim.assumptions)
    with connect(database, unit=record(), schema={"thrice": {"rows": 3}}) as db, pytest.raises(InvalidQuery, match="a view"):
        db.sql("SELECT COUNT(*) AS n FROM thrice", epsilon=1.0)


def test_records_may_be_joined_with_a_unique_public_table() -> None:
    wards = pa.table({"name": ["A", "B", None, None], "floor": [1, 2, 3, 4]})
    schema = {"wards": {"public": True, "unique": ["name"]}}
    query = "SELECT floor, COUNT(*) AS n FROM t {} JOIN wards ON t.ward = wards.name GROUP BY floor"
    with connect({"t": PEOPLE, "wards": wards}, unit=record(), schema=schema) as db:
        assert counted(db, query.format("LEFT")) == {(1,): 1, (2,): 2, (None,): 1}
        assert counted(db, query.format("")) == {(1,): 1, (2,): 2}
        for condition in (
            "TRUE",
            "t.ward >= wards.name",
            "t.id = wards.floor",
            "t.ward = wards.name OR TRUE",
            "wards.name = wards.name",
        ):
            with pytest.raises(InvalidQuery, match="unique"):
                db.sql(f"SELECT COUNT(*) AS n FROM t JOIN wards ON {condition}", epsilon=1.0)


def test_a_record_counts_once_for_each_row_that_is_made_of_it() -> None:
    """Joined with up to `repeats` rows of a public table, or in several parts of a UNION ALL."""
    wards = pa.table({"name": ["A", "A", "B"], "floor": [1, 2, 3]})
    schema = {"wards": {"public": True, "unique": ["name"], "repeats": 2}}
    join = "FROM t JOIN wards w ON t.ward = w.name"
    twice = "SELECT id, ward FROM t UNION ALL SELECT id, ward FROM t"
    asked = {
        f"SELECT COUNT(*) AS n {join}": 2,
        f"SELECT COUNT(*) AS n {join} LEFT JOIN wards v ON t.ward = v.name": 4,
        f"SELECT COUNT(*) AS n FROM (SELECT id, ward FROM t UNION ALL SELECT t.id, t.ward {join}) q": 3,
        f"SELECT COUNT(*) AS n FROM ({twice}) t JOIN wards w ON t.ward = w.name": 4,
        f"SELECT COUNT(DISTINCT (id, floor)) AS n {join}": 2,
    }
    with connect({"t": PEOPLE, "wards": wards}, unit=record(), schema=schema) as db:
        for query, most in asked.items():
            ((measure, _),) = exact(db, query)
            assert measure.sensitivity == most, query
            assert f"in at most {most} rows" in db.sql(query, epsilon=1.0).claims[0].assumptions[0]
        many = " ".join(f"JOIN wards w{i} ON t.ward = w{i}.name" for i in range(15))
        assert exact(db, f"SELECT COUNT(*) AS n FROM t {many}")[0][0].sensitivity == 1 << 15
        with pytest.raises(InvalidQuery, match="131,072 rows of one record"):
            db.sql(f"SELECT COUNT(*) AS n FROM (SELECT * FROM t UNION ALL SELECT * FROM t UNION ALL SELECT * FROM t UNION ALL "
                   f"SELECT * FROM t) t {many}", epsilon=1.0)  # fmt: skip
    with pytest.raises(InvalidValue, match="at most one row for each name"):
        connect({"t": PEOPLE, "wards": wards}, unit=record(), schema={"wards": {"public": True, "unique": ["name"]}})
    with pytest.raises(InvalidValue, match="declares repeats"):
        connect({"t": PEOPLE, "wards": wards}, unit=record(), schema={"wards": {"public": True, "repeats": 2}})


# ---- names -------------------------------------------------------------------------------------------------------------


def test_a_schema_may_have_the_name_of_its_database(tmp_path: Path) -> None:
    path = tmp_path / "visits.duckdb"
    with closing(duckdb.connect(str(path))) as link:
        link.execute("CREATE SCHEMA visits; CREATE TABLE visits.visits.visits AS SELECT i AS id, i % 2 AS x FROM range(9) r(i)")
    with connect(path, unit=user("id", rows=1), bounds={"x": (0, 1)}) as db:
        for name in ("visits", "visits.visits", "visits.visits.visits"):
            assert counted(db, f"SELECT COUNT(*) AS n FROM {name}") == {(): 9 << 20}
        assert counted(db.register(), "SELECT COUNT(*) AS n FROM visits") == {(): 9 << 20}


def test_a_column_that_is_only_called_like_the_unit_counts_nobody() -> None:
    with connect({"t": PEOPLE}, unit=user("id", rows=1)) as db:
        renamed = "(SELECT ward AS id, id AS person FROM t) q"
        wards = db.sql(f"SELECT COUNT(DISTINCT id) AS n FROM {renamed}", epsilon=50.0).value["n"][0].as_py()
        assert wards == pytest.approx(len(set(PEOPLE["ward"].to_pylist())), abs=1)
        people = db.sql(f"SELECT COUNT(DISTINCT person) AS n FROM {renamed}", epsilon=50.0).value["n"][0].as_py()
        assert people == pytest.approx(3, abs=1)
        with pytest.raises(InvalidQuery, match="must keep the unit"):
            db.sql(f"SELECT COUNT(*) AS n FROM (SELECT id, COUNT(*) AS c FROM {renamed} GROUP BY id) z", epsilon=1.0)


def test_names_in_having_are_those_of_duckdb() -> None:
    """A key comes before an alias of the same name: grouped by age, HAVING age is not about COUNT(*) AS age."""
    schema = {"t": {"age": {"values": [31, 45, 62]}}}
    with connect({"t": PEOPLE}, unit=record(), schema=schema) as db:
        found = db.sql("SELECT COUNT(*) AS age FROM t GROUP BY age HAVING age > 40", epsilon=50.0).value
        assert found["age"].to_pylist() == pytest.approx([2, 1], abs=0.9)
        named = db.sql("SELECT age AS a, COUNT(*) AS n FROM t GROUP BY age HAVING n > 1.5", epsilon=50.0).value
        assert named["a"].to_pylist() == [45.0]


def test_a_table_with_a_column_n_can_be_registered() -> None:
    table = pa.table({"id": [1, 1, 1, 2], "n": [{"n": 5}] * 4, "u": [1.0, 2.0, 3.0, 4.0], "o": [1] * 4})
    with connect({"t": table}, unit=user("id", rows=1), bounds={"u": (0, 9)}) as db:
        before = counted(db, "SELECT COUNT(*) AS c FROM t")
        assert counted(db.register(), "SELECT COUNT(*) AS c FROM t") == before


# ---- what can be asked, and what it costs ------------------------------------------------------------------------------


def test_what_cannot_be_reached_costs_nothing(tmp_path: Path) -> None:
    parquet.write_table(PEOPLE, tmp_path / "t.parquet")
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("people", unit=record(), epsilon=3.0, delta=1e-6)
        db = connect(tmp_path / "t.parquet", unit=record(), ledger=ledger, source="people")
        (tmp_path / "t.parquet").unlink()
        with pytest.raises(EngineUnreachable, match=r"t\.parquet cannot be reached.*nothing was spent"):
            db.sql("SELECT COUNT(*) AS n FROM t", epsilon=1.0)
        db.close()
        with pytest.raises(EngineUnreachable, match="connect again"):
            db.sql("SELECT COUNT(*) AS n FROM t", epsilon=1.0)
        assert [entry.kind for entry in ledger.history("people")] == ["open"]


def test_registering_tells_nothing_of_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    with connect({"t": PEOPLE}, unit=user("id", rows=1)) as db:
        monkeypatch.setattr(db.engine, "_run", lambda text: (_ for _ in ()).throw(duckdb.Error("row: secret")))
        with pytest.raises(EngineFailed) as caught:
            db.register()
    assert "secret" not in str(caught.value)
    assert "charge" not in str(caught.value)
