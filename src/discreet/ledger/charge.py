"""A charge: budget taken before the first row is read."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import Any

from discreet.core import check
from discreet.core.document import parse_json
from discreet.errors import InvalidValue, LedgerError
from discreet.ledger import chain
from discreet.ledger.amount import NOTHING, Amount
from discreet.ledger.budget import spend
from discreet.ledger.store import Store, Transaction

REASONS = ("did_not_run", "withdrawn", "engine_unavailable")
_STATE = (
    "SELECT (SELECT kind FROM entry WHERE about = ? AND kind IN ('settle', 'cancel')), "
    "(SELECT entry FROM started WHERE entry = ?)"
)  # fmt: skip


class Charge:
    """What `Ledger.reserve` returns. The budget is spent already; rows may be read inside `with`, which yields the entry's id.

    Entering the block marks the charge as started, in the ledger, before the first row is read. Leaving it settles the charge.
    An exception inside gives nothing back, since whether it came may depend on the data; neither does a crash. Only a charge
    that never started can be cancelled, for one of a few reasons that no row can influence.

    The state lies in the ledger alone: reserved, then started, then settled; or reserved, then cancelled. Each step is one
    transaction that looks at the state first. So of two that race, one is refused, whatever threads, processes or copies of
    this object they come from. What a cancellation gives back is what the reservation in the ledger says.

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
    >>> charge.state
    'settled'
    """

    def __init__(self, store: Store, mark: chain.Mark, amount: Amount) -> None:
        self._store, self._mark, self._amount = store, mark, amount
        self._settled = False  # by this object, so that leaving the block need not do it again
        self._repeated = False
        self.answer: Any = None

    @classmethod
    def again(cls, store: Store, began: chain.Entry, settled: chain.Entry) -> Charge:
        """The charge of a question that was answered before: it takes nothing, and has its answer."""
        repeated = cls(store, chain.Mark(began.number, began.hash), NOTHING)
        repeated._repeated = repeated._settled = True
        repeated.answer = settled.body["answer"]
        return repeated

    @property
    def id(self) -> str:
        """What a release names as its entry."""
        return self._mark.id

    @property
    def amount(self) -> Amount:
        """What was taken; to look at only, since the ledger goes by its own entry."""
        return self._amount

    @property
    def repeated(self) -> bool:
        """Whether the question was answered before: then `answer` is that answer, and nothing was taken."""
        return self._repeated

    @property
    def state(self) -> str:
        """What the ledger says now: reserved, started, settled or cancelled."""
        return self._store.read(lambda transaction: state(transaction, self._mark.number))

    def started(self) -> None:
        """Mark that rows may be read from now on, so that nothing can be given back. Entering `with` does it too.

        A charge pays for one run, so it starts once. When this returns, the mark has survived whatever happens next.
        """
        if self._repeated:
            raise InvalidValue(f"Charge {self.id} was answered by an earlier entry; it paid for no new run. Use its answer.")

        def start(transaction: Transaction) -> str:
            before = state(transaction, self._mark.number)
            if before == "reserved":
                mark_started(transaction, self._mark)
            return before

        before = self._store.write(start)
        if before != "reserved":
            reason = "was started already" if before == "started" else f"has ended already: it was {before}"
            raise InvalidValue(f"Charge {self.id} {reason}. A charge pays for one run; reserve again.")

    def cancel(self, reason: str) -> None:
        """Give the budget back, because nothing ran: one of did_not_run, withdrawn, engine_unavailable."""
        check.word("reason", reason, REASONS)

        def give_back(transaction: Transaction) -> str:
            before = state(transaction, self._mark.number)
            if before == "reserved":
                source, text = _reserved(transaction, self._mark)
                reservation = parse_json(text)
                chain.append(transaction, "cancel", source, {"reason": reason}, self._mark.number)
                spend(transaction, source, reservation["account"], Amount.from_json(reservation["amount"]), -1)
            return before

        before = "answered by an earlier entry" if self._repeated else self._store.write(give_back)
        if before != "reserved":
            raise InvalidValue(f"Charge {self.id} was {before}, so nothing can be given back; only what never ran can.")

    def settle(self, answer: Any = None) -> None:
        """Record that it ran. An answer (JSON, already released) is kept for those who ask the same with the same key."""
        known = chain.kept(answer)
        before = "settled" if self._repeated else self._end({"outcome": "done"} | ({} if answer is None else {"answer": known}))
        if before in ("settled", "cancelled"):
            raise InvalidValue(f"Charge {self.id} has ended already: it was {before}. A charge is settled once.")
        self.answer = known

    def _end(self, body: dict[str, Any]) -> str:
        """The state before; reserved and started become settled.

        Not durable by itself: if a power failure takes the settlement, the reservation still counts as spent.
        """

        def end(transaction: Transaction) -> str:
            before = state(transaction, self._mark.number)
            if before in ("reserved", "started"):
                source, text = _reserved(transaction, self._mark)
                settled = chain.append(transaction, "settle", source, body, self._mark.number)
                key = parse_json(text)["key"] if "answer" in body else None
                if key is not None:
                    transaction.execute(
                        "INSERT INTO answer VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (source, key, settled.number)
                    )
            return before

        before = self._store.write(end, durable=False)
        self._settled = True
        return before

    def __enter__(self) -> str:
        if not self._repeated:
            self.started()
        return self.id

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Settle what was not settled inside, by this object or another; what started was not cancelled."""
        if self._settled:
            return
        if kind is None:
            self._end({"outcome": "done"})
        else:
            with suppress(LedgerError):  # the error that is under way says more
                self._end({"outcome": "failed"})

    def __repr__(self) -> str:
        return f"Charge({self.id!r}{', repeated' if self._repeated else ''})"


def state(transaction: Transaction, number: int) -> str:
    """The state of the reservation of this number."""
    ended, started = transaction.execute(_STATE, (number, number)).fetchone()
    if ended is not None:
        return "settled" if ended == "settle" else "cancelled"
    return "reserved" if started is None else "started"


def settle_started(transaction: Transaction, name: str) -> None:
    """Settle the charge of this id, which started and whose process is gone; one that was settled stays as it is."""
    entry = chain.named(transaction, name)
    if entry is None or entry.kind != "reserve":
        raise InvalidValue(f"The ledger has no charge {check.shown(name)}. Give the id that a charge or a release names.")
    before = state(transaction, entry.number)
    if before in ("reserved", "cancelled"):
        reason = "never started: nothing ran that could have ended" if before == "reserved" else "was cancelled"
        raise InvalidValue(f"Charge {entry.id} {reason}. Only a charge that started is settled.")
    if before == "started":
        chain.append(transaction, "settle", entry.source, {"outcome": "done"}, entry.number)


def mark_started(transaction: Transaction, mark: chain.Mark) -> None:
    """Write that this reservation has started, for good; the database refuses it for one that has ended."""
    transaction.execute("INSERT INTO started (entry) VALUES (?)", (mark.number,))
    transaction.started = mark


def _reserved(transaction: Transaction, mark: chain.Mark) -> tuple[str, str]:
    """Source and body of the entry that took the budget, as the ledger has them."""
    statement = "SELECT source, body FROM entry WHERE number = ? AND hash = ? AND kind = 'reserve'"
    row = transaction.execute(statement, (mark.number, mark.hash)).fetchone()
    if row is None:
        raise chain.changed(mark.number, "it is not the reservation that this charge was given")
    return row[0], row[1]
