"""A run that goes on after SIGKILL: what was changed is told with its price, and what is paid is named, settled and covered.

No test here depends on chance: noise is drawn, and no number is compared that it could change.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import discreet
from discreet import report
from discreet.accounting import curve
from discreet.core import Release
from discreet.errors import BudgetExceeded, InvalidDocument
from discreet.learn import Checkpoint
from discreet.learn.sgd.checkpoint import OLDER
from discreet.learn.sgd.journal import Journal, beside
from discreet.ledger import Ledger
from unit.learn.sgd.test_resume import EVERY, KILLED_AT, STEPS, Each, People, Shifted, begin, killed, place, resumed, updates

__all__ = ["killed", "place"]  # fixtures

torch.set_num_threads(1)


def kinds(place: Path) -> list[str]:
    return [entry.kind for entry in Ledger(place / "ledger.db").history("people")]


def changed(place: Path, *, momentum: float = 0.9, decay: float = 0.9, speed: float = 0.5, weight_decay: float = 0.0,
            resume: str = "exact", **more):  # fmt: skip
    """The killed run once more, with settings that torch's load_state_dict would replace without a word."""
    torch.manual_seed(11)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.25), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), speed, momentum=momentum, weight_decay=weight_decay)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, decay)
    return discreet.learn.train(
        model, optimizer, People(), Each(), unit=discreet.record(), delta=1e-5, rate=0.5, steps=STEPS, clip_norm=1.0,
        divisor=30.0, noise_multiplier=2.0, scheduler=scheduler, augment=Shifted(0.0),
        checkpoint=Checkpoint(place / "run", every=EVERY, resume=resume),
        ledger=Ledger(place / "ledger.db"), source="people", **more,
    )  # fmt: skip


