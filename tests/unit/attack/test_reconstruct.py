"""Differencing, averaging and linear reconstruction, on data made here; everything seeded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet import Ledger
from discreet.attack import (
    Bounded,
    Counts,
    Differencing,
    Reconstruction,
    SecretBits,
    best_guess,
    determined,
    differencing_attack,
    every_subset,
    guesses,
    isolating_queries,
    leave_one_out_queries,
    ledger_queries,
    random_subsets,
    reconstruct_bits,
)
from discreet.audit import audit
from discreet.core import Claim, Evidence, Game, NonPrivate, Pure, record
from discreet.errors import BudgetExceeded, InvalidValue
from discreet.noise import GaussianNoise, LaplaceNoise
from discreet.noise.source import seeded_for_tests

SWAP = record("replace")
EXACT = Counts(noise=None, most=None)


# The lectures' examples.


def test_the_class_average_gives_away_who_left():
    assert differencing_attack(72.75, 82, count=4) == 45


def test_everyone_but_rick():
    students = [("Ann", "A"), ("Rick", "A"), ("Bob", "B")]

    def ask(question):
        return sum(question(*student) for student in students)

    def pair(target):
        return lambda name, grade: grade == "A", lambda name, grade: grade == "A" and name != target

    assert Differencing(pair).score(ask, ["Rick", "Bob"]).tolist() == [1, 0]


def test_the_covid_counts():
    people = [(45, False)] * 18 + [(45, True)] * 11 + [(75, True)]

    def ask(question):
        return sum(question(*person) for person in people)

    def pair(ill):
        return lambda age, liver: liver or not ill, lambda age, liver: age < 70 and (liver or not ill)

    assert [ask(pair(False)[0]), ask(pair(False)[1]), ask(pair(True)[0]), ask(pair(True)[1])] == [30, 29, 12, 11]
    over_70, over_70_and_ill = Differencing(pair).score(ask, [False, True])
    assert (over_70, over_70_and_ill) == (1, 1)


# The interface.


def test_exact_counts_claim_nothing():
    assert EXACT.claims()[0].event == NonPrivate()
    assert Counts(LaplaceNoise(1, 1, SWAP), most=None).claims()[0].event == NonPrivate()
    assert best_guess(EXACT.claims()[0]) == 1.0


def test_the_claim_grows_with_the_number_of_answers():
    one, ten = (Counts(LaplaceNoise(10, 1, SWAP), most=most).claims()[0] for most in (1, 10))
    assert 0.5 < best_guess(one) < best_guess(ten) < 0.6


def test_after_the_last_answer_all_is_refused():
    ask = Counts(LaplaceNoise(1, 1, SWAP), most=2).run(np.array([True, False]))
    first = ask(np.array([True, True]))
    assert ask(np.array([True, True])) == first, "asked again, it is remembered"
    ask(np.array([True, False]))
    with pytest.raises(BudgetExceeded, match="0 of 2 are left"):
        ask(np.array([False, True]))
    assert ask(np.array([True, True])) == first


def test_a_refused_attack_scores_nothing():
    ask = Counts(LaplaceNoise(1, 1, SWAP), most=1, remember=False).run(np.array([True, False]))
    assert Differencing(leave_one_out_queries(2)).score(ask, [0, 1]).tolist() == [0, 0]
    assert Reconstruction(2, questions=4).score(ask, [0, 1]).tolist() == [0, 0]


def test_gaussian_and_home_made_noise():
    bits = np.ones(4, dtype=bool)
    asked = every_subset(4)
    gaussian = GaussianNoise(sigma=1, sensitivity=1, size=1, unit=SWAP)
    with seeded_for_tests(b"gaussian"):
        got = Counts(gaussian, most=16).run(bits).many(asked)
    assert len(set(got - asked.sum(axis=1))) > 2
    bounded = Counts(Bounded(2, seed=1), most=None).run(bits).many(asked) - asked.sum(axis=1)
    assert set(bounded) == {-2, -1, 0, 1, 2}


def test_what_is_no_subset_or_noise_is_told():
    with pytest.raises(InvalidValue, match="each of 2 people"):
        EXACT.run(np.array([True, False]))(np.array([True]))
    with pytest.raises(InvalidValue, match="noise must be a mechanism"):
        Counts(noise=3, most=None)


def test_a_ledger_answers_a_repeated_question_once(tmp_path: Path):
    bits = np.array([True, True, False, True, False])
    noise = GaussianNoise(sigma=20, sensitivity=1, size=1, unit=SWAP)
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("people", unit=SWAP, epsilon=1.0, delta=1e-6)
        fresh = Counts(noise, most=None, remember=False).run(bits)
        ask = ledger_queries(fresh, noise.claims(), ledger, "people")
        whole, *others = every_subset(5)[::-1]
        with seeded_for_tests(b"ledger"):
            assert len({ask(whole) for _ in range(30)}) == 1, "there is one answer to average, not thirty"
            assert len({fresh(whole) for _ in range(30)}) > 1
        spent = ledger.spent("people")
        ask(whole)
        assert ledger.spent("people") == spent
        with pytest.raises(BudgetExceeded, match="people has"):
            [ask(subset) for subset in others]


# Solvers.


@given(st.lists(st.booleans(), min_size=1, max_size=7))
@settings(max_examples=30)
def test_all_exact_subsets_give_all_bits(bits):
    secret = np.array(bits)
    asked = every_subset(len(bits))
    answers = asked @ secret.astype(int)
    for method in ("exhaustive", "linear_program", "least_squares"):
        assert ((reconstruct_bits(asked, answers, method) > 0.5) == secret).all(), method


@given(st.integers(0, 2**32 - 1), st.integers(0, 2))
@settings(max_examples=20)
def test_dinur_nissim_no_more_than_4e_bits_are_wrong(seed, error):
    random = np.random.default_rng(seed)
    secret = random.random(9) < 0.5
    asked = every_subset(9)
    answers = asked @ secret.astype(int) + random.integers(-error, error + 1, len(asked))
    # every minimiser has a worst error of at most E, so each differs from the secret in at most 4E places; so does their mean
    assert np.abs(reconstruct_bits(asked, answers, "exhaustive") - secret).sum() <= 4 * error


@pytest.mark.parametrize("method", ["least_squares", "linear_program"])
@pytest.mark.parametrize("error", [0, 2])
def test_random_subsets_with_small_errors_give_over_95_percent(method, error):
    mechanism = Counts(Bounded(error, seed=5) if error else None, most=None)
    worlds = SecretBits(96, seed=4)
    found = guesses(audit(mechanism, Reconstruction(96, questions=480, method=method), worlds, runs=2))
    assert found.share > 0.95


def test_a_linear_programme_survives_wild_answers():
    random = np.random.default_rng(1)
    secret = random.random(60) < 0.5
    asked = random_subsets(60, 300, seed=2)
    answers = asked @ secret.astype(float)
    answers[::12] += 1000
    assert ((reconstruct_bits(asked, answers, "linear_program") > 0.5) == secret).all()
    assert ((reconstruct_bits(asked, answers, "least_squares") > 0.5) == secret).mean() < 0.95


def test_fewer_answers_than_people_still_beat_guessing():
    secret = SecretBits(200, seed=9).draw(0)[0]
    asked = random_subsets(200, 100, seed=3)
    share = ((reconstruct_bits(asked, asked @ secret.astype(float)) > 0.5) == secret).mean()
    assert 0.6 < share < 1


@pytest.mark.parametrize(
    ("subsets", "answers", "method", "told"),
    [
        ([[0, 1]], [1, 2], "least_squares", "one answer"),
        ([[0, 2]], [1], "least_squares", "0 or 1"),
        ([[0, 1]], [float("nan")], "least_squares", "1 of 1 are not"),
        ([[0, 1]], [1], "magic", "method must be one of"),
        (np.zeros((1, 25)), [1], "exhaustive", "at most 20 people"),
    ],
)
def test_bad_questions_are_told(subsets, answers, method, told):
    with pytest.raises(InvalidValue, match=told):
        reconstruct_bits(subsets, answers, method)


# Who is isolated, who is determined.


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
@settings(max_examples=30)
def test_isolating_pairs_are_found_as_by_hand(seed, people):
    table = np.random.default_rng(seed).random((12, 5)) < 0.5
    slow = [(i, j) for i in range(12) for j in range(i + 1, 12) if 0 < (table[i] != table[j]).sum() <= people]
    assert sorted(isolating_queries(table, people)) == slow


def test_determined_sees_combinations_that_no_pair_shows():
    # a+b, b+c, a+c: no two differ in one person, yet all three follow
    ring = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=bool)
    assert isolating_queries(ring) == []
    assert determined(ring).tolist() == [True, True, True]
    assert determined(ring[:2]).tolist() == [False, False, False]


# Guessing.


def test_guesses_count_and_enclose():
    inside = np.arange(100) < 50
    evidence = Evidence(
        game=Game(SWAP, {"answers"}), attack="x", score=np.where(inside, 1.0, -1.0), inside=inside, run=np.zeros(100, int),
        design="canary",
    )  # fmt: skip
    found = guesses(evidence)
    assert (found.right, found.targets, found.high) == (100, 100, 1.0)
    assert 0.95 < found.low < 1
    assert "100 of 100" in str(found)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_most_right_is_the_logistic_of_epsilon(epsilon):
    claim = Claim(game=Game(SWAP, {"answers"}), event=Pure(epsilon))
    assert best_guess(claim) == pytest.approx(1 / (1 + np.exp(-epsilon)), abs=1e-4)
    assert best_guess(claim) >= 1 / (1 + np.exp(-epsilon)) - 1e-12
