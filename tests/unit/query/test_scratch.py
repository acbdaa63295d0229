"""Rows that do not fit into memory go where no other user reads them, and go away."""

from __future__ import annotations

import gc
import stat
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from discreet import connect, record, user
from discreet.errors import InvalidValue
from discreet.query.engines import duckdb as duck

ROWS = pa.table({"id": np.arange(600_000), "g": np.arange(600_000) % 7, "x": np.ones(600_000)})


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The working folder, and the place for temporary files."""
    work, spare = tmp_path / "work", tmp_path / "spare"
    for place in (work, spare):
        place.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr(duck.tempfile, "tempdir", str(spare))
    return work, spare


def test_only_this_user_can_read_what_is_spilled(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    work, spare = places
    monkeypatch.setattr(duck, "_threads", lambda: 1)
    monkeypatch.setattr(duck, "FAST", "memory_limit = '24MB'")  # less than the units take
    with connect({"t": ROWS}, unit=user("id", rows=1)) as db:
        (scratch,) = spare.iterdir()
        assert stat.S_IMODE(scratch.stat().st_mode) == 0o700
        assert db.engine._run("SELECT current_setting('temp_directory')") == [(str(scratch),)]
        modified = scratch.stat().st_mtime_ns
        db.sql("SELECT g, COUNT(*) AS n FROM t GROUP BY g", epsilon=1.0, delta=1e-6)
        assert scratch.stat().st_mtime_ns > modified, "something was spilled"
        assert list(work.iterdir()) == []
    assert list(spare.iterdir()) == []
    assert list(work.iterdir()) == []


def test_nothing_stays_of_what_was_not_closed(places: tuple[Path, Path]) -> None:
    db = connect({"t": ROWS}, unit=record())
    assert len(list(places[1].iterdir())) == 1
    del db
    gc.collect()
    with pytest.raises(InvalidValue):
        connect("absent.parquet", unit=record())
    gc.collect()
    assert list(places[1].iterdir()) == []


def test_a_database_that_is_only_read_has_no_folder_beside_it(places: tuple[Path, Path]) -> None:
    with duckdb.connect("clinic.duckdb") as link:
        link.execute("CREATE TABLE t AS SELECT range AS id FROM range(10)")
    with connect("clinic.duckdb", unit=record()) as db:
        db.sql("SELECT COUNT(*) AS n FROM t", epsilon=1.0)
        assert db.engine._run("SELECT current_setting('temp_directory')")[0][0].startswith(str(places[1]))
    assert [path.name for path in places[0].iterdir()] == ["clinic.duckdb"]
