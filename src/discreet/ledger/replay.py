"""The tables of a ledger, computed again from its entries: they must agree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from discreet.errors import LedgerError
from discreet.ledger.amount import NOTHING, Amount, asked_units, basic_limits
from discreet.ledger.balance import DEFAULT
from discreet.ledger.chain import Entry, canonical, changed, follow
from discreet.ledger.store import Transaction


@dataclass
class Tables:
    """The terms of each source; limits and sums spent by (source, account), None for the source as a whole; answers."""

    terms: dict[str, list[Any]] = field(default_factory=dict)
    sums: dict[tuple[str, str | None], list[int]] = field(default_factory=dict)
    answers: dict[tuple[str, str], int] = field(default_factory=dict)
    asked: dict[int, list[Any]] = field(default_factory=dict)
    reserved: dict[int, Entry] = field(default_factory=dict)

    def apply(self, entry: Entry) -> None:
        """What this entry does to the tables; one that could not have been written raises LedgerError."""
        try:
            getattr(self, f"_{entry.kind}")(entry)
            touched = [self.sums[entry.source, name] for name in {None, DEFAULT, entry.body.get("account", DEFAULT)}]
        except (KeyError, TypeError, ValueError, AttributeError):
            raise changed(entry.number, "no ledger writes such an entry") from None
        for limit, spent, epsilon_limit, epsilon_spent, failure_limit, failed in touched:
            either = spent <= limit or epsilon_spent <= epsilon_limit
            if not (either and failed <= failure_limit and min(limit, spent, epsilon_limit, epsilon_spent, failed) >= 0):
                raise changed(entry.number, "with it, more is spent than there was")

    def _open(self, entry: Entry) -> None:
        if entry.source in self.terms:
            raise ValueError
        names = ("fingerprint", "epsilon", "delta", "failure", "order")
        by_period = entry.body["by_period"]
        self.terms[entry.source] = [canonical(entry.body["unit"]), *(entry.body[name] for name in names), int(by_period)]
        for account in (None, DEFAULT):
            self._add(entry, account, 0, NOTHING if by_period else Amount.from_json(entry.body["limit"]))

    def _renew(self, entry: Entry) -> None:
        """The terms are those of the source that is renewed, and only a source that was opened so can be."""
        parent, own = self.terms[entry.body["of"]], entry.body
        if not parent[6] or entry.body["by_period"] or not entry.source.startswith(f"{own['of']}@"):
            raise ValueError
        self._open(entry)
        mine = self.terms[entry.source]
        if mine[0] != parent[0] or mine[2:6] != parent[2:6]:
            raise ValueError

    def _raise(self, entry: Entry) -> None:
        self.terms[entry.source][2:5] = [entry.body[name] for name in ("epsilon", "delta", "failure")]
        for account in (None, DEFAULT):
            self._add(entry, account, 0, Amount.from_json(entry.body["extra"]))

    def _share(self, entry: Entry) -> None:
        amount = Amount.from_json(entry.body["amount"])
        self._add(entry, DEFAULT, 0, amount, -1)
        self._add(entry, entry.body["account"], 0, amount)

    def _reserve(self, entry: Entry) -> None:
        self.reserved[entry.number] = entry
        account, amount = entry.body["account"], Amount.from_json(entry.body["amount"])
        if "limit" in entry.body:
            self._switch(entry, Amount.from_json(entry.body["limit"]))
        for name in (None, account):
            self._add(entry, name, 1, amount)
        if "terms" in entry.body:
            terms = (entry.body["terms"]["epsilon"], entry.body["terms"]["delta"])
            if (units := asked_units(terms, amount)) is not None:
                self.asked[entry.number] = [entry.source, account, *units, amount.epsilon, amount.failure]

    def _switch(self, entry: Entry, limit: Amount) -> None:
        """A first charge decides whether pairs add up: while nothing is spent, and one account has all of the source."""
        rows = [self.sums[entry.source, name] for name in (None, DEFAULT)]
        basic = basic_limits(Amount(*rows[0][::2]), self.terms[entry.source][3])
        if any(rows[0][1::2]) or rows[0] != rows[1] or limit.epsilon != basic.epsilon or limit.failure > basic.failure:
            raise ValueError
        if not limit.divergence and limit != basic:
            raise ValueError
        for row in rows:
            row[::2] = limit

    def _cancel(self, entry: Entry) -> None:
        began = self._ended(entry)
        for account in (None, began.body["account"]):
            self._add(entry, account, 1, Amount.from_json(began.body["amount"]), -1)

    def _settle(self, entry: Entry) -> None:
        key = self._ended(entry).body["key"]
        if key is not None and "answer" in entry.body:
            self.answers.setdefault((entry.source, key), entry.number)

    def _refuse(self, entry: Entry) -> None:
        """A refusal spends nothing."""

    def _ended(self, entry: Entry) -> Entry:
        """The reservation that this entry ends; it can end only once."""
        began = self.reserved.pop(entry.about or 0)
        if began.source != entry.source:
            raise ValueError
        return began

    def _add(self, entry: Entry, account: str | None, column: int, amount: Amount, sign: int = 1) -> None:
        row = self.sums.setdefault((entry.source, account), [0, 0, 0, 0, 0, 0])
        for place, units in enumerate(amount):
            row[column + 2 * place] += sign * units


def verify(transaction: Transaction, noted: str | None) -> str:
    """Follow the chain, replay it, compare; the id of the last entry."""
    wanted, last, replayed = noted, "", Tables()
    for entry in follow(transaction):
        replayed.apply(entry)
        last = entry.id
        wanted = None if wanted == last else wanted
    if wanted is not None:
        raise LedgerError(f"The ledger does not hold entry {noted}, which was noted earlier: it was replaced or rewritten.")
    amounts = ", ".join(f"{kind}_limit, {kind}_spent" for kind in ("divergence", "epsilon", "failure"))
    terms = "name, unit, fingerprint, epsilon, delta, failure, renyi_order, by_period"
    rows = transaction.execute(f"SELECT {terms}, {amounts} FROM source").fetchall()
    sums: dict[Any, Any] = {(row[0], None): list(row[8:]) for row in rows}
    sums.update(
        {(row[0], row[1]): list(row[2:]) for row in transaction.execute(f"SELECT source, name, {amounts} FROM account")}
    )
    _same("sources", {row[0]: list(row[1:8]) for row in rows}, replayed.terms)
    _same("sums", sums, replayed.sums)
    undone = transaction.execute(
        "SELECT about FROM entry WHERE kind = 'cancel' AND about IN (SELECT entry FROM started)"
    ).fetchone()
    if undone is not None:
        raise changed(undone[0], "it was started, and cancelled all the same")
    _same(
        "answers",
        {tuple(row[:2]): row[2] for row in transaction.execute("SELECT source, key, entry FROM answer")},
        replayed.answers,
    )
    columns = "entry, source, account, epsilon, delta, own_epsilon, own_failure"
    _same(
        "terms",
        {str(row[0]): list(row[1:]) for row in transaction.execute(f"SELECT {columns} FROM asked")},
        _named(replayed.asked),
    )
    return last


def _named(asked: dict[int, list[Any]]) -> dict[str, list[Any]]:
    return {str(number): row for number, row in asked.items()}


def _same(table: str, stored: dict[Any, Any], replayed: dict[Any, Any]) -> None:
    for name in {**replayed, **stored}:
        if stored.get(name) != replayed.get(name):
            label = name if isinstance(name, str) else " / ".join(filter(None, name))
            raise LedgerError(f"The {table} of {label} are not what the entries add up to: a table was changed.")
