"""A charge: budget taken before the first row is read."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import Any

from discreet.core import check
from discreet.errors import InvalidValue, LedgerError
from discreet.ledger import chain
from discreet.ledger.budget import Amount, spend
from discreet.ledger.sqlite import SqliteStore

REASONS = ("did_not_run", "withdrawn", "engine_unavailable")


class Charge:
    """What `Ledger.reserve` returns. The budget is spent already; rows may be read inside `with`, which yields the entry's id.

    Leaving the block settles the charge. An exception inside it gives nothing back, since whether it came may depend on the
    data; neither does a crash. Only before the block is entered can the charge be cancelled, for one of a few reasons that
    no row can influence.

    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> from discreet.accounting import Gaussian
    >>> from discreet.core import Claim, Game, record
    >>> from discreet.ledger import Ledger
    >>> ledger = Ledger(Path(mkdtemp()) / "ledger.db")
    >>> _ = ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6)
    >>> charge = ledger.reserve("people", Claim(game=Game(record(), {"answers"}), event=Gaussian(20.0)))
    >>> with charge as entry:
    ...     charge.settle(answer=412)      # rows are read here
    """

    def __init__(self, store: SqliteStore, entry: chain.Entry, settled: chain.Entry | None = None) -> None:
        self._store = store
        self._entry = entry
        self._started = False
        self._ended = settled is not None
        self.id = entry.id
        self.repeated = settled is not None
        self.answer: Any = settled.body["answer"] if settled is not None else None

    @property
    def amount(self) -> Amount:
        """What was taken: nothing for a repeated question."""
        return Amount(0, 0) if self.repeated else Amount.from_json(self._entry.body["amount"])

    def started(self) -> None:
        """Say that rows may be read from now on, so that nothing can be given back. Entering `with` says it too."""
        self._started = True

    def cancel(self, reason: str) -> None:
        """Give the budget back, because nothing ran: one of did_not_run, withdrawn, engine_unavailable."""
        check.word("reason", reason, REASONS)
        if self._started or self._ended:
            state = "answered by an earlier entry" if self.repeated else "settled or cancelled" if self._ended else "started"
            raise InvalidValue(f"Charge {self.id} was {state}, so nothing can be given back; only what never ran can.")
        with self._store.write() as book:
            chain.append(book, "cancel", self._entry.source, {"reason": reason}, self._entry.number)
            spend(book, self._entry.source, self._entry.body["account"], self.amount, -1)
        self._ended = True

    def settle(self, answer: Any = None) -> None:
        """Record that it ran. An answer (JSON, already released) is kept for those who ask the same with the same key."""
        self.started()
        if self._ended:
            raise InvalidValue(f"Charge {self.id} has ended already; a charge is settled once.")
        self.answer = chain.kept(answer)
        self._end({"outcome": "done"} if answer is None else {"outcome": "done", "answer": self.answer})

    def _end(self, body: dict[str, Any]) -> None:
        """Not durable by itself: if a power failure takes the settlement, the reservation still counts as spent."""
        source, key = self._entry.source, self._entry.body["key"]
        with self._store.write(durable=False) as book:
            made = chain.append(book, "settle", source, body, self._entry.number)
            if key is not None and "answer" in body:
                book.execute("INSERT OR IGNORE INTO answer VALUES (?, ?, ?)", (source, key, made.number))
        self._ended = True

    def __enter__(self) -> str:
        self.started()
        if self._ended and not self.repeated:
            raise InvalidValue(f"Charge {self.id} has ended already; reserve again.")
        return self.id

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._ended:
            return
        if kind is None:
            self.settle()
        else:
            with suppress(LedgerError):  # the error that is under way says more
                self._end({"outcome": "failed"})

    def __repr__(self) -> str:
        state = "repeated" if self.repeated else "ended" if self._ended else "started" if self._started else "reserved"
        return f"Charge({self.id!r}, {state})"
