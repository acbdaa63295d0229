"""The ledger: the privacy budget of each source, safe under crashes and concurrent use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted
from types import TracebackType
from typing import Any

from discreet.accounting.filter import Filter
from discreet.core import check
from discreet.core.claim import Claim, game_from_json, game_to_json
from discreet.core.document import parse_json
from discreet.core.game import Game, Unit
from discreet.core.release import Release
from discreet.errors import BudgetExceeded, DiscreetError, InvalidValue
from discreet.ledger import budget, chain, names, replay
from discreet.ledger.amount import NOTHING, Amount, Offer, first, limits, offer, terms_json
from discreet.ledger.balance import DEFAULT, Balance
from discreet.ledger.charge import Charge, settle_started
from discreet.ledger.history import History
from discreet.ledger.payment import Payment, payment
from discreet.ledger.store import T, Transaction, open_store

PERIOD = "@"  # between the name of a source and that of its period


class Ledger:
    """Budgets in one file, or in a database at a postgresql:// URL; made if it is not there.

    A new ledger has no sources, so a mistyped name can spend nothing.

    Between charges a filter adds up: Rényi divergences of one fixed order (Feldman & Zrnic 2021, Theorem 4.3), or plain
    epsilons, whichever has room. So every charge may be chosen after seeing earlier answers, by anyone, at any time. A first
    charge that fits neither may take all of (epsilon, delta) as one pair; then only such pairs add up.

    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> from discreet.core import record
    >>> ledger = Ledger(Path(mkdtemp()) / "ledger.db")
    >>> ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6).spent
    Amount(divergence=0, epsilon=0, failure=0)
    >>> ledger.left("people")
    1.0
    """

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self._store, self._place = open_store(place), os.fspath(place)
        self._terms: dict[str, tuple[Unit, Filter]] = {}
        self._priced = lru_cache(1024)(self._price)

    def open(
        self,
        source: str,
        *,
        unit: Unit,
        epsilon: float,
        delta: float,
        failure: float | None = None,
        fingerprint: str | None = None,
        by_period: bool = False,
    ) -> Balance:
        """Give a source its budget for one unit; the same again changes nothing, anything else is refused.

        The source is the people, not the table: all tables about the same people are one source. A new name is in normal form
        and looks like no other (`names.py`). `fingerprint` says which data it is; no two sources have the same. `failure` is
        the part of delta set aside for events that may fail, such as the release of group names; half of delta unless you say
        otherwise, and 0 leaves all of it to the other events. With `by_period` the source has no budget itself: each of its
        periods gets this one, by `renew`.
        """
        if PERIOD in check.word("source", source):
            raise InvalidValue(f"source must not hold {PERIOD}, which stands before a period; got {check.shown(source)}.")
        if not isinstance(unit, Unit):
            raise InvalidValue(f"unit must be a Unit, such as discreet.record(); got {type(unit).__name__}.")
        if fingerprint is not None:
            check.word("fingerprint", fingerprint)
        terms = Filter(epsilon, delta, failure=check.open_fraction("delta", delta) / 2 if failure is None else failure)
        body = {
            "unit": _unit_to_json(unit), "fingerprint": fingerprint, "epsilon": terms.epsilon, "delta": terms.delta,
            "failure": terms.failure, "order": terms.order, "limit": limits(terms).to_json(), "by_period": bool(by_period),
        }  # fmt: skip

        def work(transaction: Transaction) -> Balance:
            if transaction.execute("SELECT 1 FROM source WHERE name = ?", (source,)).fetchone():
                self._same_opening(transaction, source, body, failure is not None)
            else:
                budget.check_absent(transaction, source)
                names.unlike("source", names.new_name("source", source), _sources(transaction))
                self._insert_source(transaction, "open", source, body)
            return budget.balance(transaction, source, None)

        return self._store.write(work)

    def renew(self, source: str, *, period: str, by: str, reason: str, fingerprint: str | None = None) -> Balance:
        """A fresh budget for the data of one period, which no charge of another period reads; it is charged as source@period.

        Only for a source that was opened `by_period`. A period has one budget: renewing it again changes nothing.
        """
        check.word("source", source)
        check.word("by", by)
        check.word("reason", reason)
        if PERIOD in check.word("period", period):
            raise InvalidValue(f"period must not hold {PERIOD}; got {check.shown(period)}.")
        if fingerprint is not None:
            check.word("fingerprint", fingerprint)
        name = f"{source}{PERIOD}{period}"

        def work(transaction: Transaction) -> Balance:
            if not budget.balance(transaction, source, None).by_period:
                raise InvalidValue(f"{source} has one budget, whenever it is asked; only a source opened by_period is renewed.")
            if not transaction.execute("SELECT 1 FROM source WHERE name = ?", (name,)).fetchone():
                budget.check_absent(transaction, name)
                names.new_name("period", period)
                names.unlike("source", name, _sources(transaction))
                terms = chain.first(transaction, source).body
                own = {"fingerprint": fingerprint, "by_period": False, "of": source, "by": by, "reason": reason}
                self._insert_source(transaction, "renew", name, {**terms, **own})
            return budget.balance(transaction, name, None)

        return self._store.write(work)

    @staticmethod
    def _insert_source(transaction: Transaction, kind: str, source: str, body: dict[str, Any]) -> None:
        same = transaction.execute("SELECT name FROM source WHERE fingerprint = ?", (body["fingerprint"],)).fetchone()
        if same:
            raise InvalidValue(f"This data has a budget already, under the name {same[0]!r}; a second one would double it.")
        limit = NOTHING if body["by_period"] else Amount.from_json(body["limit"])
        values = (body[name] for name in ("fingerprint", "epsilon", "delta", "failure", "order"))
        sums = (number for part in limit for number in (part, 0))
        row = (source, chain.canonical(body["unit"]), *values, int(body["by_period"]), *sums)
        transaction.execute(f"INSERT INTO source VALUES ({', '.join('?' * len(row))})", row)
        budget.allot(transaction, source, DEFAULT, limit)
        chain.append(transaction, kind, source, body)

    @staticmethod
    def _same_opening(transaction: Transaction, source: str, body: dict[str, Any], stated: bool) -> None:
        """Opened again: as it was opened, or as it was raised since. A failure that was not `told` contradicts nothing."""
        first = chain.first(transaction, source).body
        now = budget.balance(transaction, source, None)
        known = [(first["epsilon"], first["delta"], first["failure"]), (now.epsilon, now.delta, now.failure)]
        requested = [(body["epsilon"], body["delta"], body["failure"] if stated else failure) for _, _, failure in known]
        if any(terms in known for terms in requested) and all(
            body[name] == first[name] for name in ("unit", "fingerprint", "by_period")
        ):
            return
        raise InvalidValue(
            f"{source} is open with epsilon {now.epsilon:g}, delta {now.delta:g}, failure {now.failure:g} for "
            f"{_unit_from_json(first['unit'])}{', by period' if now.by_period else ''}, and was asked to open otherwise. "
            "Use it as it is, or raise_budget."
        )

    def share(self, source: str, account: str, part: float, *, by: str) -> Balance:
        """Move a part (0 to 1) of the source's budget from its default account to another. The shares never exceed it."""
        check.word("account", account)
        check.word("by", by)
        part = check.positive("part", check.fraction("part", part))
        if account == DEFAULT:
            raise InvalidValue(f"The account {DEFAULT} has what no other account was given; name another.")

        def work(transaction: Transaction) -> Balance:
            whole, rest = (_own(budget.balance(transaction, source, name)) for name in (None, DEFAULT))
            amount = Amount(*(int(Fraction(part) * limit) for limit in whole.limit))
            if min(rest.limit.minus(amount)) < 0 or not rest.holds(amount):
                raise rest.cannot_share(part)
            known = _accounts(transaction, source)
            if account not in known:
                names.unlike("account", names.new_name("account", account), known)
            budget.allot(transaction, source, DEFAULT, NOTHING.minus(amount))
            budget.allot(transaction, source, account, amount)
            chain.append(transaction, "share", source, {"account": account, "amount": amount.to_json(), "by": by})
            return budget.balance(transaction, source, account)

        return self._store.write(work)

    def reserve(
        self,
        source: str,
        claims: Claim | Sequence[Claim],
        *,
        account: str | None = None,
        key: str | None = None,
        asked: tuple[float, float] | None = None,
    ) -> Charge:
        """Take what the claims cost, all or nothing, durably, before any row is read; BudgetExceeded if it does not fit.

        With a `key` (see `question_key`), an identical question that was settled with an answer is not charged again. `asked`
        is the (epsilon, delta) that the claims were made for, which they must keep: in these terms the entry is shown,
        and it may be charged as that pair where it does not fit otherwise.
        """
        check.word("source", source)
        known = budget.as_claims(claims)
        account = DEFAULT if account is None else check.word("account", account)
        if key is not None:
            check.word("key", key)
        asked = None if asked is None else _pair(asked)
        try:
            price, claims_json = self._priced(source, known, asked)
        except DiscreetError as error:
            if source in self._terms:  # a source that is not there has nowhere to note it
                self._refuse(source, account, key, known, str(error))
                if isinstance(error, BudgetExceeded):
                    error.left = self.left(source, account)
            raise
        mark = None if key is None else _key(key, claims_json)
        charge = self._store.write(lambda transaction: self._take(transaction, source, account, price, mark, claims_json))
        if charge is None:  # it may be a first charge; what it takes of all of delta is worked out here, outside any lock
            alone = first(self._filter(source), [claim.event for claim in known], price)
            charge = self._store.write(
                lambda transaction: self._take(transaction, source, account, alone, mark, claims_json, sure=True)
            )
        if isinstance(charge, BudgetExceeded):
            raise charge
        assert charge is not None  # with `sure` it is one or the other
        return charge

    def settle(self, entry: str) -> None:
        """Record that what a charge paid for has ended, by its id: for a run that went on in another process. What was settled
        stays so, and nothing is ever given back.
        """
        check.word("entry", entry)
        self._store.write(lambda transaction: settle_started(transaction, entry), durable=False)

    def _take(
        self,
        transaction: Transaction,
        source: str,
        account: str,
        price: Offer,
        key: str | None,
        claims: str,
        *,
        sure: bool = False,
    ) -> Charge | BudgetExceeded | None:
        """The charge; or the refusal, which is written down before it is raised. None if it might fit as a first charge, whose
        price is not worked out; with `sure` it is.
        """
        if key is not None and (again := self._answered(transaction, source, key)) is not None:
            return again
        fit = budget.take(transaction, source, account, price, key, claims)
        if fit is not None:
            return Charge(self._store, fit.last, fit.amount)
        balance = budget.balance(transaction, source, account)
        if not sure and balance.untouched:
            return None
        refusal = balance.no_room(price)
        body = {"account": account, "asked": None if price.own is None else price.own.to_json(), "key": key}
        reason = {"reason": str(refusal)} if price.asked is None else {"reason": str(refusal), "terms": terms_json(price.asked)}
        chain.append(transaction, "refuse", source, {**body, "claims": parse_json(claims), **reason})
        return refusal

    def answered(self, source: str, claims: Claim | Sequence[Claim], key: str) -> bool:
        """Whether a question with this key and these claims was settled with an answer, so that asking it again is free."""
        mark = _key(check.word("key", key), chain.canonical([claim.to_json() for claim in budget.as_claims(claims)]))
        return self._store.read(lambda transaction: self._answered(transaction, check.word("source", source), mark) is not None)

    def _answered(self, transaction: Transaction, source: str, key: str) -> Charge | None:
        row = transaction.execute("SELECT entry FROM answer WHERE source = ? AND key = ?", (source, key)).fetchone()
        if row is None:
            return None
        settled = chain.entry(transaction, row[0])
        return Charge.again(self._store, chain.entry(transaction, settled.about or 0), settled)

    def _refuse(self, source: str, account: str, key: str | None, claims: tuple[Claim, ...], reason: str) -> None:
        documents = [claim.to_json() for claim in claims]
        mark = None if key is None else _key(key, chain.canonical(documents))
        body = {"account": account, "key": mark, "claims": documents, "asked": None, "reason": reason}
        self._store.write(lambda transaction: chain.append(transaction, "refuse", source, body))

    def _price(self, source: str, claims: tuple[Claim, ...], asked: tuple[float, float] | None = None) -> tuple[Offer, str]:
        """What the claims cost, and the claims as JSON: none of it ever changes."""
        unit, terms = self._known(source)
        budget.check_claims(claims, source, unit)
        price = offer(terms, [claim.event for claim in claims], asked)
        return price, chain.canonical([claim.to_json() for claim in claims])

    def _filter(self, source: str) -> Filter:
        """A filter with the terms that the source has now."""
        balance = self.balance(source)
        return Filter(balance.epsilon, balance.delta, failure=balance.failure, order=balance.order)

    def _known(self, source: str) -> tuple[Unit, Filter]:
        """The unit, and a filter of the source's order, which says what events cost: neither ever changes."""
        if source not in self._terms:

            def look(transaction: Transaction) -> tuple[Balance, str]:
                balance = _own(budget.balance(transaction, source, None))
                return balance, transaction.execute("SELECT unit FROM source WHERE name = ?", (source,)).fetchone()[0]

            balance, unit = self._look(look)
            terms = Filter(balance.epsilon, balance.delta, failure=balance.failure, order=balance.order)
            self._terms[source] = (_unit_from_json(parse_json(unit)), terms)
        return self._terms[source]

    def raise_budget(
        self, source: str, *, epsilon: float, delta: float, by: str, reason: str, failure: float | None = None
    ) -> Balance:
        """The owner grants more, and says why; it goes to the default account. The order stays, and nothing is lowered.

        The part of delta for events that may fail stays the same part, unless `failure` says otherwise.
        """
        check.word("by", by)
        check.word("reason", reason)

        def work(transaction: Transaction) -> Balance:
            old = _own(budget.balance(transaction, source, None))
            terms = Filter(epsilon, delta, failure=_failure(old, delta) if failure is None else failure, order=old.order)
            extra = budget.raised(old, terms).minus(old.limit)
            if terms.epsilon >= old.epsilon:  # beyond 99 a filter adds up no plain epsilons; what may be added stays
                extra = extra._replace(epsilon=max(extra.epsilon, 0))
            if min(extra) < 0 or not any(extra):
                raise InvalidValue(
                    f"{source} has epsilon {old.epsilon:g}, delta {old.delta:g}, failure {old.failure:g}; epsilon {epsilon:g}, "
                    f"delta {delta:g}, failure {terms.failure:g} is no more than that. A budget can only be raised."
                )
            transaction.execute(
                "UPDATE source SET epsilon = ?, delta = ?, failure = ?, divergence_limit = divergence_limit + ?, "
                "epsilon_limit = epsilon_limit + ?, failure_limit = failure_limit + ? WHERE name = ?",
                (terms.epsilon, terms.delta, terms.failure, *extra, source),
            )  # fmt: skip
            budget.allot(transaction, source, DEFAULT, extra)
            values = {"epsilon": terms.epsilon, "delta": terms.delta, "failure": terms.failure, "extra": extra.to_json()}
            chain.append(transaction, "raise", source, {**values, "by": by, "reason": reason})
            return budget.balance(transaction, source, None)

        return self._store.write(work)

    def balance(self, source: str, account: str | None = None) -> Balance:
        """What a source, or one account of it, may spend and has spent."""
        return self._look(lambda transaction: budget.balance(transaction, source, account))

    def _look(self, work: Callable[[Transaction], T]) -> T:
        """Read; where an entry is missing because this is an older copy of the ledger, the error says so."""
        try:
            return self._store.read(work)
        except InvalidValue:
            if (behind := self._store.behind()) is not None:
                raise behind from None
            raise

    def spent(self, source: str, account: str | None = None) -> float:
        """The epsilon that all that was spent amounts to, at the budget's delta; `balance` has the sums that add up."""
        return self.balance(source, account).epsilon_spent

    def left(self, source: str, account: str | None = None) -> float:
        """The largest epsilon (at delta 0) that one more charge may have; many smaller ones may fit instead.

        Of a source, without an account: by whichever of its accounts may take most. A charge without one is to `default`.
        """
        return self.balance(source, account).epsilon_left

    def sources(self) -> list[str]:
        """The names of all sources; periods are such names, as source@period."""
        return self._store.read(_sources)

    def accounts(self, source: str) -> list[str]:
        """The names of a source's accounts."""
        return self._store.read(lambda transaction: _accounts(transaction, source))

    def history(self, source: str | None = None) -> Sequence[chain.Entry]:
        """Every entry in order, of one source or of all. It is read in pages, so a long history can be walked through."""
        return History(self._store, source)

    def export(self, source: str | None = None) -> Iterator[str]:
        """The entries as JSON lines; `hash` is the SHA-256 of the line without it."""
        for entry in self.history(source):
            yield chain.canonical(entry.to_json())

    def payment(self, release: Release[Any]) -> Payment:
        """The entry that a release names, and why it does not pay for the release, if it does not.

        An entry pays for a release of its source with its claims, once it has started. It cannot tell two releases with the
        same claims apart: the second may have been made from the first, or may have borrowed its entry.
        """
        return self._store.read(lambda transaction: payment(transaction, release))

    def verify(self, noted: str | None = None) -> str:
        """The id of the last entry, after checking every entry and every sum; LedgerError says which entry is at fault.

        Whoever can write the file can write a whole new chain. Note the returned id elsewhere, and give it here later as
        `noted`: then a rewritten past is found as well. An older copy of the file is found where the note beside it tells.
        `cannot_know` says what is left.
        """
        last = self._store.read(lambda transaction: replay.verify(transaction, noted))
        if (behind := self._store.behind()) is not None:
            raise behind
        return last

    def cannot_know(self, noted: str | None = None) -> tuple[str, ...]:
        """What `verify` with the same argument cannot detect, as sentences."""
        if noted is None:
            rewritten = "No entry that was noted elsewhere was given, so a ledger that was written anew would look the same."
        else:
            rewritten = f"What was written after entry {noted} may be missing or written anew."
        return rewritten, self._store.blind()

    def close(self) -> None:
        """Close it; what was reserved stays spent."""
        self._store.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __copy__(self) -> Ledger:
        """A ledger is a place: a copy, as `sklearn.base.clone` makes of an estimator's parameters, is the same one."""
        return self

    def __deepcopy__(self, _: Any) -> Ledger:
        return self

    def __reduce__(self) -> tuple[type[Ledger], tuple[str]]:
        """Another process opens the same ledger; the pickle has its place, with the password of an address."""
        return Ledger, (self._place if "://" in self._place else os.path.abspath(self._place),)

    @property
    def name(self) -> str:
        """Where the ledger is kept, without a password."""
        return self._store.name

    def __repr__(self) -> str:
        return f"Ledger({self._store.name!r})"


