"""Mechanisms run many times: their law, their claim on a worst pair of neighbours, and broken twins that must be caught.

Seeded. Under fresh seeds each check of a right mechanism would fail with probability at most ALPHA; with fewer than 60
of them here the file's false-alarm rate is below 6e-6. A twin is refuted when the lower bound on its epsilon, at
confidence 1 - ALPHA, is above what it claims.
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from discreet import noise
from discreet.core import record
from discreet.noise import exact
from discreet.noise.source import open_source, seeded_for_tests
from unit.noise.test_mechanisms import flip_law, noisy_max_law, sparse_law
from unit.noise.tools import chi2, epsilon_at_least

ALPHA = 1e-7
R = record()


def runs_of(mechanism, data, runs, seed):
    with seeded_for_tests(seed.encode()):
        return [mechanism(data) for _ in range(runs)]


def bound(mechanism, pair, event, runs, delta=0.0):
    """The lower bound on epsilon from one event, chosen beforehand, on one pair of neighbours."""
    one, other = (sum(map(event, runs_of(mechanism, data, runs, f"world {i}"))) for i, data in enumerate(pair))
    return epsilon_at_least(one, other, runs, ALPHA, delta)


def many(mechanism, pair, event, delta=0.0, runs=200_000):
    """The same for noise on one number, drawn as an array: entries are independent."""
    counts = []
    for i, value in enumerate(pair):
        with seeded_for_tests(b"array %d" % i):
            counts.append(int(event(np.asarray(mechanism(np.full(runs, value)))).sum()))
    return epsilon_at_least(*counts, runs, ALPHA, delta)


# Laws of what is not additive noise


def test_selection_laws():
    scores, epsilon, n = [3, 1, 0], 1, 20_000
    weights = np.exp(np.array(scores) / 2)
    for choose, law in (
        (lambda s: noise.exponential(s, epsilon, 1), weights / weights.sum()),
        (lambda s: noise.permute_and_flip(s, epsilon, 1), flip_law(scores, Fraction(epsilon))),
        (lambda s: noise.noisy_max(s, epsilon, 1, 1), noisy_max_law(scores, epsilon)),
    ):
        seen = np.bincount(runs_of(choose, scores, n, "selection"), minlength=3)
        assert chi2(seen, law * n) > ALPHA


@pytest.mark.parametrize(("k", "epsilon"), [(2, math.log(3)), (3, 1.0), (50, 3.0)])
def test_randomized_response_law(k, epsilon):
    n = 300_000
    with seeded_for_tests(b"response"):
        told = noise.randomized_response(np.ones(n, int), k, epsilon)
    law = np.full(k, 1 / (math.exp(epsilon) + k - 1))
    law[1] *= math.exp(epsilon)
    assert chi2(np.bincount(told, minlength=k), law * n) > ALPHA


def test_sparse_vector_law():
    queries, n = (0, 1, -1), 20_000
    law = sparse_law(queries, 1, 2)
    alarm = noise.AboveThreshold(0, 1, 1, 1, 2, R)
    seen = Counter(tuple(answers) for answers in runs_of(alarm.run, queries, n, "sparse"))
    assert set(seen) <= set(law)
    assert chi2([seen[answers] for answers in law], np.array(list(law.values())) * n) > ALPHA


# Additive noise and its twins: a count that one person moves by 1, claimed at epsilon 1


def test_laplace_holds_and_half_the_noise_does_not():
    right = noise.LaplaceNoise(1.0, 1, R)
    half = noise.LaplaceNoise(0.5, 1, R)
    event = lambda y: y <= 0  # noqa: E731
    assert 0.9 < many(right.run, (0, 1), event) <= 1.0
    assert many(half.run, (0, 1), event) > 1.5


def test_sensitivity_off_by_two_is_caught():
    """Someone who answers twice moves the count by 2; noise for 1."""
    twin = noise.LaplaceNoise(1.0, 1, R)
    assert many(twin.run, (0, 2), lambda y: y <= 0) > 1.5
    assert many(noise.LaplaceNoise(2.0, 2, R).run, (0, 2), lambda y: y <= 0) <= 1.0


def test_gaussian_holds_and_half_the_noise_does_not():
    """sigma = 4 and sensitivity 1: epsilon 1 at delta = 1e-5 by the analytic formula's upper bound."""
    delta = 1e-5
    event = lambda y: y >= 10  # noqa: E731
    assert many(noise.GaussianNoise(4, 1, 200_000, R).run, (0, 1), event, delta) <= 1.0
    assert many(noise.GaussianNoise(2, 1, 200_000, R).run, (0, 1), lambda y: y >= 6, delta) > 1.0


