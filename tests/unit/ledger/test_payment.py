"""A release and the entry it names: which entries pay, and every way in which one does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from discreet import Ledger, Release, record
from discreet.accounting import Gaussian, NonPrivate, Pure
from discreet.core import Claim, Event, Game
from discreet.errors import BudgetExceeded


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
