"""Budgets as whole numbers that a database can add up and check.

A source has the limits of the fixed-order filter (`discreet.accounting.Filter`); charges are what that filter says an event
costs. Divergences keep the filter's unit, 1e-15. Failure probabilities are kept in 1e-18, costs rounded up and limits
down, so every sum that fits here fits the filter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from discreet.accounting.filter import UNIT, Filter
from discreet.accounting.renyi import epsilon_from_renyi, renyi
from discreet.core import Event, Pure
from discreet.core.claim import Claim
from discreet.core.figures import down, up
from discreet.core.game import Unit
from discreet.errors import BudgetExceeded, InvalidValue
from discreet.ledger.chain import Mark
from discreet.ledger.store import Book

MOST = 2**62 - 1  # two amounts within it add up within 64 bits
FAILURE_UNIT = 10**18
_FINER = UNIT * UNIT // FAILURE_UNIT  # the filter counts failures in 1e-30
DEFAULT = "default"
_MOST_EPSILON = 1e4
_SUMS = "SET divergence_spent = divergence_spent + ?, failure_spent = failure_spent + ?"
_SPEND_SOURCE = f"UPDATE source {_SUMS} WHERE name = ?"
_SPEND_ACCOUNT = f"UPDATE account {_SUMS} WHERE source = ? AND name = ?"
_ROOM = (
    "SELECT number, hash, divergence_limit - divergence_spent, failure_limit - failure_spent FROM head, account "
    "WHERE source = ? AND name = ?"
)


class Amount(NamedTuple):
    """A divergence in units of 1e-15 and a probability of failure in units of 1e-18."""

    divergence: int
    failure: int

    def to_json(self) -> dict[str, str]:
        """As text: JSON readers agree on whole numbers up to 2^53 only."""
        return {"divergence": str(self.divergence), "failure": str(self.failure)}

    @classmethod
    def from_json(cls, document: Any) -> Amount:
        return cls(int(document["divergence"]), int(document["failure"]))


@dataclass(frozen=True, slots=True)
class Balance:
    """What a source, or one account of it, may spend and has spent, at the order fixed when the source was opened."""

    source: str
    account: str | None
    epsilon: float
    delta: float
    failure: float
    order: float
    limit: Amount
    spent: Amount
    by_period: bool = False

    @property
    def left(self) -> Amount:
        """What may still be spent."""
        return Amount(*(limit - spent for limit, spent in zip(self.limit, self.spent, strict=True)))

    @property
    def part_spent(self) -> float:
        """How much of the budget is spent, from 0 to 1: of the divergence or of the failures, whichever is further."""
        pairs = zip(self.spent, self.limit, strict=True)
        return max((spent / limit for spent, limit in pairs if limit), default=0.0)

    @property
    def spent_epsilon(self) -> float:
        """The epsilon that all that was spent amounts to, at the budget's delta."""
        if not any(self.spent):
            return 0.0
        return min(self.epsilon, epsilon_from_renyi(self.spent.divergence / UNIT, self.order, self.delta - self.failure))

    @property
    def left_epsilon(self) -> float:
        """The largest epsilon (at delta 0) that one more charge may have; many smaller ones fit instead."""
        left = self.left.divergence / UNIT * (1 - 1e-9)
        low, high = 0.0, 1.0
        while renyi(Pure(high), self.order) <= left and high < _MOST_EPSILON:
            low, high = high, 2 * high
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if renyi(Pure(middle), self.order) <= left else (low, middle)
        return low

    def holds(self, asked: Amount) -> bool:
        """Whether this much is left."""
        return all(want <= left for want, left in zip(asked, self.left, strict=True))

    def refusal(self, asked: Amount) -> BudgetExceeded:
        """The error for a charge that does not fit; it depends on public numbers only."""
        owner = self.source if self.account in (None, DEFAULT) else f"{self.source} (account {self.account})"
        goal = f"budget: epsilon {self.epsilon:g}, delta {self.delta:g}"
        if asked.divergence > self.left.divergence:
            unit, want, left, limit = "divergence", *(n.divergence / UNIT for n in (asked, self.left, self.limit))
            goal += f", order {self.order:.4g}"
        else:
            unit, want, left, limit = "failure probability", *(n.failure / FAILURE_UNIT for n in (asked, self.left, self.limit))
        return BudgetExceeded(
            f"{owner} has {unit} {down(left)} left of {down(limit)} ({goal}); this charge asks {up(want)}. "
            "Ask for less, or ask its owner to raise the budget.", asked=want, left=left,
        )  # fmt: skip


