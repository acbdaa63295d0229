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
    table = parquet.read_table(visits / "out" / "synthetic.parquet")
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
    ("option", "value", "told"),
    [("--rows", 0, "rows"), ("--fidelity-epsilon", -1, "fidelity-epsilon"), ("--table", "x", "no table")],
)
def test_options_that_cannot_be_met_are_told_before_anything_is_spent(
    option: str, value: object, told: str, visits: Path
) -> None:
    ledger = Ledger(visits / "ledger.db")
    ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6)
    paying = ("--ledger", visits / "ledger.db", "--source", "people")
    done = call(visits, "--epsilon", 1, *paying, "-o", visits / "out", option, value)
    assert done.exit_code == 2
    assert told in done.stderr
    assert ledger.spent("people") == 0


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--epsilon", 1), "-o FOLDER"),
        (("--epsilon", -1, "--explain"), "epsilon"),
        (("--epsilon", 1, "--source", "people", "-o", "{out}"), "go together"),
        (("--epsilon", 1, "--ledger", "nope.db", "-o", "{out}"), "--ledger needs --source"),
        (("--epsilon", 1, "--ledger", "nope.db", "--source", "q", "-o", "{out}"), "There is no ledger at nope.db"),
        (("--epsilon", 1, "--schema", "nope.toml", "--explain"), "cannot be read"),
    ],
)
def test_wrong_use_is_told_in_one_paragraph(args: tuple[object, ...], told: str, visits: Path) -> None:
    done = call(visits, *(visits / "out" if item == "{out}" else item for item in args))
    assert done.exit_code == 2
    assert told in done.stderr
    assert "Traceback" not in done.output
    assert done.stdout == ""
    assert not Path("nope.db").exists()


def test_rules_and_workloads_of_the_file_hold(visits: Path) -> None:
    rules = '[[constraint]]\ngiven = { ward = "A" }\nthen = { age = { low = 40, high = 59 } }\n'
    (visits / "schema.toml").write_text(SCHEMA + rules + '[[workload]]\ncolumns = ["ward", "age"]\n')
    told = call(visits, "--epsilon", 2, "--explain")
    assert "method     aim; 1 constraints" in told.stdout
    assert call(visits, "--epsilon", 2, "-o", visits / "out", "--rows", 2000).exit_code == 0
    rows = parquet.read_table(visits / "out" / "synthetic.parquet").to_pandas()
    assert rows["age"][rows["ward"] == "A"].between(40, 59).all()


def test_explaining_tells_split_and_error_and_who_is_protected(visits: Path) -> None:
    told = json.loads(call(visits, "--epsilon", 2, "--explain", "--json").stdout)
    assert sum(told["split"].values()) == pytest.approx(1.0)
    assert told["misplaced"]["a column"] > 0
    assert "one record" in told["unit"]
    (visits / "schema.toml").write_text(SCHEMA.replace('values = ["A", "B"]', 'find = "categories"'))
    found = call(visits, "--epsilon", 2, "--explain")
    assert "finds      ward: categories by private selection" in found.stdout


def test_users_are_protected_by_a_key(visits: Path) -> None:
    table = pa.table({"id": [i // 3 for i in range(1200)], "ward": ["A", "B", "B"] * 400, "age": [50, 20, 30] * 400})
    parquet.write_table(table, visits / "visits.parquet")
    assert call(visits, "--epsilon", 2, "--unit", "user:id", "-o", visits / "out").exit_code == 2
    done = call(visits, "--epsilon", 2, "--unit", "user:id", "--unit-rows", 3, "-o", visits / "out")
    assert done.exit_code == 0, done.output
    release = Release.load(visits / "out" / "release.json")
    assert (release.claims[0].game.unit.key, release.claims[0].game.unit.rows) == ("id", 3)
    assert parquet.read_table(visits / "out" / "synthetic.parquet").column_names == ["ward", "age"]


def test_counts_with_intervals_lie_beside_the_table(visits: Path) -> None:
    assert call(visits, "--epsilon", 2, "-o", visits / "out", "--method", "independent").exit_code == 0
    counts = parquet.read_table(visits / "out" / "marginals.parquet").to_pylist()
    assert [row["cell"][0] for row in counts if row["columns"] == ["ward"]] == ["A", "B", None]
    assert all(row["low"] <= row["high"] for row in counts)
