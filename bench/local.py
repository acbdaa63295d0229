"""Local privacy: variance against theory and pure-ldp, encoding speed against pure-ldp, and the price of trusting nobody.

    python bench/local.py [--pure-ldp PYTHON] [--rounds N] [--out bench/results/local.json] [--plot docs/theory/local-error.svg]

Variances are mean squared errors of all estimated shares over the closed form, with their standard error. Times are CPU
time, medians over the rounds, ours and the peer's in turn. pure-ldp is a peer and lives in an environment of its own:
`--pure-ldp` names a Python that has it (with scikit-learn, and xxhash below 3, which it needs and does not say).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from _record import write
from discreet.noise import discrete_laplace
from discreet.noise.source import seeded_for_tests
from discreet.query import local

EPSILON, PEOPLE, SIZES = 1.0, 1000, (8, 64)
ESTIMATES, PEER_ESTIMATES = 128_000, 6400  # shares estimated for each variance: repeats times categories
PEER_PEOPLE, PEER_ENCODED, ENCODED = 500, 4000, 100_000
OURS = {
    "k-ary": local.KaryResponse, "SUE": local.SymmetricUnary, "OUE": local.OptimalUnary,
    "OLH": local.LocalHashing, "Hadamard": local.HadamardResponse,
}  # fmt: skip

PEER = """
import json, random, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
from importlib.metadata import version
from pure_ldp.frequency_oracles import *
print(version("pure-ldp"), flush=True)
def made(name, e, k):
    if name == "k-ary": return DEClient(e, k), DEServer(e, k)
    if name in ("SUE", "OUE"): return UEClient(e, k, use_oue=name == "OUE"), UEServer(e, k, use_oue=name == "OUE")
    if name == "OLH": return LHClient(e, k, use_olh=True), LHServer(e, k, use_olh=True)
    s = HadamardResponseServer(e, k); return HadamardResponseClient(e, k, s.get_hash_funcs()), s
for line in sys.stdin:
    what, name, e, k, n, repeats = line.split()
    e, k, n, repeats = float(e), int(k), int(n), int(repeats)
    x = (np.arange(n) % k).tolist()
    client, server = made(name, e, k)
    if what == "encode":
        start = time.process_time()
        for v in x: client.privatise(v + 1)
        print(time.process_time() - start, flush=True)
        continue
    random.seed(7); np.random.seed(7); f, errors = np.bincount(x, minlength=k) / n, []
    for _ in range(repeats):
        client, server = made(name, e, k)
        for v in x: server.aggregate(client.privatise(v + 1))
        errors.append(float(np.mean((np.asarray(server.estimate_all(range(1, k + 1)), float) / n - f) ** 2)))
    print(json.dumps(errors), flush=True)