def limits(budget: Filter) -> Amount:
    """The filter's limits, rounded down to what the database keeps."""
    if budget.limit > MOST:
        raise InvalidValue(
            f"epsilon must be below about {MOST // UNIT}, the most that a ledger counts (and no privacy at all); "
            f"got {budget.epsilon:g}."
        )
    return Amount(budget.limit, budget.failure_limit // _FINER)


def cost(price: Callable[[Event], tuple[int, int]], events: Iterable[Event]) -> Amount:
    """What these events take together, rounded up, at the price of a filter; infinite divergence raises BudgetExceeded."""
    parts = [price(event) for event in events]
    return Amount(sum(part[0] for part in parts), -(-sum(part[1] for part in parts) // _FINER))


def check_claims(claims: Any, source: str, unit: Unit) -> None:
    """Claims that this source can pay for: about its own unit."""
    for claim in claims:
        if claim.game.unit != unit:
            raise InvalidValue(
                f"{source} has a budget for {unit}; this claim is about {claim.game.unit}. A loss for one unit says nothing "
                "of another: make the claim for the source's unit, or charge a source that has the claim's."
            )


def as_claims(claims: Any) -> tuple[Claim, ...]:
    """One or more claims, from a claim, or a sequence of them such as mechanism.claims()."""
    found = (claims,) if isinstance(claims, Claim) else tuple(claims) if isinstance(claims, (tuple, list)) else ()
    if not found or not all(isinstance(claim, Claim) for claim in found):
        raise InvalidValue("claims must be one or more claims, such as mechanism.claims(): what is charged is what they say.")
    return found


def balance(book: Book, source: str, account: str | None) -> Balance:
    """What the tables say of a source, or of one of its accounts."""
    of = "source" if account is None else "account"
    amounts = ", ".join(f"{of}.{name}" for name in ("divergence_limit", "failure_limit", "divergence_spent", "failure_spent"))
    row = book.execute(
        f"SELECT epsilon, delta, failure, renyi_order, by_period, {amounts} FROM source LEFT JOIN account "
        "ON account.source = source.name AND account.name = ? WHERE source.name = ?", (account, source),
    ).fetchone()  # fmt: skip
    if row is None:
        raise InvalidValue(f"The ledger has no source {source!r}. Open it first: ledger.open({source!r}, unit=..., ...).")
    if row[5] is None:
        raise InvalidValue(f"{source} has no account {account!r}. Give it a share first: ledger.share(...).")
    epsilon, delta, failure, order, by_period = row[:5]
    return Balance(source, account, epsilon, delta, failure, order, Amount(*row[5:7]), Amount(*row[7:]), bool(by_period))


def spend(book: Book, source: str, account: str, amount: Amount, sign: int = 1) -> None:
    """Take an amount from a source and its account, or give it back (sign -1); the tables check their limits."""
    divergence, failure = sign * amount.divergence, sign * amount.failure
    book.execute(_SPEND_SOURCE, (divergence, failure, source))
    book.execute(_SPEND_ACCOUNT, (divergence, failure, source, account))


def room(book: Book, source: str, account: str) -> tuple[Mark, Amount] | None:
    """The last entry and what is left of an account, in one look; None if there is no such account."""
    row = book.execute(_ROOM, (source, account)).fetchone()
    return None if row is None else (Mark(row[0], row[1]), Amount(row[2], row[3]))


def allot(book: Book, source: str, account: str, amount: Amount) -> None:
    """Add to an account's share, making the account if it is new; the tables check the sum of the shares."""
    book.execute("INSERT INTO account VALUES (?, ?, 0, 0, 0, 0) ON CONFLICT DO NOTHING", (source, account))
    sums = "divergence_limit = divergence_limit + ?, failure_limit = failure_limit + ?"
    book.execute(f"UPDATE account SET {sums} WHERE source = ? AND name = ?", (*amount, source, account))
