"""Resuming never reuses noise: a step that was released is repeated bit for bit, or gets fresh noise and is paid for.

A run is killed with SIGKILL three steps after its last checkpoint and continued with something changed. Seeds are fixed
wherever numbers are compared, so nothing here can fail by chance but a keyed hash (2^-128).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import discreet
from discreet.accounting import curve
from discreet.core.event import Gaussian, Poisson, RandomAllocation, Repeat
from discreet.errors import BudgetExceeded, InvalidDocument, InvalidValue
from discreet.learn import BallsInBins, BandMF, Checkpoint, train
from discreet.learn.sgd import sampling
from discreet.learn.sgd.banded import Banded, Correlated
from discreet.learn.sgd.journal import Journal, beside, fingerprint
from discreet.learn.sgd.resume import Recovery
from discreet.learn.sgd.stream import Stream
from discreet.ledger import Ledger
from discreet.noise import ciphers
from discreet.noise.source import seeded_for_tests

torch.set_num_threads(1)

SRC = Path(discreet.__file__).parents[1]
STEPS, EVERY, KILLED_AT = 12, 4, 7


class People(Dataset):
    """Rows that no checkpoint can take a fingerprint of; some of them may have changed."""

    def __init__(self, changed: int | None = None) -> None:
        generator = torch.Generator().manual_seed(7)
        self.x = torch.randn(60, 6, generator=generator)
        self.y = torch.randint(3, (60,), generator=generator)
        if changed is not None:
            self.x[changed:] += 3

    def __len__(self) -> int:
        return 60

    def __getitem__(self, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.x[row], self.y[row]


class Each(nn.Module):
    """A loss whose name does not tell its weight."""

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.weight * nn.functional.cross_entropy(output, target, reduction="none")


class Shifted:
    """An augmentation whose name does not tell how far."""

    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.by


def begin(
    checkpoint: Path, *, data: Dataset | None = None, loss: nn.Module | None = None, speed: float = 0.5, shift: float = 0.0,
    decay: float | None = None, resume: str = "exact", **options: object,
) -> discreet.learn.Run:  # fmt: skip
    torch.manual_seed(11)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.25), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), speed, momentum=0.9)
    given = {"unit": discreet.record(), "delta": 1e-5, "rate": 0.5, "steps": STEPS, "clip_norm": 1.0, "divisor": 30.0,
             "noise_multiplier": 2.0} | options  # fmt: skip
    if decay is not None:
        given["scheduler"] = torch.optim.lr_scheduler.ExponentialLR(optimizer, decay)
    kept = Checkpoint(checkpoint, every=EVERY, resume=resume)
    return train(model, optimizer, data or People(), loss or Each(), checkpoint=kept, augment=Shifted(shift), **given)


def updates(run: discreet.learn.Run, until: int = STEPS) -> list[torch.Tensor]:
    """The noisy gradient of every step, as an observer of the transcript sees it."""
    seen: list[torch.Tensor] = []
    run.optimizer.register_step_pre_hook(
        lambda *_: seen.append(torch.cat([p.grad.flatten() for p in run.model.parameters()]).clone())
    )
    for step in run:
        if step.number == until:
            break
    return seen


KILL = """
import os, signal, sys, torch
sys.path[:0] = {path!r}
from unit.learn.sgd.test_resume import *
ledger = Ledger({place!r} + "/ledger.db")
run = begin(Path({place!r}) / "run", ledger=ledger, source="people", decay=0.9)
seen = []
run.optimizer.register_step_pre_hook(
    lambda *_: seen.append(torch.cat([p.grad.flatten() for p in run.model.parameters()]).clone())
)
for step in run:
    if step.number == KILLED_AT:
        torch.save(seen, {place!r} + "/seen")
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("killed")
    Ledger(place / "ledger.db").open("people", unit=discreet.record(), epsilon=20.0, delta=1e-3)
    script = KILL.format(path=[str(SRC), str(Path(__file__).parents[3])], place=str(place))
    ended = subprocess.run([sys.executable, "-c", script], timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    assert ended.returncode == -signal.SIGKILL
    return place


@pytest.fixture
def place(killed: Path, tmp_path: Path) -> Path:
    """What the killed run has left, for this test alone."""
    shutil.copytree(killed, tmp_path / "left")
    return tmp_path / "left"


CHANGES = {
    "rows": {"data": People(changed=3)},
    "loss of the same name": {"loss": Each(0.3)},
    "augmentation of the same name": {"shift": 0.1},
    "rows that are gone": {"data": torch.utils.data.Subset(People(), range(20))},
}


def resumed(place: Path, **options: object) -> discreet.learn.Run:
    return begin(place / "run", ledger=Ledger(place / "ledger.db"), source="people", **{"decay": 0.9, **options})


def test_unchanged_it_repeats_bit_for_bit_and_pays_nothing(place: Path) -> None:
    before = Ledger(place / "ledger.db").spent("people")
    run = resumed(place)
    assert run.number == EVERY
    seen = torch.load(place / "seen")
    for now, then in zip(updates(run), seen[EVERY:], strict=False):
        assert torch.equal(now, then)
    assert run._state.extra == 0
    assert Ledger(place / "ledger.db").spent("people") == before


@pytest.mark.parametrize("change", CHANGES)
def test_changed_it_stops_before_anything_is_seen(place: Path, change: str) -> None:
    match = "another number of units" if change == "rows that are gone" else "released before and now comes out otherwise"
    with pytest.raises(InvalidDocument, match=match):
        assert updates(resumed(place, **CHANGES[change])) is None
    assert Ledger(place / "ledger.db").history("people")[-1].kind == "reserve"


@pytest.mark.parametrize("change", CHANGES)
def test_changed_it_goes_on_with_fresh_noise_and_is_charged(place: Path, change: str) -> None:
    ledger = Ledger(place / "ledger.db")
    before = ledger.spent("people")
    run = resumed(place, resume="pay", **CHANGES[change])
    again, seen = updates(run), torch.load(place / "seen")
    assert len(again) == STEPS - EVERY
    assert run._state.extra == KILLED_AT - EVERY
    claim = run.release(place / "model").claims[0]
    assert claim.event == Repeat(Poisson(0.5, Gaussian(2.0)), STEPS + KILLED_AT - EVERY)
    assert any("interrupted" in line for line in claim.assumptions)
    assert run.spent() == curve(claim.event).epsilon(1e-5)
    assert ledger.spent("people") > before
    ledger.verify()
    scale = run._noise.scale()
    for now, then in zip(again, seen[EVERY:], strict=False):  # two independent noises: their difference has both
        assert (now - then).std() > scale


def test_without_the_journal_the_noise_would_be_taken_away(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: the same key for another sum shows the difference of the sums with no noise at all."""
    monkeypatch.setattr(Recovery, "admit", lambda self, buffer: True)
    run = resumed(place, loss=Each(0.95))
    again, seen = updates(run), torch.load(place / "seen")
    assert 0 < (again[0] - seen[EVERY]).norm() < 0.3 * run._noise.scale() * again[0].numel() ** 0.5


@pytest.mark.parametrize("other", ["learning rate", "scheduler left out", "scheduler of another speed", "device"])
def test_another_path_of_the_weights_is_seen(place: Path, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first repeated step is the same; the second is taken at other weights."""
    run = resumed(place, resume="pay", **({"decay": None} if other == "scheduler left out" else {}))
    if other == "learning rate":
        run.optimizer.param_groups[0]["lr"] = 0.05
    if other == "scheduler of another speed":
        run._parts.scheduler.gamma = 0.1
    if other == "device":  # a stream for a GPU has other numbers under the same key
        run._noise._source = lambda *_: Stream(run._state.key, "cuda")
    again, seen = updates(run), torch.load(place / "seen")
    if other != "device":
        assert torch.equal(again[0], seen[EVERY])
    assert run._state.extra in (KILLED_AT - EVERY, KILLED_AT - EVERY - 1, KILLED_AT - EVERY - 2)
    assert run._state.extra == sum(not torch.equal(now, then) for now, then in zip(again, seen[EVERY:], strict=False))


def test_a_scheduler_goes_on_where_it_was(tmp_path: Path) -> None:
    with seeded_for_tests(b"scheduled"):
        whole = updates(begin(tmp_path / "whole", decay=0.8))
    with seeded_for_tests(b"scheduled"):
        updates(begin(tmp_path / "run", decay=0.8), until=6)
    run = begin(tmp_path / "run", decay=0.8)
    assert run._parts.scheduler.last_epoch == EVERY
    assert all(torch.equal(one, other) for one, other in zip(updates(run), whole[EVERY:], strict=True))
    assert run.optimizer.param_groups[0]["lr"] == pytest.approx(0.5 * 0.8**STEPS)
    with pytest.raises(InvalidDocument, match="another scheduler"):
        begin(tmp_path / "run")
    for wrong in (object(), torch.optim.lr_scheduler.ReduceLROnPlateau(run.optimizer)):
        with pytest.raises(InvalidValue, match="scheduler"):
            begin(tmp_path / "other", scheduler=wrong)


def test_a_budget_that_does_not_hold_the_repeated_steps(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    options = {"ledger": ledger, "source": "people"}
    probe = begin(tmp_path / "probe")
    ledger.open("people", unit=discreet.record(), epsilon=probe.plan.epsilon() * 1.2, delta=1e-5)
    updates(begin(tmp_path / "run", **options), until=KILLED_AT)
    run = begin(tmp_path / "run", data=People(changed=3), resume="pay", **options)
    with pytest.raises(BudgetExceeded):
        assert updates(run) is None
    assert run.number == EVERY
    assert run._state.extra == 0


def test_a_checkpoint_without_its_journal(tmp_path: Path) -> None:
    """Which steps were released is not known, so all of them count as released."""
    updates(begin(tmp_path / "run"), until=KILLED_AT)
    beside(tmp_path / "run").unlink()
    with pytest.raises(InvalidDocument, match="file of released steps"):
        begin(tmp_path / "run")
    run = begin(tmp_path / "run", resume="pay")
    updates(run)
    assert run._state.extra == STEPS - EVERY


def test_twice_interrupted_twice_paid(tmp_path: Path) -> None:
    updates(begin(tmp_path / "run"), until=7)
    first = begin(tmp_path / "run", data=People(changed=1), resume="pay")
    updates(first, until=6)
    assert first._state.extra == 3
    second = begin(tmp_path / "run", data=People(changed=30), resume="pay")
    assert (second.number, second._state.extra) == (4, 3)
    updates(second)
    assert second._state.extra == 5  # 7 + 2 steps were released when 4 were left to stand: 4 + 3 + 2 + 8 in all
    assert second.plan.claim(second._state.extra).event == Repeat(Poisson(0.5, Gaussian(2.0)), 17)


def test_two_runs_at_once_share_one_journal(tmp_path: Path) -> None:
    """Whoever comes second must release the same sum, or nothing."""
    one, two, three = (begin(tmp_path / "run") for _ in range(3))
    steps = iter(one)
    next(steps)
    two, three = begin(tmp_path / "run"), begin(tmp_path / "run", loss=Each(0.3))
    first, second = iter(two), iter(three)
    next(first)
    with pytest.raises(InvalidDocument, match="comes out otherwise"):
        next(second)
    next(steps)
    assert one.number == 2


def test_a_checkpoint_by_hand_keeps_a_journal_too(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    steps = iter(run)
    next(steps)
    run.save(tmp_path / "hand")
    run.save(tmp_path / "hand")
    next(steps)
    next(steps)
    with pytest.raises(InvalidDocument, match="comes out otherwise"):
        next(iter(begin(tmp_path / "hand", data=People(changed=3))))
    other = begin(tmp_path / "hand", data=People(changed=3), resume="pay")
    updates(other)
    assert other._state.extra == 2


def test_a_run_stops_where_another_went_on_from_its_checkpoint(tmp_path: Path) -> None:
    run = begin(tmp_path / "run")
    steps = iter(run)
    next(steps)
    run.save(tmp_path / "hand")
    updates(begin(tmp_path / "hand", data=People(changed=3)))
    with pytest.raises(InvalidDocument, match="Another run went on"):
        next(steps)


# ---- samplers with a memory, and correlated noise -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "stop", "rounds"),
    [
        ({"rate": None, "sampling": BallsInBins(4)}, 7, 1),  # steps 5 to 7 are of the pass that is taken again
        ({"rate": None, "sampling": BallsInBins(3)}, 8, 2),  # passes of 3: steps 5, 6 and 7, 8
        ({"rate": None, "sampling": BallsInBins(6)}, 6, 1),
        ({"rate": None, "sampling": BandMF(1 / 3, bands=3)}, 7, 2),  # ceil(7/3) + ceil(8/3) - ceil(12/3)
    ],
)
def test_passes_and_blocks_that_are_taken_again(tmp_path: Path, options: dict, stop: int, rounds: int) -> None:
    first = begin(tmp_path / "run", **options)
    updates(first, until=stop)
    with pytest.raises(InvalidDocument, match="other rows"):
        begin(tmp_path / "run", data=People(changed=3), **options)
    run = begin(tmp_path / "run", data=People(changed=3), resume="pay", **options)
    updates(run)
    if stop % EVERY == 0:
        rounds = run.plan.sampler.rounds(0, stop) + run.plan.sampler.rounds(stop, STEPS) - run.plan.sampler.rounds(0, STEPS)
    assert run._state.extra == rounds
    assert run.spent() == curve(run.plan.claim(run._state.extra).event).epsilon(1e-5)


def test_rounds_of_all_samplers() -> None:
    """By hand: whatever a key of its own shows something of counts as a whole."""
    poisson, bins, banded = sampling.Poisson(0.1), sampling.BallsInBins(4), Banded(0.1, steps=20, bands=4)
    for start in range(12):
        for stop in range(start, 20):
            steps = range(start, stop)
            assert poisson.rounds(start, stop) == len(steps)
            assert bins.rounds(start, stop) == len({step // 4 for step in steps})
            assert banded.rounds(start, stop) == max(sum(step % 4 == group for step in steps) for group in range(4))
    assert bins.repeated(Gaussian(1.0), 3) == Repeat(RandomAllocation(Gaussian(1.0), 4), 3)


def test_correlated_noise_of_a_fresh_key_begins_anew() -> None:
    """Rows from `start` on are those of the inverse of the lower right part of C, whose columns are no longer than 1."""
    banded, stream, start = Banded(0.1, steps=9, bands=3), Stream(bytes(32)), 4
    dense = np.zeros((9, 9))
    for row in range(9):
        for back in range(min(3, row + 1)):
            dense[row, row - back] = banded.matrix[row, back]
    part = dense[start:, start:]
    assert (np.linalg.norm(part, axis=0) <= 1).all()
    z = np.stack([stream.fill(torch.empty(5), step=step).numpy() for step in range(start, 9)])
    wanted = np.linalg.solve(part, z)
    noise = Correlated(banded, stream, start)
    for step in range(start, 9):
        assert np.allclose(noise.fill(torch.empty(5), step=step).numpy(), wanted[step - start], atol=1e-5)


# ---- the journal ---------------------------------------------------------------------------------------------------------


def test_half_a_line_is_no_line(tmp_path: Path) -> None:
    key, journal = bytes(32), Journal(tmp_path / "run.steps")
    journal.begin(key)
    assert journal.admit(key, 0, "a")
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole + whole.splitlines()[1][:-3])
    again = Journal(journal.path)
    assert again.released(key) == 1
    assert again.admit(key, 1, "b")
    assert not again.admit(key, 1, "c")
    assert not journal.admit(key, 1, "c")  # it reads what others wrote
    assert oct(journal.path.stat().st_mode)[-3:] == "600"


def test_a_journal_speaks_of_keys_that_began_in_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "run.steps")
    assert journal.released(bytes(32)) is None
    journal.begin(b"another key of thirty-two bytes!")
    assert journal.released(bytes(32)) is None
    assert journal.released(b"another key of thirty-two bytes!") == 0
    assert b"another key" not in journal.path.read_bytes()


@pytest.mark.parametrize("library", [True, False])
def test_every_bit_counts(library: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not library:
        monkeypatch.setattr(ciphers, "_library", lambda: None)
    key, noisy = bytes(range(32)), torch.randn(1000, generator=torch.Generator().manual_seed(0))
    tag = fingerprint(key, 3, noisy, 0.5)
    assert tag == fingerprint(key, 3, noisy.clone(), 0.5)
    changed = noisy.clone()
    changed[999] = torch.nextafter(changed[999], torch.tensor(9.0))
    others = [fingerprint(key, 3, changed, 0.5), fingerprint(key, 4, noisy, 0.5), fingerprint(key, 3, noisy, 0.25),
              fingerprint(bytes(32), 3, noisy, 0.5), fingerprint(key, 3, -noisy, 0.5)]  # fmt: skip
    assert len({tag, *others}) == 6
    assert fingerprint(key, 3, torch.zeros(2), None) != fingerprint(key, 3, -torch.zeros(2), None)
