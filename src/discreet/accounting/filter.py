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
allowed while either sum, of divergences or of epsilons, is within its limit.

An event that keeps (e, d)-DP may also be charged as that pair, like Approximate(e, d). Pairs add up (Rogers, Roth, Ullman,
Vadhan 2016). The first event of a filter, chosen before there is any answer, may so take all of delta: from then on only
pairs add up, within (epsilon, delta). docs/theory/accounting-filter.md proves all of it, and shows why a filter cannot wait
with that choice until it has given an answer.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

from discreet.accounting.curve import curve
from discreet.accounting.profile import fallen
from discreet.accounting.renyi import epsilon_from_renyi, renyi
from discreet.core import check
from discreet.core import event as events
from discreet.errors import BudgetExceeded, InvalidDocument, InvalidValue

UNIT = 10**15  # amounts are whole numbers of 1e-15, costs rounded up, budgets down
EPSILON_UNIT = 10**9  # plain sums of epsilon are counted in 1e-9
UNBOUNDED = 100 * EPSILON_UNIT  # what an event without a pure bound adds to that sum: more than any limit on it


class Price(NamedTuple):
    """A divergence in units of 1e-15, an epsilon in units of 1e-9 and a probability of failure in units of 1e-30."""

    divergence: int
    epsilon: int
    failure: int


