"""Attacks on synthetic tables of Adult: what each finds of an overfit generator and of ours, and what it costs.

    python bench/synth_attacks.py [--data FOLDER] [--repeats N] [--out FILE]

6,000 rows are synthesised, 6,000 others are the control group. The overfit generator draws rows again and takes one cell in
ten from another row. Each generator is attacked anew in each repeat: other members, another control group, fresh noise. The
verdict is that of the canaries on the claim of `tree` at epsilon 1 for the overfit generator, and on the own claim of ours.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from _record import commit, write
from discreet import record, synth, verdict
from discreet.attack.tables import attack_table, audit_generator
from discreet.audit import epsilon_at_least
from discreet.core import Claim
from discreet.synth.synthesis import METHODS

ROWS, DELTA, CANARIES, SHADOWS = 6000, 1e-9, 600, 8
SURE = 0.999  # of a verdict

HOW = {"rows": ROWS, "delta": DELTA, "canaries": CANARIES, "shadows": SHADOWS, "confidence": SURE}
FITS = (("tree", 1.0), ("junction", 1.0), ("junction", 10.0))


def adult(data: Path, seed: int) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Members, control group, and the public domain of each column."""
    import pandas as pd

    frame = pd.read_csv(data / "adult/adult-discrete.csv.gz").sample(2 * ROWS, random_state=seed)
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


def claimed(method: str, epsilon: float, schema: dict[str, Any]) -> Claim:
    sizes = tuple(len(column.values) for column in schema.values())
    return synth.Synthesis(sizes, record(), epsilon, DELTA, METHODS[method]).claims()[0]


def measured(generator: Callable[[Any], Any], claim: Claim, members: Any, control: Any, seed: int) -> dict[str, Any]:
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
    told = ("members", "control", "baseline", "share", "low", "high")
    risks = {it.name: {name: round(getattr(it, name), 4) for name in told} for it in found.risks}
    outcome = verdict(claim, evidence[-1], confidence=SURE).outcome
    return {"verdict": outcome, "attacks": rows, "risks": risks, "cpu_seconds": round(time.process_time() - began, 1)}


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean, least and most over the repeats; the verdicts one by one."""

    def spread(values: list[float]) -> dict[str, float]:
        return {"mean": round(statistics.mean(values), 4), "least": min(values), "most": max(values)}

    made: dict[str, Any] = {"repeats": len(runs), "verdicts": [run["verdict"] for run in runs]}
    for part in ("attacks", "risks"):
        made[part] = {
            name: {key: spread([run[part][name][key] for run in runs]) for key in runs[0][part][name]} for name in runs[0][part]
        }
    return made | {"cpu_seconds": spread([run["cpu_seconds"] for run in runs])}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--data", default="../shared/data")
    words.add_argument("--repeats", type=int, default=5)
    words.add_argument("--out", default=str(Path(__file__).parent / "results/synth_attacks.json"))
    asked = words.parse_args()
    runs: dict[str, list[Any]] = {}
    for repeat in range(asked.repeats):
        members, control, schema = adult(Path(asked.data), repeat)
        kinds = {"overfit": (overfit, claimed(*FITS[0], schema))}
        kinds |= {f"{method} epsilon {epsilon:g}": (ours(method, epsilon, schema), claimed(method, epsilon, schema))
                  for method, epsilon in FITS}  # fmt: skip
        for name, (generator, claim) in kinds.items():
            runs.setdefault(name, []).append(measured(generator, claim, members, control, repeat))
            print(repeat, name, runs[name][-1], flush=True)
        generators = {name: summary(each) for name, each in runs.items()}
        write(asked.out, {"commit": commit(), "how": HOW, "generators": generators})  # what is done is kept


if __name__ == "__main__":
    main()
