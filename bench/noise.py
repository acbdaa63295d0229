"""Exact noise against numpy's (insecure) float samplers and OpenDP's vector samplers, interleaved in one run.

    python bench/noise.py [--opendp PYTHON] [--rounds N] [--out bench/results/noise.json]

All times are CPU time, medians over the rounds. OpenDP is a peer and lives in an environment of its own: `--opendp`
names a Python that has it; without it, this Python is tried. It is left out at a million values, where one call takes
ten seconds and the time per value is the same.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from _record import write

SIZES = (20_000, 100_000, 1_000_000)
SCALES = (1, 100, 10_000)
KINDS = ("laplace", "gaussian")
PEER_SIZES = (20_000, 100_000)
PEER_ROUNDS = 3  # a call takes up to a second and a half

PEER = """
import sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np, opendp
import opendp.prelude as dp
from importlib.metadata import version
dp.enable_features("contrib")
print(version("opendp"), flush=True)
space = dp.vector_domain(dp.atom_domain(T="i64"))
make = {"laplace": lambda s: dp.m.make_laplace(space, dp.l1_distance(T="i64"), scale=s),
        "gaussian": lambda s: dp.m.make_gaussian(space, dp.l2_distance(T="i64"), scale=s)}
made = {}
for line in sys.stdin:
    kind, scale, count = line.split()
    measure = made.setdefault((kind, scale), make[kind](float(scale)))
    zeros = np.zeros(int(count), dtype=np.int64)
    start = time.process_time(); measure(zeros); print(time.process_time() - start, flush=True)
"""


class Peer:
    """OpenDP in its own process, timed there."""

    def __init__(self, python: str) -> None:
        self.process = subprocess.Popen(
            [python, "-c", PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        self.version = self.process.stdout.readline().strip()

    def seconds(self, kind: str, scale: float, count: int) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(kind, scale, count, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def seconds(function: Callable[..., Any], *args: Any, repeat: int = 1) -> float:
    start = time.process_time()
    for _ in range(repeat):
        function(*args)
    return (time.process_time() - start) / repeat


def measure(peer: Peer | None, rounds: int) -> list[dict[str, Any]]:
    import numpy as np

    from discreet import noise

    rng = np.random.default_rng()
    ours = {"laplace": noise.discrete_laplace, "gaussian": noise.discrete_gaussian}
    first = {(kind, scale): seconds(ours[kind], scale, 65) for kind in KINDS for scale in SCALES}
    times: dict[tuple[Any, ...], list[float]] = {}
    cases = [(kind, scale, size) for size in SIZES for scale in SCALES for kind in KINDS]
    for number in range(rounds):
        for kind, scale, size in cases:
            repeat = max(1, 100_000 // size)  # enough work for the clock
            found = {
                "ours": seconds(ours[kind], scale, size, repeat=repeat),
                "numpy laplace": seconds(rng.laplace, 0, scale, size, repeat=repeat),
                "numpy normal": seconds(rng.normal, 0, scale, size, repeat=repeat),
            }
            if peer and size in PEER_SIZES and number < PEER_ROUNDS:
                found["opendp"] = peer.seconds(kind, scale, size)
            for name, taken in found.items():
                times.setdefault((kind, scale, size, name), []).append(taken / size * 1e9)
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return [row(times, case, first[case[:2]]) for case in cases]


def row(times: dict[tuple[Any, ...], list[float]], case: tuple[Any, ...], first: float) -> dict[str, Any]:
    kind, scale, size = case
    median = {name: statistics.median(found) for (*key, name), found in times.items() if tuple(key) == case}
    mine = median["ours"]
    found: dict[str, Any] = {
        "noise": kind, "scale": scale, "size": size, "first_call_ms": round(first * 1e3, 2),
        "cpu_ns_per_value": {name: round(value, 2) for name, value in median.items()},
        "times_numpy_laplace": round(mine / median["numpy laplace"], 3),
        "times_numpy_normal": round(mine / median["numpy normal"], 3),
    }  # fmt: skip
    if "opendp" in median:
        found["opendp_times_ours"] = round(median["opendp"] / mine, 1)
    return found


def show(rows: list[dict[str, Any]]) -> None:
    print(
        f"{'exact noise':>12} {'scale':>7} {'values':>9} {'ns each':>8} {'x laplace':>10} {'x normal':>9} {'OpenDP/ours':>12}"
    )
    for item in rows:
        print(
            f"{item['noise']:>12} {item['scale']:>7} {item['size']:>9} {item['cpu_ns_per_value']['ours']:>8.1f} "
            f"{item['times_numpy_laplace']:>10.2f} {item['times_numpy_normal']:>9.2f} "
            f"{item.get('opendp_times_ours', '-'):>12}"
        )
    print("ns each: CPU nanoseconds per exact value. x laplace, x normal: that over numpy's float sampler in the same run.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--opendp", metavar="PYTHON", help="a Python that has opendp")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    options = parser.parse_args()
    peer: Peer | None = Peer(options.opendp or sys.executable)
    if not peer.version:
        peer.close()
        peer = None
        print("opendp is not at hand: left out. Name a Python that has it: --opendp PYTHON", file=sys.stderr)
    rows = measure(peer, options.rounds)
    if peer:
        peer.close()
    show(rows)
    write(
        options.out, {"opendp": peer.version if peer else None, "rounds": options.rounds, "rows": rows}, "cryptography"
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
