"""A charge: budget taken before the first row is read."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import Any

from discreet.core import check
from discreet.errors import InvalidValue, LedgerError
from discreet.ledger import chain
from discreet.ledger.amount import NOTHING, Amount
from discreet.ledger.budget import spend
from discreet.ledger.store import Book, Store

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

    def __init__(
        self, store: Store, mark: chain.Mark, source: str, account: str, amount: Amount, key: str | None = None
    ) -> None:
        self._store = store
        self._number = mark.number
        self._source, self._account, self._key = source, account, key
        self._started = self._ended = False
        self.id = mark.id
        self.amount = amount
        self.repeated = False
        self.answer: Any = None

    @classmethod
    def again(cls, store: Store, began: chain.Entry, settled: chain.Entry) -> Charge:
        """The charge of a question that was answered before: it takes nothing, and has its answer."""
        mark = chain.Mark(began.number, began.hash)
        made = cls(store, mark, began.source, began.body["account"], NOTHING, began.body["key"])
        made.repeated = made._ended = True
        made.answer = settled.body["answer"]
        return made

    def started(self) -> None:
        """Say that rows may be read from now on, so that nothing can be given back. Entering `with` says it too."""
        self._started = True

    def cancel(self, reason: str) -> None:
        """Give the budget back, because nothing ran: one of did_not_run, withdrawn, engine_unavailable."""
        check.word("reason", reason, REASONS)
        if self._started or self._ended:
            state = "answered by an earlier entry" if self.repeated else "settled or cancelled" if self._ended else "started"
            raise InvalidValue(f"Charge {self.id} was {state}, so nothing can be given back; only what never ran can.")

        def give_back(book: Book) -> None:
            chain.append(book, "cancel", self._source, {"reason": reason}, self._number)
            spend(book, self._source, self._account, self.amount, -1)

        self._store.write(give_back)
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

        def end(book: Book) -> None:
            made = chain.append(book, "settle", self._source, body, self._number)
            if self._key is not None and "answer" in body:
                given = (self._source, self._key, made.number)
                book.execute("INSERT INTO answer VALUES (?, ?, ?) ON CONFLICT DO NOTHING", given)

        self._store.write(end, durable=False)
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
