"""Every attack keeps to the protocol and finds nothing where there is nothing."""

from __future__ import annotations

import numpy as np
import pytest

from discreet.attack import Counts, Differencing, Join, Reconstruction, SecretBits, leave_one_out_queries
from discreet.audit import Canaries, Pair, Readout, check_attack, learn
from discreet.core import Claim, Game, NonPrivate, record
from discreet.heuristic import ClassReading, KAnonymous, SecretColumn
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
