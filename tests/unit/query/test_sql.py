"""Private SQL means what SQL means: with next to no noise its answers are those of the engine itself."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pytest

from discreet import Ledger, connect, record, user
from discreet.accounting import curve
from discreet.errors import BudgetExceeded, InvalidDocument, InvalidQuery, InvalidValue, LedgerError
from discreet.query import Database

LOUD = 100.0  # an epsilon that leaves next to no noise: every comparison here is 20 scales of it wide, or more (2e-9)
DAY = datetime.date(2026, 1, 1)


def people(count: int = 3_000) -> pa.Table:
    draw = np.random.default_rng(7)
    age = draw.integers(0, 100, count).tolist()
    days = [DAY + datetime.timedelta(days=int(it)) for it in draw.integers(0, 90, count)]
    return pa.table({
        "patient_id": draw.permutation(np.arange(count) // 3), "ward": draw.choice(["A", "B", "C"], count, p=[0.6, 0.3, 0.1]),
        "age": [None if i % 10 == 0 else it for i, it in enumerate(age)], "cost": draw.gamma(2.0, 100.0, count),
        "smoker": draw.random(count) < 0.3, "day": days,
    })  # fmt: skip


TABLE = people()
WARDS = pa.table({"ward": ["A", "B", "D"], "floor": [1, 2, 3]})
SCHEMA = {
    "people": {"ward": {"values": ["A", "B", "C"]}, "age": {"bounds": [0, 120]}, "cost": {"bounds": [0, 2000]}},
    "wards": {"public": True},
}


@pytest.fixture(scope="module")
def db() -> Database:
    return connect({"people": TABLE, "wards": WARDS}, unit=user("patient_id", rows=10), schema=SCHEMA)


def truth(query: str) -> list[tuple[Any, ...]]:
    people, wards = TABLE, WARDS  # noqa: F841  (DuckDB finds them by name)
    return duckdb.sql(query).fetchall()


SAME = [
    "SELECT COUNT(*) AS x FROM people",
    "SELECT COUNT(age) AS x FROM people",
    "SELECT COUNT(DISTINCT patient_id) AS x FROM people",
    "SELECT COUNT(DISTINCT patient_id) AS x FROM people WHERE ward = 'C'",
    "SELECT SUM(age) AS x FROM people",
    "SELECT SUM(age) AS x, AVG(age) AS y, COUNT(*) AS z FROM people",
    "SELECT AVG(cost) AS x FROM people WHERE smoker",
    "SELECT VARIANCE(age) AS x, STDDEV(age) AS y FROM people",
    "SELECT SUM(CASE WHEN age > 50 THEN 1 ELSE 0 END) AS x FROM people",
    "SELECT COUNT_IF(age > 50) AS x, COUNT(*) FILTER (WHERE smoker) AS y FROM people",
    "SELECT SUM(age) FILTER (WHERE ward = 'A') AS x FROM people",
    "SELECT 100 * AVG(CASE WHEN smoker THEN 1 ELSE 0 END) AS x FROM people",
    "SELECT SUM(cost) / COUNT(*) AS x FROM people",
    "SELECT COUNT(*) AS x FROM people WHERE day BETWEEN '2026-01-10' AND '2026-02-01' AND NOT smoker",
    "SELECT COUNT(*) AS x FROM people WHERE EXTRACT(MONTH FROM day) = 2 OR age IS NULL",
    "SELECT COUNT(*) AS x FROM people WHERE LOWER(ward) || 'x' IN ('ax', 'bx')",
    "SELECT COUNT(*) AS x FROM people WHERE ward LIKE '%A%' AND LENGTH(ward) = 1",
    "SELECT SUM(LEAST(GREATEST(cost - 100, 0), 500)) AS x FROM people",
    "SELECT COUNT(*) AS x FROM people p JOIN wards w ON p.ward = w.ward WHERE w.floor = 2",
    "SELECT COUNT(*) AS x, COUNT(floor) AS y FROM people LEFT JOIN wards USING (ward)",
    "SELECT COUNT(*) AS x FROM people a JOIN people b ON a.patient_id = b.patient_id",
    "WITH t AS (SELECT patient_id, SUM(cost) AS s, COUNT(*) AS n FROM people GROUP BY patient_id) "
    "SELECT AVG(LEAST(GREATEST(s, 0), 3000)) AS x, SUM(CASE WHEN n > 2 THEN 1 ELSE 0 END) AS y FROM t",
    "SELECT COUNT(*) AS x FROM (SELECT patient_id FROM people WHERE smoker UNION ALL SELECT patient_id FROM people) t",
    "SELECT COUNT(*) AS x FROM (SELECT * FROM people WHERE age > 10) AS t WHERE t.age < 20",
    "SELECT MEDIAN(age) AS x FROM people",
]  # fmt: skip


@pytest.mark.parametrize("query", SAME)
def test_answers_are_the_engines_own(query: str, db: Database) -> None:
    found = db.sql(query, epsilon=LOUD).value
    expected = truth(query)[0]
    for name, right in zip([it for it in found.column_names if not it.endswith(("_low", "_high"))], expected):
        value, low, high = (found[name + end][0].as_py() for end in ("", "_low", "_high"))
        assert value == pytest.approx(float(right), rel=0.01, abs=1.5), name
        assert low <= value <= high


GROUPED = [
    "SELECT ward, COUNT(*) AS n, AVG(age) AS age FROM people GROUP BY ward",
    "SELECT ward AS w, COUNT(*) AS n FROM people GROUP BY w ORDER BY n DESC LIMIT 2",
    "SELECT ward, smoker, COUNT(*) AS n FROM people GROUP BY ward, smoker HAVING n > 200 ORDER BY ward, smoker",
    "SELECT ward, SUM(LEAST(cost, 500)) AS s FROM people GROUP BY ALL ORDER BY s",
    "SELECT date_trunc('month', day) AS m, COUNT(*) AS n FROM people GROUP BY 1 ORDER BY m",
    "SELECT FLOOR(age / 10) AS decade, COUNT(*) AS n FROM people WHERE age IS NOT NULL GROUP BY decade ORDER BY decade",
    "SELECT UPPER(ward) AS w, COUNT(*) AS n FROM people WHERE ward <> 'C' GROUP BY UPPER(ward) ORDER BY w",
]


@pytest.mark.parametrize("query", GROUPED)
@pytest.mark.parametrize("groups", [None, 3])
def test_groups_are_the_engines_own(query: str, groups: int | None) -> None:
    with connect({"people": TABLE}, unit=user("patient_id", rows=9), schema={"people": SCHEMA["people"]}) as db:
        found = db.sql(query, epsilon=LOUD, delta=1e-3, groups=groups).value
    names = [it for it in found.column_names if not it.endswith(("_low", "_high"))]
    rows = [tuple(found[name][i].as_py() for name in names) for i in range(found.num_rows)]
    expected = truth(query)
    if "ORDER BY" not in query:
        rows, expected = sorted(rows), sorted(expected)
    assert len(rows) == len(expected)
    for row, right in zip(rows, expected):
        for a, b in zip(row, right):
            assert a == (pytest.approx(float(b), rel=0.02, abs=2.0) if isinstance(a, float) else b)


def test_public_groups_without_rows_appear_and_others_do_not(db: Database) -> None:
    query = "SELECT ward, COUNT(*) AS n FROM people GROUP BY ward"
    found = db.sql(query, epsilon=LOUD, keys={"ward": ["A", "Z"]}).value
    assert found["ward"].to_pylist() == ["A", "Z"]
    assert found["n"][1].as_py() == pytest.approx(0, abs=2)


def test_private_groups_need_a_delta(db: Database) -> None:
    query = "SELECT smoker, age, COUNT(*) AS n FROM people GROUP BY smoker, age"
    with pytest.raises(InvalidQuery, match="delta"):
        db.sql(query, epsilon=1.0)
    assert set(db.sql(query, epsilon=LOUD, delta=1e-3).value["smoker"].to_pylist()) == {False, True}


def test_truth_values_are_public_groups(db: Database) -> None:
    found = db.sql("SELECT smoker, COUNT(*) AS n FROM people GROUP BY smoker", epsilon=LOUD)
    assert found.value["smoker"].to_pylist() == [False, True, None]
    assert curve(found.claims[0].event).epsilon(0.0) <= LOUD * (1 + 1e-9)


def test_several_quantiles_at_once(db: Database) -> None:
    found = db.sql(
        "SELECT QUANTILE(age, [0.1, 0.5, 0.9]) AS q, MIN(age) AS low, MAX(age) AS high FROM people", epsilon=LOUD
    ).value
    values = [found[name][0].as_py() for name in ("q_0.1", "q_0.5", "q_0.9")]
    right = np.quantile([it for it in TABLE["age"].to_pylist() if it is not None], [0.1, 0.5, 0.9])
    assert values == pytest.approx(right, abs=2.5)
    assert found["low"][0].as_py() < 6
    assert found["high"][0].as_py() > 93


def test_histograms_have_public_bins(db: Database) -> None:
    found = db.sql("SELECT BUCKET(age, 12) AS b, COUNT(*) AS n FROM people GROUP BY b", epsilon=LOUD).value
    assert found["b"].to_pylist() == [float(it) for it in range(0, 120, 10)]
    counts = np.histogram([it for it in TABLE["age"].to_pylist() if it is not None], np.arange(0, 121, 10))[0]
    assert found["n"].to_pylist() == pytest.approx(counts.tolist(), abs=3)


def test_a_unit_beyond_its_rows_weighs_no_more() -> None:
    heavy = pa.table({"id": [1] * 1_000 + [2], "v": [1.0] * 1_001})
    for plan in ({}, {"groups": 1}):
        with connect({"t": heavy}, unit=user("id", rows=4), bounds={"v": (0, 1)}) as db:
            found = db.sql("SELECT COUNT(*) AS n, SUM(v) AS s FROM t", epsilon=LOUD, **plan).value
            assert found["n"][0].as_py() == pytest.approx(5, abs=2)
            assert found["s"][0].as_py() == pytest.approx(5, abs=2)


def test_registered_tables_answer_alike(db: Database) -> None:
    with connect({"people": TABLE}, unit=user("patient_id", rows=2), schema={"people": SCHEMA["people"]}) as again:
        query = "SELECT ward, COUNT(*) AS n, AVG(cost) AS c FROM people WHERE age > 20 GROUP BY ward"
        fresh = again.sql(query, epsilon=LOUD).value
        known = again.register().sql(query, epsilon=LOUD)
        assert "registered" in known.claims[0].assumptions[0]
        assert known.value["c"].to_pylist() == pytest.approx(fresh["c"].to_pylist(), rel=0.05)
        joined = "SELECT COUNT(*) AS n FROM people a JOIN people b ON a.patient_id = b.patient_id"
        assert "in this query" in again.explain(joined, epsilon=1.0).plan


def test_null_units_nan_and_infinity_are_one_contribution_or_none() -> None:
    ids: list[int | None] = [*range(400), *([None] * 100)]
    table = pa.table({"id": ids, "v": [float("nan"), float("inf"), -float("inf"), 5.0] * 100 + [7.0] * 100})
    with connect({"t": table}, unit=user("id", rows=1), bounds={"v": (0, 10)}) as db:
        found = db.sql("SELECT COUNT(*) AS n, COUNT(v) AS known, SUM(v) AS s FROM t", epsilon=LOUD).value
        assert [found[name][0].as_py() for name in ("n", "known", "s")] == pytest.approx([400, 100, 500], abs=30)


def test_explain_reads_and_spends_nothing(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(db.engine, "aggregate", lambda request: pytest.fail("a row was read"))
    told = db.explain("SELECT ward, COUNT(*) AS n, AVG(age) AS age, MEDIAN(cost) AS m FROM people GROUP BY ward", epsilon=0.5)
    assert set(told.errors) == {"n", "age", "m"}
    assert told.epsilon == pytest.approx(0.5, abs=1e-8)
    assert "within" in str(told)
    assert told.to_json()["plan"] == told.plan


def test_the_claim_is_what_was_asked(db: Database) -> None:
    found = db.sql("SELECT ward, COUNT(*) AS n, AVG(age) AS a, VARIANCE(cost) AS v FROM people GROUP BY ward", epsilon=0.7)
    event = found.claims[0].event
    assert curve(event).epsilon(0.0) == pytest.approx(0.7, rel=1e-9)
    keyed = db.sql("SELECT smoker, COUNT(*) AS n FROM people GROUP BY smoker", epsilon=0.7, delta=1e-5)
    assert curve(keyed.claims[0].event).delta(0.7) <= 1e-5 * (1 + 1e-9)


def test_intervals_say_what_they_leave_out(db: Database) -> None:
    found = db.sql("SELECT COUNT(*) AS n FROM people", epsilon=1.0).value
    assert b"not included" in found.schema.metadata[b"discreet"]


def test_weights_make_a_column_more_exact(db: Database) -> None:
    query = "SELECT COUNT(*) AS n, SUM(cost) AS s FROM people"
    even, tilted = (db.explain(query, epsilon=1.0, weights=it).errors["n"] for it in (None, {"n": 10.0}))
    assert float(tilted.split()[1]) < float(even.split()[1])
    with pytest.raises(InvalidValue, match="weights"):
        db.explain(query, epsilon=1.0, weights={"x": 1.0})


def test_an_answer_tells_what_was_asked(db: Database) -> None:
    asked = "SELECT COUNT(*) AS n\n  FROM people"
    facts = db.sql(asked, epsilon=1.0).facts
    assert facts["query"] == asked
    assert facts["title"] == "SELECT COUNT(*) AS n FROM people"
    assert facts["made"]["packages"]["duckdb"] == duckdb.__version__
    many = f"SELECT COUNT(*) AS n FROM people WHERE age IN ({', '.join(map(str, range(100)))})"
    assert len(db.sql(many, epsilon=1.0).facts["title"]) == 120


def test_a_budget_is_spent_and_refuses(tmp_path: Path) -> None:
    unit = user("patient_id", rows=10)
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("hospital", unit=unit, epsilon=1.0, delta=1e-6)
    with connect({"people": TABLE}, unit=unit, ledger=ledger, source="hospital") as db:
        first = db.sql("SELECT COUNT(*) AS n FROM people", epsilon=0.4)
        again = db.sql("select  COUNT(*)  AS n from people", epsilon=0.4)
        assert again.entry == first.entry
        assert again.value.equals(first.value)
        with pytest.raises(BudgetExceeded):
            [db.sql(f"SELECT COUNT(*) AS n FROM people WHERE age > {i}", epsilon=0.4) for i in range(20)]
        spent = ledger.spent("hospital")
        with pytest.raises(InvalidQuery):
            db.sql("SELECT age FROM people", epsilon=0.4)
        assert ledger.spent("hospital") == spent
        assert "hospital" in str(db.explain("SELECT COUNT(*) AS n FROM people", epsilon=0.4).left)
    ledger.verify()


def test_a_source_that_is_not_open_is_told_at_once(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger, pytest.raises((InvalidValue, LedgerError), match="nobody"):
        connect({"people": TABLE}, unit=record(), ledger=ledger, source="nobody")


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_rows_as_units(relation: str) -> None:
    with connect({"people": TABLE}, unit=record(relation), bounds={"cost": (0, 2000)}) as db:
        found = db.sql("SELECT COUNT(*) AS n, AVG(cost) AS c FROM people", epsilon=LOUD).value
        assert found["n"][0].as_py() == pytest.approx(3_000, abs=2)
        assert found["c"][0].as_py() == pytest.approx(np.mean(TABLE["cost"].to_numpy()), rel=0.01)


def test_files_of_every_type(tmp_path: Path) -> None:
    import pyarrow.csv
    import pyarrow.parquet

    pyarrow.parquet.write_table(TABLE, tmp_path / "people.parquet")
    pyarrow.csv.write_csv(TABLE, tmp_path / "people.csv")
    whole = TABLE  # noqa: F841  (DuckDB finds it by name)
    with duckdb.connect(str(tmp_path / "people.duckdb")) as made:
        made.execute("CREATE TABLE people AS SELECT * FROM whole").fetchall()
    for place in ("people.parquet", "people.csv", "people.duckdb"):
        schema = {"people": {name: {"type": "integer" if name == "patient_id" else "text"} for name in TABLE.column_names}}
        with connect(tmp_path / place, unit=user("patient_id", rows=10), schema=schema) as db:
            assert db.sql("SELECT COUNT(*) AS n FROM people", epsilon=LOUD).value["n"][0].as_py() == pytest.approx(3_000, abs=9)
    for frame in (TABLE, TABLE.to_pandas()):
        with connect(frame, unit=user("patient_id", rows=10)) as db:
            answer = db.sql("SELECT COUNT(*) AS n FROM data", epsilon=LOUD)
            assert answer.value.to_pandas()["n"][0] == pytest.approx(3_000, abs=9)
            assert polars.from_arrow(answer.value)["n"][0] == answer.value.to_pandas()["n"][0]


def test_bounds_are_found_privately(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("discreet.query.bounds.MISTAKE", 1e-9)  # how often this test may fail
    low, high = db.find_bounds("cost", epsilon=5.0).value
    inside = np.mean([(low <= it <= high) for it in TABLE["cost"].to_pylist()])
    assert inside > 0.8
    assert 0 <= low < 60
    assert 400 < high < 3_000
    none = connect({"t": TABLE.slice(0, 3)}, unit=record()).find_bounds("cost", epsilon=0.1)
    assert none.value[0] < -1e15
    assert none.value[1] > 1e15
    assert "no bounds stood out" in none.facts["note"]
    with pytest.raises(InvalidValue, match="holds text"):
        db.find_bounds("ward", epsilon=1.0)


BAD = [
    ({"bounds": {"age": (5, 1)}}, InvalidValue, "rise"), ({"bounds": {"age": 5}}, InvalidValue, "two numbers"),
    ({"bounds": {"ward": (0, 1)}}, InvalidValue, "holds text"),
    ({"schema": {"people": {"nope": {"bounds": [0, 1]}}}}, InvalidValue, "no such"),
    ({"schema": {"people": {"age": {"bound": [0, 1]}}}}, InvalidDocument, "can say"),
    ({"unit": user("nope", rows=1)}, InvalidValue, "nope"),
    ({"schema": "/nowhere.toml"}, InvalidDocument, "cannot be read"), ({"ledger": "x.db"}, InvalidValue, "go together"),
    ({"unit": "me"}, InvalidValue, "must be a Unit"), ({"schema": {"people": 3}}, InvalidDocument, "must be a list"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "error", "told"), BAD)
def test_connect_says_what_is_wrong(given: dict[str, Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        connect({"people": TABLE}, **{"unit": record(), **given})


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), "1", 1e9, 1e-9])
def test_epsilon_must_make_sense(epsilon: Any, db: Database) -> None:
    with pytest.raises(InvalidValue, match="epsilon"):
        db.sql("SELECT COUNT(*) AS n FROM people", epsilon=epsilon)


@pytest.mark.parametrize(
    ("place", "told"), [("nope.parquet", "not a file"), ("x.txt", "no known type"), ("bad.parquet", "cannot read")]
)
def test_files_that_are_not_there_or_not_data(place: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("hello")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(InvalidValue, match=told):
        connect(tmp_path / place, unit=record())


def test_an_empty_table_answers_with_noise() -> None:
    empty = pa.table({"id": pa.array([], pa.int64()), "v": pa.array([], pa.float64()), "g": pa.array([], pa.string())})
    with connect({"t": empty}, unit=user("id", rows=2), bounds={"v": (0, 1)}) as db:
        found = db.sql("SELECT COUNT(*) AS n, AVG(v) AS a FROM t", epsilon=1.0).value
        assert found.num_rows == 1
        assert (found["a_low"][0].as_py(), found["a_high"][0].as_py()) == (0.0, 1.0)
        assert db.sql("SELECT g, COUNT(*) AS n FROM t GROUP BY g", epsilon=1.0, delta=1e-6).value.num_rows == 0


@pytest.mark.parametrize("groups", [None, 1])
def test_a_group_is_not_named_by_whose_row_came_first(groups):
    """0.0 and -0.0 are one group."""
    for first in (0.0, -0.0):
        rows = pa.table({"id": range(200), "x": [first] + [0.0] * 98 + [-0.0] * 101})
        with connect({"t": rows}, unit=user("id", rows=1)) as db:
            found = db.sql("SELECT x, COUNT(*) AS n FROM t GROUP BY x", epsilon=LOUD, delta=1e-6, groups=groups).value
        assert [str(key) for key in found["x"].to_pylist()] == ["0.0"]


def test_what_is_no_number_is_a_group_of_its_own():
    rows = pa.table({"id": range(300), "x": [1e308, -1e308, None] * 100})
    with connect({"t": rows}, unit=user("id", rows=1), bounds={"x": (0, 1)}) as db:
        query = "SELECT x * 10 - x * 10 AS k, COUNT(*) AS n, MEDIAN(x) AS m FROM t GROUP BY 1"
        found = db.sql(query, epsilon=LOUD, delta=1e-6).value.to_pylist()
    assert [it["k"] for it in found] == [None]
    assert found[0]["n"] == pytest.approx(300, abs=5)


@pytest.mark.parametrize("clause", ["HAVING COUNT(*) > 2500", "ORDER BY COUNT(*)", "HAVING COUNT(*) > 1 ORDER BY COUNT(*)"])
def test_what_only_having_and_order_by_need_has_its_part_of_epsilon(clause: str) -> None:
    """Once the count got a thousandth of epsilon, and 3,000 rows failed HAVING COUNT(*) > 2500 in 27 % of answers."""
    table = pa.table({"g": ["a"] * 5_000 + ["b"] * 3_000, "x": [0.5] * 8_000})
    schema = {"t": {"g": {"values": ["a", "b"]}, "x": {"bounds": [0, 1]}}}
    with connect({"t": table}, unit=record(), schema=schema) as db:
        query = f"SELECT g, AVG(x) AS a FROM t GROUP BY g {clause}"
        told = db.explain(query, epsilon=1.0)
        shown = db.explain("SELECT g, AVG(x) AS a, COUNT(*) AS n FROM t GROUP BY g", epsilon=1.0)
        assert told.event == shown.event
        assert told.epsilon == shown.epsilon == 1.0
        assert told.errors["a"] == shown.errors["a"]
        assert told.errors["COUNT in HAVING or ORDER BY"].startswith(f"{shown.errors['n']}; it has its part of epsilon")
        found = db.sql(query, epsilon=1.0).value["g"].to_pylist()  # the noise has to exceed 500 at a scale of 2: below 1e-100
    assert sorted(found) == ["a", "b"]


def test_weights_of_columns_are_not_overruled_by_having() -> None:
    with connect({"people": TABLE, "wards": WARDS}, unit=record(), schema=SCHEMA) as db:
        query = "SELECT ward, COUNT(*) AS n, AVG(age) AS a FROM people GROUP BY ward"
        plain, later = (
            db.explain(f"{query}{more}", epsilon=1.0, weights={"n": 0.1}) for more in ("", " HAVING n > 1 ORDER BY a")
        )
    assert plain.errors == later.errors
