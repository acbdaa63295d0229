"""A release and the entry it names: which entries pay, and every way in which one does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from discreet import Ledger, Release, record
from discreet.accounting import Gaussian, NonPrivate, Pure
from discreet.core import Claim, Event, Game, Repeat, Sequence, Zero
from discreet.errors import BudgetExceeded, InvalidValue


def claim(event: Event, *assumptions: str) -> Claim:
    return Claim(game=Game(record(), {"answers"}), event=event, assumptions=assumptions)


CLAIMS = (claim(Gaussian(50.0)), claim(Pure(0.01)))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.db")
    for source in ("people", "visits"):
        ledger.open(source, unit=record(), epsilon=1.0, delta=1e-6)
    ledger.share("people", "ann", 0.5, by="owner")
    return ledger


def paid(ledger: Ledger, source: str = "people", account: str | None = None) -> Release[Any]:
    with ledger.reserve(source, CLAIMS, account=account) as entry:
        return Release(value=7, source=source, claims=CLAIMS, entry=entry)


def test_what_was_paid_for_is_sound_in_every_form(ledger: Ledger, tmp_path: Path) -> None:
    release = paid(ledger)
    again = Release.load(release.save(tmp_path / "release.json"))
    reordered = replace(release, claims=CLAIMS[::-1])
    for each in (
        release,
        again,
        reordered,
        release.map(lambda value: value + 1),
        replace(release, facts={"account": "default"}),
    ):
        found = ledger.payment(each)
        assert found.sound
        assert (found.state, found.fault) == ("settled", None)
        assert found.entry is not None
        assert found.entry.id == release.entry


def test_while_it_runs_and_after_a_crash_it_is_paid(ledger: Ledger) -> None:
    charge = ledger.reserve("people", CLAIMS)
    release = Release(value=7, source="people", claims=CLAIMS, entry=charge.id)
    assert "never started" in str(ledger.payment(release).fault)
    charge.started()
    assert ledger.payment(release).sound
    assert ledger.payment(release).state == "started"


def test_a_release_that_names_no_entry_is_not_sound_and_not_contradicted(ledger: Ledger) -> None:
    found = ledger.payment(Release(value=7, source="people", claims=CLAIMS))
    assert (found.entry, found.state, found.fault, found.sound) == (None, None, None, False)


EDITS: dict[str, tuple[Claim, ...]] = {
    "less noise than paid for": (claim(Gaussian(60.0)), CLAIMS[1]),
    "one claim left out": CLAIMS[:1],
    "one claim twice": (CLAIMS[0], CLAIMS[0]),
    "one more": (*CLAIMS, claim(Pure(0.5))),
    "another view": (replace(CLAIMS[0], game=Game(record(), {"scores"})), CLAIMS[1]),
    "another unit": (replace(CLAIMS[0], game=Game(record("replace"), {"answers"})), CLAIMS[1]),
    "other assumptions": (claim(Gaussian(50.0), "nobody looks"), CLAIMS[1]),
    "a promise of nothing": (claim(NonPrivate()),),
    "no claim": (),
    "one more that promises nothing": (*CLAIMS, claim(NonPrivate())),
    "the last digit": (claim(Gaussian(50.00000000000001)), CLAIMS[1]),
}


@pytest.mark.parametrize("edit", EDITS)
def test_edited_claims_are_found(ledger: Ledger, edit: str) -> None:
    found = ledger.payment(replace(paid(ledger), claims=EDITS[edit]))
    assert found.fault == f"its claims are not those that entry {found.entry.id}, which it names, paid for"  # type: ignore[union-attr]


def test_borrowed_entries_are_found(ledger: Ledger, tmp_path: Path) -> None:
    release = paid(ledger)
    assert "paid for 'people'; the release is from 'visits'" in str(ledger.payment(replace(release, source="visits")).fault)
    ann = paid(ledger, account="ann")
    assert ledger.payment(replace(ann, facts={"account": "ann"})).sound
    assert "by the account 'ann', and not by its own" in str(ledger.payment(replace(ann, facts={"account": "bob"})).fault)
    with Ledger(tmp_path / "other.db") as other:
        for source in ("people", "visits"):
            other.open(source, unit=record(), epsilon=1.0, delta=1e-6)
        assert "has no such entry" in str(other.payment(release).fault)


@pytest.mark.parametrize(
    "name", ["x", "0-0000000000000000", "3-0000000000000000", "99-0123456789abcdef", "-1-0", "3", "9" * 30]
)
def test_an_entry_that_is_not_there_is_found(ledger: Ledger, name: str) -> None:
    paid(ledger)
    assert "the ledger has no such entry" in str(
        ledger.payment(Release(value=7, source="people", claims=CLAIMS, entry=name)).fault
    )


def test_refused_cancelled_and_other_entries_pay_for_nothing(ledger: Ledger) -> None:
    charge = ledger.reserve("people", CLAIMS)
    charge.cancel("did_not_run")
    release = Release(value=7, source="people", claims=CLAIMS, entry=charge.id)
    assert "was cancelled, and its budget was given back" in str(ledger.payment(release).fault)
    with pytest.raises(BudgetExceeded):
        ledger.reserve("people", claim(Gaussian(0.01)))
    refused = ledger.history()[-1]
    assert refused.kind == "refuse"
    assert "refused the charge: nothing was paid" in str(ledger.payment(replace(release, entry=refused.id)).fault)
    with ledger.reserve("people", CLAIMS):
        pass
    for entry in ledger.history():
        if entry.kind not in ("reserve", "refuse"):
            assert "is no charge" in str(ledger.payment(replace(release, entry=entry.id)).fault)


def test_an_entry_that_was_changed_in_the_file_pays_for_nothing(ledger: Ledger) -> None:
    release = paid(ledger)
    link = ledger._store._connection()  # type: ignore[attr-defined]
    link.execute("DROP TRIGGER entry_is_never_changed")
    link.execute("UPDATE entry SET body = replace(body, '50.0', '60.0')")
    edited = replace(release, claims=(claim(Gaussian(60.0)), CLAIMS[1]))
    for each in (release, edited):
        assert "has no such entry" in str(ledger.payment(each).fault)


# ---- several entries -----------------------------------------------------------------------------------------------------

STEP = Gaussian(80.0)
BEGUN, AGAIN = claim(Sequence([Pure(0.01), Repeat(STEP, 12)]), "one"), claim(Repeat(STEP, 3), "two")
WHOLE = claim(Sequence([Pure(0.01), Repeat(STEP, 15)]), "one", "two", "interrupted by chance")


def twice_paid(ledger: Ledger) -> Release[Any]:
    """A run that was paid for, and steps of it that were paid for again."""
    with ledger.reserve("people", BEGUN) as one, ledger.reserve("people", AGAIN) as two:
        return Release(value=7, source="people", claims=(WHOLE,), entry=one, also=(two,))


def test_a_release_that_composes_what_its_entries_paid_for_is_sound(ledger: Ledger, tmp_path: Path) -> None:
    release = twice_paid(ledger)
    unrolled = claim(Sequence([Repeat(Repeat(STEP, 5), 3), Zero(), Pure(0.01)]), *WHOLE.assumptions)
    for each in (
        release,
        Release.load(release.save(tmp_path / "release.json")),
        replace(release, entry=release.also[0], also=(release.entry,)),
        replace(release, claims=(unrolled,)),
        replace(release, facts={"account": "default"}),
    ):
        found = ledger.payment(each)
        assert found.sound, found.fault
        assert {entry.id for entry in found.entries} == set(release.entries)
        assert found.states == ("settled", "settled")
    assert str(ledger.payment(release)) == f"entries {release.entry} (settled) and {release.also[0]} (settled)"


UNPAID: dict[str, tuple[Claim, ...]] = {
    "one step more": (claim(Sequence([Pure(0.01), Repeat(STEP, 16)]), *WHOLE.assumptions),),
    "one step less": (claim(Sequence([Pure(0.01), Repeat(STEP, 14)]), *WHOLE.assumptions),),
    "the first entry alone": (BEGUN,),
    "more noise than paid for": (claim(Sequence([Pure(0.01), Repeat(Gaussian(81.0), 15)]), *WHOLE.assumptions),),
    "less noise than paid for": (claim(Sequence([Pure(0.01), Repeat(Gaussian(79.0), 15)]), *WHOLE.assumptions),),
    "the count left out": (claim(Repeat(STEP, 15), *WHOLE.assumptions),),
    "an assumption left out": (claim(WHOLE.event, "one"),),
    "two ceilings instead of their sum": (BEGUN, AGAIN),
    "another view": (replace(WHOLE, game=Game(record(), {"scores"})),),
    "one more game": (WHOLE, replace(AGAIN, game=Game(record(), {"scores"}))),
    "no claim": (),
    "a promise of nothing": (claim(NonPrivate(), *WHOLE.assumptions),),
}


@pytest.mark.parametrize("edit", UNPAID)
def test_claims_that_several_entries_do_not_cover_are_found(ledger: Ledger, edit: str) -> None:
    release = replace(twice_paid(ledger), claims=UNPAID[edit])
    found = ledger.payment(release)
    assert not found.sound
    assert found.fault == (
        f"its claims are not those that entries {release.entry} and {release.also[0]}, which it names, paid for together"
    )


def test_every_entry_must_have_paid(ledger: Ledger) -> None:
    release = twice_paid(ledger)
    assert "are not those that entry" in str(ledger.payment(replace(release, also=())).fault)  # what one paid for is not enough
    other = ledger.reserve("people", AGAIN)
    assert "never started" in str(ledger.payment(replace(release, also=(other.id,))).fault)
    other.cancel("did_not_run")
    assert "was cancelled" in str(ledger.payment(replace(release, also=(other.id,))).fault)
    assert "has no such entry" in str(ledger.payment(replace(release, also=("9-0123456789abcdef",))).fault)
    with ledger.reserve("visits", AGAIN) as elsewhere:
        assert "paid for 'visits'" in str(ledger.payment(replace(release, also=(elsewhere,))).fault)
    with ledger.reserve("people", AGAIN, account="ann") as ann:
        found = ledger.payment(replace(release, also=(ann,), facts={"account": "default"}))
        assert "by the account 'ann'" in str(found.fault)
    with ledger.reserve("people", AGAIN) as third:  # a payment that the claims do not know of
        assert "paid for together" in str(ledger.payment(replace(release, also=(*release.also, third))).fault)


def test_a_charge_is_settled_by_its_id_and_never_given_back(ledger: Ledger) -> None:
    """As where a run was killed and went on in another process."""
    charge = ledger.reserve("people", AGAIN)
    with pytest.raises(InvalidValue, match="never started"):
        ledger.settle(charge.id)
    charge.started()
    spent = ledger.spent("people")
    ledger.settle(charge.id)
    ledger.settle(charge.id)
    assert (charge.state, ledger.spent("people")) == ("settled", spent)
    assert [entry.kind for entry in ledger.history("people")][-2:] == ["reserve", "settle"]
    with pytest.raises(InvalidValue, match="nothing can be given back"):
        charge.cancel("did_not_run")
    other = ledger.reserve("people", AGAIN)
    other.cancel("did_not_run")
    for wrong, match in ((other.id, "was cancelled"), ("1-0", "no charge"), (ledger.history()[0].id, "no charge")):
        with pytest.raises(InvalidValue, match=match):
            ledger.settle(wrong)
    ledger.verify()
