"""The database: refused, full, lost, later, read-only, without its driver; and every change to it is found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import postgres
from discreet import Ledger, record
from discreet.accounting import Gaussian
from discreet.core import Claim, Game
from discreet.errors import InvalidValue, LedgerError, MissingExtra
from discreet.ledger.postgres import ATTEMPTS, PostgresStore, _shown

psycopg: Any = pytest.importorskip("psycopg")
SMALL = Claim(game=Game(record(), {"answers"}), event=Gaussian(50.0))


def ask(url: str, *statements: str) -> Any:
    with psycopg.connect(url, autocommit=True) as link:
        for statement in statements:
            found = link.execute(statement)
        return found.fetchall() if found.description else None


@pytest.fixture
def url(postgres_url: str) -> str:
    """A ledger with a few entries."""
    with Ledger(postgres_url) as ledger:
        ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6)
        with (charge := ledger.reserve("people", SMALL, key="q")):
            charge.settle(answer=5)
        ledger.share("people", "ann", 0.5, by="owner")
        ledger.reserve("people", SMALL, account="ann")
    return postgres_url


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE discreet.entry SET at = '' WHERE number = 1",
        "DELETE FROM discreet.entry WHERE number = 5",
        "TRUNCATE discreet.entry CASCADE",
        "INSERT INTO discreet.entry SELECT 7, at, kind, source, NULL, body, previous, 'x' FROM discreet.entry WHERE number = 5",
        "UPDATE discreet.source SET divergence_spent = divergence_limit + 1, epsilon_spent = epsilon_limit + 1",
        "UPDATE discreet.source SET failure_spent = failure_limit + 1",
        "UPDATE discreet.source SET divergence_spent = -1",
        "UPDATE discreet.source SET epsilon_spent = -1",
        "UPDATE discreet.source SET epsilon_spent = 0, divergence_spent = 4611686018427387904",
        "UPDATE discreet.account SET divergence_spent = divergence_limit + 1, epsilon_spent = epsilon_limit + 1",
        "UPDATE discreet.account SET divergence_limit = divergence_limit + 1",
        "UPDATE discreet.account SET epsilon_limit = epsilon_limit + 1",
        "UPDATE discreet.account SET failure_limit = failure_limit + 1",
        "INSERT INTO discreet.account VALUES ('people', 'eve', 0, 0, 1, 0, 0, 0)",
    ],
)
def test_the_database_itself_refuses(url: str, statement: str) -> None:
    with pytest.raises(psycopg.IntegrityError):
        ask(url, statement)
    with Ledger(url) as ledger:
        ledger.verify()


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE discreet.entry SET at = 'then' WHERE number = 2", "Entry 2 was tampered with"),
        ("UPDATE discreet.entry SET body = '{}' WHERE number = 2", "Entry 2 was tampered with"),
        ("DELETE FROM discreet.entry WHERE number = 5", "Entry 5 was tampered with"),
        ("UPDATE discreet.source SET divergence_spent = 0", "The sums of people"),
        ("UPDATE discreet.head SET hash = 'x'", "Entry 5 was tampered with"),
        ("UPDATE discreet.answer SET key = 'x'", "The answers of people"),
    ],
)
def test_a_change_by_its_owner_is_found(url: str, statement: str, told: str) -> None:
    ask(url, "ALTER TABLE discreet.entry DISABLE TRIGGER ALL", statement)
    with Ledger(url) as ledger, pytest.raises(LedgerError, match=told):
        ledger.verify()


def test_a_later_version_is_refused_and_left_alone(url: str) -> None:
    ask(url, "UPDATE discreet.ledger_version SET version = 99")
    with pytest.raises(LedgerError, match=r"written by a later discreet \(schema 99; this one knows up to \d\)"):
        Ledger(url)
    assert ask(url, "SELECT number FROM discreet.head") == [(5,)]


def test_a_ledger_of_an_older_version_is_brought_up_to_date(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from discreet.ledger import postgres as engine

    steps = [*engine.migrations("postgres"), "CREATE TABLE discreet.later (x INTEGER); INSERT INTO discreet.later VALUES (1)"]
    monkeypatch.setattr(engine, "migrations", lambda name: steps)
    for _ in range(2):
        with Ledger(url) as ledger:
            ledger.verify()
    assert ask(url, "SELECT count(*), (SELECT version FROM discreet.ledger_version) FROM discreet.later") == [(1, len(steps))]


def test_another_schema_of_that_name_is_refused_and_left_alone(postgres_url: str) -> None:
    ask(postgres_url, "CREATE SCHEMA discreet", "CREATE TABLE discreet.source (mine int)")
    with pytest.raises(LedgerError, match="has a schema named discreet which is not a ledger"):
        Ledger(postgres_url)
    assert ask(postgres_url, "SELECT tablename FROM pg_tables WHERE schemaname = 'discreet'") == [("source",)]


def test_a_connection_lost_between_charges_is_made_again(url: str) -> None:
    with Ledger(url) as ledger:
        spent = ledger.spent("people")
        ask(url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'discreet ledger'")
        ledger.reserve("people", SMALL)
        assert ledger.spent("people") > spent
        ledger.verify()


def test_a_connection_lost_within_a_charge_says_so_and_writes_nothing(url: str) -> None:
    with Ledger(url) as ledger:
        spent = ledger.spent("people")

        def cut(transaction: Any) -> None:
            transaction.execute("UPDATE source SET divergence_spent = divergence_spent + 1")
            ask(url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'discreet ledger'")
            transaction.execute("SELECT 1")

        with pytest.raises(LedgerError, match="connection could not be made, or was lost; what was being reserved may count"):
            ledger._store.write(cut)
        assert ledger.spent("people") == spent
        ledger.verify()


def test_a_server_that_is_gone_says_so() -> None:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    with postgres.server() as url:
        ledger = Ledger(url)
        ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6)
    for use in (lambda: ledger.reserve("people", SMALL), lambda: Ledger(url)):
        with pytest.raises(LedgerError, match="Is the server up"):
            use()


def test_conflicts_are_tried_again_and_not_for_ever(url: str) -> None:
    tried: list[int] = []

    def conflict(transaction: Any) -> str:
        tried.append(1)
        if len(tried) < 4:
            raise psycopg.errors.SerializationFailure("again")
        transaction.execute("UPDATE source SET failure = failure")
        return "done"

    with Ledger(url) as ledger:
        assert ledger._store.write(conflict) == "done"
        assert len(tried) == 4

        def never(transaction: Any) -> None:
            tried.append(1)
            raise psycopg.errors.DeadlockDetected("again")

        with pytest.raises(LedgerError, match=f"each of the {ATTEMPTS} times"):
            ledger._store.write(never)
        assert len(tried) == 4 + ATTEMPTS
        ledger.reserve("people", SMALL)


def test_charges_wait_for_the_disk_and_settlements_do_not(url: str) -> None:
    with Ledger(url) as ledger:
        for durable, told in ((True, "on"), (False, "off")):
            show = ledger._store.write(
                lambda transaction: transaction.execute("SELECT current_setting('synchronous_commit')").fetchone()[0],
                durable=durable,
            )
            assert show == told
    with Ledger(f"{url}&options=-csynchronous_commit%3Doff") as ledger:
        assert ledger._store.write(lambda transaction: transaction.execute("SHOW synchronous_commit").fetchone()[0]) == "on"


def test_a_server_that_does_not_sync_is_told_of() -> None:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    with postgres.server(fsync="off") as url, pytest.warns(UserWarning, match="runs with fsync = off"):
        Ledger(url).close()


def test_a_reader_may_look_and_not_write(url: str) -> None:
    ask(
        url, "DROP ROLE IF EXISTS reader", "CREATE ROLE reader LOGIN", "GRANT USAGE ON SCHEMA discreet TO reader",
        "GRANT SELECT ON ALL TABLES IN SCHEMA discreet TO reader",
    )  # fmt: skip
    with Ledger(url.replace("tests@", "reader@")) as ledger:
        assert ledger.spent("people") > 0
        ledger.verify()
        with pytest.raises(LedgerError, match="this user may not use it"):
            ledger.reserve("people", SMALL)
    ask(url, "DROP OWNED BY reader", "DROP ROLE reader")


def test_a_full_disk_says_so_and_loses_nothing(postgres_server: str) -> None:
    """The database lies on a disk of 24 megabytes; a file beside it takes what is left."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a small disk is mounted by root")
    folder = Path(tempfile.mkdtemp(prefix="disk-", dir="/tmp"))
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], capture_output=True).returncode:
        folder.rmdir()
        pytest.skip("mounting is not allowed here")
    try:
        shutil.chown(folder, *_owner_of_the_server(postgres_server))
        ask(postgres_server, f"CREATE TABLESPACE small LOCATION '{folder}'")
        with postgres.database(postgres_server, "TABLESPACE small") as url:
            _fill_up(url, folder)
        ask(postgres_server, "DROP TABLESPACE small")
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


