"""Synthetic tables: error, accuracy of models trained on them, CPU-seconds and memory, on Adult, ACS and NLTCS.

    python bench/synth.py [--data FOLDER] [--part adult,acs,…] [--jobs 2] [--out FILE] [--plot FILE]

Each fit runs in a process of its own, which reports its CPU-seconds (all threads, without imports; one of BLAS, whose others
would only wait) and its peak memory. tv1, tv2 and tv3 are mean total variations over all columns, all pairs and 100 fixed
triples (all triples of NLTCS) against the private table; AUC is that of gradient boosting trained on synthetic rows and tested
on real ones that were held out. Noise is fresh in every repeat, five of each; Adult is split anew for each of them, by seeds
that no setting was chosen on. `aim` is asked for all triples. Wall times are those of a machine that others may use: the load
average stands beside them. Environments of peers are in .venv/peers, or where PEERS says.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from _record import commit, write
from _synth_plot import drawn

DELTA, REPEATS = 1e-9, 5
LIMIT = 120  # CPU-seconds that a peer may take
FRESH = (3001, 3002, 3003, 3004, 3005)  # splits of Adult that are reported; settings were chosen on 1 and 2 (see `settings`)


def spread(values: list[float]) -> dict[str, float]:
    return {"mean": round(statistics.mean(values), 4), "least": round(min(values), 4), "most": round(max(values), 4)}


# ---- one fit, in its own process ---------------------------------------------------------------------------------------


def child(place: str, out: str, method: str, epsilon: float, rows: int) -> None:
    import duckdb  # noqa: F401
    import pyarrow.parquet as parquet
    import scipy.optimize  # noqa: F401
    from cryptography.hazmat.primitives import ciphers  # noqa: F401

    from discreet import accounting  # noqa: F401
    from discreet.core import record
    from discreet.query.engines import duckdb as engine  # noqa: F401
    from discreet.synth import Column, fit

    sizes = json.loads(Path(place).with_suffix(".json").read_text())
    schema = {name: Column("categorical", values=tuple(range(size)), required=True) for name, size in sizes.items()}
    parquet.read_schema(place)
    began = time.process_time(), time.perf_counter()
    workload = list(itertools.combinations(sizes, 3)) if method == "aim" else None
    model = fit(place, unit=record(), epsilon=epsilon, delta=DELTA, schema=schema, method=method, workload=workload).value
    fitted = time.process_time() - began[0], time.perf_counter() - began[1]
    began_sampling = time.process_time()
    codes = model.sample(rows).codes()
    sampled = time.process_time() - began_sampling
    status = Path("/proc/self/status").read_text().split()
    memory = int(status[status.index("VmHWM:") + 1]) / 1024
    began_sampling = time.process_time()
    model.sample(rows).to_parquet(Path(out).with_suffix(".sampled.parquet"))
    written = time.process_time() - began_sampling
    Path(out).with_suffix(".sampled.parquet").unlink()
    np.save(out, codes.astype(np.uint8 if max(sizes.values()) <= 256 else np.uint16))
    print(json.dumps({
        "fit_cpu_s": fitted[0], "fit_s": fitted[1], "sampled_rows_per_cpu_s": rows / sampled,
        "written_rows_per_cpu_s": rows / written, "memory_mb": memory,
        "gap": model.gap, "converged": model.converged, "tables": len(model.measurements),
        "cells": model.tree.cells, "rows": model.rows,
    }))  # fmt: skip


def fitted(place: Path, method: str, epsilon: float, rows: int) -> tuple[dict[str, Any], np.ndarray]:
    out = place.with_suffix(".npy")
    command = [sys.executable, __file__, "--child", str(place), str(out), method, str(epsilon), str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{method} on {place.stem} failed ({done.returncode}): {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1]), np.load(out).astype(np.int64)


# ---- tables --------------------------------------------------------------------------------------------------------------


def stored(folder: Path, name: str, codes: np.ndarray, sizes: dict[str, int]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    place = folder / f"{name}.parquet"
    parquet.write_table(pa.table({column: codes[:, i] for i, column in enumerate(sizes)}), place)
    place.with_suffix(".json").write_text(json.dumps(sizes))
    return place


def adult(data: Path, split: int = FRESH[0]) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
    """39,073 rows to fit and 9,769 held out."""
    import pandas as pd

    frame = pd.read_csv(data / "adult/adult-discrete.csv.gz")
    domain = pd.read_json(data / "adult/adult-domain.json", typ="series")
    order = np.random.default_rng(split).permutation(len(frame))
    codes = frame.to_numpy()[order]
    return codes[:39_073], codes[39_073:], {name: int(domain[name]) for name in frame.columns}


def coded(data: Path, name: str) -> tuple[np.ndarray, dict[str, int]]:
    import pandas as pd

    frame = pd.read_parquet(data / "acs/acs_coded.parquet") if name == "acs" else pd.read_csv(data / "nltcs/nltcs.csv.gz")
    domain = pd.read_json(data / f"{name}/{name}-domain.json", typ="series")
    return frame.to_numpy().astype(np.int64), {column: int(domain[column]) for column in frame.columns}


# ---- measures ------------------------------------------------------------------------------------------------------------


def shares(codes: np.ndarray, columns: tuple[int, ...], sizes: list[int]) -> np.ndarray:
    cell = np.zeros(len(codes), np.int64)
    for column in columns:
        cell = cell * sizes[column] + codes[:, column]
    return np.bincount(cell, minlength=int(np.prod([sizes[c] for c in columns]))) / len(codes)


class Distance:
    """Total variation of marginals to those of one table."""

    def __init__(self, codes: np.ndarray, sizes: dict[str, int], triples: int | None = 100) -> None:
        self.sizes = list(sizes.values())
        columns = range(len(self.sizes))
        every = list(itertools.combinations(columns, 3))
        chosen = (
            every
            if triples is None
            else [every[i] for i in np.random.default_rng(1).choice(len(every), triples, replace=False)]
        )
        self.sets = {"tv1": [(i,) for i in columns], "tv2": list(itertools.combinations(columns, 2)), "tv3": chosen}
        self.truth = {name: [shares(codes, each, self.sizes) for each in sets] for name, sets in self.sets.items()}

    def __call__(self, codes: np.ndarray) -> dict[str, float]:
        return {
            name: float(np.mean([0.5 * np.abs(shares(codes, c, self.sizes) - t).sum() for c, t in zip(sets, self.truth[name])]))
            for name, sets in self.sets.items()
        }


def area(codes: np.ndarray, test: np.ndarray, target: int) -> float:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    rest = [i for i in range(codes.shape[1]) if i != target]
    model = HistGradientBoostingClassifier(random_state=0).fit(codes[:, rest], codes[:, target])
    return float(roc_auc_score(test[:, target], model.predict_proba(test[:, rest])[:, 1]))


MEASURED = ("tv1", "tv2", "tv3", "auc", "auc_left", "fit_cpu_s", "memory_mb", "gap", "tables", "cells")


def repeated(place: Path, method: str, epsilon: float, rows: int, distance: Distance) -> dict[str, Any]:
    runs = []
    for _ in range(REPEATS):
        told, codes = fitted(place, method, epsilon, rows)
        runs.append(told | distance(codes))
    return summary(place.stem, method, epsilon, runs)


def summary(table: str, method: str, epsilon: float, runs: list[dict[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {"method": method, "epsilon": epsilon, "repeats": len(runs)}
    row["converged"] = all(run["converged"] for run in runs)
    row |= {name: spread([run[name] for run in runs]) for name in MEASURED if name in runs[0]}
    print(table, method, epsilon, {name: row[name]["mean"] for name in MEASURED if name in row}, flush=True)
    return row


# ---- parts ---------------------------------------------------------------------------------------------------------------


def part_adult(data: Path, folder: Path) -> Any:
    """One fit of each on each of five splits; `auc_left` is the AUC as a share of that of the real rows of the same split."""
    return _adult(data, folder, FRESH)


def part_published(data: Path, folder: Path) -> Any:
    """Five fits of each on the split by seed 0, which the figures of SWIFT and of dpmm were measured on."""
    return _adult(data, folder, (0,) * REPEATS)


def _adult(data: Path, folder: Path, splits: tuple[int, ...]) -> Any:
    asked = [("tree", 1.0), ("junction", 1.0), ("junction", 0.1)]
    floors, real, runs = [], [], {each: [] for each in asked}
    for split in splits:
        train, test, sizes = adult(data, split)
        place, distance = stored(folder, f"adult{split}", train, sizes), Distance(train, sizes)
        target = list(sizes).index("income>50K")
        again = train[np.random.default_rng(2).integers(0, len(train), len(train))]
        floors.append(distance(again) | {"auc": area(again, test, target)})
        real.append(area(train, test, target))
        for method, epsilon in asked:
            told, codes = fitted(place, method, epsilon, len(train))
            auc = area(codes, test, target)
            runs[method, epsilon].append(told | distance(codes) | {"auc": auc, "auc_left": auc / real[-1]})
    floor = {name: spread([each[name] for each in floors]) for name in floors[0]}
    rows: list[Any] = [{"method": "bootstrap of the real rows"} | floor, {"method": "the real rows", "auc": spread(real)}]
    return rows + [summary("adult", *each, runs[each]) for each in asked]


def part_acs(data: Path, folder: Path) -> Any:
    codes, sizes = coded(data, "acs")
    place, distance = stored(folder, "acs", codes, sizes), Distance(codes, sizes)
    return [repeated(place, method, 1.0, len(codes), distance) for method in ("tree", "junction")]


def part_nltcs(data: Path, folder: Path) -> Any:
    codes, sizes = coded(data, "nltcs")
    place, distance = stored(folder, "nltcs", codes, sizes), Distance(codes, sizes, None)
    return [repeated(place, method, 1.0, len(codes), distance) for method in ("tree", "junction", "aim")]


def part_settings(data: Path, folder: Path) -> Any:
    """Settings of `junction` on tables and splits other than the one that is reported; no held-out rows are looked at."""
    from discreet.core import record
    from discreet.synth import Junction, Synthesis
    from discreet.synth.sample import sample

    rows = []
    for name in ("adult split 1", "adult split 2", "acs", "nltcs"):
        codes, sizes = adult(data, int(name[-1]))[::2] if name[:5] == "adult" else coded(data, name)
        table, distance = _Coded(codes, tuple(sizes.values())), Distance(codes, sizes, None if name == "nltcs" else 100)
        for setting in ({"triples": 0}, {}, {"triples": 200}, {"doubt": 0.3}, {"doubt": 0.8}, {"prior": 0.01}, {"prior": 0.04}):
            method, found = Junction(**setting), []
            mechanism = Synthesis(table.sizes, record(), 1.0, DELTA, method)
            for repeat in range(2):
                measured = method.measure(table, mechanism.public, mechanism.spending())
                model = method.estimate(mechanism.public, measured)
                drawn = sample(model.tree, model.conditionals, len(codes), np.random.default_rng(repeat))
                found.append(distance(np.stack(drawn, axis=1)))
            rows.append(
                {"table": name, "setting": setting} | {k: spread([run[k] for run in found]) for k in ("tv1", "tv2", "tv3")}
            )
            print(name, setting, {k: rows[-1][k]["mean"] for k in ("tv1", "tv2", "tv3")}, flush=True)
    return rows


class _Coded:
    """Rows in memory, counted by numpy."""

    def __init__(self, codes: np.ndarray, sizes: tuple[int, ...]) -> None:
        self.codes, self.sizes = codes, sizes

    def counts(self, sets: Any) -> list[Any]:
        return [np.rint(shares(self.codes, each, list(self.sizes)) * len(self.codes)).astype(np.int64)
                .reshape([self.sizes[c] for c in each]) for each in sets]  # fmt: skip


MILLIONS = (10, 30, 100)


def part_large(data: Path, folder: Path) -> Any:
    """Many rows of 12 columns in parquet: a tree beside DuckDB's own GROUP BYs of the same pairs; one run each."""
    rows = []
    for millions in MILLIONS:
        place = folder / f"large{millions}.parquet"
        _write_large(place, millions)
        place.with_suffix(".json").write_text(json.dumps(LARGE))
        ours, _ = fitted(place, "tree", 1.0, 1000)
        done = subprocess.run([sys.executable, __file__, "--group", str(place)], capture_output=True, text=True, check=True)
        plain = json.loads(done.stdout)
        rows.append({"rows": millions * 10**6, "file_mb": place.stat().st_size / 1e6, "load": os.getloadavg()[0]} | {
            f"{who}_{key}": round(told[key], 2) for who, told in (("tree", ours), ("duckdb", plain))
            for key in ("fit_cpu_s", "fit_s", "memory_mb")})  # fmt: skip
        place.unlink()
        print(rows[-1], flush=True)
    return rows


