"""How wide the intervals of SQL answers are, and how often they hold: quantiles, standard deviations, means, counts and sums.

    python bench/sql_intervals.py [--runs 400] [--out bench/results/sql_intervals.json]

Real columns, each asked alone, many times with fresh noise. `covered` is how often the interval holds the answer without noise;
`ratio` is the median width of the interval over that of the narrowest one, from the 2.5 % to the 97.5 % quantile of the errors
(of a quantile never less than a bin), which nobody knows who has not seen all answers. Adult is read from ../shared/data/adult;
its columns are left out where it is absent.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import discreet
from _record import write
from sql_accuracy import ADULT, adult

STATISTICS = {
    "count": "COUNT(*)", "sum": "SUM(x)", "mean": "AVG(x)", "deviation": "STDDEV(x)", "median": "MEDIAN(x)",
    "first decile": "QUANTILE(x, 0.1)", "ninth decile": "QUANTILE(x, 0.9)",
}  # fmt: skip
SIZES = (1_000, 10_000)


def columns(folder: Path) -> dict[str, tuple[np.ndarray, tuple[float, float]]]:
    """Values and public bounds, by name."""
    draw = np.random.default_rng(0)
    found = {"made up, deviation 2.8 within 0 to 5,000": (draw.normal(2000, 2.8, 20_000), (0.0, 5000.0))}
    if ADULT.exists():
        lines = gzip.decompress((ADULT / "adult.data.gz").read_bytes()).decode().splitlines()
        weights = np.array([float(line.split(",")[2]) for line in lines if line.count(",") == 14])
        found["Adult, fnlwgt"] = (draw.permutation(weights), (0.0, 1_500_000.0))
        table = parquet.read_table(adult(folder / "adult.parquet"))
        for name, bounds in (("age", (17, 90)), ("hours", (1, 99))):
            values = table[name].to_numpy()
            found[f"Adult, {name}"] = (draw.permutation(values), bounds)
    return found


def truth(values: np.ndarray, name: str, bounds: tuple[float, float]) -> float:
    clipped = np.clip(values, *bounds)
    ranks = {"median": 0.5, "first decile": 0.1, "ninth decile": 0.9}
    if name in ranks:
        return float(np.sort(clipped)[int(np.ceil(ranks[name] * len(clipped))) - 1])
    return float({"count": len(clipped), "sum": clipped.sum(), "mean": clipped.mean(), "deviation": clipped.std()}[name])


def measured(values: np.ndarray, bounds: tuple[float, float], epsilon: float, runs: int) -> dict[str, Any]:
    found = {}
    whole = values.dtype.kind in "iu"
    bin_width = 1.0 if whole and bounds[1] - bounds[0] < 1024 else (bounds[1] - bounds[0]) / 1024
    schema = {"t": {"x": {"bounds": list(bounds), "required": True}}}
    with discreet.connect({"t": pa.table({"x": values})}, unit=discreet.record(), schema=schema) as db:
        for name, asked in STATISTICS.items():
            true = truth(values, name, bounds)
            answers = [db.sql(f"SELECT {asked} AS a FROM t", epsilon=epsilon).value.to_pydict() for _ in range(runs)]
            value, low, high = (np.array([answer[column][0] for answer in answers]) for column in ("a", "a_low", "a_high"))
            off = np.quantile(value - true, [0.025, 0.975])
            narrow = max(float(off[1] - off[0]), bin_width if name in ("median", "first decile", "ninth decile") else 0.0)
            covered = float(np.mean((low <= true) & (true <= high)))
            width = float(np.median(high - low))
            found[name] = {"covered": round(covered, 4), "width": float(f"{width:.5g}"), "narrowest": float(f"{narrow:.5g}"),
                           "ratio": round(width / narrow, 3) if narrow else None}  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--out")
    given = parser.parse_args()
    result: dict[str, Any] = {"epsilon": 1.0, "confidence": 0.95, "runs": given.runs, "columns": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name, (values, bounds) in columns(Path(folder)).items():
            for size in SIZES:
                label = f"{name}, {size:,} values"
                result["columns"][label] = measured(values[:size], bounds, result["epsilon"], given.runs)
                print(label)
                for statistic, part in result["columns"][label].items():
                    print(f"    {statistic:14} covered {part['covered']:.3f}   width {part['width']:10,.4g}   "
                          f"narrowest {part['narrowest']:10,.4g}   ratio {part['ratio']}")  # fmt: skip
    write(given.out, result, "duckdb")


if __name__ == "__main__":
    main()
