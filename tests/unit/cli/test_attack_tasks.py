"""The attacks that the web app runs: options become the arguments of a command, its progress and errors come back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from discreet.cli import attack_tasks
from discreet.cli.attack_tasks import attack_model, attack_table
from discreet.cli.output import progress
from discreet.core import Release
from discreet.errors import DiscreetError


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a task calls instead of the command."""
    given: list[Any] = []
    monkeypatch.setattr(attack_tasks, "_run", lambda command, arguments, progress: given.extend(arguments))
    return given


def test_the_options_of_a_model(arguments: list[str]) -> None:
    options = {"weights": "w", "members": "m", "nonmembers": "n", "recipe": "r.py", "target_column": "y", "trust_pickle": True,
               "controls": False, "attacks": "loss", "shadows": 4, "seed": 0, "claim": "c", "out": "o"}  # fmt: skip
    attack_model(options, lambda done, of: None)
    assert arguments == [
        "model", "w", "--members", "m", "--nonmembers", "n", "--recipe", "r.py", "--target-column", "y", "--attacks", "loss",
        "--shadows", "4", "--seed", "0", "--claim", "c", "--out", "o", "--trust-pickle", "--no-controls",
    ]  # fmt: skip


def test_the_options_of_a_table(arguments: list[str]) -> None:
    attack_table({"file": "f", "quasi": "a,b", "fraction": 0.1, "out": "o"}, lambda done, of: None)
    assert arguments == ["table", "f", "--quasi", "a,b", "--fraction", "0.1", "--out", "o"]


def test_a_table_is_attacked_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", sys.argv)
    table = "".join(f"{number},{number % 7},{number % 2}\n" for number in range(40))
    (tmp_path / "t.csv").write_text(f"who,age,sex\n{table}")
    (tmp_path / "p.csv").write_text(f"who,age,sex\n{table}99,3,1\n")
    options = {"file": str(tmp_path / "t.csv"), "quasi": "age,sex", "population": str(tmp_path / "p.csv"), "id": "who",
               "out": str(tmp_path / "release.json")}  # fmt: skip
    attack_table(options, lambda done, of: None)
    assert Release.load(tmp_path / "release.json").evidence[0].attack == "join on quasi-identifiers"


@pytest.mark.parametrize(("options", "message"), [({"file": "no.csv", "quasi": "a"}, "no file"), ({"file": "no.csv"}, "quasi")])
def test_errors_are_raised(options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", sys.argv)
    with pytest.raises(DiscreetError, match=message):
        attack_table(options, lambda done, of: None)


def test_progress_goes_to_the_caller() -> None:
    from discreet.cli.output import reporting_to

    steps: list[tuple[int, int]] = []
    with reporting_to(lambda done, of: steps.append((done, of))), progress(3, "working") as step:
        assert step is not None
        step(1, 3)
    with progress(3, "working") as step:
        assert step is None
    assert steps == [(1, 3)]