def _owner_of_the_server(url: str) -> tuple[int, int]:
    place = Path(ask(url, "SHOW data_directory")[0][0]).stat()
    return place.st_uid, place.st_gid


def _fill_up(url: str, disk: Path) -> None:
    made: list[str] = []
    with Ledger(url) as ledger:
        ledger.open("people", unit=record(), epsilon=100.0, delta=1e-6)
        with pytest.raises(OSError, match="No space left"), (disk / "ballast").open("wb", buffering=0) as ballast:
            _write_for_ever(ballast)
        with pytest.raises(LedgerError, match="the server's disk is full; nothing was written"):
            _charge(ledger, made)
        assert made == [entry.id for entry in ledger.history() if entry.kind == "reserve"]
        ledger.verify()
        (disk / "ballast").unlink()
        ledger.reserve("people", SMALL)
        ledger.verify()


def _write_for_ever(file: Any) -> None:
    for _ in range(100_000):
        file.write(bytes(4096))


def _charge(ledger: Ledger, made: list[str]) -> None:
    for _ in range(2000):
        made.append(ledger.reserve("people", SMALL).id)


def test_a_backup_restored_under_an_open_ledger_takes_no_charge(url: str) -> None:
    tables = [f"discreet.{name}" for name in ("entry", "head", "source", "account", "answer", "asked", "started")]
    with Ledger(url) as ledger:
        ask(url, *(f"CREATE TABLE {table.replace('.', '.kept_')} AS TABLE {table}" for table in tables))
        charge = ledger.reserve("people", SMALL)
        with charge:
            pass
        newer = len(ledger.history())
        restored = [f"DELETE FROM {table}; INSERT INTO {table} TABLE {table.replace('.', '.kept_')}" for table in tables]
        ask(url, "SET session_replication_role = replica", *"; ".join(restored).split("; "))
        assert len(ledger.history()) == newer - 2
        for use in (lambda: ledger.reserve("people", SMALL), charge.started, ledger.verify):
            with pytest.raises(
                LedgerError, match=r"is older than this process saw it: entry 6 was there.* charges are missing"
            ):
                use()
        assert len(ledger.history()) == newer - 2
    with Ledger(url) as ledger:  # as the error advises, once what is missing is taken as spent
        ledger.reserve("people", SMALL)
        ledger.verify()


