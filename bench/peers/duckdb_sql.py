"""Plain DuckDB, without privacy: one worker, see _loop.py. Way "distinct" counts the distinct units of each group too."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
from _loop import Answer, Request, key, serve

SQL = {"count": "COUNT(*) AS count", "sum": "SUM({0}) AS sum", "mean": "AVG({0}) AS mean", "median": "MEDIAN({0}) AS median"}


def load(request: Request) -> Any:
    """The same kinds of place the others read: a database file, or a parquet file scanned with every query."""
    path = Path(request["table"])
    if path.suffix == ".duckdb":
        return duckdb.connect(str(path), read_only=True)
    link = duckdb.connect()
    link.sql(f"CREATE VIEW t AS SELECT * FROM read_parquet('{path}')")
    return link


def ask(link: Any, request: Request) -> Iterator[Any]:
    keys = ", ".join(request["keys"])
    wanted = [SQL[name].format(request["value"]) for name in request["ask"]]
    wanted += [f"COUNT(DISTINCT {request['unit']}) AS units"] if request.get("way") == "distinct" else []
    query = f"SELECT {keys}, {', '.join(wanted)} FROM t GROUP BY {keys}"
    for _ in itertools.count():
        yield link.sql(query).to_arrow_table()


def read(table: Any, request: Request) -> Answer:
    keys = request["keys"]
    return {
        key(row[name] for name in keys): {name: float(x) for name, x in row.items() if name not in keys}
        for row in table.to_pylist()
    }


if __name__ == "__main__":
    serve("duckdb", load, ask, read)
