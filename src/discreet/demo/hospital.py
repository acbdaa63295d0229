"""A synthetic hospital: its patients, its budget, and questions in SQL of which the last exceeds the budget."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import record
from discreet.errors import BudgetExceeded

if TYPE_CHECKING:
    from discreet.core import Release
    from discreet.ledger import Ledger

SOURCE = "made-up-hospital"
SEED = 2026  # of the synthetic table: nobody in it needs protection
PATIENTS, LABS = 4_000, 30
DIAGNOSES = ("asthma", "diabetes", "fracture", "infection", "migraine", "stroke")
WARDS = ("A", "B", "C")
BUDGET, DELTA = 4.2, 1e-6
EPSILON = 0.5  # of each question
LEVEL = 0.01  # the false-positive rate at which attacks are compared; 4,000 non-members resolve it
QUESTIONS = (
    ("Number of patients", "How many patients are there?", "SELECT COUNT(*) AS patients FROM patients"),
    ("Length of stay by ward", "How long do they stay, by ward?", "SELECT ward, AVG(days) AS days FROM patients GROUP BY ward"),
    (
        "Patients over 65 by ward",
        "How many of them are over 65, by ward?",
        "SELECT ward, COUNT(*) AS n FROM patients WHERE age > 65 GROUP BY ward",
    ),
    ("Long stays", "And how many stayed a week or more?", "SELECT COUNT(*) AS long FROM patients WHERE days >= 7"),
)
SCHEMA = {"ward": {"values": list(WARDS)}, "days": {"bounds": [1, 30], "required": True}, "age": {"bounds": [0, 100]}}


@dataclass(frozen=True)
class Cohort:
    """Rows about people: age, ward, days in hospital, laboratory values, and the diagnosis as a number."""

    age: NDArray[np.int64]
    ward: NDArray[np.str_]
    days: NDArray[np.int64]
    labs: NDArray[np.float32]
    diagnosis: NDArray[np.int64]


def cohorts() -> tuple[Cohort, Cohort]:
    """The patients, and as many people from the same distribution who were never patients."""
    draw = np.random.default_rng(SEED)
    count = 2 * PATIENTS
    typical = draw.normal(size=(len(DIAGNOSES), LABS))
    typical *= 2.2 / np.linalg.norm(typical, axis=1, keepdims=True)  # so that about three in four are classified right
    diagnosis = draw.integers(0, len(DIAGNOSES), count)
    labs = (typical[diagnosis] + draw.normal(size=(count, LABS))).astype(np.float32)
    age = np.clip(draw.normal(52, 20, count), 0, 100).astype(np.int64)
    ward = draw.choice(WARDS, count, p=[0.5, 0.3, 0.2])
    days = 1 + draw.poisson(3, count)
    halves = (slice(0, PATIENTS), slice(PATIENTS, count))
    patients, strangers = (Cohort(age[rows], ward[rows], days[rows], labs[rows], diagnosis[rows]) for rows in halves)
    return patients, strangers


def open_budget(ledger: Ledger) -> None:
    """One patient is one row, so the unit is a record."""
    ledger.open(SOURCE, unit=record(), epsilon=BUDGET, delta=DELTA)


@dataclass(frozen=True)
class Answered:
    """One question: its answer as text, or the reason of its refusal, and the epsilon left after it."""

    text: str
    sql: str
    answer: str
    refusal: str | None
    left: float


def ask(patients: Cohort, ledger: Ledger) -> tuple[list[Answered], list[Release[Any]]]:
    """Ask every question in turn; each answer is a release."""
    import pyarrow as pa

    from discreet.query import connect

    table = pa.table({"age": patients.age, "ward": patients.ward, "days": patients.days})
    questions, answers = [], []
    with connect({"patients": table}, unit=record(), schema={"patients": SCHEMA}, ledger=ledger, source=SOURCE) as db:
        for title, text, sql in QUESTIONS:
            try:
                answer = db.sql(sql, epsilon=EPSILON)
            except BudgetExceeded as error:
                questions.append(Answered(text, sql, "", str(error), ledger.left(SOURCE)))
            else:
                questions.append(Answered(text, sql, shown(answer.value), None, ledger.left(SOURCE)))
                plain = answer.map(lambda table: table.to_pylist())  # rows that a document can hold
                answers.append(replace(plain, facts={**plain.facts, "title": title}))
    return questions, answers


def shown(table: Any) -> str:
    """An answer in one line: each number with its interval.

    >>> import pyarrow as pa
    >>> shown(pa.table({"ward": ["A"], "n": [4.2], "n_low": [3.0], "n_high": [5.0]}))
    'A 4.2 (3 to 5)'
    """
    lines = []
    for row in table.to_pylist():
        names = [name for name in row if not name.endswith(("_low", "_high"))]
        lines.append(" ".join(_cell(row[name], row.get(f"{name}_low"), row.get(f"{name}_high")) for name in names))
    return ", ".join(lines)


def _cell(value: Any, low: Any, high: Any) -> str:
    return f"{_number(value)} ({_number(low)} to {_number(high)})" if isinstance(value, float) else str(value)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value.is_integer() else f"{value:,.1f}"
