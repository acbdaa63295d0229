"""Ours, asked like the peers: one worker, see _loop.py. Way "registered" bounds the table once, when it is opened.

Every answer is a new question to a durable ledger: the columns are named afresh, so that none is given from memory.
"""

from __future__ import annotations

import atexit
import itertools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _loop import Answer, Request, key, serve

import discreet

SQL = {"count": "COUNT(*)", "sum": "SUM({0})", "mean": "AVG({0})", "median": "MEDIAN({0})"}
_count = itertools.count()


def load(request: Request) -> Any:
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    rows = request["rows"] * (request["groups"] or 1)
    unit = discreet.user(request["unit"], rows=rows) if request["unit"] else discreet.record()
    ledger = discreet.Ledger(Path(folder) / "ledger.db")
    ledger.open("people", unit=unit, epsilon=4000.0, delta=1e-3, failure=9e-4)  # never the limit here
    path = Path(request["table"])
    place = path if path.suffix == ".duckdb" else {"t": path}
    columns = {request["value"]: {"bounds": request["bounds"], "required": True}}  # no peer knows missing values
    for at, name in enumerate(request["keys"] if request.get("public") else []):
        columns[name] = {"values": sorted({group[at] for group in request["public"]})}
    database = discreet.connect(place, unit=unit, schema={"t": columns}, ledger=ledger, source="people")
    return database.register() if request.get("way") == "registered" else database


def ask(database: Any, request: Request) -> Iterator[Any]:
    keys = ", ".join(request["keys"])
    more = {"groups": request["groups"]} if request["unit"] and request["groups"] else {}
    for number in _count:
        wanted = ", ".join(f"{SQL[name].format(request['value'])} AS {name}{number}" for name in request["ask"])
        query = f"SELECT {keys}, {wanted} FROM t GROUP BY {keys}"
        yield number, database.sql(query, epsilon=request["epsilon"], delta=request["delta"], **more).value


def read(found: Any, request: Request) -> Answer:
    number, table = found
    return {
        key(row[name] for name in request["keys"]): {name: float(row[f"{name}{number}"]) for name in request["ask"]}
        for row in table.to_pylist()
    }


if __name__ == "__main__":
    serve("discreet", load, ask, read)
