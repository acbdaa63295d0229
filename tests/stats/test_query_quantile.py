"""Quantiles run many times on worst pairs, and broken twins that must be refuted.

Seeded. Each check of the right mechanism would fail with probability at most 1e-7 under fresh seeds; a twin is refuted when the
lower bound on its epsilon, at confidence 1 - 1e-7, is above what it claims.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from discreet.noise.choose import choose, flip
from discreet.noise.source import open_source, seeded_for_tests
from discreet.query.brackets import measured
from discreet.query.quantiles import Quantiles, _Ranks
from unit.noise.tools import chi2, epsilon_at_least, flip_law

ALPHA, RUNS = 1e-7, 100_000


def bound(run, pair, event):
    seen = []
    for i, histogram in enumerate(pair):
        with seeded_for_tests(b"world %d" % i):
            seen.append(int(event(run(np.tile(histogram, (RUNS, 1)))).sum()))
    return epsilon_at_least(*seen, RUNS, ALPHA)


def plain(rate, target=Fraction(1, 2)):
    """The choice of one bin at a rate of our own."""
    return lambda rows: choose(_Ranks(rows).scores(target, 0, Fraction(1))[0], rate, None, open_source())


# One person of weight 4 in the first bin or not there: the choice of bin 1 of 2 says the most.
PAIR = ([8, 4], [4, 4])


def test_law_of_the_value():
    histogram = [3, 0, 5, 2]
    mechanism = Quantiles((0.25,), epsilon=2, sensitivity=2, interval_share=0)
    scores, rate = mechanism._value_scores(_Ranks(np.array([histogram])), mechanism.targets[0])
    with seeded_for_tests(b"law"):
        found = mechanism.run(np.tile(histogram, (RUNS, 1))).value[:, 0]
    seen = np.bincount(found, minlength=4)
    assert chi2(seen, flip_law(scores[0], float(rate)) * RUNS) > ALPHA
    assert chi2(seen, flip_law(scores[0], 1.1 * float(rate)) * RUNS) < ALPHA, "a rate off by a tenth is seen"


def test_law_of_one_of_several_values():
    """Several targets are chosen by the exponential mechanism, each on its own."""
    mechanism = Quantiles((0.5, 0.5), epsilon=4, sensitivity=2, interval_share=0)
    ranks = _Ranks(np.tile([3, 0, 5, 2], (RUNS, 1)))
    scores, rate = mechanism._value_scores(ranks, mechanism.targets[0])
    law = np.exp((scores[0] - scores[0].max()) * float(rate))
    with seeded_for_tests(b"several"):
        found, _ = mechanism._run_one(ranks, mechanism.targets[0], open_source())
    seen = np.bincount(found, minlength=4)
    assert chi2(seen, law / law.sum() * RUNS) > ALPHA
    assert chi2(seen, law**1.1 / (law**1.1).sum() * RUNS) < ALPHA, "a rate off by a tenth is seen"


@pytest.mark.parametrize("target", [0, 0.5, 0.75, 1])
def test_holds_on_worst_pairs(target):
    mechanism = Quantiles((target,), epsilon=1, sensitivity=4, interval_share=0)
    for pair in (PAIR, ([4, 4], [4, 8]), ([0, 4, 0], [0, 0, 0])):
        for j in range(2):
            assert bound(lambda rows: mechanism.run(rows).value[:, 0], pair, lambda v, j=j: v == j) <= 1


def test_intervals_and_value_together_hold():
    mechanism = Quantiles((0.5,), epsilon=1, sensitivity=4, interval_share=0.5)
    for event in (lambda f: f.low[:, 0] == f.value[:, 0], lambda f: f.high[:, 0] == 0, lambda f: f.value[:, 0] == 1):
        assert bound(mechanism.run, PAIR, event) <= 1


def cells(scale):
    """The first bins of intervals around bin 1 of two, as noise of this scale makes them."""

    def first(rows):
        return measured(np.cumsum(rows, axis=1), np.ones(len(rows), np.int64), Fraction(1, 2), scale).interval(0.1)[0]

    return first


def test_intervals_with_half_the_noise_are_refuted():
    """A person of weight 4 in the first bin: whether that bin is passed over is told by noise 4 / epsilon."""
    for pair in (([16, 14], [20, 14]), ([4, 4], [8, 4]), ([0, 14], [4, 14])):
        for j in (0, 1):
            assert bound(cells(Fraction(4)), pair, lambda low, j=j: low == j) <= 1
        assert max(bound(cells(Fraction(2)), pair, lambda low, j=j: low == j) for j in (0, 1)) > 1


def test_without_the_factor_two_is_refuted():
    """A person in the first bin raises the score of the many bins before the middle and lowers the last bin's."""
    pair = ([4] + [0] * 30 + [4, 0], [0] * 31 + [4, 0])
    for rate, refuted in ((Fraction(1, 8), False), (Fraction(1, 4), True)):
        assert (bound(plain(rate), pair, lambda v: v == 32) > 1) == refuted


def test_permute_and_flip_without_the_factor_two_is_refuted():
    pair = ([4] + [0] * 30 + [4, 0], [0] * 31 + [4, 0])
    for rate, refuted in ((Fraction(1, 8), False), (Fraction(1, 4), True)):
        run = lambda rows, rate=rate: flip(_Ranks(rows).scores(Fraction(1, 2), 0, Fraction(1))[0], rate, open_source())  # noqa: E731
        assert (bound(run, pair, lambda v: v == 32) > 1) == refuted


def test_a_sensitivity_that_forgets_the_larger_side_is_refuted():
    """The tenth percentile's score moves by 0.9 of a contribution, not by 0.1."""
    pair = ([10, 0], [10, 4])
    right, twin = Fraction(1, 2 * 9 * 4), Fraction(1, 2 * 1 * 4)
    target = Fraction(1, 10)
    for side in (target, 1 - target):
        assert bound(plain(right, side), pair, lambda v: v == 1) <= 1
    pair = ([0, 0, 4], [4, 0, 4])
    assert bound(plain(right, target), pair, lambda v: v == 0) <= 1
    assert bound(plain(twin, target), pair, lambda v: v == 0) > 1


def test_a_person_counted_in_full_in_every_group_is_refuted():
    """Ten groups, each private for a weight of 4: a person who has 4 in each of them moves 40."""
    mechanism = Quantiles((0.5,), epsilon=1, sensitivity=4, interval_share=0)

    def all_groups(rows):
        return np.stack([mechanism.run(rows).value[:, 0] for _ in range(10)], axis=1)

    assert bound(all_groups, ([4, 0], [0, 0]), lambda v: (v == 1).sum(axis=1) >= 7) > 1


def test_bins_taken_from_the_data_are_refuted():
    """A grid that ends where the data ends shows the person at its end."""

    def twin(rows):
        last = rows.shape[1] - 1 - np.argmax(rows[:, ::-1] > 0, axis=1)
        scores = _Ranks(rows).scores(Fraction(1, 2), 0, Fraction(1))[0]
        return choose(scores, Fraction(1, 8), (np.arange(rows.shape[1]) <= last[:, None]).astype(np.int64), open_source())

    assert bound(twin, ([4, 0, 0, 0], [4, 0, 0, 1]), lambda v: v == 3) > 1