SETTINGS = {
    "initial_lr": {"speed": 0.05}, "momentum": {"momentum": 0.5}, "weight_decay": {"weight_decay": 0.1},
    "gamma": {"decay": 0.5},
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_a_changed_setting_stops_the_run_and_names_its_price(place: Path, name: str) -> None:
    with pytest.raises(InvalidDocument, match=f"another {name} of the optimizer or its scheduler") as caught:
        changed(place, **SETTINGS[name])
    told = re.search(r"at most epsilon ([\d.]+) more at delta 1e-05", str(caught.value))
    assert told is not None
    price = curve(begin(place / "other").plan.again(KILLED_AT - EVERY)).epsilon(1e-5)
    assert price <= float(told[1]) <= price * 1.001
    assert kinds(place) == ["open", "reserve"]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_changed_setting_is_used_where_it_is_paid_for(place: Path, name: str) -> None:
    run = changed(place, resume="pay", **SETTINGS[name])
    group = run.optimizer.param_groups[0]
    wanted = {"momentum": 0.9, "weight_decay": 0.0, "initial_lr": 0.5, **{name: next(iter(SETTINGS[name].values()))}}
    assert {key: group[key] for key in ("momentum", "weight_decay", "initial_lr")} == {
        key: wanted[key] for key in ("momentum", "weight_decay", "initial_lr")
    }
    assert group["lr"] == pytest.approx(wanted["initial_lr"] * 0.9**EVERY)
    assert run._parts.scheduler.gamma == wanted.get("gamma", 0.9)
    again, seen = updates(run), torch.load(place / "seen")
    assert run._state.extra == sum(not torch.equal(now, then) for now, then in zip(again, seen[EVERY:], strict=False)) > 0


def test_unchanged_settings_go_on(place: Path) -> None:
    run = changed(place)
    assert run.optimizer.param_groups[0]["lr"] == pytest.approx(0.5 * 0.9**EVERY)
    updates(run)
    assert run._state.extra == 0


def test_settings_without_a_scheduler_and_moved_by_hand(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    for step in run:
        run.optimizer.param_groups[0]["lr"] = 0.5 / step.number
        if step.number == EVERY:
            break
    assert begin(tmp_path / "run").optimizer.param_groups[0]["lr"] == 0.5 / 3  # as it was when the checkpoint was written
    updates(begin(tmp_path / "still"), until=EVERY)
    with pytest.raises(InvalidDocument, match=r"another lr .*no step was lost, so that costs nothing"):
        begin(tmp_path / "still", speed=0.1)
    run = begin(tmp_path / "still", speed=0.1, resume="pay")
    updates(run)
    assert (run.optimizer.param_groups[0]["lr"], run._state.extra) == (0.1, 0)


def test_other_rows_are_refused_with_their_price(tmp_path: Path) -> None:
    tensors = (People().x, People().y)
    updates(begin(tmp_path / "run", data=tensors), until=KILLED_AT)
    price = curve(begin(tmp_path / "other").plan.again(KILLED_AT - EVERY)).epsilon(1e-5)
    for data in ((People(3).x, People().y), (tensors[0][:50], tensors[1][:50])):
        with pytest.raises(InvalidDocument, match=r"other rows|another number of units") as caught:
            begin(tmp_path / "run", data=data)
        told = re.search(r"at most epsilon ([\d.]+) more", str(caught.value))
        assert told is not None
        assert float(told[1]) >= price


# ---- the ledger ----------------------------------------------------------------------------------------------------------


def test_a_release_that_was_paid_for_twice_names_both_entries(place: Path) -> None:
    ledger = Ledger(place / "ledger.db")
    run = resumed(place, resume="pay", data=People(changed=3))
    updates(run)
    release = run.release(place / "model")
    payment = ledger.payment(release)
    assert payment.sound, payment.fault
    assert len(release.entries) == 2
    assert payment.states == ("settled", "settled")
    assert kinds(place) == ["open", "reserve", "reserve", "settle", "settle"]
    read = Release.load(place / "model" / "release.json")
    assert read.entries == release.entries
    assert report.document(read, ledger=ledger)["releases"][0]["verdict"]["status"] != "contradicted"
    for entry in release.entries:  # either one alone does not cover the claim
        assert "are not those" in str(ledger.payment(replace(release, entry=entry, also=())).fault)
    ledger.verify()


@pytest.mark.parametrize("released", [False, True])
def test_a_resumed_run_is_settled_when_it_ends(place: Path, released: bool) -> None:
    before = Ledger(place / "ledger.db").spent("people")
    run = resumed(place)
    steps = iter(run)
    next(steps)
    assert kinds(place) == ["open", "reserve"]
    for _ in steps:
        assert run.number < STEPS or kinds(place)[-1] == "settle"
    if released:
        run.release()
    assert kinds(place) == ["open", "reserve", "settle"]
    assert Ledger(place / "ledger.db").spent("people") == before
    again = resumed(place)  # killed after its last step: released by another process
    assert Ledger(place / "ledger.db").payment(again.release()).sound
    assert kinds(place) == ["open", "reserve", "settle"]


def test_a_run_that_stops_early_is_settled_by_its_release(place: Path) -> None:
    run = resumed(place)
    updates(run, until=9)
    assert kinds(place) == ["open", "reserve"]
    run.release()
    assert kinds(place) == ["open", "reserve", "settle"]


@pytest.mark.parametrize("spare", [0.0, 0.5, 1.5])
def test_a_source_that_adds_up_pairs_pays_for_lost_steps_as_a_pair(tmp_path: Path, spare: float) -> None:
    """The first charge takes its delta, whole: the second has what is left of it, and is refused where nothing is."""
    ledger = Ledger(tmp_path / "ledger.db")
    options = {"ledger": ledger, "source": "people"}
    plan = begin(tmp_path / "probe").plan
    ledger.open("people", unit=discreet.record(), epsilon=plan.epsilon() + 1e-6, delta=1e-5)
    updates(begin(tmp_path / "run", **options), until=KILLED_AT)
    assert ledger.balance("people").basic
    more = curve(plan.again(KILLED_AT - EVERY)).epsilon(0.99e-5 * min(spare or 1.0, 1.0))
    ledger.raise_budget(
        "people", epsilon=plan.epsilon() + more + 1e-6, delta=1e-5 * (1 + spare), by="owner", reason="lost steps"
    )
    run = begin(tmp_path / "run", data=People(changed=3), resume="pay", **options)
    if not spare:
        with pytest.raises(BudgetExceeded, match="adds up \\(epsilon, delta\\) pairs") as caught:
            updates(run)
        assert 'resume="exact"' in caught.value.__notes__[0]
        back = begin(tmp_path / "run", **options)  # nothing is lost: it goes on as it began
        updates(back)
        assert ledger.payment(back.release()).sound
        return
    updates(run)
    assert ledger.payment(run.release()).sound
    ledger.verify()


# ---- the journal ---------------------------------------------------------------------------------------------------------


def cut(journal: Path, lines: int) -> None:
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:lines]))


@pytest.mark.parametrize("lines", range(1, 1 + EVERY))
def test_a_journal_that_was_cut_back_is_not_believed(place: Path, lines: int) -> None:
    cut(beside(place / "run"), lines)  # its first line says that it begins; the checkpoint is of EVERY steps
    with pytest.raises(InvalidDocument, match="missing or was cut back"):
        resumed(place)
    run = resumed(place, resume="pay")
    updates(run)
    assert run._state.extra == STEPS - EVERY  # all steps count as released


def test_a_journal_that_is_cut_back_under_a_run_still_holds(tmp_path: Path) -> None:
    key, journal = bytes(32), Journal(tmp_path / "run.steps")
    journal.begin(key)
    assert all(journal.admit(key, step, "a") for step in range(3))
    cut(journal.path, 1)
    assert not journal.admit(key, 0, "b")
    assert (journal.released(key), journal.lines(key)) == (3, 3)
    assert Journal(journal.path).released(key, least=3) is None
    journal.path.unlink()
    assert not journal.admit(key, 2, "b")


def test_a_checkpoint_of_the_format_before_is_read(place: Path) -> None:
    document = torch.load(place / "run", weights_only=True)
    document["format"], document["entry"] = OLDER, document.pop("entries")[0]
    del document["settings"], document["noted"]
    torch.save(document, place / "run")
    run = resumed(place)
    updates(run)
    assert Ledger(place / "ledger.db").payment(run.release()).sound
    assert kinds(place) == ["open", "reserve", "settle"]
