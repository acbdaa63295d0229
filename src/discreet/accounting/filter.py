"""A budget that holds when each event is chosen after seeing the answers to earlier ones.

Composition theorems fix the parameters beforehand. When an analyst picks the next noise level after reading the last
answer, sums of privacy-loss distributions are not known to hold. Rényi divergences of one fixed order do:

    Theorem (Feldman & Zrnic 2021, Theorem 4.3). Fix an order a > 1 and a budget B. If every event is chosen from the
    earlier answers, and the sum of their divergences of order a never exceeds B, the whole interaction has divergence
    of order a at most B.

The order is fixed when the filter is opened, from the budget alone, so it cannot depend on any answer. (B, a) is then
turned into (epsilon, delta) once. Events that fail with a small probability (Approximate) are split into that failure
and the rest; failures add up to at most `failure`, a part of delta set aside for them (Whitehouse, Ramdas, Rogers, Wu
2023, whose argument is order by order).

A few large pure losses are dearer at any finite order than their plain sum, which holds adaptively as well. So an event is
allowed while either sum, of divergences or of epsilons, is within its limit: docs/theory/accounting-filter.md proves that
this needs no more budget than one of them.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from discreet.accounting.renyi import epsilon_from_renyi, renyi
from discreet.core import check
from discreet.core import event as events
from discreet.errors import BudgetExceeded, InvalidDocument, InvalidValue

UNIT = 10**15  # amounts are whole numbers of 1e-15, costs rounded up, budgets down
EPSILON_UNIT = 10**9  # plain sums of epsilon are counted in 1e-9
UNBOUNDED = 100 * EPSILON_UNIT  # what an event without a pure bound adds to that sum: more than any limit on it


class Filter:
    """May this event still be spent? Amounts are whole numbers, so nothing is lost or won by rounding.

    >>> from discreet.accounting import Gaussian
    >>> budget = Filter(epsilon=1.0, delta=1e-6)
    >>> budget.spend(Gaussian(20.0))
    >>> budget.allows(Gaussian(1.0))
    False
    """

    def __init__(self, epsilon: float, delta: float, *, failure: float = 0.0, order: float | None = None) -> None:
        self.epsilon, self.delta = check.positive("epsilon", epsilon), check.open_fraction("delta", delta)
        self.failure = check.nonnegative("failure", failure)
        if self.failure >= self.delta:
            raise InvalidValue(f"failure must be a part of delta ({delta:g}), so below it; got {failure:g}.")
        rest = self.delta - self.failure
        self.order = _best_order(self.epsilon, rest) if order is None else check.real("order", order)
        if self.order <= 1:
            raise InvalidValue(f"order must be above 1; got {self.order:g}.")
        limit = _divergence(self.epsilon, self.order, rest)
        if limit <= 0:
            raise InvalidValue(
                f"No event fits (epsilon {epsilon:g}, delta {rest:g}) at order {self.order:g}; raise one of them or the order."
            )
        self.limit = math.floor(Fraction(limit) * (1 - Fraction(1, 10**12)) * UNIT)
        self.failure_limit = math.floor(_written(self.failure) * UNIT * UNIT)
        self.epsilon_limit = math.floor(_written(self.epsilon) * EPSILON_UNIT) if self.epsilon < 99 else 0
        self.spent = 0
        self.epsilon_spent = 0
        self.failure_spent = 0

    def cost(self, event: events.Event) -> tuple[int, int]:
        """What an event takes: its divergence in units of 1e-15 and its failure in units of 1e-30, both rounded up."""
        failure, rest = _split(event)
        divergence = renyi(rest, self.order)
        if divergence == math.inf:
            raise BudgetExceeded(
                f"{type(event).__name__} has no bound of order {self.order:g}, so no budget holds it. "
                "Add noise, or leave it out.", asked=math.inf, left=self.left,
            )  # fmt: skip
        return math.ceil(Fraction(divergence) * (1 + Fraction(1, 10**12)) * UNIT), math.ceil(failure * UNIT * UNIT)

    def pure_cost(self, event: events.Event) -> int:
        """What an event, failures apart, adds to the plain sum of epsilons, in units of 1e-9, rounded up."""
        return min(UNBOUNDED, _pure(_split(event)[1]))

    def allows(self, event: events.Event) -> bool:
        """Whether the event fits what is left; depends on nothing private."""
        try:
            divergence, failure = self.cost(event)
        except BudgetExceeded:
            return False
        return self._fits(divergence, self.pure_cost(event)) and self.failure_spent + failure <= self.failure_limit

    def _fits(self, divergence: int, epsilon: int) -> bool:
        return self.spent + divergence <= self.limit or self.epsilon_spent + epsilon <= self.epsilon_limit

    def spend(self, event: events.Event) -> None:
        """Take the event from the budget, or raise BudgetExceeded and take nothing."""
        divergence, failure = self.cost(event)
        epsilon = self.pure_cost(event)
        if not self._fits(divergence, epsilon):
            raise BudgetExceeded(
                f"The budget (epsilon {self.epsilon:g}, delta {self.delta:g}) has {self.left:.4g} of {self.limit / UNIT:.4g} "
                f"left at order {self.order:.4g}; this event asks {divergence / UNIT:.4g}. Add noise, or ask for less.",
                asked=divergence / UNIT, left=self.left,
            )  # fmt: skip
        if self.failure_spent + failure > self.failure_limit:
            left = (self.failure_limit - self.failure_spent) / UNIT**2
            raise BudgetExceeded(
                f"The budget sets {self.failure:g} of its delta aside for events that may fail and has {left:.3g} of that "
                f"left; this event asks {failure / UNIT**2:.3g}. Open it with a larger failure, or lower the event's delta.",
                asked=failure / UNIT**2, left=left,
            )  # fmt: skip
        self.spent += divergence
        self.epsilon_spent += epsilon
        self.failure_spent += failure

    @property
    def left(self) -> float:
        """The divergence that is left, at the filter's order; events may still fit by their epsilons when none is."""
        return max(0, self.limit - self.spent) / UNIT

    def spent_epsilon(self) -> float:
        """The epsilon that what was spent amounts to, at the filter's delta."""
        if not self.spent:
            return 0.0
        plain = self.epsilon_spent / EPSILON_UNIT if self.epsilon_spent < UNBOUNDED else math.inf
        return min(plain, epsilon_from_renyi(self.spent / UNIT, self.order, self.delta - self.failure))

    def to_json(self) -> dict[str, Any]:
        return {
            "epsilon": self.epsilon, "delta": self.delta, "failure": self.failure, "order": self.order,
            "spent": str(self.spent), "epsilon_spent": str(self.epsilon_spent), "failure_spent": str(self.failure_spent),
        }  # fmt: skip

    @classmethod
    def from_json(cls, document: Any) -> Filter:
        """The filter a document describes, with what it had spent."""
        try:
            made = cls(document["epsilon"], document["delta"], failure=document["failure"], order=document["order"])
            spent, epsilon_spent, failure_spent = (int(document[it]) for it in ("spent", "epsilon_spent", "failure_spent"))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidDocument(f"This is not a filter: {type(error).__name__} at {str(error)[:80]}.") from None
        within = spent <= made.limit or epsilon_spent <= made.epsilon_limit
        if not (within and min(spent, epsilon_spent) >= 0 and 0 <= failure_spent <= made.failure_limit):
            raise InvalidDocument("This filter has spent less than nothing or more than its limit; it was changed.")
        made.spent, made.epsilon_spent, made.failure_spent = spent, epsilon_spent, failure_spent
        return made

    def __repr__(self) -> str:
        return f"Filter(epsilon={self.epsilon:g}, delta={self.delta:g}: {self.spent / max(self.limit, 1):.1%} spent)"


