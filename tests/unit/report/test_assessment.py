"""What a report finds in a release: the verdict, the wording of a guarantee, and what was not tried."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from discreet import report
from discreet.audit import appraise
from discreet.core import (
    Approximate,
    Claim,
    Evidence,
    Game,
    Gaussian,
    NonPrivate,
    Poisson,
    Pure,
    Release,
    Repeat,
    Zero,
    record,
    user,
)
from discreet.core import event as events
from discreet.errors import InvalidDocument, InvalidValue
from discreet.report import text
from discreet.report.assessment import Assessment, assess
from discreet.report.decision import ordered
from discreet.report.gate.rules import Area, Rate
from discreet.report.sentences import STATUSES, overall
from reports import COUNT, TRAINED, broken, evidence, leaky, private


def found(release: Release[Any]) -> Assessment:
    (only,) = assess(release)
    return only


def test_the_verdict_of_each_kind_of_release() -> None:
    held, unpromised, refuted = found(private()), found(leaky()), found(broken())
    assert (held.status, unpromised.status, refuted.status) == ("holds", "leaks", "refuted")
    assert held.sentence.startswith(
        "Whatever an attacker tries, someone who gave even odds to a given row being in the data can become at most 92."
    )
    assert held.sentence.endswith(
        "sure of it (but for a chance of one in a million); 2 attacks were tried and stayed within that."
    )
    assert "there is no ceiling" in unpromised.sentence
    assert "“lira” recognises 12.5 %" in unpromised.sentence
    assert "“threshold on the answer” tells who is in the data better than it allows" in refuted.sentence


def test_no_sentence_for_a_manager_speaks_of_epsilon() -> None:
    for release in (private(), leaky(), broken(), replace(private(), evidence=())):
        assert "ε" not in found(release).sentence
        assert "epsilon" not in found(release).sentence


def test_an_attack_on_something_finished_warns_and_cannot_refute() -> None:
    warned = found(replace(private(), evidence=(evidence(3.0),)))
    assert warned.status == "warning"
    assert warned.floors[0].outcome == "warning"
    assert "proves nothing" in warned.sentence
    assert "refuted" not in {each.outcome for each in warned.floors[0].verdicts}


def test_attacks_on_something_finished_confirm_nothing_either() -> None:
    quiet = found(replace(private(), evidence=(evidence(0.05),)))
    assert quiet.status == "holds"
    assert "no test" in quiet.sentence


def test_a_claim_alone_rests_on_its_proof() -> None:
    alone = found(Release(value=1, source="people", claims=(COUNT,)))
    assert alone.status == "untested"
    assert alone.sentence.endswith("no attack was run against it, so this rests on its proof alone.")
    assert "62.3 %" in alone.sentence


def test_too_few_samples_are_said() -> None:
    few = found(replace(private(), evidence=(evidence(0.05, design="canary", targets=4),)))
    assert few.status == "inconclusive"
    measured = few.floors[0].at(0.01)
    assert (measured.resolvable, measured.low < 0.01, measured.high > 0.9) == (False, True, True)


def test_nothing_at_all_is_as_bad_as_the_data() -> None:
    for claims in ((), (Claim(game=Game(record(), {"answers"}), event=NonPrivate()),)):
        nothing = found(Release(value=1, source="people", claims=claims))
        assert nothing.status == "no ceiling"
        assert (
            nothing.sentence == "Nothing is promised and nothing was tried: treat this release as if it were the data itself."
        )


def test_an_attack_that_only_guesses_is_no_comfort() -> None:
    guessing = found(replace(leaky(), evidence=(evidence(0.0),)))
    assert "little better than guessing, and others may do more" in guessing.sentence


def test_one_sided_evidence_has_no_rates() -> None:
    ones = Evidence(
        game=Game(record(), {"scores"}), attack="x", score=[1.0, 2.0], inside=[True, True], run=[0, 0], design="post_hoc"
    )
    only = found(replace(leaky(), evidence=(ones,)))
    assert only.floors[0].others == 0
    assert "2 members and 0 others no attack is surely better than guessing" in only.sentence


def test_a_part_without_a_ceiling_is_not_hidden_by_another_that_has_one() -> None:
    open_part = Claim(game=Game(record(), {"table"}), event=NonPrivate())
    partly = found(Release(value=1, source="people", claims=(COUNT, open_part)))
    assert partly.status == "no ceiling"
    assert partly.sentence.startswith("Nothing is promised to hold against someone who sees the released table")
    assert "For the rest: Whatever an attacker tries" in partly.sentence
    same = Claim(game=COUNT.game, event=NonPrivate())  # what is bounded in this very game is bounded
    assert found(Release(value=1, source="people", claims=(COUNT, same))).status == "untested"


def test_only_attacks_that_could_test_the_claim_count() -> None:
    foreign = evidence(0.1, view="table")
    mixed = found(replace(private(), evidence=(*private().evidence, foreign)))
    assert mixed.sentence.endswith("2 attacks were tried and stayed within that (1 more could not test it).")
    alone = found(replace(private(), evidence=(foreign,)))
    assert alone.status == "untested"
    assert "no attack that was run can be compared with it" in alone.sentence


def test_a_promise_without_an_exception_names_none() -> None:
    assert "one in a million" not in found(Release(value=1, source="people", claims=(COUNT,))).sentence


def test_the_delta_of_a_claim_does_not_make_its_promise_empty() -> None:
    """With probability 1e-6 a (1, 1e-6)-DP mechanism may tell all; of a chance of 1e-5 the claim says something."""
    item = found(Release(value=1, source="people", claims=(Claim(game=COUNT.game, event=Approximate(1.0, 1e-6)),)))
    assert "at most 75.2 % sure of it (but for a chance of one in 100,000)" in item.sentence
    assert item.ceilings[0].rare == 1e-5


def test_a_weak_promise_is_called_weak() -> None:
    weak = found(Release(value=1, source="people", claims=(Claim(game=COUNT.game, event=Pure(8.0)),)))
    assert "hardly a limit" in weak.sentence


def test_the_weakest_claim_is_the_one_in_the_sentence() -> None:
    both = (COUNT, Claim(game=COUNT.game, event=Pure(1.0)))
    assert "73.2 %" in found(Release(value=1, source="people", claims=both)).sentence


@pytest.mark.parametrize(
    ("unit", "said"),
    [
        (user("id", rows=4), "even odds to a given person being in the data"),
        (record("replace"), "even odds to two versions of a given row"),
        (record("zero_out"), "even odds to the values of a given row being used"),
        (replace(record(), name="hospital"), "even odds to a given hospital being in the data"),
    ],
)
def test_the_secret_is_that_of_the_game(unit: Any, said: str) -> None:
    claim = Claim(game=Game(unit, {"answers"}), event=Pure(1.0))
    assert said in found(Release(value=1, source="people", claims=(claim,))).sentence


def test_the_wording_of_a_guarantee_is_complete() -> None:
    said = found(private()).ceilings[0].guarantee
    for part in (
        "ε = 1.86",
        "δ = 1e-5",
        "one record (1 row)",
        "added or removed",
        "every intermediate checkpoint",
        "Poisson sampling",
    ):
        assert part in said, part


@pytest.mark.parametrize(
    ("view", "said"),
    [
        ("weights", "intermediate checkpoints are not covered"),
        ("scores", "nothing else: not the weights, and not intermediate checkpoints"),
        ("answers", "It covers the published answers"),
        ("table", "It covers the released table"),
    ],
)
def test_which_checkpoints_are_covered(view: str, said: str) -> None:
    assert said in text.checkpoints({view})


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (Gaussian(1.0), "no sampling: the bound holds"),
        (events.WithoutReplacement(0.1, Gaussian(1.0)), "fixed size"),
        (Repeat(events.RandomAllocation(Gaussian(1.0), 10), 3), "one random step of every pass"),
        (events.Shuffled(events.RandomizedResponse(1.0), 1000), "trusted to forget"),
        (events.Sequence([Pure(1.0), Poisson(0.1, Pure(1.0))]), "Poisson sampling"),
    ],
)
def test_the_sampling_that_is_assumed(event: Any, said: str) -> None:
    assert said in text.sampling(event)


@pytest.mark.parametrize("kind", sorted(events.KINDS))
def test_every_event_has_words(kind: str) -> None:
    inner = Gaussian(1.0)
    made: dict[str, Any] = {
        "pure": Pure(1.0), "approximate": Approximate(1.0, 1e-6), "gaussian": inner, "laplace": events.Laplace(1.0),
        "zero": Zero(), "non_private": NonPrivate(), "discrete_gaussian": events.DiscreteGaussian(1.0),
        "discrete_laplace": events.DiscreteLaplace(1.0), "concentrated": events.Concentrated(0.1),
        "exponential": events.Exponential(1.0),
        "noisy_max": events.NoisyMax(1.0), "repeat": Repeat(inner, 3),
        "objective_perturbation": events.ObjectivePerturbation(1.0, 0.1),
        "student_t": events.StudentT(1.0, 4.0, (1.0, 0.5), (1, 3)),
        "randomized_response": events.RandomizedResponse(1.0), "poisson": Poisson(0.1, inner), "group": events.Group(inner, 2),
        "poisson_replace": events.PoissonReplace(0.1, inner),
        "without_replacement": events.WithoutReplacement(0.1, inner), "random_allocation": events.RandomAllocation(inner, 4),
        "shuffled": events.Shuffled(events.RandomizedResponse(1.0), 10), "sequence": events.Sequence([inner, inner]),
    }  # fmt: skip
    assert len(text.mechanism(made[kind])) > 15


def test_deep_and_long_events_stay_short() -> None:
    long = events.Sequence([Pure(0.001)] * 500)
    assert len(text.mechanism(long)) <= 400
    deep: Any = Pure(0.001)
    for _ in range(40):
        deep = Repeat(deep, 1)
    assert len(text.mechanism(deep)) <= 400


def test_an_event_without_a_bound_is_no_ceiling() -> None:
    found_so = found(Release(value=1, source="people", claims=(Claim(game=COUNT.game, event=Approximate(1.0, 0.999)),)))
    assert found_so.ceilings[0].curve is None
    assert found_so.status == "no ceiling"


def test_what_was_not_tried_follows_from_the_view_and_the_attacks() -> None:
    said = " ".join(found(leaky()).not_tried)
    assert "predicted labels alone" in said
    assert "Canaries planted" in said
    assert "weights in hand" not in said  # `gradient` is such an attack
    assert "comparison with models like it" not in said  # so is lira
    assert "below 0.1 %" in said
    said = " ".join(found(private()).not_tried)
    assert "Canaries planted" not in said
    assert "Attackers who hold the weights" in said
    assert "Differencing" not in said
    assert "Differencing" in " ".join(found(Release(value=1, source="people", claims=(COUNT,))).not_tried)


def test_mislabelled_canaries_are_no_attack_on_labels() -> None:
    only = replace(private(), evidence=(evidence(0.1, attack="mislabelled canaries", design="canary"),))
    assert "predicted labels alone" in " ".join(found(only).not_tried)


def test_a_release_may_say_itself_what_was_not_tried() -> None:
    assert found(replace(private(), facts={"not_tried": ["nothing"]})).not_tried == ("nothing",)


def test_all_evidence_post_hoc_is_said() -> None:
    only = replace(private(), evidence=(evidence(0.05),))
    assert "all evidence is post hoc, so it can only warn" in " ".join(found(only).not_tried)


def test_releases_are_told_apart() -> None:
    names = [item.title for item in assess([broken(), broken(), private()])]
    assert names == ["Release from clinic (1)", "Release from clinic (2)", "Readmission model, trained privately"]


def test_of_releases_without_attacks_the_weakest_claim_is_the_worst() -> None:
    game = Game(record(), {"weights"})
    releases = [
        Release(value=1, source="people", claims=(Claim(game=game, event=Gaussian(noise)),), facts={"title": str(noise)})
        for noise in (4.0, 0.5, 1.0)
    ]
    assert [item.title for item in ordered(assess(releases))] == ["0.5", "1.0", "4.0"]


def test_several_releases_have_one_sentence() -> None:
    said = overall(assess([leaky(), private(), broken(), broken()]))
    assert said == (
        "Of 4 releases, 2 broke the promises made for them, 1 has no ceiling, and attacks recognise its members, "
        "1 stayed within its ceiling under attack."
    )
    assert STATUSES.index("refuted") < STATUSES.index("holds")


def test_what_is_no_release_is_refused(tmp_path: Any) -> None:
    with pytest.raises(InvalidValue, match="at least one release"):
        assess([])
    with pytest.raises(InvalidValue, match="a release, the name of its file, or a list of them"):
        assess(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="got an int"):
        assess([3])  # type: ignore[list-item]
    path = private().save(tmp_path / "release.json")
    path.write_text(path.read_text()[:-500])
    with pytest.raises(InvalidDocument, match="it may be cut short"):
        assess(path)


def test_a_file_is_known_by_its_hash(tmp_path: Any) -> None:
    path = broken().save(tmp_path / "release.json")
    (only,) = assess(str(path))
    assert only.hash is not None
    assert only.hash.startswith("sha256:")
    assert found(broken()).hash is None


def test_the_epsilon_of_a_claim_is_never_below_its_curve() -> None:
    from discreet.accounting import curve

    only = found(Release(value=1, source="people", claims=(TRAINED,)))
    for delta, epsilon in only.ceilings[0].epsilons:
        assert epsilon == curve(TRAINED.event).epsilon(delta)
    assert np.isfinite(only.ceilings[0].beliefs[-1][1])


def test_an_outcome_has_one_word_on_every_surface() -> None:
    """What `audit` and the gate call `holds` was `not broken` in the headline and `stayed within` in the table."""
    from discreet.core.verdict import OUTCOMES
    from discreet.report import sentences

    assert set(OUTCOMES) - {"incomparable"} <= set(sentences.STATUSES)
    quiet = replace(private(), evidence=(evidence(0.05),))
    page, plain = report.html(quiet), report.markdown(quiet)
    badges = set(re.findall(r'class="badge [^"]*"><span[^>]*>[^<]*</span>([^<]*)<', page))
    assert badges == {"holds"} == {appraise(each, quiet.claims).outcome for each in quiet.evidence}
    assert plain.splitlines()[4].startswith("**holds.**")
    assert "holds" in plain


def test_reversed_scores_are_told_as_the_gate_reads_them() -> None:
    """Scores that are lower for members were 0 % recognised at an area of .08 in a release that leaks, and failed the gate."""
    draw, inside = np.random.default_rng(0), np.arange(8000) % 2 == 0
    seen = Evidence(game=Game(record(), {"scores"}), attack="lira", score=draw.normal(size=8000) - 2.0 * inside, inside=inside,
                    run=np.zeros(8000, int), design="post_hoc")  # fmt: skip
    release = Release(value=1, source="people", claims=(), evidence=(seen,))
    (told,) = report.document(release)["releases"]
    (row,) = told["evidence"]
    (area,) = Area(name="auc", line=1, attack="*", limit=0.6, confidence=0.95).judge(release)
    assert (row["auc"], row["auc_interval"]["low"]) == (area.value, area.low)
    assert row["auc"] > 0.9
    for each in row["rates"]:
        (rate,) = Rate(name="tpr", line=1, attack="*", limit=0.5, confidence=0.95, fpr=each["fpr"]).judge(release)
        assert (each["tpr"], each["low"], each["high"]) == (rate.value, rate.low, rate.high)
    assert told["verdict"]["status"] == "leaks"
    assert any("read reversed" in alert for alert in report.document(release)["decision"]["alerts"])
