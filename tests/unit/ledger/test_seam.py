"""The one way to make a release: what is claimed is reserved before the data is touched, whatever happens afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from discreet import Ledger, record
from discreet.core import Claim, Game, Pure
from discreet.errors import BudgetExceeded, InvalidValue
from discreet.ledger import Replay, release
from discreet.noise.source import seeded_for_tests


@dataclass
class Watched:
    """A mechanism that notes when it ran, and what the ledger said at that moment."""

    ledger: Ledger | None = None
    epsilon: float = 0.4
    failure: Exception | None = None
    spent: list[float] = field(default_factory=list)

    def claims(self) -> tuple[Claim, ...]:
        return (Claim(game=Game(record(), {"answers"}), event=Pure(self.epsilon)),)

    def run(self, data: Any) -> Any:
        self.spent.append(0.0 if self.ledger is None else self.ledger.spent("people"))
        if self.failure is not None:
            raise self.failure
        return data


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "ledger.db") as opened:
        opened.open("people", unit=record(), epsilon=1.0, delta=1e-6)
        yield opened


def test_the_charge_comes_before_the_run(ledger):
    mechanism = Watched(ledger)
    made = release(mechanism, 7, source="people", ledger=ledger, facts={"title": "a number"})
    assert mechanism.spent == [pytest.approx(0.4)]
    assert (made.value, made.claims, made.facts["title"]) == (7, mechanism.claims(), "a number")
    assert [entry.kind for entry in ledger.history("people")] == ["open", "reserve", "settle"]
    assert made.entry == ledger.history("people")[1].id
    assert ledger.payment(made).sound


def test_what_fails_inside_stays_spent(ledger):
    with pytest.raises(ZeroDivisionError):
        release(Watched(ledger, failure=ZeroDivisionError()), 7, source="people", ledger=ledger)
    assert ledger.spent("people") == pytest.approx(0.4)


def test_what_does_not_fit_never_runs(ledger):
    mechanism = Watched(ledger, epsilon=1.5)
    with pytest.raises(BudgetExceeded):
        release(mechanism, 7, source="people", ledger=ledger)
    assert mechanism.spent == []
    assert ledger.spent("people") == 0


def test_an_identical_question_is_answered_from_the_ledger(ledger):
    mechanism = Watched(ledger)
    first = release(mechanism, 7, source="people", ledger=ledger, replay=Replay("q", str, int))
    again = release(mechanism, 8, source="people", ledger=ledger, replay=Replay("q", str, int))
    other = release(mechanism, 8, source="people", ledger=ledger, replay=Replay("r", str, int))
    assert (first.value, again.value, other.value) == (7, 7, 8)
    assert first.entry == again.entry != other.entry
    assert len(mechanism.spent) == 2
    assert ledger.spent("people") == pytest.approx(0.8)


def test_without_a_ledger_nothing_is_charged():
    made = release(Watched(), 7, source="people")
    assert (made.value, made.entry) == (7, None)


def test_what_is_refused_before_anything_runs(ledger):
    mechanism = Watched(ledger)
    with pytest.raises(InvalidValue, match=r"must be a discreet\.Ledger"):
        release(mechanism, 7, source="people", ledger=7)
    with pytest.raises(InvalidValue, match=r"There is no ledger at no-such\.db"):
        release(mechanism, 7, source="people", ledger="no-such.db")
    with seeded_for_tests(b"seed"), pytest.raises(InvalidValue, match="seeded"):
        release(mechanism, 7, source="people", ledger=ledger)
    with pytest.raises(InvalidValue, match="source"):
        release(mechanism, 7, source="", ledger=ledger)
    assert mechanism.spent == []
    assert ledger.spent("people") == 0
