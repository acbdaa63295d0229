"""Worlds, playing, verdicts."""

from __future__ import annotations

import math

import numpy as np
import pytest

import discreet
from discreet.audit import Canaries, Pair, Readout, audit, verdict
from discreet.core import (
    Claim,
    Evidence,
    Game,
    Gaussian,
    Laplace,
    NonPrivate,
    Pure,
    Repeat,
    Zero,
    record,
    user,
)  # fmt: skip
from discreet.errors import InvalidValue
from discreet.noise import LaplaceNoise

GAME = Game(record(), {"answers"})
COUNT = LaplaceNoise(scale=1, sensitivity=1, unit=record())
RNG = np.random.default_rng(3)
INSIDE = RNG.random(2000) < 0.5


def evidence(score=None, design="paired", game=GAME, count=2000):
    inside = INSIDE[:count]
    return Evidence(
        game=game,
        attack="peek",
        score=inside if score is None else score[:count],
        inside=inside,
        run=np.arange(count),
        design=design,
    )


def claim(event, game=GAME):
    return Claim(game=game, event=event)


def test_the_module_is_also_the_function():
    found = discreet.audit(COUNT, Readout(), Pair(1, 0, seed=1), runs=20)
    assert isinstance(found, Evidence)
    assert discreet.audit.epsilon_lower_bound is not None
    assert audit(COUNT, Readout(), Pair(1, 0, seed=1), runs=20).inside.tolist() == found.inside.tolist()


def test_worlds_flip_fair_coins():
    truth = [Pair("a", "b").draw(run)[2][0] for run in range(400)]
    assert 120 < sum(truth) < 280  # wrong once in 10^14
    assert Pair("a", "b", seed=1).draw(7)[2] == Pair("a", "b", seed=1).draw(7)[2]
    data, targets, inside = Canaries(np.zeros((2, 3)), [np.ones(3)] * 50, seed=2).draw(0)
    assert data.shape == (2 + inside.sum(), 3)
    assert len(targets) == 50
    with pytest.raises(InvalidValue, match="at least one"):
        Canaries([], [])
    with pytest.raises(InvalidValue, match="insert="):
        Canaries("base", [1], seed=1).draw(0)


def test_audit_records_what_happened():
    calls = []
    worlds = Canaries([0] * 3, range(3), lambda base, chosen: [int(i in chosen) for i in range(3)], seed=1)
    found = audit(
        COUNT, Readout(lambda seen, i: seen[i]), worlds, runs=4, progress=lambda done, runs: calls.append((done, runs))
    )
    assert found.design == "canary"
    assert found.run.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert found.game == GAME


@pytest.mark.parametrize(
    ("attack", "worlds", "match"),
    [
        (Readout(lambda seen, target: math.nan), Pair(1, 0), "finite"),
        (type("Odd", (Readout,), {"score": lambda self, seen, targets: [1.0, 2.0]})(), Pair(1, 0), "one number per target"),
        (Readout(), type("Odd", (), {"draw": lambda self, run: (1, [0])})(), "three things"),
        (Readout(), type("Odd", (), {"draw": lambda self, run: (1, [0], [True, False])})(), "one true or false per target"),
        (Readout(), type("Odd", (), {"draw": lambda self, run: (1, [0], [1.0])})(), "one true or false per target"),
    ],
)
def test_strangers_mistakes(attack, worlds, match):
    with pytest.raises(InvalidValue, match=match):
        audit(COUNT, attack, worlds, runs=1)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((None, Readout(), Pair(1, 0)), "mechanism must be"), ((COUNT, None, Pair(1, 0)), "attack must be"),
        ((COUNT, Readout(), None), "worlds must be"),
    ],
)  # fmt: skip
def test_all_three_players_are_needed(arguments, match):
    with pytest.raises(InvalidValue, match=match):
        audit(*arguments, runs=1)


@pytest.mark.parametrize("runs", [0, -1, 1.5, None, True])
def test_runs_are_counted(runs):
    with pytest.raises(InvalidValue, match="runs"):
        audit(COUNT, Readout(), Pair(1, 0), runs=runs)


@pytest.mark.parametrize("seed", [-1, 0.5, "a"])
def test_seeds_are_whole(seed):
    with pytest.raises(InvalidValue, match="seed"):
        Pair(1, 0, seed=seed)


def test_two_units_need_a_choice():
    class Both:
        def claims(self):
            return (claim(Pure(1.0)), claim(Pure(1.0), Game(user("id", rows=2), {"answers"})))

        def run(self, data):
            return data

    with pytest.raises(InvalidValue, match="unit="):
        audit(Both(), Readout(), Pair(1, 0), runs=1)
    assert audit(Both(), Readout(), Pair(1, 0), runs=1, unit=record()).game == GAME


def test_outcomes():
    noise = RNG.normal(size=2000)
    judge = {"confidence": 0.95}
    assert verdict(claim(Pure(1.0)), evidence(), **judge).outcome == "refuted"
    assert verdict(claim(Zero()), evidence(), **judge).outcome == "refuted"
    assert verdict(claim(Laplace(1.0)), evidence(noise), **judge).outcome == "holds"
    assert verdict(claim(NonPrivate()), evidence(), **judge).outcome == "no ceiling"
    assert verdict(claim(Pure(8.0)), evidence(), **judge).outcome == "inconclusive"
    assert verdict(claim(Pure(1.0), Game(record(), {"labels"})), evidence(), **judge).outcome == "incomparable"
    assert verdict(claim(Pure(1.0), Game(record("replace"), {"answers"})), evidence(), **judge).outcome == "incomparable"
    assert verdict(claim(Gaussian(2.0)), evidence(), **judge).outcome == "refuted"


def test_post_hoc_never_refutes():
    found = verdict(claim(Pure(0.1)), evidence(design="post_hoc"), confidence=0.95)
    assert found.outcome == "warning"
    assert found.floor > found.ceiling
    assert "warning" in found.reason


def test_floor_and_ceiling_are_at_the_delta_asked():
    found = verdict(claim(Gaussian(1.0)), evidence(), confidence=0.95, delta=1e-5)
    assert found.delta == 1e-5
    assert found.ceiling == pytest.approx(4.38, abs=0.01)
    assert found.outcome == "refuted"


def test_several_deltas_share_the_error():
    score = INSIDE + RNG.laplace(size=2000)
    one = verdict(claim(Pure(0.5)), evidence(score), confidence=0.95, delta=0.0)
    two = verdict(claim(Pure(0.5)), evidence(score), confidence=0.95, delta=[0.0, 0.01, 0.1])
    assert two.floor <= one.floor
    assert one.confidence == two.confidence == 0.95
    with pytest.raises(InvalidValue, match="at least one delta"):
        verdict(claim(Pure(0.5)), evidence(), confidence=0.95, delta=[])


def test_long_sequences_are_refuted_where_pure_epsilon_is_hopeless():
    """A hundred small losses: epsilon 10 at delta 0, but far less at delta 0.1."""
    score = 3.0 * INSIDE + RNG.normal(size=2000)
    found = verdict(claim(Repeat(Laplace(10.0), 100)), evidence(score), confidence=0.999)
    assert found.outcome == "refuted"
    assert found.delta >= 0.1


@pytest.mark.parametrize("confidence", [0.0, 1.0, math.nan, "0.95"])
def test_confidence_is_checked(confidence):
    with pytest.raises(InvalidValue, match="confidence"):
        verdict(claim(Pure(1.0)), evidence(), confidence=confidence)
