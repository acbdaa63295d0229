"""Errors speak the language of where they are read: options on the command line, fields in the browser, Python in Python."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner

from discreet import Ledger, record
from discreet.cli import app
from webapp import serving

AVERAGE = "SELECT AVG(age) AS a FROM visits"


@pytest.fixture
def people(tmp_path: Path) -> str:
    parquet.write_table(pa.table({"id": list(range(50)), "age": list(range(50))}), tmp_path / "visits.parquet")
    return str(tmp_path / "visits.parquet")


def test_the_command_line_names_options_that_work_as_printed(people: str) -> None:
    told = CliRunner().invoke(app, ["query", people, AVERAGE, "--epsilon", "1"])
    assert (told.exit_code, "--bounds age=0:100" in told.stderr, "bounds={" in told.stderr) == (2, True, False)
    assert CliRunner().invoke(app, ["query", people, AVERAGE, "--epsilon", "1", "--bounds", "age=0:100"]).exit_code == 0
    groups = CliRunner().invoke(app, ["query", people, "SELECT age, COUNT(*) AS n FROM visits GROUP BY age", "--epsilon", "1"])
    assert (groups.exit_code, "--delta 1e-6" in groups.stderr, "delta=" in groups.stderr) == (2, True, False)


def test_the_browser_names_fields(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        told = served.ask("ann", sql='SELECT AVG("<b>odd</b>") AS a FROM visits').json()["error"]
        assert "bounds={" not in told
        assert "An owner can state them in the schema" in told
        asked = {"source": "hospital", "sql": "SELECT COUNT(*) AS n FROM visits", "epsilon": "50"}
        refused = served.ask("ann", sql=asked["sql"], epsilon="50").json()["error"]
        cost = served.post("/console/explain.json", "ann", asked).json()["cost"]
        page = served.get("/sources/hospital", "ada").text
        for text in (refused, cost["refusal"], page):
            assert "raise the budget" in text
            assert "discreet ledger" not in text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["ledger", "show", "peple"], "did you mean 'people'?"),
        (["ledger", "show", "zzz"], "Open it first, with its unit and its budget."),
        (["ledger", "raise", "peple", "--epsilon", "2", "--delta", "1e-6", "--by", "o", "--reason", "r"], "'people'?"),
        (["ledger", "share", "peple", "ann", "--part", "0.5", "--by", "o"], "did you mean 'people'?"),
        (["ledger", "history", "peple"], "did you mean 'people'?"),
        (["query", "{data}", "SELECT COUNT(*) AS n FROM visits", "--epsilon", "1", "--source", "peple"], "'people'?"),
        (["query", "{data}", "SELECT COUNT(*) AS n FROM visits", "--epsilon", "1", "--source", "people", "--account", "eve"],
         "Give it a share of the budget first."),
    ],
)  # fmt: skip
def test_a_name_the_ledger_does_not_have_is_told_in_words(words: list[str], told: str, people: str, tmp_path: Path) -> None:
    place = str(tmp_path / "ledger.db")
    with Ledger(place) as ledger:
        ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6)
    done = CliRunner().invoke(app, [word.format(data=people) for word in words] + ["--ledger", place])
    assert done.exit_code == 2
    assert told in done.stderr
    assert "ledger." not in done.stderr.replace("ledger.db", "")
