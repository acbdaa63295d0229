"""The ledger in one SQLite file: transactions that are durable when they return, shared by many processes.

Every write takes its turn (a file lock, first come first served), so nobody starves in SQLite's busy loop. Where the
system has such locks, commits are made durable in groups: a transaction is committed without waiting for the disk, and
before the caller goes on, one process syncs the write-ahead log for everyone who has committed so far. Nobody returns
before a sync that began after their commit has ended. Without such locks, SQLite syncs at every commit.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import resources
from itertools import count
from pathlib import Path

from discreet.core import check
from discreet.errors import LedgerError

try:
    import fcntl
except ImportError:  # not a POSIX system: SQLite's own locks and syncs alone
    fcntl = None  # type: ignore[assignment]

OURS = 0x64736372  # "dscr", SQLite's application_id
PATIENCE = 60.0  # seconds that a writer waits for its turn where there are no file locks
_sync_data = getattr(os, "fdatasync", os.fsync)


def migrations() -> list[str]:
    """The numbered files of schema/, in order; the version of a ledger is how many of them it has seen."""
    files = sorted((file.name, file.read_text("utf-8")) for file in (resources.files(__package__) / "schema").iterdir())
    return [text for name, text in files if name.endswith(".sql")]


class SqliteStore:
    """One open ledger file. Threads may share it; a forked process must open its own."""

    def __init__(self, path: str | os.PathLike[str], *, grouped: bool | None = None) -> None:
        self.path = Path(path).absolute()
        self.grouped = fcntl is not None if grouped is None else grouped
        if not self.path.parent.is_dir():
            raise LedgerError(f"{self.path.parent} is not a directory, so no ledger can be there. Make it, or name another.")
        self._lock = threading.RLock()
        self._opener = os.getpid()
        self._files: dict[str, int] = {}
        self._link: sqlite3.Connection | None = None
        with self._told():
            self._link = self._connect()

    def _connect(self) -> sqlite3.Connection:
        link = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            self._refuse_others(link)
            with self._turn():
                self._prepare(link)
        except BaseException:
            link.close()
            self._let_go()
            raise
        return link

    def _connection(self) -> sqlite3.Connection:
        if self._opener != os.getpid():
            raise LedgerError(f"{self.path} was opened before a fork; SQLite does not cross it. Open it again: Ledger(...).")
        if self._link is None:
            raise LedgerError(f"{self.path} was closed. Open it again: Ledger(...).")
        return self._link

    def _prepare(self, link: sqlite3.Connection) -> None:
        self._write_ahead(link)
        link.execute(f"PRAGMA synchronous = {'NORMAL' if self.grouped else 'FULL'}")
        link.execute("PRAGMA foreign_keys = ON")
        steps = migrations()
        if self._version(link) == len(steps):
            return
        link.execute("BEGIN IMMEDIATE")
        for number, text in enumerate(steps, 1):
            if number > self._version(link):
                for statement in _statements(text):
                    link.execute(statement)
                link.execute(f"PRAGMA user_version = {number}")
        link.execute(f"PRAGMA application_id = {OURS}")
        link.execute("COMMIT")

    @staticmethod
    def _write_ahead(link: sqlite3.Connection) -> None:
        """Switch to the write-ahead log; SQLite does not wait by itself for another process that is switching too."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                link.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > until:
                    raise
            time.sleep(0.01)

    def _refuse_others(self, link: sqlite3.Connection) -> None:
        link.execute("BEGIN")  # one moment: another process may be making this ledger right now
        mark = link.execute("PRAGMA application_id").fetchone()[0]
        known = link.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        version, newest = self._version(link), len(migrations())
        link.execute("ROLLBACK")
        if mark != OURS and (mark or known):
            raise LedgerError(f"{self.path} is a database, and not a ledger. Name another file.")
        if version > newest:
            raise LedgerError(
                f"{self.path} was written by a later discreet (schema {version}; this one knows up to {newest}). "
                "Nothing was changed. Install the later version to use it."
            )

    @staticmethod
    def _version(link: sqlite3.Connection) -> int:
        return int(link.execute("PRAGMA user_version").fetchone()[0])

    @contextmanager
    def write(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it or nothing. If `durable`, it survives a power failure once this returns."""
        with self._lock, self._told():
            link = self._connection()
            with self._turn():
                link.execute("BEGIN IMMEDIATE")
                try:
                    yield link
                    last = link.execute("SELECT number FROM head").fetchone()[0]
                    link.execute("COMMIT")
                except BaseException:
                    with suppress(sqlite3.Error):
                        link.execute("ROLLBACK")
                    raise
            if durable and self.grouped:
                self._sync(link, last)

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """One moment of the ledger, unmoved by those who write meanwhile."""
        with self._lock, self._told():
            link = self._connection()
            link.execute("BEGIN")
            try:
                yield link
            finally:
                with suppress(sqlite3.Error):
                    link.execute("ROLLBACK")

    def _sync(self, link: sqlite3.Connection, number: int) -> None:
        """Return once entry `number` is on the disk: one process leads and syncs, the others look whether it got so far.

        They look without the lock: queued for it, those who are done would wait behind the next leader.
        """
        file = self._file("sync")
        for attempt in count():
            if self._synced(link, file, number):
                return
            if self._lead(file):
                try:
                    if not self._synced(link, file, number):
                        self._sync_log(link, file)
                finally:
                    fcntl.flock(file, fcntl.LOCK_UN)
                return
            time.sleep(1e-4 * 2 ** min(attempt, 3))

    @staticmethod
    def _lead(file: int) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    @staticmethod
    def _synced(link: sqlite3.Connection, file: int, number: int) -> bool:
        """Whether the note of the last sync covers entry `number`.

        The hash ties the note to this history: after a backup was put back, or if it was read half written, it means nothing.
        """
        done, _, mark = os.pread(file, 100, 0).decode("ascii", "replace").strip().partition(" ")
        if not (done.isdecimal() and int(done) >= number):
            return False
        return link.execute("SELECT 1 FROM entry WHERE number = ? AND hash = ?", (int(done), mark)).fetchone() is not None

    def _sync_log(self, link: sqlite3.Connection, file: int) -> None:
        last, mark = link.execute("SELECT number, hash FROM head").fetchone()
        log = os.open(f"{self.path}-wal", os.O_RDWR)
        try:
            _sync_data(log)
        finally:
            os.close(log)
        os.pwrite(file, f"{last} {mark}".encode().ljust(100), 0)

    def _file(self, name: str) -> int:
        """A lock file beside the ledger; the system lets go of its lock when a process dies."""
        if name not in self._files:
            self._files[name] = os.open(f"{self.path}-{name}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        return self._files[name]

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """First come, first served; without file locks, SQLite's own lock has to do."""
        if not self.grouped:
            yield
            return
        file = self._file("turn")
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the file and the database, as a sentence that says what to do."""
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise LedgerError(f"{self.path} refused a change that would break it ({error}); nothing was written.") from None
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(f"{self.path} cannot be used: {_advice(error)}") from None

    def close(self) -> None:
        """Close the file; what was reserved stays spent."""
        with self._lock:
            if self._link is not None and self._opener == os.getpid():
                self._link.close()
                self._link = None
                self._let_go()

    def _let_go(self) -> None:
        for file in self._files.values():
            os.close(file)
        self._files = {}


def _statements(text: str) -> Iterator[str]:
    """One statement after another; a trigger is one."""
    gathered = ""
    for line in text.splitlines(keepends=True):
        gathered += line
        if sqlite3.complete_statement(gathered):
            yield gathered
            gathered = ""


def _advice(error: Exception) -> str:
    text = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    for sign, advice in (
        ("readonly", "it, or its directory, may not be written. Charges must be recorded: make it writable."),
        ("Permission denied", "it, or its directory, may not be written. Charges must be recorded: make it writable."),
        ("Read-only", "it is on a read-only disk. Charges must be recorded: put it elsewhere."),
        ("disk is full", "the disk is full; nothing was written. Make room and try again."),
        ("No space left", "the disk is full. Make room and try again; what was being reserved may count as spent."),
        ("not a database", "it is not a ledger. Name another file."),
        ("malformed", "it is damaged. Restore it from a backup, and check that with verify()."),
        ("unable to open", "it cannot be opened. Is it a directory, or one that you may not enter?"),
        ("locked", f"another process kept it locked for {PATIENCE:g} seconds. Try again."),
    ):
        if sign in text:
            return advice
    return check.shown(text)
