"""Every engine keeps the same promises: crowds never overspend, a kill loses nothing, a question is answered once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conform.ledgers import ENGINES, Workers
from discreet import Ledger, record
from discreet.accounting import Gaussian, Pure
from discreet.core import Claim, Game
from discreet.errors import BudgetExceeded, InvalidValue, LedgerError
from discreet.ledger import Amount, Charge, chain, sqlite
from discreet.ledger.charge import mark_started

CLAIM = Claim(game=Game(record(), {"answers"}), event=Gaussian(50.0))
CROWD, EACH = 16, 200
KILLS, AT_ONCE = 200, 8

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the workers are forked")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "sqlite without file locks":
        monkeypatch.setattr(sqlite, "fcntl", None)
    return str(request.param)


@pytest.fixture
def empty(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A place where no ledger is yet."""
    return request.getfixturevalue("postgres_url") if engine == "postgres" else str(tmp_path / "ledger.db")


@pytest.fixture
def place(empty: str) -> str:
    with Ledger(empty) as ledger:
        ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6)
    return empty


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    with Workers(tmp_path) as made:
        yield made


def reserved(ledger: Ledger) -> list[Amount]:
    return [Amount.from_json(entry.body["amount"]) for entry in ledger.history() if entry.kind == "reserve"]


def test_a_crowd_takes_exactly_what_there_is(engine: str, place: str, workers: Workers) -> None:
    noise, each = 100.0, EACH if engine in ("sqlite", "postgres") else EACH // 4  # a part of the crowd is refused
    if each < EACH:
        noise /= 2
    with Ledger(place) as ledger:
        cost = ledger.reserve("people", Claim(game=CLAIM.game, event=Gaussian(noise))).amount.divergence
        fit = ledger.balance("people").limit.divergence // cost
    assert CROWD * each // 10 < fit < CROWD * each
    crowd = [workers.start(place, engine, times=each, noise=noise) for _ in range(CROWD)]
    assert [workers.wait(process) for process in crowd] == [0] * CROWD
    told = workers.told()
    with Ledger(place) as ledger:
        ledger.verify()
        assert len(reserved(ledger)) == fit
        assert ledger.balance("people").spent.divergence == fit * cost
    assert sum(words[0] == "reserved" for words in told) == fit - 1
    assert sum(words[0] == "refused" for words in told) == CROWD * each - (fit - 1)


def test_three_thirds_fit_and_no_more(engine: str, place: str) -> None:
    """By the plain sum of epsilons, though the divergences pass their limit; and accounts stay within the source by it."""
    with Ledger(place) as ledger:
        ledger.open("visits", unit=record(), epsilon=1.5, delta=1e-6)
        half = Claim(game=CLAIM.game, event=Pure(0.5))
        ledger.share("visits", "ann", 0.5, by="owner")
        for account in (None, "ann"):
            ledger.reserve("visits", half, account=account)
        with pytest.raises(BudgetExceeded, match=r"visits \(account ann\) has about epsilon 0.25 left of its 50 % of 1.5"):
            ledger.reserve("visits", half, account="ann")
        for account in (None, "ann"):
            ledger.reserve("visits", Claim(game=CLAIM.game, event=Pure(0.25)), account=account)
        found = ledger.balance("visits")
        assert found.spent.divergence > found.limit.divergence
        assert found.spent.epsilon == found.limit.epsilon
        for event in (Pure(1e-9), Gaussian(1e6)):
            with pytest.raises(BudgetExceeded, match=r"visits .*has about epsilon 0 left"):
                ledger.reserve("visits", Claim(game=CLAIM.game, event=event))
        ledger.raise_budget("visits", epsilon=2.0, delta=1e-6, by="owner", reason="more")
        ledger.reserve("visits", half)
        ledger.verify()


