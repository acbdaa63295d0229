"""Amounts as whole numbers that a database can add up and check.

A source has the limits of the filter (`discreet.accounting.Filter`); charges are what that filter says an event costs.
Divergences and epsilons keep the filter's units, 1e-15 and 1e-9. Failure probabilities are kept in 1e-18, costs rounded up
and limits down, so every sum that fits here fits the filter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from discreet.accounting.filter import UNBOUNDED, UNIT, Filter
from discreet.core import Event
from discreet.errors import InvalidValue

MOST = 2**62 - 1  # two amounts within it add up within 64 bits
FAILURE_UNIT = 10**18
FINER = UNIT * UNIT // FAILURE_UNIT  # the filter counts failures in 1e-30


class Amount(NamedTuple):
    """A divergence in units of 1e-15, an epsilon in units of 1e-9 and a probability of failure in units of 1e-18."""

    divergence: int
    epsilon: int
    failure: int

    def to_json(self) -> dict[str, str]:
        """As text: JSON readers agree on whole numbers up to 2^53 only."""
        return {"divergence": str(self.divergence), "epsilon": str(self.epsilon), "failure": str(self.failure)}

    @classmethod
    def from_json(cls, document: Any) -> Amount:
        return cls(int(document["divergence"]), int(document["epsilon"]), int(document["failure"]))

    def minus(self, other: Amount) -> Amount:
        """The difference of each, which may be negative."""
        return Amount(*(mine - its for mine, its in zip(self, other, strict=True)))


NOTHING = Amount(0, 0, 0)


def limits(budget: Filter) -> Amount:
    """The filter's limits, rounded down to what the database keeps."""
    if budget.limit > MOST:
        raise InvalidValue(
            f"epsilon must be below about {MOST // UNIT}, the most that a ledger counts (and no privacy at all); "
            f"got {budget.epsilon:g}."
        )
    return Amount(budget.limit, budget.epsilon_limit, budget.failure_limit // FINER)


def cost(budget: Filter, events: Iterable[Event]) -> Amount:
    """What these events take together, rounded up, at the price of a filter; infinite divergence raises BudgetExceeded.

    Together they add at most UNBOUNDED to the epsilons: it is more than any limit, so more says nothing.
    """
    divergence = epsilon = failure = 0
    for event in events:
        one, failed = budget.cost(event)
        divergence, epsilon, failure = divergence + one, epsilon + budget.pure_cost(event), failure + failed
    return Amount(divergence, min(epsilon, UNBOUNDED), -(-failure // FINER))
