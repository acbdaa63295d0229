"""How far above the truth epsilon is, over a grid of noise, rate, steps and delta.

    python bench/accounting_tight.py [--every 20] [--workers 2] [--log cells.jsonl] [--out bench/results/accounting-tight.json]

It takes about ten minutes of processor time. `--seconds` ends it earlier: cells not measured by then are counted as such. With
`--log` each cell is written as soon as it is known, and the next run goes on from there. A cell is taken from the log only if
it was measured by the same code of `discreet.accounting` and of this benchmark, so a table never mixes two versions.

The grid has 3,240 cells of Poisson-sampled Gaussians: 10 noise multipliers x 6 rates x 9 numbers of steps x 6 deltas, each
axis in `AXES`. Each epsilon is compared with a **lower bound** on the truth (`accounting_floor`: post-processing by bins, then
a series whose errors are subtracted), which shares no code with what it measures. So the excess shown is at least the true
one. Where epsilon is 0 it is exact. Where no lower bound could be had, the cell is counted and listed, not dropped. An epsilon
below the lower bound would be wrong; such cells are counted too, and there must be none.

A second table, of 480 cells, hides from the accountant that Gaussian mechanisms are Gaussian. They compose to one, whose
epsilon is known exactly (50 digits).

`--inflate 0.01` raises every epsilon by 1 % before it is compared: the benchmark must then report every cell as loose.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import dataclasses
import functools
import hashlib
import itertools
import json
import math
import random
import time
import warnings
from collections.abc import Iterator
from multiprocessing import Pool
from pathlib import Path

import mpmath as mp

from _record import write
from accounting_floor import floor
from discreet import accounting
from discreet.accounting import Gaussian, Poisson, Repeat, curve
from discreet.accounting import profile as profiles
from discreet.accounting.composition import Composition

AXES = {
    "noise multiplier": (0.3, 0.5, 0.7, 1.0, 2.0, 5.0, 20.0, 1e2, 1e3, 1e5),
    "rate": (1e-7, 1e-5, 1e-3, 1e-2, 0.1, 0.5),
    "steps": tuple(10**k for k in range(1, 10)),
    "delta": (1e-300, 1e-100, 1e-30, 1e-12, 1e-8, 1e-5),
}
SHIFTS = (1e-6, 1e-3, 0.1, 1.0, 5.0, 30.0)
DELTAS = (1e-300, 1e-100, 1e-30, 1e-15, 1e-10, 1e-7, 1e-5, 1e-3)
ALLOWED = 5e-3  # the excess that is promised
Cell = tuple[float, float, int, float]


@functools.cache
def code() -> str:
    """A digest of all that decides a cell: the accountant, the events, the reference and this file."""
    package = Path(accounting.__file__).parent
    files = [*package.glob("*.py"), package.parent / "core" / "event.py", *Path(__file__).parent.glob("accounting_*.py")]
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def one_gaussian(mu: float, delta: float) -> float:
    """epsilon of one Gaussian mechanism with shift mu, in high precision."""
    with mp.workdps(50):
        m = mp.mpf(mu)

        def at(e: mp.mpf) -> mp.mpf:
            a, b = e / m - m / 2, e / m + m / 2
            return (mp.erfc(a / mp.sqrt(2)) - mp.exp(e) * mp.erfc(b / mp.sqrt(2))) / 2

        low, high = mp.mpf(0), 60 * m + m * m
        if at(low) <= delta:
            return 0.0
        for _ in range(90):
            middle = (low + high) / 2
            low, high = (low, middle) if at(middle) <= delta else (middle, high)
        return float(high)


def gaussian_row(cell: tuple[float, int, float]) -> dict:
    """A cell (shift of all steps together, steps, delta)."""
    shift, times, delta = cell
    sigma = math.sqrt(times) / shift
    hidden = dataclasses.replace(profiles.gaussian(sigma), shift=None)
    epsilon = Composition(((hidden, times),)).epsilon(delta)
    return {"cell": cell, "epsilon": epsilon, "reference": one_gaussian(shift, delta), "kind": "exact"}


def lower(cell: Cell, near: float, backward: bool = False) -> float | None:
    """The reference; None also where its own arithmetic fails: such a cell is listed as one without a reference."""
    try:
        return floor(*cell, near, backward)
    except (ArithmeticError, ValueError) as problem:
        print("no reference:", cell, "backward" if backward else "forward", repr(problem), flush=True)
        return None


def sampled_row(cell: Cell) -> dict:
    """A cell (noise multiplier, rate, steps, delta)."""
    sigma, rate, times, delta = cell
    began = time.perf_counter()
    epsilon = curve(Repeat(Poisson(rate, Gaussian(sigma)), times)).epsilon(delta)
    taken = time.perf_counter() - began
    reference, kind = 0.0, "exact"
    if 0 < epsilon < math.inf:
        sides = [lower(cell, epsilon)]
        if sides[0] is None or epsilon > sides[0] * (1 + ALLOWED):  # the other direction may be the larger one
            sides.append(lower(cell, epsilon, backward=True))
        reference = max((side for side in sides if side is not None), default=math.nan)
        kind = "lower bound" if reference == reference else "none"
    return {"cell": cell, "epsilon": epsilon, "reference": reference, "kind": kind, "seconds": taken}


def rows(make, cells: list, workers: int, log: Path | None, end: float) -> Iterator[dict]:
    """Every cell, from the log or measured now. Warnings of numpy are not what is measured here."""
    known = {}
    if log is not None and log.exists():
        written = map(json.loads, log.read_text().splitlines())
        known = {tuple(row["cell"]): row for row in written if row.pop("code") == code()}
    yield from (known[cell] for cell in cells if cell in known)
    with Pool(workers, initializer=warnings.simplefilter, initargs=("ignore",)) as pool:
        for row in pool.imap_unordered(make, [cell for cell in cells if cell not in known]):
            if log is not None:
                with log.open("a") as file:
                    file.write(json.dumps({**row, "code": code()}) + "\n")
            yield row
            if time.perf_counter() > end:
                return  # the pool is ended with what it has under way


def excess(row: dict) -> float:
    """The relative excess over the reference; 0 where both are 0."""
    return row["epsilon"] / row["reference"] - 1 if row["reference"] else (0.0 if row["epsilon"] == 0 else math.inf)


def summary(table: list[dict], cells: int, listed: int = 40) -> dict:
    """Counts over all cells; every cell that is loose or without a reference is listed, up to `listed` of each."""
    finite = [row for row in table if row["epsilon"] < math.inf]
    known = sorted((row for row in finite if row["kind"] != "none"), key=excess)
    loose = [row for row in known if excess(row) > ALLOWED]
    unknown = [row for row in finite if row["kind"] == "none"]
    return {
        "cells": cells,
        "not measured": cells - len(table),
        "infinite": len(table) - len(finite),
        "with a reference": len(known),
        "without": len(unknown),
        "epsilon 0": sum(row["epsilon"] == 0 for row in known),
        "within 0.5 %": len(known) - len(loose),
        "above 0.5 %": len(loose),
        "below the reference": sum(excess(row) < 0 for row in known),
        "median": excess(known[len(known) // 2]),
        "99 %": excess(known[int(0.99 * len(known))]),
        "largest": excess(known[-1]),
        "loose cells": [{**row, "excess": excess(row)} for row in loose[::-1][:listed]],
        "cells without a reference": unknown[:listed],
    }


def show(name: str, counts: dict) -> None:
    print(name, {key: value for key, value in counts.items() if not isinstance(value, list)})
    for row in counts["loose cells"][:12] + counts["cells without a reference"][:12]:
        print("  ", row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="only every n-th cell")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no cell after so long")
    parser.add_argument("--log", type=Path, help="a file with one line for each cell that is known")
    parser.add_argument(
        "--inflate", type=float, default=0.0, help="raise every epsilon by this share: a check of the benchmark"
    )
    parser.add_argument("--out", help="write the figures here as JSON")
    options = parser.parse_args()
    began = time.perf_counter()
    grids = {
        "gaussian": (gaussian_row, list(itertools.product(SHIFTS, (2, *(10**k for k in range(1, 10))), DELTAS))),
        "sampled": (sampled_row, list(itertools.product(*AXES.values()))),
    }
    result: dict = {"code": code(), "axes of the sampled table": AXES}
    for name, (make, cells) in grids.items():
        chosen = cells[:: options.every]
        random.Random(0).shuffle(chosen)
        log = options.log and options.log.with_suffix(f".{name}.jsonl")
        table = list(rows(make, chosen, options.workers, log, began + options.seconds))
        for row in table:
            row["epsilon"] *= 1 + options.inflate
        result[name] = summary(table, len(chosen))
        show(name, result[name])
    write(options.out, result)


if __name__ == "__main__":
    main()
