"""Which events a claim may carry: the table of the documentation, the refusals, and documents from before."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from discreet import Ledger, Release, record, user
from discreet.core import claim as claims
from discreet.core import event as events
from discreet.core.adjacency import STATED, check_relation, relations, replaced
from discreet.core.claim import Claim
from discreet.core.event import KINDS, Gaussian, Group, Poisson, PoissonReplace, Repeat, Sequence, Shuffled, WithoutReplacement
from discreet.core.game import RELATIONS, Game
from discreet.errors import InvalidDocument, InvalidValue
from discreet.ledger import budget

PAGE = Path(__file__).parents[3] / "docs/theory/adjacency.md"
ROWS = [re.findall(r"[^|]+", line) for line in PAGE.read_text().splitlines() if line.startswith("| `")]
NOISE = Gaussian(1.0)
IN_OR_OUT, SWAP = Poisson(0.1, NOISE), WithoutReplacement(0.1, NOISE)  # each for some relations only


def about(relation: str, event: events.Event) -> Claim:
    return Claim(game=Game(record(relation), {"answers"}), event=event)


def examples(kind: type, inner: events.Event) -> events.Event:
    """An event of this kind, with `inner` inside it where it holds others."""
    made: dict[type, Any] = {
        events.Zero: events.Zero, events.NonPrivate: events.NonPrivate, events.Pure: lambda: events.Pure(1.0),
        events.Approximate: lambda: events.Approximate(1.0, 1e-6), events.Gaussian: lambda: Gaussian(1.0),
        events.Laplace: lambda: events.Laplace(1.0), events.DiscreteGaussian: lambda: events.DiscreteGaussian(1.0),
        events.DiscreteLaplace: lambda: events.DiscreteLaplace(1.0), events.Exponential: lambda: events.Exponential(1.0),
        events.Concentrated: lambda: events.Concentrated(0.1),
        events.NoisyMax: lambda: events.NoisyMax(1.0), events.RandomizedResponse: lambda: events.RandomizedResponse(1.0),
            events.ObjectivePerturbation: lambda: events.ObjectivePerturbation(1.0, 0.1),
        events.Poisson: lambda: Poisson(0.1, inner), events.PoissonReplace: lambda: PoissonReplace(0.1, inner),
        events.WithoutReplacement: lambda: WithoutReplacement(0.1, inner),
        events.RandomAllocation: lambda: events.RandomAllocation(inner, 4), events.Shuffled: lambda: Shuffled(inner, 9),
        events.Repeat: lambda: Repeat(inner, 3), events.Sequence: lambda: Sequence([NOISE, inner]),
        events.Group: lambda: Group(inner, 2), events.StudentT: lambda: events.StudentT(1.0, 4.0, (1.0,), (1,)),
    }  # fmt: skip
    built: events.Event = made[kind]()
    return built


def test_every_kind_of_event_states_its_relations() -> None:
    assert set(STATED) == set(KINDS.values())
    assert sorted(re.findall(r"`(\w+)`", row[0])[0] for row in ROWS) == sorted(kind.__name__ for kind in KINDS.values())


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_table_says_what_a_claim_takes(kind: type, relation: str) -> None:
    """yes, no, or for which relation the event inside is read: tried with one inside that is for no other."""
    row = next(row for row in ROWS if f"`{kind.__name__}`" in row[0])
    cell = row[1 + RELATIONS.index(relation)].strip()
    read_for = {"no": set(), "yes": {relation}, "inside": {relation}}.get(cell)
    if read_for is None:
        read_for = {each for each in RELATIONS if f"inside: {each}" in cell} | (
            {relation} if cell.startswith("inside,") else set()
        )
    assert taken(relation, examples(kind, NOISE)) == bool(read_for)
    if hasattr(examples(kind, NOISE), "event") or kind is Sequence:
        assert taken(relation, examples(kind, IN_OR_OUT)) == bool(read_for & {"add_remove", "zero_out"})
        assert taken(relation, examples(kind, SWAP)) == ("replace" in read_for)


def taken(relation: str, event: events.Event) -> bool:
    """Whether a claim takes it; `relations` must say the same."""
    try:
        about(relation, event)
    except InvalidValue:
        assert relation not in relations(event)
        return False
    assert relation in relations(event)
    return True


def nested(rng: random.Random, depth: int) -> tuple[events.Event, set[str]]:
    """An event with others inside it, and the relations it is for, by the table's words and none of the code's."""
    if not depth:
        return rng.choice([(NOISE, set(RELATIONS)), (IN_OR_OUT, {"add_remove", "zero_out"}), (SWAP, {"replace"})])
    inner, inside = nested(rng, depth - 1)
    other, beside = nested(rng, rng.randrange(depth))
    size = rng.randrange(1, 4)
    pair = {"replace"} if "add_remove" in inside else set()
    return rng.choice([
        (Poisson(rng.choice([0.1, 1.0]), inner), inside - {"replace"}), (PoissonReplace(rng.choice([0.1, 1.0]), inner), pair),
        (WithoutReplacement(0.1, inner), inside & {"replace"}), (events.RandomAllocation(inner, 4), inside - {"replace"}),
        (Shuffled(inner, 9), inside & {"replace"}), (Repeat(inner, 2), inside), (Sequence([inner, other]), inside & beside),
        (Group(inner, size), inside | (pair if size > 1 else set())),
    ])  # fmt: skip


def test_nested_events_are_for_what_all_of_them_are_for() -> None:
    rng = random.Random(1)
    for _ in range(2000):
        event, expected = nested(rng, rng.randrange(1, 5))
        assert {relation for relation in RELATIONS if taken(relation, event)} == expected, event


@pytest.mark.parametrize(
    ("relation", "event", "says"),
    [
        ("replace", Repeat(IN_OR_OUT, 9),
         r"cannot carry Poisson, whose curve is for units that are added or removed or blanked out.*PoissonReplace\(rate, "),
        ("replace", events.RandomAllocation(NOISE, 4), r"RandomAllocation.*Write Group\(event, 2\)"),
        ("add_remove", PoissonReplace(0.1, NOISE), r"are added or removed cannot carry PoissonReplace.*Write Poisson"),
        ("zero_out", SWAP, r"WithoutReplacement, whose curve is for units that are replaced.*relation='replace'"),
        ("add_remove", events.RandomizedResponse(1.0), r"not that they did.*Pure\(epsilon\)"),
        ("replace", PoissonReplace(0.1, SWAP), r"WithoutReplacement.*the event around it reads it for units that are added or "
         r"removed"),
        ("add_remove", Sequence([NOISE, Repeat(Shuffled(events.Pure(1.0), 9), 2)]), "Shuffled"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_event_and_a_way_out(relation: str, event: events.Event, says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        about(relation, event)


def test_a_user_is_treated_like_a_record() -> None:
    with pytest.raises(InvalidValue, match="PoissonReplace"):
        Claim(game=Game(user("id", rows=3, relation="replace"), {"weights"}), event=IN_OR_OUT)


def test_parts_that_agree_on_nothing_fit_no_claim() -> None:
    assert relations(Sequence([IN_OR_OUT, SWAP])) == relations(Poisson(0.5, SWAP)) == relations(Shuffled(IN_OR_OUT, 5)) == ()
    assert relations(Group(IN_OR_OUT, 1)) == ("add_remove", "zero_out")  # one unit does not cover two


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (NOISE, Group(NOISE, 2)),
        (events.Zero(), events.Zero()),
        (Repeat(IN_OR_OUT, 5), Repeat(PoissonReplace(0.1, NOISE), 5)),
        (Sequence([events.RandomAllocation(NOISE, 4), IN_OR_OUT]),
         Sequence([Group(events.RandomAllocation(NOISE, 4), 2), PoissonReplace(0.1, NOISE)])),
        (Group(IN_OR_OUT, 3), Group(Group(IN_OR_OUT, 3), 2)),
    ],
)  # fmt: skip
def test_replaced_says_what_ran_for_a_unit_that_is_replaced(event: events.Event, expected: events.Event) -> None:
    assert replaced(event) == expected
    check_relation(replaced(event), "replace")


def test_only_an_add_remove_event_can_be_restated() -> None:
    with pytest.raises(InvalidValue, match="WithoutReplacement"):
        replaced(SWAP)
    with pytest.raises(InvalidValue, match="must be an event"):
        relations("gaussian")  # type: ignore[arg-type]


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> Claim:
    """A claim as earlier versions made it: never checked."""
    with monkeypatch.context() as patched:
        patched.setattr(claims, "check_relation", lambda event, relation: None)
        return about("replace", Repeat(Poisson(0.1, Gaussian(9.0)), 10))


def test_a_false_claim_in_a_document_is_refused_with_the_reason(before: Claim, tmp_path: Path) -> None:
    with pytest.raises(InvalidDocument, match=r"The claim is not valid: .*cannot carry Poisson"):
        Claim.from_json(before.to_json())
    document = Release(value=1, source="people", claims=(before,), entry=None, evidence=()).to_json()
    (tmp_path / "release.json").write_text(json.dumps(document))
    with pytest.raises(InvalidDocument, match="PoissonReplace"):
        Release.load(tmp_path / "release.json")


def test_a_ledger_that_charged_a_false_claim_is_still_read_and_charges_no_other(
    before: Claim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", unit=record("replace"), epsilon=2.0, delta=1e-5)
    with monkeypatch.context() as patched:
        patched.setattr(budget, "check_relation", lambda event, relation: None)
        ledger.reserve("people", before)
    again = Ledger(tmp_path / "ledger.db")
    assert again.spent("people") > 0
    assert [entry.kind for entry in again.history()] == ["open", "reserve"]
    assert again.verify()
    with pytest.raises(InvalidValue, match="cannot carry Poisson"):
        again.reserve("people", before)
    spent = again.balance("people").spent.divergence
    again.reserve("people", about("replace", Repeat(PoissonReplace(0.1, Gaussian(9.0)), 10)))
    assert again.balance("people").spent.divergence - spent > 3 * spent  # what is true costs about four times as much
