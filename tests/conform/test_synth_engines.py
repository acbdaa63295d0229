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
from discreet.synth.linked_table import LinkedTable
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


USERS = {"id": "integer", "g": "text"}
VISITS = {"b": "boolean", "id": "integer"}
FEW = [(1, "a"), (2, "b"), (3, "a"), (4, None), (None, "a"), (6, "b"), (6, "a")]  # one has no key, one is there twice
MANY = [(i % 3 == 0, user) for user, count in ((1, 1), (2, 3), (3, 9), (6, 5), (7, 4), (None, 3)) for i in range(count)]


def linked(engine: str, url: str | None, gone: int | None = None) -> tuple[list[Any], list[Any]]:
    """Exact tables of parents with the number of their children, and of children beside their parent's columns."""
    kept = [row for row in FEW if gone is None or row[0] != gone], [row for row in MANY if gone is None or row[1] != gone]
    place = location(engine, {"users": Table(USERS, kept[0]), "visits": Table(VISITS, kept[1])}, url)
    schemas = {"users": Schema.of({"g": ["a", "b"]}), "visits": Schema.of({"b": Column("boolean")})}
    with LinkedTable(place, schemas, "users", "visits", user("id", rows=4)) as opened:
        return opened.parents.counts([(0, 1)]), opened.children.counts([(), (0,), (1, 2), (0, 1)])


def test_a_parent_and_its_children_weigh_at_most_their_bounds(engine: str, request: pytest.FixtureRequest) -> None:
    """Parents are counted once by how many children they have; a parent's children weigh at most four rows together."""
    url = request.getfixturevalue("postgres_url") if engine == "postgres" else None
    parents, children = linked(engine, url)
    part = 1 << 20
    expected = np.zeros((3, 5), np.int64)  # g: a, b, missing; number: 0 to 4 or more
    for group, number in ((0, 1), (1, 3), (0, 4), (2, 0)):
        expected[group, number] += part
    expected[:2, 4] += part // 2  # who is there twice weighs half in each
    assert parents[0].tolist() == expected.tolist()
    assert children[0] == pytest.approx((1 + 3 + 4 + 4) * part, abs=20)
    for gone, weight in ((3, 4), (6, 4), (1, 1), (2, 3), (7, 0))[: 1 if engine == "spark" else 5]:
        fewer, less = linked(engine, url, gone)
        assert np.abs(parents[0] - fewer[0]).sum() == (part if gone != 7 else 0)
        for one, two in zip(children, less, strict=True):
            moved = (one - two).reshape(-1)
            assert (moved >= 0).all()
            assert weight * part - 20 <= moved.sum() <= weight * part
