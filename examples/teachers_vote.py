"""PATE with random forests, which no gradient trains: teachers vote in private, a student learns from noisy votes."""

from pathlib import Path
from tempfile import mkdtemp

import numpy as np
from sklearn.ensemble import RandomForestClassifier

import discreet
from discreet.accounting import curve
from discreet.errors import BudgetExceeded
from discreet.learn import PATE
from discreet.learn.pate import VoteRegressor

random = np.random.default_rng(0)


def patients(count: int) -> tuple[np.ndarray, np.ndarray]:
    features = random.normal(size=(count, 5))
    return features, features @ [1.0, -0.5, 0.5, 0.0, 0.0] + 0.3 * random.normal(size=count) > 0


private, ill = patients(6000)
public, _ = patients(1000)  # nobody's labels
test, truth = patients(1000)

place = str(Path(mkdtemp()) / "ledger.db")
with discreet.Ledger(place) as ledger:
    ledger.open("hospital", unit=discreet.record(), epsilon=2.0, delta=1e-5)

forest = RandomForestClassifier(10)
model = PATE(
    forest, VoteRegressor(), teachers=60, epsilon=2.0, delta=1e-6, unit=discreet.record(), classes=[False, True],
    ledger=place, source="hospital",
)  # fmt: skip
model.fit(private, ill, public)
release = model.release_
right = public @ [1, -0.5, 0.5, 0, 0] > 0
print(
    f"student {np.mean(model.predict(test) == truth):.1%} right; single labels {np.mean(release.value['labels'] == right):.1%}"
)
print(f"proven epsilon {curve(release.claims[0].event).epsilon(1e-6):.3f}, paid by entry {release.entry}")

try:
    model.fit(private, ill, public)
except BudgetExceeded as refusal:
    print(f"a second vote is refused: {refusal}")
