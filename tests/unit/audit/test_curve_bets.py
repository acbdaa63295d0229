"""Bets on the whole curve: the fast counts against a slow loop, fair odds, lines of a claim, and what the verdict reports."""

from __future__ import annotations

import math

import numpy as np
import pytest

from discreet.accounting import curve
from discreet.audit import verdict
from discreet.audit.bounds.curve_bets import STAKES, _bets, blocks, log_capital, thresholds
from discreet.audit.lines import joint_violation, lines_of, own_delta, reachable, violation
from discreet.core import (
    Approximate,
    Claim,
    Evidence,
    Game,
    Gaussian,
    NonPrivate,
    Poisson,
    Pure,
    Repeat,
    Sequence,
    Zero,
    record,
)

GAME = Game(record(), {"answers"})
EVEN = np.full(4, 0.0125)  # the error of each of the four lines of a pure claim


def slow(score, inside, epsilon, delta):
    """The same capital, one run and one stake at a time, every event tried by its definition."""
    paths = []
    for stake in STAKES.tolist():
        capital, path = 0.0, {}
        for start, looks in blocks(len(score)):
            bet = choose(score[:start], inside[:start], epsilon, delta, stake)
            for run in range(start, int(looks[-1])):
                capital += factor(bet, score[run], inside[run], epsilon, delta, stake)
                if run + 1 in looks:
                    path[run + 1] = capital
        paths.append(path)
    best = [math.log(np.mean([math.exp(path[look]) for path in paths])) for look in paths[0]]
    return max([0.0, *best])


def factor(bet, score, inside, epsilon, delta, stake):
    """log(1 + x (1[right] - e^epsilon 1[wrong] - charge)) for the event bet on."""
    if bet is None:
        return 0.0
    high, low = bet
    charge = delta / 2 * ((high is not None) + (low is not None))
    x = stake / (math.exp(epsilon) + charge)
    above, below = high is not None and score >= high, low is not None and score <= low
    assert not (above and below)
    right, wrong = (above and inside) or (below and not inside), (above and not inside) or (below and inside)
    return math.log(1 + x * (right - math.exp(epsilon) * wrong - charge))


def choose(score, inside, epsilon, delta, stake):
    """The event that would have won most on the runs so far, if that is more than one unit of log-capital."""

    def won(bet):
        return sum(factor(bet, s, i, epsilon, delta, stake) for s, i in zip(score, inside))

    def share(high, low):  # what one side of a bet on both adds
        side, charge = (high, low), delta
        x = stake / (math.exp(epsilon) + charge)
        idle = math.log(1 - x * charge)
        total = 0.0
        for s, i in zip(score, inside):
            chosen = s >= high if high is not None else s <= side[1]
            if chosen:
                right = i == (high is not None)
                total += math.log(1 + x * (1 - charge)) - idle if right else math.log(1 - stake) - idle
        return total

    high, low = (each.tolist() for each in thresholds(score))
    ups, downs = max(high, key=lambda t: share(t, None)), max(low, key=lambda t: share(None, t))
    one = [max(((t, None) for t in high), key=won), max(((None, t) for t in low), key=won)]
    bets = [*one, *([(ups, downs)] if downs < ups else [])]
    best = max(bets, key=won)
    return best if won(best) > 1.0 else None


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (0.5, 0.0), (0.3, 0.05), (0.0, 0.3)])
def test_counting_is_as_good_as_a_loop(seed, epsilon, delta):
    draw = np.random.default_rng([seed, round(10 * delta)])
    inside = draw.random(90) < 0.5
    score = (1.5 + seed) * inside + draw.normal(size=90)
    expected = slow(score, inside, epsilon, delta)
    assert log_capital(score, inside, np.array([epsilon]), np.array([delta]))[0] == pytest.approx(expected, abs=1e-9)
    assert expected > 0


@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (1.0, 1e-6), (1.0, 0.3), (30.0, 0.1), (0.2, 0.9)])
def test_the_odds_are_fair_on_the_line_and_worse_below(sides, epsilon, delta):
    """A mechanism on the line: right with probability a = e^epsilon b + charge, wrong with probability b."""
    bets = _bets(np.full(8, epsilon), np.full(8, delta), STAKES, sides=sides)
    for wrong in (0.0, 0.01, 0.2 * math.exp(-epsilon)):
        right = math.exp(epsilon) * wrong + sides * delta / 2
        if right + wrong <= 1:
            mean = right * np.exp(bets.right) + wrong * np.exp(bets.wrong) + (1 - right - wrong) * np.exp(bets.none)
            assert mean == pytest.approx(np.ones(8), abs=1e-9)
            assert (bets.right > bets.none).all()
            assert (bets.none >= bets.wrong).all()


