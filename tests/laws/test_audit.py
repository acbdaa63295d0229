"""Laws of the bounds and rates: for any scores at all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from discreet.audit import appraise, epsilon_lower_bound, rate_at, roc, verdict
from discreet.audit.bounds.curve_bets import log_capital
from discreet.audit.columns import Outputs
from discreet.audit.flatten import flatten
from discreet.audit.judge import _judged
from discreet.core import Approximate, Claim, Evidence, Game, Gaussian, Pure, record
from discreet.errors import InvalidValue

finite = st.floats(-1e300, 1e300)
few = st.sampled_from([0.0, 1.0, -1.0, 2.5])


@st.composite
def trials(draw):
    count = draw(st.integers(1, 120))
    score = draw(arrays.arrays(np.float64, count, elements=draw(st.sampled_from([finite, few]))))
    inside = draw(arrays.arrays(np.bool_, count))
    run = np.arange(count) if draw(st.booleans()) else np.zeros(count, dtype=int)
    return score, inside, run


deltas = st.sampled_from([0.0, 1e-9, 1e-5, 0.01, 0.5, 0.999])
confidences = st.sampled_from([0.5, 0.9, 0.95, 1 - 1e-9])
SEEN = Evidence(
    game=Game(record(), {"answers"}), attack="any", score=[1.0, 0.0], inside=[True, False], run=[0, 1], design="paired"
)
everyday = settings(deadline=None, max_examples=60)


@everyday
@given(trials(), deltas, confidences, st.sampled_from(["auto", "betting", "one_run"]))
def test_a_bound_is_a_finite_number_and_no_less_than_zero(data, delta, confidence, method):
    found = epsilon_lower_bound(*data, delta, confidence, method)
    assert 0.0 <= found < np.log(len(data[0]) + 1) / max(1e-3, 1 - 0.5) + 3


@everyday
@given(trials(), deltas, st.sampled_from(["auto", "one_run"]))
def test_more_confidence_never_claims_more(data, delta, method):
    found = [epsilon_lower_bound(*data, delta, confidence, method) for confidence in (0.6, 0.9, 0.99, 0.9999)]
    assert found == sorted(found, reverse=True)


@everyday
@given(trials(), st.integers(-3, 3))
def test_powers_of_two_do_not_matter(data, power):
    score, inside, run = data
    score = np.clip(score, -1e3, 1e3)
    plain = epsilon_lower_bound(score, inside, run, 0.0, 0.95)
    assert epsilon_lower_bound(score * 2.0**power, inside, run, 0.0, 0.95) == plain


@everyday
@given(trials(), st.sampled_from([0.01, 0.1, 0.5]))
def test_rates_stay_in_their_intervals(data, level):
    score, inside, _ = data
    found = rate_at(score, inside, level)
    assert 0.0 <= found.low <= found.rate <= found.high <= 1.0 or not inside.any()
    curve = roc(score, inside)
    assert (np.diff(curve.false) >= 0).all()
    assert (np.diff(curve.true) >= 0).all()
    assert -1e-12 <= curve.area() <= 1.0 + 1e-12


@everyday
@given(trials(), st.integers(0, 120))
def test_more_runs_never_lower_a_capital(data, count):
    score, inside, _ = data
    epsilon, delta = np.array([0.0, 0.5, 1.0]), np.array([0.2, 0.0, 1e-3])
    some = log_capital(score[:count], inside[:count], epsilon, delta)
    assert (some >= 0).all()
    assert (log_capital(score, inside, epsilon, delta) >= some).all()


@everyday
@given(trials(), st.sampled_from([Pure(0.5), Approximate(0.5, 0.01), Gaussian(3.0)]))
def test_a_verdict_says_what_its_numbers_say(data, event):
    score, inside, run = data
    game = Game(record(), {"answers"})
    seen = Evidence(game=game, attack="any", score=score, inside=inside, run=run, design="post_hoc")
    warned = verdict(Claim(game=game, event=event), seen, confidence=0.9)
    assert warned.outcome in ("holds", "inconclusive", "warning")
    assert (warned.outcome == "warning") == (warned.floor > warned.ceiling)


@st.composite
def longer(draw):
    """Runs that leak, or any, with any others behind them: noise, the opposite, copies; in any design."""
    seed, first, rest = draw(st.integers(0, 10**6)), draw(st.integers(1, 60)), draw(st.integers(0, 400))
    random = np.random.default_rng(seed)
    inside = random.random(first + rest) < 0.5
    clean = random.choice([0.0, 0.05, 0.5])
    score = np.where(random.random(first + rest) < clean, random.normal(size=first + rest), inside * 1.0)
    behind = slice(first, None)
    match draw(st.sampled_from(["noise", "opposite", "copies", "one score", "more"])):
        case "noise":
            score[behind] = random.normal(size=rest)
        case "opposite":
            score[behind] = ~inside[behind]
        case "copies":
            score[behind], inside[behind] = np.resize(score[:first], rest), np.resize(~inside[:first], rest)
        case "one score":
            score[behind] = 0.5
    width = draw(st.sampled_from([1, 1, 7, 40]))
    if draw(st.booleans()) and width == 1:  # a run of many targets behind runs of one
        run = np.where(np.arange(first + rest) < first + rest // 2, np.arange(first + rest), first + rest)
    else:
        run = np.arange(first + rest) // width
    return score, inside, run, draw(st.sampled_from(["canary", "post_hoc"]))


def judged_prefixes(data, event, judge, delta=None):
    """The outcome on growing numbers of whole runs; prefixes that no fair coins would show are left out."""
    score, inside, run, design = data
    claim = Claim(game=Game(record(), {"answers"}), event=event)
    last = np.unique(run)[-1]
    outcomes = []
    for runs in sorted({*np.geomspace(1, last + 1, 7).astype(int).tolist(), int(last) + 1}):
        kept = run < runs
        try:
            seen = Evidence(game=claim.game, attack="any", score=score[kept], inside=inside[kept], run=run[kept], design=design)
        except InvalidValue:
            continue
        outcomes.append(judge(claim, seen, confidence=0.9, delta=delta))
    return outcomes


claimed = st.sampled_from([Pure(0.2), Pure(1.0), Approximate(0.5, 0.01), Gaussian(2.0)])


@settings(deadline=None, max_examples=25)
@given(longer(), claimed, st.sampled_from([None, None, 0.01, (0.0, 0.1)]))
def test_more_runs_never_weaken_a_verdict(data, event, delta):
    """Once refuted (or warned of), so for every longer sequence; and once tested, never again too few."""
    verdicts = judged_prefixes(data, event, verdict, delta)
    broken = [each.outcome in ("refuted", "warning") for each in verdicts]
    assert broken == sorted(broken)
    for each in verdicts:
        assert (each.outcome in ("refuted", "warning")) == (each.floor > each.ceiling)
        assert each.outcome != "holds" or each.floor <= each.ceiling


def test_the_law_finds_the_test_that_it_replaced():
    """Guesses counted over all runs: sixteen clean targets refute the claim, a hundred of noise behind them take it back."""
    draw = np.random.default_rng(1)
    inside = draw.random(140) < 0.5
    score = np.where(np.arange(140) < 40, inside, draw.normal(size=140))
    data = score, inside, np.arange(140), "canary"

    def over_all(claim, seen, *, confidence, delta):
        floor = epsilon_lower_bound(seen.score, seen.inside, seen.run, 0.0, confidence)
        return floor > claim.event.epsilon

    before = judged_prefixes(data, Pure(1.0), over_all)
    assert before != sorted(before)
    outcomes = [each.outcome for each in judged_prefixes(data, Pure(1.0), verdict)]
    assert outcomes[-1] == "refuted"
    assert [each == "refuted" for each in outcomes] == sorted(each == "refuted" for each in outcomes)


@pytest.mark.parametrize("event", [Pure(1.0), Approximate(1.0, 1e-3), Gaussian(1.0)])
def test_the_floor_beside_a_verdict_does_not_contradict_it(event):
    """Leaking runs and much noise behind them: the page's floor is no lower than what refuted the claim."""
    draw = np.random.default_rng(2)
    inside = draw.random(2400) < 0.5
    score = np.where(np.arange(2400) < 400, inside, draw.normal(size=2400))
    game = Game(record(), {"answers"})
    seen = Evidence(game=game, attack="any", score=score, inside=inside, run=np.arange(2400), design="paired")
    found = appraise(seen, [Claim(game=game, event=event)], delta=0.0 if event == Pure(1.0) else 1e-3)
    assert found.outcome == "refuted"
    [judged] = found.verdicts
    assert judged.delta < found.delta or found.epsilon >= judged.floor > judged.ceiling


