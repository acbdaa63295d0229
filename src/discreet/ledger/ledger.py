"""The ledger: who may still learn how much about the people in a source, kept through crashes and crowds."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from types import TracebackType
from typing import Any

from discreet.accounting.filter import UNIT, Filter
from discreet.core import Event, check
from discreet.core.claim import Claim, game_from_json, game_to_json
from discreet.core.document import parse_json
from discreet.core.game import Game, Unit
from discreet.errors import DiscreetError, InvalidValue
from discreet.ledger import budget, chain, replay
from discreet.ledger.budget import DEFAULT, Amount, Balance
from discreet.ledger.charge import Charge
from discreet.ledger.sqlite import SqliteStore


class Ledger:
    """Budgets in one file, made if it is not there. A new ledger has no sources, so a mistyped path can spend nothing.

    Between charges the fixed-order Rényi filter adds up (Feldman & Zrnic 2021, Theorem 4.3), so that every charge may be
    chosen after seeing the answers to earlier ones, by anyone, at any time.

    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> from discreet.core import record
    >>> ledger = Ledger(Path(mkdtemp()) / "ledger.db")
    >>> ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6).spent
    Amount(divergence=0, failure=0)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._store = SqliteStore(path)
        self._terms: dict[str, tuple[Unit, Callable[[Event], tuple[int, int]]]] = {}

    def open(
        self, source: str, *, unit: Unit, epsilon: float, delta: float, failure: float = 0.0, fingerprint: str | None = None
    ) -> Balance:
        """Give a source its budget for one unit; the same again changes nothing, anything else is refused.

        The source is the people, not the table: all tables about the same people are one source. `fingerprint` says which
        data it is; no two sources have the same. `failure` is the part of delta set aside for events that may fail.
        """
        check.word("source", source)
        if not isinstance(unit, Unit):
            raise InvalidValue(f"unit must be a Unit, such as discreet.record(); got {type(unit).__name__}.")
        if fingerprint is not None:
            check.word("fingerprint", fingerprint)
        made = Filter(epsilon, delta, failure=failure)
        body = {
            "unit": _unit_to_json(unit), "fingerprint": fingerprint, "epsilon": made.epsilon, "delta": made.delta,
            "failure": made.failure, "order": made.order, "limit": budget.limits(made).to_json(),
        }  # fmt: skip
        with self._store.write() as book:
            if book.execute("SELECT 1 FROM source WHERE name = ?", (source,)).fetchone():
                self._same_opening(book, source, body)
            else:
                self._insert_source(book, source, body)
            return budget.balance(book, source, None)

    @staticmethod
    def _insert_source(book: sqlite3.Connection, source: str, body: dict[str, Any]) -> None:
        same = book.execute("SELECT name FROM source WHERE fingerprint = ?", (body["fingerprint"],)).fetchone()
        if same:
            raise InvalidValue(f"This data has a budget already, under the name {same[0]!r}; a second one would double it.")
        limit = Amount.from_json(body["limit"])
        values = (body[name] for name in ("fingerprint", "epsilon", "delta", "failure", "order"))
        row = (source, chain.canonical(body["unit"]), *values, limit.divergence, 0, limit.failure, 0)
        book.execute("INSERT INTO source VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        budget.allot(book, source, DEFAULT, limit)
        chain.append(book, "open", source, body)

    @staticmethod
    def _same_opening(book: sqlite3.Connection, source: str, body: dict[str, Any]) -> None:
        """Opened again: as it was opened, or as it was raised since."""
        first = next(entry for entry in chain.entries(book, source) if entry.kind == "open").body
        now = budget.balance(book, source, None)
        asked = (body["epsilon"], body["delta"], body["failure"])
        known = [(first["epsilon"], first["delta"], first["failure"]), (now.epsilon, now.delta, now.failure)]
        if asked in known and all(body[name] == first[name] for name in ("unit", "fingerprint")):
            return
        raise InvalidValue(
            f"{source} is open with epsilon {now.epsilon:g}, delta {now.delta:g}, failure {now.failure:g} for "
            f"{_unit_from_json(first['unit'])}, and was asked to open otherwise. Use it as it is, or raise_budget."
        )

    def share(self, source: str, account: str, part: float, *, by: str) -> Balance:
        """Move a part (0 to 1) of the source's budget from its default account to another. The shares never exceed it."""
        check.word("account", account)
        check.word("by", by)
        part = check.positive("part", check.fraction("part", part))
        if account == DEFAULT:
            raise InvalidValue(f"The account {DEFAULT} has what no other account was given; name another.")
        with self._store.write() as book:
            whole, rest = (budget.balance(book, source, name) for name in (None, DEFAULT))
            amount = Amount(*(int(Fraction(part) * limit) for limit in whole.limit))
            if not rest.holds(amount):
                raise rest.refusal(amount)
            budget.allot(book, source, DEFAULT, Amount(-amount.divergence, -amount.failure))
            budget.allot(book, source, account, amount)
            chain.append(book, "share", source, {"account": account, "amount": amount.to_json(), "by": by})
            return budget.balance(book, source, account)

    def reserve(
        self, source: str, claims: Claim | Sequence[Claim], *, account: str | None = None, key: str | None = None
    ) -> Charge:
        """Take what the claims cost, all or nothing, durably, before any row is read; BudgetExceeded if it does not fit.

        With a `key` (see `question_key`), an identical question that was settled with an answer is not charged again.
        """
        known = budget.as_claims(claims)
        account = DEFAULT if account is None else check.word("account", account)
        unit, price = self._known(source)
        body: dict[str, Any] = {"account": account, "key": None, "claims": [claim.to_json() for claim in known]}
        if key is not None:
            body["key"] = question_key({"key": check.word("key", key), "claims": body["claims"]})
        try:
            budget.check_claims(known, source, unit)
            amount = budget.cost(price, (claim.event for claim in known))
        except DiscreetError as error:
            self._refuse(source, body, str(error))
            raise
        return self._take(source, account, amount, body)

    def _take(self, source: str, account: str, amount: Amount, body: dict[str, Any]) -> Charge:
        with self._store.write() as book:
            if (again := self._answered(book, source, body["key"])) is not None:
                return again
            found = budget.balance(book, source, account)
            if found.holds(amount):
                budget.spend(book, source, account, amount)
                return Charge(self._store, chain.append(book, "reserve", source, {**body, "amount": amount.to_json()}))
            refusal = found.refusal(amount)
            chain.append(book, "refuse", source, {**body, "asked": amount.to_json(), "reason": str(refusal)})
        raise refusal

    def _answered(self, book: sqlite3.Connection, source: str, key: str | None) -> Charge | None:
        if key is None:
            return None
        row = book.execute("SELECT entry FROM answer WHERE source = ? AND key = ?", (source, key)).fetchone()
        if row is None:
            return None
        settled = chain.entry(book, row[0])
        return Charge(self._store, chain.entry(book, settled.about or 0), settled)

    def _refuse(self, source: str, body: dict[str, Any], reason: str) -> None:
        with self._store.write() as book:
            chain.append(book, "refuse", source, {**body, "asked": None, "reason": reason})

    def _known(self, source: str) -> tuple[Unit, Callable[[Event], tuple[int, int]]]:
        """The unit, and what an event costs at the filter's order: neither ever changes, so they are worked out once."""
        if source not in self._terms:
            with self._store.read() as book:
                found = budget.balance(book, check.word("source", source), None)
                unit = book.execute("SELECT unit FROM source WHERE name = ?", (source,)).fetchone()[0]
            made = Filter(found.epsilon, found.delta, failure=found.failure, order=found.order)
            self._terms[source] = (_unit_from_json(parse_json(unit)), lru_cache(1024)(made.cost))  # type: ignore[assignment]
        return self._terms[source]

    def raise_budget(
        self, source: str, *, epsilon: float, delta: float, by: str, reason: str, failure: float | None = None
    ) -> Balance:
        """The owner grants more, and says why; it goes to the default account. The order stays, and nothing is lowered."""
        check.word("by", by)
        check.word("reason", reason)
        with self._store.write() as book:
            old = budget.balance(book, source, None)
            made = Filter(epsilon, delta, failure=old.failure if failure is None else failure, order=old.order)
            extra = Amount(*(new - limit for new, limit in zip(budget.limits(made), old.limit, strict=True)))
            if min(extra) < 0 or not any(extra):
                raise InvalidValue(
                    f"{source} has epsilon {old.epsilon:g}, delta {old.delta:g}, failure {old.failure:g}; epsilon {epsilon:g}, "
                    f"delta {delta:g}, failure {made.failure:g} is no more than that. A budget can only be raised."
                )
            book.execute(
                "UPDATE source SET epsilon = ?, delta = ?, failure = ?, divergence_limit = divergence_limit + ?, "
                "failure_limit = failure_limit + ? WHERE name = ?", (made.epsilon, made.delta, made.failure, *extra, source),
            )  # fmt: skip
            budget.allot(book, source, DEFAULT, extra)
            values = {"epsilon": made.epsilon, "delta": made.delta, "failure": made.failure, "extra": extra.to_json()}
            chain.append(book, "raise", source, {**values, "by": by, "reason": reason})
            return budget.balance(book, source, None)

    def balance(self, source: str, account: str | None = None) -> Balance:
        """What a source, or one account of it, may spend and has spent."""
        with self._store.read() as book:
            return budget.balance(book, source, account)

    def spent(self, source: str, account: str | None = None) -> float:
        """The divergence spent, at the source's order; amounts add up."""
        return self.balance(source, account).spent.divergence / UNIT

    def left(self, source: str, account: str | None = None) -> float:
        """The divergence left, at the source's order."""
        return self.balance(source, account).left.divergence / UNIT

    def sources(self) -> list[str]:
        """The names of all sources."""
        with self._store.read() as book:
            return [row[0] for row in book.execute("SELECT name FROM source ORDER BY name")]

    def accounts(self, source: str) -> list[str]:
        """The names of a source's accounts."""
        with self._store.read() as book:
            return [row[0] for row in book.execute("SELECT name FROM account WHERE source = ? ORDER BY name", (source,))]

    def history(self, source: str | None = None) -> list[chain.Entry]:
        """Every entry in order, of one source or of all."""
        with self._store.read() as book:
            return list(chain.entries(book, source))

    def export(self, source: str | None = None) -> Iterator[str]:
        """The entries as JSON lines; `hash` is the SHA-256 of the line without it."""
        for entry in self.history(source):
            yield chain.canonical(entry.to_json())

    def verify(self, noted: str | None = None) -> str:
        """The id of the last entry, after checking every entry and every sum; LedgerError says which entry is at fault.

        Whoever can write the file can write a whole new chain. Note the returned id elsewhere, and give it here later as
        `noted`: then a rewritten past is found as well.
        """
        with self._store.read() as book:
            return replay.verify(book, noted)

    def close(self) -> None:
        """Close the file; what was reserved stays spent."""
        self._store.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({str(self._store.path)!r})"


def question_key(document: Any) -> str:
    """The content hash of a question, from JSON: equal documents have equal keys, whatever the order of their members.

    >>> question_key({"b": 1, "a": 2}) == question_key({"a": 2, "b": 1})
    True
    """
    return chain.digest({"question": chain.kept(document)})


def _unit_to_json(unit: Unit) -> dict[str, Any]:
    document: dict[str, Any] = game_to_json(Game(unit, {"answers"}))["unit"]
    return document


def _unit_from_json(document: Any) -> Unit:
    return game_from_json({"unit": document, "view": ["answers"]}).unit
