"""Generators audited in one fit: ours stays under its ceiling, an overfit one and a synthesis without noise are refuted.

Seeded: each check is the same every time. Verdicts are asked at a confidence of 1 - 1e-6, so nothing is refuted by luck.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from discreet import record, verdict
from discreet.attack.tables import DensityRatio, NoisyCounts, audit_generator
from discreet.audit import Canaries, audit
from discreet.core import Evidence
from discreet.noise.source import seeded_for_tests
from discreet.synth import Junction, Schema, Synthesis, Tree, measure
from discreet.synth.synthesis import METHODS
from discreet.synth.table import Table
from unit.attack.test_tables import REAL, copied
from unit.synth.rows import Rows, chain

SURE = 1 - 1e-6
SCHEMA = {"age": (0, 89), "town": list("abcdefgh"), "income": (0.0, 2e5), "size": list(range(5))}


def synthesis(rows: Table, method: str = "tree") -> Synthesis:
    return Synthesis(rows.sizes, record(), 1.0, 1e-6, METHODS[method])


def outcome(evidence: Evidence) -> str:
    with Table(pa.table(REAL), Schema.of(SCHEMA), record()) as rows:
        return verdict(synthesis(rows).claims()[0], evidence, confidence=SURE).outcome


@pytest.mark.parametrize("method", ["independent", "tree", "junction"])
def test_ours_stays_under_its_ceiling(method: str) -> None:
    def generate(table: Any) -> Any:
        with Table(pa.table(table), Schema.of(SCHEMA), record()) as rows:
            return synthesis(rows, method).run(rows).sample(seed=1).to_arrow()

    with seeded_for_tests(b"tables"):
        assert outcome(audit_generator(generate, REAL, canaries=400, seed=3)) == "holds"


def test_an_overfit_generator_with_our_claim_is_refuted() -> None:
    assert outcome(audit_generator(copied, REAL, canaries=1500, seed=3)) == "refuted"
    with_kernel = audit_generator(copied, REAL, canaries=1500, seed=3, attack=lambda few, all_: DensityRatio(few, all_))
    assert outcome(with_kernel) == "refuted"


SIZES = (120, 120, 120)


def one_run(method: Any, count: int = 600) -> str:
    """Canaries in rare cells, the model's own measurements, one fit."""
    random = np.random.default_rng(5)
    base = chain(2000, SIZES, random)
    canaries = random.integers(0, 120, (count, 3))

    def insert(codes: Any, inside: list[int]) -> Any:
        return np.concatenate([codes, canaries[inside]])

    class Fits(Synthesis):
        def run(self, data: Any) -> Any:
            return super().run(Rows(data, SIZES))

    mechanism = Fits(SIZES, record(), 2.0, 1e-6, method)
    worlds = Canaries(base.codes, range(count), insert, seed=2)
    with seeded_for_tests(b"canaries"):
        evidence = audit(mechanism, NoisyCounts(canaries, base.codes), worlds, runs=1)
    return verdict(mechanism.claims()[0], evidence, confidence=SURE).outcome


@pytest.mark.parametrize("method", [Tree(), Junction()], ids=["tree", "junction"])
def test_measured_counts_hold_and_without_noise_one_run_refutes_them(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert one_run(method) == "holds"
    monkeypatch.setattr(measure, "discrete_gaussian", lambda sigma, size: np.zeros(size, np.int64))
    assert one_run(method) == "refuted"
