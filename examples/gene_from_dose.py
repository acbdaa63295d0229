"""A dosing model run backwards: it tells genes of patients, and as well of people it has never seen."""

import numpy as np

import discreet
from discreet.attack import AttributeInference, infer
from discreet.learn import LinearRegression

random = np.random.default_rng(0)
GENES = {"AA": 0.35, "AG": 0.35, "GG": 0.3}


def features(table: dict) -> np.ndarray:
    genes = [np.asarray(table["gene"] == gene, float) for gene in ("AA", "AG")]
    return np.stack([np.asarray(table["age"], float) / 90, *genes], axis=1)


count = 6000
people = {"age": random.integers(20, 90, count), "gene": random.choice(list(GENES), count, p=list(GENES.values()))}
dose = 45 - 0.2 * people["age"] - 14 * (people["gene"] == "AA") - 6 * (people["gene"] == "AG") + random.normal(0, 4, count)
inside = random.random(count) < 0.5  # a fair coin for each person decides who is in the study

for epsilon in (1e6, 1.0):
    model = LinearRegression(epsilon=epsilon, delta=1e-6, norm=3**0.5, bounds=(0, 70), unit=discreet.record())
    model.fit(features(people)[inside], dose[inside])
    error = float(np.std(model.predict(features(people)) - dose))
    attack = AttributeInference("gene", GENES, error=error)
    found = infer(attack, lambda table, ask=model.predict: ask(features(table)), people, dose, inside, design="canary")
    judged = discreet.audit.verdict(model.release_.claims[0], found.evidence, confidence=0.95)
    print(f"epsilon {epsilon:g}: {found}; the claim {judged.outcome}")
print("What is right on people outside is knowledge of the population. It is what the model is for.")