LARGE = {f"c{i}": size for i, size in enumerate((2, 3, 5, 7, 9, 12, 16, 16, 24, 30, 40, 50))}


def _write_large(place: Path, millions: int) -> None:
    """Columns of which each follows a common one in half of the rows, by DuckDB in a process of its own."""
    columns = ", ".join(
        f"(CASE WHEN random() < 0.5 THEN floor(x) % {size} ELSE floor(random() * {size}) END)::UTINYINT AS {name}"
        for name, size in LARGE.items()
    )
    query = (f"COPY (SELECT {columns} FROM (SELECT random() * 50 AS x FROM range({millions}000000))) "
             f"TO '{place}' (FORMAT parquet, COMPRESSION zstd)")  # fmt: skip
    script = f"import duckdb; duckdb.connect().execute({query!r})"
    subprocess.run([sys.executable, "-c", script], check=True)


def group(place: str) -> None:
    """All pairs by DuckDB alone, straight from the file."""
    import duckdb

    began = time.process_time(), time.perf_counter()
    sets = ", ".join(f"({a}, {b})" for a, b in itertools.combinations(LARGE, 2))
    query = f"SELECT {', '.join(LARGE)}, count(*) AS n FROM read_parquet('{place}') GROUP BY GROUPING SETS ({sets})"
    duckdb.connect().execute(query).fetchnumpy()
    status = Path("/proc/self/status").read_text().split()
    memory = int(status[status.index("VmHWM:") + 1]) / 1024
    told = {"fit_cpu_s": time.process_time() - began[0], "fit_s": time.perf_counter() - began[1], "memory_mb": memory}
    print(json.dumps(told))


