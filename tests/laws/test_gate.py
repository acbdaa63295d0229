"""Laws of the gate: what a stricter limit, more confidence or another policy may and may not change."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from discreet.core import Claim, Evidence, Game, Laplace, Release, record
from discreet.errors import InvalidDocument
from discreet.report.gate import OUTCOMES, Finding, Policy, worst

GAME = Game(record(), {"scores"})


@st.composite
def pieces(draw: st.DrawFn) -> Evidence:
    inside = draw(st.lists(st.booleans(), min_size=1, max_size=60))
    score = draw(st.lists(st.integers(-5, 5), min_size=len(inside), max_size=len(inside)))
    repeat = draw(st.sampled_from([1, 1, 30]))  # few targets decide nothing, so some are many
    count = len(inside) * repeat
    fair = (2 * sum(inside) * repeat - count) ** 2 <= 20 * count  # other truths are refused of fair coins
    return Evidence(
        game=GAME, attack=draw(st.sampled_from(["lira", "loss"])), score=score * repeat, inside=inside * repeat,
        run=np.arange(count), design=draw(st.sampled_from(["canary", "post_hoc"] if fair else ["post_hoc"])),
    )  # fmt: skip


def release(*found: Evidence, claims: tuple[Claim, ...] = ()) -> Release[Any]:
    return Release(value=1, source="people", claims=claims, evidence=found)


def outcome(rule: str, evidence: Evidence) -> str:
    return Policy.from_toml(f'[[rule]]\non = "attack.*"\n{rule}').judge(release(evidence))[0].outcome


fractions = st.floats(0.01, 0.99)
confidences = st.sampled_from([0.5, 0.9, 0.95, 0.999])


def tpr(fpr: float, limit: float, confidence: float) -> str:
    return f"tpr = {{ at_fpr = {fpr!r}, max = {limit!r}, confidence = {confidence} }}"


def auc(limit: float, confidence: float) -> str:
    return f"auc = {{ max = {limit!r}, confidence = {confidence} }}"


@given(pieces(), st.floats(0.001, 0.3), st.tuples(fractions, fractions), confidences)
def test_what_holds_for_a_limit_holds_for_a_larger_one(
    seen: Evidence, fpr: float, limits: tuple[float, float], confidence: float
) -> None:
    small, large = (fpr + (1 - fpr) * each for each in sorted(limits))
    low, high = (outcome(tpr(fpr, each, confidence), seen) for each in (small, large))
    assert low != "holds" or high == "holds"
    assert high != "failed" or low == "failed"
    small, large = (0.5 + each / 2 for each in sorted(limits))
    low, high = (outcome(auc(each, confidence), seen) for each in (small, large))
    assert low != "holds" or high == "holds"
    assert high != "failed" or low == "failed"


@given(pieces(), st.floats(0.001, 0.3), fractions, st.tuples(confidences, confidences))
def test_more_confidence_decides_nothing_that_less_did_not(
    seen: Evidence, fpr: float, limit: float, sure: tuple[float, float]
) -> None:
    less, more = sorted(sure)
    for rule in (lambda c: tpr(fpr, fpr + (1 - fpr) * limit, c), lambda c: auc(0.5 + limit / 2, c)):
        one, other = outcome(rule(less), seen), outcome(rule(more), seen)
        assert other in ("inconclusive", one)


RULES = [
    '[[rule]]\non = "attack.*"\ntpr = { at_fpr = 0.01, max = 0.2 }\n',
    '[[rule]]\non = "attack.lira"\nauc = { max = 0.6 }\n',
    '[[rule]]\non = "claim"\nepsilon = { at_delta = 1e-6, max = 1 }\n',
    '[[rule]]\non = "release"\nrequire = ["claim.unit", "evidence.membership", "evidence.design != post_hoc"]\n',
]


def found_in(text: str, made: Release[Any]) -> list[Finding]:
    return list(Policy.from_toml(text).judge(made))


@given(st.lists(pieces(), max_size=3), st.booleans(), st.lists(st.sampled_from(RULES), min_size=1, max_size=4, unique=True))
def test_every_rule_says_something_and_none_speaks_for_another(seen: list[Evidence], claimed: bool, rules: list[str]) -> None:
    made = release(*seen, claims=(Claim(game=GAME, event=Laplace(2.0)),) * claimed)
    together = [each for each in found_in("".join(rules), made) if each.rule != "claims-hold"]
    alone = [[each for each in found_in(rule, made) if each.rule != "claims-hold"] for rule in rules]
    assert all(alone)
    told = [(each.rule, each.where, each.outcome, each.message) for each in together]
    assert told == [(each.rule, each.where, each.outcome, each.message) for one in alone for each in one]
    assert worst(together) == max((worst(one) for one in alone), key=OUTCOMES.index)


@given(st.lists(pieces(), min_size=1, max_size=3), pieces())
def test_more_evidence_never_breaks_a_requirement_or_mends_a_rate(seen: list[Evidence], more: Evidence) -> None:
    few, many = release(*seen), release(*seen, more)
    for text, better in ((RULES[3], 1), (RULES[0], -1)):
        one, other = (OUTCOMES.index(worst(found_in(text, made))) for made in (few, many))
        assert (one - other) * better >= 0


WHOLE = "strict = false\nrefute = { confidence = 0.9 }\n" + "".join(RULES)


@given(st.data())
def test_any_text_is_a_policy_or_is_refused_in_one_line(data: st.DataObject) -> None:
    """Every policy that is read judges; whatever else it may be is told with the name of the file."""
    text = WHOLE
    for _ in range(data.draw(st.integers(0, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 12)))
        put = data.draw(
            st.text("[]{}=\"'\n.,# -0159einfatruelsé", max_size=6) | st.sampled_from(["[[rule]]\n", "on = ", "max", "nan"])
        )
        text = text[:start] + put + text[end:]
    try:
        policy = Policy.from_toml(text, "privacy.toml")
    except InvalidDocument as error:
        told = str(error)
        assert told.startswith("privacy.toml")
        assert len(told) < 1000
        assert "\n" not in told
    else:
        lines = text.count("\n") + 1
        assert all(1 <= rule.line <= lines for rule in policy.rules)
        assert {each.rule for each in policy.judge(release())} == {rule.name for rule in policy.rules[:-1]}
