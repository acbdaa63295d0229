"""How often does each lower bound claim more than the truth, and how tight is the default?

    PYTHONPATH=src python bench/calibration.py [--quick] [--runs 2000] [--jobs 16] [--out bench/results/calibration.json]

Every canary is released as its coin plus noise, so the true epsilon is known: Laplace noise of scale 1/epsilon (at delta
0), or Gaussian noise with this epsilon at delta 1e-5; at epsilon 0 the scores are noise alone. Every bound is asked at
95 %, so it may claim too much in 5 % of runs; `limit` adds two standard errors. `fdp` and `gaussian` assume a Gaussian
trade-off and are run where that holds. The tightness table compares the default with the largest bound over all
thresholds, uncorrected: that one is not valid, it is what several published tools report. Beside it stands the exact bound of
an auditor who knew the best threshold beforehand, and two ceilings that no valid bound can exceed, even one made for this
very noise: on its median, and on its mean where claims above the truth are left out (docs/theory/audit-ceiling.md).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from _ceiling import mean_ceiling, median_ceiling, sureness
from _record import write
from discreet.audit.bounds import GAUSSIAN_ONLY, METHODS
from discreet.audit.bounds.gaussian import mu_of
from discreet.audit.bounds.order import surest_first

ALPHA = 0.05
DELTA = 1e-5
EPSILONS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
TARGETS = (200, 1000, 5000)
LAWS = ("laplace", "gaussian")
# A bound and how the targets are told to have come about: one target per run, or all in one run.
VARIANTS = (
    ("betting", "one run"),
    ("betting", "many runs"),
    ("one_run", "one run"),
    ("fdp", "one run"),
    ("clopper_pearson", "many runs"),
    ("gaussian", "many runs"),
)


def scores(law: str, epsilon: float, targets: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Coins, and the coins as seen through a mechanism with just this epsilon."""
    inside = generator.random(targets) < 0.5
    if epsilon == 0:
        return generator.normal(size=targets), inside
    if law == "laplace":
        return inside + generator.laplace(scale=1.0 / epsilon, size=targets), inside
    return inside + generator.normal(scale=1.0 / mu_of(epsilon, DELTA), size=targets), inside


def false_claims(
    law: str, epsilon: float, targets: int, runs: int, seed: int = 0, only: str | None = None
) -> list[dict[str, Any]]:  # fmt: skip
    """One row per bound: how often it exceeded the truth, and its mean."""
    delta = 0.0 if law == "laplace" else DELTA
    used = [pair for pair in VARIANTS if law == "gaussian" or pair[0] not in GAUSSIAN_ONLY]
    used = [pair for pair in used if only in (None, pair[0])]
    found: dict[tuple[str, str], list[float]] = {pair: [] for pair in used}
    generator = np.random.default_rng([seed, LAWS.index(law), round(2 * epsilon), targets])
    numbers = {"one run": np.zeros(targets, dtype=np.int64), "many runs": np.arange(targets)}
    for _ in range(runs):
        score, inside = scores(law, epsilon, targets, generator)
        for method, design in used:
            found[method, design].append(METHODS[method](score, inside, numbers[design], delta, ALPHA))
    limit = ALPHA + 2.0 * math.sqrt(ALPHA * (1.0 - ALPHA) / runs)
    return [
        {
            "law": law, "epsilon": epsilon, "delta": delta, "targets": targets, "bound": method, "design": design, "runs": runs,
            "false_claims": int(np.sum(np.array(bounds) > epsilon)), "rate": float(np.mean(np.array(bounds) > epsilon)),
            "limit": limit, "mean": float(np.mean(bounds)),
        }
        for (method, design), bounds in found.items()
    ]  # fmt: skip


def uncorrected(score: np.ndarray, inside: np.ndarray) -> float:
    """The largest exact bound over every number of guesses, as if only the best had been tried. Not valid."""
    from discreet.audit.binomial import rate_floor

    right = np.cumsum(surest_first(score, inside))
    best = float(rate_floor(right, np.arange(1, len(right) + 1), ALPHA).max())
    return max(0.0, math.log(best / (1.0 - best)))


