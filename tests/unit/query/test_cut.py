"""What bounding cut is told: of all rows, when it is above a tenth, for a part of the same epsilon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner

from discreet import Ledger, connect, record, user
from discreet.cli.query import command
from discreet.core import Unit
from discreet.errors import InvalidValue
from discreet.query import Database
from discreet.query.answer import requests
from discreet.query.cut import REACH, CutShare, Share, note
from discreet.query.engines.request import SCALE
from discreet.query.table import from_text, to_text

LOUD = 100.0
HEAVY = np.repeat(np.arange(400), 50)
IDS = np.concatenate([HEAVY, np.arange(400, 12_400)])  # 400 of 50 rows each, 12,000 of one
TABLE = pa.table({"id": IDS, "g": np.where(np.arange(len(IDS)) % 2, "A", "B"), "x": np.arange(len(IDS)) % 9})
SCHEMA = {"t": {"g": {"values": ["A", "B"]}, "x": {"bounds": [0, 8]}}}
COUNTS = "SELECT g, COUNT(*) AS n FROM t GROUP BY g"
KEPT, SEEN = 400 * 4 + 12_000, 400 * 4 * REACH + 12_000
PLANS = {"weighted": {}, "registered": {}, "sampled": {"groups": 2}, "one group": {"groups": 1}}


def opened(plan: str, unit: Unit | None = None, table: pa.Table = TABLE) -> Database:
    db = connect({"t": table}, unit=unit or user("id", rows=4), schema=SCHEMA)
    return db.register() if plan == "registered" else db


@pytest.mark.parametrize(
    "query", [COUNTS, "SELECT MEDIAN(x) AS m FROM t", "SELECT g, COUNT(*) AS n FROM t GROUP BY ROLLUP (g)"]
)
@pytest.mark.parametrize("plan", PLANS)
def test_the_share_is_that_of_all_rows(plan: str, query: str) -> None:
    with opened(plan) as db:
        told = str(db.sql(query, epsilon=LOUD, **PLANS[plan]).facts["bounding"])
    share = float(told.split("bounding cut ")[1].split("%")[0]) / 100
    assert share == pytest.approx(1 - KEPT / SEEN, abs=0.03)
    assert share < 1 - KEPT / len(IDS)
    assert "at most 4 count" in told


def test_nothing_is_told_where_little_was_cut_or_a_row_is_a_unit() -> None:
    with opened("", user("id", rows=60)) as db:
        release = db.sql(COUNTS, epsilon=LOUD)
        assert "bounding" not in release.facts
        assert b"bounding" not in release.value.schema.metadata
    with opened("", record()) as db:
        assert db._price(COUNTS, 1.0, None, None, None, None).cut is None
        assert db.explain(COUNTS, epsilon=1.0).bounding == ""


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("rows", [1, 4, 31, 32, 33, 5_000])
def test_one_unit_moves_both_sums_by_no_more_than_is_said(plan: str, rows: int, relation: str) -> None:
    """A twin that forgets that more rows are seen than count is caught."""
    unit = user("id", rows=4)
    unit = Unit(unit.name, relation, unit.rows, unit.key)
    one = pa.table({"id": [99_999] * rows, "g": (["A", "B"] * rows)[:rows], "x": [1] * rows})
    found, few = [], TABLE.slice(0, 200)
    for table in (few, pa.concat_tables([few, one.cast(few.schema)])):
        with opened(plan, unit, table) as db:
            priced = db._price(COUNTS, 1.0, None, PLANS[plan].get("groups"), None, None)
            asked = requests(priced)
            columns = [db.engine.aggregate(request) for request in asked]
            whole = columns[1]["s0"] if len(columns) > 1 else columns[0]["s2"]
            found.append((sum(map(int, columns[0]["s1"])), sum(map(int, whole))))
    assert isinstance(priced.cut, CutShare)
    times = 2 if relation == "replace" else 1
    moved = [abs(a - b) * times for a, b in zip(*found)]
    assert all(0 < far <= most for far, most in zip(moved, priced.cut.sensitivities))
    if rows == 5_000:
        assert moved[1] > priced.cut.sensitivities[1] / REACH
        assert moved[1] > 0.99 * priced.cut.sensitivities[1]


def test_the_note_is_told_by_all_that_show_answers(tmp_path: Path) -> None:
    parquet.write_table(TABLE, tmp_path / "t.parquet")
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", unit=user("id", rows=4), epsilon=1000.0, delta=1e-6)
    with connect(tmp_path / "t.parquet", unit=user("id", rows=4), ledger=ledger, source="people", schema=SCHEMA) as db:
        first, again = (db.sql(COUNTS, epsilon=LOUD) for _ in range(2))
        assert first.facts["bounding"] == again.facts["bounding"]
        assert from_text(to_text(first.value)).schema.metadata[b"bounding"].decode() == first.facts["bounding"]
        assert first.claims == again.claims
    asked = [str(tmp_path / "t.parquet"), COUNTS, "--unit", "user:id", "--unit-rows", "4", "--epsilon", "90", "--keys", "g=A,B"]
    shown = CliRunner().invoke(command, asked)
    assert "Note: bounding cut" in shown.output
    document = json.loads(CliRunner().invoke(command, [*asked, "--json"]).stdout)
    assert document["bounding"].startswith("bounding cut")
    dry = CliRunner().invoke(command, [*asked, "--dry-run"])
    assert "a unit of more than 4 rows counts as fewer" in dry.stdout


def test_what_noise_hides_is_said_to_be_unknown() -> None:
    assert "cannot be told" in str(note(Share(0.3, 0.0, 0.8), 4))
    assert "cannot be told" in str(note(Share(0.0, 0.0, 0.8), 4))
    assert note(Share(0.05, 0.0, 0.15), 4) is None
    with opened("", user("id", rows=1000)) as db:  # the noise would not fit: nothing is spent on it
        told = db.explain(COUNTS, epsilon=1e-4)
        assert told.epsilon == pytest.approx(1e-4)
        assert "cannot be told" in told.bounding
        assert db._price(COUNTS, 1e-4, None, None, None, None).cut is None


def test_a_bound_on_rows_is_found_for_its_price(tmp_path: Path) -> None:
    """12,000 units of one row and 400 of 50: with epsilon 5 the rank is off by 40 units once in e^50."""
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", unit=user("id", rows=4), epsilon=100.0, delta=1e-6)
    with connect({"t": TABLE}, unit=user("id", rows=4), schema=SCHEMA, ledger=ledger, source="people") as db:
        told = db.explain(COUNTS, epsilon=1.0).bounding
        assert "db.find_rows(epsilon=0.096)" in told
        found = db.find_rows(epsilon=5.0, share=0.98)
        assert found.value == 50
        assert db.find_rows(epsilon=5.0, share=0.9).value == 1
        assert found.claims[0].game.unit == user("id", rows=4)
        with pytest.raises(InvalidValue, match="most"):
            db.find_rows(epsilon=1.0, most=1)
    with opened("", record()) as db, pytest.raises(InvalidValue, match="no key"):
        db.find_rows(epsilon=1.0)


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
def test_one_unit_counts_once_when_its_rows_are_counted(relation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = Unit("user", relation, 4, "id")
    found = []
    for rows in (0, 5_000):
        one = pa.table({"id": [99_999] * rows, "g": ["A"] * rows, "x": [1] * rows})
        table = TABLE.slice(0, 200) if not rows else pa.concat_tables([TABLE.slice(0, 200), one.cast(TABLE.schema)])
        with opened("", unit, table) as db:
            asked: list[Any] = []
            ask = db.engine.aggregate
            monkeypatch.setattr(db.engine, "aggregate", lambda it, ask=ask, asked=asked: asked.append((it, ask(it))) or ask(it))
            db.find_rows(epsilon=1.0)
            found.append({b: int(s) for it, columns in asked if it.bins for b, s in zip(columns["b"], columns["s0"])})
    moved = sum(abs(found[0].get(place, 0) - found[1].get(place, 0)) for place in {*found[0], *found[1]})
    assert moved == SCALE
