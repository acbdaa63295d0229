"""A claim about ciphertexts is about the machine that computed; nothing that others are told applies it to the answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from discreet.charts import card
from discreet.cli.show import _rows
from discreet.core import Claim, Game, Laplace, Release, Zero, record
from discreet.integrations.mlflow import tags
from discreet.report import card as model_card
from discreet.report import document, html, markdown
from discreet.report.assessment import assess
from discreet.report.gate import Policy
from discreet.serve.store import epsilon_of

ROW = record("replace")
MACHINE = Claim(game=Game(ROW, {"ciphertexts"}), event=Zero(), assumptions=("ring learning with errors is hard",))
ANSWER = Claim(game=Game(ROW, {"answers"}), event=Laplace(2.0))


def _release(*claims: Claim, value: Any = None) -> Release[Any]:
    return Release(value=np.array([[1.0]]) if value is None else value, source="clinic", claims=claims, entry="1-ab")


def test_a_disclosed_answer_has_no_ceiling_anywhere() -> None:
    release = _release(MACHINE)
    (item,) = assess(release)
    assert item.status == "no ceiling"
    assert item.sentence.startswith("Nothing is promised and nothing was tried")
    assert "about the machine that computed, and not about what was decrypted" in item.sentence
    assert "a machine that sees ciphertexts alone and gave even odds to two versions of a given row" in item.sentence
    for told in (html(release), markdown(release), model_card(release)):
        assert "someone who gave even odds" not in told
        assert "For the machine that computed, and for nobody else: " in told
        assert "no ceiling on what that gives away" in told
        assert "of the machine" in told
    whole = document(release)
    (made,) = whole["releases"]
    assert made["verdict"]["status"] == "no ceiling"
    assert made["claims"][0]["guarantee"].startswith("For the machine")
    assert "nothing private was touched" not in str(whole["releases"][0]["claims"][0]["mechanism"])
    assert "no ceiling on what was decrypted" in str(whole)
    assert epsilon_of(release.claims_on_value) is None
    shown = card(release)
    assert "belief (machine that computed)" in shown
    assert "no claim is about what was decrypted" in shown
    assert "<svg" not in shown  # no ceiling is drawn
    assert any("no ceiling on what was decrypted" in text for _, text in _rows(release, (1e-5,), None))


@pytest.mark.parametrize(("rule", "met"), [
    ("epsilon = { at_delta = 1e-5, max = 1.0 }", False),
    ("epsilon = { at_delta = 1e-5, max = 1.0, unit = \"record\" }", False),
    ("epsilon = { at_delta = 1e-5, max = 1.0, view = [\"ciphertexts\"] }", True),
    ("require = [\"claim\"]", False),
    ("require = [\"claim.rows\"]", False),
    ("require = [\"claim.view == ciphertexts\"]", True),
])  # fmt: skip
def test_a_claim_about_the_machine_meets_no_rule_but_one_that_asks_for_it(rule: str, met: bool) -> None:
    on = "release" if rule.startswith("require") else "claim"
    policy = Policy.from_toml(f'[[rule]]\non = "{on}"\n{rule}\n')
    found = [each for each in policy.judge(_release(MACHINE)) if each.rule != "claims-hold"]
    assert [each.outcome for each in found] == ["holds" if met else "failed"]
    assert met or "the machine" in found[0].message
    both = [each.outcome for each in policy.judge(_release(ANSWER, MACHINE)) if each.rule != "claims-hold"]
    assert set(both) == {"holds"}


def test_annex_coverage_and_tags_of_a_disclosed_answer() -> None:
    release = _release(MACHINE)
    assert "Whoever gets the release: what was decrypted." in str(document(release, annex=True)["annex"])
    assert any("reconstruction of the answers" in told for told in assess(release)[0].not_tried)
    told = dict(tags(release, 1e-5))
    assert (told["discreet.epsilon"], told["discreet.machine.epsilon"], "discreet.view" in told) == ("inf", "0", False)
    both = dict(tags(_release(MACHINE, ANSWER), 1e-5))
    assert (both["discreet.epsilon"], both["discreet.view"], both["discreet.machine.view"]) == ("0.5", "answers", "ciphertexts")


def test_a_claim_about_the_answer_counts_beside_one_about_the_machine() -> None:
    (item,) = assess(_release(ANSWER, MACHINE))
    (alone,) = assess(_release(ANSWER))
    assert (item.status, item.sentence) == (alone.status, alone.sentence)
    nothing = Release(value=None, source="clinic", claims=(MACHINE,))
    assert nothing.claims_on_value == (MACHINE,)
    assert assess(nothing)[0].status == "untested"
