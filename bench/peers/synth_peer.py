"""One fit of a peer's synthesiser, run by the Python of the peer's own environment; prints a line of JSON.

    PEER/bin/python bench/peers/synth_peer.py PEER CODES.npy SIZES.json OUT.npy EPSILON DELTA SEED DEGREE

Peers: mbi-mst and mbi-aim (the mechanisms of McKenna et al. written on mbi's estimation, since its wheel has the estimation
only), dpmm-mst, dpmm-aim, snsynth-mst, snsynth-aim. DEGREE is that of the workload of aim: all pairs or all triples. Add or
remove one row; the same (epsilon, delta) by the tight conversion of zCDP. CPU-seconds are the process's, without imports.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
import time
from itertools import chain, combinations
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd


def rho_for(epsilon: float, delta: float) -> float:
    """The largest rho that (epsilon, delta) allows (Canonne, Kamath & Steinke 2020, Corollary 13)."""
    orders = 1 + np.geomspace(1e-3, 1e5, 20_000)

    def least_delta(rho: float) -> float:
        return float(np.min((orders - 1) * (orders * rho - epsilon) + orders * np.log1p(-1 / orders) - np.log(orders - 1)))

    low, high = 0.0, epsilon + 1
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if least_delta(middle) <= math.log(delta) else (low, middle)
    return low


class Mbi:
    """Counts, noise and estimation for mechanisms on mbi."""

    def __init__(self, codes: pd.DataFrame, sizes: dict[str, int], seed: int) -> None:
        import jax

        jax.config.update("jax_enable_x64", True)
        import mbi

        self.mbi, self.codes, self.sizes = mbi, {name: codes[name].to_numpy() for name in sizes}, sizes
        self.domain = mbi.Domain(list(sizes), list(sizes.values()))
        self.random = np.random.default_rng(seed)
        np.random.seed(seed)

    def cells(self, columns: tuple[str, ...]) -> int:
        return math.prod(self.sizes[name] for name in columns)

    def counts(self, columns: tuple[str, ...]) -> np.ndarray:
        cell = np.ravel_multi_index([self.codes[name] for name in columns], [self.sizes[name] for name in columns])
        return np.bincount(cell, minlength=self.cells(columns)).astype(float)

    def noisy(self, columns: tuple[str, ...], sigma: float) -> Any:
        counts = self.counts(columns)
        return self.mbi.LinearMeasurement(counts + self.random.normal(0, sigma, counts.size), columns, sigma)

    def estimate(self, measured: list[Any], rounds: int, **how: Any) -> Any:
        return self.mbi.estimation.MirrorDescent().estimate(self.domain, measured, iters=rounds, **how)

    def choose(self, scores: list[float], epsilon: float, sensitivity: float) -> int:
        return int(np.argmax(0.5 * epsilon / sensitivity * np.array(scores) + self.random.gumbel(size=len(scores))))

    def of(self, model: Any, columns: tuple[str, ...]) -> np.ndarray:
        return np.asarray(model.project(columns).datavector())

    def megabytes(self, cliques: list[tuple[str, ...]]) -> float:
        return float(self.mbi.junction_tree.hypothetical_model_size(self.domain, cliques))


def mbi_mst(it: Mbi, rho: float, degree: int) -> Any:
    names = list(it.sizes)
    sigma = math.sqrt(3 / (2 * rho))
    measured = [it.noisy((name,), sigma * math.sqrt(len(names))) for name in names]
    model = it.estimate(measured, 1000)
    ones, total = {name: it.of(model, (name,)) for name in names}, float(model.total)
    pairs = list(combinations(names, 2))
    gaps = {(a, b): np.abs(it.counts((a, b)) - np.outer(ones[a], ones[b]).ravel() / total).sum() for a, b in pairs}
    epsilon, part = math.sqrt(8 * (rho / 3) / (len(names) - 1)), {name: name for name in names}
    for _ in range(len(names) - 1):
        open_ = [(a, b) for a, b in pairs if part[a] != part[b]]
        a, b = open_[it.choose([gaps[pair] for pair in open_], epsilon, 1.0)]
        measured.append(it.noisy((a, b), sigma * math.sqrt(len(names) - 1)))
        part = {name: part[a] if group == part[b] else group for name, group in part.items()}
    return it.estimate(measured, 5000)


def aim(it: Mbi, rho: float, degree: int, megabytes: float = 80.0) -> Any:
    """Algorithm 2 of McKenna, Mullins, Sheldon & Miklau 2022."""
    names = list(it.sizes)
    work = [columns for columns in combinations(names, degree) if it.cells(columns) <= 10_000]
    inside = sorted({part for columns in work for size in range(1, degree + 1) for part in combinations(columns, size)})
    weights = {columns: sum(len(set(columns) & set(each)) for each in work) for columns in inside}
    rounds = 16 * len(names)
    sigma, epsilon = math.sqrt(rounds / (2 * 0.9 * rho)), math.sqrt(8 * 0.1 * rho / rounds)
    measured = [it.noisy((name,), sigma) for name in names]
    used, last = len(names) * 0.5 / sigma**2, False
    model = it.estimate(measured, 1000)
    while not last:
        if rho - used < 2 * (0.5 / sigma**2 + epsilon**2 / 8):
            sigma, epsilon, last = math.sqrt(1 / (1.8 * (rho - used))), math.sqrt(0.8 * (rho - used)), True
        used += epsilon**2 / 8 + 0.5 / sigma**2
        known = {part for c in model.cliques for part in chain.from_iterable(combinations(sorted(c, key=names.index), n)
                 for n in range(1, len(c) + 1))}  # fmt: skip
        open_ = [c for c in inside if c in known or it.megabytes([*model.cliques, c]) <= megabytes * used / rho]
        before = {columns: it.of(model, columns) for columns in open_}
        doubt = math.sqrt(2 / math.pi) * sigma
        scores = [weights[c] * (np.abs(it.counts(c) - before[c]).sum() - doubt * it.cells(c)) for c in open_]
        chosen = open_[it.choose(scores, epsilon, max(weights[c] for c in open_))]
        measured.append(it.noisy(chosen, sigma))
        model = it.estimate(measured, 1000, warm_start=model)
        if np.abs(it.of(model, chosen) - before[chosen]).sum() <= doubt * it.cells(chosen):
            sigma, epsilon = sigma / 2, epsilon * 2
    return model


def by_mbi(kind: str, codes: pd.DataFrame, sizes: dict[str, int], epsilon: float, delta: float, seed: int, degree: int) -> Any:
    it = Mbi(codes, sizes, seed)
    began = time.process_time()
    model = {"mst": mbi_mst, "aim": aim}[kind](it, rho_for(epsilon, delta), degree)
    fitted = time.process_time() - began
    rows = model.synthetic_data(rows=len(codes)).to_dict()
    return pd.DataFrame({name: np.asarray(rows[name]) for name in sizes}), fitted


def by_dpmm(kind: str, codes: pd.DataFrame, sizes: dict[str, int], epsilon: float, delta: float, seed: int, degree: int) -> Any:
    from dpmm.models import aim, mst

    random = np.random.RandomState(seed)
    known: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "domain": sizes, "random_state": random, "n_jobs": 1}
    model = mst.MSTGM(**known) if kind == "mst" else aim.AIMGM(degree=degree, **known)
    model.set_random_state(random)
    began = time.process_time()
    model.fit(codes)
    fitted = time.process_time() - began
    return model.generate(n_records=len(codes)), fitted


def by_snsynth(
    kind: str, codes: pd.DataFrame, sizes: dict[str, int], epsilon: float, delta: float, seed: int, degree: int
) -> Any:
    from snsynth.aim import AIMSynthesizer
    from snsynth.mst import MSTSynthesizer

    np.random.seed(seed)
    known: dict[str, Any] = {"epsilon": epsilon, "delta": delta}
    model = MSTSynthesizer(**known) if kind == "mst" else AIMSynthesizer(degree=degree, **known)
    began = time.process_time()
    model.fit(codes, categorical_columns=list(codes.columns), preprocessor_eps=0.0)
    fitted = time.process_time() - began
    return model.sample(len(codes)), fitted


def main() -> None:
    peer, place, sizes_at, out, epsilon, delta, seed, degree = sys.argv[1:]
    sizes = {name: int(size) for name, size in json.loads(Path(sizes_at).read_text()).items()}
    codes = pd.DataFrame(np.load(place).astype(np.int64), columns=list(sizes))
    library, kind = peer.split("-")
    run = {"mbi": by_mbi, "dpmm": by_dpmm, "snsynth": by_snsynth}[library]
    rows, fitted = run(kind, codes, sizes, float(epsilon), float(delta), int(seed), int(degree))
    rows = pd.DataFrame(rows)
    rows.columns = list(sizes) if set(rows.columns) != set(sizes) else rows.columns
    np.save(out, rows[list(sizes)].to_numpy().astype(np.uint16))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"fit_cpu_s": fitted, "memory_mb": memory}))


if __name__ == "__main__":
    main()
