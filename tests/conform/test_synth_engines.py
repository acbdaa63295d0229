"""Contingency tables are the same in every engine, from one pass, and one record moves one cell of each by one."""

from __future__ import annotations

import itertools
import math
from datetime import date, datetime
from typing import Any

import numpy as np
import pytest

import postgres
import spark
from conform.engines import ENGINES, Table, location
from discreet.core import record, user
from discreet.synth import Column, Schema
from discreet.synth.table import Table as Opened

COLUMNS = {"g": "text", "x": "number", "n": "integer", "d": "date", "t": "timestamp", "b": "boolean"}
SCHEMA = Schema.of({
    "g": ["a", "b", "it's"], "x": Column("real", bounds=(-4.0, 10.0), bins=7, mass=(0.0,)),
    "n": Column("integer", bounds=(0, 20), bins=6, mass=(3,)),
    "d": Column("date", bounds=(date(2020, 1, 1), date(2020, 12, 31)), bins=5),
    "t": Column("timestamp", bounds=(datetime(2020, 1, 1), datetime(2020, 1, 9)), bins=4), "b": Column("boolean"),
})  # fmt: skip
ODD: list[tuple[Any, ...]] = [
    ("a", 0.0, 3, date(2020, 5, 5), datetime(2020, 1, 3), True),
    ("it's", -1e300, -(2**40), date(1, 1, 1), datetime(1, 1, 1), False),
    ("zz", 1e308, 2**60, date(9999, 12, 31), datetime(9999, 12, 31, 23, 59, 59), None),
    (None, math.nan, None, None, None, None),
    ("", math.inf, 20, date(2020, 12, 31), datetime(2020, 1, 9), True),
    ("b", -math.inf, 0, date(2020, 1, 1), datetime(2020, 1, 1), False),
]
PLAIN = [
    ("ab"[i % 2], i % 15 - 4.0, i % 23, date(2020, 1 + i % 12, 1), datetime(2020, 1, 1 + i % 9), i % 3 == 0) for i in range(60)
]
ROWS = Table(COLUMNS, [*ODD, *PLAIN])
SETS = [(), *((i,) for i in range(6)), *itertools.combinations(range(6), 2), (0, 2, 5)]


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    reason = {"postgres": postgres.missing(), "spark": spark.missing()}.get(request.param)
    if reason:
        pytest.skip(reason)
    return str(request.param)


def tables(engine: str, url: str | None, rows: Table) -> list[Any]:
    with Opened(location(engine, {"t": rows}, url), SCHEMA, record()) as opened:
        return opened.counts(SETS)


def test_every_engine_counts_alike(engine: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("postgres_url") if engine == "postgres" else None
    found = tables(engine, url, ROWS)
    for mine, theirs in zip(found, tables("duckdb", None, ROWS), strict=True):
        assert mine.tolist() == theirs.tolist()
    assert all(table.sum() == len(ROWS.rows) for table in found)


def test_one_record_is_in_one_cell_of_each_table(engine: str, request: pytest.FixtureRequest) -> None:
    """What the sensitivity proofs ask of the engine, on the oddest values there are."""
    url = request.getfixturevalue("postgres_url") if engine == "postgres" else None
    whole = tables(engine, url, ROWS)
    for gone in range(len(ODD) if engine == "duckdb" else 3):
        less = tables(engine, url, Table(COLUMNS, ROWS.rows[:gone] + ROWS.rows[gone + 1 :]))
        for one, two in zip(whole, less, strict=True):
            moved = (one - two).reshape(-1)
            assert sorted(moved.tolist())[-1] == np.abs(moved).sum() == 1


def test_one_user_weighs_at_most_its_bound(engine: str, request: pytest.FixtureRequest) -> None:
    """What the proofs for users ask: whoever goes takes at most two rows out of every table, and nothing is added."""
    url = request.getfixturevalue("postgres_url") if engine == "postgres" else None
    columns = {"id": "integer", "g": "text", "b": "boolean"}
    rows = [(user, "ab"[i % 2], i % 3 == 0) for user, count in ((1, 1), (2, 2), (3, 9)) for i in range(count)]
    rows.append((None, "a", True))  # nobody's
    schema = Schema.of({"g": ["a", "b"], "b": Column("boolean")})

    def counted(kept: list[Any]) -> list[Any]:
        with Opened(location(engine, {"t": Table(columns, kept)}, url), schema, user("id", rows=2)) as opened:
            return opened.counts([(), (0,), (1,), (0, 1)])

    whole = counted(rows)
    for gone, weight in ((1, 1.0), (2, 2.0), (3, 2.0)):
        for one, two in zip(whole, counted([row for row in rows if row[0] != gone]), strict=True):
            moved = (one - two).reshape(-1)
            assert (moved >= 0).all()
            assert weight - 1e-4 < moved.sum() / (1 << 20) <= weight
