"""What a verdict takes from evidence: its default delta can be resolved, and no side passes for leakage by being larger."""

from __future__ import annotations

import numpy as np
import pytest

from discreet.audit import verdict
from discreet.core import Claim, Evidence, Game, Gaussian, Pure, record

GAME = Game(record(), {"scores"})


def evidence(score, inside, *, runs: bool, design: str = "canary") -> Evidence:
    run = np.arange(len(inside)) if runs else np.zeros(len(inside), np.int64)
    return Evidence(game=GAME, attack="seen", score=score, inside=inside, run=run, design=design)


@pytest.mark.parametrize("confidence", [0.95, 0.999, 1 - 1e-6])
@pytest.mark.parametrize("runs", [True, False])
def test_what_gives_every_target_away_is_refuted_at_the_delta_chosen_for_it(confidence, runs):
    """Of a hundred targets of one run, at a delta of a tenth of a target, 99.9 % could not be reached at all."""
    inside = np.arange(100) % 2 == 0
    found = verdict(Claim(game=GAME, event=Gaussian(20.0)), evidence(inside, inside, runs=runs), confidence=confidence)
    assert (found.outcome, found.floor > found.ceiling) == ("refuted", True)


def test_where_no_coin_was_tossed_a_larger_side_is_no_leakage():
    """Scores that know nothing, nine members to one other. False alarms: less than 1e-6."""
    rng = np.random.default_rng(8)
    inside, score = np.arange(1000) < 900, rng.normal(size=1000) + 9.0
    sure = 1 - 1e-6
    found = verdict(Claim(game=GAME, event=Pure(0.1)), evidence(score, inside, runs=False, design="post_hoc"), confidence=sure)
    assert (found.floor, found.outcome) == (0.0, "holds")
    told = verdict(Claim(game=GAME, event=Pure(9.0)), evidence(score, inside, runs=False, design="post_hoc"), confidence=sure)
    assert told.reason.startswith("200 targets can show at most epsilon")


def test_as_many_of_both_sides_all_count():
    inside = np.arange(1000) % 2 == 0
    told = verdict(Claim(game=GAME, event=Pure(9.0)), evidence(inside, inside, runs=False, design="post_hoc"), confidence=0.999)
    assert told.reason.startswith("1000 targets can show at most epsilon")


def test_uneven_coins_of_an_older_document_warn_and_do_not_refute():
    inside = np.arange(1000) < 900
    document = {**evidence(inside, inside, runs=True, design="post_hoc").to_json(), "design": "paired"}
    found = verdict(Claim(game=GAME, event=Pure(0.1)), Evidence.from_json(document), confidence=0.999)
    assert (found.outcome, found.floor > found.ceiling) == ("warning", True)
