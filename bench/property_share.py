"""What share of a model's training rows are women: how often the interval holds it, how wide it is, and what it costs.

    PYTHONPATH=src python bench/property_share.py --data ../shared/data [--models 60] [--out bench/results/property_share.json]

Adult: the target is the income, and the inputs are all columns but that and the sex. Each model is trained on 1,000 rows with a
share of women drawn evenly between 0.1 and 0.9; the attacker has 20,000 other rows and trains 200 shadow models. `twin` models
learned from shuffled labels, so that only how their inputs lie can tell. CPU seconds.
"""

from __future__ import annotations

import argparse
import gzip
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from torch import nn

from _record import commit, write
from discreet.attack.inversion import PropertyInference
from discreet.models import Recipe, Trainer

ROWS, OTHERS, SHADOWS = 1000, 20_000, 200


def adult(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    with gzip.open(folder / "adult" / "adult-discrete.csv.gz", "rt") as file:
        names = file.readline().strip().split(",")
        table = np.loadtxt(file, delimiter=",")
    columns = dict(zip(names, table.T))
    income = next(name for name in names if "income" in name)
    kept = [name for name in names if name not in (income, "sex")]
    X = np.stack([columns[name] / max(columns[name].max(), 1) for name in kept], axis=1).astype(np.float32)
    sex = columns["sex"]
    rare = min(np.unique(sex), key=lambda value: (sex == value).sum())
    return X, columns[income].astype(np.int64), sex == rare


def measured(X: np.ndarray, y: np.ndarray, has: np.ndarray, models: int, shuffled: bool) -> dict[str, Any]:
    recipe = Recipe(
        lambda: nn.Sequential(nn.Linear(X.shape[1], 32), nn.ReLU(), nn.Linear(32, 2)), epochs=10, learning_rate=0.01
    )
    trainer, hits, widths, wrong, blind, began = Trainer(recipe), [], [], [], [], time.process_time()
    for model in range(models):
        rng = np.random.default_rng(model)
        order, labels = rng.permutation(len(X)), rng.permutation(y) if shuffled else y
        own, rest = order[:OTHERS], order[OTHERS:]
        share = rng.uniform(0.1, 0.9)
        count = round(share * ROWS)
        rows = np.r_[rest[has[rest]][:count], rest[~has[rest]][: ROWS - count]]
        target = trainer.one(X[rows], labels[rows], seed=10_000 + model)
        found = PropertyInference(ROWS, SHADOWS, seed=1000 * model).infer(
            target, trainer, X[own], labels[own], has[own], X[own[:200]]
        )  # fmt: skip
        hits.append(found.low <= share <= found.high)
        widths.append(found.high - found.low)
        wrong.append(abs(found.estimate - share))
        blind.append(2 * found.blind)
    return {
        "models": models, "held": int(sum(hits)), "confidence": 0.95, "width_mean": round(float(np.mean(widths)), 4),
        "width_without_the_model": round(float(np.mean(blind)), 4), "error_mean": round(float(np.mean(wrong)), 4),
        "cpu_seconds_a_model": round((time.process_time() - began) / models, 2),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--models", type=int, default=60)
    parser.add_argument("--out")
    given = parser.parse_args()
    at = commit()
    table = adult(given.data)
    found = {"models": measured(*table, given.models, False), "twin": measured(*table, max(5, given.models // 5), True)}
    print(found)
    write(given.out, {"commit": at, "rows": ROWS, "shadows": SHADOWS, **found}, "torch")


if __name__ == "__main__":
    main()
