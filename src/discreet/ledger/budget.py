"""Budgets in the tables: looked at, spent from, shared; and the claims that may be charged to them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from discreet.core.adjacency import check_relation
from discreet.core.claim import Claim
from discreet.core.game import Unit
from discreet.errors import InvalidValue
from discreet.ledger.amount import MOST, Amount
from discreet.ledger.balance import DEFAULT, Balance
from discreet.ledger.chain import Mark
from discreet.ledger.store import Book

__all__ = ["DEFAULT", "allot", "as_claims", "balance", "check_claims", "room", "spend"]

_KINDS = ("divergence", "epsilon", "failure")
_SPEND = f"SET {', '.join(f'{kind}_spent = {kind}_spent + ?' for kind in _KINDS)}"
_SPEND_SOURCE = f"UPDATE source {_SPEND} WHERE name = ?"
_SPEND_ACCOUNT = f"UPDATE account {_SPEND} WHERE source = ? AND name = ?"
_ROOM = (
    "SELECT number, hash, a.divergence_limit - a.divergence_spent, a.epsilon_limit - a.epsilon_spent, "
    "a.failure_limit - a.failure_spent, s.divergence_limit - s.divergence_spent, s.epsilon_limit - s.epsilon_spent, "
    "s.divergence_spent, s.epsilon_spent FROM head, account AS a, source AS s WHERE a.source = ? AND a.name = ? AND s.name = ?"
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
    found = (claims,) if isinstance(claims, Claim) else tuple(claims) if isinstance(claims, (tuple, list)) else ()
    if not found or not all(isinstance(claim, Claim) for claim in found):
        raise InvalidValue("claims must be one or more claims, such as mechanism.claims(): what is charged is what they say.")
    return found


def balance(book: Book, source: str, account: str | None) -> Balance:
    """What the tables say of a source, or of one of its accounts."""
    amounts = ", ".join(f"{of}.{kind}_{what}" for of in "sa" for what in ("limit", "spent") for kind in _KINDS)
    row = book.execute(
        f"SELECT epsilon, delta, failure, renyi_order, by_period, {amounts} FROM source AS s LEFT JOIN account AS a "
        "ON a.source = s.name AND a.name = ? WHERE s.name = ?", (account, source),
    ).fetchone()  # fmt: skip
    if row is None:
        raise InvalidValue(f"The ledger has no source {source!r}. Open it first: ledger.open({source!r}, unit=..., ...).")
    epsilon, delta, failure, order, by_period = row[:5]
    whole = Balance(
        source, None, epsilon, delta, failure, order, Amount(*row[5:8]), Amount(*row[8:11]), bool(by_period)
    )  # fmt: skip
    if account is None:
        return whole
    if row[11] is None:
        raise InvalidValue(f"{source} has no account {account!r}. Give it a share first: ledger.share(...).")
    return replace(whole, account=account, limit=Amount(*row[11:14]), spent=Amount(*row[14:]), whole=whole)


def spend(book: Book, source: str, account: str, amount: Amount, sign: int = 1) -> None:
    """Take an amount from a source and its account, or give it back (sign -1); the tables check their limits."""
    divergence, epsilon, failure = amount if sign == 1 else (sign * each for each in amount)
    book.execute(_SPEND_SOURCE, (divergence, epsilon, failure, source))
    book.execute(_SPEND_ACCOUNT, (divergence, epsilon, failure, source, account))


def room(book: Book, source: str, account: str, amount: Amount) -> Mark | None:
    """The last entry, if this much fits the account and its source, in one look; None if it does not.

    Either of two sums may hold it, and not always the same one in both. Failures fit the source if they fit its accounts.
    """
    row = book.execute(_ROOM, (source, account, source)).fetchone()
    if row is None:
        return None
    number, last, own_divergence, own_epsilon, own_failure, divergence, epsilon, divergence_spent, epsilon_spent = row
    asked, plain, failed = amount
    fits = (asked <= own_divergence or plain <= own_epsilon) and (asked <= divergence or plain <= epsilon)
    counts = asked <= MOST - divergence_spent and plain <= MOST - epsilon_spent
    return Mark(number, last) if fits and counts and failed <= own_failure else None


def allot(book: Book, source: str, account: str, amount: Amount) -> None:
    """Add to an account's share, making the account if it is new; the tables check the sum of the shares."""
    book.execute("INSERT INTO account VALUES (?, ?, 0, 0, 0, 0, 0, 0) ON CONFLICT DO NOTHING", (source, account))
    sums = ", ".join(f"{kind}_limit = {kind}_limit + ?" for kind in _KINDS)
    book.execute(f"UPDATE account SET {sums} WHERE source = ? AND name = ?", (*amount, source, account))
