"""Local reports drawn many times: their laws, their errors, their claims on a worst pair, and broken twins that are caught.

Seeded. Under fresh seeds each check of a right oracle would fail with probability at most ALPHA; with fewer than 40 of them
here the file's false-alarm rate is below 4e-6. A twin is refuted when the lower bound on its epsilon, at confidence
1 - ALPHA, is above what it claims.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from discreet.audit import check_mechanism
from discreet.errors import ClaimRefuted
from discreet.noise.source import seeded_for_tests
from discreet.query import local
from discreet.query.local.hashing import PRIME
from unit.noise.tools import chi2, epsilon_at_least
from unit.query.local.laws import grown, law, response, worst_ratio

ALPHA = 1e-7
RUNS = 100_000
FREQUENCY = [local.KaryResponse, local.SymmetricUnary, local.OptimalUnary, local.LocalHashing, local.HadamardResponse]


def reports(encode, value, seed, runs=RUNS):
    with seeded_for_tests(f"{seed} {value}".encode()):
        return encode(np.full(runs, value))


def bits(told, k):
    return np.unpackbits(told, axis=1, count=k)


# What was drawn has the law that was proven


@pytest.mark.parametrize("make", FREQUENCY[:3])
def test_the_law_of_a_report(make):
    oracle = make(1.0, 4)
    expected = law(oracle, 2)
    told = reports(oracle.encode, 2, "law")
    found = told if make is local.KaryResponse else bits(told, 4) @ [8, 4, 2, 1]
    masses = [float(mass) for mass in expected.values()]  # in the order of the numbers
    assert chi2(np.bincount(found, minlength=len(masses)), np.array(masses) * RUNS) > ALPHA


def test_the_law_of_the_coin_and_of_numbers():
    told = reports(local.Coin().encode, 1, "coin")
    assert chi2(np.bincount(told), np.array([0.25, 0.75]) * RUNS) > ALPHA
    for make, step in ((local.OneBitMean, 3), (local.PiecewiseMean, 3)):
        oracle = make(1.5, 0.0, 1.0, steps=8)
        expected = law(oracle, step)
        told = reports(oracle.encode, step / 8, make.__name__)
        masses = [float(expected[y]) for y in range(len(expected))]
        assert chi2(np.bincount(told, minlength=len(masses)), np.array(masses) * RUNS) > ALPHA


def test_hashes_are_uniform_and_pairwise_independent():
    hashing = local.LocalHashing(1.0, 100)
    seed = reports(hashing.encode, 7, "hash")[:, 0]
    a, b = seed >> 31, seed & PRIME
    pair = [(a * x + b) % PRIME % hashing.answers for x in (7, 93)]
    assert (
        chi2(np.bincount(pair[0] * hashing.answers + pair[1]), np.full(hashing.answers**2, RUNS / hashing.answers**2)) > ALPHA
    )
    rows = reports(local.HadamardResponse(1.0, 8).encode, 7, "rows")[:, 0]
    assert chi2(np.bincount(rows, minlength=64), np.full(64, RUNS / 64)) > ALPHA


# Estimates: unbiased, with the variance of the formula, inside their intervals


@pytest.mark.parametrize("make", FREQUENCY)
def test_estimates_have_the_stated_mean_variance_and_coverage(make):
    people, rounds, k = 400, 500, 12
    truth = np.minimum(np.arange(people) % 20, k - 1)
    share = np.bincount(truth, minlength=k) / people
    oracle = make(1.0, k)
    with seeded_for_tests(f"estimates {make.__name__}".encode()):
        found = [oracle.estimate(oracle.encode(truth), 0.9) for _ in range(rounds)]
    off = np.array([one.estimate for one in found]) - share
    spread = np.array([oracle.variance(people, float(f)) for f in share])
    assert (np.abs(off.mean(axis=0)) < 6.0 * np.sqrt(spread / rounds)).all()  # 12 normal tails beyond 6: below 1e-7
    # 6000 squares, a few times correlated: 12 % is more than six standard errors
    assert (off**2 / spread).mean() == pytest.approx(1.0, abs=0.12)
    inside = [((one.low <= share) & (share <= one.high)).all() for one in found]
    assert np.mean(inside) >= 0.9 - math.sqrt(math.log(1 / ALPHA) / (2 * rounds))


@pytest.mark.parametrize(
    "oracle", [local.OneBitMean(1.0, -2.0, 6.0), local.PiecewiseMean(2.0, -2.0, 6.0)], ids=lambda o: type(o).__name__
)
def test_means_have_the_stated_mean_variance_and_coverage(oracle):
    people, rounds = 500, 2000
    with seeded_for_tests(b"means"):
        found = [oracle.estimate(oracle.encode(np.full(people, 3.3)), 0.9) for _ in range(rounds)]
    off = np.array([one.estimate for one in found]) - 3.3
    spread = oracle.variance(people, 3.3)
    assert abs(off.mean()) < 6 * math.sqrt(spread / rounds) + 8 / oracle.steps
    assert np.mean(off**2) / spread == pytest.approx(1.0, abs=0.2)  # six standard errors of sqrt(2 / 2000)
    assert np.mean([one.low <= 3.3 <= one.high for one in found]) >= 0.9 - math.sqrt(math.log(1 / ALPHA) / (2 * rounds))


# Audits on the worst pair, with the best event, and twins


def supports(name, told, k):
    """The event that tells value 0 from value 1 best."""
    match name:
        case "KaryResponse":
            return told == 0
        case "SymmetricUnary" | "OptimalUnary":
            table = bits(told, k)
            return (table[:, 0] == 1) & (table[:, 1] == 0)
        case "OneBitMean":
            return told == 0
        case "PiecewiseMean":
            return told < k
    seed, said = told.T
    if name == "LocalHashing":
        a, b, g = seed >> 31, seed & PRIME, local.LocalHashing(1.0, k).answers
        one, two = (b % PRIME % g, (a + b) % PRIME % g)
    else:
        width, t = (k - 1).bit_length(), local.HadamardResponse(1.0, k).parities
        one, two = np.zeros_like(seed), sum(((seed >> (i * width)) & 1) << i for i in range(t))
    return (said == one) & (said != two)


def floor(oracle, pair=(0, 1), k=12, encode=None):
    name = type(oracle).__name__
    counts = [int(supports(name, reports(encode or oracle.encode, value, f"audit {name}"), k).sum()) for value in pair]
    return epsilon_at_least(*counts, RUNS, ALPHA)


@pytest.mark.parametrize("make", FREQUENCY)
def test_each_oracle_holds_on_its_worst_pair_and_with_louder_coins_does_not(make):
    assert 0.85 < floor(make(1.0, 12)) <= 1.0
    if make in (local.LocalHashing, local.HadamardResponse):
        louder = make(1.0, 12)
        object.__setattr__(louder, "keep", make(1.0, 12).keep * 3 / 2)  # the same functions, the truth too often
    else:
        louder = make(1.5, 12)
    assert floor(louder) > 1.15


def test_numbers_hold_on_their_worst_pair_and_with_louder_coins_do_not():
    assert 0.9 < floor(local.OneBitMean(1.0, 0.0, 1.0)) <= 1.0
    assert floor(local.OneBitMean(1.5, 0.0, 1.0)) > 1.3
    right, louder = local.PiecewiseMean(1.0, 0.0, 1.0, steps=64), local.PiecewiseMean(1.5, 0.0, 1.0, steps=64)
    assert right.window < 64  # the windows of the two bounds do not meet
    assert 0.9 < floor(right, k=right.window) <= 1.0
    assert floor(louder, k=louder.window) > 1.2


def test_a_hash_seed_that_also_drives_the_coin_is_caught():
    """The twin draws its noise from the seed it publishes: whoever sees the seed takes the noise off again."""
    oracle = local.LocalHashing(1.0, 12)
    g = oracle.answers

    def coin(seed):  # what the twin calls random
        return (seed * 2654435761 >> 7) % 1000 < float(oracle.keep) * 1000

    def twin(values):
        told = oracle.encode(values)
        seed = told[:, 0]
        hashed = ((seed >> 31) * values + (seed & PRIME)) % PRIME % g
        return np.stack([seed, np.where(coin(seed), hashed, seed % g)], axis=1)

    def event(told):
        seed, said = told.T
        one, two = (seed & PRIME) % PRIME % g, ((seed >> 31) + (seed & PRIME)) % PRIME % g
        return coin(seed) & (said == one) & (said != two)

    counts = [int(event(reports(twin, value, "reused")).sum()) for value in (0, 1)]
    assert epsilon_at_least(*counts, RUNS, ALPHA) > 5.0


def test_textbook_piecewise_in_floats_is_caught():
    """The twin adds a float in [0, 1) times a width to the left end of its window: the low bits tell which window it was."""
    half = math.exp(0.5)
    c = (half + 1) / (half - 1)
    rng = np.random.default_rng(5)

    def twin(values):
        left = (c + 1) / 2 * values - (c - 1) / 2
        near = left + rng.random(len(values), dtype=np.float32).astype(float) * (c - 1)
        far = rng.uniform(-c, c, len(values))
        return np.where(rng.random(len(values)) < half / (half + 1), near, far)

    def event(told):
        """On the grid of the first window: a multiple of 2^-24 of its width."""
        steps = (told - (-(c - 1) / 2)) / (c - 1) * 2**24
        return np.abs(steps - np.round(steps)) < 1e-6

    counts = [int(event(twin(np.full(RUNS, value))).sum()) for value in (0.0, 0.3)]
    assert epsilon_at_least(*counts, RUNS, ALPHA) > 3.0


def test_probabilities_in_floats_are_refuted_by_adding_up_the_law():
    """No audit sees so little, but for some k the nearest float of the textbook probability is above what epsilon allows."""
    grow = math.exp(1.0)
    below_it, above_it = grown(Fraction(1))
    broken = 0
    for k in range(2, 40):
        keep = Fraction((grow - 1) / (grow - 1 + k))
        broken += worst_ratio([response(x, keep, k) for x in (0, 1)]) > above_it
        assert worst_ratio([response(x, local.KaryResponse(1.0, k).keep, k) for x in (0, 1)]) <= below_it
    assert broken > 5


@pytest.mark.parametrize(
    "oracle", [local.frequency(1.0, 4), local.frequency(1.0, 40), local.OptimalUnary(1.0, 4)], ids=lambda o: type(o).__name__
)
def test_keeps_to_the_protocol(oracle):
    with seeded_for_tests(b"protocol"):
        found = check_mechanism(oracle, [([0], [1])], runs=400, confidence=1 - ALPHA, seed=1)
    assert {verdict.outcome for _, verdict in found} <= {"holds", "inconclusive"}


def test_a_collector_who_is_told_the_truth_is_caught_by_the_protocol():
    class Honest(local.KaryResponse):
        def run(self, data):
            return np.asarray(data)

    with seeded_for_tests(b"protocol"), pytest.raises(ClaimRefuted):
        check_mechanism(Honest(1.0, 4), [([0], [1])], runs=400, confidence=1 - ALPHA, seed=1)
