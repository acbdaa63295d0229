"""Budgets in the tables: looked at, spent from, shared; and the claims that may be charged to them."""

from __future__ import annotations

from dataclasses import replace
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, NamedTuple

from discreet.accounting.filter import Filter
from discreet.core.adjacency import check_relation
from discreet.core.claim import Claim
from discreet.core.game import Unit
from discreet.errors import InvalidValue, LedgerError
from discreet.ledger.amount import MOST, Amount, Offer, asked_units, basic_limits, limits, terms_json
from discreet.ledger.balance import DEFAULT, Balance, Part
from discreet.ledger.chain import Mark, append, canonical, head
from discreet.ledger.store import Transaction

__all__ = [
    "DEFAULT",
    "allot",
    "as_claims",
    "balance",
    "check_absent",
    "check_claims",
    "find_room",
    "raised",
    "room",
    "spend",
    "take",
]

_KINDS = ("divergence", "epsilon", "failure")
_SPEND = f"SET {', '.join(f'{kind}_spent = {kind}_spent + ?' for kind in _KINDS)}"
_SPEND_SOURCE = f"UPDATE source {_SPEND} WHERE name = ?"
_SPEND_ACCOUNT = f"UPDATE account {_SPEND} WHERE source = ? AND name = ?"
_ROOM = (
    "SELECT number, hash, a.divergence_limit - a.divergence_spent, a.epsilon_limit - a.epsilon_spent, "
    "a.failure_limit - a.failure_spent, s.divergence_limit - s.divergence_spent, s.epsilon_limit - s.epsilon_spent, "
    "s.divergence_spent, s.epsilon_spent, s.failure_spent FROM head, account AS a, source AS s "
    "WHERE a.source = ? AND a.name = ? AND s.name = ?"
)


def check_claims(claims: Any, source: str, unit: Unit) -> None:
    """Claims that this source can pay for: about its own unit, by events whose curve is for that unit's relation."""
    for claim in claims:
        if claim.game.unit != unit:
            raise InvalidValue(
                f"{source} has a budget for {unit}; this claim is about {claim.game.unit}. A loss for one unit says nothing "
                "of another: make the claim for the source's unit, or charge a source that has the claim's."
            )
        check_relation(claim.event, unit.relation)


def as_claims(claims: Any) -> tuple[Claim, ...]:
    """One or more claims, from a claim, or a sequence of them such as mechanism.claims()."""
    listed = (claims,) if isinstance(claims, Claim) else tuple(claims) if isinstance(claims, (tuple, list)) else ()
    if not listed or not all(isinstance(claim, Claim) for claim in listed):
        raise InvalidValue("claims must be one or more claims, such as mechanism.claims(): what is charged is what they say.")
    return listed


def balance(transaction: Transaction, source: str, account: str | None) -> Balance:
    """What the tables say of a source, or of one of its accounts."""
    amounts = ", ".join(f"{of}.{kind}_{quantity}" for of in "sa" for quantity in ("limit", "spent") for kind in _KINDS)
    row = transaction.execute(
        f"SELECT epsilon, delta, failure, renyi_order, by_period, {amounts} FROM source AS s LEFT JOIN account AS a "
        "ON a.source = s.name AND a.name = ? WHERE s.name = ?", (account, source),
    ).fetchone()  # fmt: skip
    if row is None:
        check_absent(transaction, source)
        raise InvalidValue(f"The ledger has no source {source!r}{_near(transaction, source)}")
    epsilon, delta, failure, order, by_period = row[:5]
    pairs = _pairs(transaction, source, account)
    whole = Balance(
        source, None, epsilon, delta, failure, order, Amount(*row[5:8]), Amount(*row[8:11]), bool(by_period), pairs=pairs[0]
    )  # fmt: skip
    if account is None:
        return replace(whole, parts=_parts(transaction, source))
    if row[11] is None:
        raise InvalidValue(f"{source} has no account {account!r}. Give it a share of the budget first.")
    limit, spent = Amount(*row[11:14]), Amount(*row[14:])
    return replace(whole, account=account, limit=limit, spent=spent, whole=whole, pairs=pairs[1])


