"""A balance in words, and how its budget was used up, entry by entry."""

from __future__ import annotations

from collections.abc import Sequence

from discreet.figures import down, percent_down, percent_up, up
from discreet.ledger.amount import NOTHING, Amount
from discreet.ledger.balance import Balance, part_of
from discreet.ledger.chain import Entry

RECENT = 500  # entries that a picture of a budget goes back


def sentence(balance: Balance) -> str:
    """A balance in words."""
    if balance.by_period:
        return f"ε = {balance.epsilon:g} at δ = {balance.delta:g} for each of its periods."
    part = "delta" if balance.basic else "their part"
    failed = f" Spent for events that may fail: {percent_up(balance.failure_part)} of {part}." if balance.spent.failure else ""
    how = f" {balance.total_in_words()}" if balance.spent.divergence else ""
    return (
        f"Budget ε = {balance.epsilon:g} at δ = {balance.delta:g}. Spent: ε = {up(balance.epsilon_spent)}{how}, "
        f"{percent_up(balance.part_spent)} of the budget. Left: one more answer of ε = {down(balance.epsilon_left)}, "
        f"or smaller ones ({percent_down(1 - balance.part_spent)}).{failed}"
    )


def left_after(balance: Balance, entries: Sequence[Entry]) -> list[float]:
    """The part of today's budget that was left before the first and after each of these entries, oldest first.

    Of divergences or of epsilons, whichever had more left. Worked out backwards from what is spent now, so that a long history
    need not be read from its beginning. A cancellation of what was reserved before these entries changes nothing here.
    """
    amounts = {e.number: Amount.from_json(e.body["amount"]) for e in entries if e.kind == "reserve"}
    spent, points = balance.spent, [balance.spent]
    for entry in reversed(entries):
        spent = spent.minus(amounts.get(entry.number, NOTHING))
        if entry.kind == "cancel":
            spent = spent.minus(NOTHING.minus(amounts.get(entry.about or 0, NOTHING)))
        points.append(spent)
    return [1 - part_of(Amount(*(max(part, 0) for part in point)), balance.limit) for point in reversed(points)]
