"""A balance in words, and how its budget was used up, entry by entry."""

from __future__ import annotations

from collections.abc import Sequence

from discreet.figures import percent_up, up
from discreet.ledger.amount import NOTHING, Amount
from discreet.ledger.balance import Balance, part_of
from discreet.ledger.chain import Entry

RECENT = 500  # entries that a picture of a budget goes back


def sentence(balance: Balance) -> str:
    """A balance in words."""
    if balance.by_period:
        return f"ε = {balance.epsilon:g} at δ = {up(balance.delta, 6)} for each of its periods."
    total = ""
    if balance.spent.divergence:
        total = f" All answers together: ε = {up(balance.epsilon_spent)} {balance.total_in_words()}."
    return (
        f"Budget ε = {balance.epsilon:g} at δ = {up(balance.delta, 6)}. Used: {percent_up(balance.part_spent)} of it "
        f"({balance.spent_in_words()}). Left: ε = {balance.left_in_words()}.{total}{_failures(balance)}"
    )


def _failures(balance: Balance) -> str:
    """How much of delta is used by charges that may fail with a small probability, such as the release of group names."""
    if not balance.spent.failure:
        return ""
    reserved = "delta" if balance.basic else "the part of delta that is reserved for charges with a failure probability"
    return f" Of {reserved}, {percent_up(balance.failure_part)} is used."


def unused_after(balance: Balance, entries: Sequence[Entry]) -> list[float]:
    """The part of today's budget that was unused before the first and after each of these entries, oldest first.

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
