"""Every mechanism and every producer of releases keeps to the protocol.

The audits with power are in tests/stats; false alarms here: below 1e-5.
"""

from __future__ import annotations

import inspect

import pytest

from conform.catalogue import MECHANISMS
from conform.producers import PRODUCERS
from discreet import noise
from discreet.audit import check_mechanism
from discreet.core import Mechanism
from discreet.errors import ClaimRefuted
from discreet.noise.source import seeded_for_tests


@pytest.mark.parametrize("case", MECHANISMS, ids=lambda case: case.name)
def test_keeps_to_the_protocol(case):
    with seeded_for_tests(b"conform"):
        found = check_mechanism(case.mechanism, case.pairs, runs=200, confidence=1 - 1e-7, seed=1)
    assert len(found) == len(case.pairs)
    assert {verdict.outcome for _, verdict in found} <= {"holds", "inconclusive"}


def test_no_mechanism_is_forgotten():
    public = {
        thing
        for thing in vars(noise).values()
        if inspect.isclass(thing) and issubclass(thing, Mechanism) and thing.__module__.startswith("discreet.noise")
    }
    assert public == {type(case.mechanism) for case in MECHANISMS}


@pytest.mark.parametrize("case", PRODUCERS, ids=lambda case: case.name)
def test_producers_keep_to_the_protocol(case):
    mechanism, pairs = case.make()
    assert isinstance(mechanism, Mechanism)
    with seeded_for_tests(b"conform"):
        judged = check_mechanism(mechanism, pairs, runs=60, confidence=1 - 1e-7, seed=1)
    assert len(judged) == len(pairs)
    assert {verdict.outcome for _, verdict in judged} <= {"holds", "inconclusive"}


@pytest.mark.parametrize("case", PRODUCERS, ids=lambda case: case.name)
def test_a_broken_producer_is_refuted(case, monkeypatch):
    """The same claim without its noise."""
    case.broken(monkeypatch)
    mechanism, pairs = case.make()
    with seeded_for_tests(b"conform"), pytest.raises(ClaimRefuted):
        check_mechanism(mechanism, pairs, runs=120, confidence=1 - 1e-7, seed=1)
