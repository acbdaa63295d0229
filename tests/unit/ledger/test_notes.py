"""The note beside a ledger file: an older copy and a cut log are found, and a crash never raises the alarm."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from discreet import Ledger, record
from discreet.accounting import Gaussian
from discreet.core import Claim, Game
from discreet.errors import InvalidValue, LedgerError
from discreet.ledger import sqlite
from discreet.ledger.notes import Note

SMALL = Claim(game=Game(record(), {"answers"}), event=Gaussian(500.0))
OLDER = "is older than the note beside it"

pytestmark = pytest.mark.skipif(not hasattr(os, "pwrite"), reason="notes are written on POSIX systems")


@pytest.fixture(params=["in groups", "one by one"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "one by one":
        monkeypatch.setattr(sqlite, "fcntl", None)
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6)
        ledger.reserve("people", SMALL)
    return path


def refuses_charges(path: Path) -> None:
    with Ledger(path) as ledger:
        assert ledger.balance("people").spent.divergence > 0  # it can be looked at
        for use in (lambda: ledger.reserve("people", SMALL), ledger.verify):
            with pytest.raises(LedgerError, match=OLDER):
                use()


def test_an_older_copy_is_found_under_every_name_of_the_file(path: Path, tmp_path: Path) -> None:
    """The notes stand beside the file itself, and not beside a link to it."""
    link = tmp_path / "link.db"
    link.symlink_to(path)
    older = path.read_bytes()
    with Ledger(link) as ledger:
        ledger.reserve("people", SMALL)
    assert not link.with_name("link.db-sync").exists()
    path.write_bytes(older)
    refuses_charges(link)
    refuses_charges(path)


def test_a_restored_backup_is_found_and_takes_no_charge(path: Path, tmp_path: Path) -> None:
    shutil.copy(path, tmp_path / "backup.db")
    with Ledger(path) as ledger:
        ledger.reserve("people", SMALL)
    newer = path.read_bytes()
    shutil.copy(tmp_path / "backup.db", path)
    refuses_charges(path)
    path.write_bytes(newer)
    with Ledger(path) as ledger:
        ledger.reserve("people", SMALL)
        ledger.verify()


def backup(source: Path, to: Path) -> None:
    """As `sqlite3 .backup` and `.restore` do it: page by page, into a file that others have open."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(to)) as new:
        old.backup(new)


@pytest.mark.parametrize("note", ["there", "removed", "half written"])
def test_a_backup_restored_into_an_open_ledger_takes_no_charge(path: Path, tmp_path: Path, note: str) -> None:
    """Every handle knows what it saw itself; one that saw less goes by the note."""
    backup(path, tmp_path / "backup.db")
    whole = Claim(game=SMALL.game, event=Gaussian(6.0))
    with Ledger(path) as ledger, Ledger(path) as other:
        charge, free = ledger.reserve("people", whole), other.reserve("people", SMALL)
        ledger.reserve("people", SMALL)
        backup(path, tmp_path / "newer.db")
        backup(tmp_path / "backup.db", path)
        if note == "removed":
            path.with_name("ledger.db-sync").unlink()
        elif note == "half written":
            path.with_name("ledger.db-sync").write_bytes(b"9" * 200)
        assert ledger.balance("people").spent.divergence > 0  # it can be looked at
        for use in (
            lambda: ledger.reserve("people", whole), lambda: other.reserve("people", SMALL), charge.started, charge.settle,
            lambda: free.cancel("withdrawn"), ledger.verify, other.verify,
            lambda: ledger.open("more", unit=record(), epsilon=1.0, delta=1e-6),
        ):  # fmt: skip
            with pytest.raises(LedgerError, match=r"is older than .* charges are missing"):
                use()
        assert len(ledger.history()) == 2
        backup(tmp_path / "newer.db", path)
        with charge:  # the newer file is back
            free.cancel("withdrawn")
        ledger.verify()


def test_a_handle_that_wrote_nothing_goes_by_the_note(path: Path, tmp_path: Path) -> None:
    backup(path, tmp_path / "backup.db")
    with Ledger(path) as idle, Ledger(path) as busy:
        busy.reserve("people", SMALL)
        backup(tmp_path / "backup.db", path)
        with pytest.raises(LedgerError, match=OLDER):
            idle.reserve("people", SMALL)


def test_a_start_lost_in_an_open_ledger_is_found(path: Path, tmp_path: Path) -> None:
    with Ledger(path) as ledger, Ledger(path) as other:
        charge = ledger.reserve("people", SMALL)
        backup(path, tmp_path / "backup.db")
        charge.started()
        backup(tmp_path / "backup.db", path)
        for each in (ledger, other):
            with pytest.raises(LedgerError, match=OLDER):
                type(charge)(each._store, charge._mark, charge.amount).cancel("withdrawn")


def test_handles_that_write_in_turn_never_take_each_other_for_an_older_copy(path: Path) -> None:
    with Ledger(path) as one, Ledger(path) as two:
        for _ in range(20):
            for ledger in (one, two, two):
                with ledger.reserve("people", SMALL):
                    pass
        one.verify()
        two.verify()