def part_size(data: Path, folder: Path) -> Any:
    """Growth with rows and with columns, of the tree; rows and columns of Adult, repeated. The median of five runs."""
    train, _, sizes = adult(data)
    rows = []
    for times, copies in ((1, 1), (5, 1), (51, 1), (1, 2), (1, 4), (1, 7)):
        names = {f"{name} {i}": size for i in range(copies) for name, size in sizes.items()}
        place = stored(folder, f"size{times}x{copies}", np.tile(train, (times, copies)), dict(list(names.items())[:100]))
        runs = [fitted(place, "tree", 1.0, 1_000_000 if copies == 1 else 100_000)[0] for _ in range(REPEATS)]
        rows.append({"rows": times * len(train), "columns": min(len(names), 100), "load": os.getloadavg()[0]} | {
            key: round(statistics.median(run[key] for run in runs), 3)
            for key in ("fit_cpu_s", "fit_s", "sampled_rows_per_cpu_s", "written_rows_per_cpu_s", "memory_mb")
        } | {"fit_s_least": round(min(run["fit_s"] for run in runs), 3)})  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def part_cover(data: Path, folder: Path) -> Any:
    """How often the 95 % intervals of measured marginals hold the true counts, over 200 refits."""
    from discreet.core import record
    from discreet.synth import Column, Schema, Synthesis, Tree
    from discreet.synth.table import Table

    train, _, sizes = adult(data)
    schema = Schema.of({name: Column("categorical", values=tuple(range(size)), required=True) for name, size in sizes.items()})
    truth = {columns: shares(train, columns, list(sizes.values())) * len(train) for columns in
             [*((i,) for i in range(15)), *itertools.combinations(range(15), 2)]}  # fmt: skip
    held: dict[str, list[float]] = {"columns": [], "pairs": []}
    with Table(stored(folder, "cover", train, sizes), schema, record()) as table:
        mechanism = Synthesis(table.sizes, record(), 1.0, DELTA, Tree())
        for _ in range(200):
            model = mechanism.run(table)
            for measurement in model.measurements:
                low, high, _measured = model.interval(measurement.columns)
                true = truth[measurement.columns].reshape(low.shape)
                held["columns" if low.ndim == 1 else "pairs"].append(float(((low <= true) & (true <= high)).mean()))
    return {name: round(statistics.mean(values), 4) for name, values in held.items()}


