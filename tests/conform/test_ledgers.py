"""Every engine keeps the same promises: crowds never overspend, a kill loses nothing, a question is answered once."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conform.ledgers import ENGINES, go, worker
from discreet import Ledger, record
from discreet.accounting import Gaussian
from discreet.core import Claim, Game
from discreet.ledger import Amount, sqlite

CLAIM = Claim(game=Game(record(), {"answers"}), event=Gaussian(50.0))


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "sqlite without file locks":
        monkeypatch.setattr(sqlite, "fcntl", None)
    return str(request.param)


@pytest.fixture
def path(engine: str, tmp_path: Path) -> Path:
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6)
    return tmp_path / "ledger.db"


def reserved(ledger: Ledger) -> list[Amount]:
    return [Amount.from_json(entry.body["amount"]) for entry in ledger.history() if entry.kind == "reserve"]


def test_a_crowd_takes_exactly_what_there_is(engine: str, path: Path) -> None:
    with Ledger(path) as ledger:
        cost = ledger.reserve("people", CLAIM).amount.divergence
        fit = ledger.balance("people").limit.divergence // cost
    assert 10 < fit < 8 * 50
    crowd = [worker(path, engine, 50, 50.0) for _ in range(8)]
    for process in crowd:
        go(process)
    told = [line for process in crowd for line in process.communicate(timeout=60)[0].splitlines()]
    assert [process.returncode for process in crowd] == [0] * 8
    with Ledger(path) as ledger:
        ledger.verify()
        assert len(reserved(ledger)) == fit
        assert ledger.balance("people").spent.divergence == fit * cost
    assert sum(line.startswith("reserved") for line in told) == fit - 1
    assert sum(line == "refused" for line in told) == 8 * 50 - (fit - 1)


def test_a_kill_loses_nothing_and_counts_nothing_twice(engine: str, path: Path) -> None:
    """Twenty processes, in pairs, each killed at a random moment."""
    chance, told = random.Random(7), []
    for _ in range(10):
        pair = [worker(path, engine, 100_000, 5000.0) for _ in range(2)]
        for process in pair:
            go(process)
        for process in pair:
            time.sleep(chance.random() * 0.05)
            assert process.poll() is None
            process.kill()
            lines = [line.split() for line in process.communicate()[0].splitlines()]
            told += [words[1] for words in lines if words[0] == "reserved" and len(words) == 3]  # the last may be cut short
    assert len(set(told)) == len(told) > 20  # no two processes were given the same entry
    with Ledger(path) as ledger:
        ledger.verify()
        entries = [entry for entry in ledger.history() if entry.kind == "reserve"]
        assert set(told) <= {entry.id for entry in entries}  # what was told is there
        assert len(entries) <= len(told) + 20  # and each kill spent at most one that was not told yet
        assert sum(amount.divergence for amount in reserved(ledger)) == ledger.balance("people").spent.divergence
        assert not ledger.reserve("people", CLAIM).repeated  # and the next one is served


def test_a_crowd_with_one_question_agrees_on_its_answer(engine: str, path: Path) -> None:
    crowd = [worker(path, engine, 10, 5000.0, key="how many?") for _ in range(4)]
    for process in crowd:
        go(process)
    told = [line.split() for process in crowd for line in process.communicate(timeout=60)[0].splitlines()]
    repeated = {words[1] for words in told if words[0] == "reserved" and words[2] == "1"}
    assert len(repeated) == 1
    with Ledger(path) as ledger:
        ledger.verify()
        assert len(reserved(ledger)) <= 4  # at worst each of the four asked before the first was settled
        again = ledger.reserve("people", Claim(game=CLAIM.game, event=Gaussian(5000.0)), key="how many?")
        assert {again.answer} == {again.id} == repeated


def test_many_open_a_new_ledger_at_once(engine: str, tmp_path: Path) -> None:
    def one(_: int) -> int:
        with Ledger(tmp_path / "new.db") as ledger:
            ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6)
            return ledger.reserve("people", CLAIM).amount.divergence

    with ThreadPoolExecutor(8) as pool:
        amounts = list(pool.map(one, range(16)))
    with Ledger(tmp_path / "new.db") as ledger:
        ledger.verify()
        assert ledger.balance("people").spent.divergence == sum(amounts)
        assert len(ledger.history()) == 17


def test_threads_share_one_ledger(engine: str, path: Path) -> None:
    with Ledger(path) as ledger, ThreadPoolExecutor(8) as pool:
        amounts = [charge.amount.divergence for charge in pool.map(lambda _: ledger.reserve("people", CLAIM), range(40))]
        assert ledger.balance("people").spent.divergence == sum(amounts)
        ledger.verify()
