"""Queries without a meaning are refused before anything is spent; rows that are units stay one row each."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from discreet import Ledger, connect, record, user
from discreet.errors import InvalidQuery
from discreet.query.answer import Noisy

TABLE = pa.table({"id": [1, 1, 2, 3], "ward": ["A", "B", "A", "A"], "age": [30, 31, None, 60], "day": [date(2024, 1, 1)] * 4})
WARDS = pa.table({"w": ["A", "A", "A", "B"], "floor": [1, 2, 3, 4]})

MEANINGLESS = """
SELECT ward + 1 AS x, COUNT(*) AS n FROM t GROUP BY ward
SELECT -ward AS x, COUNT(*) AS n FROM t GROUP BY ward
SELECT ROUND(ward) AS x, COUNT(*) AS n FROM t GROUP BY ward
SELECT day * 2 AS x, COUNT(*) AS n FROM t GROUP BY day
SELECT 'a' - 1 AS x, COUNT(*) AS n FROM t
SELECT SUM(age) * '1' AS n FROM t
SELECT ward, COUNT(*) AS n FROM t GROUP BY ward HAVING ward > 3
SELECT ward, COUNT(*) AS n FROM t GROUP BY ward HAVING n = 'a'
SELECT ward, COUNT(*) AS n FROM t GROUP BY ward HAVING n
SELECT ward, COUNT(*) AS n FROM t GROUP BY ward HAVING NOT n
SELECT ward, COUNT(*) AS n FROM t GROUP BY ward HAVING n > 1 AND ward
SELECT day, COUNT(*) AS n FROM t GROUP BY day HAVING day > 'monday'
SELECT COUNT(*) AS n, COUNT(age) AS n_low FROM t
SELECT BUCKET(age, 3) AS b FROM t GROUP BY 1
SELECT COUNT() AS n FROM t
SELECT COUNT() FILTER (WHERE age > 3) AS n FROM t
SELECT COUNT_IF() AS n FROM t
SELECT SUM() AS n FROM t
SELECT COUNT(NULL) AS n FROM t
SELECT COUNT(*) AS n FROM (SELECT id, COUNT(NULL) AS y FROM t GROUP BY id) q
SELECT COUNT(*) AS n FROM t WHERE SUBSTRING(ward) = 'A'
SELECT QUANTILE() FILTER (WHERE age > 3) AS n FROM t
SELECT MIN(age, 3) AS n FROM t
SELECT APPROX_QUANTILE(age, 0.5, 0.1) AS n FROM t
SELECT COUNT(*) AS n FROM t WHERE age BETWEEN SYMMETRIC 60 AND 30
SELECT COUNT(*) AS n FROM t WHERE ROUND(age, 1, 1) > 0
SELECT COUNT(*) AS n FROM t WHERE LENGTH(ward, 'x') = 1
SELECT ward, COUNT(*) AS n FROM t GROUP BY ward ORDER BY n NULLS FIRST
SELECT COUNT(*) AS n FROM t LIMIT 10%
SELECT COUNT(*) AS n FROM (SELECT id, MAX(age, 3) AS y FROM t GROUP BY id) q
SELECT QUANTILE(age) AS n FROM t
SELECT MEDIAN() AS n FROM t
SELECT AVG(ABS()) AS n FROM t
SELECT COUNT(*) AS n, COUNT(age) AS N_HIGH FROM t
""".strip().splitlines()


@pytest.mark.parametrize("query", [*MEANINGLESS, "SELECT COUNT(*) AS n FROM t GROUP BY " + "1" * 5_000])
def test_refused_and_free(query: str, tmp_path: Path) -> None:
    unit = user("id", rows=2)
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("t", unit=unit, epsilon=1.0, delta=1e-6)
        db = connect({"t": TABLE}, unit=unit, bounds={"age": (0, 120)}, ledger=ledger, source="t")
        with pytest.raises(InvalidQuery):
            db.sql(query, epsilon=0.1, delta=1e-6)
        with pytest.raises(InvalidQuery):
            db.explain(query, epsilon=0.1, delta=1e-6)
        assert ledger.spent("t") == 0


def test_keys_are_numbers_dates_and_null_after_the_noise() -> None:
    schema = {"t": {"age": {"values": [30, None], "bounds": [0, 120]}, "day": {"values": [date(2024, 1, 1), date(2025, 1, 1)]}}}
    with connect({"t": TABLE}, unit=user("id", rows=2), schema=schema) as db:
        found = db.sql("SELECT age, -age AS m, age + 1 AS p, COUNT(*) AS n FROM t GROUP BY age", epsilon=1.0).value
        assert found["m"][0].as_py() == -30
        assert found["p"][0].as_py() == 31
        late = db.sql(
            "SELECT day, COUNT(*) AS n FROM t GROUP BY day HAVING day >= '2024-06-01' ORDER BY day", epsilon=1.0
        ).value
        assert late["day"].to_pylist() == [date(2025, 1, 1)]


COPY = pa.table(TABLE.to_pydict(), TABLE.schema)  # rows of its own
FANNED = [
    "SELECT COUNT(*) AS n FROM t JOIN wards ON ward = w", "SELECT COUNT(*) AS n FROM t LEFT JOIN wards ON TRUE",
    "SELECT COUNT(*) AS n FROM (SELECT t.* FROM t JOIN wards ON ward = w) q",
    "SELECT COUNT(*) AS n FROM (SELECT age FROM t UNION ALL SELECT age FROM t JOIN wards ON ward = w) q",
]  # fmt: skip
DOUBLED = [
    "SELECT COUNT(*) AS n FROM (SELECT * FROM t UNION ALL SELECT * FROM t) q",
    "WITH a AS (SELECT age FROM t), b AS (SELECT * FROM a UNION ALL SELECT age FROM t WHERE age > 3) "
    "SELECT COUNT(*) AS n FROM b",
]


@pytest.mark.parametrize("query", FANNED)
def test_a_row_that_is_a_unit_is_not_counted_twice(query: str) -> None:
    tables, schema = {"t": TABLE, "wards": WARDS, "other": COPY}, {"wards": {"public": True}}
    with connect(tables, unit=record(), schema=schema) as db, pytest.raises(InvalidQuery, match="Each row is a unit"):
        db.sql(query, epsilon=1.0)
    with connect(tables, unit=user("id", rows=1), schema=schema) as db:
        query = query.replace("SELECT age", "SELECT id, age")
        assert db.sql(query, epsilon=100).value["n"][0].as_py() == pytest.approx(3, abs=0.5), "weighted, three people weigh 3"


@pytest.mark.parametrize("query", DOUBLED)
def test_a_row_that_is_a_unit_counts_as_often_as_it_is_there(query: str) -> None:
    with connect({"t": TABLE}, unit=record()) as db:
        assert [measure.sensitivity for measure in db._price(query, 1.0, None, None, None, None).measures] == [2]
    with connect({"t": TABLE}, unit=user("id", rows=1)) as db:
        query = query.replace("SELECT age", "SELECT id, age")
        assert db.sql(query, epsilon=100).value["n"][0].as_py() == pytest.approx(3, abs=0.5), "weighted, three people weigh 3"


def test_rows_of_different_tables_may_be_put_together() -> None:
    with connect({"t": TABLE, "other": COPY}, unit=record()) as db:
        found = db.sql("SELECT COUNT(*) AS n FROM (SELECT * FROM t UNION ALL SELECT * FROM other) q", epsilon=100).value
        assert found["n"][0].as_py() == pytest.approx(8, abs=0.5)


UNMATCHED = {
    "COUNT(floor) AS x FROM t LEFT JOIN wards ON ward = w": 300, "AVG(floor) AS x FROM t LEFT JOIN wards ON ward = w": 3.0,
    "COUNT(one) AS x FROM t LEFT JOIN (SELECT id, 1 AS one FROM t WHERE ward = 'A') q ON t.id = q.id": 300,
    "COUNT(n) AS x FROM t LEFT JOIN (SELECT id, COUNT(*) AS n FROM t WHERE ward = 'A' GROUP BY id) q ON t.id = q.id": 300,
    "COUNT(floor) AS x FROM (SELECT t.id, floor FROM t LEFT JOIN wards ON ward = w) q": 300,
}  # fmt: skip


@pytest.mark.parametrize("asked", UNMATCHED)
def test_what_no_row_matches_is_null_though_it_is_never_null_by_itself(asked: str) -> None:
    table = pa.table({"id": range(400), "ward": list("AAAB") * 100})
    schema = {"wards": {"public": True, "floor": {"required": True, "bounds": [0, 10]}}}
    with connect({"t": table, "wards": pa.table({"w": ["A"], "floor": [3]})}, unit=user("id", rows=1), schema=schema) as db:
        found = db.sql(f"SELECT {asked}", epsilon=100).value["x"][0].as_py()
        assert found == pytest.approx(UNMATCHED[asked], rel=0.01)  # 100 scales of the noise and more


NEGATED = {
    "ward NOT LIKE 'A'": 1, "NOT ward LIKE 'A'": 1, "ward NOT ILIKE 'a'": 1, "ward NOT IN ('A')": 1, "ward <> 'A'": 1,
    "age NOT BETWEEN 30 AND 31": 1, "age IS NOT NULL": 3, "NOT (age = 30)": 2, "ward LIKE 'A'": 3, "ward ILIKE 'a'": 3,
}  # fmt: skip


@pytest.mark.parametrize("condition", NEGATED)
def test_not_means_not(condition: str) -> None:
    with connect({"t": TABLE}, unit=record()) as db:
        found = db.sql(f"SELECT COUNT(*) AS n FROM t WHERE {condition}", epsilon=100).value
        assert found["n"][0].as_py() == pytest.approx(NEGATED[condition], abs=0.5)


COLUMNS = {
    "MEDIAN(age) AS m": [0.95], "MEDIAN(age) / COUNT(*) AS m": [0.975], "MEDIAN(age) AS m, SUM(age) AS s": [0.95],
    "MEDIAN(age) AS m, MIN(age) - MAX(age) * COUNT(*) AS s": [0.95, 1 - 0.05 / 3, 1 - 0.05 / 3],
}  # fmt: skip


@pytest.mark.parametrize(("asked", "sure"), COLUMNS.items())
def test_all_parts_of_a_column_hold_at_once(asked: str, sure: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """The interval of a column that is made of several statistics holds with the same 95 %."""
    told, ranked = [], Noisy.ranked
    monkeypatch.setattr(Noisy, "ranked", lambda *args: (told.append(args[-1]), ranked(*args))[1])
    with connect({"t": TABLE}, unit=record(), bounds={"age": (0, 120)}) as db:
        db.sql(f"SELECT {asked} FROM t", epsilon=1.0)
    assert told == pytest.approx(sure)