# ---- peers, each in its own environment, interleaved with ours -------------------------------------------------------------

ENVIRONMENTS = Path(os.environ.get("PEERS", Path(__file__).parent.parent / ".venv/peers"))
PEERS = {
    "adult": ("mbi-mst", "snsynth-mst", "dpmm-mst"),
    "nltcs": ("mbi-mst", "mbi-aim", "dpmm-aim", "snsynth-aim"),
    "aim": ("published-aim",),
    "tree": ("mbi-mst",),
}
OURS = {"adult": ("tree", "junction"), "nltcs": ("tree", "junction", "aim"), "aim": ("junction", "aim"), "tree": ("tree",)}


def peer_fit(python: Path, peer: str, place: Path, seed: int, degree: int, limit: int) -> tuple[dict[str, Any], Any]:
    out = place.with_suffix(f".{peer}.npy")
    script = Path(__file__).parent / ("_published_aim.py" if peer == "published-aim" else "peers/synth_peer.py")
    command = [python, script, peer, place.with_suffix(".codes.npy"), place.with_suffix(".json"), out, 1.0, DELTA, seed, degree]
    began = time.perf_counter()

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))

    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, preexec_fn=limited)
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return {"failed": f"not finished after {limit} CPU-seconds"}, None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"signal {-done.returncode}"])[-1][:200]
        return {"failed": last, "after_s": round(time.perf_counter() - began)}, None
    return json.loads(done.stdout.splitlines()[-1]), np.load(out).astype(np.int64)


