"""Generators audited in one fit: ours stays under its ceiling, an overfit one and a synthesis without noise are refuted.

Seeded: each check is the same every time, and made on several seeds. Verdicts are asked at a confidence of 1 - 1e-6, so
nothing is refuted by luck; how many canaries that takes is computed below.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from discreet import record, verdict
from discreet.attack.tables import DensityRatio, NoisyCounts, audit_generator
from discreet.audit import Canaries, audit
from discreet.core import Evidence
from discreet.noise import discrete_gaussian
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


@pytest.mark.parametrize("seed", range(3))
def test_an_overfit_generator_with_our_claim_is_refuted(seed: int) -> None:
    assert outcome(audit_generator(copied, REAL, canaries=1500, seed=seed)) == "refuted"
    with_kernel = audit_generator(copied, REAL, canaries=1500, seed=seed, attack=lambda few, all_: DensityRatio(few, all_))
    assert outcome(with_kernel) == "refuted"


SIZES, CANARIES, EPSILON = (120, 120, 120), 600, 2.0


def one_run(method: Any, seed: int) -> str:
    """Canaries in cells of their own, mostly, the model's own measurements, one fit. Base, canaries, coins and noise are all
    drawn anew for each seed."""
    random = np.random.default_rng([5, seed])
    base = chain(2000, SIZES, random)
    canaries = random.integers(0, SIZES[0], (CANARIES, 3))

    def insert(codes: Any, inside: list[int]) -> Any:
        return np.concatenate([codes, canaries[inside]])

    class Fits(Synthesis):
        def run(self, data: Any) -> Any:
            return super().run(Rows(data, SIZES))

    mechanism = Fits(SIZES, record(), EPSILON, 1e-6, method)
    worlds = Canaries(base.codes, range(CANARIES), insert, seed=seed)
    with seeded_for_tests(b"canaries %d" % seed):
        evidence = audit(mechanism, NoisyCounts(canaries, base.codes), worlds, runs=1)
    return verdict(mechanism.claims()[0], evidence, confidence=SURE).outcome


def test_so_many_canaries_can_refute_the_claim_and_not_one_twice_as_large() -> None:
    """Power: at epsilon, a coin is guessed with at most e^epsilon / (1 + e^epsilon). All of 600 right refute 2, and not 4."""
    right = np.exp([EPSILON, 2 * EPSILON]) / (1 + np.exp([EPSILON, 2 * EPSILON]))
    chance = right**CANARIES
    assert chance[0] < 1 - SURE < chance[1]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("method", [Tree(), Junction()], ids=["tree", "junction"])
def test_measured_counts_hold_and_with_a_twentieth_of_the_noise_or_none_one_run_refutes_them(
    method: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On every seed: no outcome here rests on luck."""
    assert one_run(method, seed) == "holds"
    for part in (0.05, 0.0):
        monkeypatch.setattr(measure, "discrete_gaussian", partial(less_noise, part))
        assert one_run(method, seed) == "refuted", f"with {part} of the noise"


def less_noise(part: float, sigma: float, size: int) -> Any:
    return discrete_gaussian(sigma * part, size) if part else np.zeros(size, np.int64)
