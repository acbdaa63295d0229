"""OpenDP's Polars Context (opendp[polars]==0.16.0): one worker, see _loop.py.

The noise scale is found by the Context's own search, as its documentation shows; where several answers are asked for, it
is found for the first, and the others are what it costs with a scale found beforehand. Private keys need the length, so
it is then always part of the query; the mean is the sum over it. Units bounded in groups keep their first groups: the default,
"sample", fails in 0.16.0 ("multiple fields with name"), and each keeps one group fewer than it charges for. Values are
summed as integers: at these margins the float sum pays for rounding with far more noise.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import opendp.prelude as dp
import polars as pl
from _loop import Answer, Request, columns, key, serve

warnings.simplefilter("ignore")

dp.enable_features("contrib")
MOST = 100_000_000  # rows of the table, public here


def load(request: Request) -> pl.LazyFrame:
    frame = pl.read_parquet(request["table"], columns=columns(request))
    return frame.with_columns(pl.col(request["value"]).cast(pl.Int64)).lazy()


def question(table: pl.LazyFrame, request: Request) -> Any:
    """The query, its scale not yet found."""
    keys, unit = request["keys"], request["unit"]
    margins = [dp.polars.Margin(by=by, max_length=MOST, max_groups=2000) for by in ([], keys)]
    context = dp.Context.compositor(
        data=table, margins=margins, split_evenly_over=1,
        privacy_unit=dp.unit_of(contributions=1, identifier=unit) if unit else dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=request["epsilon"], delta=request["delta"]),
    )  # fmt: skip
    query = context.query()
    if unit and request["groups"]:
        query = query.truncate_per_group(request["rows"], by=keys)
        query = query.truncate_num_groups(request["groups"], by=keys, keep="first")
    elif unit:
        query = query.truncate_per_group(request["rows"])
    query = query.group_by(keys).agg(*parts(request))
    if request.get("public"):
        types = {name: table.collect_schema()[name] for name in keys}
        query = query.with_keys(pl.LazyFrame(request["public"], schema=types, orient="row"))
    return query


def parts(request: Request) -> list[pl.Expr]:
    low, high = request["bounds"]
    column = pl.col(request["value"]).fill_null(low)
    found = [] if request.get("public") and request["ask"] in (["sum"], ["median"]) else [dp.len()]
    if {"sum", "mean"} & set(request["ask"]):
        found.append(column.dp.sum((low, high)).alias("sum"))
    if "median" in request["ask"]:
        found.append(column.dp.median(list(range(low, high + 1))).alias("median"))
    return found


def ask(table: pl.LazyFrame, request: Request) -> Iterator[pl.DataFrame]:
    if request.get("times", 1) == 1:
        yield question(table, request).release().collect()
        return
    measurement = question(table, request).resolve()
    for _ in itertools.count():
        yield measurement(table).collect()


def read(frame: pl.DataFrame, request: Request) -> Answer:
    found: Answer = {}
    for row in frame.iter_rows(named=True):
        values = {name: float(row[name]) for name in ("sum", "median") if name in row}
        if "len" in row:
            values["count"] = float(row["len"])
        if "mean" in request["ask"]:
            low, high = request["bounds"]
            values["mean"] = min(max(values["sum"] / max(values["count"], 1.0), low), high)
        found[key(row[name] for name in request["keys"])] = values
    return found


if __name__ == "__main__":
    serve("opendp", load, ask, read)
