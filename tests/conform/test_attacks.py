"""Every attack keeps to the protocol and finds nothing where there is nothing."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from torch import nn

from discreet.attack import Counts, Differencing, Join, Reconstruction, SecretBits, leave_one_out_queries
from discreet.attack.membership import ATTACKS, Needs, Observation
from discreet.attack.membership.observation import compare
from discreet.attack.tables import ClosestRecord, DensityRatio, ShadowGenerators
from discreet.audit import Canaries, Pair, Readout, check_attack, learn
from discreet.core import Claim, Game, NonPrivate, record
from discreet.errors import InvalidValue
from discreet.heuristic import ClassReading, KAnonymous, SecretColumn
from discreet.models import Recipe, Trainer, predict, splits
from discreet.noise import LaplaceNoise
from discreet.noise.source import seeded_for_tests

COUNT = LaplaceNoise(scale=1, sensitivity=1, unit=record())
MANY = LaplaceNoise(scale=1, sensitivity=1, unit=record())


def marked(base: list[int], chosen: list[int]) -> list[int]:
    return [int(i in chosen) for i in range(len(base))]


SWAP = record("replace")
PEOPLE = {"age": np.arange(40) % 17, "zip": np.arange(40) % 3}


class Publish:
    """A table as it is."""

    def claims(self):
        return (Claim(game=Game(record(), {"table"}), event=NonPrivate()),)

    def run(self, data):
        return data


def published(base: dict, chosen: list[int]) -> dict:
    return {name: column[chosen] for name, column in base.items()}


CASES = {
    "readout": (Readout(), COUNT, Pair(1, 0, seed=1)),
    "readout of many": (Readout(lambda seen, i: seen[i]), MANY, Canaries([0] * 50, range(50), marked, seed=1)),
    "witness": (learn([0, 1] * 100, [False, True] * 100, view=frozenset({"answers"})), COUNT, Pair(1, 0, seed=1)),
    "differencing": (
        Differencing(leave_one_out_queries(3), times=2),
        Counts(LaplaceNoise(scale=1, sensitivity=1, unit=SWAP), most=2),
        Pair(np.array([True, True, False]), np.array([False, True, False]), target=0, seed=1),
    ),
    "reconstruction": (
        Reconstruction(20, questions=40),
        Counts(LaplaceNoise(scale=40, sensitivity=1, unit=SWAP), most=40),
        SecretBits(20, seed=1),
    ),
    "join": (Join(PEOPLE, ["age", "zip"]), Publish(), Canaries(PEOPLE, range(40), published, seed=1)),
    "density ratio": (DensityRatio(PEOPLE, PEOPLE, by="both"), Publish(), Canaries(PEOPLE, range(40), published, seed=1)),
    "shadow generators": (
        ShadowGenerators(PEOPLE, lambda table: table, PEOPLE, shadows=4),
        Publish(),
        Canaries(PEOPLE, range(40), published, seed=1),
    ),
    "closest record": (ClosestRecord(PEOPLE), Publish(), Canaries(PEOPLE, range(40), published, seed=1)),
    "reading the class": (
        ClassReading(PEOPLE, "secret", 1),
        KAnonymous(("age", "zip"), 5, ("secret",)),
        SecretColumn(PEOPLE, "secret", seed=1),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_keeps_to_the_protocol(name):
    attack, mechanism, worlds = CASES[name]
    with seeded_for_tests(b"conform"):
        evidence = check_attack(attack, mechanism, worlds, runs=40, confidence=1 - 1e-7)
    assert np.isfinite(evidence.score).all()


ROWS = np.random.default_rng(0).normal(size=(140, 3)).astype(np.float32)
LABELS = np.random.default_rng(1).integers(0, 2, 140)


class Trains:
    """A small network trained on the chosen rows, seen beside shadows. It claims nothing, and memorises some rows."""

    recipe = Recipe(lambda: nn.Sequential(nn.Linear(3, 24), nn.Tanh(), nn.Linear(24, 2)), epochs=60, learning_rate=2e-2)

    def claims(self):
        return (Claim(game=Game(record(), {"weights"}), event=NonPrivate()),)

    def run(self, data):
        inside = np.isin(np.arange(140), data)
        return seen_by(inside.tobytes())


@lru_cache(maxsize=64)
def seen_by(marks: bytes):
    """What attacks see of the network of these rows; once for all of them."""
    inside = np.frombuffer(marks, np.bool_)
    target = Trainer(Trains.recipe).one(ROWS[inside], LABELS[inside], classes=2)
    shadows = Trainer(Trains.recipe).many(ROWS, LABELS, splits(140, 6, 0), seed=1)
    return compare(Observation(target, ROWS, LABELS, predict.scores(target, ROWS), inside), shadows)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_membership_attacks_keep_to_the_protocol(attack):
    """Attacks that train networks of their own take a second for each world, and are given one."""
    worlds = Canaries([], range(140), lambda base, chosen: list(chosen), seed=1)
    runs = 1 if attack.name in ("shokri", "quantile", "whitebox") else 8
    evidence = check_attack(attack, Trains(), worlds, runs=runs, confidence=1 - 1e-7)
    assert np.isfinite(evidence.score).all()
    assert evidence.game.view == attack.view


def test_an_attack_that_reads_the_truth_elsewhere_is_refused():
    """The broken twin: it remembers who was inside in the worlds it is asked about, which the release does not say."""
    worlds = Canaries([], range(140), lambda base, chosen: list(chosen), seed=1)
    truth = iter([worlds.draw(0)[2]] * 2 + [worlds.draw(run)[2] for run in range(8)])

    class Cheats:
        name, view, needs = "cheats", frozenset({"scores"}), Needs()

        def score(self, seen, targets):
            return next(truth)[list(targets)].astype(float)

    with pytest.raises(InvalidValue, match="it must be reading the truth"):
        check_attack(Cheats(), Trains(), worlds, runs=8, confidence=1 - 1e-7)
