"""Entries: what happened to a budget, each holding the hash of the one before.

hash = SHA-256 of the canonical JSON of the entry with the previous hash in it. Whoever changes, removes or moves an entry
must recompute every later hash; whoever noted one id elsewhere then sees it.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from discreet.core.document import parse_json
from discreet.errors import InvalidDocument, InvalidValue, LedgerError

KINDS = ("open", "share", "reserve", "settle", "cancel", "refuse", "raise")
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode
_COLUMNS = "number, at, kind, source, about, body, previous, hash"


def canonical(document: Any) -> str:
    """JSON with one spelling: members sorted, no spaces, ASCII.

    >>> canonical({"b": 1, "a": "é"})
    '{"a":"\\\\u00e9","b":1}'
    """
    return _encode(document)


def kept(document: Any) -> Any:
    """A document as the ledger will hold it; what would come back as something else is refused."""
    try:
        again = parse_json(canonical(document))
        if _named(document):
            return again
    except (TypeError, ValueError, RecursionError):
        pass
    raise InvalidValue(
        "The ledger keeps JSON: text, finite numbers, lists, and objects with names for members; "
        f"this {type(document).__name__} holds something else."
    )


def _named(document: Any) -> bool:
    """Whether every member has a name: Python would write 1 as "1", and read it back as text."""
    if isinstance(document, dict):
        return all(isinstance(name, str) and _named(value) for name, value in document.items())
    return not isinstance(document, (list, tuple)) or all(map(_named, document))


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger. `about` is the number of the reservation that a settlement or cancellation ends."""

    number: int
    at: str
    kind: str
    source: str
    about: int | None
    body: dict[str, Any]
    previous: str
    hash: str

    @property
    def id(self) -> str:
        """What a release carries: the place in the chain and the beginning of the hash."""
        return f"{self.number}-{self.hash[:16]}"

    def content(self) -> dict[str, Any]:
        """All that the hash covers."""
        return {
            "number": self.number, "at": self.at, "kind": self.kind, "source": self.source, "about": self.about,
            "body": self.body, "previous": self.previous,
        }  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        return {**self.content(), "hash": self.hash}


def digest(content: dict[str, Any]) -> str:
    """The hash of an entry's content."""
    return hashlib.sha256(canonical(content).encode("ascii")).hexdigest()


def append(book: sqlite3.Connection, kind: str, source: str, body: dict[str, Any], about: int | None = None) -> Entry:
    """Write the next entry; the caller holds the transaction."""
    number, previous = book.execute("SELECT number, hash FROM head").fetchone()
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    content = {
        "number": number + 1, "at": at, "kind": kind, "source": source, "about": about, "body": body, "previous": previous,
    }  # fmt: skip
    made = Entry(**content, hash=digest(content))
    row = (made.number, at, kind, source, about, canonical(body), previous, made.hash)
    book.execute(f"INSERT INTO entry ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    return made


def entries(book: sqlite3.Connection, source: str | None = None) -> Iterator[Entry]:
    """Entries in order, all or those of one source. A body that is not as it was written raises LedgerError."""
    where, given = ("WHERE source = ?", (source,)) if source is not None else ("", ())
    for number, at, kind, name, about, text, previous, mark in book.execute(
        f"SELECT {_COLUMNS} FROM entry {where} ORDER BY number", given
    ):
        try:
            body = parse_json(text)
        except InvalidDocument:
            raise changed(number, "its body is not JSON") from None
        if not isinstance(body, dict) or canonical(body) != text:
            raise changed(number, "its body is not as the ledger writes it")
        yield Entry(number, at, kind, name, about, body, previous, mark)


def entry(book: sqlite3.Connection, number: int) -> Entry:
    """The entry of this number."""
    row = book.execute(f"SELECT {_COLUMNS} FROM entry WHERE number = ?", (number,)).fetchone()
    if row is None:
        raise changed(number, "it is missing")
    at, kind, source, about, text, previous, mark = row[1:]
    return Entry(number, at, kind, source, about, parse_json(text), previous, mark)


def follow(book: sqlite3.Connection) -> Iterator[Entry]:
    """Every entry, after checking that it stands where it was written and holds what was written."""
    number, previous = 0, ""
    for found in entries(book):
        number += 1
        if found.number != number:
            raise changed(number, f"it is missing (the next one there is {found.number})")
        if found.previous != previous:
            raise changed(number, "it does not follow the one before: one of the two was changed, moved or replaced")
        if digest(found.content()) != found.hash:
            raise changed(number, "its hash is not that of its content")
        previous = found.hash
        yield found
    last, mark = book.execute("SELECT number, hash FROM head").fetchone()
    if (last, mark) != (number, previous):
        raise changed(max(number, last), f"the ledger ends with entry {number} and should end with {last}")


def changed(number: int, what: str) -> LedgerError:
    """The error for an entry that is not as it was written."""
    return LedgerError(
        f"Entry {number} was tampered with: {what}. Trust nothing from there on; restore a backup.", entry=number
    )