def test_text_that_it_cannot_hold_is_refused(url: str) -> None:
    with Ledger(url) as ledger, pytest.raises(LedgerError, match="cannot hold this text"):
        ledger.open("visits", unit=record(), epsilon=1.0, delta=1e-6, fingerprint="a\0b")


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://ann:secret@db.example:5433/budgets?sslmode=require", "postgresql://ann@db.example:5433/budgets"),
        ("postgres:///budgets?host=/run/pg&password=secret", "postgresql:///run/pg/budgets"),
        ("postgresql://ann:secret@[::1/x", "postgresql://..."),
        ("postgresql://ann:secret@host:port/x", "postgresql://..."),
    ],
)
def test_no_password_is_ever_shown(url: str, told: str) -> None:
    assert _shown(url) == told
    with pytest.raises(LedgerError) as error:
        PostgresStore(f"{url.replace('db.example:5433', '127.0.0.1:1').replace('/run/pg', '/nowhere')}")
    assert "secret" not in str(error.value)


def test_other_urls_are_refused() -> None:
    with pytest.raises(InvalidValue, match="another kind of URL"):
        Ledger("mysql://root:secret@host/x")
    with pytest.raises(InvalidValue, match=r"a path or a postgresql:// URL; got int"):
        Ledger(5)  # type: ignore[arg-type]


def test_without_the_driver_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(
        MissingExtra, match=r"needs psycopg, which is not installed. Install it: pip install 'discreet-privacy\[postgres"
    ):
        Ledger("postgresql://somewhere/x")
