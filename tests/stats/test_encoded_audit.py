"""Noise of Student's t on words of a code, audited: its claim holds close to the floor, and every broken twin is refuted.

The observer knows the word and sees sum and noise; the score is the likelihood ratio. Noise is keyed, so this is the same every
time; verdicts are asked at confidence 1 - 1e-6.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from discreet.audit import epsilon_at_least, verdict
from discreet.core import Claim, Evidence, Game, Gaussian, StudentT, Verdict, record
from discreet.learn import Encoded, StudentNoise
from discreet.learn.sgd.student import StudentStream

SCALE, DEGREES, SIZE, RUNS = 0.6, 4, 16, 60_000
CODE = Encoded(1.0, levels=4)
GRADIENT = torch.linspace(-3, 5, SIZE) ** 3
GAME = Game(record(), {"transcript"})


def seen(*, scale: float = SCALE, word: Any = None) -> Evidence:
    """Sums of nothing or of one unit's word, by a coin each, with this noise; told apart as if they were right."""
    true = CODE.encode(GRADIENT[None])[0].numpy()
    inside = np.random.default_rng(0).random(RUNS) < 0.5
    noise = StudentStream(b"a" * 32, DEGREES).fill(torch.empty(RUNS * SIZE), step=0, scale=scale).view(RUNS, SIZE).numpy()
    sums = noise + np.where(inside[:, None], true if word is None else word, 0.0)

    def log_density(x: np.ndarray) -> Any:
        return -(DEGREES + 1) / 2 * np.log1p(x**2 / SCALE**2 / DEGREES).sum(axis=1)

    score = log_density(sums - true) - log_density(sums)
    return Evidence(game=GAME, attack="likelihood", score=score, inside=inside, run=np.arange(RUNS), design="paired")


def judged(event: Any, evidence: Evidence) -> Verdict:
    return verdict(Claim(game=GAME, event=event, assumptions=()), evidence, confidence=1 - 1e-6)


def claimed() -> StudentT:
    event = StudentNoise(DEGREES).event(SCALE, CODE.word(SIZE))
    assert isinstance(event, StudentT)
    return event


def test_the_claim_holds_and_is_not_far_above_the_floor() -> None:
    evidence = seen()
    assert judged(claimed(), evidence).outcome == "holds"
    from discreet.accounting import curve

    assert epsilon_at_least(evidence, delta=0.05, confidence=0.99) > 0.8 * curve(claimed()).epsilon(0.05)


def test_a_vector_of_the_same_length_holds_under_the_claim_for_any_vector() -> None:
    alone = np.eye(SIZE)[0]
    assert judged(StudentNoise(DEGREES).event(SCALE, None), seen(word=alone)).outcome == "holds"


@pytest.mark.parametrize(
    ("event", "how"),
    [
        (claimed(), {"scale": SCALE / 1.5}),
        (claimed(), {"word": 2 * CODE.encode(GRADIENT[None])[0].numpy()}),
        (Gaussian(SCALE * StudentNoise(DEGREES).deviation), {}),
    ],
    ids=["less noise", "a word twice as long", "taken for a Gaussian of the same deviation"],
)
def test_broken_twins_are_refuted(event: Any, how: dict[str, Any]) -> None:
    assert judged(event, seen(**how)).outcome == "refuted"
