"""SmartNoise SQL over pandas (smartnoise-sql==1.0.10): one worker, see _loop.py.

Its epsilon is spent once for every hidden column; here the whole answer costs what was asked, by its own odometer.
COUNT(v) stands for COUNT(*) where that is cheaper: AVG uses it again, a hidden column less. It bounds rows of a unit, never
groups, and knows no quantiles: a query with one is not asked of it. Where the groups are public it is told not to hide any,
and answers for those it finds.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import pandas as pd
import snsql
from _loop import Answer, Request, columns, key, serve

warnings.simplefilter("ignore")

SQL = {"count": "COUNT({0}) AS c", "sum": "SUM({0}) AS s", "mean": "AVG({0}) AS m"}


def load(request: Request) -> pd.DataFrame:
    return pd.read_parquet(request["table"], columns=columns(request))


def reader(table: pd.DataFrame, request: Request, epsilon: float, delta: float) -> Any:
    low, high = request["bounds"]
    types = {name: "int" if pd.api.types.is_integer_dtype(table[name]) else "string" for name in request["keys"]}
    meta: dict[str, Any] = {name: {"type": kind} for name, kind in types.items()}
    meta[request["value"]] = {"type": "float", "lower": float(low), "upper": float(high)}
    if request["unit"]:
        meta[request["unit"]] = {"type": "int", "private_id": True}
        meta |= {"max_ids": request["rows"] * (request["groups"] or 1), "sample_max_ids": True}
    else:
        meta["row_privacy"] = True
    meta = {"": {"": {"t": {"rows": len(table), "censor_dims": not request.get("public"), **meta}}}}
    return snsql.from_df(table, metadata=meta, privacy=snsql.Privacy(epsilon=epsilon, delta=delta))


def text(request: Request, counted: str) -> str:
    keys = ", ".join(request["keys"])
    wanted = ", ".join(SQL[name].format(counted if name == "count" else request["value"]) for name in request["ask"])
    return f"SELECT {keys}, {wanted} FROM t GROUP BY {keys}"


def ask(table: pd.DataFrame, request: Request) -> Iterator[list[list[Any]]]:
    if "median" in request["ask"]:
        raise NotImplementedError("no quantiles")
    priced = reader(table, request, 1.0, request["delta"])
    costs = {query: priced.get_privacy_cost(query) for query in (text(request, "*"), text(request, request["value"]))}
    query = min(costs, key=lambda it: costs[it][0])
    epsilon, delta = (float(x) for x in costs[query])
    given = request["epsilon"] / epsilon, request["delta"] ** 2 / delta if delta else request["delta"]
    for _ in itertools.count():
        private = reader(table, request, *given)
        rows = private.execute(query)
        spent = private.odometer.spent
        if spent[0] > request["epsilon"] * 1.000001 or spent[1] > request["delta"] * 1.000001:
            raise ValueError(f"spent {spent}")
        yield rows[1:]


def read(rows: list[list[Any]], request: Request) -> Answer:
    width, (low, high) = len(request["keys"]), request["bounds"]
    found: Answer = {}
    for row in rows:
        values = {name: float(x) for name, x in zip(request["ask"], row[width:], strict=True) if x is not None}
        if "mean" in values:
            values["mean"] = min(max(values["mean"], low), high)
        found[key(row[:width])] = values
    return found


if __name__ == "__main__":
    serve("smartnoise-sql", load, ask, read)
