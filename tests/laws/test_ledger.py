"""Laws of the ledger: what is spent is the sum of the entries, never above both limits, and what the filter says."""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strategies
from discreet import Ledger, record
from discreet.accounting import Filter, calibrate, curve
from discreet.accounting.filter import EPSILON_UNIT, UNBOUNDED, UNIT
from discreet.accounting.renyi import epsilon_from_renyi
from discreet.core import Approximate, Claim, Event, Game, Gaussian, Laplace, Poisson, Pure, Repeat
from discreet.errors import BudgetExceeded, DiscreetError, InvalidValue
from discreet.ledger import Amount, question_key
from discreet.ledger.amount import FINER, MOST, cost, limits
from discreet.ledger.chain import canonical, kept
from discreet.ledger.charge import REASONS
from discreet.ledger.ledger import _key
from discreet.ledger.names import alike, new_name

noise = st.floats(min_value=2, max_value=500)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Gaussian, noise),
    st.builds(Laplace, noise),
    st.builds(Pure, st.floats(0, 0.5)),
    st.builds(Approximate, st.floats(0, 0.3), st.floats(0, 3e-7)),
    st.builds(Repeat, st.builds(Poisson, st.just(0.01), st.builds(Gaussian, noise)), st.integers(1, 100)),
)
steps = st.lists(st.tuples(st.sampled_from(["keep", "settle", "cancel"]), events, st.sampled_from([None, "ann"])), max_size=12)


@contextmanager
def opened(**terms: Any) -> Iterator[Ledger]:
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "ledger.db") as ledger:
        ledger.open("people", unit=record(), **{"epsilon": 1.0, "delta": 1e-6, "failure": 5e-7, **terms})
        yield ledger


def claim(event: Event) -> Claim:
    return Claim(game=Game(record(), {"answers"}), event=event)


@settings(max_examples=40)
@given(steps)
def test_what_is_spent_is_the_sum_of_the_entries(plan: list[tuple[str, Event, str | None]]) -> None:
    with opened() as ledger:
        ledger.share("people", "ann", 0.3, by="owner")
        standing: list[Amount] = []
        for what, event, account in plan:
            try:
                charge = ledger.reserve("people", claim(event), account=account)
            except BudgetExceeded:
                continue
            if what == "cancel":
                charge.cancel(REASONS[0])
                continue
            standing.append(charge.amount)
            if what == "settle":
                charge.settle()
            for name in (None, "ann", "default"):
                found = ledger.balance("people", name)
                assert found.spent.divergence <= found.limit.divergence or found.spent.epsilon <= found.limit.epsilon
                assert found.spent.failure <= found.limit.failure
        whole, ann, rest = (ledger.balance("people", name).spent for name in (None, "ann", "default"))
        assert whole == tuple(map(sum, zip(Amount(0, 0, 0), *standing, strict=True)))
        assert whole == tuple(map(sum, zip(ann, rest, strict=True)))
        ledger.verify()


budgets = st.tuples(st.sampled_from([0.7, 1.0, 1.5, 4.0]), st.sampled_from([1e-6, 1e-4]))


@settings(max_examples=60)
@given(budgets, st.lists(events | st.builds(Pure, st.floats(0.1, 1.5)), max_size=14))
def test_the_ledger_is_the_filter(terms: tuple[float, float], chosen: list[Event]) -> None:
    """Divergences and epsilons exactly; failures are rounded up to 1e-18, so it never allows what the filter refuses."""
    budget = Filter(*terms, failure=terms[1] / 2)
    with opened(epsilon=terms[0], delta=terms[1], failure=None) as ledger:
        for event in chosen:
            fits = budget.allows(event)
            try:
                ledger.reserve("people", claim(event))
            except BudgetExceeded:
                fine = budget.failure_spent + budget.cost(event)[1] > budget.failure_limit - 20 * FINER
                assert not fits or fine
            else:
                assert fits
                budget.spend(event)
            found = ledger.balance("people")
            assert (found.spent.divergence, found.spent.epsilon) == (budget.spent, budget.epsilon_spent)
            assert found.epsilon_spent == min(terms[0], budget.spent_epsilon())
            assert 0 <= found.spent.failure * FINER - budget.failure_spent <= len(chosen) * FINER
        ledger.verify()


