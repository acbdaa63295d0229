"""Attacks that found nothing in their own control: no surface takes their silence for a pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from discreet.core import Claim, Evidence, Game, Gaussian, Release, record
from discreet.report import markdown
from discreet.report.assessment import assess
from discreet.report.gate import Policy
from discreet.report.tables import control_notes

GAME = Game(record(), {"scores"})
RULES = """
[[rule]]
name = "tried"
on = "release"
require = ["evidence.membership"]

[[rule]]
name = "low"
on = "attack.*"
tpr = { at_fpr = 0.01, max = 0.2 }
"""


def release(found: dict[str, bool]) -> Release[Any]:
    """A release on which attacks of these names find nothing, with what each found in its control."""
    random, inside = np.random.default_rng(0), np.arange(4000) % 2 == 0
    seen = tuple(
        Evidence(
            game=GAME, attack=name, score=random.normal(size=4000), inside=inside, run=np.zeros(4000, int), design="post_hoc"
        )
        for name in found
    )
    controls = [
        {"name": f"{name} on an overfit control", "attack": name, "kind": "positive", "found": it} for name, it in found.items()
    ]
    claim = Claim(game=GAME, event=Gaussian(2.0))
    return Release(value=1, source="people", claims=(claim,), evidence=seen, facts={"controls": controls})


def outcomes(made: Release[Any]) -> dict[str, list[str]]:
    findings = Policy.from_toml(RULES).judge(made)
    return {rule: [each.outcome for each in findings if each.rule.startswith(rule)] for rule in ("tried", "low", "claims-hold")}


def test_where_all_are_blind_nothing_was_measured() -> None:
    made = release({"lira": False, "loss": False})
    assert outcomes(made) == {"tried": ["failed"], "low": ["inconclusive"] * 2, "claims-hold": ["holds"]}
    assert "their silence means nothing" in Policy.from_toml(RULES).judge(made)[-1].message
    page = markdown(made)
    assert "all of them found nothing even in a control" in page
    assert "It may be signed" not in page


def test_one_that_sees_is_enough_and_the_others_are_told() -> None:
    made = release({"lira": True, "loss": False})
    assert outcomes(made) == {"tried": ["holds"], "low": ["holds"] * 2, "claims-hold": ["holds"]}
    tried, *low, _ = (each.message for each in Policy.from_toml(RULES).judge(made) if each.rule != "as-it-says")
    assert "1 of these 2 found nothing even in their control" in tried
    assert [("its silence means nothing" in each) for each in low] == [False, True]
    assert "1 of them found nothing even in a control" in markdown(made)


def test_where_all_see_nothing_is_said() -> None:
    made = release({"lira": True, "loss": True})
    assert outcomes(made) == {"tried": ["holds"], "low": ["holds"] * 2, "claims-hold": ["holds"]}
    assert "silence" not in markdown(made)


def test_all_blind_controls_are_counted() -> None:
    names = [f"attack-{number}" for number in range(13)]
    (note,) = control_notes(assess(release(dict.fromkeys(names, False)))[0])
    assert note.startswith("13 controls (")
    assert "10 more" in note


@pytest.mark.parametrize("attack", ["attribute inference of Divorced", "gradient inversion (dlg)", "text extraction"])
def test_other_attacks_are_no_membership_inference(attack: str) -> None:
    """A policy that requires membership evidence held with attribute inference alone."""
    assert outcomes(release({attack: True}))["tried"] == ["failed"]
