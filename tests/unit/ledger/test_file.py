"""The file: made, refused, damaged, read-only, full; and every change to it is found."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from discreet import Ledger, record
from discreet.accounting import Gaussian
from discreet.core import Claim, Game
from discreet.errors import LedgerError
from discreet.ledger import sqlite

SMALL = Claim(game=Game(record(), {"answers"}), event=Gaussian(50.0))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed ledger with entries of every kind."""
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6, fingerprint="f")
        ledger.share("people", "ann", 0.5, by="owner")
        with (charge := ledger.reserve("people", SMALL, key="q")):
            charge.settle(answer=5)
        ledger.reserve("people", SMALL, account="ann").cancel("did_not_run")
        with pytest.raises(Exception, match="Add noise, or ask"):
            ledger.reserve("people", Claim(game=SMALL.game, event=Gaussian(0.1)))
        ledger.raise_budget("people", epsilon=1.5, delta=1e-6, by="owner", reason="more")
        ledger.reserve("people", SMALL)
        ledger.verify()
    return path


def tamper(path: Path, *statements: str) -> None:
    """As someone with the file in hands would: triggers and checks do not stop them."""
    link = sqlite3.connect(path, isolation_level=None)
    link.execute("PRAGMA ignore_check_constraints = ON")
    for (name,) in link.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        link.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        link.execute(statement)
    link.close()


def test_every_kind_is_in_the_fixture(path: Path) -> None:
    with Ledger(path) as ledger:
        assert {entry.kind for entry in ledger.history()} == {
            "open", "share", "reserve", "settle", "cancel", "refuse", "raise"
        }  # fmt: skip


CHANGES = {
    "at": "'2020-01-01T00:00:00.000+00:00'", "kind": "'refuse'", "source": "'others'", "about": "2", "body": "'{}'",
    "previous": "'0'", "hash": "'0'",
}  # fmt: skip


@pytest.mark.parametrize("column", CHANGES)
def test_a_changed_entry_is_found_and_named(path: Path, column: str) -> None:
    tamper(path, f"UPDATE entry SET {column} = {CHANGES[column]} WHERE number = 3")
    with Ledger(path) as ledger, pytest.raises(LedgerError, match=r"Entry 3 was tampered with") as told:
        ledger.verify()
    assert told.value.entry == 3


@pytest.mark.parametrize("body", ["'{\"a\":'", "'[]'", "body || ' '"])
def test_a_body_that_is_no_body_is_found(path: Path, body: str) -> None:
    tamper(path, f"UPDATE entry SET body = {body} WHERE number = 5")
    with Ledger(path) as ledger, pytest.raises(LedgerError, match="Entry 5 was tampered with"):
        ledger.verify()


@pytest.mark.parametrize("number", range(1, 10))
def test_a_missing_entry_is_found_and_named(path: Path, number: int) -> None:
    tamper(path, f"DELETE FROM entry WHERE number = {number}")
    with Ledger(path) as ledger, pytest.raises(LedgerError) as told:
        ledger.verify()
    assert told.value.entry == number


def test_reordered_entries_are_found(path: Path) -> None:
    tamper(
        path, "UPDATE entry SET number = 100 WHERE number = 6", "UPDATE entry SET number = 6 WHERE number = 7",
        "UPDATE entry SET number = 7 WHERE number = 100",
    )  # fmt: skip
    with Ledger(path) as ledger, pytest.raises(LedgerError, match=r"Entry 6 .*does not follow the one before"):
        ledger.verify()


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        *(
            ("source", name, "3")
            for name in ("epsilon", "delta", "failure", "renyi_order", "divergence_limit", "epsilon_limit", "failure_limit")
        ),
        *(
            ("source", name, "3")
            for name in ("divergence_spent", "epsilon_spent", "failure_spent", "unit", "fingerprint", "name")
        ),
        *(
            ("account", name, "3")
            for name in (
                "divergence_limit",
                "divergence_spent",
                "epsilon_limit",
                "epsilon_spent",
                "failure_limit",
                "failure_spent",
                "name",
            )
        ),
        *(("answer", name, "3") for name in ("key", "entry")),
        *(("head", name, "3") for name in ("number", "hash")),
    ],
)
def test_a_changed_table_is_found(path: Path, table: str, column: str, value: str) -> None:
    where = "WHERE name = 'ann'" if table == "account" else ""
    tamper(path, f"UPDATE {table} SET {column} = {value} {where}")
    with Ledger(path) as ledger, pytest.raises(LedgerError):
        ledger.verify()