def test_noise_before_clipping_is_caught():
    """The twin adds the noise to each row and clips after: rows at the bound keep most of their value to themselves."""
    rows, more = [0.0] * 4, [0.0] * 4 + [100.0]

    def twin(data):
        noisy = [value + exact.laplace(Fraction(1), open_source()) for value in data]
        return sum(min(max(value, 0), 10) for value in noisy)

    right = noise.BoundedSum(0, 10, 1, "laplace", 10, R).run
    assert bound(right, (rows, more), lambda y: y >= 5, 5000) <= 1.0
    assert bound(twin, (rows, more), lambda y: y >= 10, 5000) > 1.5


def test_unclipped_contributions_are_caught():
    rows, more = [5.0] * 3, [5.0] * 3 + [100.0]
    right = noise.BoundedSum(0, 10, 1, "laplace", 10, R)
    twin = lambda data: sum(data) + exact.laplace(Fraction(10), open_source())  # noqa: E731
    assert bound(right.run, (rows, more), lambda y: y <= 20, 5000) <= 1.0
    assert bound(twin, (rows, more), lambda y: y <= 65, 5000) > 1.5


def test_reused_noise_is_caught():
    """Two counts with the same noise: their difference has none."""
    right = noise.LaplaceNoise(2.0, 2, R).run

    def twin(data):
        return np.array(data) + exact.laplace(Fraction(2), open_source())

    event = lambda y: y[0] == y[1]  # noqa: E731
    assert bound(right, ([3, 3], [4, 3]), event, 5000) <= 1.0
    assert bound(twin, ([3, 3], [4, 3]), event, 5000) > 3.0


def test_grid_on_its_worst_pair():
    """Numbers 1 apart that straddle grid points: still at most ceil(1 / granularity) steps apart."""
    mechanism = noise.GridLaplace(scale=1.0, sensitivity=1.0, granularity=0.4, size=200_000, unit=R)
    claimed = 3 * 0.4  # three steps of 0.4, epsilon = steps / (scale / granularity)
    assert 1.0 < many(mechanism.run, (0.19, 1.19), lambda y: y <= 0.1) <= claimed


# Selection and its twins


def test_selection_holds_on_its_worst_pair_and_without_the_factor_two_does_not():
    pair, n = ([0, 1, 1], [1, 0, 0]), 6000
    first = lambda i: i == 0  # noqa: E731
    for choose in (noise.exponential, noise.permute_and_flip):
        assert bound(lambda s, choose=choose: choose(s, 1, 1), pair, first, n) <= 1.0
        assert bound(lambda s, choose=choose: choose(s, 4, 1), pair, first, n) > 1.0
    assert bound(lambda s: noise.noisy_max(s, 1, 1, 1), pair, first, n) <= 1.0
    assert bound(lambda s: noise.noisy_max(s, 4, 1, 1), pair, first, n) > 1.0


def test_an_output_set_taken_from_the_data_is_caught():
    """Candidates read off the data: one person's own price shows that they are there."""
    prices = lambda data: sorted(set(data))[noise.exponential([0] * len(set(data)), 1, 1)]  # noqa: E731
    assert bound(prices, ([3, 3], [3, 3, 4]), lambda price: price == 4, 2000) > 1.0


def test_randomized_response_holds_and_a_louder_truth_does_not():
    right = lambda v: noise.randomized_response(v, 3, 1.0)  # noqa: E731
    loud = lambda v: noise.randomized_response(v, 3, 1.5)  # noqa: E731
    assert 0.9 < many(right, (0, 1), lambda y: y == 0) <= 1.0
    assert many(loud, (0, 1), lambda y: y == 0) > 1.2


# Sparse vector: the published broken variants (Lyu, Su & Li 2017, table 1)


def roth_2011(queries, threshold=1):
    """Their algorithm 3, for epsilon 4: the noisy answer itself is released, and tells where the noisy threshold is."""
    source = open_source()
    bar = threshold + exact.laplace(Fraction(1, 2), source)
    for i, q in enumerate(queries):
        noisy = q + exact.laplace(Fraction(1, 2), source)
        if noisy >= bar:
            return i, noisy
    return len(queries), None


def lee_clifton_2014(queries, threshold=0):
    """Their algorithm 4: the queries' noise does not grow with how many True are answered."""
    source = open_source()
    bar = threshold + exact.laplace(Fraction(4), source)
    return [q + exact.laplace(Fraction(4, 3), source) >= bar for q in queries]


def stoddard_2014(queries, threshold=0):
    """Their algorithm 5: only the threshold is noised."""
    bar = threshold + exact.laplace(Fraction(2), open_source())
    return [q >= bar for q in queries]


def chen_2015(queries, threshold=0):
    """Their algorithm 6: answers True without end."""
    source = open_source()
    bar = threshold + exact.laplace(Fraction(2), source)
    return [q + exact.laplace(Fraction(2), source) >= bar for q in queries]