class Filter:
    """May this event still be spent? Amounts are whole numbers, so nothing is lost or won by rounding.

    >>> from discreet.accounting import Gaussian, calibrate
    >>> budget = Filter(epsilon=1.0, delta=1e-6)
    >>> budget.spend(Gaussian(20.0))
    >>> budget.allows(Gaussian(1.0))
    False
    >>> exactly = Gaussian(calibrate(Gaussian, epsilon=1.0, delta=1e-6))
    >>> budget = Filter(epsilon=1.0, delta=1e-6)
    >>> budget.spend(exactly, asked=(1.0, 1e-6))
    >>> budget.spent_epsilon(), budget.basic
    (1.0, True)
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
        self.failure_limit = math.floor(written(self.failure) * UNIT * UNIT)
        self.epsilon_limit = math.floor(written(self.epsilon) * EPSILON_UNIT) if self.epsilon < 99 else 0
        self.delta_limit = math.floor(written(self.delta) * UNIT * UNIT)
        self.basic = False  # whether the first event took all of delta, so that only pairs add up
        self.spent = 0
        self.epsilon_spent = 0
        self.failure_spent = 0
        self.pairs_spent = (0, 0)  # the same events as (epsilon, delta) pairs, as far as they were asked for as such

    def cost(self, event: events.Event) -> tuple[int, int]:
        """What an event takes: its divergence in units of 1e-15 and its failure in units of 1e-30, both rounded up."""
        failure, rest = _split(event)
        divergence = renyi(rest, self.order)
        if divergence == math.inf:
            what = "promises nothing" if isinstance(event, events.NonPrivate) else f"has no bound of order {self.order:g}"
            raise BudgetExceeded(
                f"{type(event).__name__} {what}, so no budget holds it. Add noise, or leave it out.",
                asked=math.inf, left=self.left,
            )  # fmt: skip
        return math.ceil(Fraction(divergence) * (1 + Fraction(1, 10**12)) * UNIT), math.ceil(failure * UNIT * UNIT)

    def pure_cost(self, event: events.Event) -> int:
        """What an event, failures apart, adds to the plain sum of epsilons, in units of 1e-9, rounded up."""
        return min(UNBOUNDED, _pure(_split(event)[1]))

    def price(self, event: events.Event) -> Price:
        """What an event takes as it is; BudgetExceeded if it has no bound at the filter's order."""
        divergence, failure = self.cost(event)
        return Price(divergence, self.pure_cost(event), failure)

    def _price(self, event: events.Event) -> Price | None:
        """The same; None if it has no bound."""
        try:
            return self.price(event)
        except BudgetExceeded:
            return None

    def alone(self, event: events.Event) -> tuple[float, float] | None:
        """The pair that an event keeps at the filter's whole delta; None if it has a pure epsilon, or keeps no pair."""
        if self.pure_cost(event) < UNBOUNDED:
            return None
        epsilon = curve(event).epsilon(self.delta)
        return (math.nextafter(epsilon, math.inf), self.delta) if epsilon < UNBOUNDED / EPSILON_UNIT else None

    def allows(self, event: events.Event, *, asked: tuple[float, float] | None = None) -> bool:
        """Whether the event fits what is left; depends on nothing private."""
        return self._fitting(event, asked) is not None

    def fits(self, price: Price) -> bool:
        """Whether so much may be added: to the failures, and to the divergences or the epsilons."""
        limit, failures = (0, self.delta_limit) if self.basic else (self.limit, self.failure_limit)
        either = self.spent + price.divergence <= limit or self.epsilon_spent + price.epsilon <= self.epsilon_limit
        return either and self.failure_spent + price.failure <= failures

    def choose(self, natural: Price | None, pair: Price | None, first: Price | None) -> tuple[Price, bool] | None:
        """Which of its prices an event is charged, and whether only pairs add up from then on; None if none fits.

        As it is; or as the `pair` it was asked for, which counts like an Approximate event; or, if nothing was charged so far,
        as a `first` pair that may take all of (epsilon, delta).
        """
        if natural is not None and self.fits(natural):
            return natural, self.basic
        if self.spent or self.epsilon_spent or self.failure_spent:
            return (pair, self.basic) if pair is not None and self.fits(pair) else None
        whole = first is not None and first.epsilon <= self.epsilon_limit and first.failure <= self.delta_limit
        return (first, True) if whole and first is not None else None

    def _fitting(self, event: events.Event, asked: tuple[float, float] | None) -> tuple[Price, bool] | None:
        pair = None if asked is None else self._price(events.Approximate(*kept(event, asked)))
        if self.refuses_failures(event):
            return None
        natural = self._price(event)
        chosen = self.choose(natural, pair, pair)
        if chosen is not None or pair is not None or self.spent or self.epsilon_spent or self.failure_spent:
            return chosen
        alone = self.alone(event)
        return self.choose(None, None, natural if alone is None else self.price(events.Approximate(*alone)))

    def refuses_failures(self, event: events.Event) -> bool:
        """Whether the event may fail outright and the filter was opened to hold no such events, with a failure of 0."""
        return not self.failure and _split(event)[0] > 0

    def spend(self, event: events.Event, *, asked: tuple[float, float] | None = None) -> None:
        """Take the event from the budget, or raise BudgetExceeded and take nothing.

        `asked` is the (epsilon, delta) that the event was made for. If the event keeps it, it may be charged as that pair.
        """
        fitting = self._fitting(event, asked)
        if fitting is None:
            raise self._refusal(event)
        price, self.basic = fitting
        self.spent += price.divergence
        self.epsilon_spent += price.epsilon
        self.failure_spent += price.failure
        epsilon, delta = least_pair(price, None if asked is None else self.price(events.Approximate(*asked)))
        self.pairs_spent = (self.pairs_spent[0] + epsilon, self.pairs_spent[1] + delta)

    def _refusal(self, event: events.Event) -> BudgetExceeded:
        price = self.price(event)
        if self.refuses_failures(event) or self.fits(price._replace(failure=0)):
            left = ((self.delta_limit if self.basic else self.failure_limit) - self.failure_spent) / UNIT**2
            return BudgetExceeded(
                f"The budget sets {self.failure:g} of its delta aside for events that may fail and has {left:.3g} of that "
                f"left; this event asks {price.failure / UNIT**2:.3g}. Open it with a larger failure, or lower the event's "
                "delta.", asked=price.failure / UNIT**2, left=left,
            )  # fmt: skip
        if self.basic:
            epsilon, delta = self.epsilon_spent / EPSILON_UNIT, self.failure_spent / UNIT**2
            return BudgetExceeded(
                f"The budget (epsilon {self.epsilon:g}, delta {self.delta:g}) adds up (epsilon, delta) pairs since its first "
                f"event, and has spent ({epsilon:.4g}, {delta:.3g}). Say what this event was made for (asked=), or ask for "
                "less.", asked=price.divergence / UNIT, left=0.0,
            )  # fmt: skip
        return BudgetExceeded(
            f"The budget (epsilon {self.epsilon:g}, delta {self.delta:g}) has {self.left:.4g} of {self.limit / UNIT:.4g} "
            f"left at order {self.order:.4g}; this event asks {price.divergence / UNIT:.4g}. Add noise, or ask for less.",
            asked=price.divergence / UNIT, left=self.left,
        )  # fmt: skip

    @property
    def left(self) -> float:
        """The divergence that is left, at the filter's order; events may still fit by their epsilons when none is."""
        return 0.0 if self.basic else max(0, self.limit - self.spent) / UNIT

    def spent_epsilon(self) -> float:
        """The epsilon that what was spent amounts to, at the filter's delta."""
        return min(self.totals().values(), default=0.0)

    def totals(self) -> dict[str, float]:
        """What was spent amounts to these epsilons, by each way to add it up that holds at the filter's delta.

        A filter that was opened with so much, and the same delta, would have allowed the same events.
        """
        if not (self.spent or self.epsilon_spent or self.failure_spent):
            return {}
        ways = {"basic": self.epsilon_spent / EPSILON_UNIT if self.epsilon_spent < UNBOUNDED else math.inf}
        epsilon, delta = self.pairs_spent
        if epsilon < UNBOUNDED and delta <= self.delta_limit:
            ways["basic"] = min(ways["basic"], epsilon / EPSILON_UNIT)
        if not self.basic:
            ways["renyi"] = epsilon_from_renyi(self.spent / UNIT, self.order, self.delta - self.failure)
        return {way: epsilon for way, epsilon in ways.items() if epsilon < math.inf}

    def to_json(self) -> dict[str, Any]:
        return {
            "epsilon": self.epsilon, "delta": self.delta, "failure": self.failure, "order": self.order, "basic": self.basic,
            "spent": str(self.spent), "epsilon_spent": str(self.epsilon_spent), "failure_spent": str(self.failure_spent),
            "pairs_spent": [str(each) for each in self.pairs_spent],
        }  # fmt: skip

    @classmethod
    def from_json(cls, document: Any) -> Filter:
        """The filter a document describes, with what it had spent; older documents have no pairs."""
        try:
            budget = cls(document["epsilon"], document["delta"], failure=document["failure"], order=document["order"])
            budget.basic = bool(document.get("basic", False))
            spent = Price(*(int(document[name]) for name in ("spent", "epsilon_spent", "failure_spent")))
            epsilon, delta = map(int, document.get("pairs_spent", (spent.epsilon, spent.failure)))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidDocument(f"This is not a filter: {type(error).__name__} at {str(error)[:80]}.") from None
        if not (budget.fits(spent) and min(*spent, epsilon, delta) >= 0):
            raise InvalidDocument("This filter has spent less than nothing or more than its limit; it was changed.")
        budget.spent, budget.epsilon_spent, budget.failure_spent = spent
        budget.pairs_spent = (epsilon, delta)
        return budget

    def __repr__(self) -> str:
        return f"Filter(epsilon={self.epsilon:g}, delta={self.delta:g}: {self.spent / max(self.limit, 1):.1%} spent)"