def test_a_ledger_that_lost_a_source_says_so_before_it_asks_for_one(tmp_path: Path) -> None:
    """The log is lost, and with it the opening of the source: it is not there, and yet it was."""
    path = tmp_path / "ledger.db"
    Ledger(path).close()
    shutil.copy(path, tmp_path / "empty.db")
    with Ledger(path) as ledger:
        ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6)
    shutil.copy(tmp_path / "empty.db", path)
    with Ledger(path) as ledger:
        for use in (lambda: ledger.reserve("people", SMALL), lambda: ledger.left("people")):
            with pytest.raises(LedgerError, match=OLDER):
                use()
    path.with_name("ledger.db-sync").unlink()
    with Ledger(path) as ledger, pytest.raises(InvalidValue, match="has no source 'people'"):
        ledger.reserve("people", SMALL)


def test_another_history_of_the_same_length_is_found(path: Path, tmp_path: Path) -> None:
    with Ledger(tmp_path / "other.db") as other:
        other.open("people", unit=record(), epsilon=1.0, delta=1e-6)
        for _ in range(5):
            other.reserve("people", SMALL)
    shutil.copy(tmp_path / "other.db", path)
    refuses_charges(path)


def test_a_lost_start_is_found(path: Path, tmp_path: Path) -> None:
    """A start is no entry, and yet the note knows of it."""
    with Ledger(path) as ledger:
        charge = ledger.reserve("people", SMALL)
    shutil.copy(path, tmp_path / "backup.db")
    with Ledger(path) as ledger:
        type(charge)(ledger._store, charge._mark, charge.amount).started()
    shutil.copy(tmp_path / "backup.db", path)
    refuses_charges(path)


@pytest.mark.parametrize("part", [0.0, 0.5, 0.98])
def test_a_cut_log_is_found(path: Path, part: float) -> None:
    """A process is killed, so its charges lie in the log; then the end of the log is lost."""
    code = """
import os, sys, signal
from discreet.ledger import sqlite
if sys.argv[2] == "True":
    sqlite.fcntl = None
from discreet import Ledger, record
from discreet.accounting import Gaussian
from discreet.core import Claim, Game
ledger = Ledger(sys.argv[1])
for _ in range(30):
    ledger.reserve("people", Claim(game=Game(record(), {"answers"}), event=Gaussian(500.0)))
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code, str(path), str(sqlite.fcntl is None)], check=False)
    assert done.returncode == -signal.SIGKILL
    whole = path.with_name("whole.db")
    for end in ("", "-wal", "-sync"):
        shutil.copy(f"{path}{end}", f"{whole}{end}")
    with Ledger(whole) as ledger:
        ledger.verify()
        assert len(ledger.history()) == 32
    log = Path(f"{path}-wal")
    os.truncate(log, int(log.stat().st_size * part))
    refuses_charges(path)


def test_without_its_note_a_ledger_goes_on_and_verify_says_what_it_cannot_know(path: Path, tmp_path: Path) -> None:
    shutil.copy(path, tmp_path / "backup.db")
    with Ledger(path) as ledger:
        ledger.reserve("people", SMALL)
        noted = ledger.verify()
        assert "agrees with it" in ledger.cannot_know()[1]
    shutil.copy(tmp_path / "backup.db", path)
    path.with_name("ledger.db-sync").unlink()  # as the error advises, once what is missing is taken as spent
    with Ledger(path) as ledger:
        ledger.verify()
        rewritten, older = ledger.cannot_know()
        assert rewritten.startswith("No entry that was noted elsewhere was given")
        assert older.startswith("There is no note beside the file (ledger.db-sync)")
        with pytest.raises(LedgerError, match="which was noted earlier"):
            ledger.verify(noted)
        assert f"after entry {noted}" in ledger.cannot_know(noted)[0]
        ledger.reserve("people", SMALL)
        ledger.verify()


@pytest.mark.parametrize("broken", [b"", b"\0" * 200, b"999 " + b"0" * 64, b"\xff" * 80])
def test_a_note_that_was_half_written_raises_no_alarm(path: Path, broken: bytes) -> None:
    path.with_name("ledger.db-sync").write_bytes(broken)
    with Ledger(path) as ledger:
        ledger.reserve("people", SMALL)
        ledger.verify()


def test_every_torn_note_is_no_note(path: Path) -> None:
    """Any mixture of the bytes of two notes is one of the two, or none."""
    older, newer = Note("a" * 16, 7, 1, 7, "0" * 64).to_bytes(), Note("a" * 16, 12, 3, 12, "1" * 64).to_bytes()
    assert len(older) == len(newer)
    for end in range(len(newer) + 1):
        for torn in (newer[:end] + older[end:], older[:end] + newer[end:]):
            assert Note.from_bytes(torn) == {older: Note.from_bytes(older), newer: Note.from_bytes(newer)}.get(torn)


def test_a_note_is_never_ahead_of_what_was_synced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each sync the note still says what the ledger on the disk has; so a power failure leaves a note that is true."""
    if sqlite.fcntl is None:
        pytest.skip("SQLite syncs by itself here")
    noted: list[int] = []
    committed: list[int] = []

    def sync(_: int) -> None:
        note = ledger._store.noted()  # type: ignore[attr-defined]
        noted.append(note.entries)
        committed.append(ledger._store.read(lambda transaction: transaction.execute("SELECT number FROM head").fetchone()[0]))

    with Ledger(path) as ledger:
        monkeypatch.setattr(sqlite, "_sync_data", sync)
        for _ in range(3):
            with ledger.reserve("people", SMALL):
                pass
    assert len(noted) == 6  # the reservation and the start; the settlement is not waited for
    assert all(note <= on_disk for note, on_disk in zip(noted[1:], committed, strict=False))
    assert sqlite3.connect(path).execute("SELECT number FROM head").fetchone() == (8,)
