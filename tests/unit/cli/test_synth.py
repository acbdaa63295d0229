"""`discreet synth`, as it is called."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner, Result

from discreet import Ledger, record
from discreet.cli import app
from discreet.core import Release

SCHEMA = '[ward]\ntype = "categorical"\nvalues = ["A", "B"]\n\n[age]\ntype = "integer"\nbounds = [0, 99]\nbins = 5\n'


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    parquet.write_table(pa.table({"ward": ["A", "B", "B"] * 400, "age": [50, 20, 30] * 400}), tmp_path / "visits.parquet")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return tmp_path


def call(folder: Path, *args: object) -> Result:
    schema = ("--schema", str(folder / "schema.toml"))
    return CliRunner().invoke(app, ["synth", str(folder / "visits.parquet"), *schema, "--delta", "1e-6", *map(str, args)])


def test_a_folder_with_the_table_and_its_claim(visits: Path) -> None:
    done = call(visits, "--epsilon", 2, "-o", visits / "out", "--rows", 700, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["rows"], told["columns"], told["converged"]) == (700, ["ward", "age"], True)
    table = parquet.read_table(visits / "out" / "table.parquet")
    assert table.num_rows == 700
    assert table.schema.types == [pa.string(), pa.int64()]
    release = Release.load(visits / "out" / "release.json")
    assert release.claims[0].game.view == {"answers", "table"}
    assert "give --ledger" in done.stderr


def test_explaining_reads_and_spends_nothing(visits: Path) -> None:
    ledger = Ledger(visits / "ledger.db")
    ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6)
    asked = ("--epsilon", 1, "--ledger", visits / "ledger.db", "--source", "people")
    told = call(visits, *asked, "--explain")
    assert told.exit_code == 0, told.output
    assert "costs      epsilon 1, delta 1e-06" in told.stdout
    assert "moved to the nearer end" in told.stdout
    assert json.loads(call(visits, *asked, "--explain", "--json").stdout)["columns"] == {"ward": 3, "age": 6}
    assert ledger.spent("people") == 0
    done = call(visits, *asked, "-o", visits / "out")
    assert done.exit_code == 0, done.output
    assert "Charged as entry" in done.stderr
    assert ledger.payment(Release.load(visits / "out" / "release.json")).sound


def test_where_nothing_can_be_written_nothing_is_spent(visits: Path) -> None:
    ledger = Ledger(visits / "ledger.db")
    ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6)
    (visits / "out").write_text("a file")
    done = call(visits, "--epsilon", 1, "--ledger", visits / "ledger.db", "--source", "people", "-o", visits / "out")
    assert done.exit_code == 2
    assert "cannot be written" in done.stderr
    assert ledger.spent("people") == 0


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--epsilon", 1), "-o FOLDER"),
        (("--epsilon", -1, "--explain"), "epsilon"),
        (("--epsilon", 1, "--source", "people", "-o", "{out}"), "go together"),
        (("--epsilon", 1, "--schema", "nope.toml", "--explain"), "cannot be read"),
    ],
)
def test_wrong_use_is_told_in_one_paragraph(args: tuple[object, ...], told: str, visits: Path) -> None:
    done = call(visits, *(visits / "out" if item == "{out}" else item for item in args))
    assert done.exit_code == 2
    assert told in done.stderr
    assert "Traceback" not in done.output
    assert done.stdout == ""