def kept(event: events.Event, asked: tuple[float, float]) -> tuple[float, float]:
    """The (epsilon, delta) that was asked for, if the event keeps it; InvalidValue if it does not.

    >>> from discreet.core import Gaussian
    >>> kept(Gaussian(5.0), (1.0, 1e-6))
    (1.0, 1e-06)
    """
    if not isinstance(asked, (tuple, list)) or len(asked) != 2:
        raise InvalidValue(f"asked must be a pair (epsilon, delta), such as (1.0, 1e-6); got {type(asked).__name__}.")
    epsilon, delta = check.nonnegative("asked epsilon", asked[0]), check.small_fraction("asked delta", asked[1])
    least = curve(event).epsilon(delta)
    if least > epsilon:
        raise InvalidValue(
            f"This event was said to keep epsilon {epsilon:g} at delta {delta:g}, and is proven to keep {least:.6g} there. "
            "Ask for that, or add noise."
        )
    return epsilon, delta


def least_pair(natural: Price, asked: Price | None) -> tuple[int, int]:
    """An event as a pair, in units: as it was asked for, unless its own pure epsilon and failure are no more than that."""
    if asked is None or (natural.epsilon <= asked.epsilon and natural.failure <= asked.failure):
        return natural.epsilon, natural.failure
    return asked.epsilon, asked.failure


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


def written(number: float) -> Fraction:
    """The decimal that was written: five times 0.2 is 1. The float that stands for it is off by less than 2^-53 of it."""
    return Fraction(repr(number))


def _pure(event: events.Event) -> int:
    """A pure bound in units of 1e-9, rounded up; UNBOUNDED or more where there is none."""
    match event:
        case events.Zero():
            return 0
        case events.Pure(epsilon) | events.Exponential(epsilon) | events.NoisyMax(epsilon):
            return math.ceil(written(epsilon) * EPSILON_UNIT)
        case events.RandomizedResponse(epsilon):
            return math.ceil(written(epsilon) * EPSILON_UNIT)
        case events.Laplace(noise_multiplier):
            return math.ceil(EPSILON_UNIT / written(noise_multiplier))
        case events.DiscreteLaplace(scale, sensitivity):
            return math.ceil(sensitivity * EPSILON_UNIT / written(scale))
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
            alone = whole / EPSILON_UNIT
            both = math.log1p(rate * math.expm1(alone)) + fallen(alone, rate)
            return math.ceil(both * (1 + 1e-12) * EPSILON_UNIT)
        case events.Shuffled(inner) | events.RandomAllocation(inner):
            return _pure(inner)
    return UNBOUNDED


def _split(event: events.Event) -> tuple[Fraction, events.Event]:
    """The probability that some part fails outright, and the event without that."""
    match event:
        case events.Approximate(epsilon, delta):
            return written(delta), events.Pure(epsilon)
        case events.Repeat(inner, times):
            failure, rest = _split(inner)
            return times * failure, events.Repeat(rest, times)
        case events.Sequence(items):
            parts = [_split(item) for item in items]
            return sum((failure for failure, _ in parts), Fraction(0)), events.Sequence(rest for _, rest in parts)
    return Fraction(0), event
