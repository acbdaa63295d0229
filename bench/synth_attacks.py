"""Attacks on synthetic tables of Adult: what each finds of an overfit generator and of ours, and what it costs.

    python bench/synth_attacks.py [--data FOLDER] [--out FILE]

6,000 rows are synthesised, 6,000 others are the control group. The overfit generator draws rows again and takes one cell in
ten from another row. Each generator is attacked REPEATS times, with fresh noise.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from _record import write
from discreet import record, synth
from discreet.attack.tables import attack_table, audit_generator
from discreet.audit import epsilon_at_least

ROWS, REPEATS, DELTA, CANARIES, SHADOWS = 6000, 1, 1e-9, 600, 8

HOW = {"rows": ROWS, "delta": DELTA, "canaries": CANARIES, "shadows": SHADOWS, "risk": "members, control, share, low, high"}
FITS = (("tree", 1.0), ("junction", 1.0), ("junction", 10.0))


def adult(data: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Members, control group, and the public domain of each column."""
    import pandas as pd

    frame = pd.read_csv(data / "adult/adult-discrete.csv.gz").sample(2 * ROWS, random_state=0)
    domain = pd.read_json(data / "adult/adult-domain.json", typ="series")
    halves = [{name: half[name].to_numpy() for name in frame} for half in (frame[:ROWS], frame[ROWS:])]
    schema = {
        name: synth.Column("categorical", values=tuple(range(int(domain[name]))), required=True) for name in frame.columns
    }
    return halves[0], halves[1], schema


def overfit(table: Any) -> dict[str, Any]:
    """Rows that it has seen, with one cell in ten from another row."""
    random = np.random.default_rng()
    count = len(next(iter(table.values())))
    rows = random.integers(0, count, count)
    made = {name: np.asarray(values)[rows].copy() for name, values in table.items()}
    for values in made.values():
        changed = random.random(count) < 0.1
        values[changed] = random.permutation(values)[changed]
    return made


def ours(method: str, epsilon: float, schema: dict[str, Any]) -> Callable[[Any], Any]:
    def generate(table: Any) -> Any:
        fitted = synth.fit(pa.table(dict(table)), unit=record(), epsilon=epsilon, delta=DELTA, schema=schema, method=method)
        return fitted.value.sample().to_arrow()

    return generate


def measured(generator: Callable[[Any], Any], members: Any, control: Any, seed: int) -> dict[str, Any]:
    began = time.process_time()
    attacks = ("density", "pairs", "closest", "shadows")
    found = attack_table(generator(members), members, control, attacks=attacks, generator=generator, shadows=SHADOWS,
                         secret=list(members)[-1], seed=seed)  # fmt: skip
    evidence = [*found.evidence, audit_generator(generator, members, canaries=CANARIES)]
    rows = {
        it.attack: {"auc": round(it.auc(), 3), "tpr_at_1_percent": round(it.tpr(0.01), 4),
                    "epsilon_at_least": round(epsilon_at_least(it, DELTA, 0.95), 3)}
        for it in evidence
    }  # fmt: skip
    risks = {it.name: [round(x, 4) for x in (it.members, it.control, it.share, it.low, it.high)] for it in found.risks}
    return {"attacks": rows, "risks": risks, "cpu_seconds": round(time.process_time() - began, 1)}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--data", default="../shared/data")
    words.add_argument("--out", default=str(Path(__file__).parent / "results/synth_attacks.json"))
    asked = words.parse_args()
    members, control, schema = adult(Path(asked.data))
    private = {f"{method} epsilon {epsilon:g}": ours(method, epsilon, schema) for method, epsilon in FITS}
    generators = {"overfit": overfit, **private}
    results: dict[str, list[Any]] = {name: [] for name in generators}
    for repeat in range(REPEATS):
        for name, generator in generators.items():
            results[name].append(measured(generator, members, control, repeat))
            print(name, results[name][-1], flush=True)
        write(asked.out, {"how": HOW, "generators": results})  # what is done is kept


if __name__ == "__main__":
    main()
