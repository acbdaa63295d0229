"""The bounds claim too much no more often than they may: a small version of bench/calibration.py.

Seeded, so it passes or fails for good. Under a fresh seed a bound that is wrong in just 5 % of runs would pass each row
with 400 runs but for a chance of 1e-7: the allowed count is that quantile of the binomial; 90 rows make 9e-6.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from benches import bench
from discreet.audit import canaries_needed, epsilon_lower_bound
from discreet.audit.bounds.gaussian import mu_of

RUNS = 400
TARGETS, DELTA = 400, 0.05
ALLOWED = int(binom.isf(1e-7, RUNS, 0.05))


def ceiling():
    bench("calibration")
    return sys.modules["_ceiling"]


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 4.0, 8.0])
@pytest.mark.parametrize("targets", [200, 1000])
def test_false_claims_are_rare(law, epsilon, targets):
    for row in bench("calibration").false_claims(law, epsilon, targets, RUNS if targets == 200 else RUNS // 2):
        allowed = ALLOWED if targets == 200 else int(binom.isf(1e-7, RUNS // 2, 0.05))
        assert row["false_claims"] <= allowed, row


def test_the_default_is_tight():
    """At least 90 % of the invalid, uncorrected maximum; 3.7 to leave room for the seed (the bench has the mean)."""
    row = bench("calibration").tightness("laplace", 4.0, 10_000, 20)
    assert row["share"] >= 0.9
    assert row["default"] >= 3.7


def test_no_bound_beats_the_ceiling():
    """A valid bound is above the ceiling on its median in at most half of the runs: the count allowed is the quantile at 1e-7
    of that binomial, so 4 settings make a false alarm of 4e-7 at most."""
    tool = bench("calibration")
    for law, epsilon in (("laplace", 1.0), ("gaussian", 1.0), ("gaussian", 4.0), ("gaussian", 8.0)):
        delta = 0.0 if law == "laplace" else 1e-5
        most = tool.median_ceiling(tool.sureness(law, epsilon, delta), epsilon, 1000, 0.05)
        generator = np.random.default_rng(8)
        drawn = [tool.scores(law, epsilon, 1000, generator) for _ in range(60)]
        over = sum(epsilon_lower_bound(*each, np.zeros(1000, int), delta, 0.95) > most for each in drawn)
        assert over <= int(binom.isf(1e-7, 60, 0.5))
        cheat = sum(tool.uncorrected(*each) > most for each in drawn)
        assert cheat > over


def test_the_ceiling_is_the_best_test_of_two_coins():
    """Randomised response at 3 against 1, two canaries: the best level-5 % test by hand."""
    tool = ceiling()
    q, q0, alpha = 1 / (1 + np.exp(-3.0)), 1 / (1 + np.exp(-1.0)), 0.05

    def surer(odds):
        return np.where(odds < 3.0, q, 0.0), np.where(odds < 3.0, 1 - q, 0.0)

    by_hand = q * q * alpha / (q0 * q0)  # both right is the likeliest sign, and has more than 5 % under the null
    a_cell_each = np.exp(2 * 2.0**-12)  # the ratio may be rounded up by one cell per canary
    assert by_hand <= tool.power(surer, 1.0, 2, alpha) <= by_hand * a_cell_each
    assert tool.power(surer, 3.0, 2, alpha) == pytest.approx(alpha, abs=1e-6)


def test_the_ceiling_is_what_simulated_likelihood_ratios_reach():
    """Gaussian 4 at 300 canaries: 20,000 draws of either mechanism; six standard errors make a false alarm of 2e-9."""
    tool = ceiling()
    mu, null, draws = mu_of(4.0, 1e-5), 1.2, 20_000
    generator = np.random.default_rng(9)
    ratios = []
    for cut in (True, False):
        z = mu / 2 + generator.normal(size=(draws, 300))
        odds = mu * np.abs(z)
        sure = 1 / (1 + np.exp(-(np.minimum(odds, null) if cut else odds)))
        right = generator.random(z.shape) < sure
        kept = np.minimum(odds, null)
        gain = np.where(right, np.logaddexp(0, -kept) - np.logaddexp(0, -odds), np.logaddexp(0, kept) - np.logaddexp(0, odds))
        ratios.append(gain.sum(axis=1))
    reached = float((ratios[1] > np.quantile(ratios[0], 0.95)).mean())
    found = tool.power(tool.sureness("gaussian", 4.0, 1e-5), null, 300, 0.05)
    assert abs(found - reached) < 6 * np.sqrt(0.25 / draws) + 6 * np.sqrt(0.05 * 0.95 / draws) * 5


def test_the_invalid_maximum_is_caught_by_the_same_check():
    """The harness has teeth: taking the best threshold without paying for it fails it."""
    tool = bench("calibration")
    generator = np.random.default_rng(0)
    claims = sum(tool.uncorrected(*tool.scores("laplace", 0.0, 200, generator)) > 0 for _ in range(RUNS))
    assert claims > ALLOWED


@pytest.mark.parametrize("method", ["betting", "one_run"])
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("batch", [None, 20, 60, 400])
def test_a_mechanism_that_spends_its_delta_is_not_called_worse(method, epsilon, batch):
    """Randomised response that also gives coins away: each on its own with probability delta (batch None), or, in one
    run, `batch` of them at once with probability m delta / batch. Both are (epsilon, delta)-DP and no better."""
    assert spent(method, epsilon, batch, DELTA) <= ALLOWED


def test_ignoring_that_delta_is_caught_by_the_same_check():
    assert spent("betting", 0.0, 20, 0.0) > ALLOWED
    assert spent("betting", 0.0, None, 0.0) > ALLOWED


def spent(method: str, epsilon: float, batch: int | None, assumed: float) -> int:
    """How often the bound at delta `assumed` is above epsilon, for a mechanism that spends DELTA."""
    generator = np.random.default_rng(6)
    false = 0
    for _ in range(RUNS):
        inside = generator.random(TARGETS) < 0.5
        given = generator.random(TARGETS) < (DELTA if batch is None else 0.0)
        if batch is not None and generator.random() < TARGETS * DELTA / batch:
            given[generator.permutation(TARGETS)[:batch]] = True
        honest = inside ^ (generator.random(TARGETS) > 1 / (1 + np.exp(-epsilon)))
        score = np.where(given, np.where(inside, 9.0, -9.0), np.where(honest, 1.0, -1.0))
        run = np.arange(TARGETS) if batch is None else np.zeros(TARGETS, dtype=int)
        false += epsilon_lower_bound(score, inside, run, assumed, 0.95, method) > epsilon
    return false


POWER = [
    ("pure", 4.0, 2.0, 0.0),
    ("pure", 1.0, 0.5, 0.0),
    ("pure", 2.0, 0.0, 0.0),
    ("pure", 4.0, 3.0, 1e-5),
    ("gaussian", 4.0, 1.0, 1e-5),
]


@pytest.mark.parametrize(("family", "epsilon", "claimed", "delta"), POWER)
def test_as_many_canaries_as_the_power_analysis_asks_for_are_enough(family, epsilon, claimed, delta):
    """200 audits at the promised size: at least 90 % detect, but for a chance of 1e-6; a third of the size does not do."""
    size = canaries_needed(epsilon, claimed=claimed, confidence=0.95, power=0.9, delta=delta, family=family)
    generator = np.random.default_rng(4)
    assert detections(generator, family, epsilon, claimed, delta, size) >= int(binom.ppf(1e-6, 200, 0.9))
    assert detections(generator, family, epsilon, claimed, delta, max(2, size // 3)) < 180


def detections(generator, family, epsilon, claimed, delta, size):
    found = 0
    for _ in range(200):
        inside = generator.random(size) < 0.5
        if family == "pure":
            score = inside ^ (generator.random(size) > 1 / (1 + np.exp(-epsilon)))
        else:
            score = inside * mu_of(epsilon, delta) + generator.normal(size=size)
        found += epsilon_lower_bound(score, inside, np.arange(size), delta, 0.95) > claimed
    return found


def test_the_page_on_the_ceiling_shows_what_was_measured():
    root = Path(__file__).parents[2]
    page = (root / "docs/theory/audit-ceiling.md").read_text()
    for row in json.loads((root / "bench/results/tightness.json").read_text())["tightness"]:
        means = (row["default"], row["uncorrected"], 0.9 * row["uncorrected"], row["ceiling_mean"])
        medians = (row["default_median"], 0.9 * row["uncorrected_median"], row["ceiling_median"])
        figures = " | ".join(f"{each:.3f}" for each in (*means, *medians))
        assert f"| {row['law'].title()} {row['epsilon']:g} | {figures} | {100 * row['share_of_ceiling']:.0f} % |" in page
