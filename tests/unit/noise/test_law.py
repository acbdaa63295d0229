"""The law of every sampler, by enumerating its decisions rather than by sampling.

The slow samplers are walked as decision trees. The fast one is fed every first digit, and its enclosures of
probabilities are compared with 60-digit values.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import mpmath
import numpy as np
import pytest

from discreet.noise import exact
from discreet.noise.digits import GaussianDistribution, LaplaceDistribution, exp_bounds, nearest, thresholds
from discreet.noise.fast import CHUNK, UNSURE, Cells, below, flips
from discreet.noise.source import Seeded, Source, open_source
from unit.noise.tools import Unscripted, gaussian_pmf, laplace_pmf, scripted_coins, walk

LAWS = [LaplaceDistribution(Fraction(s)) for s in ("1/1000", "1/3", "1", "7/3", "10", "100")]
LAWS += [GaussianDistribution(Fraction(s)) for s in ("1/1000", "1/3", "1", "10", "100")]


def exact_pmf(law, x):
    """The probability of x to 60 digits."""
    with mpmath.workdps(60):
        s = mpmath.mpf(law.spread.numerator) / law.spread.denominator
        if isinstance(law, LaplaceDistribution):
            return mpmath.exp(-abs(x) / s) * mpmath.tanh(1 / (2 * s))
        return mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * s * s)) / gaussian_total(law)


@lru_cache
def gaussian_total(law):
    with mpmath.workdps(60):
        s = mpmath.mpf(law.sigma.numerator) / law.sigma.denominator
        return 1 + 2 * mpmath.fsum(mpmath.exp(-(mpmath.mpf(h) ** 2) / (2 * s * s)) for h in range(1, int(18 * s) + 2))


# The slow samplers


@pytest.mark.parametrize("x", ["0", "1/2", "2/3", "1", "3/2", "7/2"])
def test_bernoulli_exp_tree(x):
    masses, left = walk(lambda: exact.bernoulli_exp(Fraction(x), open_source()), smallest=1e-7)
    assert left < 1e-4
    assert abs(masses.get(True, 0.0) - math.exp(-Fraction(x))) <= left + 1e-12


@pytest.mark.parametrize("scale", ["1/3", "1", "7/3", "4"])
def test_slow_laplace_tree(scale):
    with scripted_coins():
        masses, left = walk(lambda: exact.laplace(Fraction(scale), open_source()), smallest=1e-12, rounds=1)
    total = sum(masses.values())
    assert left < 1e-9
    for x in range(-8, 9):
        assert masses.get(x, 0.0) / total == pytest.approx(laplace_pmf(float(Fraction(scale)), x), abs=1e-8)


@pytest.mark.parametrize("sigma", ["1/3", "1", "5/2"])
def test_slow_gaussian_tree(sigma, monkeypatch):
    # One round: a Laplace draw, which the test above covers, and one coin. A round that fails starts afresh, so the law
    # is that of the rounds that succeed.
    scale = float(Fraction(sigma) // 1 + 1)
    support = range(-60, 61)
    choices = [(x, laplace_pmf(scale, x)) for x in support]
    with scripted_coins():
        monkeypatch.setattr(exact, "laplace", lambda scale, source: source.next(choices))
        masses, _ = walk(lambda: exact.gaussian(Fraction(sigma), open_source()), smallest=0, longest=2)
    total = sum(masses.values())
    for x in range(-10, 11):
        assert masses.get(x, 0.0) / total == pytest.approx(gaussian_pmf(float(Fraction(sigma)), x), rel=1e-9, abs=1e-15)


# Rigorous digits


@pytest.mark.parametrize("bits", [8, 16, 48, 112, 300])
@pytest.mark.parametrize("x", ["0", "1/100000000000000000000", "1/3", "1", "17/2", "40", "99999/100", "1000000"])
def test_exp_bounds_enclose_and_are_tight(x, bits):
    lo, hi = exp_bounds(Fraction(x), bits)
    with mpmath.workdps(200):
        value = mpmath.ldexp(mpmath.exp(-mpmath.mpf(Fraction(x).numerator) / Fraction(x).denominator), bits)
        assert lo <= value <= hi
    assert hi - lo <= 1


@pytest.mark.parametrize(("law", "width"), [(law, 1) for law in LAWS] + [(law, 8) for law in LAWS if law.spread > 8], ids=str)
def test_thresholds_enclose_the_cumulative_law_of_cells(law, width):
    cuts = thresholds(law, width, 48)
    with mpmath.workdps(60):
        weight = {cell: exact_pmf(law, nearest(cell, width)) for cell in cuts.cells}
        total, done = mpmath.fsum(weight.values()), mpmath.mpf(0)
        for cell, lo, hi in zip(cuts.cells, cuts.lo, cuts.hi):
            done += weight[cell]
            assert lo - mpmath.mpf(2) ** -6 <= mpmath.ldexp(done / total, 48) <= hi + mpmath.mpf(2) ** -6
            assert hi - lo <= 2
    assert cuts.lo == sorted(cuts.lo)
    assert cuts.lo[-1] >= (1 << 48) - 2  # what is left for all further cells


# The fast sampler


class Digits(Source):
    """Feeds the fast sampler chosen first digits; further digits come from a seed."""

    repeatable = True

    def __init__(self, *first):
        self.first = list(first)
        self.rest = Seeded(b"further digits")

    def words(self, dtype, count):
        return self.first.pop(0)[:count].astype(dtype) if self.first else self.rest.words(dtype, count)

    def bits(self, count):
        return self.rest.bits(count)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_every_first_digit_is_used_as_the_law_says(law):
    """All 65,536 first digits: a value's count is between the digits wholly inside its cuts and those that touch them.

    The digits not inside any cell are settled by later digits, so each count is within 2 of 65,536 times the
    probability, exactly: not a statistical statement.
    """
    sampler = Cells(law)
    every = np.arange(1 << 16, dtype=np.uint16)
    drawn = np.concatenate([sampler.draw(CHUNK, Digits(part)) for part in (every[:CHUNK], every[CHUNK:])])
    counts = {int(x): int(n) for x, n in zip(*np.unique(drawn, return_counts=True))}
    settled = {int(x): int(n) for x, n in zip(*np.unique(sampler.table[sampler.table != UNSURE], return_counts=True))}
    for x in {*counts, *range(-20, 21)}:
        share = exact_pmf(law, x) * 65536
        assert settled.get(x, 0) <= share, "a digit was given to a value that owns less than all of it"
        assert abs(counts.get(x, 0) - share) <= 2
    assert sum(settled.values()) >= 65536 - 2 * len(settled) - 2


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_next_digits_are_used_as_the_law_says(law):
    """For first digits that settle nothing, the 48-bit cut between two values is where the law has it."""
    sampler = Cells(law)
    cuts = thresholds(law, 1, 48)
    for j in range(min(6, len(cuts.cells) - 1)):
        for edge, want in ((cuts.lo[j] - 1, cuts.cells[j]), (cuts.hi[j], cuts.cells[j + 1])):
            if (j and edge < cuts.hi[j - 1]) or edge >= cuts.lo[j + 1]:
                continue
            high, low = np.array([edge >> 32], np.uint16), np.array([edge & 0xFFFFFFFF], np.uint32)
            assert sampler.draw(1, Digits(high, low)).tolist() == [want]


@pytest.mark.parametrize("law", [LaplaceDistribution(Fraction(7, 3)), GaussianDistribution(Fraction(10))], ids=str)
def test_a_tie_in_48_digits_is_settled_by_more(law):
    """U's that share 48 digits with a cut: the next 48 digits of the cut decide, on both sides of it."""
    sampler = Cells(law)
    coarse, fine = thresholds(law, 1, 48), thresholds(law, 1, 96)
    checked = 0
    for j in range(4):
        u = coarse.lo[j]
        if u >= coarse.hi[j]:
            continue
        for edge, want in ((fine.lo[j] - 1, fine.cells[j]), (fine.hi[j], fine.cells[j + 1])):
            if edge >> 48 == u:
                source = Digits(np.array([u >> 32]), np.array([u & 0xFFFFFFFF]))
                source.bits = lambda count, low=edge & ((1 << 48) - 1): low
                assert sampler.draw(1, source).tolist() == [want]
                checked += 1
    assert checked >= 4


