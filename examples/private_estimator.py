"""A scikit-learn pipeline made private: public bins, logistic regression, one ledger that pays."""

from pathlib import Path
from tempfile import mkdtemp

import numpy as np
from sklearn.pipeline import make_pipeline

import discreet
from discreet.accounting import curve
from discreet.errors import BudgetExceeded
from discreet.learn import KBinsDiscretizer, LogisticRegression

random = np.random.default_rng(0)
age, hours = random.uniform(18, 90, 20_000), random.uniform(0, 80, 20_000)
earns = (age > 35) & (hours > 38) ^ (random.random(20_000) < 0.1)
people = np.stack([age, hours], axis=1)

place = str(Path(mkdtemp()) / "ledger.db")
with discreet.Ledger(place) as ledger:
    ledger.open("people", unit=discreet.record(), epsilon=1.5, delta=1e-6)

# edges that anybody could have chosen: they cost nothing, and so does the length of the rows they make
bins = KBinsDiscretizer(edges=[[25, 35, 45, 55, 65], [20, 30, 38, 45, 60]]).fit(people)
private = LogisticRegression(
    epsilon=1.0, delta=1e-6, norm=bins.norm_, unit=discreet.record(), classes=[False, True], ledger=place, source="people"
)
model = make_pipeline(bins, private).fit(people, earns)
release = private.release_
print(f"accuracy {model.score(people, earns):.3f}; proven epsilon {curve(release.claims[0].event).epsilon(1e-6):.3f}")
print(f"paid by entry {release.entry}")

try:
    make_pipeline(bins, private).fit(people, earns)
except BudgetExceeded as refusal:
    print(f"a second fit is refused: {refusal}")
