"""What mechanisms claim, and that the claim holds exactly: laws by walking decision trees, ratios on neighbours."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from discreet import noise
from discreet.core import (
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Mechanism,
    NoisyMax,
    Pure,
    RandomizedResponse,
    Repeat,
    record,
    user,
)
from discreet.errors import InvalidValue
from discreet.noise.digits import exp_bounds
from discreet.noise.response import _truth_bounds
from discreet.noise.sparse import split
from unit.noise.tools import laplace_pmf, scripted_coins, walk

R = record()
MECHANISMS = [
    (noise.LaplaceNoise(2.0, 1, R), DiscreteLaplace(2.0, 1), 5),
    (noise.LaplaceNoise(2.0, 3, R), DiscreteLaplace(2.0, 3), [1, 2, 3]),
    (noise.GaussianNoise(2, 1, 1, R), DiscreteGaussian(2.0, 1), 5),
    (noise.GaussianNoise(2, 1, 3, R), Repeat(DiscreteGaussian(2.0, 1), 3), np.array([1, 2, 3])),
    (noise.GridLaplace(2.0, 1.0, 0.25, 1, R), DiscreteLaplace(8.0, 4), 0.3),
    (noise.GridLaplace(2.0, 1.0, 0.25, 3, R), DiscreteLaplace(8.0, 6), [0.3, 0.1, -5.0]),
    (noise.GridGaussian(2.0, 1.0, 0.3, 2, R), Repeat(DiscreteGaussian(math.nextafter(2 / 0.3, 0), 4), 2), [0.3, 1e9]),
    (noise.BoundedSum(0, 10, 0.5, "laplace", 20, R), DiscreteLaplace(40.0, 20), [1.0, 2.5, math.nan]),
    (noise.BoundedSum(-1, 10, 1, "gaussian", 20, record("replace")), DiscreteGaussian(20.0, 11), [1, 2, 3]),
    (noise.ExponentialMechanism(0.5, 1, R), Exponential(0.5), [1, 2, 3]),
    (noise.PermuteAndFlip(0.5, 1, R), NoisyMax(0.5), [1.5, 2, 3]),
    (noise.ReportNoisyMax(0.5, 1, 1, R), NoisyMax(0.5), [1, 2, 3]),
    (noise.RandomResponse(1.0, 3, record("replace")), RandomizedResponse(1.0, 3), [0, 1, 2]),
    (noise.AboveThreshold(10, 1.0, 1, 1, 2, R), Pure(1.0), [1, 2, 30]),
]  # fmt: skip


@pytest.mark.parametrize(("mechanism", "event", "data"), MECHANISMS, ids=lambda value: type(value).__name__)
def test_claims_and_runs(mechanism, event, data):
    assert isinstance(mechanism, Mechanism)
    (claim,) = mechanism.claims()
    assert claim.event == event
    assert claim.game.unit == mechanism.unit
    assert claim.game.view == {"answers"}
    mechanism.run(data)
    assert mechanism == mechanism
    assert hash(mechanism) == hash(mechanism)
    with pytest.raises(AttributeError):
        mechanism.unit = None


def test_a_claim_never_states_more_noise_than_is_added():
    third = noise.LaplaceNoise(Fraction(1, 3), 1, R).claims()[0].event.scale
    assert Fraction(third) <= Fraction(1, 3) < Fraction(math.nextafter(third, 1))
    tenth = noise.ExponentialMechanism(Fraction(1, 10**17 + 1), 1, R).claims()[0].event.epsilon
    assert Fraction(tenth) >= Fraction(1, 10**17 + 1)


def test_shapes_and_types_come_back():
    assert isinstance(noise.LaplaceNoise(1, 1, R).run(np.int32(7)), int)
    assert noise.LaplaceNoise(1, 1, R).run(np.zeros((2, 3), int)).shape == (2, 3)
    assert noise.LaplaceNoise(1, 1, R).run([]).shape == (0,)
    assert isinstance(noise.GridLaplace(1, 1, 1, 1, R).run(0.5), float)
    assert noise.LaplaceNoise(1e-3, 1, R).run(10**40) == 10**40


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 2**64 - 1, 10**40])
def test_huge_counts_in_arrays_are_clipped_and_never_wrap(value):
    found = noise.LaplaceNoise(1e-3, 1, R).run([value, 1])
    assert found.tolist() == [min(max(value, -(2**62)), 2**62), 1]


@pytest.mark.parametrize("data", [1.5, [1.5], "1", None, True, [True], [[1], [2, 3]], {}, 1j, [None], np.array(["a"])])
def test_counts_must_be_whole_numbers(data):
    with pytest.raises(InvalidValue, match="whole numbers"):
        noise.LaplaceNoise(1, 1, R).run(data)


def test_the_length_claimed_is_the_length_released():
    for mechanism in (noise.GaussianNoise(1, 1, 2, R), noise.GridLaplace(1, 1, 1, 2, R), noise.GridGaussian(1, 1, 1, 2, R)):
        with pytest.raises(InvalidValue, match="2 numbers"):
            mechanism.run([1, 2, 3])


def test_arrays_wider_than_int64_are_refused():
    for name in ("discrete_laplace", "discrete_gaussian"):
        with pytest.raises(InvalidValue, match="int64"):
            getattr(noise, name)(2**50 + 1, size=3)
        assert isinstance(getattr(noise, name)(1e300), int)
        assert getattr(noise, name)(2**50, size=1000).dtype == np.int64


# Sums


@pytest.mark.parametrize(
    ("unit", "bounds", "steps"),
    [(record(), (-3, 2), 3), (record("replace"), (-3, 2), 5), (record("zero_out"), (1, 2), 2), (user("k", rows=4), (0, 2), 8),
     (user("k", rows=4, relation="replace"), (1, 2), 8), (user("k", rows=2, relation="replace"), (-1, 2), 6)],
)  # fmt: skip
def test_sensitivity_of_a_sum(unit, bounds, steps):
    assert noise.BoundedSum(*bounds, 1, "laplace", 1, unit).sensitivity() == steps


def test_a_sum_without_a_bound_on_rows_is_refused():
    with pytest.raises(InvalidValue, match="rows"):
        noise.BoundedSum(0, 1, 1, "laplace", 1, user("k", rows=None))


def test_a_sum_is_the_sum():
    mechanism = noise.BoundedSum(-5, 5, Fraction(1, 10), "gaussian", Fraction(1, 1000), R)
    assert mechanism.run([1.25, -0.35, 7, -9, math.nan]) == pytest.approx((13 - 3 + 50 - 50) / 10)


def test_a_large_sum_does_not_wrap():
    mechanism = noise.BoundedSum(0, 2**40, 1, "laplace", 1, R)
    assert mechanism.total(np.full(1 << 20, 2.0**40)) == 2**60


# Selection: laws by walking the decision tree, one round of rejection at a time

SCORES = [[3, 1, 0], [0, 0, 0], [Fraction(1, 2), 2, 2], [0.25, -1.5, 1.0]]


@pytest.mark.parametrize("scores", SCORES, ids=str)
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), 2])
def test_exponential_law(scores, epsilon):
    with scripted_coins():
        masses, left = walk(lambda: noise.exponential(scores, epsilon, 1), rounds=1)
    weights = np.exp([float(epsilon * Fraction(s) / 2) for s in scores])
    found = np.array([masses[i] for i in range(3)]) / sum(masses.values())
    assert left == 0
    assert np.allclose(found, weights / weights.sum(), rtol=1e-12)


def flip_law(scores, epsilon):
    """Permute-and-flip's law, by its definition: all orders, equally likely."""
    from itertools import permutations

    heads = [math.exp(-float(epsilon * (max(map(Fraction, scores)) - Fraction(s)) / 2)) for s in scores]
    law = np.zeros(len(scores))
    orders = list(permutations(range(len(scores))))
    for order in orders:
        left = 1 / len(orders)
        for i in order:
            law[i] += left * heads[i]
            left *= 1 - heads[i]
    return law


