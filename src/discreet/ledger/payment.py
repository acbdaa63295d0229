"""Whether the entries that a release names really paid for it: for that source, those claims, and for good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from discreet.core.check import shown
from discreet.core.claim import Claim, game_to_json
from discreet.core.event import Event, Repeat, Zero
from discreet.core.event import Sequence as Several
from discreet.core.release import Release
from discreet.errors import DiscreetError
from discreet.ledger import chain
from discreet.ledger.charge import state
from discreet.ledger.store import Transaction


@dataclass(frozen=True, slots=True)
class Payment:
    """The entries that a release names, as a ledger has them; `fault` says why they do not pay for it, None if they do.

    `entries` lacks those that the ledger does not hold, and `states` are those of the charges among them.
    """

    entries: tuple[chain.Entry, ...] = ()
    states: tuple[str, ...] = ()
    fault: str | None = None

    @property
    def entry(self) -> chain.Entry | None:
        """The first entry; None where the release names none, or none that the ledger holds."""
        return self.entries[0] if self.entries else None

    @property
    def state(self) -> str | None:
        """The state of the first charge."""
        return self.states[0] if self.states else None

    @property
    def sound(self) -> bool:
        """Whether entries were named, and paid for just these claims: no fewer, and none that promises nothing."""
        return bool(self.entries) and self.fault is None

    def __str__(self) -> str:
        """Which entries paid, for people."""
        parts = [f"{entry.id} ({now})" for entry, now in zip(self.entries, self.states, strict=True)]
        return f"{'entry' if len(parts) == 1 else 'entries'} {' and '.join(parts)}"


def payment(transaction: Transaction, release: Release[Any]) -> Payment:
    """What a ledger says of the entries that a release names."""
    entries: list[chain.Entry] = []
    states: list[str] = []
    faults: list[str] = []
    for name in release.entries:
        entry = chain.named(transaction, name)
        if entry is None:
            faults.append(f"it names entry {shown(name)}, and the ledger has no such entry")
            continue
        now = state(transaction, entry.number) if entry.kind == "reserve" else None
        entries.append(entry)
        states += [] if now is None else [now]
        faults += [fault for fault in [_fault(release, entry, now)] if fault is not None]
    if entries and not faults:
        faults += [fault for fault in [_claims_fault(release, entries)] if fault is not None]
    return Payment(tuple(entries), tuple(states), faults[0] if faults else None)


def _fault(release: Release[Any], entry: chain.Entry, now: str | None) -> str | None:
    """What is wrong with one entry by itself; `now` is its state, None where it is no charge."""
    if now is None:
        reason = "refused the charge" if entry.kind == "refuse" else f"is no charge (it is of kind {entry.kind})"
        return f"entry {entry.id}, which it names, {reason}: nothing was paid"
    if now == "cancelled":
        return f"entry {entry.id}, which it names, was cancelled, and its budget was given back"
    if now == "reserved":
        return f"entry {entry.id}, which it names, was reserved and never started: its budget can still be given back"
    if entry.source != release.source:
        return f"entry {entry.id}, which it names, paid for {shown(entry.source)}; the release is from {shown(release.source)}"
    account = release.facts.get("account")
    if account is not None and account != entry.body["account"]:
        return f"entry {entry.id}, which it names, was paid by the account {shown(entry.body['account'])}, and not by its own"
    return None


def _claims_fault(release: Release[Any], entries: Sequence[chain.Entry]) -> str | None:
    """Whether the claims are those that one entry paid for, or compose those of several."""
    paid = [_paid(entry) for entry in entries]
    if len(entries) == 1:
        same = bool(release.claims) and _counted(release.claims) == _counted(paid[0])
        return None if same else f"its claims are not those that entry {entries[0].id}, which it names, paid for"
    if all(paid) and _composed(release.claims, [claim for claims in paid for claim in claims]):
        return None
    names = " and ".join(entry.id for entry in entries)
    return f"its claims are not those that entries {names}, which it names, paid for together"


def _paid(entry: chain.Entry) -> list[Claim]:
    """The claims that were charged, in today's words."""
    try:
        return [Claim.from_json(document) for document in entry.body["claims"]]
    except DiscreetError:
        return []


def _counted(claims: Iterable[Claim]) -> Counter[str]:
    """Claims in any order, those that promise nothing among them: no entry pays for what has no bound."""
    return Counter(chain.canonical(claim.to_json()) for claim in claims)


def _composed(claims: Sequence[Claim], parts: Sequence[Claim]) -> bool:
    """Whether there is one claim for each game, and it composes the parts about that game, with all that they assume.

    Events compare as what they repeat, and how often: composition has no order, and Repeat is composition with itself.
    """
    by_game = {_game(claim): claim for claim in claims}
    if len(by_game) != len(claims) or set(by_game) != {_game(part) for part in parts}:
        return False
    for name, claim in by_game.items():
        own = [part for part in parts if _game(part) == name]
        assumed = {sentence for part in own for sentence in part.assumptions}
        if _atoms([claim.event]) != _atoms(part.event for part in own) or not assumed <= set(claim.assumptions):
            return False
    return True


def _game(claim: Claim) -> str:
    return chain.canonical(game_to_json(claim.game))


def _atoms(events: Iterable[Event], times: int = 1) -> Counter[str]:
    """The events that are composed, each with how often it takes place."""
    count: Counter[str] = Counter()
    for event in events:
        match event:
            case Zero():
                continue
            case Repeat(inner, more):
                count += _atoms([inner], times * more)
            case Several(items):
                count += _atoms(items, times)
            case _:
                count[chain.canonical(event.to_json())] += times
    return count
