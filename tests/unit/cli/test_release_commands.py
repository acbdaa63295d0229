"""`discreet show` and `discreet audit` on release files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from discreet import Ledger
from discreet.accounting import curve
from discreet.cli import app
from discreet.core import Claim, Evidence, Game, Gaussian, Laplace, NonPrivate, Release, record
from discreet.figures import up

GAME = Game(record(), {"answers"})


def run(*args: str) -> Result:
    return CliRunner().invoke(app, list(args))


def evidence(gap: float, design: str = "paired") -> Evidence:
    """Four thousand seeded answers with Laplace noise of scale 1, `gap` apart."""
    random = np.random.default_rng(7)
    inside = random.random(4000) < 0.5
    score = random.laplace(size=4000) + gap * inside
    return Evidence(game=GAME, attack="threshold", score=score, inside=inside, run=np.arange(4000), design=design)


def saved(folder: Path, *found: Evidence, claims: tuple[Claim, ...] = (Claim(game=GAME, event=Laplace(1.0)),)) -> str:
    return str(Release(value=41, source="people", claims=claims, evidence=found).save(folder / "release.json"))


def test_a_true_claim_holds(tmp_path: Path) -> None:
    result = run("audit", saved(tmp_path, evidence(1.0)))
    assert result.exit_code == 0, result.stderr
    assert "holds" in result.stdout


def test_a_false_claim_is_refuted_with_three(tmp_path: Path) -> None:
    result = run("audit", saved(tmp_path, evidence(1.0), evidence(3.0)), "--json")
    assert result.exit_code == 3, result.stderr
    outcomes = [item["outcome"] for item in json.loads(result.stdout)["verdicts"]]
    assert outcomes == ["holds", "refuted"]


def test_post_hoc_evidence_never_refutes_and_never_passes(tmp_path: Path) -> None:
    result = run("audit", saved(tmp_path, evidence(3.0, "post_hoc")))
    assert (result.exit_code, "warning" in result.stdout, "refuted" in result.stdout) == (1, True, False)


def test_no_ceiling_is_said(tmp_path: Path) -> None:
    result = run("audit", saved(tmp_path, evidence(3.0), claims=(Claim(game=GAME, event=NonPrivate()),)), "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)["verdicts"][0]
    assert (found["outcome"], found["ceiling"]) == ("no ceiling", None)


@pytest.mark.parametrize(("found", "claims", "lacking"), [((), None, "evidence"), ((evidence(1.0),), (), "claims")])
def test_nothing_to_compare_is_a_failed_check(found: tuple[Evidence, ...], claims: None, lacking: str, tmp_path: Path) -> None:
    file = saved(tmp_path, *found) if claims is None else saved(tmp_path, *found, claims=claims)
    result = run("audit", file)
    assert result.exit_code == 1
    assert f"has no {lacking}" in result.stderr


@pytest.mark.parametrize("args", [["--confidence", "2"], ["--confidence", "nan"], ["--confidence", "x"]])
def test_a_wrong_confidence_is_wrong_use(args: list[str], tmp_path: Path) -> None:
    assert run("audit", saved(tmp_path, evidence(1.0)), *args).exit_code == 2


@pytest.mark.parametrize("command", ["audit", "show"])
@pytest.mark.parametrize("text", ["", "{}", "null", '{"format": "discreet-release"}', "\ud800"])
def test_what_is_no_release_is_refused(command: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "release.json"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    result = run(command, str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: ")


def test_show_tells_the_claim_and_the_evidence(tmp_path: Path) -> None:
    file = saved(tmp_path, evidence(1.0))
    text = run("show", file).stdout
    for said in (
        "people",
        "41",
        "Laplace(noise_multiplier=1.0)",
        "1 at delta 1e-5",
        "one record (1 row)",
        "threshold, paired",
    ):
        assert said in text
    found = json.loads(run("show", file, "--json").stdout)
    assert found["claims"][0]["epsilon"][0]["epsilon"] == pytest.approx(1.0, abs=1e-4)
    assert found["evidence"][0]["targets"] == 4000


def test_show_tells_epsilon_at_the_delta_of_the_budget(tmp_path: Path) -> None:
    """With the ledger that paid, in the card too; another delta is named beside it, and none is said to be the budget's."""
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("people", unit=record(), epsilon=20.0, delta=3e-6)
    gaussian = Claim(game=GAME, event=Gaussian(1.0))
    file, card = saved(tmp_path, evidence(1.0), claims=(gaussian,)), tmp_path / "card.html"
    paid = ["--ledger", str(tmp_path / "ledger.db")]
    want = up(curve(Gaussian(1.0)).epsilon(3e-6))
    text = run("show", file, *paid, "--html", str(card)).stdout
    assert f"{want} at delta 3e-6, that of the budget" in text
    assert f"{want} at δ = 3e-06" in card.read_text("utf-8")
    assert "that of the budget" not in run("show", file).stdout
    assert json.loads(run("show", file, *paid, "--json").stdout)["claims"][0]["epsilon"][0]["delta"] == 3e-6
    assert f"ε = {want} at δ = 3e-6" in run("report", file, *paid).stdout


def test_show_writes_a_card(tmp_path: Path) -> None:
    result = run("show", saved(tmp_path, evidence(1.0)), "--html", str(tmp_path / "card.html"))
    assert result.exit_code == 0
    assert "card.html" in result.stderr
    assert 'data-role="ceiling"' in (tmp_path / "card.html").read_text()


def test_show_and_audit_say_the_same_of_what_is_not_claimed(tmp_path: Path) -> None:
    file = saved(tmp_path, evidence(3.0, "post_hoc"), claims=(Claim(game=GAME, event=NonPrivate()),))
    shown = run("show", file).stdout
    assert "∞ at delta 1e-5: there is no ceiling" in shown
    assert "threshold, post_hoc" in shown
    assert "cannot refute a claim" in shown
    assert "no ceiling" in run("audit", file).stdout


def test_a_folder_stands_for_the_release_in_it(tmp_path: Path) -> None:
    saved(tmp_path, evidence(1.0))
    assert run("show", str(tmp_path)).exit_code == run("audit", str(tmp_path)).exit_code == 0
    assert run("show", str(tmp_path / "..")).exit_code == 2


def test_refutations_are_equally_sure_wherever_they_are_told() -> None:
    from discreet.audit.judge import SURE
    from discreet.cli.audit import SURE as AUDIT
    from discreet.report.gate.policy import SURE as GATE
    from discreet.report.model import SURE as REPORT

    assert AUDIT["release"] == SURE == REPORT == GATE