@pytest.mark.parametrize("scores", SCORES, ids=str)
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), 2])
def test_permute_and_flip_law(scores, epsilon):
    with scripted_coins():
        masses, left = walk(lambda: noise.permute_and_flip(scores, epsilon, 1), smallest=0)
    assert left == 0
    assert np.allclose([masses.get(i, 0.0) for i in range(3)], flip_law(scores, epsilon), rtol=1e-12)
    gain = np.array([float(s) for s in scores])
    weights = np.exp(float(epsilon) * gain / 2)
    assert flip_law(scores, epsilon) @ gain >= (weights / weights.sum()) @ gain - 1e-12, "worse than the exponential mechanism"


def noisy_max_law(scores, epsilon, reach=60):
    """Report-noisy-max's law: condition on the winning noisy score and on how many tie with it."""
    scale = 2 / epsilon
    x = np.arange(-reach, reach + 1)
    pmf = np.array([laplace_pmf(scale, x - s) for s in scores])
    below = np.cumsum(pmf, axis=1) - pmf
    law = np.zeros(len(scores))
    for tied in product((False, True), repeat=len(scores)):
        if any(tied):
            chance = np.prod([pmf[i] if t else below[i] for i, t in enumerate(tied)], axis=0).sum()
            law += np.array(tied) * chance / sum(tied)
    return law


