"""Differencing against private SQL: the two questions about Rick, asked of a real database, with and without a ledger.

False alarms: the noise is fresh, and a verdict and an interval are made at a confidence of 1 - 1e-6 (2e-6).
"""

from __future__ import annotations

import pytest

import discreet
from discreet.attack import Differencing, guesses
from discreet.audit import Pair, audit, verdict
from discreet.core import Claim, NonPrivate, Repeat
from discreet.errors import BudgetExceeded

pytest.importorskip("duckdb")
pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("sqlglot")

PERSON = discreet.user("name", rows=1)
EPSILON = 0.5


def school(*names: str, **options):
    """A database of students who all earned an A."""
    table = pyarrow.table({"name": list(names), "grade": ["A"] * len(names)})
    return discreet.connect({"students": table}, unit=PERSON, **options)


def pair(name: str) -> tuple[str, str]:
    whole = "SELECT COUNT(*) AS n FROM students WHERE grade = 'A'"
    return whole, f"{whole} AND name <> '{name}'"


class Analyst:
    """`ask(sql)` as an analyst has it."""

    def __init__(self, database):
        self.database = database

    def release(self, question):
        return self.database.sql(question, epsilon=EPSILON)

    def __call__(self, question):
        return float(self.release(question).value["n"][0].as_py())


class School:
    """Two answers, which are worth twice the claim of one."""

    def claims(self):
        [one] = Analyst(school("Ann")).release(pair("Rick")[0]).claims
        return (Claim(game=one.game, event=Repeat(one.event, 2), assumptions=one.assumptions),)

    def run(self, data):
        return Analyst(data)


def test_private_sql_keeps_rick_within_its_claim():
    mechanism = School()
    worlds = Pair(school("Ann", "Bob", "Rick"), school("Ann", "Bob"), "Rick", seed=1)
    evidence = audit(mechanism, Differencing(pair), worlds, runs=150)
    assert not isinstance(mechanism.claims()[0].event.event, NonPrivate)
    assert verdict(mechanism.claims()[0], evidence, confidence=1 - 1e-6, delta=0.0).outcome in ("holds", "inconclusive")
    assert guesses(evidence, threshold=0.5, confidence=1 - 1e-6).low < 0.74


def test_asking_again_is_answered_from_the_ledger(tmp_path):
    with discreet.Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("school", unit=PERSON, epsilon=2.0, delta=1e-6)
        ask = Analyst(school("Ann", "Bob", "Rick", ledger=ledger, source="school"))
        once = Differencing(pair).score(ask, ["Rick"])
        spent = ledger.spent("school")
        assert Differencing(pair, times=20).score(ask, ["Rick"]) == pytest.approx(once)
        assert ledger.spent("school") == spent
        with pytest.raises(BudgetExceeded):
            [ask(f"SELECT COUNT(*) AS n FROM students WHERE name <> 'nobody {number}'") for number in range(200)]
