"""What each rule says of a release: three outcomes for what was measured, and nothing passes in silence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from discreet.attack.membership import ATTACKS
from discreet.audit import appraisal, judge
from discreet.core import Claim, Evidence, Game, Gaussian, Laplace, NonPrivate, Release, Sequence, Unit, record, user
from discreet.errors import InvalidValue, RuleFailed, UnsupportedEvent
from discreet.report.gate import Finding, Policy, assert_below, worst
from discreet.report.gate.parts import Part

GAME = Game(record(), {"scores"})
PEOPLE = user("id", rows=4)


def evidence(
    gap: float, count: int = 4000, attack: str = "lira", design: str = "canary", game: Game = GAME, runs: bool = True
) -> Evidence:
    """Seeded answers with normal noise, `gap` apart."""
    random = np.random.default_rng(7)
    inside = np.arange(count) % 2 == 0
    score = random.normal(size=count) + gap * inside
    run = np.arange(count) if runs else np.zeros(count, int)
    return Evidence(game=game, attack=attack, score=score, inside=inside, run=run, design=design)


def claim(epsilon: float = 1.0, unit: Unit = record(), view: str = "scores") -> Claim:  # noqa: B008
    return Claim(game=Game(unit, {view}), event=Laplace(1 / epsilon))


def release(*found: Evidence, claims: tuple[Claim, ...] = (), **more: Any) -> Release[Any]:
    return Release(value=1, source="people", claims=claims, evidence=found, **more)


def judged(rule: str, made: Release[Any], on: str = "attack.*") -> list[Finding]:
    return [each for each in Policy.from_toml(f'[[rule]]\non = "{on}"\n{rule}').judge(made) if each.rule != "claims-hold"]


def only(rule: str, made: Release[Any], on: str = "attack.*") -> Finding:
    (found,) = judged(rule, made, on)
    return found


@pytest.mark.parametrize(
    ("rule", "gap", "outcome"),
    [
        ("tpr = { at_fpr = 0.01, max = 0.1 }", 0.0, "holds"),
        ("tpr = { at_fpr = 0.01, max = 0.1 }", 3.0, "failed"),
        ("tpr = { at_fpr = 0.01, max = 0.1 }", 1.0, "inconclusive"),
        ("auc = { max = 0.6 }", 0.0, "holds"),
        ("auc = { max = 0.6 }", 1.0, "failed"),
        ("auc = { max = 0.6 }", -1.0, "failed"),
        ("auc = { max = 0.6 }", 0.32, "inconclusive"),
        ("epsilon = { at_delta = 1e-5, max = 1 }", 0.0, "holds"),
        ("epsilon = { at_delta = 1e-5, max = 1 }", 3.0, "failed"),
        ("epsilon = { at_delta = 1e-5, max = 8 }", 3.0, "inconclusive"),
    ],
)
def test_what_was_measured_has_three_outcomes(rule: str, gap: float, outcome: str) -> None:
    found = only(rule, release(evidence(gap)))
    assert found.outcome == outcome, found
    assert (found.where, found.line) == ("attack.lira", 3)
    assert (found.needed is not None) == (outcome == "inconclusive")
    assert found.limit is not None
    if found.high is not None:
        assert found.low is not None
        assert (outcome == "holds") == (found.high < found.limit)
        assert (outcome == "failed") == (found.low > found.limit)


def test_an_inconclusive_rate_says_how_many_would_decide() -> None:
    found = only("tpr = { at_fpr = 0.001, max = 0.01 }", release(evidence(0.0, 400)))
    assert found.outcome == "inconclusive"
    assert "members and" in found.message
    assert "there are 200 and 200" in found.message
    assert found.needed is not None
    assert found.needed > 400
    enough = only("tpr = { at_fpr = 0.001, max = 0.01 }", release(evidence(0.0, 2 * found.needed)))
    assert enough.outcome == "holds"


def test_a_reversed_attack_is_an_attack() -> None:
    found = only("auc = { max = 0.6 }", release(evidence(-1.0)))
    assert "AUC of the reversed scores" in found.message
    assert found.value == pytest.approx(1 - evidence(-1.0).auc())


def test_an_epsilon_from_a_finished_model_is_called_indicative() -> None:
    rule = "epsilon = { at_delta = 0, max = 0.5 }"
    assert "indicative" in only(rule, release(evidence(3.0, design="post_hoc"))).message
    assert "indicative" not in only(rule, release(evidence(3.0))).message


def test_a_rule_looks_at_the_attacks_it_names() -> None:
    made = release(evidence(0.0, attack="lira"), evidence(3.0, attack="loss"), evidence(0.0, attack="lira_offline"))
    assert [each.where for each in judged("auc = { max = 0.6 }", made, "attack.lira*")] == [
        "attack.lira",
        "attack.lira_offline",
    ]
    assert [each.outcome for each in judged("auc = { max = 0.6 }", made)] == ["holds", "failed", "holds"]


@pytest.mark.parametrize(
    "rule", ["tpr = { at_fpr = 0.01, max = 0.1 }", "auc = { max = 0.6 }", "epsilon = { at_delta = 0, max = 1 }"]
)
def test_a_rule_that_matches_nothing_fails(rule: str) -> None:
    found = only(rule, release(evidence(0.0)), "attack.lirra")
    assert found.outcome == "failed"
    assert "it has lira (did you mean lira?)" in found.message
    assert "no evidence at all" in only(rule, release()).message
    assert only(rule, release()).outcome == "failed"


EPSILON = "epsilon = {{ at_delta = 0, max = {} }}"


@pytest.mark.parametrize(("limit", "outcome"), [(1.0, "holds"), (0.999, "failed"), (2, "holds"), (0, "failed")])
def test_a_claimed_epsilon_is_compared_exactly(limit: float, outcome: str) -> None:
    found = only(EPSILON.format(limit), release(claims=(claim(1.0),)), "claim")
    assert (found.outcome, found.where, found.value) == (outcome, "claim.record", 1.0)


def test_what_is_not_claimed_is_not_proven() -> None:
    found = only(EPSILON.format(3), release(), "claim")
    assert (found.outcome, "no claim at all" in found.message) == ("failed", True)
    nothing = Claim(game=GAME, event=NonPrivate())
    assert "there is no ceiling" in only(EPSILON.format(3), release(claims=(nothing,)), "claim").message
    assert only(EPSILON.format(3), release(claims=(nothing,)), "claim").outcome == "failed"
    assert only(EPSILON.format(3), release(claims=(Claim(game=GAME, event=Gaussian(1.0)),)), "claim").outcome == "failed"


@pytest.mark.parametrize(
    ("asked", "outcomes"),
    [
        ("", ["holds", "failed"]),
        (', unit = "record"', ["holds"]),
        (', unit = "user"', ["failed"]),
        (', unit = "hospital"', ["failed"]),
        (', relation = "add_remove"', ["holds", "failed"]),
        (', relation = "replace"', ["failed"]),
        (', unit = "record", view = "labels"', ["holds"]),
        (', unit = "record", view = "weights"', ["failed"]),
        (', unit = "record", view = ["scores", "labels"]', ["holds"]),
    ],
)
def test_claims_are_chosen_by_unit_relation_and_view(asked: str, outcomes: list[str]) -> None:
    made = release(claims=(claim(1.0), claim(5.0, PEOPLE)))
    found = judged(f"epsilon = {{ at_delta = 0, max = 3{asked} }}", made, "claim")
    assert [each.outcome for each in found] == outcomes


def test_the_best_claim_about_a_view_counts() -> None:
    """Whoever sees the weights is bounded by both claims; whoever sees every step by one of them only."""
    made = release(claims=(claim(5.0, view="transcript"), claim(1.0, view="weights")))
    limit = "epsilon = { at_delta = 0, max = 3, view = "
    assert only(limit + '"weights" }', made, "claim").outcome == "holds"
    assert only(limit + '"transcript" }', made, "claim").outcome == "failed"
    assert [each.outcome for each in judged(EPSILON.format(3), made, "claim")] == ["failed", "holds"]


def part(text: str, made: Release[Any]) -> bool:
    (found,) = judged(f'require = ["{text}"]', made, "release")
    assert found.message.endswith(".")
    return found.outcome == "holds"


def test_parts_of_claims() -> None:
    made = release(claims=(claim(1.0, PEOPLE, "weights"), Claim(game=GAME, event=NonPrivate())))
    for text in ("claim", "claim.unit", "claim.unit == user", "claim.relation == add_remove", "claim.view == labels",
                 "claim.rows", "claim.unit != record"):  # fmt: skip
        assert part(text, made), text
    for text in ("claim.unit == record", "claim.relation == replace", "claim.view == table", "claim.unit != user"):
        assert not part(text, made), text
    assert not part("claim.rows", release(claims=(claim(unit=user("id", rows=None)),)))
    nothing = Claim(game=GAME, event=Sequence((Laplace(1.0), NonPrivate())))
    for text in ("claim", "claim.unit", "claim.unit == record"):
        assert not part(text, release(claims=(nothing,))), text
        assert not part(text, release()), text


def test_parts_of_evidence() -> None:
    made = release(evidence(0.0), evidence(0.0, attack="join on quasi-identifiers", design="post_hoc"))
    for text in ("evidence", "evidence.membership", "evidence.linkage", "evidence.lira", "evidence.join*",
                 "evidence.design != post_hoc", "evidence.design == canary", "evidence.view == scores",
                 "evidence.unit == record", "evidence.relation == add_remove"):  # fmt: skip
        assert part(text, made), text
    for text in ("evidence.reconstruction", "evidence.loss", "evidence.design == paired", "evidence.view == weights"):
        assert not part(text, made), text
    for text in ("evidence", "evidence.membership", "evidence.design != post_hoc"):
        assert not part(text, release()), text
    assert not part("evidence.design != post_hoc", release(evidence(0.0, design="post_hoc")))
    assert not part("evidence.membership", release(evidence(0.0, attack="reconstruction (linear program)")))


@pytest.mark.parametrize("name", [*(attack.name for attack in ATTACKS), "text loss", "mislabelled canaries"])
def test_every_membership_attack_counts_as_one(name: str) -> None:
    assert part("evidence.membership", release(evidence(0.0, 10, attack=name)))


def test_controls_count_when_they_came_out_right() -> None:
    def control(kind: str, found: bool) -> dict[str, Any]:
        return {"name": "lira", "kind": kind, "auc": 0.9, "tpr": {"0.01": 0.5}, "found": found}

    good = release(facts={"controls": [control("positive", True), control("negative", False)]})
    for text in ("controls", "controls.positive", "controls.negative"):
        assert part(text, good), text
        assert not part(text, release()), text
    blind = release(facts={"controls": [control("positive", False), control("negative", False)]})
    biased = release(facts={"controls": [control("positive", True), control("negative", True)]})
    assert [part(text, blind) for text in ("controls", "controls.positive", "controls.negative")] == [False, False, True]
    assert [part(text, biased) for text in ("controls", "controls.positive", "controls.negative")] == [False, True, False]


def test_other_parts() -> None:
    assert part("entry", release(entry="1-abc"))
    assert not part("entry", release())
    assert part("facts.seeds", release(facts={"seeds": {"shadows": 0}}))
    assert not part("facts.seeds", release(facts={"seeds": {}}))
    assert not part("facts.made", release())


@pytest.mark.parametrize("text", ["claim.unit==user", "  claim.unit   ==   user ", "claim.unit == a b"])
def test_parts_are_read_with_any_spaces(text: str) -> None:
    assert (Part.parse(text).section, Part.parse(text).asked, Part.parse(text).sign) == ("claim", "unit", "==")


ANY = '[[rule]]\non = "release"\nrequire = ["evidence"]\n'


def test_a_claim_that_its_evidence_refutes_is_told_by_every_policy() -> None:
    made = release(evidence(3.0), evidence(0.0, attack="blind"), claims=(claim(1.0),))
    found = [each for each in Policy.from_toml(ANY).judge(made) if each.rule == "claims-hold"]
    assert [(each.where, each.outcome) for each in found] == [("attack.lira", "refuted")]
    assert "above the claimed 1" in found[0].message
    assert worst(Policy.from_toml(ANY).judge(made)) == "refuted"


def test_evidence_that_cannot_refute_warns() -> None:
    made = release(evidence(3.0, design="post_hoc"), claims=(claim(1.0),))
    (_, found) = Policy.from_toml(ANY).judge(made)
    assert (found.outcome, "warning" in found.message) == ("failed", True)


def test_claims_that_hold_are_told_and_others_are_no_matter() -> None:
    (_, found) = Policy.from_toml(ANY).judge(release(evidence(0.0), claims=(claim(1.0),)))
    assert (found.outcome, "1 comparison" in found.message) == ("holds", True)
    elsewhere = release(evidence(3.0), claims=(claim(1.0, PEOPLE), Claim(game=GAME, event=NonPrivate())))
    assert len(Policy.from_toml(ANY).judge(elsewhere)) == 1


def test_how_sure_a_refutation_must_be_can_be_said() -> None:
    said = {}
    for leak in (1.2, 1.5):
        made = release(evidence(leak, 300), claims=(claim(1.0),))
        said[leak] = [worst(Policy.from_toml(f"refute.confidence = {c}\n{ANY}").judge(made)) for c in (0.5, 0.999, 1 - 1e-9)]
    assert said[1.2] == ["refuted", "holds", "holds"]
    assert said[1.5] == ["refuted", "refuted", "failed"]  # too few to be so sure, and surely above the claim all the same


@pytest.fixture
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No theorem covers any event."""

    def refuse(event: Any) -> Any:
        raise UnsupportedEvent("no privacy profile for this event.")

    judge.ceiling_of.cache_clear()
    appraisal._appraise.cache_clear()
    monkeypatch.setattr("discreet.accounting.curve", refuse)
    yield
    appraisal._appraise.cache_clear()  # else a later test is given what was found without a theorem


