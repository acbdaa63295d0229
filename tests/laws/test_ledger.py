"""Laws of the ledger: what is spent is the sum of the entries, never above the limit, and what the filter says."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strategies
from discreet import Ledger, record
from discreet.accounting import Filter
from discreet.core import Approximate, Claim, Event, Game, Gaussian, Laplace, Poisson, Pure, Repeat
from discreet.errors import BudgetExceeded, DiscreetError, InvalidValue
from discreet.ledger import Amount, question_key
from discreet.ledger.budget import _FINER, MOST, cost, limits
from discreet.ledger.chain import canonical, kept
from discreet.ledger.charge import REASONS
from discreet.ledger.ledger import _key

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
            found = ledger.balance("people")
            assert all(0 <= spent <= limit for spent, limit in zip(found.spent, found.limit, strict=True))
        whole, ann, rest = (ledger.balance("people", name).spent for name in (None, "ann", "default"))
        assert whole == (sum(a.divergence for a in standing), sum(a.failure for a in standing))
        assert whole == (ann.divergence + rest.divergence, ann.failure + rest.failure)
        ledger.verify()


@settings(max_examples=30)
@given(st.lists(events, max_size=12))
def test_the_ledger_is_the_filter(chosen: list[Event]) -> None:
    """Divergences exactly; failures are rounded up to 1e-18, so the ledger never allows what the filter refuses.

    The filter also allows what fits by the plain sum of epsilons; the ledger does not count those.
    """
    budget = Filter(1.0, 1e-6, failure=5e-7)
    with opened() as ledger:
        for event in chosen:
            fits = budget.allows(event) and budget.spent + budget.cost(event)[0] <= budget.limit
            try:
                ledger.reserve("people", claim(event))
            except BudgetExceeded:
                fine = budget.failure_spent + budget.cost(event)[1] > budget.failure_limit - 20 * _FINER
                assert not fits or fine
            else:
                assert fits
                budget.spend(event)
            found = ledger.balance("people").spent
            assert found.divergence == budget.spent
            assert 0 <= found.failure * _FINER - budget.failure_spent <= len(chosen) * _FINER


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
        amount = cost(budget.cost, [event])
    except DiscreetError:
        return
    exact = budget.cost(event)
    assert amount.divergence == exact[0] >= 0
    assert amount.failure * _FINER >= exact[1] >= 0
    assert sum(limits(budget)) <= 2 * MOST < 2**63


@given(st.floats(1e-3, 4000), st.floats(1e-12, 0.5), st.floats(0, 0.99))
def test_limits_are_never_rounded_up(epsilon: float, delta: float, part: float) -> None:
    try:
        budget = Filter(epsilon, delta, failure=part * delta)
    except InvalidValue:
        return
    limit = limits(budget)
    assert limit.divergence == budget.limit
    assert 0 <= budget.failure_limit - limit.failure * _FINER < _FINER
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


@given(strategies.events, st.text(min_size=1).filter(lambda text: not any("\ud800" <= letter <= "\udfff" for letter in text)))
def test_the_key_of_a_question_is_its_content(event: Event, key: str) -> None:
    """Written by hand for speed, so compared with the slow and obvious way."""
    claims = [claim(event).to_json()]
    assert _key(key, canonical(claims)) == question_key({"key": key, "claims": claims})


@settings(max_examples=20)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0@"), min_size=1))
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
