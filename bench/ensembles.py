"""Boosted trees, k-means, components and centred regression against DP-EBM and diffprivlib, on the tables of estimators.py.

    ensembles.py [--data FOLDER] --diffprivlib PYTHON --dpebm PYTHON [--seeds N] [--peer-seeds N] [--out FILE]

Accuracy or R2 on rows that were not trained on, by epsilon; for k-means the mean squared distance to the nearest centre (less
is better), for components the share of variance that two keep, both of Adult's five numbers scaled by their public ranges.
delta is 1e-6, with a row added or removed; diffprivlib is pure epsilon with a row replaced. DP-EBM gets columns as they are,
and bins them itself. The settings of ours were chosen with a quarter of the training rows held out, of all three tables.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans as PlainKMeans
from sklearn.decomposition import PCA as PlainPCA

from _record import commit, write
from discreet import record
from discreet.learn import PCA, HistGradientBoostingClassifier, HistGradientBoostingRegressor, KMeans, LinearRegression
from estimators import DELTA, EDGES, EPSILONS, RANGES, TABLES, Table, peer

Row = dict[str, Any]
PRIVATE: dict[str, Any] = {"delta": DELTA, "unit": record()}


def row(by: str, model: str, epsilon: float | None, scores: Any, cpu_s: float | None = None) -> Row:
    found = {"by": by, "model": model, "epsilon": epsilon, "scores": list(map(float, scores)), "cpu_s": cpu_s}
    print(
        f"{by:12} {model:28} {epsilon}  {np.mean(found['scores']):.4f} ({len(found['scores'])})  {cpu_s or 0:.2f}", flush=True
    )
    return found


def boosted(name: str, table: Table, seeds: int) -> list[Row]:
    kinds = table["numeric"]
    edges = [EDGES[key] for key in RANGES] if name == "adult" else []
    given = {
        **PRIVATE, "bounds": table["raw_bounds"], "classes": [0, 1], "edges": edges + [None] * (len(kinds) - len(edges)),
        "categorical_features": [place for place, number in enumerate(kinds) if not number],
    }  # fmt: skip
    out = []
    for epsilon in EPSILONS:
        spent, scores = 0.0, []
        for _ in range(seeds):
            began = time.process_time()
            model = HistGradientBoostingClassifier(epsilon=epsilon, **given).fit(table["raw"], table["y"])
            spent += time.process_time() - began
            scores.append((model.predict(table["rawt"]) == table["yt"]).mean())
        out.append(row("discreet", "boosted trees", epsilon, scores, spent / seeds))
    return out


def regressions(table: Table, seeds: int) -> list[Row]:
    x, y, xt, yt = (table[name] for name in ("xr", "yr", "xq", "yq"))
    norm = x.shape[1] ** 0.5 / 2  # of rows that are centred by their public ranges
    out = []
    for epsilon in EPSILONS:
        trees = HistGradientBoostingRegressor(epsilon=epsilon, **PRIVATE, bounds=(0, 1), target_bounds=(0, 1), n_bins=32)
        line = LinearRegression(epsilon=epsilon, **PRIVATE, norm=norm, bounds=(0, 1))
        out.append(row("discreet", "boosted trees, regression", epsilon, [trees.fit(x, y).score(xt, yt) for _ in range(seeds)]))
        scores = [line.fit(x - 0.5, y).score(xt - 0.5, yt) for _ in range(seeds)]
        out.append(row("discreet", "linear regression, centred", epsilon, scores))
    return out


def distance(x: Any, centres: Any) -> float:
    return float(np.min([np.square(x - np.asarray(each)).sum(axis=1) for each in centres], axis=0).mean())


def kept(x: Any, components: Any) -> float:
    covariance, basis = np.cov(x.T), np.linalg.qr(np.asarray(components).T)[0]
    return float(np.trace(basis.T @ covariance @ basis) / np.trace(covariance))


def unsupervised(x: Any, seeds: int) -> list[Row]:
    plain = PlainKMeans(8, n_init=10, random_state=0).fit(x).cluster_centers_
    out = [row("scikit-learn", "k-means", None, [distance(x, plain)])]
    out.append(row("scikit-learn", "components", None, [kept(x, PlainPCA(2).fit(x).components_)]))
    for epsilon in EPSILONS:
        began = time.process_time()
        found = [KMeans(8, epsilon=epsilon, **PRIVATE, bounds=(0, 1)).fit(x).cluster_centers_ for _ in range(seeds)]
        spent = (time.process_time() - began) / seeds
        out.append(row("discreet", "k-means", epsilon, [distance(x, each) for each in found], spent))
        parts = [PCA(2, epsilon=epsilon, **PRIVATE, norm=5**0.5 / 2).fit(x - 0.5).components_ for _ in range(seeds)]
        out.append(row("discreet", "components", epsilon, [kept(x, each) for each in parts]))
    return out


def theirs(found: list[Row], x: Any) -> list[Row]:
    """What diffprivlib found, judged as ours is."""
    judge = {"k-means": lambda each: distance(x, each["found"]), "components": lambda each: kept(x, each["found"])}
    out = []
    for model in ("k-means", "components", "random forest"):
        for epsilon in EPSILONS:
            some = [each for each in found if (each["model"], each["epsilon"]) == (model, epsilon)]
            score = judge.get(model, lambda each: each["score"])
            if some:
                out.append(row("diffprivlib", model, epsilon, [score(each) for each in some]))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--diffprivlib", required=True)
    parser.add_argument("--dpebm", required=True)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--peer-seeds", type=int, default=5)
    parser.add_argument("--out")
    given = parser.parse_args()
    results: dict[str, Any] = {}
    for name, make in TABLES.items():
        table, asked = make(given.data), json.dumps({"seeds": given.peer_seeds, "epsilons": EPSILONS, "delta": DELTA})
        found = boosted(name, table, given.seeds)
        low, high = np.array(list(RANGES.values()), float).T
        with tempfile.TemporaryDirectory() as folder:
            place = str(Path(folder) / "table.npz")
            if name == "adult":
                table["share"] = ((table["raw"][:, :5] - low) / (high - low)).clip(0, 1)
            np.savez(place, **table)
            found += [row("dpebm", *(each[key] for key in ("model", "epsilon", "scores", "cpu_s")))
                      for each in peer(given.dpebm, "dpebm_estimators.py", place, asked)]  # fmt: skip
            if name == "adult":
                found += regressions(table, given.seeds) + unsupervised(table["share"], given.seeds)
                found += theirs(peer(given.diffprivlib, "diffprivlib_estimators.py", "others", place, asked), table["share"])
        results[name] = {"rows": len(table["y"]), "columns": table["raw"].shape[1], "fits": found}
    write(given.out, {"commit": commit(), "delta": DELTA, "results": results}, "scikit-learn")


if __name__ == "__main__":
    main()
