"""The accountant against dp-accounting's and, where installed, Opacus's PRV: time, excess and memory, interleaved.

    python bench/accounting.py [--quick] [--near 3e-5] [--out bench/results/accounting.json]

Everything runs in this process on one thread; times are CPU times, the least of the rounds. dp-accounting is timed at the
coarsest grid at which its answer is within `--near` of ours. The ratio depends on that choice: 3e-5 is how near the truth
ours is aimed to be, 1e-4 allows the peer a coarser grid and so more speed. Opacus runs as it comes, which is less
accurate. It is a peer with pins of its own: run this file by a Python that has it, with PYTHONPATH=src, to include it.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import itertools
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np

from _record import write
from discreet.accounting import Exponential, Gaussian, Laplace, Poisson, Repeat, Sequence, calibrate, curve

warnings.simplefilter("ignore")
DELTA = 1e-5


def cpu(work: Callable[..., float], *arguments: float) -> tuple[float, float]:
    start = time.process_time()
    answer = work(*arguments)
    return time.process_time() - start, answer


def ours(sigma: float, rate: float, times: int) -> float:
    return curve(Repeat(Poisson(rate, Gaussian(sigma)), times)).epsilon(DELTA)


def dp_accounting(sigma: float, rate: float, times: int, step: float = 1e-4) -> float:
    import dp_accounting as peer
    from dp_accounting import pld

    accountant = pld.PLDAccountant(value_discretization_interval=step)
    accountant.compose(peer.SelfComposedDpEvent(peer.PoissonSampledDpEvent(rate, peer.GaussianDpEvent(sigma)), times))
    return float(accountant.get_epsilon(DELTA))


def opacus(sigma: float, rate: float, times: int) -> float:
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(sigma, rate, times)]
    return float(accountant.get_epsilon(DELTA))


def epsilon_table(quick: bool, near: float) -> list[dict]:
    peers: dict[str, Callable[..., float]] = {"dp-accounting": dp_accounting}
    try:
        import opacus as _  # noqa: F401

        peers["opacus"] = opacus
    except ImportError:
        print("(Opacus is not installed here: left out)")
    sigmas, rates, counts = (0.5, 0.8, 1.0, 2.0, 4.0), (0.001, 0.01, 0.1), (1, 100, 1000, 10_000, 60_000)
    if quick:
        sigmas, rates, counts = (1.0,), (0.01,), (1000, 10_000)
    return [epsilon_row(peers, near, *point) for point in itertools.product(sigmas, rates, counts)]


def equal_step(sigma: float, rate: float, times: int, near: float) -> float:
    """The coarsest grid at which dp-accounting comes this near our answer; 1e-4 where none does quickly."""
    aim = ours(sigma, rate, times) * (1 + near)
    for step in (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6):
        seconds, epsilon = cpu(dp_accounting, sigma, rate, times, step)
        if epsilon <= aim:
            return step
        if seconds > 5:
            break
    return 1e-4


def epsilon_row(peers: dict[str, Callable[..., float]], near: float, sigma: float, rate: float, times: int) -> dict:
    row: dict = {"sigma": sigma, "rate": rate, "times": times, "dp-accounting step": equal_step(sigma, rate, times, near)}
    found: dict[str, list[float]] = {}
    for turn in range(3):
        for name, work in {"ours": ours, **peers}.items():
            if name == "opacus" and times > 10_000:
                continue  # minutes and gigabytes
            if turn and name != "ours" and found[name][0] > 3:
                continue  # one look at a slow one is enough
            grid = (row["dp-accounting step"],) if name == "dp-accounting" else ()
            seconds, row[f"{name} epsilon"] = cpu(work, sigma, rate, times, *grid)
            found.setdefault(name, []).append(seconds)
    for name, seconds in found.items():
        row[f"{name} ms"] = round(1e3 * min(seconds), 2)
        if name != "ours":
            row[f"{name} ratio"] = round(min(seconds) / min(found["ours"]), 1)
    row["excess over dp-accounting"] = row["ours epsilon"] / row["dp-accounting epsilon"] - 1
    print(
        f"sigma {sigma:<4} rate {rate:<6} times {times:<6} epsilon {row['ours epsilon']:<12.6g}{row['ours ms']:8.1f} ms", end=""
    )
    for name in found.keys() - {"ours"}:
        print(f" | {name} {row[f'{name} epsilon']:<12.6g}x{row[f'{name} ratio']:<7}", end="")
    print(flush=True)
    return row


def accuracy(quick: bool) -> dict:
    """Our epsilon over dp-accounting's pessimistic one, at three deltas."""
    from dp_accounting.pld import privacy_loss_distribution as peer

    excess = []
    sigmas, rates, counts = (0.5, 1.0, 2.0, 4.0), (0.001, 0.01, 0.1), (1, 100, 10_000, 60_000)
    if quick:
        sigmas, rates, counts = (1.0,), (0.01,), (100, 10_000)
    for sigma, rate, times in itertools.product(sigmas, rates, counts):
        step = 1e-3 if times * rate / sigma > 5000 else 1e-4  # the peer would need gigabytes
        theirs = peer.from_gaussian_mechanism(sigma, sampling_prob=rate, value_discretization_interval=step)
        theirs = theirs.self_compose(times)
        found = curve(Repeat(Poisson(rate, Gaussian(sigma)), times))
        excess += [found.epsilon(d) / theirs.get_epsilon_for_delta(d) - 1 for d in (1e-5, 1e-7, 1e-9)]
    result = {"points": len(excess), "largest excess": max(excess), "least excess": min(excess)}
    print(result, flush=True)
    return result


