"""The law of choices among many candidates. Seeded; each check would fail a right sampler with probability at most 1e-7."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from discreet import noise
from discreet.noise import choose as module
from discreet.noise import exponential_rows
from discreet.noise.choose import flip
from discreet.noise.source import open_source, seeded_for_tests
from unit.noise.tools import chi2, epsilon_at_least, flip_law

ALPHA = 1e-7


def law(scores, rate, widths=1):
    weights = widths * np.exp(np.asarray(scores, float) * rate)
    return weights / weights.sum()


@pytest.mark.parametrize("exact", [False, True], ids=["machine numbers", "exact digits"])
def test_law_of_rows_with_widths(exact, monkeypatch):
    scores, widths, n = np.array([3, 1, 0, -2, 5]), np.array([1, 4, 2, 9, 0]), 4_000 if exact else 200_000
    if exact:
        monkeypatch.setattr(module, "WEIGHT_ERROR", 1.0)
    with seeded_for_tests(b"rows"):
        found = exponential_rows(np.tile(scores, (n, 1)), 1, 1, widths)
    assert chi2(np.bincount(found, minlength=5), law(scores, 0.5, widths) * n) > ALPHA


def test_law_of_a_long_list():
    scores, n = np.arange(100) % 7, 20_000
    with seeded_for_tests(b"long"):
        found = [noise.exponential(scores, 0.5, 1) for _ in range(n)]
    seen = np.bincount(found, minlength=100)
    assert chi2(seen, law(scores, 0.25) * n) > ALPHA
    assert chi2(seen, law(scores, 0.32) * n) < ALPHA, "a rate off by a quarter is seen"


def test_rows_hold_on_their_worst_pair_and_without_the_factor_two_do_not():
    n = 200_000
    pair = [np.tile(s, (n, 1)) for s in ([0, 1, 1, 1], [1, 0, 0, 0])]
    for epsilon, refuted in ((1, False), (2, True)):
        with seeded_for_tests(b"pair"):
            seen = [int((exponential_rows(scores, epsilon, 1) == 0).sum()) for scores in pair]
        assert (epsilon_at_least(*seen, n, ALPHA) > 1) == refuted


@pytest.mark.parametrize("exact", [False, True], ids=["machine numbers", "exact digits"])
def test_law_of_permute_and_flip_in_rows(exact, monkeypatch):
    scores, n = np.array([3, 1, 0, -2, 3, 2]), 4_000 if exact else 200_000
    if exact:
        monkeypatch.setattr(module, "WEIGHT_ERROR", 1.0)
    with seeded_for_tests(b"flip"):
        seen = np.bincount(flip(np.tile(scores, (n, 1)), Fraction(1, 2), open_source()), minlength=6)
    assert chi2(seen, flip_law(scores, 0.5) * n) > ALPHA
    if not exact:
        assert chi2(seen, law(scores, 0.5) * n) < ALPHA, "the exponential mechanism's law is told from it"


def test_permute_and_flip_holds_on_its_worst_pair_and_without_the_factor_two_does_not():
    n = 200_000
    pair = [np.tile(s, (n, 1)) for s in ([0] + [1] * 30, [1] + [0] * 30)]
    for rate, refuted in ((Fraction(1, 2), False), (Fraction(1), True)):
        with seeded_for_tests(b"pair"):
            seen = [int((flip(scores, rate, open_source()) == 0).sum()) for scores in pair]
        assert (epsilon_at_least(*seen, n, ALPHA) > 1) == refuted
