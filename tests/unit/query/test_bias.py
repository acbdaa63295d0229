"""What clamping and bounding touch, told on request: the right shares, for the same epsilon."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from discreet import Ledger, connect, record, user
from discreet.accounting import curve
from discreet.cli.query import command
from discreet.errors import InvalidQuery, InvalidValue
from discreet.query import Database
from discreet.query.mechanism import SqlQuery
from discreet.query.statistics.quantity import Cut

LOUD = 100.0  # the noise is small: shares are off by 0.05 with probability below 1e-9
DRAW = np.random.default_rng(5)
IDS = np.concatenate([np.repeat(np.arange(20), 50), np.arange(20, 2_020)])  # 20 of 50 rows each, 2,000 of one
COST = DRAW.uniform(0, 200, len(IDS))
TABLE = pa.table(
    {
        "id": IDS,
        "ward": np.where(np.arange(len(IDS)) % 2, "A", "B"),
        "cost": pa.array(COST, mask=np.arange(len(IDS)) % 5 == 0),
        "age": DRAW.integers(0, 100, len(IDS)),
    }
)
QUERY = "SELECT ward, COUNT(*) AS n, AVG(cost) AS c, MEDIAN(age) AS a FROM t GROUP BY ward"
SCHEMA = {"t": {"ward": {"values": ["A", "B"]}, "cost": {"bounds": [50, 150]}, "age": {"bounds": [0, 120]}}}
PLANS = ["rows", "weighted", "registered", "sampled"]


def opened(plan: str, table: pa.Table = TABLE) -> tuple[Database, dict[str, int]]:
    db = connect({"t": table}, unit=record() if plan == "rows" else user("id", rows=4), schema=SCHEMA)
    return (db.register() if plan == "registered" else db), {"groups": 2} if plan == "sampled" else {}


def weight_of(plan: str) -> tuple[np.ndarray, np.ndarray]:
    """What each row weighs, and whether its unit was cut."""
    heavy = IDS < 20
    if plan == "rows":
        return np.ones(len(IDS)), np.zeros(len(IDS), bool)
    return np.where(heavy, 4 / 50, 1.0), heavy  # sampled: 2 of the 25 rows in each ward, which is the same


@pytest.mark.parametrize("plan", PLANS)
def test_shares_are_right(plan: str) -> None:
    db, more = opened(plan)
    found = db.sql(QUERY, epsilon=LOUD, bias=True, **more).value.to_pydict()
    weight, cut = weight_of(plan)
    for i, ward in enumerate(("A", "B")):
        here = np.array(TABLE["ward"].to_pylist()) == ward
        known = here & (np.arange(len(IDS)) % 5 != 0)
        outside = known & ((COST < 50) | (COST > 150))
        assert found["c_outside"][i] == pytest.approx(weight[outside].sum() / weight[known].sum(), abs=0.05)
        assert found["c_outside_low"][i] <= found["c_outside"][i] <= found["c_outside_high"][i]
        assert found["a_outside"][i] == pytest.approx(0, abs=0.05)
        if plan in ("weighted", "registered"):
            assert found["rows_capped"][i] == pytest.approx(weight[here & cut].sum() / weight[here].sum(), abs=0.05)
        if plan == "sampled":
            assert found["rows_capped"][i] == pytest.approx(20 / 1020, abs=0.05)
    assert ("rows_capped" in found) == (plan != "rows")


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.7])
def test_the_claim_is_the_same_epsilon(plan: str, epsilon: float) -> None:
    db, more = opened(plan)
    priced = db._price(QUERY, epsilon, None, more.get("groups"), None, None, True)
    parts = [*priced.epsilons, *(priced.cut.epsilons if priced.cut else ())]
    assert (priced.cut is None) == (plan == "rows")
    assert Fraction(epsilon) * Fraction("0.999999") < sum(map(Fraction, parts)) <= Fraction(repr(epsilon))
    assert len(priced.measures) == len(db._price(QUERY, epsilon, None, more.get("groups"), None, None, False).measures) + (
        3 if plan == "rows" else 4 + (plan == "sampled")
    )
    assert curve(SqlQuery(db.unit, priced).claims()[0].event).epsilon(0.0) <= epsilon * (1 + 1e-9)
    told = db.explain(QUERY, epsilon=epsilon, bias=True, **more)
    assert {"c_outside", "a_outside"} <= set(told.errors)
    assert ("rows_capped" in told.errors) == (plan != "rows")


def test_one_column_for_each_expression() -> None:
    db, _ = opened("weighted")
    names = db.sql(
        "SELECT SUM(cost) AS s, AVG(cost) / AVG(age) AS r, SUM(cost + age) / SUM(age * 2) AS q FROM t", epsilon=1.0, bias=True
    ).value.column_names
    assert [it for it in names if it.endswith("outside") or "outside_2" in it[-9:]] == [
        "s_outside", "r_outside", "q_outside", "q_outside_2",
    ]  # fmt: skip


def test_named_as_not_included_and_told() -> None:
    db, _ = opened("weighted")
    for bias in (False, True):
        metadata = db.sql("SELECT AVG(cost) AS c FROM t", epsilon=1.0, bias=bias).value.schema.metadata[b"discreet"].decode()
        assert "not included" in metadata
        assert ("c_outside, rows_capped" in metadata) == bias


def test_groups_by_threshold_have_shares() -> None:
    db = connect({"t": TABLE}, unit=user("id", rows=4), bounds={"cost": (50, 150)})
    found = db.sql("SELECT ward, SUM(cost) AS c FROM t GROUP BY ward", epsilon=LOUD, delta=1e-6, bias=True).value.to_pydict()
    assert found["ward"] == ["A", "B"]
    assert found["c_outside"] == pytest.approx([0.5, 0.5], abs=0.1)


def test_what_cannot_be_told_is_refused() -> None:
    db, _ = opened("rows")
    with pytest.raises(InvalidQuery, match="no bias"):
        db.sql("SELECT COUNT(*) AS n FROM t", epsilon=1.0, bias=True)
    with pytest.raises(InvalidQuery, match="c_outside"):
        db.sql("SELECT COUNT(*) AS c_outside, SUM(cost) AS c FROM t", epsilon=1.0, bias=True)
    with pytest.raises(InvalidValue, match="rows_capped"):
        db.sql("SELECT SUM(cost) AS c FROM t", epsilon=1.0, weights={"rows_capped": 1.0})


def test_weights_sharpen_shares() -> None:
    db, _ = opened("weighted")
    query = "SELECT SUM(cost) AS c FROM t"
    plain, sharp = (db._price(query, 1.0, None, None, None, weights, True) for weights in (None, {"rows_capped": 8.0}))
    place = plain.place[Cut()]
    assert sharp.epsilons[place] > 2 * plain.epsilons[place]


def test_means_over_a_units_rows_are_not_rounded_away() -> None:
    """A unit with 3 rows of which 1 counts, two of them known, is two thirds of a row."""
    table = pa.table({"id": np.repeat(np.arange(3_000), 3), "ward": ["A"] * 9_000, "cost": pa.array([60.0, 60.0, None] * 3_000),
                      "age": [1, 0, 1] * 3_000})  # fmt: skip
    db = connect({"t": table}, unit=user("id", rows=1), schema={"t": {"age": {"bounds": [0, 1]}, "cost": {"bounds": [0, 10]}}})
    query = "SELECT COUNT(cost) AS k, SUM(age) AS s, AVG(cost) AS m FROM t"
    found = db.sql(query, epsilon=LOUD, groups=1, bias=True).value.to_pydict()
    assert found["k"][0] == pytest.approx(2_000, abs=20)
    assert found["s"][0] == pytest.approx(2_000, abs=20)
    assert found["m_outside"][0] == pytest.approx(1, abs=0.02)
    assert found["rows_capped"][0] == pytest.approx(1, abs=0.02)


def test_an_answer_with_shares_is_another_answer(tmp_path: Path) -> None:
    unit = user("id", rows=4)
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("t", unit=unit, epsilon=3.0, delta=1e-6)
        db = connect({"t": TABLE}, unit=unit, schema=SCHEMA, ledger=ledger, source="t")
        first = db.sql("SELECT SUM(cost) AS c FROM t", epsilon=1.0)
        told = db.sql("SELECT SUM(cost) AS c FROM t", epsilon=1.0, bias=True)
        assert first.entry != told.entry
        assert db.sql("SELECT SUM(cost) AS c FROM t", epsilon=1.0, bias=True).entry == told.entry


def test_on_the_command_line(tmp_path: Path) -> None:
    import pyarrow.parquet

    pyarrow.parquet.write_table(TABLE, tmp_path / "t.parquet")
    given = [str(tmp_path / "t.parquet"), "SELECT AVG(cost) AS c FROM t", "--unit", "user:id", "--unit-rows", "4",
             "--epsilon", "9", "--bounds", "cost=50:150", "--bias", "--json"]  # fmt: skip
    found = CliRunner().invoke(command, given, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    assert 0 <= json.loads(found.stdout)["columns"]["c_outside"][0] <= 1
    dry = CliRunner().invoke(command, [*given[:-1], "--dry-run"], catch_exceptions=False)
    assert "rows_capped: a share" in dry.stdout
