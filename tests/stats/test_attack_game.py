"""The attacks against private answers and their broken twins, in the game. Noise and worlds are seeded: the same every time."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import pytest

from discreet import Ledger
from discreet.attack import (
    Bounded,
    Counts,
    Differencing,
    Ratings,
    Reconstruction,
    SecretBits,
    approximate_knowledge,
    best_guess,
    guesses,
    leave_one_out_queries,
    ledger_queries,
    uniqueness,
)
from discreet.audit import Pair, audit, verdict
from discreet.core import record
from discreet.errors import BudgetExceeded
from discreet.noise import GaussianNoise, LaplaceNoise
from discreet.noise.source import seeded_for_tests

SWAP = record("replace")
DATA = Path(__file__).parents[3] / "shared/data"
RICK = 3
WITH = np.array([True, False, True, True, False])
WITHOUT = np.where(np.arange(5) == RICK, False, WITH)
SURE = 1 - 1e-9


class Naive(Counts):
    """The broken twin: fresh noise for every question, and the claim of one answer for all of them."""

    def claims(self):
        return self.noise.claims()


def judged(mechanism, attack, worlds, runs):
    with seeded_for_tests(b"attack"):
        evidence = audit(mechanism, attack, worlds, runs=runs)
    return evidence, verdict(mechanism.claims()[0], evidence, confidence=SURE, delta=0.0)


# Differencing: two answers.


def test_exact_answers_give_rick_away():
    evidence, found = judged(Counts(None, None), Differencing(leave_one_out_queries(5)), Pair(WITH, WITHOUT, RICK, seed=1), 400)
    assert guesses(evidence, threshold=0.5).share == 1
    assert found.outcome == "no ceiling"
    assert found.floor > 2.5


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_private_answers_keep_to_their_claim(epsilon):
    mechanism = Counts(LaplaceNoise(2 / epsilon, 1, SWAP), most=2)
    evidence, found = judged(mechanism, Differencing(leave_one_out_queries(5)), Pair(WITH, WITHOUT, RICK, seed=1), 1500)
    assert found.ceiling == pytest.approx(epsilon, rel=1e-3)
    assert found.outcome == "holds"
    share = guesses(evidence, threshold=0.5, confidence=SURE)
    assert share.low <= best_guess(mechanism.claims()[0]) <= 1 / (1 + math.exp(-epsilon)) + 1e-9


# Averaging: the same two questions, four hundred times.


def test_averaging_refutes_fresh_noise():
    mechanism = Naive(LaplaceNoise(4, 1, SWAP), most=None, remember=False)
    evidence, found = judged(
        mechanism, Differencing(leave_one_out_queries(5), times=400), Pair(WITH, WITHOUT, RICK, seed=1), 300
    )
    assert found.ceiling == pytest.approx(0.25, rel=1e-3)
    assert found.outcome == "refuted"
    assert guesses(evidence, threshold=0.5).share > 0.9


def test_averaging_fails_against_remembered_answers():
    mechanism = Counts(LaplaceNoise(4, 1, SWAP), most=2, remember=True)
    _, found = judged(mechanism, Differencing(leave_one_out_queries(5), times=400), Pair(WITH, WITHOUT, RICK, seed=1), 600)
    assert found.outcome == "holds"


def test_averaging_fails_against_a_budget():
    mechanism = Counts(LaplaceNoise(40, 1, SWAP), most=20, remember=False)
    _, found = judged(mechanism, Differencing(leave_one_out_queries(5), times=400), Pair(WITH, WITHOUT, RICK, seed=1), 600)
    assert found.outcome == "holds"


class Ledgered:
    """Every run has a ledger of its own; all that it answers together is worth the budget of two answers."""

    noise = GaussianNoise(sigma=4, sensitivity=1, size=1, unit=SWAP)

    def __init__(self, folder):
        self.folder = folder
        self.runs = 0

    def claims(self):
        return Counts(self.noise, most=2).claims()

    def run(self, data):
        self.runs += 1
        ledger = Ledger(self.folder / f"{self.runs}.db")
        ledger.open("class", unit=SWAP, epsilon=3.0, delta=1e-6)
        return ledger_queries(Counts(self.noise, most=None, remember=False).run(data), self.noise.claims(), ledger, "class")


def test_averaging_fails_against_the_ledger(tmp_path):
    mechanism = Ledgered(tmp_path)
    attack = Differencing(leave_one_out_queries(5), times=10)
    with seeded_for_tests(b"ledger"):
        evidence = audit(mechanism, attack, Pair(WITH, WITHOUT, RICK, seed=1), runs=60)
    assert guesses(evidence, threshold=0.5).low < 0.6, "ten times the questions, and no more answers"
    assert verdict(mechanism.claims()[0], evidence, confidence=SURE).outcome in ("holds", "inconclusive")
    fresh = Counts(Ledgered.noise, most=None, remember=False)
    with seeded_for_tests(b"fresh"):
        broken = audit(fresh, Differencing(leave_one_out_queries(5), times=400), Pair(WITH, WITHOUT, RICK, seed=1), runs=60)
    assert guesses(broken, threshold=0.5).share > 0.9


def test_the_budget_ends(tmp_path):
    ask = Ledgered(tmp_path).run(WITH)
    with seeded_for_tests(b"budget"), pytest.raises(BudgetExceeded):
        [ask(np.arange(5) < size) for size in range(200)]


# Linear reconstruction.


@pytest.mark.parametrize("error", [0, 2])
def test_small_errors_give_over_95_percent_of_the_bits(error):
    mechanism = Counts(Bounded(error, seed=3), most=None)
    evidence, found = judged(mechanism, Reconstruction(128, questions=512), SecretBits(128, seed=2), 3)
    assert guesses(evidence).share > 0.95
    assert found.outcome == "no ceiling"
    assert found.floor > 2


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_private_answers_leave_the_bits_near_chance(epsilon):
    questions = 256
    mechanism = Counts(LaplaceNoise(questions / epsilon, 1, SWAP), most=questions)
    evidence, found = judged(mechanism, Reconstruction(64, questions=questions), SecretBits(64, seed=2), 20)
    assert found.outcome == "holds"
    assert abs(guesses(evidence).share - 0.5) < 0.06
    assert guesses(evidence, confidence=SURE).low < best_guess(mechanism.claims()[0]) < 1 / (1 + math.exp(-epsilon))


def test_noise_that_is_not_accounted_for_is_refuted():
    """The broken twin: each answer has epsilon 1, and so it is said of all 512."""
    evidence, found = judged(
        Naive(LaplaceNoise(1, 1, SWAP), most=None), Reconstruction(128, questions=512), SecretBits(128, seed=2), 3
    )
    assert found.outcome == "refuted"
    assert guesses(evidence).share > 0.95


# Real ratings.


@pytest.mark.skipif(not (DATA / "ml-100k/u.data.gz").exists(), reason="MovieLens-100k is not beside the checkout")
def test_eight_rough_ratings_in_movielens():
    with gzip.open(DATA / "ml-100k/u.data.gz") as file:
        table = np.loadtxt(file, dtype=np.int64)
    user, item, stars, day = table[:, 0] - 1, table[:, 1] - 1, table[:, 2], table[:, 3] / 86400
    seen = Ratings(user=user, item=item, rating=stars, day=day)
    random = np.random.default_rng(1)
    found = [seen.find(approximate_knowledge(user, item, stars, day, who, count=8, random=random)) for who in range(943)]
    assert np.mean([each.user == who for who, each in enumerate(found)]) > 0.95
    named = [each.user == who for who, each in enumerate(found) if each.sure]
    assert np.mean(named) > 0.98
    assert len(named) > 500


# Real tables.


@pytest.mark.skipif(not (DATA / "adult/adult.data.gz").exists(), reason="Adult is not beside the checkout")
def test_a_sample_of_adult_tells_the_uniqueness_of_all():
    with gzip.open(DATA / "adult/adult.data.gz", "rt") as file:
        rows = [line.strip().split(", ") for line in file if line.strip()]
    age, marital, race, sex = (np.array([row[place] for row in rows], dtype=object) for place in (0, 5, 8, 9))
    people = {"age": age.astype(int), "marital": marital, "race": race, "sex": sex}
    truth = uniqueness(people, list(people)).share
    chosen = np.random.default_rng(1).choice(len(age), len(age) // 10, replace=False)
    sample = uniqueness({name: column[chosen] for name, column in people.items()}, list(people))
    assert sample.share > 3 * truth
    assert abs(sample.population(0.1) - truth) < 0.02
