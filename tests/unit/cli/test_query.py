"""`discreet query`, as it is called."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner, Result

from discreet import Ledger, report, user
from discreet.cli import app
from discreet.core import Release

SQL = "SELECT ward, COUNT(*) AS n, AVG(age) AS age FROM visits GROUP BY ward"


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    rows = 3_000
    table = pa.table({"patient": [i // 2 for i in range(rows)], "ward": ["A", "B", "B"] * (rows // 3), "age": [50] * rows})
    parquet.write_table(table, tmp_path / "visits.parquet")
    return tmp_path / "visits.parquet"


def call(*args: object) -> Result:
    return CliRunner().invoke(app, ["query", *map(str, args)])


UNIT = ("--unit", "user:patient", "--unit-rows", 2, "--bounds", "age=0:100")


def test_an_answer_as_a_table_and_as_json(visits: Path) -> None:
    shown = call(visits, SQL, *UNIT, "--epsilon", 20, "--delta", 1e-6)
    assert shown.exit_code == 0, shown.output
    assert "ward" in shown.stdout.splitlines()[0]
    assert "give --ledger" in shown.stderr
    found = json.loads(call(visits, SQL, *UNIT, "--epsilon", 20, "--delta", 1e-6, "--json").stdout)
    assert found["columns"]["ward"] == ["A", "B"]
    assert found["columns"]["n"] == pytest.approx([1_000, 2_000], abs=15)
    assert found["claims"][0]["game"]["unit"]["key"] == "patient"


@pytest.mark.parametrize(
    ("select", "delta", "told"),
    [
        ("SELECT COUNT(*) AS n FROM visits HAVING n > 1e9", (), "No released row satisfies HAVING."),
        ("SELECT COUNT(*) AS n FROM visits HAVING n > 1e9", ("--delta", 1e-6), "No released row satisfies HAVING."),
        ("SELECT COUNT(*) AS n FROM visits LIMIT 0", (), "The answer has no rows."),
        (f"{SQL} HAVING n > 1e9", ("--delta", 1e-6), "No group stood out from the noise and satisfies HAVING. A larger"),
        (SQL.replace("visits", "visits WHERE age > 60"), ("--delta", 1e-15), "No group stood out from the noise. A larger"),
    ],
)
def test_an_answer_without_rows_says_why(visits: Path, select: str, delta: tuple[object, ...], told: str) -> None:
    shown = call(visits, select, *UNIT, "--epsilon", 1, *delta)
    assert shown.exit_code == 0, shown.output
    assert told in shown.stderr


def test_a_dry_run_spends_and_reads_nothing(visits: Path, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", unit=user("patient", rows=2), epsilon=1.0, delta=1e-6)
    asked = (visits, SQL, *UNIT, "--epsilon", 0.5, "--delta", 1e-8, "--ledger", tmp_path / "ledger.db", "--source", "people")
    told = call(*asked, "--dry-run")
    assert told.exit_code == 0, told.output
    assert "within" in told.stdout
    assert ledger.spent("people") == 0
    assert json.loads(call(*asked, "--dry-run", "--json").stdout)["epsilon"] == pytest.approx(0.5)
    answered = call(*asked, "-o", tmp_path / "out")
    assert answered.exit_code == 0, answered.output
    assert "Charged as entry" in answered.stderr
    assert Release.load(tmp_path / "out" / "release.json").entry is not None
    assert parquet.read_table(tmp_path / "out" / "table.parquet").num_columns == 7
    page = report.html(tmp_path / "out" / "release.json")
    assert SQL in page
    assert page.count('data-head="age_low"') == 2
    assert ledger.spent("people") > 0


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("nope.parquet", SQL, "--epsilon", 1), "not a file"),
        (("{visits}", SQL, "--epsilon", 1, "--unit", "user:patient"), "--unit-rows"),
        (("{visits}", SQL, "--epsilon", 1, "--unit-rows", 3), "--unit"),
        (("{visits}", SQL, "--epsilon", 1, "--unit", "patient", "--unit-rows", 3), "write --unit user:patient"),
        (("{visits}", SQL, "--epsilon", -1, *UNIT), "above 0"),
        (("{visits}", SQL, "--epsilon", 1, *UNIT), "delta"),
        (("{visits}", "DROP TABLE visits", "--epsilon", 1, *UNIT), "one SELECT"),
        (("{visits}", SQL, "--epsilon", 1, "--delta", 1e-6, "--unit", "user:nobody", "--unit-rows", 1), "no column nobody"),
        (
            ("{visits}", SQL, "--epsilon", 1, "--delta", 1e-6, "--unit", "user:patient", "--unit-rows", 2, "--bounds", "age"),
            "age=0:120",
        ),
        (("{visits}", SQL, "--epsilon", 1, "--delta", 1e-6, "--unit", "user:patient", "--unit-rows", 2), "needs bounds"),
        (("{visits}", SQL, "--epsilon", 1, "--source", "people", *UNIT), "go together"),
        (("{visits}", SQL, "--epsilon", 1, "--account", "ann", *UNIT), "go together"),
        (("{visits}", SQL, "--epsilon", 1, "--ledger", "nope.db", *UNIT), "--ledger needs --source"),
        (("{visits}", SQL, "--epsilon", 1, "--ledger", "nope.db", "--source", "q", *UNIT), "There is no ledger at nope.db"),
        (("{visits}", SQL, "--epsilon", 1, "--schema", "nope.toml", *UNIT), "cannot be read"),
    ],
)
def test_wrong_use_is_told_in_one_paragraph(args: tuple[object, ...], told: str, visits: Path) -> None:
    done = call(*(visits if item == "{visits}" else item for item in args))
    assert done.exit_code == 2
    assert told in done.stderr
    assert "Traceback" not in done.output
    assert done.stdout == ""
    assert not Path("nope.db").exists()


def test_a_refusal_ends_with_a_command_that_can_be_run(visits: Path, tmp_path: Path) -> None:
    place = tmp_path / "our budgets.db"
    with Ledger(place) as ledger:
        ledger.open("people", unit=user("patient", rows=2), epsilon=1.0, delta=1e-6)
    paid = ("--ledger", place, "--source", "people", "--delta", 1e-7)
    refused = call(visits, "SELECT COUNT(*) AS n FROM visits", *UNIT, "--epsilon", 3, *paid)
    assert refused.exit_code == 2
    words = shlex.split(refused.stderr.rpartition("discreet ")[2])
    assert words == ["ledger", "show", "people", "--ledger", str(place)]
    assert CliRunner().invoke(app, words).exit_code == 0


def test_public_keys_and_more_tables(visits: Path) -> None:
    parquet.write_table(pa.table({"ward": ["A", "B"], "floor": [1, 2]}), visits.parent / "wards.parquet")
    (visits.parent / "s.toml").write_text('[wards]\npublic = true\nunique = ["ward"]\n')
    more = ("--table", f"wards={visits.parent / 'wards.parquet'}", "--schema", visits.parent / "s.toml")
    joined = "SELECT floor, COUNT(*) AS n FROM visits JOIN wards USING (ward) GROUP BY floor"
    found = json.loads(call(visits, joined, *UNIT[:4], *more, "--epsilon", 20, "--keys", "floor=1,2,3", "--json").stdout)
    assert found["columns"]["floor"] == [1, 2, 3]
    assert found["columns"]["n"] == pytest.approx([1_000, 2_000, 0], abs=15)
    by_ward = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
    asked = call(visits, by_ward, *UNIT, "--epsilon", 1, "--keys", "ward=A,B", "--dry-run")
    assert "2, public" in asked.stdout
    for wrong in (
        ("--keys", "ward"),
        ("--keys", "ward=A", "--keys", "ward=B"),
        ("--table", "wards"),
        ("--table", "visits=x.parquet"),
    ):
        assert call(visits, by_ward, *UNIT, "--epsilon", 1, *wrong).exit_code != 0