shares = st.sampled_from([None, 0.05, 0.3, 0.5, 1.0])  # of delta, at which an event is asked for as the pair that it keeps


def asked_for(event: Event, delta: float, share: float | None) -> tuple[float, float] | None:
    """The pair that an event keeps at a share of delta; None where it keeps none, since it fails with more than that."""
    epsilon = math.inf if share is None else curve(event).epsilon(share * delta)
    return None if share is None or epsilon == math.inf else (math.nextafter(epsilon, math.inf), share * delta)


@settings(max_examples=25)
@given(budgets, st.lists(st.tuples(events | st.builds(Gaussian, st.floats(0.5, 8)), shares), max_size=8))
def test_the_ledger_is_the_filter_for_pairs_too(terms: tuple[float, float], chosen: list[tuple[Event, float | None]]) -> None:
    """The same events are charged, at the same prices; failures are rounded up to 1e-18, so they may be short sooner."""
    budget = Filter(*terms, failure=terms[1] / 2)
    with opened(epsilon=terms[0], delta=terms[1], failure=None) as ledger:
        for event, share in chosen:
            asked = asked_for(event, terms[1], share)
            fits = budget.allows(event, asked=asked)
            try:
                ledger.reserve("people", claim(event), asked=asked)
            except BudgetExceeded:
                if fits:  # then only what was rounded up is in the way
                    budget.failure_spent += 20 * FINER
                    assert not budget.allows(event, asked=asked)
                    break
            else:
                assert fits
                budget.spend(event, asked=asked)
            found = ledger.balance("people")
            assert (found.spent.divergence, found.spent.epsilon) == (budget.spent, budget.epsilon_spent)
            assert found.basic == budget.basic
            assert found.epsilon_spent == pytest.approx(min(terms[0], budget.spent_epsilon()), rel=1e-12)
        ledger.verify()


class Before:
    """The rule before pairs were counted, by itself: what it held must still be held, for no more."""

    def __init__(self, terms: tuple[float, float]) -> None:
        self.budget = Filter(*terms, failure=terms[1] / 2)

    def spend(self, event: Event) -> bool:
        price, budget = self.budget.price(event), self.budget
        either = budget.spent + price.divergence <= budget.limit or budget.epsilon_spent + price.epsilon <= budget.epsilon_limit
        if not either or budget.failure_spent + price.failure > budget.failure_limit:
            return False
        budget.spent += price.divergence
        budget.epsilon_spent += price.epsilon
        budget.failure_spent += price.failure
        return True

    def epsilon(self) -> float:
        budget = self.budget
        plain = budget.epsilon_spent / EPSILON_UNIT if budget.epsilon_spent < UNBOUNDED else math.inf
        by_renyi = epsilon_from_renyi(budget.spent / UNIT, budget.order, budget.delta - budget.failure)
        return min(plain, by_renyi) if budget.spent else 0.0


@settings(max_examples=30)
@given(budgets, st.lists(st.tuples(events | st.builds(Pure, st.floats(0.1, 1.5)), shares), max_size=14))
def test_what_was_held_before_is_held_for_no_more(terms: tuple[float, float], chosen: list[tuple[Event, float | None]]) -> None:
    before, budget = Before(terms), Filter(*terms, failure=terms[1] / 2)
    for event, share in chosen:
        if before.spend(event):
            budget.spend(event, asked=asked_for(event, terms[1], share))
            assert (budget.spent, budget.epsilon_spent) == (before.budget.spent, before.budget.epsilon_spent)
            assert budget.failure_spent == before.budget.failure_spent
            assert budget.spent_epsilon() <= before.epsilon()