def test_the_far_tail_is_settled_too():
    sampler = Cells(LaplaceDistribution(Fraction(1)))
    source = Digits(np.array([0xFFFF]), np.array([0xFFFFFFFF]))
    assert abs(int(sampler.draw(1, source)[0])) >= 33  # 48 ones: past all but 2^-48 of the law


@pytest.mark.parametrize(
    "law",
    [LaplaceDistribution(Fraction(37)), LaplaceDistribution(Fraction(10**4)), GaussianDistribution(Fraction(500, 3))],
    ids=str,
)
@pytest.mark.parametrize("finest", [2, 4])
def test_values_of_wide_cells_are_kept_as_often_as_they_must(law, finest):
    """Pr[value] = Pr[cell] / width x Pr[kept]: the proposal times what is kept is the law, up to one common factor."""
    sampler = Cells(law, finest)
    assert sampler.width > 1
    x = np.unique(np.linspace(-4 * float(law.spread), 4 * float(law.spread), 999).astype(int))
    cell = x >> sampler.shift
    near = np.where(cell >= 0, cell << sampler.shift, (cell << sampler.shift) + sampler.width - 1)
    assert np.all(near == [nearest(int(c), sampler.width) for c in cell])
    kept = sampler._acceptance(np.abs(x), np.abs(near))
    pmf = laplace_pmf if isinstance(law, LaplaceDistribution) else gaussian_pmf
    proposal = pmf(float(law.spread), near)
    assert np.allclose(proposal * kept, pmf(float(law.spread), x), rtol=1e-12, atol=0)
    for value, edge, probability in zip(x.tolist(), near.tolist(), kept.tolist()):
        lo, hi = exp_bounds(law.exponent(value) - law.exponent(edge), 60)
        assert lo / 2**60 - 2**-48 <= probability <= hi / 2**60 + 2**-48, "the float64 error bar does not hold"