def _near(transaction: Transaction, source: str) -> str:
    """The sources whose names are nearly this one, as a question."""
    from difflib import get_close_matches

    names = [row[0] for row in transaction.execute("SELECT name FROM source ORDER BY name LIMIT 1000").fetchall()]
    near = get_close_matches(source[:200], names, 2)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ". Open it first, with its unit and its budget."


def _parts(transaction: Transaction, source: str) -> tuple[Part, ...]:
    """What every account of a source may spend and has spent."""
    amounts = ", ".join(f"{kind}_{quantity}" for quantity in ("limit", "spent") for kind in _KINDS)
    rows = transaction.execute(f"SELECT name, {amounts} FROM account WHERE source = ? ORDER BY name", (source,))
    return tuple(Part(row[0], Amount(*row[1:4]), Amount(*row[4:])) for row in rows)


def check_absent(transaction: Transaction, source: str) -> None:
    """Refuse a ledger in which a source that the tables do not find was opened: it is made of pieces of two copies.

    The table is looked through without its index, which may be of the other copy.
    """
    present = transaction.execute("SELECT 1 FROM source WHERE name || '' = ?", (source,)).fetchone()
    opened = "SELECT number FROM entry WHERE kind IN ('open', 'renew') AND source = ? ORDER BY number"
    row = transaction.execute(opened, (source,)).fetchone()
    if present or row:
        origin = f"Entry {row[0]} opened" if row else "A table has"
        raise LedgerError(
            f"{origin} the source {source!r}, and the ledger's tables do not find it: this is no ledger as it was written, but "
            "perhaps a backup that was put beside a write-ahead log of another copy. It takes no charge. Put the newest file "
            "back, with its own -wal, and check it with verify().", entry=row[0] if row else None,
        )  # fmt: skip


def _pairs(transaction: Transaction, source: str, account: str | None) -> list[tuple[int, int]]:
    """By how much epsilons and failures would be less with all charges as the pairs they were asked for: source, account."""
    rows = transaction.execute(
        "SELECT account, own_epsilon - epsilon, own_failure - delta FROM asked WHERE source = ? AND NOT EXISTS "
        "(SELECT 1 FROM entry WHERE about = asked.entry AND kind = 'cancel')", (source,),
    ).fetchall()  # fmt: skip
    own = [row for row in rows if row[0] == account]
    return [(sum(row[1] for row in part), sum(row[2] for row in part)) for part in (rows, own)]


def spend(transaction: Transaction, source: str, account: str, amount: Amount, sign: int = 1) -> None:
    """Take an amount from a source and its account, or give it back (sign -1); the tables check their limits."""
    divergence, epsilon, failure = amount if sign == 1 else (sign * units for units in amount)
    transaction.execute(_SPEND_SOURCE, (divergence, epsilon, failure, source))
    transaction.execute(_SPEND_ACCOUNT, (divergence, epsilon, failure, source, account))


def room(transaction: Transaction, source: str, account: str, amount: Amount) -> Mark | None:
    """The last entry, if this much fits the account and its source, in one look; None if it does not.

    Either of two sums may hold it, and not always the same one in both. Failures fit the source if they fit its accounts.
    """
    row = transaction.execute(_ROOM, (source, account, source)).fetchone()
    if row is None:
        return None
    (
        number,
        last,
        own_divergence,
        own_epsilon,
        own_failure,
        divergence,
        epsilon,
        divergence_spent,
        epsilon_spent,
        failed_before,
    ) = row
    asked, plain, failed = amount
    if divergence + divergence_spent == epsilon_spent == failed_before == 0:  # all pairs were cancelled: see find_room
        return None
    fits = (asked <= own_divergence or plain <= own_epsilon) and (asked <= divergence or plain <= epsilon)
    counts = asked <= MOST - divergence_spent and plain <= MOST - epsilon_spent
    return Mark(number, last) if fits and counts and failed <= own_failure else None


class Fit(NamedTuple):
    """A charge that fits: the last entry, what it costs, and the limits that the source gets with it, if others."""

    last: Mark
    amount: Amount
    limit: Amount | None = None


