"""The ledger in a PostgreSQL database, in a schema named discreet: for many machines at once.

Transactions are serialisable. Writers wait for each other at one lock, taken before the transaction looks at anything, so that
what each of them sees is what the last one left; a conflict with anything else is tried again a few times. A commit returns
when the server has it on its disk; only settlements do not wait for that. Every transaction that writes looks first whether the
last entry that this process wrote durably is still there, in the same message that begins it: a backup restored under an open
ledger takes no charge.
"""

from __future__ import annotations

import os
import random
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from discreet.core import check
from discreet.errors import LedgerError, MissingExtra
from discreet.ledger.store import Rows, T, Transaction, migrations

if TYPE_CHECKING:
    import psycopg

ATTEMPTS = 10
PATIENCE = 60  # seconds that a writer waits for its turn, and that a silent one may keep the others waiting
_CREATION = 0x64736372  # "dscr": the advisory lock of those who make or migrate a ledger
_DEFAULTS = {
    "connect_timeout": PATIENCE, "application_name": "discreet ledger",
    "keepalives_idle": PATIENCE // 2, "tcp_user_timeout": 1000 * PATIENCE,
}  # fmt: skip
_BEGIN = "BEGIN ISOLATION LEVEL SERIALIZABLE; LOCK TABLE discreet.head IN EXCLUSIVE MODE"
_BEGIN_LAZY = f"{_BEGIN}; SET LOCAL synchronous_commit = off"
_BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"  # writers come one after another, so a moment is whole


@lru_cache(256)
def _spelled(statement: str) -> str:
    return statement.replace("?", "%s")


class _Transaction:
    """A transaction; statements as every engine reads them, with ? for each value."""

    __slots__ = ("_link", "head", "started")

    def __init__(self, link: psycopg.Connection[Any]) -> None:
        self._link = link
        self.head: tuple[int, str] | None = None
        self.started: tuple[int, str] | None = None

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> Rows:
        return self._link.execute(_spelled(statement), parameters)