NEIGHBOURS = [(a, b) for a in product((0, 1, 2), repeat=3) for b in product(*[(s - 1, s, s + 1) for s in a])]


@pytest.mark.parametrize("law", [flip_law, noisy_max_law])
def test_selection_is_private_on_all_small_neighbours(law):
    epsilon, laws = 1.0, {}
    for pair in NEIGHBOURS:
        for scores in pair:
            if scores not in laws:
                laws[scores] = law(scores, Fraction(1) if law is flip_law else epsilon)
    worst = max(np.abs(np.log(laws[a] / laws[b])).max() for a, b in NEIGHBOURS)
    assert worst <= epsilon + 1e-9
    assert worst > 0.5 * epsilon, "the bound is not far from reached"


def test_exponential_is_bounded_range():
    """The privacy loss ranges over at most epsilon (Durfee & Rogers 2019), so each loss is within (epsilon / 2 +- that)."""
    worst = 0.0
    for a, b in NEIGHBOURS:
        weights = [np.exp(np.array(s) / 2) for s in (a, b)]
        loss = np.log(weights[0] / weights[0].sum()) - np.log(weights[1] / weights[1].sum())
        worst = max(worst, loss.max() - loss.min())
    assert worst == pytest.approx(1.0)


def test_bad_scores_do_not_decide_for_others():
    for choose in (
        lambda s: noise.exponential(s, 50, 1),
        lambda s: noise.permute_and_flip(s, 50, 1),
        lambda s: noise.noisy_max(s, 50, 1, 1),
    ):
        assert choose([math.nan, 100.0, 3.0]) == 1
        assert choose([-math.inf, 100.0, 3.0]) == 1
        assert choose([1.0, 2.0, math.inf]) == 2


# Randomised response


@pytest.mark.parametrize("k", [2, 3, 1000])
@pytest.mark.parametrize("epsilon", ["1/100", "1", "30"])
def test_truth_bounds_enclose_the_probability_of_the_truth(k, epsilon):
    import mpmath

    lo, hi = _truth_bounds(Fraction(epsilon), k, 48)
    with mpmath.workdps(60):
        e = mpmath.exp(mpmath.mpf(Fraction(epsilon).numerator) / Fraction(epsilon).denominator)
        assert lo <= mpmath.ldexp(e / (e + k - 1), 48) <= hi
    assert hi - lo <= 2


def test_randomized_response_takes_labels_numbers_and_arrays():
    assert noise.randomized_response("b", ("a", "b"), 60) == "b"
    assert noise.randomized_response(2, 3, 60) == 2
    assert noise.randomized_response(np.array([[0, 1], [2, 0]]), 3, 60).tolist() == [[0, 1], [2, 0]]
    assert noise.randomized_response([], 3, 1).shape == (0,)


@pytest.mark.parametrize(
    ("value", "categories"),
    [
        (["a", "b"], ["a", "b"]),
        (np.array(["0", "1"]), 3),
        (np.array([0j]), 3),
        (0, 1),
        (0, "ab"),
        (0, []),
        (0, [0]),
        (0, [0, 0]),
        (0, 2.5),
    ],
)
def test_randomized_response_refuses_what_says_nothing_of_one_person(value, categories):
    with pytest.raises(InvalidValue):
        noise.randomized_response(value, categories, 1)


