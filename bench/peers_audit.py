"""Our auditor pointed at peers: published faults are found again, each in seconds.

    python bench/peers_audit.py --diffprivlib PYTHON --opendp PYTHON [--out bench/results/peers_audit.json]

PYTHON is an interpreter that has the peer installed (diffprivlib==0.6.6 with scikit-learn<1.9; opendp[polars]==0.16.0);
a peer without one is left out. The peer's interpreter only runs the peer's mechanism on the two neighbouring inputs and
sends the answers through a pipe; everything else happens here. The same distinguisher and the same bound are used for all,
at 95 %: nothing is tuned to a fault.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from _record import write
from discreet.audit import epsilon_lower_bound, learn

CONFIDENCE = 0.999  # seven are looked at, and one of them has no fault

# Each script defines run(inside) -> a float, and prints nothing; `claim` and `delta` are what the peer says of it.
DIFFPRIVLIB = """
import warnings; warnings.simplefilter("ignore")
from diffprivlib import mechanisms
claim, delta = 1.0, {delta}
mechanism = mechanisms.{name}(epsilon=1.0, sensitivity=1{more})
def run(inside): return mechanism.randomise(1.0 if inside else 0.0)
"""
NUMPY = """
generator = numpy.random.default_rng()
claim, delta = 1.0, 0.0
def run(inside): return float(inside) + generator.laplace()
"""
OPENDP_VECTOR = """
import opendp.prelude as dp
dp.enable_features("contrib")
space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l1_distance(T=float)
mechanism = dp.m.make_laplace(*space, scale=1.0)
claim, delta = mechanism.map(1.0), 0.0
def run(inside): return mechanism([1.0 if inside else 0.0])[0]
"""
# The shape of opendp/opendp issue 2945: the three rows of a group of at most three rows are all replaced (distance 6).
OPENDP_GROUPS = """
import opendp.prelude as dp, polars as pl
dp.enable_features("contrib")
schema = {"A": pl.String, "B": pl.Int32}
columns = [dp.series_domain("A", dp.atom_domain(T=str)), dp.series_domain("B", dp.atom_domain(T="i32"))]
margin = dp.polars.Margin(by=["A"], max_length=3, max_groups=1, invariant="keys")
plan = pl.LazyFrame(schema=schema).group_by("A").agg(pl.col("B").dp.sum((-10, 10), scale=30.0))
mechanism = dp.m.make_private_lazyframe(
    dp.with_margin(dp.lazyframe_domain(columns), margin), dp.symmetric_distance(), dp.max_divergence(), plan)
claim, delta = mechanism.map(6), 0.0
data = [pl.LazyFrame({"A": ["a"] * 3, "B": [value] * 3}, schema=schema) for value in (-10, 10)]
def run(inside): return float(mechanism(data[inside]).collect()["B"].item())
"""
# Run in the peer's interpreter: fair coins, one run each, all answers back as one array.
PLAYER = """
import io, json, sys, numpy
source, runs = json.loads(sys.stdin.read())
exec(source)
coins = [bool(coin) for coin in numpy.random.default_rng().integers(0, 2, runs)]
answers = numpy.array([run(coin) for coin in coins], dtype=float)
buffer = io.BytesIO()
numpy.savez(buffer, coins=coins, answers=answers, claim=float(claim), delta=float(delta))
sys.stdout.buffer.write(buffer.getvalue())
"""


def cases(asked: argparse.Namespace) -> list[tuple[str, str, str, int, float]]:
    """Name, interpreter, script, runs, and the least epsilon that the published fault shows."""
    found = [("numpy laplace", sys.executable, NUMPY, 20_000, 5.0)]
    if asked.diffprivlib:
        for name, delta, more in (
            ("Laplace", 0.0, ""),
            ("Staircase", 0.0, ""),
            ("Gaussian", 1e-5, ", delta=1e-5"),
            ("GaussianAnalytic", 1e-5, ", delta=1e-5"),
        ):
            script = DIFFPRIVLIB.format(name=name, delta=delta, more=more)
            found.append((f"diffprivlib {name}", asked.diffprivlib, script, 60_000, 5.0))
    if asked.opendp:
        found.append(("opendp grouped sum, margin max_length=3", asked.opendp, OPENDP_GROUPS, 7000, 1.7))
        found.append(("opendp laplace (no fault known)", asked.opendp, OPENDP_VECTOR, 20_000, 0.0))
    return found


def answers(python: str, script: str, runs: int) -> Any:
    """The peer's answers, from its own interpreter."""
    # OpenDP's threads gain nothing here and crowd a small machine.
    quiet = {**os.environ, "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [python, "-c", PLAYER], input=json.dumps([script, runs]).encode(), stdout=subprocess.PIPE, check=True, env=quiet
    )
    return np.load(io.BytesIO(done.stdout))


def measured(name: str, python: str, script: str, runs: int, expected: float) -> dict[str, Any]:
    """The claim beside what the auditor finds."""
    began = time.perf_counter()
    found = answers(python, script, runs)
    played = time.perf_counter() - began
    outputs, inside, learned = found["answers"], found["coins"], runs // 3
    delta, claim = float(found["delta"]), float(found["claim"])
    witness = learn(outputs[:learned], inside[:learned], view=frozenset({"answers"}), delta=delta)
    score = witness.score_all(outputs[learned:])
    floor = epsilon_lower_bound(score, inside[learned:], np.arange(learned, runs), delta, CONFIDENCE)
    return {
        "mechanism": name, "claimed": round(claim, 4), "delta": delta, "measured_at_least": round(floor, 2), "by": witness.name,
        "runs": runs, "confidence": CONFIDENCE, "refuted": floor > claim, "as_published": floor >= expected,
        "seconds": round(time.perf_counter() - began, 1), "of_which_running_the_peer": round(played, 1),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--diffprivlib", metavar="PYTHON")
    parser.add_argument("--opendp", metavar="PYTHON")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows = []
    for case in cases(asked):
        rows.append(measured(*case))
        row = rows[-1]
        print(
            f"{row['mechanism']:42s} claims {row['claimed']:.3g}, measured >= {row['measured_at_least']:.2f} "
            f"{'REFUTED' if row['refuted'] else 'holds':8s} {row['seconds']:5.1f} s  [{row['by']}]",
            flush=True,
        )
    write(asked.out, {"peers": {"diffprivlib": "0.6.6", "opendp": "0.16.0", "numpy": np.__version__}, "rows": rows})
    return int(not all(row["as_published"] and row["seconds"] < 10 for row in rows))


if __name__ == "__main__":
    sys.exit(main())
