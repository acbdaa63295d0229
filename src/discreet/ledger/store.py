"""The storage of a ledger: the one interface between the ledger and its database."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from typing import Any, Protocol, TypeVar

from discreet.errors import InvalidValue, LedgerError

T = TypeVar("T")
_POSTGRES = ("postgresql://", "postgres://")


class Rows(Protocol):
    """The result of a statement."""

    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Transaction(Protocol):
    """One transaction. Statements are SQL that every engine reads, with ? for each value.

    `head` is the number and hash of the last entry, once this transaction has written one; `started` those of the reservation
    that it has marked as started.
    """

    head: tuple[int, str] | None
    started: tuple[int, str] | None

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> Rows: ...


class Store(Protocol):
    """A database that holds one ledger. Threads may share it; a forked process must open its own.

    `name` says which, without a password. What is handed to `write` or `read` may be called again after a conflict, so it
    must have no other effects.
    """

    name: str

    def write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """One transaction: all of it or nothing, one writer at a time. If `durable`, it has survived once this returns."""
        ...

    def read(self, work: Callable[[Transaction], T]) -> T:
        """One moment of the ledger, unmoved by those who write meanwhile."""
        ...

    def behind(self) -> LedgerError | None:
        """The error for a ledger that lacks what was once written to it, where that can be told; None where nothing says so."""
        ...

    def blind(self) -> str:
        """A sentence on what cannot be told of an older copy in this ledger's place."""
        ...

    def close(self) -> None: ...


def open_store(place: str | os.PathLike[str]) -> Store:
    """The file at a path, or the database at a postgresql:// URL."""
    if isinstance(place, str) and place.startswith(_POSTGRES):
        from discreet.ledger.postgres import PostgresStore

        return PostgresStore(place)
    if isinstance(place, str) and "://" in place:
        raise InvalidValue("A ledger is a file, or a database at postgresql://user@host/name; this is another kind of URL.")
    if not isinstance(place, (str, os.PathLike)) or not str(place):
        raise InvalidValue(f"A ledger is named by a path or a postgresql:// URL; got {type(place).__name__}.")
    from discreet.ledger.sqlite import SqliteStore

    return SqliteStore(place)


def migrations(engine: str) -> list[str]:
    """The numbered files of schema/, in order; the version of a ledger is how many of them it has seen."""
    files = (resources.files(__package__) / "schema" / engine).iterdir()
    return [file.read_text("utf-8") for file in sorted(files, key=lambda file: file.name) if file.name.endswith(".sql")]
