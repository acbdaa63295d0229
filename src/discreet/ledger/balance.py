"""What a budget may still spend, in whole numbers for the database and in epsilons for people."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from shlex import quote
from typing import NamedTuple

from discreet.accounting.curve import curve
from discreet.accounting.filter import EPSILON_UNIT, UNBOUNDED, UNIT, Filter, written
from discreet.accounting.renyi import renyi
from discreet.core import Gaussian, Pure
from discreet.errors import BudgetExceeded
from discreet.figures import down, up
from discreet.ledger.amount import FAILURE_UNIT, FINER, MOST, NOTHING, Amount, Offer, basic_limits

DEFAULT = "default"
_MOST_EPSILON = 1e4


class Part(NamedTuple):
    """What one account of a source may spend and has spent."""

    name: str
    limit: Amount
    spent: Amount


@dataclass(frozen=True, slots=True)
class Balance:
    """What a source, or one account of it, may spend and has spent, at the order fixed when the source was opened.

    A charge fits while the sum of divergences or the sum of epsilons stays within its limit; one of the two may pass it. Where
    the first charge took its part of all of delta (`basic`), only the epsilons count, and failures against the whole delta.
    What an account is charged must fit its source (`whole`) as well. `pairs` is what the sums of epsilons and failures would
    be less if every charge counted as the (epsilon, delta) that it was asked for. `parts` are the accounts of a source.
    """

    source: str
    account: str | None
    epsilon: float
    delta: float
    failure: float
    order: float
    limit: Amount
    spent: Amount
    by_period: bool = False
    whole: Balance | None = None
    pairs: tuple[int, int] = (0, 0)
    parts: tuple[Part, ...] = ()

    @property
    def basic(self) -> bool:
        """Whether (epsilon, delta) pairs add up here, and nothing else."""
        return not (self.limit.divergence or self.by_period)

    @property
    def untouched(self) -> bool:
        """Whether the source was charged nothing so far, all that was cancelled apart."""
        return not any((self.whole or self).spent)

    @property
    def left(self) -> Amount:
        """What is left of each sum; what fits one of the first two is allowed."""
        return Amount(*(max(0, rest) for rest in self.limit.minus(self.spent)))

    @property
    def part_spent(self) -> float:
        """How much of the budget is spent, from 0 to 1: of the divergences or of the epsilons, whichever has more left."""
        return part_of(self.spent, self.limit)

    @property
    def by_divergence(self) -> bool:
        """Whether that is the sum of divergences."""
        divergence = _ratio(self.spent.divergence, self.limit.divergence)
        return not self.basic and divergence < _ratio(self.spent.epsilon, self.limit.epsilon)

    @property
    def failure_part(self) -> float:
        """How much is spent, from 0 to 1, of what is set aside for events that may fail."""
        return _ratio(self.spent.failure, self.limit.failure)

    @property
    def epsilon_spent(self) -> float:
        """The epsilon that all that was spent amounts to, at the budget's delta."""
        return min([self.epsilon, *self.totals.values()] if self.totals else [0.0])

    @property
    def totals(self) -> dict[str, float]:
        """The same by each way to add it up that holds at the budget's delta: `basic` composition, or `renyi` divergences."""
        budget = Filter(self.epsilon, self.delta, failure=self.failure, order=self.order)
        budget.basic = self.basic
        budget.spent, budget.epsilon_spent, failed = self.spent
        budget.failure_spent = failed * FINER
        budget.pairs_spent = (self.spent.epsilon - self.pairs[0], (failed - self.pairs[1]) * FINER)
        return budget.totals()

    def spent_in_words(self) -> str:
        """The sum that `part_spent` is a part of, for people: which of the two it is, what is spent of it, and its limit."""
        if self.by_divergence:
            spent, limit = self.spent.divergence / UNIT, self.limit.divergence / UNIT
            return f"{up(spent)} of {down(limit)} in Rényi divergence of order {self.order:.4g}"
        spent, limit = self.spent.epsilon / EPSILON_UNIT, self.limit.epsilon / EPSILON_UNIT
        return f"{up(spent)} of {down(limit)} in epsilon"

    def total_in_words(self) -> str:
        """How the total was reached, for people: by which sum, and what the other would say."""
        ways = {"basic": "basic composition", "renyi": f"Rényi divergences of order {self.order:.4g}"}
        by = sorted(self.totals.items(), key=lambda way: way[1])
        if not by or self.by_period:
            return ""
        others = [f"{ways[name]} would give {up(epsilon)}" for name, epsilon in by[1:]]
        return f"by {ways[by[0][0]]}{f' ({others[0]})' if others else ''}"

    @property
    def epsilon_left(self) -> float:
        """The largest epsilon (at delta 0) that one more charge may have, 0 if none; several smaller ones may fit instead.

        This is what every surface means by "left": what the ledger would still admit, here and in the source. A source is
        charged through its accounts, so of a source it is the most that any one of them may take.
        """
        most = self._largest(pure=True)
        return min(most, max(map(self.left_of, self.parts), default=most))

    def left_of(self, part: Part) -> float:
        """The same of one account of a source."""
        return replace(self, limit=part.limit, spent=part.spent, whole=self)._largest(pure=True)

    def left_in_words(self) -> str:
        """The same for people, behind the word for epsilon."""
        return f"{_shown(self.epsilon_left)} in one more answer, or several smaller ones"

    def after(self, more: Amount) -> Balance:
        """What it will be when this much more is spent, here and in the source."""
        return replace(self, spent=self.spent.plus(more), whole=None if self.whole is None else self.whole.after(more))

    def _largest(self, *, pure: bool) -> float:
        """The largest epsilon that fits here and in the source; without `pure`, by its divergence alone."""
        left = self.left
        own = max(_worth(self.order, left.divergence), _plain(left.epsilon) if pure else 0.0)
        return own if self.whole is None else min(own, self.whole._largest(pure=pure))

    def fits_at(self, delta: float, *, pairs: bool) -> float:
        """The largest epsilon to which one more Gaussian mechanism may be calibrated at this delta; 0 if none.

        With `pairs` it is asked for as (epsilon, delta), and may be charged as that.
        """
        both = [balance for balance in (self, self.whole) if balance is not None]
        fits = _gaussian(self.order, min(balance.left.divergence for balance in both), delta)
        all_of_it = self.account in (None, DEFAULT) and not self._is_part()
        if self.untouched and all_of_it and delta <= self.delta:
            return max(fits, down_to_unit(self.epsilon)) if self.epsilon < UNBOUNDED / EPSILON_UNIT - 1 else fits
        if pairs and math.ceil(written(delta) * FAILURE_UNIT) <= min(balance.left.failure for balance in both):
            fits = max(fits, self.epsilon_left)
        return fits

    def holds(self, asked: Amount) -> bool:
        """Whether this much fits here, whatever the source says."""
        rest = self.limit.minus(self.spent)
        either = asked.divergence <= rest.divergence or asked.epsilon <= rest.epsilon
        return either and asked.failure <= rest.failure

    def holds_first(self, asked: Amount) -> bool:
        """Whether this much, which is a pair, fits as the first charge of a source that has one account."""
        whole = self.whole or self
        limit = basic_limits(whole.limit, self.delta)
        alone = self.untouched and self.account in (None, DEFAULT) and self.limit == whole.limit
        allowed = self.failure > 0 or not asked.failure
        return alone and allowed and asked.epsilon <= limit.epsilon and asked.failure <= limit.failure

    def no_room(self, price: Offer) -> BudgetExceeded:
        """The error for a charge that fits in no way: neither as it is nor as the pair that was asked for."""
        if price.own is None:
            refusal = price.refusal or self.refusal(NOTHING)
            refusal.left = self.epsilon_left
            return refusal
        refusal = self.refusal(price.own)
        if price.asked is None or price.own.epsilon < UNBOUNDED:
            return refusal
        epsilon, delta = price.asked
        asked, fits = f"epsilon {epsilon:g} at delta {up(delta, 6)}", self.fits_at(delta, pairs=True)
        if (self.whole or self).basic:
            text = f"{self._name()} adds up (epsilon, delta) pairs; {self._pairs_left()} left of {self._of()} "
            text += f"(delta {up(self.delta, 6)}). This one asks {asked}. Ask {self._owner()}"
        else:
            text = f"{refusal}. It was asked for as {asked}; for pairs, {self._pairs_left()} left."
            text += f" Gaussian noise asked for at delta {up(delta, 6)} fits up to epsilon {_shown(fits)}."
        return BudgetExceeded(text, asked=epsilon, left=fits)

    def _pairs_left(self) -> str:
        """What is left for (epsilon, delta) pairs, here and in the source."""
        both = [balance.left for balance in (self, self.whole) if balance is not None]
        epsilon, delta = min(balance.epsilon for balance in both), min(balance.failure for balance in both)
        return f"epsilon {_shown(epsilon / EPSILON_UNIT)} at delta {down(delta / FAILURE_UNIT)} is"

    def refusal(self, asked: Amount) -> BudgetExceeded:
        """The error for a charge that does not fit, here or in the source; it depends on public numbers only.

        Its `asked` and `left` are epsilons: of one more pure event, or of one that is worth as much; where the probability
        of failure is what is short, they are such probabilities.
        """
        if not self.holds(asked):
            return self._refusal(asked, self._name(), self)
        if self.whole is not None and not self.whole.holds(asked):
            return self.whole._refusal(asked, f"{self.source} as a whole" if self._is_part() else self.source, self)
        return BudgetExceeded(
            f"With this charge the sums of {self.source} would be more than a ledger counts (2^62 units: about "
            f"{MOST // UNBOUNDED:.1e} charges without a pure epsilon). Use noise that has one, such as Laplace, or put several "
            "questions into one charge.", asked=asked.epsilon / EPSILON_UNIT, left=self.epsilon_left,
        )  # fmt: skip

    def _refusal(self, asked: Amount, name: str, payer: Balance) -> BudgetExceeded:
        """The error where this balance, called `name`, is short for what `payer` asked."""
        if self.holds(asked._replace(failure=0)):
            return self._short_of_failure(asked, name)
        pure = asked.epsilon < UNBOUNDED
        left, fits = (
            balance._largest(pure=True) if pure else balance.fits_at(self.delta, pairs=False) for balance in (self, payer)
        )
        has = f"{name} has about epsilon {_shown(left)} left of {self._of()} for one more question"
        if not pure and self.basic:
            return BudgetExceeded(
                f"{name} adds up (epsilon, delta) pairs, since its first charge could take all of delta; {self._pairs_left()} "
                f"left of {self._of()} (delta {up(self.delta, 6)}), and this question has no pure epsilon. Say what it "
                f"was made for (asked=), or ask {self._owner()}", asked=asked.divergence / UNIT, left=fits,
            )  # fmt: skip
        if not pure:
            want = _gaussian(self.order, asked.divergence, self.delta) * (1 + 1e-9)
            return BudgetExceeded(
                f"{has} that has no pure epsilon (delta {up(self.delta, 6)}); this one is worth about {up(want)} (divergence "
                f"{up(asked.divergence / UNIT)}; {down(self.left.divergence / UNIT)} is left at order {self.order:.4g}). "
                f"Add noise, or ask {self._owner()}", asked=want, left=fits,
            )  # fmt: skip
        want = asked.epsilon / EPSILON_UNIT
        near = f"{want:.4g}" if f"{want:.4g}" != _shown(left) else up(want)
        advice = "Ask" if _shown(fits) == "0" else f"Lower epsilon to {_shown(fits)}, or ask"
        text = f"{has} (delta {up(self.delta, 6)}); this one asks {near}. {advice} {self._owner()}"
        return BudgetExceeded(text, asked=want, left=fits)

    def _short_of_failure(self, asked: Amount, name: str) -> BudgetExceeded:
        want, left, limit = (n.failure / FAILURE_UNIT for n in (asked, self.left, self.limit))
        return BudgetExceeded(
            f"{name} has failure probability {down(left)} left of {down(limit)}, a part of its delta ({up(self.delta, 6)}); "
            f"this question may fail with {up(want)}. Lower its delta, or ask {self._owner()}", asked=want, left=left,
        )  # fmt: skip

    def _owner(self) -> str:
        return f"its owner to raise the budget: discreet ledger show {quote(self.source)}"

    def cannot_share(self, part: float) -> BudgetExceeded:
        """The error for a part of the source's budget that is not there to be given away."""
        whole, rest = (self.whole or self).limit, self.limit.minus(self.spent)
        either = max(_ratio(rest.divergence, whole.divergence), _ratio(rest.epsilon, whole.epsilon))
        shares = zip((self.limit.divergence, self.limit.epsilon, rest.failure), whole, strict=True)
        left = max(0.0, min(either, *(mine / its for mine, its in shares if its)))
        return BudgetExceeded(
            f"{self.source} (account {self.account}) has {down(left)} of the budget left to give to others, after what it gave "
            f"and spent; this share asks {part:g}. Share less, or raise the budget first.", asked=part, left=left,
        )  # fmt: skip

    def _is_part(self) -> bool:
        return self.whole is not None and self.limit != self.whole.limit

    def _name(self) -> str:
        return f"{self.source} (account {self.account})" if self._is_part() else self.source

    def _of(self) -> str:
        """The budget, or the account's part of it."""
        if self.whole is None or not self._is_part():
            return f"{self.epsilon:g}"
        part = max(_ratio(*both) for both in zip(self.limit, self.whole.limit, strict=True) if both[1])
        return f"its {100 * part:.3g} % of {self.epsilon:g}"

    def __str__(self) -> str:
        if self.by_period:
            return f"{self.source}: epsilon {self.epsilon:g} (delta {up(self.delta, 6)}) for each of its periods"
        left = f"{self._name()}: epsilon {_shown(self.epsilon_left)} left of {self._of()} (delta {up(self.delta, 6)})"
        return f"{left}; (epsilon, delta) pairs add up to {up(self.epsilon_spent)}" if self.basic and any(self.spent) else left