def test_a_kill_loses_nothing_and_counts_nothing_twice(engine: str, place: str, workers: Workers) -> None:
    """Two hundred processes, eight at a time, each killed at a random moment of its work."""
    chance = random.Random(7)
    running = [workers.start(place, engine, times=10**9, noise=5000.0) for _ in range(AT_ONCE)]
    started = AT_ONCE
    while running:
        workers.go_on(chance.randrange(6))
        time.sleep(chance.random() * 0.005)
        victim = running.pop(chance.randrange(len(running)))
        os.kill(victim, signal.SIGKILL)
        assert workers.wait(victim) == -signal.SIGKILL
        if started < KILLS:
            running.append(workers.start(place, engine, times=10**9, noise=5000.0))
            started += 1
    told = [words[1] for words in workers.told() if words[0] == "reserved"]
    assert len(set(told)) == len(told) > KILLS // 2  # no two processes were given the same entry
    with Ledger(place) as ledger:
        ledger.verify()
        entries = [entry for entry in ledger.history() if entry.kind == "reserve"]
        assert set(told) <= {entry.id for entry in entries}  # what was told is there
        assert len(entries) <= len(told) + KILLS  # and each kill spent at most one that was not told yet
        assert sum(amount.divergence for amount in reserved(ledger)) == ledger.balance("people").spent.divergence
        assert not ledger.reserve("people", CLAIM).repeated  # and the next one is served


def test_a_crowd_with_one_question_agrees_on_its_answer(engine: str, place: str, workers: Workers) -> None:
    crowd = [workers.start(place, engine, times=10, noise=5000.0, key="how many?") for _ in range(4)]
    assert [workers.wait(process) for process in crowd] == [0] * 4
    repeated = {words[1] for words in workers.told() if words[0] == "reserved" and words[2] == "1"}
    assert len(repeated) == 1
    with Ledger(place) as ledger:
        ledger.verify()
        assert len(reserved(ledger)) <= 4  # at worst each of the four asked before the first was settled
        again = ledger.reserve("people", Claim(game=CLAIM.game, event=Gaussian(5000.0)), key="how many?")
        assert {again.answer} == {again.id} == repeated


def test_many_open_a_new_ledger_at_once(engine: str, empty: str) -> None:
    def one(_: int) -> int:
        with Ledger(empty) as ledger:
            ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6)
            return ledger.reserve("people", CLAIM).amount.divergence

    with ThreadPoolExecutor(8) as pool:
        amounts = list(pool.map(one, range(16)))
    with Ledger(empty) as ledger:
        ledger.verify()
        assert ledger.balance("people").spent.divergence == sum(amounts)
        assert len(ledger.history()) == 17


def test_threads_share_one_ledger(engine: str, place: str) -> None:
    with Ledger(place) as ledger, ThreadPoolExecutor(8) as pool:
        amounts = [charge.amount.divergence for charge in pool.map(lambda _: ledger.reserve("people", CLAIM), range(40))]
        assert ledger.balance("people").spent.divergence == sum(amounts)
        ledger.verify()


