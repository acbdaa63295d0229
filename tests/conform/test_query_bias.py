"""What bounds change is counted alike by every engine."""

from __future__ import annotations

from typing import Any

import pytest

import postgres
import spark
from conform.engines import ENGINES, Table, location
from discreet import connect, record, user
from discreet.query.answer import requests

ROWS = [
    (unit, "A" if row % 2 else "B", x)
    for unit, rows in ((1, 9), (2, 4), (3, 2), (4, 1), (None, 3))
    for row, x in zip(range(rows), (5.0, None, -1.0, 11.0, 10.0, 0.0, float("nan"), float("inf"), 1e300))
]
TABLES = {"t": Table({"id": "integer", "ward": "text", "x": "number"}, ROWS)}
SCHEMA = {"t": {"x": {"bounds": [0, 10]}, "ward": {"values": ["A", "B"]}}}
QUERY = "SELECT ward, AVG(x) AS a, SUM(x * x) AS s FROM t GROUP BY ward"


def whole_numbers(engine: str, url: str | None, plan: str) -> list[dict[str, Any]]:
    unit = record() if plan == "rows" else user("id", rows=3)
    with connect(location(engine, TABLES, url), unit=unit, schema=SCHEMA) as db:
        if plan == "registered":
            db.register("t")
        groups = {"sampled": 2}.get(plan)  # both of them: nothing is left to chance
        priced = db._price(QUERY, 1.0, None, groups, None, None, bias=True)
        assert [it.name for it in priced.shares] == ["a_outside", "s_outside", "rows_capped"][: 2 if plan == "rows" else 3]
        found = db.engine.aggregate(requests(priced)[0])
        return sorted((dict(zip(found, row)) for row in zip(*found.values())), key=lambda row: row["k0"])


@pytest.mark.parametrize("plan", ["rows", "weighted", "registered", "sampled"])
@pytest.mark.parametrize("engine", [it for it in ENGINES if it != "duckdb"])
def test_engines_agree(engine: str, plan: str, request: pytest.FixtureRequest) -> None:
    if reason := {"postgres": postgres.missing(), "spark": spark.missing()}.get(engine):
        pytest.skip(reason)
    if engine != "postgres":
        assert whole_numbers(engine, None, plan) == whole_numbers("duckdb", None, plan)
        return
    with postgres.database(request.getfixturevalue("postgres_server")) as url:
        assert whole_numbers(engine, url, plan) == whole_numbers("duckdb", None, plan)
