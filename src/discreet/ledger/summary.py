"""A balance in words, and how its budget was used up, entry by entry."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from discreet.figures import down, percent_up, up
from discreet.ledger.amount import NOTHING, Amount
from discreet.ledger.balance import Balance, part_of
from discreet.ledger.chain import Entry

RECENT = 500  # entries that a picture of a budget goes back
HEADS = ("account", "share", "used", "unused", "left (epsilon of one more answer)")
ADDS_UP = (
    "Shares, used and unused are parts of the whole budget and add up. What is left is the largest epsilon of one more answer, "
    "which one account pays, so it does not add up; several smaller answers may fit instead."
)
_FINE = 10_000  # parts of a budget are told in hundredths of a percent


@dataclass(frozen=True, slots=True)
class Share:
    """What one account was given of the budget, used and has not used, in hundredths of a percent of the whole.

    `left` is the epsilon of one more answer. `given` is `used` and `unused` together, and all accounts add up to the share of
    the source, whose `account` is None.
    """

    account: str | None
    given: int
    used: int
    left: float

    @property
    def unused(self) -> int:
        return self.given - self.used

    def to_json(self) -> dict[str, Any]:
        parts = {name: getattr(self, name) / _FINE for name in ("given", "used", "unused")}
        return {"account": self.account, **parts, "left": self.left}

    def told(self) -> tuple[str, ...]:
        """A line of a table with the heads `HEADS`."""
        return (self.account or "together", *map(_percent, (self.given, self.used, self.unused)), down(self.left))


def shares(source: Balance) -> tuple[Share, ...]:
    """The budget of a source by account, and the whole of it at the end; nothing for one whose periods have the budgets.

    All are counted in the sum that decides for the source. Where an account goes by the other one, it can have used more of
    this than it was given: its unused part is negative then. `left` does not add up: it is for one answer, from one account.
    """
    if source.by_period or source.account is not None:
        return ()
    at = 0 if source.by_divergence else 1
    whole = source.limit[at] or 1
    limits = _rounded((Fraction(part.limit[at], whole) for part in source.parts), Fraction(1), round)
    used = _rounded((Fraction(part.spent[at], whole) for part in source.parts), Fraction(source.spent[at], whole), math.ceil)
    rows = zip(source.parts, limits, used)
    result = tuple(Share(part.name, had, has, source.left_of(part)) for part, had, has in rows)
    return (*result, Share(None, limits[-1], used[-1], source.epsilon_left))


def _rounded(parts: Iterable[Fraction], whole: Fraction, to: Callable[[Fraction], int]) -> list[int]:
    """Parts in hundredths of a percent that add up to their sum, and that sum at the end."""
    total, before, rounded = Fraction(0), 0, []
    for part in parts:
        total += part
        rounded.append(to(total * _FINE) - before)
        before += rounded[-1]
    return [*rounded, to(whole * _FINE)]


def _percent(hundredths: int) -> str:
    return f"{hundredths / 100:.2f}".rstrip("0").rstrip(".") + " %"


def used_in_percent(balance: Balance) -> str:
    """How much is used of the budget of a source, or of the share of an account, as every surface shows it."""
    return _percent(math.ceil(_exact(balance) * _FINE))


def _exact(balance: Balance) -> Fraction:
    at = 0 if balance.by_divergence else 1
    spent, limit = balance.spent[at], balance.limit[at]
    return min(Fraction(1), Fraction(spent, limit)) if limit else Fraction(spent > 0)


def sentence(balance: Balance) -> str:
    """A balance in words."""
    if balance.by_period:
        return f"ε = {balance.epsilon:g} at δ = {up(balance.delta, 6)} for each of its periods."
    total = ""
    if balance.spent.divergence:
        total = f" All answers together: ε = {up(balance.epsilon_spent)} {balance.total_in_words()}."
    return (
        f"Budget ε = {balance.epsilon:g} at δ = {up(balance.delta, 6)}. Used: {used_in_percent(balance)} of it "
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