@pytest.mark.parametrize(
    ("value", "categories", "counts_as"),
    [
        ("c", ["a", "b"], "a"), (None, ["a", "b"], "a"), (True, [0, 1], 0), (1.0, [0, 1], 0), ({}, ["a", "b"], "a"),
        (np.str_("b"), ["a", "b"], "b"), (3, 3, 0), (-1, 3, 0), (0.5, 3, 0), ("a", 3, 0), (None, 3, 0), (10**400, 3, 0),
        (2.0, 3, 2), (True, 3, 1), (math.nan, 3, 0), (math.inf, 3, 0),
        ([2, 3, -1, None, "x", 1.5, 2.0, math.nan, 10**400, [1], {}, True], 3, [2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1]),
        (np.array([2.0, np.nan, 7.0, -np.inf, 1.0]), 3, [2, 0, 0, 0, 1]),
        (np.array([2, 3, 2**64 - 1], np.uint64), 3, [2, 0, 0]),
        (np.array([-(2**63), 2**63 - 1, 1]), 3, [0, 0, 1]), (np.array([True, False]), 3, [1, 0]),
    ],
)  # fmt: skip
def test_an_answer_that_is_no_category_counts_as_the_first(value, categories, counts_as):
    told = noise.randomized_response(value, categories, 200)  # the truth, but for once in 1e86
    assert (told.tolist() if isinstance(counts_as, list) else told) == counts_as


@pytest.mark.parametrize("unit", [record(), user("k", rows=None, relation="replace"), "record"])
def test_randomized_response_hides_answers_not_presence(unit):
    with pytest.raises(InvalidValue, match="replace"):
        noise.RandomResponse(1.0, 2, unit)


def test_randomized_response_pays_per_row():
    event = noise.RandomResponse(1.0, 2, user("k", rows=3, relation="replace")).claims()[0].event
    assert event == Repeat(RandomizedResponse(1.0, 2), 3)


# Sparse vector


def sparse_law(queries, epsilon, most, reach=120, threshold=0):
    """The probability of every list of answers, by summing over the threshold's noise."""
    first, second = (float(share) for share in split(Fraction(epsilon), most))
    z = np.arange(-reach, reach + 1)
    x = np.arange(-8 * reach, 8 * reach + 1)
    tail = np.cumsum(laplace_pmf(2 * most / second, x)[::-1])[::-1]
    law = {}

    def extend(answers, weight):
        if len(answers) == len(queries) or sum(answers) == most:
            law[answers] = weight.sum()
            return
        above = tail[threshold + z - queries[len(answers)] + 8 * reach]
        extend((*answers, False), weight * (1 - above))
        extend((*answers, True), weight * above)

    extend((), laplace_pmf(1 / first, z))
    return law


@pytest.mark.parametrize("most", [1, 2])
def test_sparse_vector_is_private_on_all_small_neighbours(most):
    epsilon = 1
    base = (0, 1, -1)
    here = sparse_law(base, epsilon, most)
    worst = 0.0
    for other in product(*[(q - 1, q, q + 1) for q in base]):
        there = sparse_law(other, epsilon, most)
        worst = max(worst, *(abs(math.log(here[answers] / there[answers])) for answers in here))
    assert worst <= epsilon + 1e-6
    assert sum(here.values()) == pytest.approx(1)


def test_sparse_vector_stops_and_is_lazy():
    asked = []

    def queries():
        for answer in (0, 1000, 0, 1000, 5):
            asked.append(answer)
            yield answer

    answers = noise.sparse_vector(queries(), threshold=500, epsilon=5, sensitivity=1, granularity=1, most=2)
    assert next(answers) is False
    assert asked == [0]
    assert list(answers) == [True, False, True]
    assert asked == [0, 1000, 0, 1000]


def test_exp_bounds_are_what_the_response_uses():
    assert _truth_bounds(Fraction(0), 2, 8) == (128, 128)
    assert exp_bounds(Fraction(0), 8) == (256, 256)


def test_all_is_the_public_surface():
    assert sorted(noise.__all__) == noise.__all__
    assert all(hasattr(noise, name) for name in noise.__all__)
