"""Statistics of a column about people who own several rows each, paid from one budget."""

import tempfile
from pathlib import Path

import numpy as np

import discreet
from discreet.errors import BudgetExceeded
from discreet.query import arrays

random = np.random.default_rng(1)
patients = random.zipf(1.6, 20_000) % 4_000  # a few come often
costs = random.lognormal(5, 1, 20_000)
costs[::500] = np.nan
patient = discreet.user("patient", rows=3)


def show(name: str, release: discreet.Release) -> None:
    found = release.value
    print(
        f"{name:8} {found['value']:12,.1f}   95% within {found['low']:12,.1f} .. {found['high']:12,.1f}   entry {release.entry}"
    )


with tempfile.TemporaryDirectory() as folder, discreet.Ledger(Path(folder) / "ledger.db") as ledger:
    ledger.open("patients", unit=patient, epsilon=1.5, delta=1e-6)
    asked = {"ids": patients, "unit": patient, "ledger": ledger, "source": "patients"}
    try:
        show("visits", arrays.count(costs, epsilon=0.1, **asked))
        show("mean", arrays.mean(costs, bounds=(0, 2_000), epsilon=0.2, **asked))
        show("median", arrays.quantile(costs, 0.5, bounds=(0, 2_000), epsilon=0.3, **asked))
        show("sum", arrays.sum(costs, bounds=(0, 2_000), epsilon=5.0, **asked))
    except BudgetExceeded as refusal:
        print(refusal)