def test_one_life_of_a_budget(engine: str, place: str) -> None:
    """Every kind of entry, and every sum after it."""
    with Ledger(place) as ledger:
        ledger.share("people", "ann", 0.5, by="owner")
        with (charge := ledger.reserve("people", CLAIM, key="q")):
            charge.settle(answer={"count": [1, 2.5, "é", None]})
        assert ledger.reserve("people", CLAIM, key="q").answer == {"count": [1, 2.5, "é", None]}
        ledger.reserve("people", CLAIM, account="ann").cancel("did_not_run")
        with pytest.raises(RuntimeError), ledger.reserve("people", CLAIM, account="ann"):
            raise RuntimeError
        with pytest.raises(BudgetExceeded, match="Add noise, or ask"):
            ledger.reserve("people", Claim(game=CLAIM.game, event=Gaussian(0.1)))
        ledger.raise_budget("people", epsilon=1.5, delta=1e-6, by="owner", reason="more")
        ledger.open("visits", unit=record(), epsilon=1.0, delta=1e-6, by_period=True)
        ledger.renew("visits", period="2026-11", by="owner", reason="new visits")
        ledger.reserve("visits@2026-11", CLAIM)
        ledger.open("a", unit=record(), epsilon=1.0, delta=1e-6, fingerprint="f")
        with pytest.raises(InvalidValue, match="already, under the name"):
            ledger.open("b", unit=record(), epsilon=1.0, delta=1e-6, fingerprint="f")
        assert ledger.balance("people").spent.divergence == 2 * charge.amount.divergence
        assert ledger.balance("people", "ann").spent == charge.amount
        assert ledger.sources() == ["a", "people", "visits", "visits@2026-11"]
        assert ledger.accounts("people") == ["ann", "default"]
        noted = ledger.verify()
        kinds = [entry.kind for entry in ledger.history()]
    with Ledger(place) as ledger:
        assert ledger.verify(noted) == noted
        assert kinds == [
            "open", "share", "reserve", "settle", "reserve", "cancel", "reserve", "settle", "refuse", "raise", "open", "renew",
            "reserve", "open",
        ]  # fmt: skip


def cancel_behind_our_back(ledger: Ledger, charge: Charge) -> None:
    """An entry that no charge would write: the database has the last word."""
    ledger._store.write(
        lambda book: chain.append(book, "cancel", "people", {"reason": "did_not_run"}, charge._mark.number)
    )  # fmt: skip


def test_a_reservation_ends_once_even_behind_our_back(engine: str, place: str) -> None:
    with Ledger(place) as ledger:
        charge = ledger.reserve("people", CLAIM)
        charge.settle()
        charge._settled = False
        spent = ledger.spent("people")
        with pytest.raises(InvalidValue, match="was settled, so nothing can be given back"):
            charge.cancel("did_not_run")
        running = ledger.reserve("people", CLAIM)
        running.started()
        for ended in (charge, running):
            with pytest.raises(LedgerError, match="refused a change that would break it"):
                cancel_behind_our_back(ledger, ended)
        for another in (charge._mark, ledger.reserve("people", CLAIM)._mark._replace(number=1)):
            with pytest.raises(LedgerError, match="refused a change that would break it"):
                ledger._store.write(lambda book, mark=another: mark_started(book, mark))
        assert ledger.spent("people") > spent
        ledger.verify()


def test_a_history_is_read_in_pages(engine: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from discreet.ledger import chain

    monkeypatch.setattr(chain, "PAGE", 3)
    with Ledger(place) as ledger:
        ledger.open("others", unit=record(), epsilon=1.0, delta=1e-6)
        for turn in range(10):
            ledger.reserve("people" if turn % 2 else "others", CLAIM)
        history = ledger.history()
        ledger.reserve("people", CLAIM)  # later than the history that was asked for
        assert [entry.number for entry in history] == list(range(1, 13))
        assert (len(history), history[0].kind, history[-1].number, len(history[2:5])) == (12, "open", 12, 3)
        mine = ledger.history("people")
        assert [entry.number for entry in mine] == [1, 4, 6, 8, 10, 12, 13]
        assert (len(mine), mine[1].number, mine[-2].number) == (7, 4, 12)
        with pytest.raises(IndexError):
            history[12]
        assert len(list(ledger.export())) == 13
        ledger.verify()


def test_a_closed_ledger_says_so(engine: str, place: str) -> None:
    with Ledger(place) as ledger:
        ledger.reserve("people", CLAIM)
    with pytest.raises(LedgerError, match="was closed"):
        ledger.spent("people")


def test_a_fork_must_open_its_own(engine: str, place: str) -> None:
    with Ledger(place) as ledger:
        child = os.fork()
        if child == 0:
            try:
                ledger.spent("people")
            except LedgerError as error:
                os._exit(7 if "before a fork" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        ledger.reserve("people", CLAIM)  # and the parent goes on