@settings(max_examples=25)
@given(
    budgets, st.lists(events | st.builds(Gaussian, st.floats(5, 60)), max_size=5), st.booleans(), st.sampled_from([1.0, 0.3])
)
def test_the_epsilon_that_a_refusal_quotes_is_admitted_and_hardly_more_is(
    terms: tuple[float, float], chosen: list[Event], told: bool, share: float
) -> None:
    """Of Gaussian noise, which has no pure epsilon: with the terms it was made for, and without."""
    delta = terms[1] * (share if told else 1.0)

    def asked(epsilon: float) -> tuple[Claim, tuple[float, float] | None]:
        return claim(Gaussian(calibrate(Gaussian, epsilon, delta))), (epsilon, delta) if told else None

    with opened(epsilon=terms[0], delta=terms[1], failure=None) as ledger:
        for event in chosen:
            with suppress(BudgetExceeded):
                ledger.reserve("people", claim(event))
        much, pair = asked(terms[0] * 1.5)
        with pytest.raises(BudgetExceeded) as refused:
            ledger.reserve("people", much, asked=pair)
        quoted = refused.value.left
        assert 0 <= quoted <= terms[0] * (1 + 1e-6)
        if quoted > 1e-4:
            more, pair = asked(quoted * 1.01)
            with pytest.raises(BudgetExceeded):
                ledger.reserve("people", more, asked=pair)
            just, pair = asked(quoted)
            ledger.reserve("people", just, asked=pair)
        ledger.verify()


@settings(max_examples=40)
@given(budgets, st.lists(st.tuples(events, st.sampled_from([None, "ann"])), max_size=8), st.sampled_from(["ann", "default"]))
def test_what_is_left_fits_and_more_does_not(
    terms: tuple[float, float], chosen: list[tuple[Event, str | None]], account: str
) -> None:
    with opened(epsilon=terms[0], delta=terms[1], failure=None) as ledger:
        ledger.share("people", "ann", 0.3, by="owner")
        for event, payer in chosen:
            with suppress(BudgetExceeded):
                ledger.reserve("people", claim(event), account=payer)
        left = ledger.left("people", account)
        assert 0 <= left <= ledger.left("people")
        with pytest.raises(BudgetExceeded) as told:
            ledger.reserve("people", claim(Pure(left * (1 + 1e-6) + 2e-9)), account=account)
        assert told.value.left == left < told.value.asked
        if left:
            ledger.reserve("people", claim(Pure(left)), account=account)
        ledger.verify()


@settings(max_examples=30)
@given(st.lists(st.tuples(events, st.sampled_from([None, "ann", "bob"])), max_size=14))
def test_whatever_accounts_spend_together_one_filter_would_allow(chosen: list[tuple[Event, str | None]]) -> None:
    budget = Filter(1.0, 1e-6, failure=5e-7)
    with opened() as ledger:
        for name in ("ann", "bob"):
            ledger.share("people", name, 0.35, by="owner")
        for event, payer in chosen:
            with suppress(BudgetExceeded):
                ledger.reserve("people", claim(event), account=payer)
                budget.spend(event)  # which would raise after the ledger did not
                assert ledger.balance("people").spent.divergence == budget.spent
        assert ledger.balance("people").spent.divergence == budget.spent
        assert ledger.balance("people").spent.epsilon == budget.epsilon_spent


@settings(max_examples=20)
@given(st.lists(events, max_size=6).flatmap(lambda chosen: st.tuples(st.just(chosen), st.permutations(chosen))))
def test_the_order_of_charges_does_not_matter_to_the_sum(orders: tuple[list[Event], list[Event]]) -> None:
    sums = []
    for chosen in orders:
        with opened(epsilon=200.0, delta=1e-2, failure=9e-3) as ledger:
            for event in chosen:
                ledger.reserve("people", claim(event))
            sums.append(ledger.balance("people").spent)
    assert sums[0] == sums[1]


