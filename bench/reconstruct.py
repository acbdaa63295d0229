"""How many secret bits come back from published counts: exact, slightly wrong, and private.

    python bench/reconstruct.py [--out FILE]

Each row is played with several seeds for the secret, the questions and the errors; private noise is always fresh.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from _record import write
from discreet.attack import (
    Bounded,
    Counts,
    Differencing,
    Reconstruction,
    SecretBits,
    best_guess,
    guesses,
    leave_one_out_queries,
)
from discreet.audit import Pair, audit
from discreet.core import record
from discreet.noise import LaplaceNoise

SEEDS = range(5)
SWAP = record("replace")


def played(mechanism: Any, attack: Any, worlds: Any, runs: int = 1, threshold: float = 0.0) -> tuple[float, float]:
    began = time.process_time()
    found = guesses(audit(mechanism, attack, worlds, runs=runs), threshold=threshold)
    return found.share, time.process_time() - began


def row(kind: str, people: int, questions: int, method: str, error: float) -> dict[str, Any]:
    """One setting over all seeds: `error` is the largest error, or epsilon where the answers are private."""
    shares, seconds, most = [], [], 1.0
    for seed in SEEDS:
        if kind == "private":
            mechanism = Counts(LaplaceNoise(questions / error, 1, SWAP), most=questions)
        else:
            mechanism = Counts(Bounded(int(error), seed=seed) if error else None, most=None)
        attack = Reconstruction(people, questions=questions, method=method, seed=seed)
        runs = 20 if kind == "private" else 1  # near chance, the spread of a single run would hide the figure
        share, taken = played(mechanism, attack, SecretBits(people, seed=seed), runs)
        shares.append(share)
        seconds.append(taken)
        most = best_guess(mechanism.claims()[0])
    return {
        "answers": kind, "people": people, "questions": questions, "method": method,
        "epsilon" if kind == "private" else "largest_error": error,
        "share_right": {"mean": statistics.mean(shares), "least": min(shares), "most": max(shares)},
        "claim_allows": most, "logistic_of_epsilon": 1 / (1 + float(np.exp(-error))) if kind == "private" else None,
        "cpu_seconds_median": round(statistics.median(seconds), 3),
    }  # fmt: skip


def averaging() -> list[dict[str, Any]]:
    """Rick's grade from two questions asked again and again; 400 rounds each."""
    with_rick, without = np.array([True] * 5), np.array([True] * 4 + [False])
    rows = []
    for name, remember, most in (("fresh noise, no end", False, None), ("remembered", True, 2), ("a budget of 2", False, 2)):
        for times in (1, 10, 100, 1000):
            mechanism = Counts(LaplaceNoise(4, 1, SWAP), most=most, remember=remember)
            attack = Differencing(leave_one_out_queries(5), times=times)
            share, _ = played(mechanism, attack, Pair(with_rick, without, 4, seed=1), runs=400, threshold=0.5)
            rows.append({"answers": name, "times": times, "share_right": share, "rounds": 400})
    return rows


SETTINGS = [
    ("exact", 16, 65, "exhaustive", 0), ("bounded", 16, 65, "exhaustive", 1),
    *[("bounded" if error else "exact", 128, 512, method, error) for error in (0, 1, 2, 4, 8)
      for method in ("least_squares", "linear_program")],
    *[("bounded", 2000, questions, "least_squares", error) for questions in (8000, 16000) for error in (5, 10, 19)],
    *[("private", 128, 512, "least_squares", epsilon) for epsilon in (0.1, 1.0, 4.0, 16.0, 64.0, 256.0)],
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results") / "reconstruct.json")
    given = parser.parse_args()
    rows = []
    for setting in SETTINGS:
        rows.append(row(*setting))
        share = rows[-1]["share_right"]
        print(
            *setting,
            f"{share['mean']:.1%} ({share['least']:.1%} to {share['most']:.1%}); allowed {rows[-1]['claim_allows']:.1%}",
        )
    again = averaging()
    for each in again:
        print(each)
    write(given.out, {"seeds": list(SEEDS), "reconstruction": rows, "averaging": again})


if __name__ == "__main__":
    main()
