"""Releases for the tests of reports: from fixed seeds, about nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from discreet.core import (
    Claim,
    DiscreteLaplace,
    Evidence,
    ExternalValue,
    Game,
    Gaussian,
    NonPrivate,
    Poisson,
    Pure,
    Release,
    Repeat,
    record,
)
from discreet.errors import BudgetExceeded
from discreet.ledger import Ledger

GROUPS = [
    {"by": "class", "group": "readmitted", "n": 420, "tpr": {"0.01": 0.31, "0.001": 0.1}, "auc": 0.81},
    {"by": "class", "group": "not readmitted", "n": 1580, "tpr": {"0.01": 0.06}, "auc": 0.62},
]
MADE = {
    "when": "2026-11-16T07:00:00Z", "discreet": "0.1.0", "python": "3.11.9", "packages": {"torch": "2.13.0"},
    "command": "discreet attack model model.safetensors",
}  # fmt: skip
COUNT = Claim(
    game=Game(record(), {"answers"}), event=DiscreteLaplace(2.0), assumptions=("one record moves the count by at most 1",)
)
TRAINED = Claim(
    game=Game(record(), {"transcript"}), event=Repeat(Poisson(0.01, Gaussian(1.1)), 1500),
    assumptions=("Batches and gradients before noise were shown to nobody.",),
)  # fmt: skip


def evidence(
    gap: float, *, attack: str = "lira", view: str = "scores", design: str = "post_hoc", targets: int = 4000, seed: int = 0
) -> Evidence:
    """Normal scores, `gap` apart; the coins of `paired` and `canary` are fair."""
    random = np.random.default_rng([seed, len(attack)])
    inside = random.random(targets) < 0.5
    runs = np.arange(targets) if design == "paired" else np.zeros(targets, int)
    score = random.normal(size=targets) + gap * inside
    return Evidence(game=Game(record(), {view}), attack=attack, score=score, inside=inside, run=runs, design=design)


def leaky() -> Release[Any]:
    """A model with nothing claimed, and three attacks that find something."""
    facts = {
        "title": "Readmission model, trained plainly", "made": MADE, "seeds": {"shadows": 0},
        "hashes": {"model.safetensors": "sha256:" + "ab" * 32}, "groups": GROUPS,
        "exposed": [{"index": place, "score": 9.0 - place} for place in range(5)],
        "quality": {"train accuracy": 0.99, "test accuracy": 0.81},
        "controls": [
            {"name": "overfit twin", "kind": "positive", "auc": 0.93, "tpr": {"0.01": 0.6}, "found": True},
            {"name": "never trained on", "kind": "negative", "auc": 0.5, "found": False},
        ],
    }  # fmt: skip
    claim = Claim(game=Game(record(), {"weights"}), event=NonPrivate())
    found = (evidence(1.2, targets=24_000), evidence(0.8, attack="loss"), evidence(1.0, attack="gradient", view="weights"))
    return Release(value=ExternalValue("model"), source="hospital", claims=(claim,), evidence=found, facts=facts)


def private() -> Release[Any]:
    """The same trained privately: attacks stay under the ceiling."""
    facts = {
        "title": "Readmission model, trained privately", "made": MADE, "quality": {"test accuracy": 0.79}, "groups": GROUPS[:1],
        "spending": [[1, 0.1], [500, 1.1], [1000, 1.5], [1500, 1.87]], "marginal_errors": {"age": 0.02, "ward": 0.01},
    }  # fmt: skip
    found = (evidence(0.05), evidence(0.05, attack="mislabelled canaries", design="canary", targets=2000))
    return Release(value=ExternalValue("model"), source="hospital", claims=(TRAINED,), evidence=found, facts=facts)


def broken() -> Release[Any]:
    """A count that claims far too little."""
    claim = Claim(game=Game(record(), {"answers"}), event=Pure(0.5))
    found = (evidence(2.0, attack="threshold on the answer", view="answers", design="paired"),)
    return Release(value=17, source="clinic", claims=(claim,), evidence=found)


def ledger(folder: Path) -> tuple[Ledger, Release[Any]]:
    """A ledger that paid for three counts and refused a fourth, and the last of the counts."""
    made = Ledger(folder / "ledger.db")
    made.open("hospital", unit=record(), epsilon=4.0, delta=1e-6)
    for _ in range(3):
        with made.reserve("hospital", COUNT) as entry:
            paid = entry
    with pytest.raises(BudgetExceeded):
        made.reserve("hospital", Claim(game=COUNT.game, event=Pure(30.0)))
    return made, Release(value=413, source="hospital", claims=(COUNT,), entry=paid, facts={"title": "Visits"})