@pytest.mark.parametrize(
    "law",
    [LaplaceDistribution(Fraction(10**4)), GaussianDistribution(Fraction(10**4)), GaussianDistribution(Fraction(2**50))],
    ids=str,
)
def test_a_first_digit_that_keeps_a_value_keeps_every_value_of_its_cell(law):
    sampler = Cells(law)
    sure = np.flatnonzero(sampler.table != UNSURE)
    for digit in sure[:: max(1, len(sure) // 300)].tolist():
        cell, safe = int(sampler.table[digit]), int(sampler.safe[digit])
        for value in (cell << sampler.shift, (cell << sampler.shift) + sampler.width - 1):
            gap = law.exponent(value) - law.exponent(nearest(cell, sampler.width))
            assert safe <= exp_bounds(gap, 80)[1] / 2**64


@pytest.mark.parametrize(
    "law",
    [LaplaceDistribution(Fraction(40)), GaussianDistribution(Fraction(40)), GaussianDistribution(Fraction(10**9, 7))],
    ids=str,
)
def test_every_first_digit_of_v_keeps_or_drops_as_it_must(law):
    """Cells as wide as the law, so that much is dropped: for each value, all 65,536 first digits of V are tried.

    The number that keep it is within 1 of 65,536 times the probability of keeping it, exactly.
    """
    sampler = Cells(law, 0)
    every = np.arange(1 << 16)
    for cell in (-3, -2, -1, 0, 1, 2):
        digit = np.full(every.size, np.flatnonzero(sampler.table == cell)[0])
        for offset in (0, 1, sampler.width // 3, sampler.width - 1):
            value = cell * sampler.width + offset
            here = np.full(every.size, value)
            dropped = sampler._dropped(digit, np.full(every.size, cell, np.int32), here, Digits(every))
            kept = exp_bounds(law.exponent(value) - law.exponent(nearest(cell, sampler.width)), 32)
            assert kept[0] / 2**16 - 1 <= every.size - dropped.size <= kept[1] / 2**16 + 1
            assert (np.diff(dropped) == 1).all(), "V is dropped from some digit on, and never before it"


@pytest.mark.parametrize("law", [LaplaceDistribution(Fraction(10**4)), GaussianDistribution(Fraction(10**4))], ids=str)
def test_a_v_too_close_for_float64_is_decided_by_more_digits(law):
    sampler = Cells(law)
    value = 100 * sampler.width + sampler.width // 2
    gap = law.exponent(value) - law.exponent(nearest(100, sampler.width))
    first, fine = exp_bounds(gap, 48)[0], exp_bounds(gap, 96)
    for edge, dropped in ((fine[0] - 1, 0), (fine[1], 1)):
        assert edge >> 48 == first
        source = Digits(np.array([first >> 32]), np.array([first & 0xFFFFFFFF]))
        source.bits = lambda count, low=edge & ((1 << 48) - 1): low
        digit = np.flatnonzero(sampler.table == 100)[:1]
        assert sampler._dropped(digit, np.array([100], np.int32), np.array([value]), source).size == dropped


def test_an_undecided_coin_asks_for_more_digits():
    lo, hi = exp_bounds(Fraction(1, 3), 48)
    exact_lo, exact_hi = exp_bounds(Fraction(1, 3), 96)
    assert hi - lo == 1
    for edge, want in ((exact_lo - 1, True), (exact_hi, False)):
        source = Digits()
        source.bits = lambda count, low=edge & ((1 << 48) - 1): low
        assert below(edge >> 48, 48, lambda bits: exp_bounds(Fraction(1, 3), bits), source) is want


def test_flips_by_their_first_digits():
    bounds = lambda bits: exp_bounds(Fraction(1), bits)  # noqa: E731
    cut = bounds(48)[0]
    high, low = cut >> 32, cut & 0xFFFFFFFF
    source = Digits(np.array([high, high, high - 1, high + 1]), np.array([low - 1, low + 1, 0xFFFFFFFF, 0]))
    assert flips(bounds, 4, source).tolist() == [True, False, True, False]


def test_the_walk_sees_what_is_missing():
    masses, left = walk(lambda: exact.bernoulli(Fraction(1, 3), open_source()), longest=0)
    assert (masses, left) == ({}, 1.0)
    assert Unscripted([]).outcomes == []
