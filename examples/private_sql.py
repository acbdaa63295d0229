"""Questions in SQL from one budget: what each costs, how wrong it may be, and what happens when nothing is left.

python examples/private_sql.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import discreet
from discreet.errors import BudgetExceeded, InvalidQuery

draw = np.random.default_rng(0)  # a hospital that never was
visits = pa.table({
    "patient": draw.integers(0, 5_000, 20_000), "ward": draw.choice(["A", "B", "C"], 20_000),
    "days": 1 + draw.poisson(3, 20_000),
})  # fmt: skip
unit = discreet.user("patient", rows=4)  # the promise is about patients, of whom at most four visits count
schema = {"visits": {"ward": {"values": ["A", "B", "C"]}, "days": {"bounds": [1, 30]}}}

with discreet.Ledger(Path(tempfile.mkdtemp()) / "ledger.db") as ledger:
    ledger.open("hospital", unit=unit, epsilon=1.2, delta=1e-6)
    with discreet.connect({"visits": visits}, unit=unit, schema=schema, ledger=ledger, source="hospital") as db:
        query = "SELECT ward, COUNT(*) AS visits, AVG(days) AS days FROM visits GROUP BY ward"
        print(db.explain(query, epsilon=0.5), end="\n\n")  # reads no row, spends nothing
        answer = db.sql(query, epsilon=0.5)
        for row in answer.value.to_pylist():
            print(f"ward {row['ward']}: {row['visits']:,.0f} visits ({row['visits_low']:,.0f} to {row['visits_high']:,.0f})")

        again = db.sql("select ward, count(*) AS visits, avg(days) AS days from visits group by ward", epsilon=0.5)
        assert again.entry == answer.entry  # the same question: the same answer, free
        db.sql("SELECT COUNT(DISTINCT patient) AS patients FROM visits", epsilon=0.5)
        for refused in ("SELECT MAX(days) AS longest FROM visits WHERE ward = 'A'", "SELECT patient FROM visits"):
            try:
                db.sql(refused, epsilon=0.5)
            except (BudgetExceeded, InvalidQuery) as error:
                print(f"\n{refused}\n  {type(error).__name__}: {error}")
    print(f"\nleft: epsilon {ledger.left('hospital'):.2f}; the last entry is {ledger.verify()}")