def test_a_rewritten_past_is_found_by_a_noted_id(path: Path, tmp_path: Path) -> None:
    with Ledger(path) as ledger:
        noted = ledger.verify()
        ledger.reserve("people", SMALL)
        assert ledger.verify(noted) != noted
    with Ledger(tmp_path / "other.db") as other:
        other.open("people", unit=record(), epsilon=1.0, delta=1e-6)
        other.verify()
        with pytest.raises(LedgerError, match="which was noted earlier"):
            other.verify(noted)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entry SET at = '' WHERE number = 1",
        "DELETE FROM entry WHERE number = 9",
        "INSERT OR REPLACE INTO entry SELECT * FROM entry WHERE number = 9",
        "INSERT INTO entry SELECT 11, at, kind, source, NULL, body, previous, 'x' FROM entry WHERE number = 9",
        "UPDATE source SET divergence_spent = divergence_limit + 1, epsilon_spent = epsilon_limit + 1",
        "UPDATE source SET failure_spent = failure_limit + 1",
        "UPDATE source SET divergence_spent = -1",
        "UPDATE source SET epsilon_spent = -1",
        "UPDATE source SET epsilon_spent = 0, divergence_spent = 4611686018427387904",
        "UPDATE account SET divergence_spent = divergence_limit + 1, epsilon_spent = epsilon_limit + 1",
        "UPDATE account SET divergence_limit = divergence_limit + 1",
        "UPDATE account SET epsilon_limit = epsilon_limit + 1",
        "UPDATE account SET failure_limit = failure_limit + 1",
        "INSERT INTO account VALUES ('people', 'eve', 0, 0, 1, 0, 0, 0)",
        "UPDATE source SET divergence_spent = 'much'",
    ],
)
def test_the_database_itself_refuses(path: Path, statement: str) -> None:
    link = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(sqlite3.IntegrityError):
        link.execute(statement)
    link.close()
    with Ledger(path) as ledger:
        ledger.verify()


def test_a_later_version_is_refused_and_left_alone(path: Path) -> None:
    tamper(path, "PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=r"written by a later discreet \(schema 99; this one knows up to \d\)"):
        Ledger(path)
    assert path.read_bytes() == before


def test_other_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    text, database = tmp_path / "notes.txt", tmp_path / "other.db"
    text.write_text("no database at all, but long enough to be looked at " * 50)
    link = sqlite3.connect(database)
    link.execute("CREATE TABLE mine (x)")
    link.close()
    for file, told in (
        (text, "is not a ledger"),
        (database, "is a database, and not a ledger"),
        (tmp_path, "cannot be opened"),
    ):
        before = file.read_bytes() if file.is_file() else b""
        with pytest.raises(LedgerError, match=told):
            Ledger(file)
        assert not before or file.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == [text, database]


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="nowhere is not a directory, so no ledger can be there"):
        Ledger(tmp_path / "nowhere" / "ledger.db")


@pytest.fixture
def nobody() -> Iterator[Path]:
    """A directory that this process may read and not write, whoever runs the tests."""
    folder = Path(tempfile.mkdtemp())
    user = os.geteuid()
    yield folder
    if user == 0:
        os.seteuid(0)
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_a_read_only_file_says_so(path: Path, nobody: Path) -> None:
    shutil.copy(path, nobody / "ledger.db")
    (nobody / "ledger.db").chmod(0o444)
    nobody.chmod(0o555)
    if os.geteuid() == 0:
        os.seteuid(65534)
    with pytest.raises(LedgerError, match=r"may not be written. Charges must be recorded"):
        Ledger(nobody / "ledger.db")


