"""What every worker does: read one request a line, answer it, say what it cost.

A request is JSON: table (a parquet file), keys, value, bounds, unit (a column, or null: each row is a unit), groups and
rows (at most so many groups, so many rows in each; groups null: so many rows in all), ask (count, sum, mean or median),
public (the list of groups, if their names are public), epsilon and delta of the WHOLE answer, times (answers wanted, each
with fresh noise), way (where there are several).
The reply is JSON: answers, each {key: {statistic: number}}, with the wall and CPU seconds of each, and the most memory
the process ever held, before and after. Opening the table and turning answers into JSON are not timed.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

Request = dict[str, Any]
Answer = dict[str, dict[str, float]]
PLACE = ("table", "unit", "keys", "value", "groups", "rows", "way", "bounds", "public")  # what an open table depends on


def key(values: Any) -> str:
    """One name for a group whatever its columns."""
    return "|".join(str(value) for value in values)


def columns(request: Request) -> list[str]:
    return [*request["keys"], request["value"], *([request["unit"]] if request["unit"] else [])]


def serve(
    package: str,
    load: Callable[[Request], Any],
    ask: Callable[[Any, Request], Iterator[Any]],
    read: Callable[[Any, Request], Answer],
) -> None:
    """`load` opens the table; `ask` yields raw answers, the first with all the work a query takes; `read` turns them over."""
    print(json.dumps({"version": version(package)}), flush=True)
    here, table = "", None
    for line in sys.stdin:
        request = json.loads(line)
        place = json.dumps([request.get(name) for name in PLACE])
        try:
            if place != here:
                table, here = None, ""  # one at a time: they are large
                table, here = load(request), place
            found = reply(table, request, ask, read)
        except Exception as error:  # a peer that cannot is a result, not a crash
            found = {"failed": f"{type(error).__name__}: {str(error)[:300]}"}
        print(json.dumps(found), flush=True)


def reply(table: Any, request: Request, ask: Any, read: Any) -> dict[str, Any]:
    raw, wall, cpu, start = [], [], [], peak()
    found = ask(table, request)
    for _ in range(request.get("times", 1)):
        began, spent = time.perf_counter(), time.process_time()
        raw.append(next(found))
        cpu.append(time.process_time() - spent)
        wall.append(time.perf_counter() - began)
    most = peak()
    return {"wall": wall, "cpu": cpu, "answers": [read(it, request) for it in raw], "start_mb": start, "peak_mb": most}


def peak() -> float:
    """The most memory this program ever held, in megabytes; getrusage would count what its parent held before it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return math.nan