def take(transaction: Transaction, source: str, account: str, offer: Offer, key: str | None, claims: str) -> Fit | None:
    """Take a charge and write its entry, which is then the last; None, and nothing, if it does not fit.

    `claims` is canonical JSON, and the entry's body is put together as such.
    """
    last = None if offer.own is None else room(transaction, source, account, offer.own)
    fit = find_room(transaction, source, account, offer) if last is None or offer.own is None else Fit(last, offer.own)
    if fit is None:
        return None
    if fit.limit is not None:
        _switch(transaction, source, fit.limit)
    spend(transaction, source, account, fit.amount)
    named = "null" if key is None else quoted(key)
    body = f'{{"account":{quoted(account)},"amount":{fit.amount.text()},"claims":{claims},"key":{named}'
    body += "" if fit.limit is None else f',"limit":{fit.limit.text()}'
    body += "}" if offer.asked is None else f',"terms":{canonical(terms_json(offer.asked))}}}'
    entry = append(transaction, "reserve", source, body, after=fit.last)
    if offer.asked is not None and (units := asked_units(offer.asked, fit.amount)) is not None:
        row = (entry.number, source, account, *units, fit.amount.epsilon, fit.amount.failure)
        transaction.execute("INSERT INTO asked VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    return Fit(entry, fit.amount)


def find_room(transaction: Transaction, source: str, account: str, offer: Offer) -> Fit | None:
    """How a charge fits that `room` does not hold as it is: as a pair, or as the first charge of a source.

    The first charge, and nothing later, decides what a source adds up: at that moment no answer exists on which the choice
    could depend. A source is at that moment while all that was ever charged to it was cancelled before it ran. While it
    has several accounts, it stays as it is.
    """
    own, whole = balance(transaction, source, account), balance(transaction, source, None)
    ways: list[tuple[Amount | None, Amount | None]] = [(offer.own, None), (offer.pair, None)]
    if not any(whole.spent) and account == DEFAULT and own.limit == whole.limit:
        ways = [(offer.own, _usual(whole)), (offer.first, basic_limits(whole.limit, whole.delta))]
    for price, limit in ways:
        both = (own, whole) if limit is None else (replace(whole, limit=limit),)
        if price is not None and all(part.holds(price) for part in both) and _counts(whole.spent, price):
            return Fit(head(transaction), price, None if limit == whole.limit else limit)
    return None


def _counts(spent: Amount, more: Amount) -> bool:
    """Whether the tables can count this much more."""
    return all(before + units <= MOST for before, units in zip(spent, more, strict=True))


def _usual(whole: Balance) -> Amount:
    """The limits of a source that does not add up pairs."""
    if whole.limit.divergence:
        return whole.limit
    terms = Filter(whole.epsilon, whole.delta, failure=whole.failure, order=whole.order)
    return limits(terms)._replace(epsilon=whole.limit.epsilon)


def raised(old: Balance, terms: Filter) -> Amount:
    """The limits of a source under new terms: a source that adds up pairs goes on to do so."""
    limit = limits(terms)
    return limit if old.limit.divergence else basic_limits(limit, terms.delta)


def _switch(transaction: Transaction, source: str, limit: Amount) -> None:
    """Give a source, and the account that has all of it, other limits."""
    sums = ", ".join(f"{kind}_limit = ?" for kind in _KINDS)
    transaction.execute(f"UPDATE source SET {sums} WHERE name = ?", (*limit, source))
    transaction.execute(f"UPDATE account SET {sums} WHERE source = ? AND name = ?", (*limit, source, DEFAULT))


def allot(transaction: Transaction, source: str, account: str, amount: Amount) -> None:
    """Add to an account's share, making the account if it is new; the tables check the sum of the shares."""
    transaction.execute("INSERT INTO account VALUES (?, ?, 0, 0, 0, 0, 0, 0) ON CONFLICT DO NOTHING", (source, account))
    sums = ", ".join(f"{kind}_limit = {kind}_limit + ?" for kind in _KINDS)
    transaction.execute(f"UPDATE account SET {sums} WHERE source = ? AND name = ?", (*amount, source, account))
