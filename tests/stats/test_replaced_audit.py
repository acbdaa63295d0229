"""A Poisson-sampled Gaussian whose unit is replaced: its own claim holds, and that of an added unit is refuted.

Seeded, so it is the same every time. `refuted` is asked at confidence 1 - 1e-6, and the best test there is, the likelihood
ratio of the two worlds, scores 40,000 simulated runs: the wrong claim is refuted with a wide margin.
"""

from __future__ import annotations

import numpy as np
import pytest

from discreet.accounting import Gaussian, Poisson, PoissonReplace, Repeat
from discreet.audit import verdict
from discreet.core import Claim, Evidence, Game, record
from discreet.core import claim as claims

CONFIDENCE = 1 - 1e-6
RATE, SIGMA, STEPS, RUNS = 0.05, 1.0, 60, 40_000
GAME = Game(record("replace"), {"answers"})


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    """One row is 1 in one world and -1 in the other; each step releases the noisy sum over a fresh sample."""
    random = np.random.default_rng(11)
    inside = random.random(RUNS) < 0.5
    score = np.zeros(RUNS)
    for _ in range(STEPS):
        taken = random.random(RUNS) < RATE
        seen = taken * np.where(inside, 1.0, -1.0) + SIGMA * random.normal(size=RUNS)
        one, other = (1 - RATE + RATE * np.exp((2 * way * seen - 1) / (2 * SIGMA**2)) for way in (1, -1))
        score += np.log(one / other)
    return Evidence(game=GAME, attack="likelihood ratio", score=score, inside=inside, run=np.arange(RUNS), design="paired")


def test_the_claim_for_a_replaced_unit_holds(evidence: Evidence) -> None:
    claim = Claim(game=GAME, event=Repeat(PoissonReplace(RATE, Gaussian(SIGMA)), STEPS))
    assert verdict(claim, evidence, confidence=CONFIDENCE).outcome == "holds"


def test_the_claim_for_an_added_unit_is_refuted(evidence: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: what earlier versions took. Today no such claim can be made, so the check is put aside."""
    monkeypatch.setattr(claims, "check_relation", lambda event, relation: None)
    claim = Claim(game=GAME, event=Repeat(Poisson(RATE, Gaussian(SIGMA)), STEPS))
    assert verdict(claim, evidence, confidence=CONFIDENCE).outcome == "refuted"