"""


class Peer:
    """pure-ldp in its own process."""

    def __init__(self, python: str) -> None:
        self.process = subprocess.Popen(
            [python, "-c", PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        self.version = self.process.stdout.readline().strip()

    def ask(self, what: str, name: str, size: int, people: int, repeats: int = 1) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(what, name, EPSILON, size, people, repeats, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def ratio(errors: list[float], theory: float) -> dict[str, float]:
    """The mean squared error over theory, with the standard error of that ratio."""
    scaled = np.array(errors) / theory
    return {"ratio": round(float(scaled.mean()), 4), "standard_error": round(float(scaled.std() / math.sqrt(len(scaled))), 4)}


def variances(peer: Peer | None) -> list[dict[str, Any]]:
    rows = []
    for size in SIZES:
        for name, make in OURS.items():
            oracle, truth = make(EPSILON, size), np.arange(PEOPLE) % size
            share = np.bincount(truth, minlength=size) / PEOPLE
            theory = float(np.mean([oracle.variance(PEOPLE, float(f)) for f in share]))
            with seeded_for_tests(f"variance {name} {size}".encode()):
                errors = [
                    float(np.mean((oracle.estimate(oracle.encode(truth), 0.95).estimate - share) ** 2))
                    for _ in range(ESTIMATES // size)
                ]
            row: dict[str, Any] = {"oracle": name, "categories": size, "standard_deviation": round(math.sqrt(theory), 5)}
            row["ours"] = ratio(errors, theory)
            if peer:
                found = peer.ask("errors", name, size, PEER_PEOPLE, PEER_ESTIMATES // size)
                row["pure_ldp"] = ratio(found, theory * PEOPLE / PEER_PEOPLE)
            rows.append(row)
            print(json.dumps(row), file=sys.stderr)
    return rows


def means() -> list[dict[str, Any]]:
    rows = []
    for make in (local.OneBitMean, local.PiecewiseMean):
        for epsilon in (1.0, 3.0):
            oracle, truth = make(epsilon, 0.0, 1.0), np.full(PEOPLE, 0.75)
            theory = oracle.variance(PEOPLE, 0.75)
            with seeded_for_tests(f"mean {make.__name__} {epsilon}".encode()):
                found = [oracle.estimate(oracle.encode(truth), 0.95).estimate for _ in range(ESTIMATES // 4)]
            row = {"mechanism": make.__name__, "epsilon": epsilon, "standard_deviation": round(math.sqrt(theory), 5)}
            rows.append({**row, "ours": ratio([(x - 0.75) ** 2 for x in found], theory)})
    return rows


def seconds(oracle: Any, truth: Any) -> float:
    start = time.process_time()
    oracle.encode(truth)
    return time.process_time() - start


def speeds(peer: Peer | None, rounds: int) -> list[dict[str, Any]]:
    rows = []
    for size in SIZES:
        for name, make in OURS.items():
            oracle, truth = make(EPSILON, size), np.arange(ENCODED) % size
            ours, theirs = [], []
            for _ in range(rounds):
                ours.append(seconds(oracle, truth) / ENCODED * 1e9)
                if peer:
                    theirs.append(peer.ask("encode", name, size, PEER_ENCODED) / PEER_ENCODED * 1e9)
            row: dict[str, Any] = {"oracle": name, "categories": size, "cpu_ns_per_report": round(statistics.median(ours), 1)}
            if peer:
                row["pure_ldp_cpu_ns_per_report"] = round(statistics.median(theirs), 1)
                row["pure_ldp_times_ours"] = round(statistics.median(t / o for t, o in zip(theirs, ours)), 1)
            rows.append(row)
    return rows


def trust() -> list[dict[str, Any]]:
    """The root mean squared error of one share, among n people, at epsilon 1: central Laplace noise, and one bit from each."""
    rows = []
    with seeded_for_tests(b"trust"):
        for people in (100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000):
            repeats = min(max(2_000_000 // people, 300), 20_000)
            yes = int(0.3 * people)
            central = discrete_laplace(1 / EPSILON, 200_000) / people
            oracle, truth = local.KaryResponse(EPSILON, 2), np.repeat([1, 0], [yes, people - yes])
            each = [oracle.estimate(oracle.encode(truth), 0.95).estimate[1] - yes / people for _ in range(repeats)]
            rows.append({
                "people": people, "local_repeats": repeats,
                "central": float(f"{math.sqrt(float(np.mean(central**2))):.4g}"),
                "local": float(f"{math.sqrt(float(np.mean(np.square(each)))):.4g}"),
                "central_lecture": 1 / (EPSILON * people), "local_lecture": float(f"{1 / (EPSILON * math.sqrt(people)):.4g}"),
            })  # fmt: skip
    return rows


COLOURS = {"local": "#d9541e", "central": "#3b6fd4"}


def plot(rows: list[dict[str, Any]]) -> str:
    """Error against people, both on a log scale, with the lecture's rates dashed."""
    left, right, top, bottom = 64, 480, 30, 300

    def at(people: float, error: float) -> str:
        x = left + (right - left) * (math.log10(people) - 2) / 4
        y = top + (bottom - top) * -math.log10(error) / 6
        return f"{x:.1f} {y:.1f}"

    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 520 350" role="img" font-family="system-ui, sans-serif" '
        'font-size="12" fill="#555">', "<title>Error of a share at epsilon 1, by how many people are asked</title>",
    ]  # fmt: skip
    parts.append('<text x="8" y="14">error of the share (root mean square), epsilon 1</text>')
    for power in range(7):
        x, y = at(100, 10.0**-power).split()
        parts.append(f'<path d="M{x} {y} H{right}" stroke="#999" stroke-opacity="0.3"/>')
        parts.append(f'<text x="{left - 6}" y="{y}" dy="4" text-anchor="end">{10.0**-power:g}</text>')
    for power in range(2, 7):
        x, _ = at(10.0**power, 1).split()
        parts.append(f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{10**power:,}</text>')
    for name, colour in COLOURS.items():
        measured = " L".join(at(row["people"], row[name]) for row in rows)
        lecture = " L".join(at(row["people"], row[f"{name}_lecture"]) for row in rows)
        parts.append(f'<path d="M{measured}" fill="none" stroke="{colour}" stroke-width="2.4"/>')
        parts.append(f'<path d="M{lecture}" fill="none" stroke="{colour}" stroke-width="1.2" stroke-dasharray="4 4"/>')
    for name, place, says in (
        ("local", 0.0012, "local, measured; dashed 1/(ε√n)"),
        ("central", 5e-6, "central, measured; dashed 1/(εn)"),
    ):
        x, y = at(1400 if name == "local" else 130, place * (60 if name == "local" else 1)).split()
        parts.append(f'<text x="{x}" y="{y}" fill="{COLOURS[name]}">{says}</text>')
    parts.append(f'<text x="{(left + right) / 2:.0f}" y="{bottom + 40}" text-anchor="middle">people asked</text></svg>')
    return "".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pure-ldp", metavar="PYTHON", help="a Python that has pure-ldp")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    parser.add_argument("--plot", type=Path, help="write the picture of central and local error as SVG")
    options = parser.parse_args()
    peer: Peer | None = Peer(options.pure_ldp or sys.executable)
    if not peer.version:
        peer.close()
        peer = None
        print("pure-ldp is not at hand: left out. Name a Python that has it: --pure-ldp PYTHON", file=sys.stderr)
    speed, spread, numbers, models = speeds(peer, options.rounds), variances(peer), means(), trust()
    if peer:
        peer.close()
    for row in [*speed, *spread, *numbers, *models]:
        print(json.dumps(row))
    if options.plot:
        options.plot.write_text(plot(models), encoding="utf-8")
    write(options.out, {
        "pure_ldp": peer.version if peer else None, "epsilon": EPSILON, "people": PEOPLE, "estimates": ESTIMATES,
        "rounds": options.rounds, "speed": speed, "variance": spread, "means": numbers, "trust": models,
    }, "cryptography")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