def test_looks_do_not_move_as_runs_are_added():
    for count in (15, 16, 17, 40, 333, 5000):
        looks = [int(each) for _, some in blocks(count) for each in some]
        longer = [int(each) for _, some in blocks(3 * count) for each in some]
        assert longer[: len(looks)] == looks
        assert looks == sorted(set(looks))
        assert count <= 16 or count - looks[-1] <= max(1, count // 64)


@pytest.mark.parametrize(
    ("event", "least"),
    [
        (Pure(1.0), (1.0, 0.0)), (Approximate(1.0, 1e-6), (1.0, 1e-6)), (Approximate(2.0, 0.2), (2.0, 0.2)),
        (Zero(), (0.0, 0.0)), (Gaussian(1.0), (6.174, 1e-9)),
    ],
)  # fmt: skip
def test_lines_begin_at_the_claims_own_delta(event, least):
    lines = lines_of(curve(event))
    assert lines[0].tolist() == pytest.approx(least, abs=1e-3)
    assert (np.diff(lines[:, 0]) < 0).all()
    assert (np.diff(lines[:, 1]) > 0).all()
    for epsilon, delta in lines.tolist():
        assert curve(event).delta(epsilon) <= delta * (1 + 1e-9) + 1e-15


def test_a_delta_that_remains_at_any_epsilon_is_tested_just_above():
    both = curve(Sequence((Approximate(1.0, 1e-6), Gaussian(1.0))))
    assert math.isinf(both.epsilon(1e-6))
    assert 1e-6 < own_delta(both) <= 1.251e-6
    assert math.isfinite(both.epsilon(own_delta(both)))
    assert lines_of(both)[0, 1] == own_delta(both)
    assert own_delta(curve(NonPrivate())) == 0.0
    assert len(lines_of(curve(NonPrivate()))) == 0


def perfect(count, design="paired", one_run=False):
    inside = np.random.default_rng(5).random(count) < 0.5
    run = np.zeros(count, int) if one_run else np.arange(count)
    return Evidence(game=GAME, attack="peek", score=inside, inside=inside, run=run, design=design)


def test_the_floor_of_a_line_is_above_the_claim_and_below_what_guesses_allow():
    seen = perfect(2000)
    lines = lines_of(curve(Pure(1.0)))
    found = violation(lines, seen.score, seen.inside, EVEN)
    assert found.epsilon < found.floor < math.log(2000 / math.log(20))
    assert violation(np.zeros((0, 2)), seen.score, seen.inside, np.zeros(0)) is None


def test_reach_is_that_of_perfect_guesses():
    lines = lines_of(curve(Pure(1.0)))
    assert reachable(lines, 20, EVEN) is None
    assert reachable(lines, 500, EVEN) == 0
    assert reachable(np.zeros((0, 2)), 500, np.zeros(0)) is None


@pytest.mark.parametrize("one_run", [True, False])
@pytest.mark.parametrize("delta", [1e-6, 1e-3])
def test_an_approximate_claim_is_refuted_at_its_own_delta(one_run, delta):
    """Targets of one run may all be given away with the probability of delta, so there the error must be larger than it."""
    seen = perfect(2000, "canary", one_run)
    judged = verdict(Claim(game=GAME, event=Approximate(1.0, delta)), seen, confidence=0.95 if one_run else 0.999)
    assert (judged.outcome, judged.delta, judged.ceiling) == ("refuted", delta, 1.0)
    assert judged.floor > 1.0


def test_targets_of_one_run_are_tested_against_the_curve_as_a_whole():
    """Gaussian canaries twice as loud as claimed, in one run: no single delta shows it at 95 %, the curve does."""
    draw = np.random.default_rng(3)
    inside = draw.random(4000) < 0.5
    score, lines = inside * 2.2 + draw.normal(size=4000), lines_of(curve(Gaussian(1.0)))
    found = joint_violation(curve(Gaussian(1.0)), lines, score, inside, 0.0125)
    assert found is not None
    assert [found.epsilon, found.delta] in lines.tolist()
    assert joint_violation(curve(Gaussian(1 / 2.2)), lines_of(curve(Gaussian(1 / 2.2))), score, inside, 0.0125) is None
    seen = Evidence(game=GAME, attack="loud", score=score, inside=inside, run=np.zeros(4000, int), design="canary")
    judged = verdict(Claim(game=GAME, event=Gaussian(1.0)), seen, confidence=0.95)
    assert judged.outcome == "refuted"
    assert judged.floor > judged.ceiling
    assert "above the claimed" in judged.reason


def test_without_coins_the_same_test_warns():
    seen = perfect(2000, "post_hoc")
    judged = verdict(Claim(game=GAME, event=Approximate(1.0, 1e-3)), seen, confidence=0.999)
    assert (judged.outcome, judged.floor > judged.ceiling) == ("warning", True)
    assert "warning" in judged.reason


def test_members_listed_first_are_no_leak():
    """Post hoc, members are often stored before the others: their place must not be bet on. False alarms: below 1e-3."""
    draw = np.random.default_rng(8)
    inside = np.arange(4000) < 2000
    seen = Evidence(
        game=GAME, attack="blind", score=draw.normal(size=4000), inside=inside, run=np.arange(4000), design="post_hoc"
    )
    judged = verdict(Claim(game=GAME, event=Approximate(0.1, 1e-3)), seen, confidence=0.999)
    assert judged.floor <= judged.ceiling


def test_a_long_run_of_small_steps_is_refuted_by_default():
    """Half the noise of a subsampled run: no line at delta 0, 0.01 or 0.1 alone shows it so early."""
    draw = np.random.default_rng(2)
    inside = draw.random(4000) < 0.5
    part = inside[:, None] & (draw.random((4000, 4)) < 0.25)
    sums = part + 0.5 * draw.normal(size=part.shape)
    score = np.log1p(0.25 * np.expm1((sums - 0.5) / 0.25)).sum(axis=1)
    seen = Evidence(game=GAME, attack="ratio", score=score, inside=inside, run=np.arange(4000), design="paired")
    assert verdict(Claim(game=GAME, event=Repeat(Poisson(0.25, Gaussian(1.0)), 4)), seen, confidence=0.999).outcome == "refuted"
