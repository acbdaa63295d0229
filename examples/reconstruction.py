"""Counts that look harmless: one student's grade, then everybody's secret; and what private answers do about it."""

import numpy as np

import discreet
from discreet.attack import (
    Bounded,
    Counts,
    Differencing,
    Reconstruction,
    SecretBits,
    best_guess,
    guesses,
    leave_one_out_queries,
)
from discreet.audit import Pair, verdict
from discreet.noise import LaplaceNoise

person = discreet.record("replace")
with_a = np.array([True, False, True, True, False])  # who earned an A; Rick is number 3
without_a = np.array([True, False, True, False, False])

# How many earned an A? How many apart from Rick?
for name, answers in (
    ("exact counts", Counts(noise=None, most=None)),
    ("private counts", Counts(LaplaceNoise(scale=2, sensitivity=1, unit=person), most=2)),
):
    evidence = discreet.audit(answers, Differencing(leave_one_out_queries(5)), Pair(with_a, without_a, 3), runs=1000)
    print(f"Rick's A, {name}: {guesses(evidence, threshold=0.5)}")
    print(f"  {verdict(answers.claims()[0], evidence, confidence=0.999999, delta=0.0)}")

# Fresh noise for every question, asked again and again.
fresh = Counts(LaplaceNoise(scale=2, sensitivity=1, unit=person), most=None, remember=False)
evidence = discreet.audit(fresh, Differencing(leave_one_out_queries(5), times=400), Pair(with_a, without_a, 3), runs=200)
print(f"Rick's A, fresh noise averaged 400 times: {guesses(evidence, threshold=0.5)}")

# Everybody's bit at once, from counts over random groups.
people, questions = 128, 512
attack = Reconstruction(people, questions=questions)
for name, answers in (
    ("exact", Counts(noise=None, most=None)),
    ("off by up to 2", Counts(Bounded(2, seed=1), most=None)),
    ("private, epsilon 1", Counts(LaplaceNoise(scale=questions, sensitivity=1, unit=person), most=questions)),
):
    evidence = discreet.audit(answers, attack, SecretBits(people), runs=10)
    claim = answers.claims()[0]
    print(f"{people} secret bits, {name}: {guesses(evidence)}; the claim allows {best_guess(claim):.1%}")

# Ceiling and floor in one document; in a notebook it draws both on one plot.
release = discreet.Release(value="512 counts", source="people", claims=(claim,), evidence=(evidence,))
print(f"{release}: {verdict(claim, evidence, confidence=0.999999)}")
