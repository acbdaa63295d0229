"""A synthetic table of people who never were, and what two generators give away: ours, and one that copies rows.

python examples/judge_a_synthetic_table.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

import discreet
from discreet.attack.tables import attack_table, audit_generator

SCHEMA = {"age": (17, 90), "sex": ["Female", "Male"], "hours": (1, 99), "income": ["high", "low"]}
KNOWN: dict[str, Any] = {"unit": discreet.record(), "epsilon": 1.0, "delta": 1e-6, "schema": SCHEMA}


def people(count: int, seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    age = draw.integers(17, 91, count)
    return pa.table({
        "age": age,
        "sex": draw.choice(["Female", "Male"], count),
        "hours": np.where(draw.random(count) < 0.5, 40, draw.integers(1, 100, count)),
        "income": np.where(age + draw.normal(0, 15, count) > 55, "high", "low"),
    })  # fmt: skip


def private(table: Any) -> pa.Table:
    """Our synthesis, at epsilon 1."""
    return discreet.synth.fit(pa.table(table), **KNOWN).value.sample().to_arrow()


def copying(table: Any) -> pa.Table:
    """An overfit generator: rows it has seen, drawn again."""
    whole = pa.table(table)
    return whole.take(np.random.default_rng(1).integers(0, whole.num_rows, whole.num_rows))


def main() -> None:
    real, others = people(2000, 0), people(2000, 1)
    claim = discreet.synth.fit(real, **KNOWN).claims[0]
    for generator in (private, copying):
        table = generator(real)
        print(f"\n{generator.__doc__}")
        print(discreet.synth.measure_fidelity(real, table, unit=discreet.record(), schema=SCHEMA, triples=0))
        found = attack_table(table, real, others, secret="income")
        for evidence in found.evidence:
            print(f"  {evidence.attack}: AUC {evidence.auc():.3f}, finds {evidence.tpr(0.01):.1%} at 1 % false positives")
        for risk in found.risks:
            print(f"  {risk}")
        verdict = discreet.verdict(claim, audit_generator(generator, real, canaries=600), confidence=0.999)
        print(f"  the claim of epsilon 1, by canaries in one fit: {verdict.outcome}")


if __name__ == "__main__":
    main()