def _all_rows(codes: np.ndarray, sizes: dict[str, int]) -> tuple[np.ndarray, Any, dict[str, int]]:
    return codes, None, sizes


def part_peers(name: str) -> Callable[[Path, Path], Any]:
    """Peers and ours in turn on the same rows, epsilon 1: five runs, one of what takes longer than a minute or fails. "aim" is
    AIM as published on our junction trees, on NLTCS, where no peer's AIM finishes; "tree" is MST on Adult alone."""

    def run(data: Path, folder: Path) -> Any:
        rows, is_adult = [], name in ("adult", "tree")
        train, test, sizes = adult(data) if is_adult else _all_rows(*coded(data, "nltcs"))
        place, distance = stored(folder, name, train, sizes), Distance(train, sizes, 100 if is_adult else None)
        target = list(sizes).index("income>50K") if is_adult else None
        np.save(place.with_suffix(".codes.npy"), train.astype(np.uint16))
        found: dict[str, list[dict[str, Any]]] = {}
        for seed in range(REPEATS):
            for peer in (*OURS[name], *PEERS[name]):
                if any("failed" in run or run["fit_cpu_s"] > 60 for run in found.get(peer, [])):
                    continue
                if peer in OURS[name]:
                    told, codes = fitted(place, peer, 1.0, len(train))
                else:
                    own = ENVIRONMENTS / peer.split("-")[0] / "bin/python"
                    python = Path(sys.executable) if peer == "published-aim" else own
                    told, codes = peer_fit(python, peer, place, seed, 2 if is_adult else 3, LIMIT)
                if codes is not None:
                    told |= distance(codes) | ({} if target is None else {"auc": area(codes, test, target)})
                found.setdefault(peer, []).append(told)
                print(name, peer, seed, {k: v for k, v in found[peer][-1].items() if k in
                      ("tv1", "tv2", "tv3", "auc", "fit_cpu_s", "memory_mb", "failed", "after_s")}, flush=True)  # fmt: skip
        for peer, runs in found.items():
            kept = [run for run in runs if "failed" not in run]
            row: dict[str, Any] = {"method": peer, "repeats": len(kept)}
            row |= {key: spread([run[key] for run in kept]) for key in MEASURED if kept and key in kept[0]}
            row |= next(({k: run[k] for k in ("failed", "after_s") if k in run} for run in runs if "failed" in run), {})
            rows.append(row)
        return rows

    return run


PARTS = {
    "peers_nltcs": part_peers("nltcs"), "peers_adult": part_peers("adult"), "aim": part_peers("aim"),
    "tree": part_peers("tree"), "adult": part_adult, "large": part_large, "acs": part_acs, "nltcs": part_nltcs,
    "size": part_size, "cover": part_cover,
    "settings": part_settings, "published": part_published,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument(
        "--part", default=",".join(name for name in PARTS if name not in ("settings", "published", "tree", "aim"))
    )
    parser.add_argument("--out")
    parser.add_argument("--scratch", type=Path, help="a folder with room for 3 GB; by default that for temporary files")
    parser.add_argument("--jobs", type=int, default=1, help="parts at once; times are CPU-seconds of each process")
    parser.add_argument("--plot", type=Path, help="write the picture of growth with rows and columns as SVG")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    parser.add_argument("--group", help=argparse.SUPPRESS)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # for peers as well
    asked = parser.parse_args()  # settings are looked at when they are chosen, on other splits, and are no figure of the docs
    if asked.group:
        group(asked.group)
        return
    if asked.child:
        place, out, method, epsilon, rows = asked.child
        child(place, out, method, float(epsilon), int(rows))
        return
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=asked.scratch) as folder, ThreadPoolExecutor(asked.jobs) as pool:
        parts = {}
        for name in asked.part.split(","):
            own = Path(folder) / name
            own.mkdir()
            parts[pool.submit(PARTS[name], asked.data, own)] = name
        for done in as_completed(parts):
            if (error := done.exception()) is not None:
                print(f"{parts[done]} is left out: {error}", file=sys.stderr, flush=True)
                continue
            result[parts[done]] = done.result()
            write(asked.out, {"commit": commit(), "delta": DELTA, "repeats": REPEATS, "limit_cpu_s": LIMIT}
                  | {name: result[name] for name in PARTS if name in result},
                  "duckdb", "pyarrow", "scikit-learn")  # fmt: skip
    if asked.plot and {"size", "large"} <= result.keys():
        asked.plot.write_text(drawn(result["size"], result["large"]), encoding="utf-8")


if __name__ == "__main__":
    main()
