"""Rows made by hill climbing: many at once, against one question at a time. Processor time on one core.

    python bench/query_synthesis.py [--art PYTHON] [--rows 4096] [--rounds 5] [--out bench/results/query_synthesis.json]

The target is a 446-128-30 network trained on binary rows. All climb with the same numbers: half of the features change at
first, half as many after 3 rejections, at most 1000 steps, a confidence of 0.6. The loop of our own follows algorithm 1 of
Shokri et al. (2017) and asks the same module, one row at a time. `--art` names an interpreter that has
adversarial-robustness-toolbox (and torch), which then climbs on the same weights: as a torch module, as ours does, and as a
function of numpy, which answers a single row much faster.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

import numpy as np
import torch
from torch import nn

from _record import write
from discreet.attack.membership import query_synthesis

WIDTH, HIDDEN, CLASSES = 446, 128, 30
SURE, PATIENCE, STEPS = 0.6, 3, 1000


def trained() -> nn.Sequential:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, 3000)
    chance = 0.15 + 0.5 * (rng.random((CLASSES, WIDTH)) < 0.2)
    X = torch.as_tensor((rng.random((3000, WIDTH)) < chance[y]).astype(np.float32))
    model = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(15):
        for part in torch.randperm(3000).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(X[part]), torch.as_tensor(y)[part]).backward()
            optimizer.step()
    return model


def weights(model: nn.Sequential) -> list[np.ndarray]:
    return [p.detach().numpy().T.copy() if p.ndim == 2 else p.detach().numpy() for p in model.parameters()]


def one_by_one(model: nn.Sequential, goals: np.ndarray, rng: np.random.Generator) -> tuple[float, int, int]:
    """Processor seconds, rows found, queries."""
    began, found, queries = time.process_time(), 0, 0
    for goal in goals:
        x = rng.integers(0, 2, WIDTH).astype(np.float32)
        best, kept, change, rejected = -1.0, x, WIDTH // 2, 0
        for _ in range(STEPS):
            with torch.no_grad():
                p = torch.softmax(model(torch.from_numpy(x[None])), 1)[0].numpy()
            queries += 1
            if p[goal] >= best:
                if p[goal] > SURE and p.argmax() == goal and rng.random() < p[goal]:
                    found += 1
                    break
                best, kept, rejected = p[goal], x, 0
            else:
                rejected += 1
                if rejected > PATIENCE:
                    change, rejected = max(1, -(-change // 2)), 0
            x = kept.copy()
            places = rng.choice(WIDTH, change, replace=False)
            x[places] = 1.0 - x[places]
    return time.process_time() - began, found, queries


def together(model: nn.Sequential, goals: np.ndarray, seed: int) -> tuple[float, int, int]:
    began = time.process_time()
    made = query_synthesis(model, goals, np.full(WIDTH, 2), confidence=SURE, patience=PATIENCE, steps=STEPS, seed=seed)
    return time.process_time() - began, len(made.X), made.queries


def art(python: str, kind: str, model: nn.Sequential, rows: int) -> float:
    """Processor seconds for a row."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "weights.npz"
        np.savez(place, *weights(model))
        script = Path(__file__).parent / "peers" / "art_query_synthesis.py"
        done = subprocess.run(
            [python, str(script), kind, str(place), str(rows), str(SURE), str(STEPS)],
            capture_output=True,
            text=True,
            check=True,
        )
    return float(done.stdout.strip().splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--art", metavar="PYTHON")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    model = trained()
    goals = np.arange(given.rows) % CLASSES
    together(model, goals[:8], 0)  # warm
    ratios, figures = [], []
    theirs: dict[str, list[float]] = {"torch": [], "numpy": []}
    for round_ in range(given.rounds):  # interleaved
        few = goals[:60]
        slow, found, asked = one_by_one(model, few, np.random.default_rng(round_))
        fast, found_here, asked_here = together(model, goals, round_)
        ratios.append(slow / len(few) / (fast / len(goals)))
        figures.append((1e3 * slow / len(few), 1e3 * fast / len(goals), asked / len(few), asked_here / len(goals)))
        if given.art:
            for kind, found_there in theirs.items():
                found_there.append(art(given.art, kind, model, 60) / (fast / len(goals)))
        print(f"{ratios[-1]:.1f} times; {found} of {len(few)}, {found_here} of {len(goals)} found", file=sys.stderr, flush=True)
    middle = [round(statistics.median(part), 3) for part in zip(*figures)]
    result: dict[str, Any] = {
        "rows": given.rows,
        "times_one_by_one": round(statistics.median(ratios), 1),
        "spread": [round(min(ratios), 1), round(max(ratios), 1)],
        **dict(zip(("cpu_ms_per_row_alone", "cpu_ms_per_row_together", "queries_alone", "queries_together"), middle)),
    }
    result["goals"] = {}
    for kind, there in theirs.items():
        if there:
            result[f"times_art_{kind}"] = round(statistics.median(there), 1)
            result[f"art_{kind}_spread"] = [round(min(there), 1), round(max(there), 1)]
    if given.art:
        result["goals"]["at least 20 times ART on the same module"] = result["times_art_torch"] >= 20
    print(json.dumps(result, indent=1))
    write(given.out, result, "torch")
    return 0


if __name__ == "__main__":
    sys.exit(main())
