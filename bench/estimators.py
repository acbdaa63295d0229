"""Private estimators against diffprivlib and DP-EBM on Adult, ACS and MEPS: accuracy, R2, CPU time of a fit, and an audit.

    estimators.py [--data FOLDER] [--diffprivlib PYTHON] [--dpebm PYTHON] [--seeds N] [--peer-seeds N] [--audit RUNS]

Features are zeros and ones of public bins and categories; nothing is learned from the data but the models. diffprivlib is pure
epsilon with a row replaced; ours and DP-EBM are (epsilon, 1e-6) with a row added or removed. Peers have environments of
their own. The margin and the rule for alpha were chosen on Adult; ACS and MEPS confirm them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import beta
from sklearn.base import clone
from sklearn.linear_model import LinearRegression as Plain
from sklearn.linear_model import LogisticRegression as PlainLogistic
from sklearn.model_selection import ParameterGrid

from _record import write
from discreet import record
from discreet.learn import GaussianNB, LinearRegression, LinearSVC, LogisticRegression, PrivateSearchCV
from discreet.noise import exponential

EPSILONS, DELTA = [0.1, 0.5, 1.0, 3.0, 8.0], 1e-6
PEERS = Path(__file__).parent / "peers"
LINEAR = "audit of diffprivlib 0.6.6, linear regression"
Table = dict[str, Any]

COLUMNS = "age workclass fnlwgt education education_num marital occupation relationship race sex gain loss hours country income"
WORDS = {  # the code book of Adult, and "?"
    "workclass": "Private,Self-emp-not-inc,Self-emp-inc,Federal-gov,Local-gov,State-gov,Without-pay,Never-worked,?",
    "marital": "Married-civ-spouse,Divorced,Never-married,Separated,Widowed,Married-spouse-absent,Married-AF-spouse",
    "occupation": "Tech-support,Craft-repair,Other-service,Sales,Exec-managerial,Prof-specialty,Handlers-cleaners,"
    "Machine-op-inspct,Adm-clerical,Farming-fishing,Transport-moving,Priv-house-serv,Protective-serv,Armed-Forces,?",
    "relationship": "Wife,Own-child,Husband,Not-in-family,Other-relative,Unmarried",
    "race": "White,Asian-Pac-Islander,Amer-Indian-Eskimo,Other,Black",
    "sex": "Female,Male",
}
EDGES = {
    "age": [25, 30, 35, 40, 45, 50, 55, 60, 65], "hours": [20, 35, 40, 41, 45, 50, 60], "education_num": list(range(2, 17)),
    "gain": [1, 3000, 5000, 7000, 10000], "loss": [1, 1500, 1800, 2000, 2300],
}  # fmt: skip
RANGES = {"age": (17, 90), "education_num": (1, 16), "gain": (0, 100_000), "loss": (0, 4500), "hours": (1, 99)}


def hot(values: Any, known: Any) -> Any:
    return (np.asarray(values)[:, None] == np.asarray(known)[None]).astype(float)


def adult(folder: Path) -> Table:
    """Income above 50,000; the train and test files as they are."""
    frames = [
        pd.read_csv(
            folder / f"adult/{name}.gz", names=COLUMNS.split(), skipinitialspace=True, skiprows=skip, comment="|"
        ).dropna()
        for name, skip in (("adult.data", 0), ("adult.test", 0))
    ]
    made: Table = {"norm": len(WORDS) ** 0.5, "numeric": [True] * len(RANGES) + [False] * len(WORDS)}
    for frame, end in zip(frames, ("", "t")):
        words = [hot(frame[name], known.split(",")) for name, known in WORDS.items()]
        bins = [hot(np.digitize(frame[name].astype(float), edges), range(len(edges) + 1)) for name, edges in EDGES.items()]
        made["x" + end] = np.hstack(words + bins)
        made["y" + end] = frame["income"].str.contains(">50K").to_numpy().astype(int)
        codes = [hot(frame[name], known.split(",")).argmax(1) for name, known in WORDS.items()]
        made["raw" + end] = np.stack([frame[name].astype(float) for name in RANGES] + codes, 1)
        share = np.stack(
            [((frame[name].astype(float) - low) / (high - low)).clip(0, 1) for name, (low, high) in RANGES.items()], 1
        )
        rest = [0, 2, 3, 4]
        made |= {"xr": share[:, rest], "yr": share[:, 1]} if not end else {"xq": share[:, rest], "yq": share[:, 1]}
    made["norm"] = float((len(WORDS) + len(EDGES)) ** 0.5)
    made["raw_bounds"] = [*RANGES.values(), *((0, len(known.split(",")) - 1) for known in WORDS.values())]
    return made


def coded(frame: pd.DataFrame, sizes: dict[str, int], target: Any, keep: int) -> Table:
    """Columns of codes 0, 1, … as zeros and ones, split at random in two thirds and one."""
    order = np.random.default_rng(0).permutation(len(frame))[:keep]
    codes = np.stack([np.clip(frame[name].to_numpy()[order].astype(int), 0, size - 1) for name, size in sizes.items()], 1)
    x = np.hstack([hot(codes[:, i], range(size)) for i, size in enumerate(sizes.values())])
    y, cut = np.asarray(target)[order].astype(int), 2 * len(order) // 3
    return {
        "x": x[:cut], "y": y[:cut], "xt": x[cut:], "yt": y[cut:], "norm": len(sizes) ** 0.5, "raw": codes[:cut].astype(float),
        "rawt": codes[cut:].astype(float), "numeric": [name in ("AGE", "EDUC") for name in sizes],
        "raw_bounds": [(0, size - 1) for size in sizes.values()],
    }  # fmt: skip


def acs(folder: Path) -> Table:
    """Private health insurance."""
    known = json.loads((folder / "acs/acs-domain.json").read_text())
    names = ["SEX", "AGE", "MARST", "RACE", "HISPAN", "CITIZEN", "SPEAKENG", "EDUC", "EMPSTAT", "YEAR"]
    frame = pd.read_parquet(folder / "acs/acs_coded.parquet")
    return coded(frame, {name: known[name] for name in names}, frame["HCOVPRIV"] == 1, 60_000)


def meps(folder: Path) -> Table:
    """Ten or more visits in the year, from age, answers and diagnoses; codes below 1 mean not asked or not known."""
    frame = pd.read_parquet(folder / "meps/meps2015.parquet")
    target = frame[["OBTOTV", "OPTOTV", "ERTOT", "IPNGTD", "HHTOTD"]].sum(axis=1) >= 10
    sizes = {"SEX": 3, "RACEV2X": 13, "HISPANX": 3, "REGION": 5, "INSCOV": 4, "POVCAT": 6, "RTHLTH": 6, "MNHLTH": 6, "EMPST": 5}
    sizes |= dict.fromkeys(("WLKLIM", "ACTLIM", "SOCLIM", "COGLIM"), 3)
    sizes |= {name: 3 for name in frame.columns if name.endswith("DX")}
    frame = frame.assign(AGE=np.digitize(frame["AGE"], [10, 18, 25, 35, 45, 55, 65, 75]))
    return coded(frame, {"AGE": 9, **sizes}, target, len(frame))


TABLES: dict[str, Callable[[Path], Table]] = {"adult": adult, "acs": acs, "meps": meps}


def ours(table: Table, seeds: int, only: str | None = None) -> list[dict[str, Any]]:
    """Our fits, and scikit-learn's without privacy, one after another."""
    x, y, xt, yt = (table[name] for name in ("x", "y", "xt", "yt"))
    public: dict[str, Any] = {"delta": DELTA, "unit": record(), "classes": [0, 1]}
    norm = table["norm"]
    kinds: dict[str, Callable[[float], Any]] = {
        "logistic": lambda e: LogisticRegression(epsilon=e, norm=norm, **public),
        "logistic, margin 0": lambda e: LogisticRegression(epsilon=e, norm=norm, margin=0.0, **public),
        "logistic, output": lambda e: LogisticRegression(epsilon=e, norm=norm, solver="output", **public),
        "logistic, descent": lambda e: LogisticRegression(epsilon=e, norm=norm, solver="descent", **public),
        "linear SVM": lambda e: LinearSVC(epsilon=e, norm=norm, **public),
        "naive Bayes": lambda e: GaussianNB(epsilon=e, bounds=(0, 1), **public),
    }
    out = [] if only else [plain(x, y, xt, yt)]
    for name, make in kinds.items():
        if only not in (None, name):
            continue
        for epsilon in EPSILONS:
            began, scores = time.process_time(), []
            for _ in range(seeds if name == "logistic" else max(seeds // 4, 1)):
                scores.append(float((make(epsilon).fit(x, y).predict(xt) == yt).mean()))
            spent = (time.process_time() - began) / len(scores)
            out.append({"model": name, "epsilon": epsilon, "scores": scores, "cpu_s": spent})
    if "xr" in table and not only:
        out += regression(*(table[name] for name in ("xr", "yr", "xq", "yq")), seeds)
    return out


def plain(x: Any, y: Any, xt: Any, yt: Any) -> dict[str, Any]:
    began = time.process_time()
    model = PlainLogistic(max_iter=500).fit(x, y)
    spent = time.process_time() - began
    return {"model": "logistic, not private", "epsilon": None, "scores": [float(model.score(xt, yt))], "cpu_s": spent}


def regression(x: Any, y: Any, xt: Any, yt: Any, seeds: int) -> list[dict[str, Any]]:
    out = [
        {
            "model": "linear regression, not private",
            "epsilon": None,
            "scores": [float(Plain().fit(x, y).score(xt, yt))],
            "cpu_s": None,
        }
    ]
    for epsilon in EPSILONS:
        made = LinearRegression(epsilon=epsilon, delta=DELTA, norm=x.shape[1] ** 0.5, bounds=(0, 1), unit=record())
        scores = [float(made.fit(x, y).score(xt, yt)) for _ in range(seeds)]
        out.append({"model": "linear regression", "epsilon": epsilon, "scores": scores, "cpu_s": None})
    return out


GRID = {"margin": [0.0, 1.0, 2.0], "alpha": ["auto", 100.0]}


def searched(table: Table, seeds: int) -> list[dict[str, Any]]:
    """A private search over six settings, and the same by basic composition: a sixth of four fifths of epsilon for each fit."""
    x, y, xt, yt = (table[name] for name in ("x", "y", "xt", "yt"))
    public: dict[str, Any] = {"norm": table["norm"], "unit": record(), "classes": [0, 1]}
    out = []
    for epsilon in EPSILONS[1:]:
        one = LogisticRegression(epsilon=epsilon, delta=DELTA, **public)
        private = [PrivateSearchCV(one, GRID, epsilon=epsilon, delta=DELTA).fit(x, y).score(xt, yt) for _ in range(seeds)]
        split = [naive(one, x, y, epsilon).score(xt, yt) for _ in range(seeds)]
        out.append({"epsilon": epsilon, "private search": list(map(float, private)), "naive split": list(map(float, split))})
        print(f"search {epsilon:4g}  {np.mean(private):.4f}, naive split {np.mean(split):.4f} ({seeds})", flush=True)
    return out


def naive(one: Any, x: Any, y: Any, epsilon: float) -> Any:
    settings = list(ParameterGrid(GRID))
    kept = np.random.default_rng().random(len(y)) < 0.2
    share = {"epsilon": 0.8 * epsilon / len(settings), "delta": DELTA / len(settings)}
    fits = [clone(one).set_params(**setting, **share).fit(x[~kept], y[~kept]) for setting in settings]
    return fits[exponential([-int((each.predict(x[kept]) != y[kept]).sum()) for each in fits], 0.2 * epsilon, 1)]


def peer(python: str, script: str, *given: str) -> Any:
    done = subprocess.run([python, str(PEERS / script), *given], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def audited(python: str, runs: int, which: str = "audit") -> dict[str, Any]:
    """The least epsilon, at confidence 0.95, that diffprivlib's two worlds are apart."""
    found: dict[str, Any] = peer(python, "diffprivlib_estimators.py", which, str(runs))
    gone, there = found["hits"]
    low, high = beta.ppf(0.025, there, runs - there + 1), beta.ppf(0.975, gone + 1, runs - gone)
    return {**found, "epsilon_at_least": float(np.log(low / high))}


def shown(name: str, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        mean, spread, cpu = np.mean(row["scores"]), np.std(row["scores"]), row["cpu_s"]
        where = "" if row["epsilon"] is None else f"{row['epsilon']:g}"
        took = "" if cpu is None else f"{cpu:6.2f} CPU-s"
        print(
            f"{name:6} {row['by']:11} {row['model']:32} {where:>4}  {mean:.4f} ± {spread:.4f} ({len(row['scores'])})  {took}",
            flush=True,
        )


def repeat(given: argparse.Namespace) -> None:
    """Our fits of one model, in place of those in the file."""
    kept = json.loads(Path(given.out).read_text())["results"]
    if given.only == "search":
        kept["search on adult"] = searched(adult(Path(given.data)), given.seeds)
        write(given.out, {"delta": DELTA, "results": kept}, "scikit-learn")
        return
    if given.only == "linear audit":
        kept[LINEAR] = audited(given.diffprivlib, given.audit, "audit_linear")
        print(kept[LINEAR])
        write(given.out, {"delta": DELTA, "results": kept}, "scikit-learn")
        return
    for name in given.tables.split(","):
        rows = [{"by": "discreet", **row} for row in ours(TABLES[name](Path(given.data)), given.seeds, given.only)]
        shown(name, rows)
        others = [row for row in kept[name]["fits"] if (row["by"], row["model"]) != ("discreet", given.only)]
        kept[name]["fits"] = others + rows
    write(given.out, {"delta": DELTA, "results": kept}, "scikit-learn")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--tables", default="adult,acs,meps")
    parser.add_argument("--diffprivlib")
    parser.add_argument("--dpebm")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--peer-seeds", type=int, default=5)
    parser.add_argument("--audit", type=int, default=0, help="refits of diffprivlib in each world")
    parser.add_argument(
        "--only", help="repeat our fits of this model, the search, or the linear audit, in place of those in --out"
    )
    parser.add_argument("--out")
    given = parser.parse_args()
    if given.only:
        repeat(given)
        return
    results: dict[str, Any] = {}
    for name in given.tables.split(","):
        table = TABLES[name](Path(given.data))
        rows = [{"by": "discreet", **row} for row in ours(table, given.seeds)]
        with tempfile.TemporaryDirectory() as folder:
            place = str(Path(folder) / "table.npz")
            np.savez(place, **table)
            asked = json.dumps({"seeds": given.peer_seeds, "epsilons": EPSILONS, "delta": DELTA})
            for by, python in (("diffprivlib", given.diffprivlib), ("dpebm", given.dpebm)):
                if python:
                    rows += [{"by": by, **row} for row in peer(python, f"{by}_estimators.py", place, asked)]
        shown(name, rows)
        results[name] = {"rows": len(table["y"]), "columns": table["x"].shape[1], "fits": rows}
    if given.audit:
        results["audit of diffprivlib 0.6.6"] = audited(given.diffprivlib, given.audit)
        print(results["audit of diffprivlib 0.6.6"])
        results[LINEAR] = audited(given.diffprivlib, given.audit // 10, "audit_linear")
        print(results[LINEAR])
    write(given.out, {"delta": DELTA, "results": results}, "scikit-learn")


if __name__ == "__main__":
    main()
