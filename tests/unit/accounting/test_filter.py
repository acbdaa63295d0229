"""A filter holds one event of exactly its (epsilon, delta), and no adaptive adversary gets more out of it than that.

The adversary is searched for by dynamic programming: after every output it chooses the next mechanism, or stops, so as to make
P(S) - e^epsilon Q(S) as large as it can. Mechanisms have losses that are multiples of one step, so the state is small and the
search over all strategies of a few steps is complete. It never gets more than delta from the filter, and it does from a twin
that lets any of three sums have room at any time. Nothing here is random.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import pytest

from discreet.accounting import (
    Approximate,
    Filter,
    Gaussian,
    Laplace,
    NonPrivate,
    Poisson,
    Pure,
    Repeat,
    Sequence,
    calibrate,
    curve,
)
from discreet.accounting.filter import EPSILON_UNIT, UNBOUNDED, UNIT, Price, kept
from discreet.errors import BudgetExceeded, InvalidDocument, InvalidValue

EXACT = Gaussian(calibrate(Gaussian, 1.0, 1e-5))
TRAINED = Repeat(Poisson(0.1, Gaussian(calibrate(lambda s: Repeat(Poisson(0.1, Gaussian(s)), 50), 1.0, 1e-5))), 50)


@pytest.mark.parametrize("failure", [0.0, 1e-6, 5e-6, 9.9e-6])
@pytest.mark.parametrize("event", [EXACT, TRAINED])
@pytest.mark.parametrize("asked", [(1.0, 1e-5), None])
def test_a_budget_holds_one_event_of_exactly_its_size(event, failure: float, asked) -> None:
    budget = Filter(1.0, 1e-5, failure=failure)
    budget.spend(event, asked=asked)
    assert budget.basic
    assert 1 - 1e-5 < budget.spent_epsilon() <= 1.0
    if asked is not None:
        assert budget.spent_epsilon() == 1.0
    for more in (event, Gaussian(1e6), Pure(0.01), Approximate(1e-3, 1e-18)):
        assert not budget.allows(more)
    assert not budget.allows(event, asked=(1.0, 1e-5))
    again = Filter.from_json(json.loads(json.dumps(budget.to_json())))
    assert vars(again) == vars(budget)
    assert not Filter(0.999, 1e-5, failure=failure).allows(event)
    assert not Filter(1.0, 0.995e-5, failure=failure).allows(event, asked=(1.0, 1e-5))


def test_pairs_add_up_exactly() -> None:
    """Three runs of a third: by their divergences, one of them would not fit."""
    event = Gaussian(calibrate(Gaussian, 0.5, 2e-6))
    budget = Filter(0.5 * 3, 6e-6, failure=3e-6, order=200.0)
    assert budget.cost(event)[0] > budget.limit
    for _ in range(3):
        budget.spend(event, asked=(0.5, 2e-6))
    assert (budget.epsilon_spent, budget.failure_spent) == (budget.epsilon_limit, budget.delta_limit)
    assert not budget.allows(event, asked=(0.5, 2e-6))
    with pytest.raises(BudgetExceeded, match="adds up"):
        budget.spend(event, asked=(0.5, 2e-6))


def test_later_charges_are_pairs_within_the_part_for_failures() -> None:
    """After an answer all of delta cannot be taken any more; the part that is set aside can."""
    budget = Filter(1.0, 1e-5, failure=5e-6)
    budget.spend(Pure(0.25))
    half = Gaussian(calibrate(Gaussian, 0.75, 5e-6))
    assert not budget.allows(half)
    assert not budget.allows(Gaussian(calibrate(Gaussian, 0.75, 1e-5)), asked=(0.75, 1e-5))
    budget.spend(half, asked=(0.75, 5e-6))
    assert not budget.basic
    assert budget.spent_epsilon() == 1.0
    assert not budget.allows(Pure(1e-6))


def test_what_was_asked_is_checked() -> None:
    with pytest.raises(InvalidValue, match="is proven to keep"):
        Filter(1.0, 1e-5).spend(EXACT, asked=(0.9, 1e-5))
    for wrong in ((1.0,), 1.0, (-1.0, 1e-5), (1.0, 2.0), (math.nan, 0.1)):
        with pytest.raises(InvalidValue):
            kept(EXACT, wrong)  # type: ignore[arg-type]


def test_a_budget_that_holds_no_failures_holds_none_as_the_first_event_either() -> None:
    assert not Filter(1.0, 1e-5).allows(Approximate(0.1, 1e-9))
    assert Filter(1.0, 1e-5, failure=5e-6).allows(Approximate(1.0, 1e-5))
    assert not Filter(1.0, 1e-5, failure=5e-6).allows(Approximate(1.0, 1.01e-5))
    assert not Filter(1.0, 1e-5).allows(NonPrivate())


def test_an_event_that_fits_as_it_is_leaves_all_ways_open() -> None:
    budget = Filter(3.0, 1e-5, failure=5e-6)
    budget.spend(EXACT, asked=(1.0, 1e-5))
    assert not budget.basic
    assert budget.spent == budget.cost(EXACT)[0]
    assert budget.spent_epsilon() == 1.0 < budget.totals()["renyi"]
    assert budget.allows(Gaussian(50.0))


def test_documents_of_older_filters_are_read() -> None:
    budget = Filter(1.0, 1e-6, failure=1e-7)
    budget.spend(Gaussian(20.0))
    older = {name: value for name, value in budget.to_json().items() if name not in ("basic", "pairs_spent")}
    assert vars(Filter.from_json(older)) == vars(budget)
    with pytest.raises(InvalidDocument):
        Filter.from_json({**budget.to_json(), "basic": True})  # which has no room for a divergence


# ---- the strongest adaptive adversary ------------------------------------------------------------------------------------


class Mechanism(NamedTuple):
    """Outputs as (loss in steps, probability under Q), the probability of an output that gives P away, and what is charged."""

    outputs: tuple[tuple[int, float], ...]
    reveals: float
    natural: Price
    pair: Price | None


class World(NamedTuple):
    """A budget whose epsilon is `steps` steps of loss."""

    epsilon: float
    delta: float
    failure: float
    steps: int

    @property
    def step(self) -> float:
        return self.epsilon / self.steps


def two_sided(world: World, high: int, low: int, chance: float) -> tuple[tuple[int, float], ...]:
    """With this chance, one of two outputs, with losses of `high` and `-low` steps; nothing otherwise."""
    up, down = math.exp(high * world.step), math.exp(-low * world.step)
    above = (1 - down) / (up - down)
    return ((high, chance * above), (-low, chance * (1 - above)), (0, 1 - chance))


def mirrored(world: World, outputs: tuple[tuple[int, float], ...]) -> tuple[tuple[int, float], ...]:
    """The same with P and Q exchanged."""
    return tuple((-loss, q * math.exp(loss * world.step)) for loss, q in outputs)


def divergence(world: World, outputs: tuple[tuple[int, float], ...], order: float) -> float:
    both = (outputs, mirrored(world, outputs))
    return max(math.log(sum(q * math.exp(order * k * world.step) for k, q in each)) for each in both) / (order - 1)


def kept_delta(world: World, outputs: tuple[tuple[int, float], ...], epsilon: int) -> float:
    limit = math.exp(epsilon * world.step)
    both = (outputs, mirrored(world, outputs))
    return max(sum(q * max(math.exp(k * world.step) - limit, 0) for k, q in each) for each in both)


def menu(world: World, budget: Filter) -> list[Mechanism]:
    """Black boxes (priced by divergence, and by a pair that they keep), pure mechanisms, and ones that may fail."""
    found = []
    for high, low in [(1, 1), (1, 2), (world.steps // 2 + 1, 1), (world.steps + 1, 1)]:
        whole = divergence(world, two_sided(world, high, low, 1.0), budget.order)
        for part in (0.1, 0.5, 1.0):
            most = part * budget.limit / UNIT
            chance = 1.0 if whole <= most else math.expm1((budget.order - 1) * most) / math.expm1((budget.order - 1) * whole)
            outputs = two_sided(world, high, low, chance)
            cost = _up(divergence(world, outputs, budget.order) * (1 + 1e-12), UNIT)
            pairs = [(e, kept_delta(world, outputs, e) * (1 + 1e-12)) for e in range(world.steps + 1)]
            for epsilon, delta in [pair for pair in pairs if pair[1] <= world.delta][:1]:
                pair = _pair(world, budget, epsilon, delta)
                found += [Mechanism(each, 0.0, Price(cost, UNBOUNDED, 0), pair) for each in (outputs, mirrored(world, outputs))]
            if max(high, low) <= world.steps:
                plain = Price(cost, _up(max(high, low) * world.step, EPSILON_UNIT), 0)
                found += [Mechanism(each, 0.0, plain, None) for each in (outputs, mirrored(world, outputs))]
    for epsilon in (0, world.steps // 2, world.steps):
        for delta in sorted({0.0, world.failure, world.delta}):
            outputs = (
                tuple((k, q * (1 - delta)) for k, q in two_sided(world, epsilon, epsilon, 1.0))
                if epsilon
                else ((0, 1 - delta),)
            )
            found.append(Mechanism(outputs, delta, _pair(world, budget, epsilon, delta), None))
    return found


def _up(value: float, unit: int) -> int:
    return math.ceil(Fraction(value) * unit)


def _pair(world: World, budget: Filter, epsilon: int, delta: float) -> Price:
    return budget.price(Approximate(epsilon * world.step, delta))


State = tuple[int, ...]
Rule = Callable[[State, Mechanism], State | None]


def the_filter(budget: Filter) -> Rule:
    """The filter itself, put into a state and asked."""

    @lru_cache(None)
    def rule(state: State, mechanism: Mechanism) -> State | None:
        budget.spent, budget.epsilon_spent, budget.failure_spent, basic = state or (0, 0, 0, 0)
        budget.basic = bool(basic)
        chosen = budget.choose(mechanism.natural, mechanism.pair, mechanism.pair or mechanism.natural)
        if chosen is None:
            return None
        price, basic = chosen
        return (
            budget.spent + price.divergence,
            budget.epsilon_spent + price.epsilon,
            budget.failure_spent + price.failure,
            basic,
        )

    return rule


def any_sum_at_any_time(budget: Filter) -> Rule:
    """The broken twin: pairs have all of delta, divergences and failures theirs, and whichever has room decides, ever."""

    def rule(state: State, mechanism: Mechanism) -> State | None:
        own, pair = mechanism.natural, mechanism.pair or mechanism.natural
        spent = (own.divergence, own.epsilon, own.failure, pair.epsilon, pair.failure)
        spent = tuple(map(sum, zip(state or (0, 0, 0, 0, 0), spent, strict=True)))
        usual = (spent[0] <= budget.limit or spent[1] <= budget.epsilon_limit) and spent[2] <= budget.failure_limit
        return spent if usual or (spent[3] <= budget.epsilon_limit and spent[4] <= budget.delta_limit) else None

    return rule


def strongest(world: World, mechanisms: list[Mechanism], rule: Rule, rounds: int) -> float:
    """The largest P(S) - e^epsilon Q(S) over all adaptive strategies: backward induction, per unit of probability under Q."""
    limit = math.exp(world.epsilon)

    @lru_cache(None)
    def value(state: State, loss: int, left: int) -> float:
        ratio = math.exp(loss * world.step)
        best = max(ratio - limit, 0.0)
        for mechanism in mechanisms if left else ():
            after = rule(state, mechanism)
            if after is not None:
                rest = sum(q * value(after, loss + more, left - 1) for more, q in mechanism.outputs)
                best = max(best, mechanism.reveals * ratio + rest)
        return best

    return value((), 0, rounds)


WORLDS = [World(2.0, 0.02, 0.01, 4), World(4.0, 0.05, 0.015, 2), World(2.0, 0.02, 0.0, 4), World(1.0, 0.1, 0.05, 2)]


@pytest.mark.parametrize("world", WORLDS)
def test_no_adaptive_adversary_gets_more_than_delta(world: World) -> None:
    budget = Filter(world.epsilon, world.delta, failure=world.failure)
    gain = strongest(world, menu(world, budget), the_filter(budget), 3)
    assert world.delta * (1 - 1e-9) <= gain <= world.delta * (1 + 1e-9)  # all of it can be had, and nothing more


def test_an_adversary_that_may_choose_the_sum_later_gets_more() -> None:
    world = WORLDS[0]
    budget = Filter(world.epsilon, world.delta, failure=world.failure)
    gain = strongest(world, menu(world, budget), any_sum_at_any_time(budget), 2)
    assert round(gain, 4) == 0.0224 > 1.1 * world.delta  # as the page about filters says


def test_the_search_knows_what_basic_composition_allows() -> None:
    """Against events fixed beforehand: the search finds the exact delta of a composition of randomised responses."""
    world = World(1.0, 0.1, 0.05, 2)
    response = Mechanism(two_sided(world, 1, 1, 1.0)[:2], 0.0, Price(0, 0, 0), None)
    gain = strongest(world, [response], lambda state, mechanism: (len(state) + 1,), 3)
    assert gain == pytest.approx(curve(Repeat(Pure(0.5), 3)).delta(1.0), rel=1e-9)


def test_nothing_that_fitted_as_it_is_costs_more_than_before() -> None:
    """The sums and the epsilon spent by events that the two older sums hold, with or without what was asked."""
    events = [Gaussian(20.0), Pure(0.1), Laplace(10.0), Approximate(0.05, 1e-7), Sequence([Gaussian(30.0), Pure(0.01)])]
    one, other = Filter(2.0, 1e-5, failure=5e-6), Filter(2.0, 1e-5, failure=5e-6)
    for event in events * 3:
        one.spend(event)
        other.spend(event, asked=(math.nextafter(curve(event).epsilon(1e-6), math.inf), 1e-6))
        assert (one.spent, one.epsilon_spent, one.failure_spent) == (other.spent, other.epsilon_spent, other.failure_spent)
        assert other.spent_epsilon() <= one.spent_epsilon() == one.totals()["renyi"]
