"""Every mechanism, audited on its worst neighbouring pairs, passes; the audit has power there.

Each check of a true claim would be wrong, under fresh randomness, with probability at most ALPHA. There are fewer than
20 here: a false-alarm rate of 2e-5 for the file.
"""

from __future__ import annotations

import pytest

from conform.catalogue import MECHANISMS
from discreet.audit import check_mechanism, epsilon_lower_bound
from discreet.noise.source import seeded_for_tests

ALPHA = 1e-6
RUNS = 3000
# The audit sees this share of the claim at least (at 95 %), on the best of the pairs: it is not blind.
SEEN = {"laplace of three": 0.3, "exponential": 0.2, "noisy max": 0.2, "sparse vector": 0.1, "sparse vector, two": 0.05,
        "gaussian": 0.1, "gaussian of three": 0.1, "sum, gaussian": 0.1, "grid gaussian": 0.2}  # fmt: skip


@pytest.mark.parametrize("case", MECHANISMS, ids=lambda case: case.name)
def test_claim_holds(case):
    with seeded_for_tests(case.name.encode()):
        found = check_mechanism(case.mechanism, case.pairs, runs=RUNS, confidence=1 - ALPHA, seed=2)
    assert [verdict.outcome for _, verdict in found] == ["holds"] * len(case.pairs)
    shares = [
        epsilon_lower_bound(evidence.score, evidence.inside, evidence.run, verdict.delta, 0.95) / verdict.ceiling
        for evidence, verdict in found
    ]
    assert max(shares) > SEEN.get(case.name, 0.5)
