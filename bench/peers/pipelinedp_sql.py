"""PipelineDP on its local backend (pipeline-dp==0.3.1, python-dp, dp-accounting): one worker, see _loop.py.

Laplace noise and the naive accountant are its defaults, and did no worse here than Gaussian noise or its PLD accountant.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pipeline_dp as pdp
from _loop import Answer, Request, columns, key, serve

warnings.simplefilter("ignore")

METRICS = {"count": pdp.Metrics.COUNT, "sum": pdp.Metrics.SUM, "mean": pdp.Metrics.MEAN, "median": pdp.Metrics.PERCENTILE(50)}


def load(request: Request) -> list[tuple[Any, ...]]:
    table = pd.read_parquet(request["table"], columns=columns(request))
    units = table[request["unit"]].tolist() if request["unit"] else range(len(table))
    groups = zip(*(table[name].tolist() for name in request["keys"]), strict=True)
    return list(zip(units, groups, table[request["value"]].astype(float).tolist(), strict=True))


def bound(request: Request) -> dict[str, int]:
    if request["unit"] and not request["groups"]:
        return {"max_contributions": request["rows"]}
    groups, rows = (request["groups"], request["rows"]) if request["unit"] else (1, 1)
    return {"max_partitions_contributed": groups, "max_contributions_per_partition": rows}


def ask(table: list[tuple[Any, ...]], request: Request) -> Iterator[list[Any]]:
    low, high = request["bounds"]
    for _ in itertools.count():
        accountant = pdp.NaiveBudgetAccountant(request["epsilon"], request["delta"])
        params = pdp.AggregateParams(
            noise_kind=pdp.NoiseKind.LAPLACE, metrics=[METRICS[name] for name in request["ask"]], min_value=low, max_value=high,
            **bound(request),
        )  # fmt: skip
        extract = pdp.DataExtractors(
            privacy_id_extractor=lambda row: row[0], partition_extractor=lambda row: row[1], value_extractor=lambda row: row[2]
        )
        public = [tuple(group) for group in request.get("public") or []] or None
        result = pdp.DPEngine(accountant, pdp.LocalBackend()).aggregate(table, params, extract, public)
        accountant.compute_budgets()
        yield list(result)


def read(rows: list[Any], request: Request) -> Answer:
    return {key(group): values(found, *request["bounds"]) for group, found in rows}


def values(found: Any, low: float, high: float) -> dict[str, float]:
    """Means beyond the bounds are clamped here, which costs nothing and which it does not do itself."""
    named = {name: float(value) for name, value in found._asdict().items()}
    if "percentile_50" in named:
        named["median"] = named.pop("percentile_50")
    for name in {"mean", "median"} & named.keys():
        named[name] = min(max(named[name], low), high)
    return named


if __name__ == "__main__":
    serve("pipeline-dp", load, ask, read)
