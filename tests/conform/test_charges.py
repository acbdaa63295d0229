"""A charge goes one way, whoever holds it: every interleaving of two holders, in every engine, against an obvious model.

Each step is one transaction, and the ledger runs transactions one after another, so the orders of the steps are all there is;
threads and processes that race check that the steps really are single transactions.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations, product
from pathlib import Path

import pytest

from conform.ledgers import ENGINES
from discreet import Ledger, record
from discreet.accounting import Gaussian
from discreet.core import Claim, Game
from discreet.errors import InvalidValue
from discreet.ledger import Amount, Charge, sqlite
from discreet.ledger.amount import NOTHING

CLAIM = Claim(game=Game(record(), {"answers"}), event=Gaussian(2000.0))
PROGRAMS = [("enter", "exit"), ("enter", "settle", "exit"), ("enter", "fail"), ("cancel",), ("settle",), ("enter", "cancel")]
TRIES = 40

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


@pytest.fixture(params=ENGINES)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "sqlite without file locks":
        monkeypatch.setattr(sqlite, "fcntl", None)
    place = request.getfixturevalue("postgres_url") if request.param == "postgres" else str(tmp_path / "ledger.db")
    with Ledger(place) as ledger:
        ledger.open("people", unit=record(), epsilon=50.0, delta=1e-6)
    return str(place)


def same(ledger: Ledger, charge: Charge) -> Charge:
    """The same charge in other hands, which lie about what it took."""
    return Charge(ledger._store, charge._mark, Amount(10**15, 10**9, 0))


def interleavings(first: tuple[str, ...], second: tuple[str, ...]) -> Iterator[list[tuple[int, str]]]:
    total = len(first) + len(second)
    for places in combinations(range(total), len(first)):
        steps = [iter(first), iter(second)]
        yield [(who := 0 if place in places else 1, next(steps[who])) for place in range(total)]


class Model:
    """What may happen to a charge, said in a few lines."""

    def __init__(self) -> None:
        self.state = "reserved"

    def allows(self, step: str) -> bool:
        before = self.state
        if step == "enter":
            self.state = "started" if before == "reserved" else before
            return before == "reserved"
        if step == "cancel":
            self.state = "cancelled" if before == "reserved" else before
            return before == "reserved"
        self.state = "settled" if before in ("reserved", "started") else before
        return before in ("reserved", "started") or step != "settle"  # leaving is always allowed


def take(charge: Charge, step: str) -> bool:
    """Whether the step was allowed."""
    try:
        if step == "enter":
            charge.__enter__()
        elif step == "exit":
            charge.__exit__(None, None, None)
        elif step == "fail":
            charge.__exit__(RuntimeError, RuntimeError(), None)
        elif step == "settle":
            charge.settle()
        else:
            charge.cancel("did_not_run")
    except InvalidValue:
        return False
    return True


@pytest.mark.parametrize("second", ["the same object", "another object", "another connection"])
def test_every_interleaving_of_two_holders_goes_one_way(place: str, second: str) -> None:
    with Ledger(place) as ledger, Ledger(place) as other:
        expected = list(NOTHING)
        for programs in product(PROGRAMS, repeat=2):
            for order in interleavings(*programs):
                charge = ledger.reserve("people", CLAIM)
                taken = charge.amount
                held = {"the same object": charge, "another object": same(ledger, charge)}.get(second) or same(other, charge)
                model, outside = Model(), set()
                for who, step in order:
                    if who in outside:  # whoever could not enter reads nothing, and has nothing to leave
                        continue
                    allowed = take((charge, held)[who], step)
                    assert allowed == model.allows(step), (order, who, step)
                    outside |= {who} if step == "enter" and not allowed else set()
                assert charge.state == model.state, order
                if model.state != "cancelled":
                    expected = [sum(pair) for pair in zip(expected, taken, strict=True)]
        assert list(ledger.balance("people").spent) == expected
        ledger.verify()


def test_threads_that_race_never_read_what_is_given_back(place: str) -> None:
    """Entering against cancelling, each in a thread of its own: exactly one of the two."""
    with Ledger(place) as ledger, Ledger(place) as other, ThreadPoolExecutor(2) as pool:
        for turn in range(TRIES):
            charge = ledger.reserve("people", CLAIM)
            held = charge if turn % 2 else same(other, charge)
            gate = threading.Barrier(2)

            def race(holder: Charge, step: str, gate: threading.Barrier = gate) -> bool:
                gate.wait()
                return take(holder, step)

            entered, cancelled = pool.map(race, (charge, held), ("enter", "cancel"))
            assert entered != cancelled
            assert charge.state == ("started" if entered else "cancelled")
        ledger.verify()


def test_a_cancellation_that_has_to_wait_gives_nothing_back_for_rows_that_are_read_meanwhile(place: str) -> None:
    """Somebody else writes while one thread cancels and another enters: whoever comes first, it is one of the two."""
    with Ledger(place) as ledger, ThreadPoolExecutor(2) as pool:
        for _ in range(5):
            charge = ledger.reserve("people", CLAIM)
            with ledger._store._lock:  # type: ignore[attr-defined]
                cancelled = pool.submit(take, charge, "cancel")
                time.sleep(0.002)  # it has looked at the charge by now, or will later: both must be fine
                entered = pool.submit(take, charge, "enter")
                time.sleep(0.002)
            assert entered.result() != cancelled.result()


def test_processes_that_race_never_read_what_is_given_back(place: str) -> None:
    with Ledger(place) as ledger:
        charges = [ledger.reserve("people", CLAIM) for _ in range(TRIES)]
        marks = [charge._mark for charge in charges]
    ready, go = os.pipe(), os.pipe()
    results = []
    for step in ("enter", "cancel"):
        answer = os.pipe()
        results.append((child := os.fork(), answer[0]))
        if child == 0:
            try:
                with Ledger(place) as own:
                    os.write(ready[1], b".")
                    os.read(go[0], 1)
                    won = [take(Charge(own._store, mark, NOTHING), step) for mark in marks]
                    os.write(answer[1], bytes(won))
            finally:
                os._exit(0)
    assert os.read(ready[0], 1) + os.read(ready[0], 1) == b".."
    os.write(go[1], b"..")
    entered, cancelled = ([bool(each) for each in os.read(answer, TRIES)] for _, answer in results)
    assert [os.waitpid(child, 0)[1] for child, _ in results] == [0, 0]
    assert [one != two for one, two in zip(entered, cancelled, strict=True)] == [True] * TRIES
    with Ledger(place) as ledger:
        amounts = [charge.amount.divergence for charge, won in zip(charges, entered, strict=True) if won]
        assert ledger.balance("people").spent.divergence == sum(amounts)
        ledger.verify()


def test_a_crash_after_the_start_has_spent_it(place: str) -> None:
    """A process that is gone inside its block: its charge stays started, for whoever opens the ledger next."""
    with Ledger(place) as ledger:
        charge = ledger.reserve("people", CLAIM)
        mark, spent = charge._mark, ledger.balance("people").spent
    child = os.fork()
    if child == 0:
        with Charge(Ledger(place)._store, mark, NOTHING):
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with Ledger(place) as ledger:
        left = Charge(ledger._store, mark, NOTHING)
        assert left.state == "started"
        for step in ("cancel", "enter"):
            assert not take(left, step)
        assert ledger.balance("people").spent == spent
        ledger.verify()


def test_a_reservation_of_an_older_version_counts_as_started(place: str) -> None:
    """Nothing noted then whether its block was entered: it may have been, so it cannot be cancelled."""
    postgres = place.startswith("postgresql")
    with Ledger(place) as ledger:
        ledger.reserve("people", CLAIM).cancel("did_not_run")
        ledger.reserve("people", CLAIM).settle()
        charge = ledger.reserve("people", CLAIM)
        back_to_the_first_version(ledger, postgres)
    with Ledger(place) as ledger:
        left = Charge(ledger._store, charge._mark, NOTHING)
        assert left.state == "started"
        assert not take(left, "cancel")
        assert ledger._store.read(lambda book: book.execute("SELECT count(*) FROM started").fetchone()[0]) == 1
        ledger.verify()


def back_to_the_first_version(ledger: Ledger, postgres: bool) -> None:
    """As a ledger looks that was written before starts were noted."""
    link = ledger._store._link  # type: ignore[attr-defined]
    link.execute(f"DROP TRIGGER started_is_never_cancelled{' ON discreet.entry' if postgres else ''}")
    link.execute("DROP TABLE started")
    if not postgres:
        link.execute(f"PRAGMA user_version = {len(sqlite.migrations('sqlite')) - 1}")
        return
    for name in ("start_is_never_changed", "start_comes_before_the_end", "started_is_never_cancelled"):
        link.execute(f"DROP FUNCTION discreet.{name}".encode())
    link.execute("UPDATE discreet.ledger_version SET version = version - 1")


def test_what_a_charge_says_of_itself_changes_nothing(place: str) -> None:
    with Ledger(place) as ledger:
        kept = ledger.reserve("people", CLAIM)
        spent = ledger.balance("people").spent
        charge = ledger.reserve("people", CLAIM)
        with pytest.raises(AttributeError):
            charge.amount = Amount(10**15, 10**9, 0)  # type: ignore[misc]
        charge._amount = Amount(10**15, 10**9, 0)
        charge.cancel("did_not_run")
        assert ledger.balance("people").spent == spent == kept.amount
        ledger.verify()