def _divergence(epsilon: float, order: float, delta: float) -> float:
    """The divergence of this order that is worth exactly (epsilon, delta): the inverse of epsilon_from_renyi."""
    return epsilon - math.log1p(-1 / order) + (math.log(delta) + math.log(order)) / (order - 1)


def _best_order(epsilon: float, delta: float) -> float:
    """The order at which most Gaussian noise levels fit: it maximises budget over order."""

    def worth(order: float) -> float:
        return _divergence(epsilon, order, delta) / order

    orders: list[float] = [1 + math.pow(10, i / 50) for i in range(-100, 251)]
    best: float = max(orders, key=worth)
    return round(best, 6)


def _written(number: float) -> Fraction:
    """The decimal that was written: five times 0.2 is 1. The float that stands for it is off by less than 2^-53 of it."""
    return Fraction(repr(number))


def _pure(event: events.Event) -> int:
    """A pure bound in units of 1e-9, rounded up; UNBOUNDED or more where there is none."""
    match event:
        case events.Zero():
            return 0
        case events.Pure(epsilon) | events.Exponential(epsilon) | events.NoisyMax(epsilon):
            return math.ceil(_written(epsilon) * EPSILON_UNIT)
        case events.RandomizedResponse(epsilon):
            return math.ceil(_written(epsilon) * EPSILON_UNIT)
        case events.Laplace(noise_multiplier):
            return math.ceil(EPSILON_UNIT / _written(noise_multiplier))
        case events.DiscreteLaplace(scale, sensitivity):
            return math.ceil(sensitivity * EPSILON_UNIT / _written(scale))
        case events.Repeat(inner, times) | events.Group(inner, times):
            return times * _pure(inner)
        case events.Sequence(items):
            return sum(_pure(item) for item in items)
        case events.Poisson(rate, inner) | events.WithoutReplacement(rate, inner):
            whole = _pure(inner)
            if whole >= UNBOUNDED:  # a sample of what has no bound has none
                return UNBOUNDED
            return math.ceil(math.log1p(rate * math.expm1(whole / EPSILON_UNIT)) * (1 + 1e-12) * EPSILON_UNIT)
        case events.PoissonReplace(rate, inner):
            whole = _pure(inner)
            if whole >= UNBOUNDED or rate == 1:
                return 2 * whole
            up, down = (math.log1p(rate * math.expm1(way * whole / EPSILON_UNIT)) for way in (1, -1))
            return math.ceil((up - down) * (1 + 1e-12) * EPSILON_UNIT)
        case events.Shuffled(inner) | events.RandomAllocation(inner):
            return _pure(inner)
    return UNBOUNDED


def _split(event: events.Event) -> tuple[Fraction, events.Event]:
    """The probability that some part fails outright, and the event without that."""
    match event:
        case events.Approximate(epsilon, delta):
            return _written(delta), events.Pure(epsilon)
        case events.Repeat(inner, times):
            failure, rest = _split(inner)
            return times * failure, events.Repeat(rest, times)
        case events.Sequence(items):
            parts = [_split(item) for item in items]
            return sum((failure for failure, _ in parts), Fraction(0)), events.Sequence(rest for _, rest in parts)
    return Fraction(0), event
