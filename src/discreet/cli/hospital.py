"""A made-up hospital for the demo: three questions within a budget, a fourth refused, and an attack with and without noise."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PATIENTS, VISITS = 20_000, 60_000
QUESTIONS = (
    ("How many visits were there?", "SELECT COUNT(*) AS visits FROM visits"),
    ("How long do patients stay, by ward?", "SELECT ward, AVG(days) AS days FROM visits GROUP BY ward"),
    ("How old are they?", "SELECT QUANTILE(age, [0.25, 0.5, 0.75]) AS age FROM visits"),
    ("And how many stayed a week or more?", "SELECT COUNT(*) AS long FROM visits WHERE days >= 7"),
)
EPSILON = 0.5  # of each question
BUDGET = 1.5
SECRETS, COUNTS = 60, 240  # people whose secret bit is attacked, and counts over random halves of them
SPENT = 1.0  # epsilon of all those counts together


@dataclass(frozen=True)
class Asked:
    """One question: its answer as rows of text, or why it was refused, and the epsilon that was left after it."""

    text: str
    sql: str
    heads: list[str]
    rows: list[list[str]]
    refusal: str | None
    left: float


@dataclass(frozen=True)
class Attacked:
    """The share of secret bits that a reconstruction got right."""

    exact: float
    noisy: float
    most: float  # what the claim allows on average


def visits() -> Any:
    """The table; from a seed, since there is nobody in it to protect."""
    import numpy as np
    import pyarrow as pa

    draw = np.random.default_rng(2026)
    age = np.clip(draw.normal(52, 20, PATIENTS), 0, 100).astype(int)
    who = np.minimum(draw.geometric(1 / 8_000, VISITS), PATIENTS) - 1
    return pa.table({
        "patient_id": who, "age": age[who], "ward": draw.choice(["A", "B", "C"], VISITS, p=[0.5, 0.3, 0.2]),
        "days": 1 + draw.poisson(3, VISITS),
    })  # fmt: skip


def ask() -> list[Asked]:
    """The questions, one after another, from one budget; the last does not fit."""
    from discreet.core import user
    from discreet.errors import BudgetExceeded
    from discreet.ledger import Ledger
    from discreet.query import connect

    unit = user("patient_id", rows=4)
    known = {"ward": {"values": ["A", "B", "C"]}, "days": {"bounds": [1, 30], "required": True}, "age": {"bounds": [0, 100]}}
    asked = []
    with TemporaryDirectory() as folder, Ledger(Path(folder) / "ledger.db") as ledger:
        ledger.open("hospital", unit=unit, epsilon=BUDGET, delta=1e-6)
        with connect({"visits": visits()}, unit=unit, schema={"visits": known}, ledger=ledger, source="hospital") as db:
            for text, sql in QUESTIONS:
                try:
                    heads, rows = _shown(db.sql(sql, epsilon=EPSILON).value)
                    refusal = None
                except BudgetExceeded as error:
                    heads, rows, refusal = [], [], str(error)
                asked.append(Asked(text, sql, heads, rows, refusal, ledger.balance("hospital").epsilon_left))
    return asked


def _shown(table: Any) -> tuple[list[str], list[list[str]]]:
    names = [name for name in table.column_names if not name.endswith(("_low", "_high"))]
    rows = []
    for i in range(table.num_rows):
        row = []
        for name in names:
            value = table[name][i].as_py()
            if isinstance(value, float):
                row.append(f"{value:,.1f}  ({table[name + '_low'][i].as_py():,.1f} to {table[name + '_high'][i].as_py():,.1f})")
            else:
                row.append(str(value))
        rows.append(row)
    return names, rows


def attack() -> Attacked:
    """Counts over random subsets of people, exact and private: what a least-squares fit makes of them."""
    import math

    import numpy as np
    import pyarrow as pa

    from discreet.attack import random_subsets, reconstruct_bits
    from discreet.core import record
    from discreet.query import connect

    secret = np.random.default_rng(7).random(SECRETS) < 0.5
    subsets = random_subsets(SECRETS, COUNTS, seed=8)
    people = pa.table({"id": range(SECRETS), "positive": secret})
    with connect({"people": people}, unit=record()) as db:
        counts = [
            db.sql(f"SELECT COUNT_IF(positive) AS n FROM people WHERE id IN ({', '.join(map(str, np.flatnonzero(row)))})",
                   epsilon=SPENT / COUNTS).value["n"][0].as_py()
            for row in subsets
        ]  # fmt: skip
    right = [
        float(np.mean((reconstruct_bits(subsets, found) > 0.5) == secret)) for found in (subsets @ secret.astype(int), counts)
    ]
    return Attacked(right[0], right[1], math.exp(SPENT) / (1 + math.exp(SPENT)))
