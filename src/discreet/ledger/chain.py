"""Entries: what happened to a budget, each holding the hash of the one before.

hash = SHA-256 of the canonical JSON of the entry with the previous hash in it. Whoever changes, removes or moves an entry
must recompute every later hash; whoever noted one id elsewhere then sees it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any, NamedTuple

from discreet.core.document import parse_json
from discreet.errors import InvalidDocument, InvalidValue, LedgerError
from discreet.ledger.store import Transaction

KINDS = ("open", "share", "reserve", "settle", "cancel", "refuse", "raise", "renew")
PAGE = 500  # entries that are read at once
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode
_ID = re.compile(r"([1-9]\d{0,17})-([0-9a-f]{16})")
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


class Mark(NamedTuple):
    """The place of an entry in the chain, and its hash."""

    number: int
    hash: str

    @property
    def id(self) -> str:
        """What a release carries: the place in the chain and the beginning of the hash."""
        return f"{self.number}-{self.hash[:16]}"


def digest(content: dict[str, Any]) -> str:
    """The hash of a document: an entry's content, for example."""
    return hash_of(canonical(content))


def hash_of(text: str) -> str:
    """SHA-256 of canonical JSON."""
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _content(number: int, at: str, kind: str, source: str, about: int | None, body: str, previous: str) -> str:
    """The canonical JSON of an entry's content, from that of its body; spares encoding the body twice."""
    return (
        f'{{"about":{"null" if about is None else about},"at":{_quoted(at)},"body":{body},"kind":{_quoted(kind)},'
        f'"number":{number},"previous":{_quoted(previous)},"source":{_quoted(source)}}}'
    )


def head(transaction: Transaction) -> Mark:
    """The last entry."""
    return Mark(*transaction.execute("SELECT number, hash FROM head").fetchone())


def append(
    transaction: Transaction,
    kind: str,
    source: str,
    body: dict[str, Any] | str,
    about: int | None = None,
    after: Mark | None = None,
) -> Mark:
    """Write the next entry, after the last one if that is known; a body that is text is canonical JSON already."""
    last, previous = head(transaction) if after is None else after
    text = body if isinstance(body, str) else canonical(body)
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    number = last + 1
    mark = hash_of(_content(number, at, kind, source, about, text, previous))
    row = (number, at, kind, source, about, text, previous, mark)
    transaction.execute(f"INSERT INTO entry ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    transaction.head = new_head = Mark(number, mark)
    return new_head


def page(transaction: Transaction, source: str | None, after: int, upto: int) -> list[Entry]:
    """The next entries after a number, all or those of one source: at most PAGE of them."""
    return [_entry(row) for row in _rows(transaction, source, after, upto)]


def _rows(transaction: Transaction, source: str | None, after: int, upto: int) -> list[Any]:
    where, parameters = ("AND source = ?", (source,)) if source is not None else ("", ())
    return transaction.execute(
        f"SELECT {_COLUMNS} FROM entry WHERE number > ? AND number <= ? {where} ORDER BY number LIMIT {PAGE}",
        (after, upto, *parameters),
    ).fetchall()


def _entry(row: Sequence[Any]) -> Entry:
    """A row as an entry. A body that is not as it was written raises LedgerError."""
    number, text = row[0], row[5]
    try:
        body = parse_json(text)
    except InvalidDocument:
        raise changed(number, "its body is not JSON") from None
    if not isinstance(body, dict) or canonical(body) != text:
        raise changed(number, "its body is not as the ledger writes it")
    at, kind, source, about = row[1:5]
    return Entry(number, at, kind, source, about, body, row[6], row[7])


def entry(transaction: Transaction, number: int) -> Entry:
    """The entry of this number."""
    row = transaction.execute(f"SELECT {_COLUMNS} FROM entry WHERE number = ?", (number,)).fetchone()
    if row is None:
        raise changed(number, "it is missing")
    return _entry(row)


def named(transaction: Transaction, name: str) -> Entry | None:
    """The entry of this id, None if there is none. The id holds a part of its hash, so one that was changed since is not it."""
    match = _ID.fullmatch(name)
    if match is None or not transaction.execute("SELECT 1 FROM entry WHERE number = ?", (int(match[1]),)).fetchone():
        return None
    known = entry(transaction, int(match[1]))
    return known if known.id == name and digest(known.content()) == known.hash else None


def first(transaction: Transaction, source: str) -> Entry:
    """The entry that opened a source."""
    row = transaction.execute(f"SELECT {_COLUMNS} FROM entry WHERE source = ? ORDER BY number LIMIT 1", (source,)).fetchone()
    if row is None:
        raise changed(1, f"nothing tells how {source} was opened")
    return _entry(row)


def follow(transaction: Transaction) -> Iterator[Entry]:
    """Every entry, after checking that it stands where it was written and holds what was written."""
    number, previous = 0, ""
    while rows := _rows(transaction, None, number, 2**62):
        for row in rows:
            number += 1
            if row[0] != number:
                raise changed(number, f"it is missing (the next one there is {row[0]})")
            current = _entry(row)
            if current.previous != previous:
                raise changed(number, "it does not follow the one before: one of the two was changed, moved or replaced")
            if hash_of(_content(*row[:7])) != current.hash:
                raise changed(number, "its hash is not that of its content")
            previous = current.hash
            yield current
    last = head(transaction)
    if last != (number, previous):
        raise changed(max(number, last.number), f"the ledger ends with entry {number} and should end with {last.number}")


def changed(number: int, fault: str) -> LedgerError:
    """The error for an entry that is not as it was written."""
    return LedgerError(
        f"Entry {number} was tampered with: {fault}. Trust nothing from there on; restore a backup.", entry=number
    )
