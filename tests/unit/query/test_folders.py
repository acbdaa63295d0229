"""Folders and patterns of parquet files as one table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from discreet import connect, record
from discreet.errors import EngineUnreachable, InvalidValue
from discreet.query import Database

LOUD = 90.0


def write(path: Path, **columns: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table(columns), path)
    return path


def counted(db: Database, query: str) -> list[tuple[object, int]]:
    value = db.sql(query, epsilon=LOUD, delta=1e-3).value.to_pydict()
    return list(zip(value["k"], map(round, value["n"])))


def test_a_folder_is_one_table_with_its_partitions(tmp_path: Path) -> None:
    for year in ("2024", "2025"):
        write(tmp_path / "visits" / f"year={year}" / "a.parquet", x=[1] * 30)
        write(tmp_path / "visits" / f"year={year}" / "b.parquet", x=[2] * 20)
    for place in (
        tmp_path / "visits",
        str(tmp_path / "visits" / "*" / "*.parquet"),
        tmp_path / "visits" / "year=*" / "?.parquet",
    ):
        with connect(place, unit=record()) as db:
            assert db.tables() == {"visits": {"x": "integer", "year": "text"}}
            assert counted(db, "SELECT x AS k, COUNT(*) AS n FROM visits GROUP BY x") == [(1, 60), (2, 40)]
            assert counted(db, "SELECT year AS k, COUNT(*) AS n FROM visits GROUP BY 1") == [("2024", 50), ("2025", 50)]
    with connect(tmp_path / "visits", unit=record(), schema={"visits": {"year": {"type": "integer"}}}) as db:
        assert counted(db, "SELECT year + 1 AS k, COUNT(*) AS n FROM visits GROUP BY 1") == [(2025, 50), (2026, 50)]


def test_a_broken_value_in_one_file_is_null(tmp_path: Path) -> None:
    strings = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.array([0, 1, 3], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff\xfe")]
    )
    write(tmp_path / "t" / "year=1" / "a.parquet", s=strings)
    write(tmp_path / "t" / "year=2" / "a.parquet", s=["b", "c"])
    with connect(tmp_path / "t", unit=record()) as db:
        assert db.tables() == {"t": {"s": "text", "year": "text"}}
        keys = {"year": ["1", "2"]}
        value = db.sql("SELECT year AS k, COUNT(s) AS n FROM t GROUP BY year", epsilon=LOUD, keys=keys).value
        assert list(map(round, value["n"].to_pylist())) == [1, 2]


def test_files_that_differ_are_refused(tmp_path: Path) -> None:
    """A missing column, or one of another type, would be NULL for all rows of a file, or decide what the column is."""
    write(tmp_path / "t" / "a.parquet", x=[1], y=[1])
    write(tmp_path / "t" / "b.parquet", x=[1.5], y=[1])
    with pytest.raises(InvalidValue, match=r"a\.parquet and b\.parquet differ in x"):
        connect(tmp_path / "t", unit=record())
    with pytest.raises(InvalidValue, match="it names 0"):
        connect(str(tmp_path / "none" / "*.parquet"), unit=record())
    (tmp_path / "t" / "c.csv").write_text("x\n1\n")
    with pytest.raises(InvalidValue, match="parquet files, and no others"):
        connect(str(tmp_path / "t" / "*"), unit=record())


def test_one_file_in_two_tables_is_not_asked_twice(tmp_path: Path) -> None:
    file = write(tmp_path / "t" / "a.parquet", x=[1])
    with connect({"t": tmp_path / "t", "u": file}, unit=record()) as db:
        assert set(db.tables()) == {"t"}


def test_a_file_written_anew_is_asked_if_its_columns_are_what_they_were(tmp_path: Path) -> None:
    place = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"x": [1, 2, 3]}), place)
    with connect(place, unit=record(), bounds={"x": (0, 10)}) as db:
        parquet.write_table(pa.table({"x": [1] * 500}), place)
        assert db.sql("SELECT COUNT(*) AS n FROM t", epsilon=10.0).value["n"][0].as_py() > 400
        for other in ({"x": [1.5]}, {"x": [1], "y": [2]}, {"y": [1]}, {"x": ["a line of somebody"]}):
            parquet.write_table(pa.table(other), place)
            with pytest.raises(EngineUnreachable, match="other columns or types") as refused:
                db.sql("SELECT COUNT(*) AS n FROM t", epsilon=1.0)
            assert "somebody" not in str(refused.value)
        place.write_bytes(b"PAR1 no more")
        with pytest.raises(EngineUnreachable, match="connect again"):
            db.sql("SELECT COUNT(*) AS n FROM t", epsilon=1.0)
        parquet.write_table(pa.table({"x": [2] * 700}), place)
        assert db.sql("SELECT COUNT(*) AS n FROM t", epsilon=10.0).value["n"][0].as_py() > 600


def test_texts_of_a_file_written_anew_are_settled_again(tmp_path: Path) -> None:
    """A text that is not UTF-8 is NULL in its own row, as when connecting: a refusal would tell that the row is there."""
    place = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"g": ["a"] * 300}), place)
    with connect(place, unit=record(), schema={"t": {"g": {"values": ["a"]}}}) as db:
        broken = pa.Array.from_buffers(
            pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"a\xff")]
        )
        parquet.write_table(pa.table({"g": pa.concat_arrays([broken, pa.array(["a"] * 300)])}), place)
        assert db.sql("SELECT g, COUNT(*) AS n FROM t GROUP BY g", epsilon=10.0).value["n"][0].as_py() > 290
