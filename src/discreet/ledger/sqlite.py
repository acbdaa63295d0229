"""The ledger in one SQLite file: transactions that are durable when they return, shared by many processes.

Every write takes its turn (a file lock, first come first served), so nobody starves in SQLite's busy loop. Where the
system has such locks, commits are made durable in groups: a transaction is committed without waiting for the disk, and
before the caller goes on, one process syncs the write-ahead log for everyone who has committed so far. Nobody returns
before a sync that began after their commit has ended. Without such locks, SQLite syncs at every commit.

Two small files stand beside the ledger. `-turn` is the lock of those who write; it notes the last entry and the last start that
were committed. `-sync` is the lock of the one who syncs; it notes how far the ledger is on the disk (`notes.py`). A ledger that
lacks what that note says, or what this process saw in it, is an older copy, or has lost the end of its log: it can be read, and
takes no charge. Every transaction that writes looks first, so a backup restored into an open ledger is found too. A backup that
is moved over an open ledger is another file: whoever has the first one open writes no more (`place.py`), and where one finds
it mixed with the log that was left, a source whose entries and tables disagree is neither opened nor charged.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from discreet.core import check
from discreet.errors import LedgerError
from discreet.ledger.notes import LONGEST, NOTHING, Note, extent
from discreet.ledger.place import Place
from discreet.ledger.store import Rows, T, Transaction, migrations

try:
    import fcntl
except ImportError:  # not a POSIX system: SQLite's own locks and syncs alone
    fcntl = None  # type: ignore[assignment]

OURS = 0x64736372  # "dscr", SQLite's application_id
PATIENCE = 60.0  # seconds that a writer waits for its turn where there are no file locks
_sync_data = getattr(os, "fdatasync", os.fsync)
_STARTS_AT = 64  # in the file -turn, after what is noted of entries


class _Transaction:
    """A transaction on the one connection; the connection reads its own statements, so it is asked directly."""

    __slots__ = ("execute", "head", "started")

    def __init__(self, link: sqlite3.Connection) -> None:
        self.execute: Callable[..., Rows] = link.execute
        self.head: tuple[int, str] | None = None
        self.started: tuple[int, str] | None = None


class _Wrote(NamedTuple):
    """What a transaction wrote: the last entry or start of its kind (0: none), and an entry to know this history by."""

    entry: int
    start: int
    number: int
    hash: str


class SqliteStore:
    """One open ledger file. Threads may share it; a forked process must open its own."""

    def __init__(self, path: str | os.PathLike[str], *, grouped: bool | None = None) -> None:
        self.path = Path(path).resolve()  # what stands beside the file stands beside it under every name
        self.grouped = fcntl is not None if grouped is None else grouped
        if not self.path.parent.is_dir():
            raise LedgerError(f"{self.path.parent} is not a directory, so no ledger can be there. Make it, or name another.")
        self._lock = threading.RLock()
        self._opener = os.getpid()
        self.name = str(self.path)
        self._place = Place(self.path)
        self._files: dict[str, int] = {}
        self._link: sqlite3.Connection | None = None
        self._last_seen = NOTHING  # how far the ledger was when this object last looked
        self._era = ""  # under which notes of syncs are believed
        self._last: tuple[bytes, Note | None] = (b"", None)  # the note that was written last, and how it is read
        try:
            self._link = self._connect()
            self._last_seen = self.read(extent)
        except (sqlite3.Error, OSError) as error:
            raise self._ledger_error(error) from None

    def _connect(self) -> sqlite3.Connection:
        self._place.enter()
        link = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            self._refuse_others(link)
            self._place.check()  # it is there now
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
        steps = migrations("sqlite")
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
        link.execute("PRAGMA wal_checkpoint")  # in the file itself, and the file in its directory
        if hasattr(os, "O_DIRECTORY"):
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

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
        version, newest = self._version(link), len(migrations("sqlite"))
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

    def write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """One transaction: all of it or nothing. If `durable`, what it wrote survives a power failure once this returns."""
        with self._lock:
            link = self._connection()
            try:
                if not self.grouped:
                    result, wrote = self._commit(link, work, -1)
                    if wrote is not None:
                        self._note(wrote)
                    return result
                turn = self._file("turn")
                fcntl.flock(turn, fcntl.LOCK_EX)
                try:
                    result, wrote = self._commit(link, work, turn)
                finally:
                    fcntl.flock(turn, fcntl.LOCK_UN)
                if durable and wrote is not None:
                    self._sync(link, wrote)
                return result
            except (sqlite3.Error, OSError) as error:
                raise self._ledger_error(error) from None

    def _commit(self, link: sqlite3.Connection, work: Callable[[Transaction], T], turn: int) -> tuple[T, _Wrote | None]:
        """What the work gave, and what it wrote, which is noted for the one who syncs."""
        transaction = _Transaction(link)
        link.execute("BEGIN IMMEDIATE")
        try:
            self._place.check()
            if (older := self._missing(transaction, self._current())) is not None:
                raise older
            result = work(transaction)
            start = 0 if transaction.started is None else int(link.execute("SELECT max(place) FROM started").fetchone()[0])
            link.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                link.execute("ROLLBACK")
            raise
        last = transaction.head or transaction.started
        if last is None:
            return result, None
        self._last_seen = self._last_seen.further(transaction.head, start)
        wrote = _Wrote(0 if transaction.head is None else transaction.head[0], start, *last)
        for value, place in ((wrote.entry, 0), (start, _STARTS_AT)):
            if value and turn >= 0:
                os.pwrite(turn, b"%020d %020d" % (value, value), place)  # twice: it may be read half written
        return result, wrote

    def read(self, work: Callable[[Transaction], T]) -> T:
        """One moment of the ledger, unmoved by those who write meanwhile."""
        with self._lock:
            link = self._connection()
            try:
                link.execute("BEGIN")
                try:
                    return work(_Transaction(link))
                finally:
                    with suppress(sqlite3.Error):
                        link.execute("ROLLBACK")
            except (sqlite3.Error, OSError) as error:
                raise self._ledger_error(error) from None

    def _sync(self, link: sqlite3.Connection, wrote: _Wrote) -> None:
        """Return once what was written is on the disk: whoever gets the lock syncs for all who have committed by then.

        What -turn says of a kind is sure only after a write of that kind, since a crash may leave an old number there; so who
        wrote an entry syncs for entries, and who wrote a start for both.
        """
        file = self._file("sync")
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            entries, starts = self._synced(link, file)
            if entries >= wrote.entry and starts >= wrote.start:
                return
            entries = max(entries, wrote.entry, self._committed(0) if wrote.entry else 0)
            starts = max(starts, wrote.start, self._committed(_STARTS_AT) if wrote.start else 0)
            _sync_data(self._file("wal"))
            note = Note(self._era, entries, starts, wrote.number, wrote.hash)
            self._last = (note.to_bytes(), note)
            os.pwrite(file, self._last[0], 0)
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    def _committed(self, place: int) -> int:
        """The last entry or start committed, as its writer noted; 0 where the note is just being written."""
        first, _, second = os.pread(self._file("turn"), 41, place).partition(b" ")
        return int(first) if first == second and first.isdigit() else 0

    def _synced(self, link: sqlite3.Connection, file: int) -> tuple[int, int]:
        """The last entry and start on the disk, as the note says; 0 where there is none."""
        data = os.pread(file, LONGEST, 0)
        note = self._last[1] if data == self._last[0] else Note.from_bytes(data)
        if note is None:
            self._era = os.urandom(8).hex()
            return 0, 0
        if note.era != self._era:
            if not note.held_by(_Transaction(link)):
                raise self._older(note)
            self._era = note.era
        return note.entries, note.starts

    def _note(self, wrote: _Wrote) -> None:
        """Where every commit is synced by SQLite: a note for those who look for an older copy; a charge does without it."""
        with suppress(OSError, AttributeError):
            self._era = self._era or os.urandom(8).hex()
            note = Note(self._era, wrote.entry or wrote.number, wrote.start, wrote.number, wrote.hash)
            os.pwrite(self._file("sync"), note.to_bytes(), 0)

    def noted(self) -> Note | None:
        """The note beside the file, if there is one."""
        try:
            with open(f"{self.path}-sync", "rb") as file:
                return Note.from_bytes(file.read(LONGEST))
        except OSError:
            return None

    def _current(self) -> Note | None:
        """The note, for one whose turn it is. Read without its lock, since those who sync are not waited for, unless it may be
        half written just now.
        """
        if not self.grouped:
            return self.noted()
        file = self._file("sync")
        data = os.pread(file, LONGEST, 0)
        if data == self._last[0]:
            return self._last[1]
        note = Note.from_bytes(data)
        if note is None and data:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                note = Note.from_bytes(os.pread(file, LONGEST, 0))
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)
        return note

    def behind(self) -> LedgerError | None:
        """The error for a ledger that lacks what is known of it; the note is read first, since the ledger grows."""
        with self._lock:
            try:
                self._place.check()
            except LedgerError as error:
                return error
            note = self.noted()
            return self.read(lambda transaction: self._missing(transaction, note))

    def _missing(self, transaction: Transaction, note: Note | None) -> LedgerError | None:
        """The error for a ledger that lacks what the note beside it says, or what this object saw in it."""
        return next(
            (self._older(known) for known in (note, self._last_seen) if known is not None and not known.held_by(transaction)),
            None,
        )

    def blind(self) -> str:
        if self.noted() is None:
            older = f"There is no note beside the file ({self.path.name}-sync): an older copy in its place would look the same."
        else:
            older = (
                "The note beside the file agrees with it; an older copy put back together with its note would look the same."
            )
        return f"{older} Whether this one file is mounted under another name elsewhere, as in a container, is seen only there."

    def _older(self, note: Note) -> LedgerError:
        last = max(note.entries, note.number)
        noted = f"the note beside it, which says that entry {last} was written"
        known = f"this process saw it: entry {last} was there" if note is self._last_seen else noted
        return LedgerError(
            f"{self.path} is older than {known}. A backup was put in its place, or its write-ahead log was cut, so charges "
            "are missing. It can be read, and takes no charge. Put the newer file back, with its -wal. If that is lost, take "
            f"what is missing as spent, and then remove {self.path.name}-sync and open it again, to go on with this one.",
            entry=last,
        )

    def _file(self, name: str) -> int:
        """A file beside the ledger, kept open: a failed sync is told to everyone who had the log open when it failed.

        The system lets go of a lock when its process dies.
        """
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

    def _ledger_error(self, error: Exception) -> LedgerError:
        """An error of the file or the database, as a sentence that says what to do."""
        if isinstance(error, sqlite3.IntegrityError):
            return LedgerError(f"{self.path} refused a change that would break it ({error}); nothing was written.")
        return LedgerError(f"{self.path} cannot be used: {_advice(error)}")

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