def question_key(document: Any) -> str:
    """The content hash of a question, from JSON: equal documents have equal keys, whatever the order of their members.

    >>> question_key({"b": 1, "a": 2}) == question_key({"a": 2, "b": 1})
    True
    """
    return chain.digest({"question": chain.kept(document)})


def _key(key: str, claims: str) -> str:
    """The hash of a question and its claims: other claims make another question."""
    return chain.hash_of(f'{{"question":{{"claims":{claims},"key":{quoted(key)}}}}}')


def _pair(asked: Any) -> tuple[float, float]:
    try:
        epsilon, delta = asked
        return float(epsilon), float(delta)
    except (TypeError, ValueError):
        raise InvalidValue(f"asked must be a pair (epsilon, delta); got {check.shown(asked)}.") from None


def _own(balance: Balance) -> Balance:
    """A balance to charge; a source that is renewed by period has none of its own."""
    if balance.by_period:
        raise InvalidValue(
            f"{balance.source} has a budget for each period and none itself. Name a period, as "
            f"{balance.source}{PERIOD}2026-11; a new one begins when its owner renews the budget."
        )
    return balance


def _sources(transaction: Transaction) -> list[str]:
    return [row[0] for row in transaction.execute("SELECT name FROM source ORDER BY name")]


def _accounts(transaction: Transaction, source: str) -> list[str]:
    return [row[0] for row in transaction.execute("SELECT name FROM account WHERE source = ? ORDER BY name", (source,))]


def _failure(old: Balance, delta: float) -> float:
    """The same part of a new delta as before, and never less than it was."""
    return max(old.failure, old.failure / old.delta * check.open_fraction("delta", delta))


def _unit_to_json(unit: Unit) -> dict[str, Any]:
    document: dict[str, Any] = game_to_json(Game(unit, {"answers"}))["unit"]
    return document


def _unit_from_json(document: Any) -> Unit:
    return game_from_json({"unit": document, "view": ["answers"]}).unit
