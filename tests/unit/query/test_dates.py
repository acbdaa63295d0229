"""Dates in private SQL: what is written out is moved as SQL moves it, days are counted, and refusals say what to write."""

from __future__ import annotations

import datetime

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from discreet import connect, user
from discreet.errors import InvalidQuery
from discreet.query import Database

LOUD = 100.0  # leaves next to no noise
DAYS = [datetime.date(2024, 1, 1) + datetime.timedelta(days=int(it)) for it in np.random.default_rng(3).integers(0, 800, 500)]
VISITS = pa.table({
    "id": np.arange(500) // 2, "day": DAYS, "gone": [it + datetime.timedelta(days=i % 30) for i, it in enumerate(DAYS)],
    "seen": [datetime.datetime(it.year, it.month, it.day, i % 24, 59) for i, it in enumerate(DAYS)],
})  # fmt: skip


@pytest.fixture(scope="module")
def db() -> Database:
    return connect({"visits": VISITS}, unit=user("id", rows=2))


SAME = [
    "SELECT COUNT(*) AS x FROM visits WHERE day > DATE '2025-03-31' - INTERVAL 1 MONTH",
    "SELECT COUNT(*) AS x FROM visits WHERE day <= DATE '2024-02-29' + INTERVAL '1 year'",
    "SELECT COUNT(*) AS x FROM visits WHERE day BETWEEN DATE '2024-06-30' AND DATE '2024-06-30' + INTERVAL 2 QUARTERS",
    "SELECT COUNT(*) AS x FROM visits WHERE seen < TIMESTAMP '2024-12-31 18:30:00' - INTERVAL 3 WEEKS",
    "SELECT AVG(LEAST(GREATEST(gone - day, 0), 30)) AS x FROM visits",
    "SELECT AVG(LEAST(GREATEST(DATE_DIFF('day', seen, gone), 0), 30)) AS x FROM visits WHERE gone > '2024-03-01'",
    "SELECT COUNT(*) AS x FROM visits WHERE DATE_DIFF('day', day, gone) > 7",
    "SELECT COUNT(*) AS x FROM visits WHERE DAYOFWEEK(day) IN (0, 6)",
    "SELECT COUNT(*) AS x FROM visits WHERE DATE_PART('month', seen) = 2 AND EXTRACT(DOW FROM seen) <> 3",
    "SELECT AVG(LEAST(n, 10)) AS x FROM (SELECT id, COUNT(*) AS n FROM visits GROUP BY id) q",
]


@pytest.mark.parametrize("query", SAME)
def test_dates_mean_what_they_mean_in_sql(db: Database, query: str) -> None:
    """An interval of the noise beside each number: within 20 scales of it (2e-9), and dates one off would be further."""
    visits = VISITS  # noqa: F841  (DuckDB finds it by name)
    found = db.sql(query, epsilon=LOUD).value
    wide = 5 * (found["x_high"][0].as_py() - found["x_low"][0].as_py())
    assert found["x"][0].as_py() == pytest.approx(float(duckdb.sql(query).fetchall()[0][0]), abs=wide)
    assert wide < 10


TOLD = {
    "SELECT COUNT(*) AS n FROM visits WHERE day > CURRENT_DATE": "Write the day out",
    "SELECT COUNT(*) AS n FROM visits WHERE seen > CURRENT_TIMESTAMP": "Write it out",
    "SELECT COUNT(*) AS n FROM visits WHERE day + INTERVAL 7 DAY > '2024-01-01'": "written out",
    "SELECT COUNT(*) AS n FROM visits WHERE day > DATE '2024-01-01' - INTERVAL 7 HOUR": "with one of year, quarter",
    "SELECT COUNT(*) AS n FROM visits WHERE day > DATE '2024-01-01' - INTERVAL (id) DAY": "like INTERVAL 30 DAY",
    "SELECT COUNT(*) AS n FROM visits WHERE day > DATE '2024-01-01' - INTERVAL 999999 MONTH": "years 1 to 9999",
    "SELECT AVG(seen - gone) AS n FROM visits": "DATE_DIFF",
    "SELECT AVG(gone - day) AS n FROM visits": "needs bounds",
    "SELECT AVG(DATE_DIFF('month', day, gone)) AS n FROM visits": "Divide",
    "SELECT STRFTIME(day, '%Y-%m') AS m, COUNT(*) AS n FROM visits GROUP BY 1": "DATE_TRUNC",
    "SELECT EXTRACT(EPOCH FROM seen) AS m, COUNT(*) AS n FROM visits GROUP BY 1": "hour, minute, dow are",
    "SELECT * FROM visits LIMIT 3": "Rows are not given out",
    "SELECT id, COUNT(*) AS n FROM visits GROUP BY id": "one person each",
    "SELECT day, n FROM (SELECT day, COUNT(*) AS n FROM visits GROUP BY day) q WHERE n > 9": "HAVING",
    "SELECT COUNT(*) AS n FROM public.visits": "no table public.visits; there are visits",
    "SELECT AVG(n) AS n FROM (SELECT id, COUNT(*) AS n FROM visits GROUP BY id) q": "needs bounds",
}


@pytest.mark.parametrize("query", TOLD)
def test_refusals_say_what_to_write(db: Database, query: str) -> None:
    with pytest.raises(InvalidQuery, match=TOLD[query]):
        db.explain(query, epsilon=1.0, delta=1e-6)


def test_people_may_be_groups_where_their_list_is_public(db: Database) -> None:
    found = db.sql("SELECT id, COUNT(*) AS n FROM visits GROUP BY id", epsilon=LOUD, keys={"id": [1, 2]}).value
    assert found["id"].to_pylist() == [1, 2]


def test_differences_inside_one_another_are_read_once(db: Database) -> None:
    """Else every minus would double the work: 150 of them would not end."""
    text = " - ".join(["DATE_DIFF('day', day, gone)"] * 150)
    assert db.explain(f"SELECT COUNT(*) AS n FROM visits WHERE {text} > 0", epsilon=1.0).errors
