"""Whether the entry that a release names really paid for it: for that source, those claims, and for good."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from discreet.core import check
from discreet.core.claim import Claim
from discreet.core.release import Release
from discreet.errors import DiscreetError
from discreet.ledger import chain
from discreet.ledger.charge import state
from discreet.ledger.store import Book

_ID = re.compile(r"([1-9]\d{0,17})-([0-9a-f]{16})")


@dataclass(frozen=True, slots=True)
class Payment:
    """The entry that a release names, as a ledger has it; `fault` says why it does not pay for the release, None if it does.

    `entry` is None where the release names none, or one that the ledger does not hold; `state` is that of a charge.
    """

    entry: chain.Entry | None
    state: str | None
    fault: str | None

    @property
    def sound(self) -> bool:
        """Whether an entry was named, and paid for just these claims: no fewer, and none that promises nothing."""
        return self.entry is not None and self.fault is None


def payment(book: Book, release: Release[Any]) -> Payment:
    """What a ledger says of the entry that a release names."""
    if release.entry is None:
        return Payment(None, None, None)
    entry = _named(book, release.entry)
    if entry is None:
        return Payment(None, None, f"it names entry {_short(release.entry)}, and the ledger has no such entry")
    if entry.kind != "reserve":
        reason = "refused the charge" if entry.kind == "refuse" else f"is no charge (it is of kind {entry.kind})"
        return Payment(entry, None, f"entry {entry.id}, which it names, {reason}: nothing was paid")
    now = state(book, entry.number)
    return Payment(entry, now, _fault(release, entry, now))


def _named(book: Book, name: str) -> chain.Entry | None:
    """The entry of this id. The id holds a part of its hash, so one that was changed since is not it."""
    match = _ID.fullmatch(name)
    if match is None or not book.execute("SELECT 1 FROM entry WHERE number = ?", (int(match[1]),)).fetchone():
        return None
    entry = chain.entry(book, int(match[1]))
    return entry if entry.id == name and chain.digest(entry.content()) == entry.hash else None


def _fault(release: Release[Any], entry: chain.Entry, now: str) -> str | None:
    if now == "cancelled":
        return f"entry {entry.id}, which it names, was cancelled, and its budget was given back"
    if now == "reserved":
        return f"entry {entry.id}, which it names, was reserved and never started: its budget can still be given back"
    if entry.source != release.source:
        return (
            f"entry {entry.id}, which it names, paid for {_short(entry.source)}; the release is from {_short(release.source)}"
        )
    account = release.facts.get("account")
    if account is not None and account != entry.body["account"]:
        return f"entry {entry.id}, which it names, was paid by the account {_short(entry.body['account'])}, and not by its own"
    if not release.claims or _counted(release.claims) != _counted(_paid(entry)):
        return f"its claims are not those that entry {entry.id}, which it names, paid for"
    return None


def _paid(entry: chain.Entry) -> list[Claim]:
    """The claims that were charged, in today's words."""
    try:
        return [Claim.from_json(document) for document in entry.body["claims"]]
    except DiscreetError:
        return []


def _counted(claims: Iterable[Claim]) -> Counter[str]:
    """Claims in any order, those that promise nothing among them: no entry pays for what has no bound."""
    return Counter(chain.canonical(claim.to_json()) for claim in claims)


def _short(name: Any) -> str:
    return check.shown(name)
