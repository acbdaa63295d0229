"""Every attack keeps to the protocol and finds nothing where there is nothing."""

from __future__ import annotations

import numpy as np
import pytest

from discreet.audit import Canaries, Pair, Readout, check_attack, learn
from discreet.core import record
from discreet.noise import LaplaceNoise
from discreet.noise.source import seeded_for_tests

COUNT = LaplaceNoise(scale=1, sensitivity=1, unit=record())
MANY = LaplaceNoise(scale=1, sensitivity=1, unit=record())


def marked(base: list[int], chosen: list[int]) -> list[int]:
    return [int(i in chosen) for i in range(len(base))]


CASES = {
    "readout": (Readout(), COUNT, Pair(1, 0, seed=1)),
    "readout of many": (Readout(lambda seen, i: seen[i]), MANY, Canaries([0] * 50, range(50), marked, seed=1)),
    "witness": (learn([0, 1] * 100, [False, True] * 100, view=frozenset({"answers"})), COUNT, Pair(1, 0, seed=1)),
}


@pytest.mark.parametrize("name", CASES)
def test_keeps_to_the_protocol(name):
    attack, mechanism, worlds = CASES[name]
    with seeded_for_tests(b"conform"):
        evidence = check_attack(attack, mechanism, worlds, runs=40, confidence=1 - 1e-7)
    assert np.isfinite(evidence.score).all()