class PostgresStore:
    """One connection to a ledger. Threads may share it; a forked process must open its own."""

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ImportError:
            raise MissingExtra("psycopg", "postgres", "A ledger in PostgreSQL") from None
        self._driver = psycopg
        self._url = url
        self.name = _shown(url)
        self._lock = threading.RLock()
        self._opener = os.getpid()
        self._closed = False
        self._last_seen: tuple[int, str] | None = (
            None  # the last entry that this object wrote, and that the server has on its disk
        )
        with self._translated_errors():
            self._link = self._connect()

    def _connect(self) -> psycopg.Connection[Any]:
        link = self._driver.connect(**{**_DEFAULTS, **self._connection_parameters()}, autocommit=True)
        try:
            self._prepare(link)
        except BaseException:
            link.close()
            raise
        return link

    def _connection_parameters(self) -> dict[str, Any]:
        """What the URL says; an error of the parser may show a part of a password, so it is not told."""
        try:
            return dict(self._driver.conninfo.conninfo_to_dict(self._url))
        except self._driver.ProgrammingError:
            raise LedgerError(
                "This is no URL of a PostgreSQL database, such as postgresql://user@host:5432/name. A special character in a "
                "name or password is written with %, as %40 for @."
            ) from None

    def _prepare(self, link: psycopg.Connection[Any]) -> None:
        link.execute("SET search_path = discreet")
        link.execute(f"SET lock_timeout = '{PATIENCE}s'")
        link.execute(f"SET idle_in_transaction_session_timeout = '{PATIENCE}s'")
        if _setting(link, "synchronous_commit") == "off":
            link.execute("SET synchronous_commit = on")
        if _setting(link, "fsync") == "off":
            warnings.warn(
                f"{self.name} runs with fsync = off: a power failure can lose charges that were made. Turn it on, unless what "
                "is under it is durable in another way.", stacklevel=6,
            )  # fmt: skip
        steps = migrations("postgres")
        if self._version(link, len(steps)) < len(steps):
            self._migrate(link, steps)

    def _version(self, link: psycopg.Connection[Any], newest: int) -> int:
        """How many steps this ledger has seen; a schema that is not ours, or of a later version, is refused and left alone."""
        schema = link.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'discreet'").fetchone()
        if schema is None:
            return 0
        tables = link.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'discreet'").fetchall()
        if ("ledger_version",) not in tables:
            raise LedgerError(f"{self.name} has a schema named discreet which is not a ledger. Use another database.")
        version = int(link.execute("SELECT version FROM discreet.ledger_version").fetchone()[0])  # type: ignore[index]
        if version > newest:
            raise LedgerError(
                f"{self.name} was written by a later discreet (schema {version}; this one knows up to {newest}). "
                "Nothing was changed. Install the later version to use it."
            )
        return version

    def _migrate(self, link: psycopg.Connection[Any], steps: list[str]) -> None:
        with link.transaction():
            link.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATION,))
            version = self._version(link, len(steps))  # looked at again, since others may have been first
            if version == 0:
                link.execute("CREATE SCHEMA discreet")
                link.execute("CREATE TABLE discreet.ledger_version (version INTEGER NOT NULL)")
                link.execute("INSERT INTO discreet.ledger_version VALUES (0)")
            for text in steps[version:]:
                link.execute(text.encode())
            link.execute("UPDATE discreet.ledger_version SET version = %s", (len(steps),))

    def write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """One transaction: all of it or nothing. If `durable`, the server has it on its disk once this returns."""
        with self._lock:
            result, head = self._transact(work, _BEGIN if durable else _BEGIN_LAZY)
            if durable and head is not None:  # a crash of the server may take what it was not asked to keep
                self._last_seen = head
            return result

    def read(self, work: Callable[[Transaction], T]) -> T:
        """One moment of the ledger, unmoved by those who write meanwhile."""
        return self._transact(work, _BEGIN_READING)[0]

    def _transact(self, work: Callable[[Transaction], T], begin: str) -> tuple[T, tuple[int, str] | None]:
        """What the work gave, and the last entry that it wrote."""
        conflicts = (self._driver.errors.SerializationFailure, self._driver.errors.DeadlockDetected)
        with self._lock, self._translated_errors():
            self._refuse_unusable()
            for attempt in range(ATTEMPTS):
                try:
                    link = self._begin(begin)
                    transaction = _Transaction(link)
                    result = work(transaction)
                    link.execute("COMMIT")
                    return result, transaction.head
                except conflicts:
                    self._roll_back(self._link)
                except BaseException:
                    self._roll_back(self._link)
                    raise
                time.sleep(random.random() * 0.002 * 2 ** min(attempt, 6))
            raise LedgerError(
                f"{self.name}: others changed the ledger each of the {ATTEMPTS} times that this was tried. Nothing was "
                "written. Try again."
            )

    def _refuse_unusable(self) -> None:
        """A connection from before a fork is another process's: nothing may be sent there, not even a rollback."""
        if self._opener != os.getpid():
            raise LedgerError(f"{self.name} was opened before a fork; connections do not cross it. Open it again: Ledger(...).")
        if self._closed:
            raise LedgerError(f"{self.name} was closed. Open it again: Ledger(...).")

    def _begin(self, begin: str) -> psycopg.Connection[Any]:
        """The connection, in a new transaction. One that was lost while nothing was under way is simply made again."""
        looks = self._last_seen is not None and begin != _BEGIN_READING
        statements = (f"{begin}; {self._look()}" if looks else begin).encode()
        try:
            cursor = self._link.execute(statements, prepare=False)
        except self._driver.OperationalError:
            if not self._link.closed:
                raise
            self._link = self._connect()
            cursor = self._link.execute(statements, prepare=False)
        if looks and not _last(cursor):
            raise self._older()
        return self._link

    def _look(self) -> str:
        """Whether the entry seen last is there, as a statement without parameters: so it goes in one message with others."""
        if self._last_seen is None:
            return "SELECT true"
        number, mark = self._last_seen
        return f"SELECT EXISTS (SELECT 1 FROM discreet.entry WHERE number = {number:d} AND hash = '{int(mark, 16):064x}')"

    def _older(self) -> LedgerError:
        last = 0 if self._last_seen is None else self._last_seen[0]
        return LedgerError(
            f"{self.name} is older than this process saw it: entry {last} was there. A backup was put in its place, so "
            "charges are missing. It can be read, and takes no charge. Put the newer database back. If that "
            "is lost, take what is missing as spent, and then open the ledger again, to go on with this one.", entry=last,
        )  # fmt: skip

    def _roll_back(self, link: psycopg.Connection[Any]) -> None:
        with suppress(self._driver.Error):
            link.execute("ROLLBACK")

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Errors of the database, as a sentence that says what to do."""
        try:
            yield
        except self._driver.IntegrityError as error:
            message = check.shown(error.diag.message_primary or "")
            raise LedgerError(f"{self.name} refused a change that would break it ({message}); nothing was written.") from None
        except self._driver.DataError:
            raise LedgerError(
                f"{self.name} cannot hold this text, perhaps because of a NUL character in a name; nothing was written."
            ) from None
        except self._driver.Error as error:
            raise LedgerError(f"{self.name} cannot be used: {_advice(error)}") from None

    def behind(self) -> LedgerError | None:
        """Nothing beside a database says how far it once was; this object knows what it wrote itself."""
        with self._lock:
            held = self.read(lambda transaction: transaction.execute(self._look()).fetchone()[0])
            return None if held else self._older()

    def blind(self) -> str:
        return "A database that was restored from a backup would look the same."

    def close(self) -> None:
        """Close the connection; what was reserved stays spent."""
        with self._lock:
            if not self._closed and self._opener == os.getpid():
                self._closed = True
                self._link.close()


def _last(cursor: psycopg.Cursor[Any]) -> bool:
    """The answer to the last of several statements."""
    while cursor.nextset():
        pass
    return bool(cursor.fetchone()[0])  # type: ignore[index]


def _setting(link: psycopg.Connection[Any], name: str) -> str:
    return str(link.execute("SELECT current_setting(%s)", (name,)).fetchone()[0])  # type: ignore[index]


def _shown(url: str) -> str:
    """The URL as it may be shown: without a password, wherever it stands."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or parse_qs(parts.query).get("host", [""])[0]
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "postgresql://..."
    return f"postgresql://{f'{parts.username}@' if parts.username else ''}{host}{port}{parts.path}"


def _advice(error: Any) -> str:
    code, text = error.sqlstate or "", (error.diag.message_primary or str(error)).strip()
    for sign, advice in (
        ("55P03", f"another writer kept it locked for {PATIENCE} seconds. Try again."),
        ("53100", "the server's disk is full; nothing was written. Make room and try again."),
        ("53", "the server has no room for this now (connections, memory or disk). Try again later."),
        (
            "25006",
            "it may only be read there. Charges must be recorded: connect to the primary server, with the right to write.",
        ),
        ("42501", "this user may not use it. Ask for the right to read and write the schema discreet."),
        ("42P01", "its schema discreet is not a complete ledger. Restore it from a backup, and check that with verify()."),
        ("28", "the server refused this user or password."),
        ("3D000", "there is no such database. Make it: createdb."),
    ):
        if code.startswith(sign):
            return advice
    if not code or code[:2] in ("08", "57"):
        return (
            "the connection could not be made, or was lost; what was being reserved may count as spent. Is the server up? "
            f"({check.shown(text.splitlines()[0] if text else type(error).__name__)})"
        )
    return check.shown(text)
