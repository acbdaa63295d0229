"""A k-anonymous table, the ways it breaks, and the one thing k-anonymity is good for."""

import numpy as np

import discreet
from discreet.attack import guesses, uniqueness
from discreet.audit import verdict
from discreet.heuristic import (
    ClassReading,
    Client,
    Composed,
    KAnonymous,
    Leaked,
    SecretColumn,
    anonymise,
    background,
    homogeneity,
    intersection,
    is_k_anonymous,
    l_diversity,
    repeat_rows,
    t_closeness,
)  # fmt: skip

random = np.random.default_rng(1)
patients = {
    "age": random.integers(18, 90, 500),
    "zip": random.choice(["02138", "02139", "02140", "02141"], 500),
    "work": random.choice(["teacher", "nurse", "farmer", "clerk", "none"], 500),
    "illness": random.choice(["flu", "cold", "asthma", "rare"], 500, p=[0.45, 0.35, 0.15, 0.05]),
}
quasi = ["age", "zip", "work"]
print(f"as it is: {uniqueness(patients, quasi).share:.0%} of rows are alone with their {', '.join(quasi)}")

made = anonymise(patients, quasi, k=5, sensitive="illness")
print(f"anonymised: {made}, information lost {made.penalty():.2f}")
print(f"first row: {[str(made.table[name][0]) for name in (*quasi, 'illness')]}")
print(f"l = {l_diversity(made.table, quasi, 'illness'):.0f}, t = {t_closeness(made.table, quasi, 'illness'):.2f}")

print(f"homogeneity: {homogeneity(made.table, quasi, 'illness')}")
print(f"background knowledge (one value ruled out): {background(made.table, quasi, 'illness', ruled_out=1)}")

first = anonymise(patients, ["age", "zip"], k=5, sensitive="illness", diversity=2)
second = anonymise(patients, ["age", "work"], k=5, sensitive="illness", diversity=2)
alone, both = (intersection(seen, patients, "illness") for seen in ([first], [first, second]))
print(f"two 2-diverse releases: {(alone == 1).sum()} people known from one, {(both == 1).sum()} from both")

absurd = repeat_rows(patients, 5)
print(f"every row five times is 5-anonymous: {is_k_anonymous(absurd, quasi, 5)}, and {homogeneity(absurd, quasi, 'illness')}")

# The same in the game: every row's secret is a fair coin, and the attack reads it off the classes.
people = {name: patients[name] for name in quasi}
one = KAnonymous(("age", "zip"), 5, ("secret",))
for name, mechanism in (("one release", one), ("two releases", Composed((one, KAnonymous(("age", "work"), 5, ("secret",)))))):
    evidence = discreet.audit(mechanism, ClassReading(people, "secret", 1), SecretColumn(people, "secret", seed=1), runs=4)
    print(f"{name}: {guesses(evidence)}")
    print(f"  {verdict(mechanism.claims()[0], evidence, confidence=0.999999, delta=0.0)}")

# Where hiding among k is what is wanted: the server learns two digits of a hash, and the client does the rest.
leaked = Leaked([f"password{number}" for number in range(5000)], prefix=2)
client = Client(leaked.range, prefix=2)
print(f"leaked: {client.count('password17')} and {client.count('correct horse')} times; {leaked.k} passwords share each prefix")
