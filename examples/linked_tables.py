"""Synthetic users and their ratings: two linked tables from one charge, which protects a user with all of their ratings.

python examples/linked_tables.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import discreet

draw = np.random.default_rng(0)  # people who never were
age = draw.integers(18, 90, 5_000)
number = np.where(age < 40, draw.integers(3, 11, 5_000), draw.integers(0, 4, 5_000))
owner = np.repeat(np.arange(5_000), number)
genre = np.where(draw.random(len(owner)) < np.where(age[owner] < 40, 0.8, 0.2), "action", "drama")
tables = {
    "users": pa.table({"user_id": range(5_000), "age": age, "sex": draw.choice(["f", "m"], 5_000)}),
    "ratings": pa.table({"user_id": owner, "genre": genre, "stars": draw.integers(1, 6, len(owner))}),
}
asked = {
    "parent": "users", "child": "ratings", "unit": discreet.user("user_id", rows=10), "epsilon": 2.0, "delta": 1e-6,
    "schema": {  # public knowledge: nothing is read off the data
        "users": {"age": (18, 89), "sex": ["f", "m"]},
        "ratings": {"genre": ["action", "drama"], "stars": [1, 2, 3, 4, 5]},
    },
}  # fmt: skip
print(discreet.synth.explain_linked(tables, **asked), end="\n\n")  # reads no row, spends nothing

with discreet.Ledger(Path(tempfile.mkdtemp()) / "ledger.db") as ledger:
    ledger.open("users", unit=asked["unit"], epsilon=2.0, delta=1e-6)
    release = discreet.synth.fit_linked(tables, **asked, ledger=ledger, source="users")
    model = release.value
    print(f"charged once, as {release.entry}: {release.claims[0].game.unit}")

made = model.sample().to_arrow()
for name, table in made.items():
    print(f"{name}: {len(tables[name]):,} real rows, {len(table):,} synthetic ones, {table.column_names}")
both = made["ratings"].to_pandas().merge(made["users"].to_pandas(), on="user_id")
young = both["age"] < 40
shares = [(both["genre"][who] == "action").mean() for who in (young, ~young)]
print(f"action among ratings of the young: {shares[0]:.0%}, of the others: {shares[1]:.0%} (real: 80 % and 20 %)")
assert shares[0] > 0.6 > 0.4 > shares[1]