def test_a_floor_that_rounds_to_the_ceiling_is_told_in_words():
    for floor in (1.0 + 1e-12, 1.0000004, 1.0004, 1.1):
        reason = _judged(SEEN, 0.9, 0.0, 1.0, floor).reason
        assert ("epsilon is larger" in reason) == (floor < 1.001)
        assert "holds" not in reason


leaves = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | st.text() | st.binary() | st.decimals()
)
keys = st.text(max_size=3) | st.integers() | st.tuples(st.integers(), st.text(max_size=2))
nested = st.recursive(
    leaves,
    lambda inner: st.lists(inner) | st.dictionaries(keys, inner) | st.frozensets(keys) | st.tuples(inner, inner),
    max_leaves=12,
)


@everyday
@given(nested)
def test_any_nesting_is_taken_apart_whole_and_always_alike(output):
    flat = flatten(output)
    assert not flat.unseen
    assert flat.kinds == flatten(output).kinds
    assert {name: bits.tolist() for name, bits in flat.bits.items()} == {
        name: bits.tolist() for name, bits in flatten(output).bits.items()
    }
    assert set(flat.numbers) == set(flat.bits)


@everyday
@given(nested, nested)
def test_what_differs_has_another_digest(one, other):
    marks = Outputs.of([one, one, other]).whole
    assert marks[0] == marks[1]
    if repr(one) != repr(other) and "Decimal" not in repr((one, other)) and "nan" not in repr((one, other)):
        assert marks[0] != marks[2]