def calibration(quick: bool) -> list[dict]:
    import dp_accounting as peer
    from dp_accounting import pld

    rows = []
    for epsilon, rate, times in ((3.0, 0.01, 1000),) if quick else ((3.0, 0.01, 1000), (1.0, 0.01, 10_000), (8.0, 0.02, 2000)):

        def theirs(epsilon=epsilon, rate=rate, times=times) -> float:
            return peer.calibrate_dp_mechanism(
                lambda: pld.PLDAccountant(value_discretization_interval=1e-4),
                lambda s: peer.SelfComposedDpEvent(peer.PoissonSampledDpEvent(rate, peer.GaussianDpEvent(s)), times),
                epsilon, DELTA, bracket_interval=peer.ExplicitBracketInterval(0.4, 4.0), tol=1e-6,
            )  # fmt: skip

        def mine(epsilon=epsilon, rate=rate, times=times) -> float:
            return calibrate(lambda s: Repeat(Poisson(rate, Gaussian(s)), times), epsilon, DELTA)

        one, sigma = min(cpu(mine) for _ in range(3))
        two, peer_sigma = cpu(theirs)
        rows.append(
            {"epsilon": epsilon, "rate": rate, "times": times, "ours ms": round(one * 1e3, 1), "ours sigma": sigma,
             "dp-accounting ms": round(two * 1e3, 1), "dp-accounting sigma": peer_sigma, "ratio": round(two / one, 1)}
        )  # fmt: skip
        print(
            f"calibrate to {epsilon}: sigma {sigma:.6f} in {one * 1e3:.0f} ms; dp-accounting {peer_sigma:.6f}, x{two / one:.1f}"
        )
    return rows