def part_of(spent: Amount, limit: Amount) -> float:
    """How much of a limit is spent, from 0 to 1: of the divergences or of the epsilons, whichever has more left."""
    return min(_ratio(spent.divergence, limit.divergence), _ratio(spent.epsilon, limit.epsilon))


def _ratio(spent: int, limit: int) -> float:
    return min(1.0, spent / limit) if limit else float(spent > 0)


def _shown(epsilon: float) -> str:
    """An epsilon that is left, rounded down; dust is nothing to people."""
    return down(epsilon) if epsilon >= 1e-4 else "0"


@lru_cache(1024)
def _plain(left: int) -> float:
    """The largest epsilon of one pure event that costs at most this much (in 1e-9) of the plain sum."""
    epsilon, price = left / EPSILON_UNIT, Filter(1.0, 1e-6).pure_cost  # the same for every filter
    while epsilon > 0 and price(Pure(epsilon)) > left:
        epsilon = math.nextafter(epsilon, 0)
    return epsilon


@lru_cache(1024)
def _gaussian(order: float, divergence: int, delta: float) -> float:
    """The epsilon, at this delta, of the Gaussian mechanism that has this divergence (in 1e-15), rounded down."""
    if divergence <= 0:
        return 0.0
    left = divergence / UNIT * (1 - 3e-12)  # the filter adds 1e-12 to what it charges
    return curve(Gaussian(math.sqrt(order / 2 / left))).epsilon(delta) * (1 - 1e-9)


def down_to_unit(epsilon: float) -> float:
    """The epsilon, or the next below it that is a whole number of units as it is written."""
    return epsilon if written(epsilon) * EPSILON_UNIT % 1 == 0 else math.floor(epsilon * EPSILON_UNIT) / EPSILON_UNIT


@lru_cache(1024)
def _worth(order: float, divergence: int) -> float:
    """The largest epsilon of one pure event that has at most this divergence (in 1e-15), rounded down."""
    if divergence <= 0:
        return 0.0
    left = divergence / UNIT * (1 - 3e-12)  # the filter adds 1e-12 to what it charges
    low, high = 0.0, 1.0
    while renyi(Pure(high), order) <= left and high < _MOST_EPSILON:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if renyi(Pure(middle), order) <= left else (low, middle)
    return low
