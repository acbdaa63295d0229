"""Noisy distances against their claim on the worst neighbours, and a broken twin that must be refuted.

Seeded: each check is the same every time. `refuted` is asked at a confidence of 1 - 1e-6, so no twin is refuted by luck.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from discreet.audit import check_mechanism
from discreet.core import record
from discreet.errors import ClaimRefuted
from discreet.noise.source import seeded_for_tests
from discreet.synth import NoisyDistances, fidelity
from unit.synth.rows import Rows

SIZES = (2, 2)
CROWD = [(0, 0)] * 5
EXPECTED = tuple(np.array(counts, np.int64) * fidelity.POINT for counts in ([5, 0], [5, 0], [[5, 0], [0, 0]]))
SETS = ((0,), (1,), (0, 1))
PAIRS = {
    "add_remove": (Rows([*CROWD, (1, 1)], SIZES), Rows(CROWD, SIZES)),
    "replace": (Rows([*CROWD[1:], (1, 1)], SIZES), Rows(CROWD, SIZES)),
}


class TakenForAdded(NoisyDistances):
    """A replaced record moves a distance by 2; the noise of this one is for 1."""

    def run(self, data: Any) -> list[int]:
        return NoisyDistances(self.sets, self.expected, record(), self.epsilon, self.delta).run(data)


def audit(kind: type[NoisyDistances], relation: str, epsilon: float, runs: int) -> str:
    with seeded_for_tests(b"fidelity"):
        mechanism = kind(SETS, EXPECTED, record(relation), epsilon, 1e-6)
        return check_mechanism(mechanism, [PAIRS[relation]], runs=runs, confidence=1 - 1e-6, seed=4)[0][1].outcome


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_the_claim_holds(relation: str) -> None:
    assert audit(NoisyDistances, relation, 2.0, 600) in ("holds", "inconclusive")


def test_half_the_sensitivity_is_refuted() -> None:
    with pytest.raises(ClaimRefuted):
        audit(TakenForAdded, "replace", 6.0, 3000)