def fixed(score: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """The exact bound at each of a few numbers of guesses; each is valid for who fixed that number beforehand."""
    from discreet.audit.binomial import rate_floor

    sizes = np.unique(np.geomspace(10, len(score), 60).astype(int))
    rate = rate_floor(np.cumsum(surest_first(score, inside))[sizes - 1], sizes, ALPHA)
    return np.log(np.maximum(rate / (1.0 - rate), 1.0))


def tightness(law: str, epsilon: float, targets: int, runs: int, seed: int = 1) -> dict[str, Any]:
    """The default's mean bound beside the uncorrected maximum's, and beside that of the best number of guesses if known."""
    delta = 0.0 if law == "laplace" else DELTA
    generator = np.random.default_rng([seed, LAWS.index(law), round(2 * epsilon), targets])
    ours, theirs, known = [], [], []
    for _ in range(runs):
        score, inside = scores(law, epsilon, targets, generator)
        ours.append(METHODS["betting"](score, inside, np.zeros(targets, dtype=np.int64), delta, ALPHA))
        theirs.append(uncorrected(score, inside))
        known.append(fixed(score, inside))
    surer = sureness(law, epsilon, delta)
    median = median_ceiling(surer, epsilon, targets, ALPHA)
    return {
        "law": law, "epsilon": epsilon, "delta": delta, "targets": targets, "runs": runs, "default": float(np.mean(ours)),
        "spread": float(np.std(ours)), "uncorrected": float(np.mean(theirs)), "share": float(np.mean(ours) / np.mean(theirs)),
        "uncorrected_false_claims": float(np.mean(np.array(theirs) > epsilon)),
        "best_threshold_known": float(np.mean(known, axis=0).max()),
        "default_median": float(np.median(ours)), "uncorrected_median": float(np.median(theirs)),
        "ceiling_median": median, "ceiling_mean": mean_ceiling(surer, epsilon, targets, ALPHA),
        "share_of_ceiling": float(np.median(ours) / median), "ceiling_share": median / float(np.median(theirs)),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few runs of few settings, to see that it works")
    parser.add_argument("--tightness", action="store_true", help="the tightness table alone")
    parser.add_argument("--only", choices=tuple(METHODS), help="one bound alone; its rows replace those of --out")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    runs, tight_runs = (100, 20) if asked.quick else (asked.runs, 200)
    targets = () if asked.tightness else TARGETS[:2] if asked.quick else TARGETS
    began = time.perf_counter()
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(asked.jobs) as pool:
        # The longest settings first, so that no worker ends late and alone.
        jobs = [
            pool.submit(false_claims, law, e, m, runs, 0, asked.only)
            for m in sorted(targets, reverse=True)
            for law in LAWS
            for e in EPSILONS
            if not (asked.only in GAUSSIAN_ONLY and law != "gaussian")
        ]
        laws = () if asked.only else LAWS
        tight = [pool.submit(tightness, law, e, 10_000, tight_runs) for law in laws for e in EPSILONS[1:]]
        for job in jobs:
            rows += job.result()
            print(f"{len(rows)} rows after {time.perf_counter() - began:.0f} s", file=sys.stderr)
        tables = [job.result() for job in tight]
    report = {
        "confidence": 1 - ALPHA,
        "seconds": round(time.perf_counter() - began, 1), "calibration": rows, "tightness": tables,
        "assumption": "fdp and gaussian assume a Gaussian trade-off and are shown for Gaussian noise only",
    }  # fmt: skip
    if asked.only and asked.out:
        report = _merged(json.loads(asked.out.read_text()), report, asked.only)
    else:
        show(report)
    write(asked.out, report)
    return int(any(row["rate"] > row["limit"] for row in rows))


def _merged(before: dict[str, Any], report: dict[str, Any], only: str) -> dict[str, Any]:
    """The report as it was, with the rows of one bound measured anew, each in its place."""
    key = ("law", "epsilon", "targets", "bound", "design")
    anew = {tuple(row[name] for name in key): row for row in report["calibration"]}
    rows = [anew.get(tuple(row[name] for name in key), row) for row in before["calibration"]]
    kept = {name: value for name, value in before.items() if name not in ("date", "machine")}
    return {**kept, "calibration": rows, "remeasured": only}


def show(report: dict[str, Any]) -> None:
    """Two tables for people."""
    for bound, design in VARIANTS if report["calibration"] else ():
        mine = [row for row in report["calibration"] if (row["bound"], row["design"]) == (bound, design)]
        worst = max(mine, key=lambda row: row["rate"])
        where = f"{worst['law']} {worst['epsilon']:g}, {worst['targets']} targets"
        print(f"{bound:16s} {design:10s} most false claims {worst['rate']:.2%} (allowed {worst['limit']:.2%}) at {where}")
    print("\nmeans     epsilon  default  uncorrected  share  its false claims  best threshold known  ceiling")
    for row in report["tightness"]:
        print(
            f"{row['law']:9s} {row['epsilon']:7g} {row['default']:8.3f} {row['uncorrected']:12.3f} {row['share']:6.1%} "
            f"{row['uncorrected_false_claims']:17.1%} {row['best_threshold_known']:21.3f} {row['ceiling_mean']:8.3f}"
        )
    print("\nmedians   epsilon  default  uncorrected  ceiling  default / ceiling  ceiling / uncorrected")
    for row in report["tightness"]:
        print(
            f"{row['law']:9s} {row['epsilon']:7g} {row['default_median']:8.3f} {row['uncorrected_median']:12.3f} "
            f"{row['ceiling_median']:8.3f} {row['share_of_ceiling']:18.1%} {row['ceiling_share']:22.1%}"
        )


if __name__ == "__main__":
    sys.exit(main())
