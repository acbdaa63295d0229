"""Laws of the bounds and rates: for any scores at all."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from discreet.audit import epsilon_lower_bound, rate_at, roc, verdict
from discreet.audit.bounds.curve_bets import log_capital
from discreet.audit.columns import Outputs
from discreet.audit.flatten import flatten
from discreet.core import Approximate, Claim, Evidence, Game, Gaussian, Pure, record

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
