"""A verdict tests the claim where it is weakest, and more data never weaken it: a small version of bench/verdicts.py.

Seeded, so it passes or fails for good. Of 100 audits of a claim that is attained exactly, a test that is wrong in 5 % would
exceed the count allowed with probability 1e-7; false claims below are missed under fresh seeds in fewer than one run in
a thousand.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from benches import bench
from discreet.audit import verdict
from discreet.core import Approximate, Claim, Pure

RUNS = 100
ROOT = Path(__file__).parents[2]
ALLOWED = int(binom.isf(1e-7, RUNS, 0.05))


def judged(event, scores, count, seed, confidence=0.999):
    tool = bench("verdicts")
    draw = np.random.default_rng(seed)
    inside = draw.random(count) < 0.5
    return verdict(Claim(game=tool.GAME, event=event), tool.evidence(scores(draw, inside), inside), confidence=confidence)


@pytest.mark.parametrize(
    "name", ["pure 1", "approximate 1, 0.01", "approximate 0.5, 0.1", "gaussian 1", "subsampled 4 x 0.25, 1"]
)
def test_a_claim_that_is_attained_exactly_is_rarely_refuted(name):
    assert bench("verdicts").size(name, 300, RUNS)["refuted"] <= ALLOWED


def test_the_same_count_catches_a_test_that_forgets_delta():
    """The harness has teeth: bets that charge nothing for delta refute a true claim far too often."""
    tool = bench("verdicts")
    from discreet.audit.bounds.curve_bets import log_capital

    draw = np.random.default_rng(4)
    refuted = 0
    for _ in range(RUNS):
        inside = draw.random(1000) < 0.5
        score = tool.leaks(0.5, 0.1)(draw, inside)
        refuted += bool(log_capital(score, inside, np.array([0.5]), np.array([0.0]))[0] > np.log(20))
    assert refuted > ALLOWED


@pytest.mark.parametrize("delta", [1e-6, 1e-3])
@pytest.mark.parametrize("count", [10_000, 1_000_000])
def test_a_leak_of_nine_in_a_thousand_is_refuted(delta, count):
    found = judged(Approximate(1.0, delta), bench("verdicts").leaks(0.0, 0.009), count, 7)
    assert (found.outcome, found.delta) == ("refuted", delta)
    assert found.ceiling == 1.0 < found.floor


@pytest.mark.parametrize(("delta", "count"), [(0.01, 4000), (1e-3, 40_000), (1e-4, 400_000)])
def test_ten_times_the_delta_is_refuted_once_runs_resolve_it(delta, count):
    found = judged(Approximate(1.0, delta), bench("verdicts").leaks(1.0, 10 * delta), count, 3)
    assert found.outcome == "refuted"


def test_the_claimed_delta_itself_holds():
    assert judged(Approximate(1.0, 1e-3), bench("verdicts").leaks(1.0, 1e-3), 100_000, 3).outcome == "holds"


def test_an_uneven_trade_off_is_refuted():
    """One member in a hundred is given away, and nobody else: nothing is learned of who is outside."""
    assert judged(Pure(1.0), bench("verdicts").uneven(0.01, 6.0), 20_000, 2).outcome == "refuted"


@pytest.mark.parametrize("seed", range(3))
def test_what_is_refuted_stays_refuted_as_runs_are_added(seed):
    """Line by line, on every prefix of the same runs: the record of the capital cannot fall."""
    from discreet.accounting import curve
    from discreet.audit.bounds.curve_bets import log_capital
    from discreet.audit.lines import lines_of

    lines = lines_of(curve(Approximate(1.0, 1e-3)))
    draw = np.random.default_rng(seed)
    inside = draw.random(8000) < 0.5
    score = bench("verdicts").leaks(1.0, 0.02)(draw, inside)
    capitals = [log_capital(score[:n], inside[:n], lines[:, 0], lines[:, 1]) for n in range(100, 8001, 395)]
    assert (np.diff(capitals, axis=0) >= 0).all()


def test_clean_runs_stay_refuted_behind_noise():
    """Forty that leak with ten times as many behind them; guesses counted over all runs take the refutation back."""
    tool = bench("verdicts")
    row = tool.monotone("pure", "noise", 2)
    assert (row["taken_back"], row["refuted"], row["taken_back_before"] > 0) == (0, 2, True)


PAGE = (ROOT / "docs/theory/audit-curve.md").read_text()


def results():
    return json.loads((ROOT / "bench/results/verdicts.json").read_text())


def test_the_committed_sizes_are_within_their_limits():
    rows = results()["size"]
    assert {row["claim"].split()[0] for row in rows} == {"pure", "approximate", "gaussian", "subsampled"}
    assert all(row["runs"] >= 2000 and row["rate"] <= row["limit"] for row in rows)


def test_the_committed_power_grows_with_the_runs():
    rows = results()["power"]
    for name in {row["claim"] for row in rows}:
        mine = [row["whole"] for row in rows if row["claim"] == name]
        assert mine == sorted(mine), name
        assert mine[-1] == 1.0, name


def test_no_committed_refutation_was_taken_back():
    rows = results()["monotone"]
    assert {row["followed_by"] for row in rows} == {"noise", "adverse", "copies", "random"}
    assert sum(row["refuted"] for row in rows) > 100
    assert all(row["taken_back"] == 0 for row in rows)
    assert sum(row["taken_back_before"] for row in rows) > 50  # the rule before fails the same sequences


def test_the_page_shows_what_was_measured():
    """docs/theory/audit-curve.md."""
    found = results()
    assert f"at most {100 * max(row['rate'] for row in found['size']):.3g} % are refuted" in PAGE
    power = {(row["claim"], row["targets"]): (row["whole"], row["one_delta"]) for row in found["power"]}
    for count in (10**4, 10**5, 10**6):
        assert power["leak 0.009 under 1, 1e-6", count][0] == power["leak 0.009 under 1, 1e-3", count][0] == 1.0
        assert power["leak 0.009 under 1, 1e-3", count][1] == 0.0
        assert power["leak 10 x delta under 1, 1e-3", count][0] == 1.0
        assert power["leak 10 x delta under 1, 1e-4", count][0] == float(count >= 10**5)
    assert [power["leak 0.009 under 1, 1e-6", count][1] for count in (10**4, 10**6)] == [1.0, 0.0]


def test_the_page_names_every_planted_bug_that_is_found_less_often_than_before():
    """The price of a verdict that more runs never weaken: each twin that pays it stands on the page, with both figures."""
    twins = results()["twins"]
    less = [row for row in twins if row["whole"] < row["fixed"]]
    for row in less:
        assert f"`{row['twin']}` ({100 * row['whole']:g} % instead of {100 * row['fixed']:g} %)" in " ".join(PAGE.split())
        assert row["whole"] >= row["fixed"] - 0.2
    assert len(twins) - len(less) == 8
    assert "eight of eleven are refuted as often as before or more often" in PAGE
    [half] = [row for row in twins if row["twin"] == "HalfTheGaussianNoise"]
    assert (half["whole"], half["fixed"], half["one_delta"]) == (1.0, 0.8, 0.0)


def test_the_committed_clopper_pearson_is_the_tightest():
    for row in results()["rates"]:
        assert row["clopper_pearson"] >= max(row["bonferroni_10"], row["bonferroni_50"], row["half"]) - 1e-12, row
