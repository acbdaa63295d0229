"""The law of the samplers at a million values, and that the test would have seen a scale that is 1% off.

Seeded, so these either always pass or never do. Under fresh seeds a right sampler would fail each chi-squared test with
probability ALPHA; with 49 of them the suite's false-alarm rate is below 5e-6.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from discreet.noise import discrete_gaussian, discrete_laplace, exact
from discreet.noise.digits import GaussianDistribution, LaplaceDistribution
from discreet.noise.fast import Cells
from discreet.noise.source import Seeded, seeded_for_tests
from unit.noise.tools import binned_chi2, chi2, gaussian_pmf, laplace_pmf

ALPHA = 1e-7
N = 1_000_000
LAPLACE = [1, Fraction(7, 3), 100, 10_000]
GAUSSIAN = [1, 10, 1000]
CASES = [(discrete_laplace, laplace_pmf, s) for s in LAPLACE] + [(discrete_gaussian, gaussian_pmf, s) for s in GAUSSIAN]
names = lambda value: getattr(value, "__name__", str(value))  # noqa: E731


@pytest.mark.parametrize(("sampler", "pmf", "spread"), CASES, ids=names)
def test_a_million_values_follow_the_law_and_a_scale_one_percent_off_does_not(sampler, pmf, spread):
    with seeded_for_tests(b"a million"):
        right, wide, narrow = (sampler(Fraction(spread) * f, size=N) for f in (1, Fraction(101, 100), Fraction(99, 100)))
    assert binned_chi2(right, pmf, float(spread)) > ALPHA
    assert binned_chi2(wide, pmf, float(spread)) < ALPHA
    assert binned_chi2(narrow, pmf, float(spread)) < ALPHA


@pytest.mark.parametrize(("sampler", "pmf", "spread"), CASES, ids=names)
@pytest.mark.parametrize("modulus", [2, 64])
def test_low_digits_follow_the_law(sampler, pmf, spread, modulus):
    """Seams between cells, a favoured parity or a doubled zero would show here."""
    with seeded_for_tests(b"low digits"):
        values = sampler(spread, size=N)
    x = np.arange(-64 * int(spread + 1), 64 * int(spread + 1))
    expected = np.bincount(x % modulus, weights=pmf(float(spread), x), minlength=modulus) * N
    assert chi2(np.bincount(values % modulus, minlength=modulus), expected) > ALPHA


@pytest.mark.parametrize(("sampler", "pmf", "spread"), CASES, ids=names)
def test_the_middle_and_the_tail_follow_the_law(sampler, pmf, spread):
    """Value by value near zero, and beyond eight spreads (three for the Gaussian), where a cut-off tail would show."""
    with seeded_for_tests(b"middle and tail"):
        values = sampler(spread, size=N)
    far = int((8 if sampler is discrete_laplace else 3) * spread)
    x = np.arange(-far, far + 1)
    probability = pmf(float(spread), x)
    near = np.abs(x) <= 12
    expected = [*probability[near], probability.sum() - probability[near].sum(), 1 - probability.sum()]
    seen = [np.count_nonzero(values == v) for v in x[near]]
    seen += [np.count_nonzero((np.abs(values) > 12) & (np.abs(values) <= far)), np.count_nonzero(np.abs(values) > far)]
    if far <= 12:
        del expected[-2], seen[-2]
    assert chi2(seen, np.array(expected) * N) > ALPHA


@pytest.mark.parametrize("finest", [0, 1, 3])
@pytest.mark.parametrize(("law", "pmf"), [(LaplaceDistribution, laplace_pmf), (GaussianDistribution, gaussian_pmf)], ids=names)
def test_cells_of_any_width_give_the_same_law(law, pmf, finest):
    """Cells far wider than those in use, so that keeping and dropping does much of the work; value by value."""
    sampler = Cells(law(Fraction(40)), finest)
    assert sampler.width > 1
    values = sampler.draw(N, Seeded(b"cells"))
    x = np.arange(-1600, 1601)
    assert chi2(np.bincount(values + 1600, minlength=x.size), pmf(40.0, x) * N) > ALPHA


@pytest.mark.parametrize(("sampler", "pmf", "spread"), CASES, ids=names)
def test_one_at_a_time_is_the_same_law(sampler, pmf, spread):
    slow = exact.laplace if sampler is discrete_laplace else exact.gaussian
    with seeded_for_tests(b"one at a time") as source:
        values = np.array([slow(Fraction(spread), source) for _ in range(10_000)])
    assert binned_chi2(values, pmf, float(spread), bins=12) > ALPHA


@pytest.mark.parametrize("sampler", [discrete_laplace, discrete_gaussian])
@pytest.mark.parametrize("spread", [2**20 + 1, 1e9, 1e12, 2.0**50])
def test_very_wide_laws_match_their_continuous_limit(sampler, spread):
    """At these widths the discrete and the continuous law differ by less than one part in a million in any interval."""
    from scipy import stats

    law = stats.laplace() if sampler is discrete_laplace else stats.norm()
    with seeded_for_tests(b"wide"):
        values = sampler(spread, size=N)
    cuts = law.ppf(np.arange(1, 32) / 32)
    assert chi2(np.bincount(np.searchsorted(cuts, values / spread), minlength=32), np.full(32, N / 32)) > ALPHA


@pytest.mark.parametrize("sampler", [discrete_laplace, discrete_gaussian])
def test_very_narrow_laws_are_nearly_always_zero(sampler):
    assert not sampler(1e-3, size=N).any()
    assert sampler(1e-3) == 0
    assert sampler(5e-324) == 0


@pytest.mark.parametrize("sampler", [discrete_laplace, discrete_gaussian])
def test_values_do_not_depend_on_each_other(sampler):
    """Neighbours in one array, and rejected values that were drawn again, are uncorrelated (|r| < 5.4 / sqrt(N))."""
    with seeded_for_tests(b"neighbours"):
        x = sampler(1e4, size=N).astype(float)
    for lag in (1, 2, 1 << 15):
        assert abs(np.corrcoef(x[:-lag], x[lag:])[0, 1]) < 5.4 / np.sqrt(N - lag)