@pytest.mark.usefixtures("nothing_known")
def test_a_claim_that_no_theorem_covers_proves_nothing_and_breaks_nothing() -> None:
    made = release(evidence(3.0), claims=(claim(1.0),))
    assert only(EPSILON.format(3), made, "claim").outcome == "failed"
    assert not part("claim", made)
    assert [each.outcome for each in Policy.from_toml(ANY).judge(made)] == ["holds"]


def test_what_is_inconclusive_has_failed_unless_the_policy_is_lenient() -> None:
    found = [only("tpr = { at_fpr = 0.001, max = 0.01 }", release(evidence(0.0, 100)))]
    assert (worst(found, strict=False), worst(found), worst([])) == ("inconclusive", "failed", "holds")


def test_assert_below_tells_the_interval() -> None:
    made = release(evidence(3.0), evidence(0.0, attack="blind"))
    assert_below(made, tpr=0.1, fpr=0.01, attack="blind")
    assert_below(made, auc=0.6, epsilon=1.0, delta=1e-5, attack="blind")
    with pytest.raises(RuleFailed, match=r"attack.lira: failed: TPR at 1 % FPR is \d.* % \(\d.* % to \d.* %") as caught:
        assert_below(made, tpr=0.1, fpr=0.01)
    assert isinstance(caught.value, AssertionError)
    assert "blind" not in str(caught.value)
    with pytest.raises(RuleFailed, match="no attack of the release matches nobody"):
        assert_below(made, auc=0.6, attack="nobody")


