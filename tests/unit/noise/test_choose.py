"""Choosing among many candidates: the cut that the machine numbers settle is the cut of the exact law."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest

from discreet import noise
from discreet.errors import InvalidValue
from discreet.noise import choose as module
from discreet.noise import exponential_rows
from discreet.noise.choose import choose, flip
from discreet.noise.source import Source, replaced_for_tests, seeded_for_tests


class Digits(Source):
    """Feeds chosen first digits of U, then 96 more that are all the same, then zeros."""

    repeatable = True

    def __init__(self, first: list[int], rest: int) -> None:
        super().__init__()
        self.first, self.rest = np.array(first, np.uint64) << np.uint64(11), rest
        self.asked = 0

    def words(self, dtype, count):
        assert count == len(self.first)
        return self.first.astype(dtype)

    def bits(self, count: int) -> int:
        self.asked += 1
        return (1 << count) - 1 if self.rest and self.asked <= 2 else 0


def cuts(scores, rate, widths=None):
    """The cumulative shares, to 60 digits."""
    with mpmath.workdps(60):
        best = max(map(Fraction, scores))
        gaps = [(best - Fraction(s)) * rate for s in scores]
        wide = [1] * len(scores) if widths is None else widths
        weights = [w * mpmath.exp(-mpmath.mpf(g.numerator) / g.denominator) for w, g in zip(wide, gaps)]
        total = mpmath.fsum(weights)
        return [mpmath.fsum(weights[: j + 1]) / total for j in range(len(weights))]


def expected(u, rest, found):
    """The candidate of U = 0.u followed by zeros, or by 96 ones and zeros, by definition."""
    with mpmath.workdps(60):
        value = mpmath.mpf(u + (1 - mpmath.mpf(2) ** -96 if rest else 0)) / 2**53
        return next((j for j, cut in enumerate(found) if value < cut), len(found) - 1)


CASES = [
    ([3, 1, 0], None),
    ([0, 0, 0], None),
    ([-5, 7, 7, 2], [1, 2, 3, 1000]),
    ([1, 50, 2], [4, 0, 1]),
    ([0.25, -1.5, 1.0], None),
    ([2**61, 2**61 - 1, -(2**61)], None),
    (list(range(40)), None),
]


@pytest.mark.parametrize(("scores", "widths"), CASES, ids=str)
@pytest.mark.parametrize("rate", [Fraction(1, 2), Fraction(1, 3), Fraction(40), Fraction(1, 10**12)], ids=str)
def test_every_cut_is_where_the_law_has_it(scores, widths, rate):
    """U within one digit of every cut, from both sides and both ways on: the index is that of the exact comparison."""
    counted = scores if widths is None else [s if w else min(scores) for s, w in zip(scores, widths)]
    truth = cuts(counted, rate, widths)
    near = sorted({min(max(int(cut * 2**53) + d, 0), 2**53 - 1) for cut in truth for d in (-(2**16), -1, 0, 1, 2**16)})
    array = np.tile(np.array(scores), (len(near), 1))
    wide = None if widths is None else np.array(widths)
    for rest in (0, 1):
        found = [int(choose(array[:1], rate, wide, Digits([u], rest))[0]) for u in near]
        assert found == [expected(u, rest, truth) for u in near]


@pytest.mark.parametrize("scores", [[3, 1, 0, 2], [0.5, -2.25, 0.0, 0.125]], ids=["whole", "real"])
def test_machine_numbers_and_exact_digits_agree(scores, monkeypatch):
    array = np.tile(np.array(scores), (2000, 1))
    with seeded_for_tests(b"same"):
        fast = choose(array, Fraction(1, 2), None, noise.source.open_source())
    monkeypatch.setattr(module, "WEIGHT_ERROR", 1.0)  # nothing is settled by floats now
    with seeded_for_tests(b"same"):
        slow = choose(array, Fraction(1, 2), None, noise.source.open_source())
    assert (fast == slow).all()
    assert len(set(fast.tolist())) > 2


@pytest.mark.parametrize("rate", [Fraction(1, 3), Fraction(5), Fraction(1, 10**12)], ids=str)
@pytest.mark.parametrize("gap", [1, 2, 7, 60])
def test_every_coin_is_where_the_law_has_it(rate, gap):
    """A coin's U within one digit of exp(-rate x gap), from both sides and both ways on: heads by exact comparison."""
    with mpmath.workdps(60):
        chance = mpmath.exp(-mpmath.mpf(gap) * rate.numerator / rate.denominator)
    for d in (-(2**10), -1, 0, 1, 2**10):
        u = min(max(int(chance * 2**32) + d, 0), 2**32 - 1)
        for rest in (0, 1):
            heads = module._coins(np.array([[gap, 0]]), rate, Words(u, rest))
            with mpmath.workdps(60):
                truth = mpmath.mpf(u + (1 - mpmath.mpf(2) ** -96 if rest else 0)) / 2**32 < chance
            assert heads.tolist() == [[True, bool(truth)]]


class Words(Digits):
    """The same first 32 digits for every coin."""

    def __init__(self, u: int, rest: int) -> None:
        super().__init__([], rest)
        self.u = u

    def words(self, dtype, count):
        return np.full(count, self.u, dtype)


