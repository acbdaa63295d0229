"""The attacks that the web app runs: its options become those of an audit; progress and errors come back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from discreet.attack.membership import model_audit
from discreet.cli import attack
from discreet.cli.attack_tasks import attack_model, attack_table
from discreet.cli.output import progress
from discreet.core import Release
from discreet.errors import DiscreetError


def test_the_options_of_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    audits: list[Any] = []
    steps: list[tuple[int, int]] = []

    def run(self: model_audit.ModelAudit, *, progress: Any, command: str) -> None:
        progress(1, 3)
        audits.append((self, command))

    monkeypatch.setattr(model_audit.ModelAudit, "run", run)
    options = {
        "weights": "w", "members": "m", "nonmembers": "n", "recipe": "a/r.py", "target_column": "y", "trust_pickle": True,
        "controls": False, "attacks": "loss", "shadows": 4, "seed": 0, "claim": "c", "out": "o",
    }  # fmt: skip
    attack_model(options, lambda done, of: steps.append((done, of)))
    [(audit, command)] = audits
    assert audit == model_audit.ModelAudit(
        weights="w", members="m", nonmembers="n", out="o", recipe="a/r.py", target_column="y", attacks=("loss",), shadows=4,
        controls=False, claim="c", seed=0, trust_pickle=True,
    )  # fmt: skip
    assert command == (
        "discreet attack model w --members m --nonmembers n --recipe r.py --target-column y --claim c --output o --attacks "
        "loss --shadows 4 --seed 0 --trust-pickle --no-controls"
    )
    assert steps == [(1, 3)]


def test_the_options_of_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr(attack, "audit_table", lambda *arguments: given.extend(arguments))
    attack_table({"file": "f", "quasi": "a,b", "fraction": 0.1, "out": "o"}, lambda done, of: None)
    assert given == ["f", "a,b", 0.1, None, None, None, "o"]


def test_a_table_is_attacked_in_python(tmp_path: Path) -> None:
    table = "".join(f"{number},{number % 7},{number % 2}\n" for number in range(40))
    (tmp_path / "t.csv").write_text(f"who,age,sex\n{table}")
    (tmp_path / "p.csv").write_text(f"who,age,sex\n{table}99,3,1\n")
    options = {"file": str(tmp_path / "t.csv"), "quasi": "age,sex", "population": str(tmp_path / "p.csv"), "id": "who",
               "out": str(tmp_path / "release.json")}  # fmt: skip
    attack_table(options, lambda done, of: None)
    assert Release.load(tmp_path / "release.json").evidence[0].attack == "join on quasi-identifiers"


@pytest.mark.parametrize(("options", "message"), [({"file": "no.csv", "quasi": "a"}, "no file"), ({"file": "no.csv"}, "quasi")])
def test_errors_are_raised(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DiscreetError, match=message):
        attack_table(options, lambda done, of: None)


def test_no_bar_is_drawn_where_there_is_no_terminal() -> None:
    with progress(3, "working") as step:
        assert step is None