@given(strategies.events)
def test_any_event_is_charged_or_refused(event: Event) -> None:
    """Amounts are whole, never negative, and what the database is asked to add always fits 64 bits."""
    budget = Filter(1.0, 1e-6, failure=5e-7)
    try:
        amount = cost(budget, [event])
    except DiscreetError:
        return
    exact = budget.cost(event)
    assert amount.divergence == exact[0] >= 0
    assert amount.epsilon == budget.pure_cost(event) >= 0
    assert amount.failure * FINER >= exact[1] >= 0
    assert max(limits(budget)) <= MOST < 2**62
    assert cost(budget, [event] * 3).epsilon <= UNBOUNDED


@given(st.floats(1e-3, 4000), st.floats(1e-12, 0.5), st.floats(0, 0.99))
def test_limits_are_never_rounded_up(epsilon: float, delta: float, part: float) -> None:
    try:
        budget = Filter(epsilon, delta, failure=part * delta)
    except InvalidValue:
        return
    limit = limits(budget)
    assert (limit.divergence, limit.epsilon) == (budget.limit, budget.epsilon_limit)
    assert 0 <= budget.failure_limit - limit.failure * FINER < FINER
    assert Amount.from_json(limit.to_json()) == limit


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_what_is_kept_comes_back(document: Any) -> None:
    assert kept(document) == document
    assert canonical(kept(document)) == canonical(document)


@given(st.dictionaries(st.integers(), st.integers(), min_size=1))
def test_members_without_names_are_refused(document: dict[int, int]) -> None:
    with pytest.raises(InvalidValue, match="The ledger keeps JSON"):
        kept([document])


@given(strategies.claims, st.text(min_size=1).filter(lambda text: not any("\ud800" <= letter <= "\udfff" for letter in text)))
def test_the_key_of_a_question_is_its_content(asked: Claim, key: str) -> None:
    """Written by hand for speed, so compared with the slow and obvious way."""
    claims = [asked.to_json()]
    assert _key(key, canonical(claims)) == question_key({"key": key, "claims": claims})


def can_be_a_name(text: str) -> bool:
    try:
        return alike(new_name("source", text), "people") is (text == "people")
    except InvalidValue:
        return False


@settings(max_examples=20)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0@"), min_size=1).filter(can_be_a_name))
def test_entries_are_hashed_as_their_export_says(source: str) -> None:
    """Any name and any answer: the chain holds, and the line without its hash hashes to it."""
    with opened() as ledger:
        if source != "people":
            ledger.open(source, unit=record(), epsilon=1.0, delta=1e-6)
        with (charge := ledger.reserve(source, claim(Gaussian(50.0)), key=source)):
            charge.settle(answer=[source])
        ledger.verify()
        for line in ledger.export():
            document = json.loads(line)
            mark = document.pop("hash")
            assert hashlib.sha256(canonical(document).encode()).hexdigest() == mark


payers = st.sampled_from(["default", "ann", "bob"])


@settings(max_examples=40)
@given(budgets, st.lists(st.tuples(events, payers), max_size=8), st.sampled_from([0.1, 0.5, 0.9]))
def test_what_is_left_of_a_source_is_the_most_that_one_account_may_take(
    terms: tuple[float, float], chosen: list[tuple[Event, str]], part: float
) -> None:
    with opened(epsilon=terms[0], delta=terms[1], failure=None) as ledger:
        ledger.share("people", "ann", part, by="owner")
        ledger.share("people", "bob", (1 - part) / 2, by="owner")
        for event, payer in chosen:
            with suppress(BudgetExceeded):
                ledger.reserve("people", claim(event), account=payer)
        left, each = ledger.left("people"), {name: ledger.left("people", name) for name in ledger.accounts("people")}
        assert left == max(each.values()) == ledger.balance("people").epsilon_left
        for name in each:
            with pytest.raises(BudgetExceeded):
                ledger.reserve("people", claim(Pure(left * (1 + 1e-6) + 2e-9)), account=name)
        if left:
            ledger.reserve("people", claim(Pure(left)), account=max(each, key=lambda name: each[name]))
