"""A synthetic table in place of a private one: from one charge, as many rows as you like, and counts with intervals.

python examples/synthetic_table.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import discreet
from discreet.errors import BudgetExceeded
from discreet.synth import Column

draw = np.random.default_rng(0)  # people who never were
age = draw.integers(17, 91, 20_000)
people = pa.table({
    "age": age, "sex": draw.choice(["Female", "Male"], 20_000),
    "hours": np.where(draw.random(20_000) < 0.5, 40, draw.integers(1, 100, 20_000)),
    "income": np.where(age + draw.normal(0, 15, 20_000) > 55, "high", "low"),
})  # fmt: skip
schema = {  # public knowledge: nothing is read off the data
    "age": Column("integer", bounds=(17, 90), required=True),
    "sex": Column("categorical", values=("Female", "Male"), required=True),
    "hours": Column("integer", bounds=(1, 99), mass=(40,), required=True),
    "income": Column("ordinal", values=("low", "high"), required=True),
}
asked = {"unit": discreet.record(), "epsilon": 1.0, "delta": 1e-9, "schema": schema}
print(discreet.synth.explain(people, **asked), end="\n\n")  # reads no row, spends nothing

with discreet.Ledger(Path(tempfile.mkdtemp()) / "ledger.db") as ledger:
    ledger.open("people", unit=discreet.record(), epsilon=1.0, delta=1e-9)
    release = discreet.synth.fit(people, **asked, ledger=ledger, source="people")
    model = release.value
    print(f"{model.method}, within {model.gap:.1%} of its optimum; about {model.rows:,.0f} rows, charged as {release.entry}")

    for row in model.marginal("income").to_pylist():
        print(f"income {row['income']}: {row['count']:,.0f} ({row['low']:,.0f} to {row['high']:,.0f})")
    place = model.sample().to_parquet(Path(tempfile.mkdtemp()) / "synthetic.parquet")
    print(f"{place.name}: {place.stat().st_size:,} bytes")

    young, old = (model.sample(5_000, given={"age": years}).to_pandas() for years in (25, 80))
    print(f"high income at 25: {(young['income'] == 'high').mean():.0%}, at 80: {(old['income'] == 'high').mean():.0%}")
    assert (young["age"] == 25).all()
    assert abs((model.sample(20_000).to_pandas()["hours"] == 40).mean() - 0.5) < 0.1

    try:  # the budget is spent; what was released stays free
        discreet.synth.fit(people, **asked, ledger=ledger, source="people")
    except BudgetExceeded as error:
        print(f"refused: {error}")
    assert len(model.sample(10)) == 10
