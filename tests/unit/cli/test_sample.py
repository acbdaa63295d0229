"""`discreet sample`, and `discreet synth` on a disk that is full: nothing that was paid for is lost.

A limit on the size of files stands for the disk: the system refuses to write, as it does where no room is left.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from discreet import Ledger, record, synth
from discreet.core import Release

SCHEMA = 'age = [0, 99]\n\n[ward]\ncategories = ["A", "B"]\n'
MIB = 1 << 20


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    parquet.write_table(pa.table({"ward": ["A", "B", "B"] * 400, "age": [50, 20, 30] * 400}), tmp_path / "visits.parquet")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    Ledger(tmp_path / "ledger.db").open("people", unit=record(), epsilon=1.0, delta=1e-6)
    return tmp_path


def call(folder: Path, *args: object, room: int | None = None) -> subprocess.CompletedProcess[str]:
    limit: Callable[[], None] | None = None
    if room is not None:
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))  # noqa: E731
    command = [sys.executable, "-m", "discreet.cli", *map(str, args)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, preexec_fn=limit, timeout=120, check=False)


def synthesised(folder: Path, rows: int, room: int | None = None) -> subprocess.CompletedProcess[str]:
    paying = ("--ledger", "ledger.db", "--source", "people")
    asked = ("--schema", "schema.toml", "--epsilon", 1, "--delta", 1e-6, "--rows", rows, "-o", "out")
    return call(folder, "synth", "visits.parquet", *asked, *paying, room=room)


def test_rows_that_do_not_fit_onto_the_disk_cost_nothing_that_was_paid_for(visits: Path) -> None:
    done = synthesised(visits, 20_000_000, 4 * MIB)
    assert done.returncode == 2, done.stderr
    assert "cannot be written: " in done.stderr
    assert "discreet sample out/model.npz -o FOLDER" in done.stderr.replace("\n", " ")
    assert Ledger(visits / "ledger.db").spent("people") == pytest.approx(1.0, rel=1e-3)
    assert {path.name for path in (visits / "out").iterdir()} == {"model.npz", "release.json", "marginals.parquet"}
    again = call(visits, "sample", "out/model.npz", "--rows", 3000, "-o", "elsewhere")
    assert again.returncode == 0, again.stderr
    assert parquet.read_table(visits / "elsewhere" / "synthetic.parquet").num_rows == 3000
    first, second = (Release.load(visits / name / "release.json") for name in ("out", "elsewhere"))
    assert first == second
    assert second.entry is not None
    assert Ledger(visits / "ledger.db").payment(second).sound


def test_where_the_model_itself_would_not_fit_nothing_is_spent(visits: Path) -> None:
    done = synthesised(visits, 100, MIB // 2)
    assert done.returncode == 2
    assert "Nothing was spent" in done.stderr.replace("\n", " ")
    assert Ledger(visits / "ledger.db").spent("people") == 0
    assert list((visits / "out").iterdir()) == []


def test_sampling_again_costs_nothing_and_takes_the_folder_too(visits: Path) -> None:
    assert synthesised(visits, 100).returncode == 0
    spent = Ledger(visits / "ledger.db").spent("people")
    for place in ("out", "out/model.npz"):
        done = call(visits, "sample", place, "--rows", 50, "-o", "more")
        assert done.returncode == 0, done.stderr
        assert parquet.read_table(visits / "more" / "synthetic.parquet").num_rows == 50
    assert Ledger(visits / "ledger.db").spent("people") == spent
    assert call(visits, "sample", "visits.parquet", "-o", "more").returncode == 2
    assert call(visits, "sample", "out", "--rows", 0, "-o", "more").returncode == 2


def test_two_linked_tables_are_sampled_again(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"id": range(300), "sex": ["f", "m"] * 150}), tmp_path / "users.parquet")
    parquet.write_table(pa.table({"id": [i // 2 for i in range(600)], "stars": [1, 2, 3] * 200}), tmp_path / "ratings.parquet")
    (tmp_path / "schema.toml").write_text("[users]\nsex = ['f', 'm']\n[ratings.stars]\ncategories = [1, 2, 3]\n")
    asked = ("--schema", "schema.toml", "--epsilon", 1, "--delta", 1e-6, "--unit", "user:id", "--unit-rows", 4)
    done = call(tmp_path, "synth", "users.parquet", "--child", "ratings.parquet", *asked, "-o", "out", "--rows", 20)
    assert done.returncode == 0, done.stderr
    assert call(tmp_path, "sample", "out", "--rows", 30, "-o", "more").returncode == 0
    names = {"model.npz", "release.json", "marginals.parquet", "marginals-ratings.parquet", "users.parquet", "ratings.parquet"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    assert {path.name for path in (tmp_path / "more").iterdir()} == names - {"model.npz"}
    assert parquet.read_table(tmp_path / "more" / "users.parquet").num_rows == 30
    assert synth.load(tmp_path / "out" / "model.npz").value.names == ("users", "ratings")
