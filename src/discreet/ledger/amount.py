"""Amounts as whole numbers that a database can add up and check.

A source has the limits of the filter (`discreet.accounting.Filter`); charges are what that filter says an event costs.
Divergences and epsilons keep the filter's units, 1e-15 and 1e-9. Failure probabilities are kept in 1e-18, costs rounded up
and limits down, so every sum that fits here fits the filter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from discreet.accounting.filter import EPSILON_UNIT, UNBOUNDED, UNIT, Filter, kept, written
from discreet.core import Approximate, Event
from discreet.core import Sequence as Several
from discreet.errors import BudgetExceeded, InvalidValue

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

    def text(self) -> str:
        """That JSON in the ledger's one spelling, quickly."""
        return f'{{"divergence":"{self.divergence}","epsilon":"{self.epsilon}","failure":"{self.failure}"}}'

    @classmethod
    def from_json(cls, document: Any) -> Amount:
        return cls(int(document["divergence"]), int(document["epsilon"]), int(document["failure"]))

    def plus(self, other: Amount) -> Amount:
        return Amount(*(mine + its for mine, its in zip(self, other, strict=True)))

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


def basic_limits(limit: Amount, delta: float) -> Amount:
    """The limits of a source that adds up (epsilon, delta) pairs: no divergence, and all of delta for failures."""
    return Amount(0, limit.epsilon, math.floor(written(delta) * FAILURE_UNIT))


class Offer(NamedTuple):
    """What a charge may cost: `own`, what its events take as they are, or `pair`, as one (epsilon, delta) that they keep.

    `own` is None where the events have no bound at the order of the source; `refusal` then says so. `asked` are the terms in
    which the charge was asked for, if any; `first` is the pair at which it may be the first charge of a source.
    """

    own: Amount | None
    pair: Amount | None = None
    asked: tuple[float, float] | None = None
    refusal: BudgetExceeded | None = None
    first: Amount | None = None


def offer(budget: Filter, events: Sequence[Event], asked: tuple[float, float] | None) -> Offer:
    """What these events may cost together. That they keep what was asked for is checked, not believed."""
    terms = None if asked is None else kept(_together(events), asked)
    pair = None if terms is None else cost(budget, [Approximate(*terms)])
    try:
        return Offer(cost(budget, events), pair, terms)
    except BudgetExceeded as error:
        return Offer(None, pair, terms, error)


def first(budget: Filter, events: Sequence[Event], known: Offer) -> Offer:
    """The same with the pair at which it may be the first charge: as asked, its own, or what it keeps at the whole delta.

    None where the source was opened to hold no events that may fail, and one of these may.
    """
    event = _together(events)
    if budget.refuses_failures(event):
        return known
    if known.pair is not None or (known.own is not None and known.own.epsilon < UNBOUNDED):
        return known._replace(first=known.pair or known.own)
    pair = budget.alone(event)
    return known if pair is None else known._replace(first=cost(budget, [Approximate(*pair)]))


def terms_json(asked: tuple[float, float]) -> dict[str, float]:
    """What was asked for, as an entry tells it."""
    return {"delta": asked[1], "epsilon": asked[0]}


def asked_units(asked: tuple[float, float], amount: Amount) -> tuple[int, int] | None:
    """What was asked for, in units, rounded up; None if the amount counts no more than that in the plain sums."""
    epsilon, delta = math.ceil(written(asked[0]) * EPSILON_UNIT), math.ceil(written(asked[1]) * FAILURE_UNIT)
    return None if amount.epsilon <= epsilon and amount.failure <= delta else (epsilon, delta)


def _together(events: Sequence[Event]) -> Event:
    return events[0] if len(events) == 1 else Several(events)


def cost(budget: Filter, events: Iterable[Event]) -> Amount:
    """What these events take together, rounded up, at the price of a filter; infinite divergence raises BudgetExceeded.

    Together they add at most UNBOUNDED to the epsilons: it is more than any limit, so more says nothing.
    """
    divergence = epsilon = failure = 0
    for event in events:
        part, failed = budget.cost(event)
        divergence, epsilon, failure = divergence + part, epsilon + budget.pure_cost(event), failure + failed
    return Amount(divergence, min(epsilon, UNBOUNDED), -(-failure // FINER))