def test_coins_of_machine_numbers_and_exact_digits_agree(monkeypatch):
    array = np.tile(np.array([3, 1, 0, 2, 3]), (2000, 1))
    with seeded_for_tests(b"same"):
        fast = module._coins(array, Fraction(1, 2), noise.source.open_source())
    monkeypatch.setattr(module, "WEIGHT_ERROR", 1.0)  # nothing is settled by floats now
    with seeded_for_tests(b"same"):
        slow = module._coins(array, Fraction(1, 2), noise.source.open_source())
    assert (fast == slow).all()
    assert fast[:, [0, 4]].all()


def test_permute_and_flip_takes_the_best_of_scores_far_apart():
    scores = np.array([[0, 500, 0], [2**61, 0, -(2**61)], [7, 7, 7]])
    with seeded_for_tests(b"far"):
        found = np.stack([flip(scores, Fraction(1), noise.source.open_source()) for _ in range(200)])
    assert (found[:, 0] == 1).all()
    assert (found[:, 1] == 0).all()
    assert set(found[:, 2].tolist()) == {0, 1, 2}
    assert flip(np.zeros((0, 3), np.int64), Fraction(1), noise.source.open_source()).shape == (0,)


def test_stated_float_error_is_far_above_the_real_one():
    rng = np.random.default_rng(3)
    for rate in (Fraction(1, 7), Fraction(3, 10**4), Fraction(1)):
        gaps = np.concatenate([rng.integers(0, 700, 150), [0, 1, 2**20, 2**61]])
        found = module._cumulative(gaps[None, :], rate, None)[0]
        with mpmath.workdps(60):
            exact = [mpmath.exp(-mpmath.mpf(int(g)) * rate.numerator / rate.denominator) for g in gaps]
            error = max(abs(mpmath.mpf(f) / mpmath.fsum(exact[: j + 1]) - 1) for j, f in enumerate(found.tolist()))
        assert error < (module.WEIGHT_ERROR + len(gaps) * module.SUM_ERROR) / 4


def test_rows_are_private_on_all_small_neighbours():
    """The law by definition, with widths, on all triples of small scores: the loss has range at most epsilon."""
    widths = np.array([1, 3, 2])
    laws = {s: widths * np.exp(np.array(s) / 2.0) for s in product(range(-1, 4), repeat=3)}
    worst = 0.0
    for a in product(range(3), repeat=3):
        for b in product(*[(s - 1, s, s + 1) for s in a]):
            loss = np.log(laws[a] / laws[a].sum()) - np.log(laws[b] / laws[b].sum())
            worst = max(worst, np.ptp(loss), np.abs(loss).max())
    assert 0.9 < worst <= 1 + 1e-12


def test_long_lists_are_chosen_from_whatever_their_type():
    for zeros in ([0] * 200, np.zeros(200, np.int32), np.zeros(200, np.uint64), [0.0] * 200, np.zeros(200, np.float32)):
        scores = zeros.copy()
        scores[77] = 10_000
        assert noise.exponential(scores, 1, 1) == 77
    for odd in ([0] * 100 + [10**30], [0.0] * 100 + [float("inf")], [0] * 100 + [10_000.5], np.array([0.0] * 100 + [1e300])):
        assert noise.exponential(odd, 1, 1) == 100
    assert noise.exponential([float("nan")] * 100 + [10_000.0], 1, 1) == 100
    assert noise.exponential([-float("inf")] * 100 + [0.0], 1, 1) == 100


def test_a_width_of_zero_is_never_chosen_and_rows_may_have_their_own():
    widths = [[0, 1, 0], [1, 0, 0], [0, 0, 5]]
    assert exponential_rows(np.full((3, 3), 7), 1, 1, widths).tolist() == [1, 0, 2]
    assert exponential_rows([[10**6, 0]] * 50, 1, 1, [0, 1]).tolist() == [1] * 50
    assert exponential_rows([[2**63 - 1, -(2**63)]], 1, 1).tolist() == [0]
    assert exponential_rows(np.zeros((0, 3), int), 1, 1).shape == (0,)


@pytest.mark.parametrize("scores", [[1, 2], [[]], 3, [[0.5]], "x", None])
def test_rows_must_be_rows_of_whole_numbers(scores):
    with pytest.raises(InvalidValue, match="whole numbers"):
        exponential_rows(scores, 1, 1)


@pytest.mark.parametrize("widths", [[1], [0, 0], [-1, 2], [1, 2**41], [0.5, 1], [[1, 1]] * 3])
def test_widths_must_be_whole_and_not_all_zero(widths):
    with pytest.raises(InvalidValue, match=r"whole numbers|between 0"):
        exponential_rows([[1, 2], [3, 4]], 1, 1, widths)


def test_the_source_is_the_one_that_tests_replace():
    with replaced_for_tests(Digits([0], 0)):
        assert exponential_rows([[0, 0, 0]], 1, 1).tolist() == [0]
    with replaced_for_tests(Digits([2**53 - 1], 1)):
        assert exponential_rows([[0, 0, 0]], 1, 1).tolist() == [2]
