"""The same question is one charge: priced as free when it is free, asked at once by many, and after a crash."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from discreet.core import record
from discreet.errors import EngineFailed
from discreet.ledger import Ledger
from discreet.query import Database, connect

COUNT = "SELECT COUNT(*) AS n FROM people"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("people", unit=record(), epsilon=4.0, delta=1e-6)
        with connect({"people": pa.table({"age": list(range(500))})}, unit=record(), ledger=ledger, source="people") as made:
            yield made


def kinds(db: Database) -> list[str]:
    assert db.ledger is not None
    return [entry.kind for entry in db.ledger.history("people")][1:]


def test_a_question_is_priced_as_free_when_it_is(db: Database) -> None:
    before = db.explain(COUNT, epsilon=0.5)
    assert (before.free, "costs      epsilon 0.5" in str(before)) == (False, True)
    db.sql(COUNT, epsilon=0.5)
    after = db.explain(COUNT, epsilon=0.5)
    assert (after.free, after.to_json()["free"], "costs      nothing" in str(after)) == (True, True, True)
    assert not db.explain(COUNT, epsilon=0.4).free
    assert kinds(db) == ["reserve", "settle"]


def test_ten_who_ask_the_same_at_once_are_one_charge_and_one_answer(db: Database) -> None:
    answers, start = [], threading.Barrier(10)

    def ask() -> None:
        start.wait()
        made = db.sql(COUNT, epsilon=0.1)
        answers.append((made.entry, str(made.value.to_pydict())))

    threads = [threading.Thread(target=ask) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(answers), len(set(answers))) == (10, 1)
    assert kinds(db) == ["reserve", "settle"]


FIVE = """
import json, sys, threading
from discreet.core import record
from discreet.ledger import Ledger
from discreet.query import connect
with Ledger("ledger.db") as ledger, connect("people.parquet", unit=record(), ledger=ledger, source="people") as db:
    print("ready", flush=True)
    sys.stdin.readline()
    found = []
    def ask():
        made = db.sql(sys.argv[1], epsilon=0.1)
        found.append([made.entry, str(made.value.to_pydict())])
    threads = [threading.Thread(target=ask) for _ in range(5)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    print(json.dumps(found))
"""


def test_two_processes_pay_once_each_at_most_and_the_first_answer_is_kept(tmp_path: Path) -> None:
    """As the guide says: threads wait for each other; another process that asks meanwhile pays for an answer of its own.

    The first that is settled is kept: who waited in either process has it, and who asks later.
    """
    parquet.write_table(pa.table({"age": list(range(500))}), tmp_path / "people.parquet")
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("people", unit=record(), epsilon=4.0, delta=1e-6)
        asked = [
            subprocess.Popen([sys.executable, "-c", FIVE, "SELECT COUNT(*) AS n FROM people"], cwd=tmp_path, text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)
        ]  # fmt: skip
        for each in asked:
            assert each.stdout is not None
            assert each.stdout.readline() == "ready\n"
        for each in asked:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
        told = [json.loads(each.communicate(timeout=120)[0]) for each in asked]
        entries = list(ledger.history("people"))
        charges = {entry.id for entry in entries if entry.kind == "reserve"}
        first = next(entry for entry in entries if entry.kind == "settle")
        with connect(tmp_path / "people.parquet", unit=record(), ledger=ledger, source="people") as db:
            again = db.sql("SELECT COUNT(*) AS n FROM people", epsilon=0.1)
    assert [len(each) for each in told] == [5, 5]
    kept = [again.entry, str(again.value.to_pydict())]
    assert all(each.count(kept) >= 4 for each in told), told  # all but the one that paid
    assert {entry for each in told for entry, _ in each} == charges
    assert len(charges) in (1, 2)
    assert again.entry in charges
    assert next(entry.number for entry in entries if entry.id == again.entry) == first.about


def test_other_questions_do_not_wait(db: Database) -> None:
    """Two questions that each wait for the other to run would never end if one held the other back."""
    both, run = threading.Barrier(2, timeout=60), db.engine.aggregate

    def together(request: object) -> object:
        both.wait()
        return run(request)  # type: ignore[arg-type]

    db.engine.aggregate = together  # type: ignore[method-assign, assignment]
    done: list[str | None] = []
    questions = [COUNT, "SELECT COUNT(*) AS m FROM people WHERE age > 40"]
    threads = [threading.Thread(target=lambda sql=sql: done.append(db.sql(sql, epsilon=0.1).entry)) for sql in questions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(done)) == 2


def test_what_failed_stays_paid_for_and_asking_again_is_a_new_charge(db: Database) -> None:
    run = db.engine.aggregate

    def broken(request: object) -> object:
        raise EngineFailed("The engine stopped.")

    db.engine.aggregate = broken  # type: ignore[method-assign, assignment]
    with pytest.raises(EngineFailed):
        db.sql(COUNT, epsilon=0.5)
    db.engine.aggregate = run  # type: ignore[method-assign]
    assert not db.explain(COUNT, epsilon=0.5).free
    first = db.sql(COUNT, epsilon=0.5)
    assert kinds(db).count("reserve") == 2
    assert db.sql(COUNT, epsilon=0.5).entry == first.entry
    assert kinds(db).count("reserve") == 2


def test_an_answer_follows_the_data(tmp_path: Path) -> None:
    """Tables in memory belong to one connection, files to their size and time: any other is another question."""
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("people", unit=record(), epsilon=4.0, delta=1e-6)

        def ask(data: object) -> str | None:
            with connect(data, unit=record(), ledger=ledger, source="people") as db:
                return db.sql(COUNT, epsilon=0.25).entry

        in_memory = [ask({"people": pa.table({"age": list(range(rows))})}) for rows in (500, 90)]
        assert len(set(in_memory)) == 2
        file = tmp_path / "people.parquet"
        parquet.write_table(pa.table({"age": list(range(500))}), file)
        before = [ask(str(file)), ask(str(file))]
        parquet.write_table(pa.table({"age": list(range(90))}), file)
        assert before[0] == before[1] != ask(str(file))
