"""`discreet ledger`: what each command does, in words and in JSON, and how it fails."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from discreet import Ledger, record
from discreet.accounting import Gaussian, Pure, calibrate
from discreet.cli import app
from discreet.core import Claim, Game, user

CLAIM = Claim(game=Game(record(), {"answers"}), event=Gaussian(20.0))
TERMS = ("--unit", "record", "--epsilon", "1", "--delta", "1e-6")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    assert run(path, "open", "people", *TERMS).exit_code == 0
    return path


def run(place: Path, command: str, *args: str) -> Result:
    return CliRunner().invoke(app, ["ledger", command, *args], env={"DISCREET_LEDGER": str(place)})


def data(place: Path, command: str, *args: str) -> Any:
    result = run(place, command, *args, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


def test_open_says_everything_and_is_what_the_library_opens(tmp_path: Path) -> None:
    given = ("--unit", "user:patient", "--unit-rows", "4", "--epsilon", "3", "--delta", "1e-6", "--failure", "1e-7")
    found = data(tmp_path / "new.db", "open", "people", *given)
    assert found["budget"]["epsilon"] == 3
    assert data(tmp_path / "new.db", "open", "others", *given[:-2])["budget"]["failure"] == 5e-7
    with Ledger(tmp_path / "new.db") as ledger:
        ledger.open("people", unit=user("patient", rows=4), epsilon=3, delta=1e-6, failure=1e-7)
        assert len(ledger.history()) == 2


@pytest.mark.parametrize(
    "given",
    [
        ("--unit", "record", "--epsilon", "1"),
        ("--unit", "record", "--delta", "1e-6"),
        ("--epsilon", "1", "--delta", "1e-6"),
        ("--unit", "user:id", "--epsilon", "1", "--delta", "1e-6"),
        ("--unit", "user", "--unit-rows", "3", "--epsilon", "1", "--delta", "1e-6"),
        ("--unit", "user:id", "--unit-rows", "few", "--epsilon", "1", "--delta", "1e-6"),
        ("--unit", "record", "--unit-rows", "3", "--epsilon", "1", "--delta", "1e-6"),
        ("--unit", "house", "--epsilon", "1", "--delta", "1e-6"),
        ("--unit", "record", "--epsilon", "0", "--delta", "1e-6"),
    ],
)
def test_what_decides_privacy_is_said(tmp_path: Path, given: tuple[str, ...]) -> None:
    result = run(tmp_path / "new.db", "open", "people", *given)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: " in result.stderr


def test_show_tells_budget_spent_and_left(place: Path) -> None:
    with Ledger(place) as ledger:
        ledger.share("people", "ann", 0.25, by="owner")
        ledger.reserve("people", CLAIM, account="ann")
        balance = ledger.balance("people")
    text = run(place, "show", "people").stdout
    assert "epsilon 1 at delta 1e-6" in text
    assert re.search(r"\nann +25 % ", text)
    assert "unused" in text
    found = data(place, "show", "people")
    assert found["spent"]["amount"] == balance.spent.to_json()
    assert 0 < found["spent"]["epsilon"] <= 1
    assert found["left"]["epsilon"] == balance.epsilon_left
    assert re.search(rf"left +epsilon {balance.left_in_words()}", text)
    assert [item["account"] for item in found["accounts"]] == ["ann", "default"]
    assert [item["source"] for item in data(place, "show")["sources"]] == ["people"]
    assert run(place, "show").stdout.startswith("source  budget")


def test_show_tells_charges_as_they_were_asked_and_how_the_total_was_reached(place: Path) -> None:
    run_of_three = Claim(game=CLAIM.game, event=Gaussian(calibrate(Gaussian, 3.0, 1e-6)))
    with Ledger(place) as ledger:
        ledger.open("study", unit=record(), epsilon=10.0, delta=1e-5)
        entry = ledger.reserve("study", run_of_three, asked=(3.0, 1e-6)).id
        ledger.reserve("study", CLAIM).cancel("withdrawn")
    text = run(place, "show", "study").stdout
    assert "epsilon 3 at delta 1e-5" in text
    assert "by basic composition (Rényi divergences of order" in text
    assert f"charge {entry}" in text
    assert text.count("charge ") == 1  # what was cancelled is not listed
    assert "epsilon 3 at delta 1e-6" in text
    shown = run(place, "history", "study").stdout
    assert "gaussian; epsilon 3 at delta 1e-6" in shown
    assert "  answer  " in shown  # words, not the names of the ledger's table
    rows = dict(line.split(maxsplit=1) for line in text.splitlines())
    assert rows["total"].startswith("epsilon 3 at delta 1e-5 by basic composition")
    assert_one_sum(rows["used"])
    ways = data(place, "show", "study")["spent"]["ways"]
    assert ways["basic"] == 3.0 < ways["renyi"]


def test_what_is_not_listed_is_counted(place: Path) -> None:
    with Ledger(place) as ledger:
        ledger.open("study", unit=record(), epsilon=10.0, delta=1e-5)
        for number in range(14):
            charge = ledger.reserve("study", CLAIM)
            if number in (0, 12):
                charge.cancel("withdrawn")
    text = run(place, "show", "study").stdout
    assert text.count("charge ") == 10
    told = text.splitlines()[-1]
    assert "and 2 earlier" in told
    command = told.partition("discreet ledger ")[2].split()
    assert command[:2] == ["history", "study"]
    whole = run(place, *command)
    assert (whole.stdout.count("\n"), whole.stderr) == (1 + 17, "")  # the heads; opened, 14 charges, 2 cancelled
    assert "and 12 earlier: --last 17" in run(place, "history", "study", "--last", "5").stderr


def assert_one_sum(used: str) -> None:
    """What is used, its limit and the percentage are of the same sum: as printed, rounded outwards."""
    part, so_far, limit = (float(number) for number in re.match(r"([\d.]+) % of .* \(([\d.]+) of ([\d.]+) in ", used).groups())  # type: ignore[union-attr]
    assert part == pytest.approx(100 * so_far / limit, rel=0.02)


@pytest.mark.parametrize("event", [Gaussian(20.0), Pure(0.25)])
def test_used_and_percent_are_of_one_sum(place: Path, event: Gaussian | Pure) -> None:
    with Ledger(place) as ledger:
        ledger.reserve("people", Claim(game=CLAIM.game, event=event))
    rows = dict(line.split(maxsplit=1) for line in run(place, "show", "people").stdout.splitlines())
    assert_one_sum(rows["used"])
    assert ("Rényi divergence of order" in rows["used"]) == isinstance(event, Gaussian)


def test_the_epsilon_that_is_left_fits_and_a_little_more_does_not(place: Path) -> None:
    from discreet.accounting import Pure
    from discreet.errors import BudgetExceeded

    with Ledger(place) as ledger:
        ledger.reserve("people", CLAIM)
        left = ledger.balance("people").epsilon_left
        with pytest.raises(BudgetExceeded):
            ledger.reserve("people", Claim(game=CLAIM.game, event=Pure(left * 1.001)))
        ledger.reserve("people", Claim(game=CLAIM.game, event=Pure(left)))
        assert 0.999 < ledger.balance("people").epsilon_spent <= 1.0
        assert ledger.balance("people").epsilon_left < 0.01


def test_grants_are_signed(place: Path) -> None:
    more = ("people", "--epsilon", "2", "--delta", "1e-6")
    assert run(place, "raise", *more).exit_code == 2
    assert run(place, "raise", *more, "--by", "owner").exit_code == 2
    assert data(place, "raise", *more, "--by", "owner", "--reason", "a study")["budget"]["epsilon"] == 2
    assert [item["account"] for item in data(place, "share", "people", "ann", "--part", "0.5", "--by", "owner")["accounts"]]
    assert run(place, "open", "visits", *TERMS, "--by-period").exit_code == 0
    assert data(place, "renew", "visits", "--period", "2026-11", "--by", "o", "--reason", "r")["source"] == "visits@2026-11"
    assert "for each period" in run(place, "show").stdout
    kinds = [entry["kind"] for entry in data(place, "history")["entries"]]
    assert kinds == ["open", "raise", "share", "open", "renew"]
    assert [entry["kind"] for entry in data(place, "history", "people", "--last", "2")["entries"]] == ["raise", "share"]
    assert "a study" in run(place, "history").stdout


def test_verify_names_the_entry_at_fault(place: Path) -> None:
    noted = data(place, "verify")["last"]
    assert run(place, "verify", "--noted", noted).exit_code == 0
    assert run(place, "verify", "--noted", "9-0").exit_code == 1
    link = sqlite3.connect(place)
    link.execute("DROP TRIGGER entry_is_never_changed")
    link.execute("UPDATE entry SET at = 'then' WHERE number = 1")
    link.commit()
    link.close()
    result = run(place, "verify")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Entry 1 was tampered with" in result.stderr
    told = run(place, "verify", "--json")
    assert (told.exit_code, json.loads(told.stdout)["entry"]) == (1, 1)


def test_export_is_lines_of_json(place: Path) -> None:
    with Ledger(place) as ledger:
        assert run(place, "export").stdout.splitlines() == list(ledger.export())


def test_a_mistyped_ledger_is_not_made(tmp_path: Path) -> None:
    for command in (("show",), ("verify",), ("history",), ("export",), ("share", "a", "b", "--part", "0.1", "--by", "c")):
        result = run(tmp_path / "nowhere.db", *command)
        assert result.exit_code == 2
        assert "There is no ledger at" in result.stderr
    assert list(tmp_path.iterdir()) == []
    assert "Missing option '--ledger'" in CliRunner().invoke(app, ["ledger", "show"], env={"DISCREET_LEDGER": ""}).stderr