def test_assert_below_fails_where_nobody_can_tell() -> None:
    few = release(evidence(0.0, 100))
    with pytest.raises(RuleFailed, match=r"inconclusive: .* non-members would decide; there are 50 and 50"):
        assert_below(few, tpr=0.01, fpr=0.001)
    with pytest.warns(UserWarning, match="non-members would decide") as caught:
        assert_below(few, tpr=0.01, fpr=0.001, strict=False)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({}, "needs a limit"),
        ({"tpr": 0.1}, "tpr and fpr go together"),
        ({"fpr": 0.1}, "tpr and fpr go together"),
        ({"epsilon": 1}, "epsilon and delta go together"),
        ({"tpr": 0.1, "fpr": 0.1}, "guessing alone"),
        ({"tpr": 2, "fpr": 0.1}, "tpr must be above 0 and below 1"),
        ({"auc": 0.4}, "guessing alone"),
        ({"auc": "x"}, "auc must be a number"),
        ({"auc": 0.6, "confidence": 1.5}, "confidence must be"),
        ({"auc": 0.6, "attack": ""}, "attack must be"),
        ({"epsilon": -1, "delta": 0}, "epsilon must be 0 or above"),
        ({"epsilon": 1, "delta": 1}, "delta must be"),
    ],
)
def test_assert_below_refuses_what_makes_no_sense(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidValue, match=told):
        assert_below(release(evidence(0.0)), **asked)
