"""The entries of a ledger as a sequence that is read in pages, so a long history is never in memory as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from discreet.accounting.filter import EPSILON_UNIT, UNBOUNDED, UNIT
from discreet.figures import up
from discreet.ledger import chain
from discreet.ledger.amount import FAILURE_UNIT, Amount
from discreet.ledger.chain import Entry
from discreet.ledger.store import Store, Transaction


class History(Sequence[Entry]):
    """Entries in order, of one source or of all, up to the last one at the time of the call."""

    def __init__(self, store: Store, source: str | None = None) -> None:
        self._store, self._source = store, source
        self._last = store.read(chain.head).number

    def __iter__(self) -> Iterator[Entry]:
        return self.after(0)

    def after(self, number: int) -> Iterator[Entry]:
        """The entries that follow this number."""
        while page := self._page(number):
            yield from page
            number = page[-1].number

    def _page(self, number: int) -> list[Entry]:
        return self._store.read(lambda transaction: chain.page(transaction, self._source, number, self._last))

    def __len__(self) -> int:
        return int(self._store.read(self._count))

    def _count(self, transaction: Transaction) -> int:
        where, parameters = self._where()
        return int(transaction.execute(f"SELECT count(*) FROM entry {where}", parameters).fetchone()[0])

    def _where(self) -> tuple[str, tuple[int | str, ...]]:
        if self._source is None:
            return "WHERE number <= ?", (self._last,)
        return "WHERE number <= ? AND source = ?", (self._last, self._source)

    @overload
    def __getitem__(self, place: int) -> Entry: ...
    @overload
    def __getitem__(self, place: slice) -> list[Entry]: ...
    def __getitem__(self, place: int | slice) -> Entry | list[Entry]:
        if isinstance(place, slice):
            return self._store.read(lambda transaction: self._span(transaction, place))
        where, parameters = self._where()
        order, skip = ("DESC", -place - 1) if place < 0 else ("ASC", place)

        def find(transaction: Transaction) -> Entry | None:
            statement = f"SELECT number FROM entry {where} ORDER BY number {order} LIMIT 1 OFFSET ?"
            row = transaction.execute(statement, (*parameters, skip)).fetchone()
            return None if row is None else chain.entry(transaction, row[0])

        entry = self._store.read(find)
        if entry is None:
            raise IndexError(f"The history has no entry at place {place}.")
        return entry

    def _span(self, transaction: Transaction, place: slice) -> list[Entry]:
        wanted = range(*place.indices(self._count(transaction)))
        low, high = (min(wanted), max(wanted)) if wanted else (0, -1)
        where, parameters = self._where()
        statement = f"SELECT number FROM entry {where} ORDER BY number LIMIT ? OFFSET ?"
        numbers = [row[0] for row in transaction.execute(statement, (*parameters, high - low + 1, low)).fetchall()]
        return [chain.entry(transaction, numbers[index - low]) for index in wanted]

    def __repr__(self) -> str:
        return f"History({len(self)} entries{f' of {self._source}' if self._source else ''})"


_KINDS = {
    "open": "budget opened", "share": "share given", "settle": "ended", "cancel": "given back", "refuse": "refused",
    "raise": "budget raised", "renew": "period begun",
}  # fmt: skip
_VIEWS = (  # what a charge paid for, by what an adversary sees of it
    ("table", "synthetic table"), ("answers", "answer"), ("updates", "federated round"), ("aggregate", "sum of contributions"),
    ("transcript", "training run"), ("weights", "model"), ("logits", "model"), ("scores", "model"), ("labels", "model"),
    ("ciphertexts", "encrypted answer"),
)  # fmt: skip


def kind_in_words(entry: Entry) -> str:
    """What an entry is, as people say it: `SQL answer`, `training run`, `budget raised`."""
    if entry.kind != "reserve":
        return _KINDS.get(entry.kind, entry.kind)
    views = {name for claim in entry.body.get("claims", ()) for name in claim["game"]["view"]}
    words = next((words for view, words in _VIEWS if view in views), "charge")
    return "SQL answer" if words == "answer" and entry.body.get("key") else words  # questions of SQL are known by a key


def cost_in_words(entry: Entry) -> str:
    """What a charge cost, in the terms in which it was asked for; empty for an entry that is no charge.

    A charge that was not asked for as an (epsilon, delta) is told by its own pure epsilon, or else by its divergence.
    """
    if entry.kind != "reserve":
        return ""
    if "terms" in entry.body:
        terms = entry.body["terms"]
        return f"epsilon {terms['epsilon']:.6g} at delta {up(terms['delta'], 6)}"
    amount = Amount.from_json(entry.body["amount"])
    failure = f" at delta {up(amount.failure / FAILURE_UNIT)}" if amount.failure else ""
    if amount.epsilon < UNBOUNDED:
        return f"epsilon {up(amount.epsilon / EPSILON_UNIT)}{failure}"
    return f"divergence {up(amount.divergence / UNIT)}{failure}"