def mixed() -> dict:
    """100 distinct Laplace, 1000 distinct Gaussian and, beyond what the peer knows, 50 exponential mechanisms."""
    from dp_accounting.pld import privacy_loss_distribution as peer

    rng = np.random.default_rng(0)
    scales, sigmas = rng.uniform(20, 200, 100).round(3), rng.uniform(60, 300, 1000).round(3)
    events = [*(Laplace(s) for s in scales), *(Gaussian(s) for s in sigmas)]

    def theirs() -> float:
        composed = None
        for scale in scales:
            one = peer.from_laplace_mechanism(float(scale), value_discretization_interval=1e-3)
            composed = one if composed is None else composed.compose(one)
        for sigma in sigmas:
            composed = composed.compose(peer.from_gaussian_mechanism(float(sigma), value_discretization_interval=1e-3))
        return float(composed.get_epsilon_for_delta(1e-6))

    one, epsilon = min(cpu(lambda: curve(Sequence(events)).epsilon(1e-6)) for _ in range(3))
    more = events + [Exponential(0.02 + i * 1e-5) for i in range(50)]
    three, with_exponential = min(cpu(lambda: curve(Sequence(more)).epsilon(1e-6)) for _ in range(3))
    two, peer_epsilon = cpu(theirs)
    print(
        f"100 Laplace + 1000 Gaussian: {epsilon:.5f} in {one * 1e3:.0f} ms; "
        f"dp-accounting (1e-3) {peer_epsilon:.5f}, x{two / one:.1f}; "
        f"with 50 exponential: {with_exponential:.5f} in {three * 1e3:.0f} ms"
    )
    return {
        "epsilon": epsilon, "ours ms": round(one * 1e3, 1), "dp-accounting epsilon": peer_epsilon, "ratio": round(two / one, 1),
        "with 50 exponential": with_exponential, "with 50 exponential ms": round(three * 1e3, 1),
    }  # fmt: skip


MEMORY = r"""
import re, sys
def top(): return int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]) / 1024
sigma, rate, times = float(sys.argv[1]), 0.01, 1000
if sys.argv[2] == "ours":
    import scipy.fft, scipy.special
    from discreet.accounting import *
    before = top(); curve(Repeat(Poisson(rate, Gaussian(sigma)), times)).epsilon(1e-5)
else:
    import dp_accounting as peer
    from dp_accounting import pld
    before = top()
    a = pld.PLDAccountant()
    a.compose(peer.PoissonSampledDpEvent(rate, peer.GaussianDpEvent(sigma)))
    a.get_epsilon(1e-5)
print(top() - before)
"""


def memory(quick: bool) -> list[dict]:
    rows = []
    for sigma in (0.03, 1.0) if quick else (0.01, 0.03, 0.1, 1.0, 100.0, 1e6):
        row: dict = {"sigma": sigma}
        for who in ("ours", "dp-accounting"):
            if who != "ours" and sigma < 0.03:
                continue  # tens of gigabytes
            done = subprocess.run([sys.executable, "-c", MEMORY, str(sigma), who], capture_output=True, text=True, check=False)
            row[f"{who} MB"] = round(float(done.stdout), 1) if done.returncode == 0 else "failed"
        rows.append(row)
        print(f"memory at sigma {sigma}: {row}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few points only")
    parser.add_argument("--near", type=float, default=3e-5, help="how near our answer dp-accounting must come to be timed")
    parser.add_argument("--out", help="write the figures here as JSON")
    options = parser.parse_args()
    ours(1.0, 0.01, 100), dp_accounting(1.0, 0.01, 100, 1e-3)  # imports
    table = epsilon_table(options.quick, options.near)
    summary = {
        "near": options.near,
        "median ratio to dp-accounting": statistics.median(r["dp-accounting ratio"] for r in table),
        "least ratio to dp-accounting": min(r["dp-accounting ratio"] for r in table),
        "median ms": statistics.median(r["ours ms"] for r in table),
        "largest ms": max(r["ours ms"] for r in table),
        "largest excess over dp-accounting": max(r["excess over dp-accounting"] for r in table),
    }
    print(summary)
    result = {
        "summary": summary, "epsilon": table, "accuracy": accuracy(options.quick),
        "calibration": calibration(options.quick), "mixed": mixed(),
        "memory": memory(options.quick),
    }  # fmt: skip
    write(options.out, result, "dp-accounting", "opacus")


if __name__ == "__main__":
    main()
