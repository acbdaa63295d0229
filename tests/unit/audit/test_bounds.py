"""The other bounds, and the one door to all of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from discreet.accounting import Gaussian, Pure, curve
from discreet.audit import METHODS, curve_refuted, epsilon_lower_bound
from discreet.audit.binomial import rate_ceiling, rate_floor
from discreet.audit.bounds.fdp import impossible
from discreet.audit.bounds.gaussian import delta_of, epsilon_of, mu_of
from discreet.audit.bounds.one_run import from_counts, p_value
from discreet.errors import InvalidValue

RNG = np.random.default_rng(2)
PERFECT = RNG.random(2000) < 0.5


def test_intervals_are_exact():
    for hits, trials in ((0, 10), (3, 10), (10, 10), (1, 1000)):
        low, high = float(rate_floor(hits, trials, 0.05)), float(rate_ceiling(hits, trials, 0.05))
        if hits:
            assert binom.sf(hits - 1, trials, low) == pytest.approx(0.05)
        if hits < trials:
            assert binom.cdf(hits, trials, high) == pytest.approx(0.05)
    assert float(rate_floor(0, 0, 0.05)) == 0.0
    assert float(rate_ceiling(0, 0, 0.05)) == pytest.approx(0.95)


@pytest.mark.parametrize("method", METHODS)
def test_nothing_seen_bounds_nothing(method):
    """No outsiders at all must not look like outsiders that never scored high."""
    assert epsilon_lower_bound(np.ones(50), np.ones(50, dtype=bool), np.arange(50), 1e-5, 0.95, method) == 0.0


@pytest.mark.parametrize("method", METHODS)
def test_perfect_scores_show_much(method):
    found = epsilon_lower_bound(PERFECT, PERFECT, np.arange(2000), 1e-5, 0.95, method)
    assert found > 4.5


@pytest.mark.parametrize("method", METHODS)
def test_reversed_scores_show_nothing_much(method):
    """Guessing the opposite: only bounds that choose a direction on half of the data may see it."""
    found = epsilon_lower_bound(~PERFECT, PERFECT, np.arange(2000), 1e-5, 0.95, method)
    assert found == 0.0


@pytest.mark.parametrize("method", ["clopper_pearson", "gaussian"])
def test_dependent_targets_are_refused(method):
    with pytest.raises(InvalidValue, match="one target each"):
        epsilon_lower_bound(PERFECT, PERFECT, np.zeros(2000, int), 1e-5, 0.95, method)


@pytest.mark.parametrize("method", ["fdp", "gaussian"])
def test_gaussian_bounds_need_a_delta(method):
    with pytest.raises(InvalidValue, match="delta"):
        epsilon_lower_bound(PERFECT, PERFECT, np.arange(2000), 0.0, 0.95, method)


def test_auto_is_betting():
    score = PERFECT + RNG.normal(size=2000)
    both = [epsilon_lower_bound(score, PERFECT, np.arange(2000), 0.0, 0.95, method) for method in ("auto", "betting")]
    assert both[0] == both[1]


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        ({"delta": 1.0}, "delta"), ({"delta": -0.1}, "delta"), ({"delta": math.nan}, "delta"),
        ({"confidence": 1.0}, "confidence"),
        ({"confidence": 0.0}, "confidence"), ({"method": "magic"}, "method"), ({"score": [math.nan, 0.0]}, "finite"),
        ({"score": [1.0]}, "lengths"), ({"inside": [2, 0]}, "inside"), ({"score": [], "inside": [], "run": []}, "no targets"),
        ({"run": [0.5, 1.5]}, "run"),
    ],
)  # fmt: skip
def test_bad_input(bad, match):
    good = {"score": [1.0, 0.0], "inside": [True, False], "run": [0, 1], "delta": 0.0, "confidence": 0.95}
    with pytest.raises(InvalidValue, match=match):
        epsilon_lower_bound(**{**good, **bad})


def test_two_runs_directions():
    """A low score of non-members is as good as a high score of members."""
    inside = RNG.random(4000) < 0.5
    rare_in = np.where(inside & (RNG.random(4000) < 0.2), 1.0, 0.0)
    rare_out = np.where(~inside & (RNG.random(4000) < 0.2), -1.0, 0.0)
    for score in (rare_in, rare_out):
        assert epsilon_lower_bound(score, inside, np.arange(4000), 0.0, 0.95, "clopper_pearson") > 3.0


def test_one_run_p_value_is_the_papers():
    """Theorem 5.2 of Steinke, Nasr & Jagielski, as their appendix writes it."""

    def theirs(m, r, v, eps, delta):
        q = 1 / (1 + math.exp(-eps))
        beta, alpha, total = binom.sf(v - 1, r, q), 0.0, 0.0
        for i in range(1, v + 1):
            total += binom.pmf(v - i, r, q)
            alpha = max(alpha, total / i)
        return min(1.0, beta + alpha * delta * 2 * m)

    for case in ((100, 50, 45, 1.0, 1e-3), (1000, 100, 80, 0.5, 1e-5), (1000, 1000, 700, 0.0, 1e-4)):
        assert p_value(*case) == pytest.approx(theirs(*case), rel=1e-9)


def test_one_run_delta_only_lowers():
    for right in (30, 60, 100):
        plain = from_counts(1000, 100, right, 0.0, 0.05)
        assert from_counts(1000, 100, right, 1e-5, 0.05) <= plain
        assert from_counts(1000, 100, right, 1e-2, 0.05) <= plain


def test_fdp_recursion_is_the_papers():
    """Algorithm of Mahloujifar, Melis & Chaudhuri, one number at a time."""

    def theirs(inverse, alpha, beta, j, m):
        h, r = [0.0] * (j + 1), [0.0] * (j + 1)
        h[j], r[j] = beta, alpha
        for i in range(j - 1, -1, -1):
            h[i] = max(h[i + 1], inverse(r[i + 1]))
            r[i] = r[i + 1] + i / (m - i) * (h[i] - h[i + 1])
        return r[0] + h[0]

    for m, made, right, mu in ((100, 50, 40, 0.5), (100, 50, 40, 2.0), (60, 60, 45, 0.3), (200, 20, 20, 1.0)):
        total = theirs(
            lambda x, mu=mu: norm.cdf(norm.ppf(min(x, 1.0)) - mu), 0.05 * right / m, 0.05 * (made - right) / m, right, made
        )
        ours = impossible(lambda x, mu=mu: norm.cdf(norm.ppf(x) - mu), m, made, right, 0.05, 1)
        assert bool(ours[0]) == (total > made / m)


def test_fdp_beats_one_run_on_gaussians():
    inside = RNG.random(3000) < 0.5
    score = inside * mu_of(4.0, 1e-5) + RNG.normal(size=3000)
    found = {
        method: epsilon_lower_bound(score, inside, np.zeros(3000, int), 1e-5, 0.95, method) for method in ("one_run", "fdp")
    }
    assert found["one_run"] < found["fdp"] < 4.0


def test_curve_refuted():
    inside = RNG.random(3000) < 0.5
    score = 2.0 * inside + RNG.normal(size=3000)
    assert curve_refuted(curve(Gaussian(2.0)), score, inside, 0.95)
    assert not curve_refuted(curve(Gaussian(0.5)), score, inside, 0.95)
    assert curve_refuted(curve(Pure(0.5)), score, inside, 0.95)
    assert not curve_refuted(curve(Pure(0.5)), RNG.normal(size=3000), inside, 1 - 1e-6)


@pytest.mark.parametrize(
    ("bad", "match"), [({"curve": 1.0}, "trade-off"), ({"confidence": 1.0}, "confidence"), ({"score": [1.0]}, "lengths")]
)
def test_curve_refuted_checks_its_arguments(bad, match):
    good = {"curve": curve(Pure(1.0)), "score": [1.0, 0.0], "inside": [True, False], "confidence": 0.95}
    with pytest.raises(InvalidValue, match=match):
        curve_refuted(**{**good, **bad})


def test_gaussian_conversions():
    assert delta_of(0.0, 1.0) == 0.0
    assert epsilon_of(0.0, 1e-5) == 0.0
    for epsilon in (0.1, 1.0, 8.0):
        assert epsilon_of(mu_of(epsilon, 1e-5), 1e-5) == pytest.approx(epsilon, abs=1e-6)
    assert curve(Gaussian(1.0)).epsilon(1e-5) == pytest.approx(epsilon_of(1.0, 1e-5), rel=1e-6)