HALVES = ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])
SPLIT = [False] * 3 + [True] * 3


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("pair", [([0] * 6, [1] * 6), HALVES], ids=["all", "halves"])
def test_sparse_vector_holds_on_its_worst_pair(most, pair):
    alarm = noise.AboveThreshold(0, 1, 1, 1, most, R)
    worlds = [runs_of(alarm.run, data, 4000, f"sparse {i}") for i, data in enumerate(pair)]
    for event in (lambda a: not any(a[:3]), lambda a: a[:3] == [True] * min(3, most), lambda a: a[:6] == SPLIT[: len(a)]):
        assert epsilon_at_least(*(sum(map(event, world)) for world in worlds), 4000, ALPHA) <= 1.0


@pytest.mark.parametrize(
    ("twin", "pair", "event", "claimed"),
    [
        (roth_2011, ([0] * 4 + [1], [1] * 4 + [0]), lambda a: a == (4, 1), 4),
        (lee_clifton_2014, HALVES, lambda a: a == SPLIT, 1),
        (stoddard_2014, ([0, 1], [1, 0]), lambda a: a == [False, True], 1),
        (chen_2015, HALVES, lambda a: a == SPLIT, 1),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_broken_sparse_vectors_are_caught(twin, pair, event, claimed):
    assert bound(twin, pair, event, 25_000) > claimed


# Utility, by simulation: the share within the stated error is at least the confidence, up to chance


def at_least(inside, confidence):
    """A sample this far below the confidence has probability below ALPHA (Hoeffding)."""
    n = len(inside)
    return np.mean(inside) >= confidence - math.sqrt(math.log(1 / ALPHA) / (2 * n))


@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_stated_errors_hold(confidence):
    n = 200_000
    with seeded_for_tests(b"errors"):
        laplace, gaussian = noise.discrete_laplace(7.0, n), noise.discrete_gaussian(7.0, n)
        assert at_least(np.abs(laplace) <= noise.discrete_laplace_error(7.0, confidence), confidence)
        assert at_least(np.abs(gaussian) <= noise.discrete_gaussian_error(7.0, confidence), confidence)
        wide = noise.discrete_laplace(1e6, n), noise.discrete_gaussian(1e6, n)
    rng = np.random.default_rng(7)
    for x in (wide[0] / 1e6, rng.laplace(size=n)):
        assert abs(np.mean(np.abs(x) <= noise.laplace_error(1.0, confidence)) - confidence) < 0.006
    for x in (wide[1] / 1e6, rng.normal(size=n)):
        assert abs(np.mean(np.abs(x) <= noise.gaussian_error(1.0, confidence)) - confidence) < 0.006


def test_hair_colours_by_simulation():
    """The lecture's example: at least 0.973 of the choices are dark."""
    hair = [500, 399, 80, 21]
    for choose in (noise.exponential, noise.permute_and_flip):
        chosen = runs_of(lambda s, choose=choose: choose(s, 0.1, 1), hair, 20_000, "hair")
        assert at_least([i == 0 for i in chosen], noise.exponential_success(100, 4, 0.1, 1))


def test_selection_errors_by_simulation():
    scores, confidence = list(range(0, 100, 5)), 0.9
    for choose, error in (
        (lambda s: noise.exponential(s, 0.5, 1), noise.exponential_error(20, 0.5, 1, confidence)),
        (lambda s: noise.permute_and_flip(s, 0.5, 1), noise.exponential_error(20, 0.5, 1, confidence)),
        (lambda s: noise.noisy_max(s, 0.5, 1, 1), noise.noisy_max_error(20, 0.5, 1, confidence)),
    ):
        chosen = runs_of(choose, scores, 4000, "error")
        assert at_least([95 - scores[i] <= error for i in chosen], confidence)


@pytest.mark.parametrize(("k", "epsilon"), [(2, math.log(3)), (5, 1.0)])
def test_response_estimates_are_unbiased_and_within_their_error(k, epsilon):
    people, rounds, confidence = 2000, 400, 0.9
    truth = np.arange(people) % k // max(1, k - 3)
    share = np.bincount(truth, minlength=k) / people
    with seeded_for_tests(b"estimates"):
        found = np.array([
            noise.response_frequencies(np.bincount(noise.randomized_response(truth, k, epsilon), minlength=k), k, epsilon)
            for _ in range(rounds)
        ])  # fmt: skip
    error = noise.response_error(people, k, epsilon, confidence)
    for j in range(k):
        assert at_least(np.abs(found[:, j] - share[j]) <= error, confidence)
        assert abs(found[:, j].mean() - share[j]) < 6 * found[:, j].std() / math.sqrt(rounds)


def test_sparse_vector_error_by_simulation():
    confidence = 0.9
    error = noise.sparse_vector_error(10, 1, 1, 1, confidence)
    alarm = noise.AboveThreshold(0, 1, 1, 1, 1, R)
    queries = [-error - 1] * 9 + [error + 1]
    right = [answers == [False] * 9 + [True] for answers in runs_of(alarm.run, queries, 4000, "svt error")]
    assert at_least(right, confidence)