def test_a_full_disk_says_so_and_spends_nothing(path: Path) -> None:
    with Ledger(path) as ledger:
        link = ledger._store._connection()
        link.execute(f"PRAGMA max_page_count = {link.execute('PRAGMA page_count').fetchone()[0]}")
        before = ledger.spent("people")
        with pytest.raises(LedgerError, match="the disk is full; nothing was written"):
            ledger.reserve("people", Claim(game=SMALL.game, event=SMALL.event, assumptions=("long " * 9999,)))
        assert ledger.spent("people") == before
        ledger.verify()


def test_a_damaged_file_says_so(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(LedgerError, match=r"damaged|was tampered with|not a ledger"), Ledger(path) as ledger:
        ledger.verify()


def test_the_note_of_the_last_sync_is_not_believed_of_another_history(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if sqlite.fcntl is None:
        pytest.skip("no group commit here")
    synced: list[int] = []
    monkeypatch.setattr(sqlite, "_sync_data", synced.append)
    with Ledger(path) as ledger:
        path.with_name("ledger.db-sync").write_text(f"999 {'0' * 64}")
        ledger.reserve("people", SMALL)
        assert len(synced) == 1
        ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6, fingerprint="f")
        assert len(synced) == 1  # nothing new to bring to the disk
        ledger.reserve("people", SMALL)
        assert len(synced) == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a small disk is mounted by root")
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def charge_for_ever(ledger: Ledger, made: list[str]) -> None:
    for _ in range(5000):
        made.append(ledger.reserve("people", SMALL).id)


def test_a_disk_that_fills_up_says_so_and_loses_nothing(small_disk: Path) -> None:
    """Charges until the disk is full; then every sum is that of the charges that returned, and room lets it go on."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(200_000))
    made: list[str] = []
    with Ledger(small_disk / "ledger.db") as ledger:
        ledger.open("people", unit=record(), epsilon=100.0, delta=1e-6)
        with pytest.raises(LedgerError, match="disk is full"):
            charge_for_ever(ledger, made)
        with pytest.raises(LedgerError, match="disk is full"):
            ledger.reserve("people", SMALL)
        assert len(made) > 20
        assert made == [entry.id for entry in ledger.history() if entry.kind == "reserve"]
        ledger.verify()
        ballast.unlink()
        ledger.reserve("people", SMALL)
        ledger.verify()


@pytest.mark.parametrize("way", ["in groups", "one by one"])
def test_a_file_that_may_not_grow_says_so_and_loses_nothing(tmp_path: Path, way: str) -> None:
    """As under a quota: the system refuses to make a file longer."""
    pytest.importorskip("resource")
    code = """
import resource, sys
from discreet import Ledger, record
from discreet.accounting import Gaussian
from discreet.core import Claim, Game
from discreet.errors import LedgerError
from discreet.ledger import sqlite
if sys.argv[2] == "one by one":
    sqlite.fcntl = None
claim = Claim(game=Game(record(), {"answers"}), event=Gaussian(50.0))
with Ledger(sys.argv[1]) as ledger:
    ledger.open("people", unit=record(), epsilon=100.0, delta=1e-6)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
    try:
        while True:
            print(ledger.reserve("people", claim).id)
    except LedgerError as error:
        print(error, file=sys.stderr)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    ledger.verify()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "ledger.db"), way], capture_output=True, text=True, timeout=120, check=True
    )
    made = done.stdout.split()
    assert "cannot be used" in done.stderr
    assert len(made) > 5
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.verify()
        found = [entry.id for entry in ledger.history() if entry.kind == "reserve"]
        assert found[: len(made)] == made  # the one that failed may count as spent
        assert len(found) <= len(made) + 1


def test_a_ledger_of_an_older_version_is_brought_up_to_date(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [*sqlite.migrations("sqlite"), "CREATE TABLE later (x INTEGER) STRICT;"]
    monkeypatch.setattr(sqlite, "migrations", lambda engine: steps)
    with Ledger(path) as ledger:
        ledger.verify()
    link = sqlite3.connect(path)
    assert link.execute("PRAGMA user_version").fetchone() == (len(steps),)
    assert link.execute("SELECT count(*) FROM later").fetchone() == (0,)
    link.close()
