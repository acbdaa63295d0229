"""Local oracles: their exact laws, their counts against slow ones, and what they refuse."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from discreet.accounting import Pure, RandomizedResponse, Repeat, Shuffled, curve
from discreet.core import Mechanism
from discreet.errors import InvalidValue
from discreet.noise.source import Source, seeded_for_tests
from discreet.query import local
from discreet.query.local.coins import ONE, below, coins, flipped, kept
from discreet.query.local.hashing import PRIME, _walsh
from discreet.query.local.intervals import bernstein, rate_interval
from discreet.query.local.oracle import indices
from unit.query.local.laws import grown, law, response, worst_ratio

EPSILONS = [2.0**-20, 0.1, math.log(3), 1.0, 4.0, 20.0]
FREQUENCY = [local.KaryResponse, local.SymmetricUnary, local.OptimalUnary, local.LocalHashing, local.HadamardResponse]
NUMBERS = [local.OneBitMean, local.PiecewiseMean]


# The laws, exactly


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("make", [make for make in FREQUENCY if make is not local.LocalHashing])
def test_no_report_is_more_than_e_to_the_epsilon_times_as_likely(make, epsilon):
    oracle = make(epsilon, 4)
    if make is local.HadamardResponse and oracle.parities > 2:
        laws = [response(h, oracle.keep, oracle.answers) for h in range(4)]  # given any function: all answers are alike
    else:
        laws = [law(oracle, x) for x in range(4)]
    assert all(sum(one.values()) == 1 for one in laws)
    below_it, above_it = grown(Fraction(epsilon))
    ratio = worst_ratio(laws)
    assert ratio <= below_it <= above_it
    assert ratio > above_it * (1 - Fraction(1, 10**8))  # and hardly less: at epsilon 20 a lie is rare


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("make", NUMBERS)
def test_numbers_keep_to_epsilon_exactly(make, epsilon):
    oracle = make(epsilon, 0.0, 1.0, steps=12)
    laws = [law(oracle, step) for step in range(13)]
    assert all(sum(one.values()) == 1 for one in laws)
    ratio, (below_it, above_it) = worst_ratio(laws), grown(Fraction(epsilon))
    assert above_it * (1 - Fraction(1, 10**8)) < ratio <= below_it


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_hashing_keeps_to_epsilon_given_any_function(epsilon):
    oracle = local.LocalHashing(epsilon, 50)
    laws = [response(h, oracle.keep, oracle.answers) for h in range(min(oracle.answers, 4))]
    assert worst_ratio(laws) <= grown(Fraction(epsilon))[0]


def test_the_coin_is_the_lectures():
    assert law(local.Coin(), 1) == {0: Fraction(1, 4), 1: Fraction(3, 4)}
    assert curve(local.Coin().claims()[0].event).epsilon(0) == pytest.approx(math.log(3), rel=1e-15)
    assert local.Coin().epsilon >= Fraction(math.log(3))
    found = local.Coin().estimate([1] * 60 + [0] * 40, 0.95)
    assert found.estimate.tolist() == pytest.approx([0.3, 0.7])  # 2 x 0.6 - 1/2


@pytest.mark.parametrize("make", FREQUENCY)
def test_support_is_what_the_law_says(make):
    """p and q are the chances that a report supports its own category and another one."""
    oracle = make(1.0, 4)
    if make is local.LocalHashing:
        return_chance = oracle.keep + (1 - oracle.keep) / oracle.answers
        assert oracle.p == return_chance
        assert oracle.q == Fraction(1, oracle.answers)
        return
    for truth in range(4):
        chance = [Fraction(0)] * 4
        for report, mass in law(oracle, truth).items():
            if make is local.KaryResponse:
                supported = [report]
            elif make is local.HadamardResponse:
                from unit.query.local.laws import parities

                supported = [j for j in range(4) if parities(report[0], j) == report[1]]
            else:
                supported = [j for j in range(4) if report[j]]
            for j in supported:
                chance[j] += mass
        assert chance == [oracle.p if j == truth else oracle.q for j in range(4)]


def test_piecewise_answers_have_the_moments_they_are_said_to_have():
    oracle = local.PiecewiseMean(1.5, 0.0, 1.0, steps=10)
    for step in range(11):
        mean = sum(y * mass for y, mass in law(oracle, step).items())
        square = sum(y * y * mass for y, mass in law(oracle, step).items())
        assert oracle.moments(step) == (mean, square - mean**2)
        assert (mean - oracle.moments(0)[0]) / oracle.keep == step  # unbiased


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_variances_are_the_published_ones(epsilon):
    e = math.exp(epsilon)
    least = 4 * e / (e - 1) ** 2
    assert local.KaryResponse(epsilon, 30).variance(1) == pytest.approx((28 + e) / (e - 1) ** 2)
    assert local.OptimalUnary(epsilon, 30).variance(1) == pytest.approx(least)
    half = math.exp(epsilon / 2)
    assert local.SymmetricUnary(epsilon, 30).variance(1) == pytest.approx(half / (half - 1) ** 2)
    assert least <= local.LocalHashing(epsilon, 30).variance(1) <= 1.07 * least
    assert least <= local.HadamardResponse(epsilon, 30).variance(1) <= 1.07 * least
    one_bit = ((e + 1) / (e - 1)) ** 2  # on [-1, 1] at 0
    assert local.OneBitMean(epsilon, -1, 1).variance(1, 0.0) == pytest.approx(one_bit)
    for x in (0.0, 0.5, 1.0):
        piecewise = x * x / (half - 1) + (half + 3) / (3 * (half - 1) ** 2)
        assert local.PiecewiseMean(epsilon, -1, 1).variance(1, x) == pytest.approx(piecewise, rel=1e-3)


# The draws


class Digits(Source):
    """Plays given words."""

    def __init__(self, *words: bytes) -> None:
        super().__init__()
        self.given = list(words)

    def take(self, count: int) -> bytes:
        word = self.given.pop(0)
        assert len(word) == count
        return word


@pytest.mark.parametrize("bar", [1, 1 << 47, (1 << 63) + 12345, ONE - 1, 7 << 48])
def test_a_coin_compares_all_64_bits(bar):
    """True for exactly the numbers below the bar."""
    first, rest = bar >> 48, bar & ((1 << 48) - 1)
    for number in {0, bar - 1, bar, min(bar + 1, ONE - 1), ONE - 1}:
        digit, more = number >> 48, number & ((1 << 48) - 1)
        words = [digit.to_bytes(2, "little")]
        if digit == first and rest:
            words.append(more.to_bytes(6, "little"))
        assert bool(coins(Fraction(bar, ONE), 1, Digits(*words))[0]) == (number < bar)


def test_sure_coins():
    with seeded_for_tests(b"sure") as source:
        assert coins(Fraction(1), 100, source).all()
        assert not coins(Fraction(0), 100, source).any()


@pytest.mark.parametrize("bound", [2, 3, 5, 7, 100, 255, 256])
def test_small_numbers_are_uniform_over_all_words(bound):
    """Every 16-bit word in turn: each number comes out equally often, and the surplus is drawn again."""
    words = np.arange(1 << 16, dtype=np.uint16)
    surplus = (1 << 16) % bound

    class Every(Source):
        def words(self, dtype, count):
            return words if count == len(words) else np.full(count, 0xFFFF, dtype)

    told = np.bincount(below(bound, len(words), Every()).astype(np.int64), minlength=bound)
    told[bound - 1] -= surplus  # what was drawn again
    assert (told == (1 << 16) // bound).all()


def test_probabilities_are_rounded_to_the_side_that_tells_less():
    for epsilon in EPSILONS:
        low, high = grown(Fraction(epsilon))
        lie, keep = flipped(Fraction(epsilon)), kept(Fraction(epsilon), 1, 9)
        assert 1 / (low + 1) <= lie <= 1 / (high + 1) + Fraction(2, ONE)
        assert (low - 1) / (low + 8) - Fraction(2, ONE) <= keep <= (low - 1) / (low + 8)


# Counting


def test_local_hashing_counts_as_one_by_one():
    oracle = local.LocalHashing(1.0, 37)
    with seeded_for_tests(b"count"):
        reports = oracle.encode(np.arange(300) % 37)
    slow = np.zeros(37, int)
    for seed, told in reports.tolist():
        a, b = seed >> 31, seed & PRIME
        for j in range(37):
            slow[j] += (a * j + b) % PRIME % oracle.answers == told
    assert (oracle.supports(reports)[0] == slow).all()


@pytest.mark.parametrize(("size", "epsilon"), [(2, 0.5), (37, 1.0), (64, 3.0)])
def test_hadamard_counts_as_one_by_one(size, epsilon):
    oracle = local.HadamardResponse(epsilon, size)
    with seeded_for_tests(b"count"):
        reports = oracle.encode(np.arange(300) % size)
    slow = np.zeros(size, int)
    for seed, told in reports.tolist():
        rows = [seed >> (t * oracle.width) & ((1 << oracle.width) - 1) for t in range(oracle.parities)]
        for j in range(size):
            slow[j] += all((row & j).bit_count() % 2 == told >> t & 1 for t, row in enumerate(rows))
    assert (oracle.supports(reports)[0] == slow).all()


def test_walsh_against_the_matrix():
    x = np.arange(16) ** 2
    matrix = np.array([[(-1) ** (i & j).bit_count() for j in range(16)] for i in range(16)])
    assert (_walsh(x) == matrix @ x).all()


@pytest.mark.parametrize("make", FREQUENCY)
def test_batches_add_up_and_labels_are_kept(make):
    names = ["ant", "bee", "cat", "dog", "eel"]
    oracle = make(1.0, names)
    with seeded_for_tests(b"batches"):
        reports = oracle.encode(["bee", "cat"] * 200)
    first, second, whole = oracle.supports(reports[:100]), oracle.supports(reports[100:]), oracle.supports(reports)
    assert (first[0] + second[0] == whole[0]).all()
    found = oracle.estimate(reports, 0.95)
    assert [label for label, *_ in found] == names
    assert len(found) == 5
    assert (found.low <= found.high).all()
    alone = oracle.estimate(reports, 0.95, together=False)
    assert (found.low <= alone.low).all()
    assert (alone.high <= found.high).all()
    assert found.together is True
    assert alone.together is False


def test_intervals():
    low, high = rate_interval(np.array([0, 1, 50, 99, 100]), 100, 0.05)
    assert low[0] == 0
    assert high[-1] == 1
    assert low[1] == pytest.approx(0.05 / 200)
    assert high[3] == pytest.approx(1 - 0.05 / 200)
    assert (low[2], high[2]) == (pytest.approx(0.398, abs=1e-3), pytest.approx(0.602, abs=1e-3))
    assert bernstein(0.05, 10**6, 0.01, 1.0) < math.sqrt(math.log(40) / 2e6)


# Claims and choices


def test_claims():
    assert local.KaryResponse(1.0, 5).claims()[0].event == RandomizedResponse(1.0, 5)
    assert local.SymmetricUnary(1.0, 5).claims()[0].event == Repeat(RandomizedResponse(0.5, 2), 2)
    for make in (local.OptimalUnary, local.LocalHashing, local.HadamardResponse):
        assert make(1.0, 5).claims()[0].event == Pure(1.0)
    assert local.OneBitMean(1.0, 0, 1).claims()[0].event == RandomizedResponse(1.0, 2)
    (claim,) = local.PiecewiseMean(1.0, 0, 1).shuffled(10_000)
    assert claim.event == Shuffled(Pure(1.0), 10_000)
    assert curve(claim.event).epsilon(1e-6) < 0.06
    assert (claim.game.unit.name, claim.game.unit.relation) == ("user", "replace")
    assert len(claim.assumptions) == 3
    for oracle in (local.Coin(), local.frequency(1.0, 5), local.mean(1.0, 0, 1)):
        assert isinstance(oracle, Mechanism)
        assert curve(oracle.claims()[0].event).epsilon(0) == pytest.approx(float(oracle.epsilon))


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 2.0, 4.0])
def test_the_choice_is_by_variance(epsilon):
    bar = 3 * math.exp(epsilon) + 2
    for size in (2, math.floor(bar) - 1, math.ceil(bar) + 1, 4 * math.ceil(bar)):
        chosen = local.frequency(epsilon, max(size, 2))
        assert isinstance(chosen, local.KaryResponse) == (size < bar)
        least = min(make(epsilon, max(size, 2)).variance(1) for make in FREQUENCY)
        assert chosen.variance(1) <= 1.02 * least


def test_the_mean_is_chosen_by_its_worst_variance():
    for epsilon in (0.3, 1.0, 1.5, 3.0):
        both = [make(epsilon, -2.0, 5.0) for make in NUMBERS]
        assert local.mean(epsilon, -2.0, 5.0).worst_variance(1) == min(one.worst_variance(1) for one in both)


# What is refused, and what is not


@pytest.mark.parametrize("make", FREQUENCY)
@pytest.mark.parametrize("values", [[[1]], np.array(["x"]), np.array([1j]), iter([1]), np.zeros((2, 2))])
def test_what_is_no_list_of_values_is_refused(make, values):
    with pytest.raises(InvalidValue, match="from 0 to 3"):
        make(1.0, 4).encode(values)


@pytest.mark.parametrize("make", FREQUENCY)
@pytest.mark.parametrize("value", [4, -1, 0.5, "x", None, 10**30, math.nan, 1j, b"x"])
def test_a_value_outside_the_list_counts_as_the_first(make, value):
    oracle = make(20.0, 4)
    for values in (value, [value], [3, value]):
        truth = indices(values, 4).tolist()
        assert truth == ([3, 0] if values == [3, value] else [0])
        assert len(oracle.encode(values)) == len(truth)


@pytest.mark.parametrize("value", ["secret", 1, None, ["ant"], {}, 3, True, math.nan])
def test_labels_likewise(value):
    assert indices(["bee", value, "ant"], ("ant", "bee")).tolist() == [1, 0, 0]
    assert len(local.KaryResponse(1.0, ["ant", "bee"]).encode(["bee", value])) == 2


def test_one_and_true_are_different_labels():
    assert indices([1, True], (False, True)).tolist() == [0, 1]
    assert len(local.KaryResponse(1.0, [False, True]).encode(True)) == 1


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, 41, 1e-12, "1", None, True])
@pytest.mark.parametrize(
    "make", [*FREQUENCY, lambda e, k: local.OneBitMean(e, 0, 1), lambda e, k: local.PiecewiseMean(e, 0, 1)]
)
def test_bad_epsilons(make, epsilon):
    with pytest.raises(InvalidValue, match="epsilon"):
        make(epsilon, 4)


@pytest.mark.parametrize(
    "categories", [1, 0, -3, 2.5, None, "ab", ["a"], ["a", "a"], [1, True], [1.5, 2], [["a"], "b"], 1 << 25, True]
)
def test_bad_categories(categories):
    with pytest.raises(InvalidValue, match="categories"):
        local.frequency(1.0, categories)


@pytest.mark.parametrize("bounds", [(1, 1), (2, 1), (math.nan, 1), (0, math.inf), (-1.7e308, 1.7e308), ("0", 1)])
def test_bad_bounds(bounds):
    with pytest.raises(InvalidValue):
        local.mean(1.0, *bounds)


@pytest.mark.parametrize("make", FREQUENCY)
@pytest.mark.parametrize("reports", [[], [0.5], [[1, 2, 3]], ["x"], [-1], [[-1, 0]], [[0, 900]], np.zeros((3, 9), np.uint8)])
def test_strange_reports_are_refused(make, reports):
    with pytest.raises(InvalidValue, match="reports"):
        make(1.0, 40).estimate(reports, 0.95)


@pytest.mark.parametrize("confidence", [0, 1, 0.4, math.nan, "x"])
def test_bad_confidence(confidence):
    with pytest.raises(InvalidValue, match="confidence"):
        local.Coin().estimate([0, 1], confidence)
    with pytest.raises(InvalidValue, match="confidence"):
        local.OneBitMean(1.0, 0, 1).estimate([0, 1], confidence)


def test_numbers_are_clipped_and_nan_counts_as_zero():
    grid = local.OneBitMean(1.0, -1.0, 3.0, steps=4).grid([-math.inf, -1, 0.0, math.nan, 2.4, 2.6, 3, 1e300])
    assert grid.tolist() == [0, 0, 1, 1, 3, 4, 4, 4]
    assert local.OneBitMean(1.0, 5.0, 7.0).grid(math.nan).tolist() == [0]
    for missing in ("x", None, 1j, b"x", [2.0]):
        assert local.OneBitMean(1.0, -1.0, 3.0, steps=4).grid([2.4, missing]).tolist() == [3, 1]
        assert missing == [2.0] or local.OneBitMean(1.0, -1.0, 3.0, steps=4).grid(missing).tolist() == [1]
    for bad in ([[1.0]], np.array(["x"]), np.array([1j]), np.zeros((2, 2))):
        with pytest.raises(InvalidValue, match="numbers, one per person"):
            local.PiecewiseMean(1.0, 0, 1).encode(bad)
