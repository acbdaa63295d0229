"""fit from end to end: the claim, the ledger, types and order, and what is refused before anything is spent."""

from __future__ import annotations

import inspect
import subprocess
import sys
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv as csv
import pyarrow.parquet as parquet
import pytest

import discreet
from discreet import Ledger, record, user
from discreet.accounting import curve
from discreet.core import Mechanism
from discreet.errors import BudgetExceeded, DiscreetError, InvalidValue
from discreet.noise.source import seeded_for_tests
from discreet.synth import Aim, Column, Independent, Junction, Schema, Synthesis, Tree, fit
from discreet.synth.table import Table
from unit.synth.rows import Rows, chain

RANDOM = np.random.default_rng(2)
SCHEMA = {"sex": ["f", "m"], "age": (0, 99), "born": (date(1920, 1, 1), date(2020, 12, 31)), "ok": Column("boolean")}


def people(count: int = 2000) -> pa.Table:
    ages = RANDOM.integers(0, 100, count)
    return pa.table({
        "sex": pa.array(RANDOM.choice(["f", "m"], count)),
        "age": pa.array(ages),
        "born": pa.array([date(2020 - int(age), 1, 1) for age in ages], pa.date32()),
        "ok": pa.array(ages > 50, mask=RANDOM.random(count) < 0.3),
    })  # fmt: skip


METHODS: list[Any] = ["auto", "independent", "tree", "junction", "aim", Tree(score="information")]


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_types_and_order_of_the_table_come_back(method: Any) -> None:
    table = people()
    release = fit(table, unit=record(), epsilon=8.0, delta=1e-6, schema=SCHEMA, method=method)
    made = release.value.sample(500).to_arrow()
    assert made.schema.names == table.schema.names == list(release.value.columns)
    assert made.schema.types == table.schema.types
    assert made.num_rows == 500
    assert made["ok"].null_count > 0


def test_a_tree_keeps_what_two_columns_have_in_common() -> None:
    model = fit(people(4000), unit=record(), epsilon=4.0, delta=1e-6, schema=SCHEMA, method="tree").value
    made = model.sample(4000, seed=1).to_pandas()
    years = made["born"].map(lambda day: day.year if day is not None else np.nan)
    known = years.notna() & made["age"].notna()
    assert np.corrcoef(years[known], made["age"][known])[0, 1] < -0.9


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
@pytest.mark.parametrize("method", [Independent(), Tree(), Junction(), Aim()], ids=str)
def test_the_event_keeps_the_budget_and_spends_it(method: Any, relation: str) -> None:
    mechanism = Synthesis((3, 4, 5, 2), record(relation), 1.0, 1e-9, method)
    assert isinstance(mechanism, Mechanism)
    (claim,) = mechanism.claims()
    spent = curve(claim.event).epsilon(1e-9)
    assert 0.99 < spent <= 1.0
    assert claim.game.unit.relation == relation


@pytest.mark.parametrize("method", [Independent(), Tree(), Junction(), Aim()], ids=str)
def test_a_replaced_record_gets_more_noise(method: Any) -> None:
    added, replaced = (Synthesis((3, 4, 5), record(it), 1.0, 1e-6, method).spending().parts for it in ("add_remove", "replace"))
    assert replaced["columns"] > 1.3 * added["columns"]


def test_the_whole_budget_is_charged_once(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6)
    given: dict[str, Any] = {"unit": record(), "epsilon": 1.0, "delta": 1e-6, "schema": SCHEMA, "source": "people"}
    release = fit(people(), ledger=ledger, **given)
    assert release.entry is not None
    assert ledger.payment(release).sound
    assert [entry.kind for entry in ledger.history("people")] == ["open", "reserve", "settle"]
    release.value.sample(10).to_arrow()
    release.value.marginal("sex")
    assert len(ledger.history("people")) == 3
    with pytest.raises(BudgetExceeded):
        fit(people(), ledger=tmp_path / "ledger.db", **given)


def test_files_are_read_like_frames(tmp_path: Path) -> None:
    table = people(300)
    parquet.write_table(table, tmp_path / "people.parquet")
    csv.write_csv(table, tmp_path / "people.csv")
    for name in ("people.parquet", "people.csv"):
        release = fit(tmp_path / name, unit=record(), epsilon=1.0, delta=1e-6, schema=SCHEMA)
        assert release.source == "people"
        assert release.value.sample(5).to_arrow().schema.types == table.schema.types


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"schema": None}, "publicly known"),
        ({"schema": {"sex": ["f", "m"]}}, "says nothing of 'age', 'born', 'ok'.*nothing is read off"),
        ({"schema": {**SCHEMA, "height": (0, 9)}}, "no such column"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"epsilon": 1e-5}, "too small.*noise of"),
        ({"epsilon": 1e-7}, "between 1e-6"),
        ({"unit": record("zero_out")}, "blanked out"),
        ({"unit": "row"}, "must be a Unit"),
        ({"method": "magic"}, "method"),
        ({"source": "people"}, "go together"),
        ({"workload": [["sex"]]}, "two or more columns"),
        ({"workload": [["sex", "height"]]}, "different columns of the table"),
        ({"workload": [["sex", "age"]], "method": "tree"}, "is for method"),
        ({"constraints": ["age >= 0"]}, "list of Forbidden, Implies and Ordered"),
    ],
)
def test_wrong_use_is_told_before_anything_is_read(change: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Table, "counts", lambda *_: pytest.fail("rows were read"))
    given: dict[str, Any] = {"unit": record(), "epsilon": 1.0, "delta": 1e-6, "schema": SCHEMA} | change
    with pytest.raises(InvalidValue, match=told):
        fit(people(20), **given)


def test_nothing_is_charged_for_a_wrong_schema(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6)
    with pytest.raises(InvalidValue):
        fit(people(9), unit=record(), epsilon=1.0, delta=1e-6, schema={"sex": ["f"]}, ledger=ledger, source="people")
    assert [entry.kind for entry in ledger.history("people")] == ["open"]


def test_a_table_that_changes_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    place = tmp_path / "people.parquet"
    parquet.write_table(people(50), place)
    with Table(place, discreet.synth.Schema.of(SCHEMA), record()) as table:
        parquet.write_table(people(60), place)
        with pytest.raises(DiscreetError, match="has changed"):
            table.counts([(0,)])


@pytest.mark.parametrize("rows", [people(0), people(1)], ids=["none", "one"])
def test_tiny_tables_are_fitted_like_others(rows: pa.Table) -> None:
    model = fit(rows, unit=record(), epsilon=1.0, delta=1e-6, schema=SCHEMA).value
    assert model.rows >= 1
    assert model.sample(7).to_arrow().num_rows == 7


def test_one_column_and_columns_that_are_all_missing() -> None:
    table = pa.table({"x": pa.nulls(500, pa.string())})
    model = fit(table, unit=record(), epsilon=4.0, delta=1e-6, schema={"x": ["a", "b"]}, method="tree").value
    assert model.sample(400).to_arrow()["x"].null_count > 300


def test_values_outside_the_range_are_moved_to_its_ends() -> None:
    table = pa.table({"x": [-50] * 500 + [500] * 500})
    model = fit(
        table, unit=record(), epsilon=8.0, delta=1e-6, schema={"x": Column("integer", bounds=(0, 9), required=True)}
    ).value
    share = model.probabilities("x")
    assert share[0] > 0.4
    assert share[-1] > 0.4


@pytest.mark.parametrize("sizes", [(3000, 3000), (200,) * 80], ids=["one pair", "all pairs"])
def test_tables_that_would_not_fit_are_told_before_anything_is_spent(sizes: tuple[int, ...]) -> None:
    with pytest.raises(InvalidValue, match="Use fewer bins or categories"):
        Synthesis(sizes, record(), 1.0, 1e-6, Tree()).claims()
    assert Synthesis(sizes, record(), 1.0, 1e-6, Independent()).claims()


def test_a_seeded_source_is_refused() -> None:
    with seeded_for_tests(b"seed"), pytest.raises(InvalidValue, match="seeded"):
        fit(people(9), unit=record(), epsilon=1.0, delta=1e-6, schema=SCHEMA)


def test_the_signature_that_others_rely_on() -> None:
    names = list(inspect.signature(fit).parameters)
    assert names[:10] == [
        "table",
        "unit",
        "epsilon",
        "delta",
        "schema",
        "method",
        "workload",
        "constraints",
        "ledger",
        "source",
    ]


@pytest.mark.parametrize("method", [Independent(), Tree(), Junction(evaluations=3)], ids=str)
def test_intervals_cover_the_true_counts(method: Any) -> None:
    """95 % for each cell: 200 refits with fixed seeds."""
    rows = chain(1500, (3, 4, 5), np.random.default_rng(8))
    covered = {columns: [] for columns in [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2)]}  # type: ignore[var-annotated]
    truth = dict(zip(covered, rows.counts(covered)))
    mechanism = Synthesis(rows.sizes, record(), 1.0, 1e-6, method)
    for refit in range(200):
        with seeded_for_tests(b"cover%d" % refit):
            model = mechanism.run(rows)  # type: ignore[arg-type]
        for columns, seen in covered.items():
            low, high, measured = model.interval(columns)
            seen.append((measured, ((low <= truth[columns]) & (truth[columns] <= high)).mean()))
    measured = [share for seen in covered.values() for known, share in seen if known]
    others = [share for seen in covered.values() for known, share in seen if not known]
    assert 0.93 <= np.mean(measured) <= 0.97
    assert all(np.mean([share for known, share in seen if known]) > 0.93 for seen in covered.values() if seen[0][0])
    assert not others or np.mean(others) >= 0.95


def test_marginals_are_tables_with_intervals() -> None:
    model = fit(people(), unit=record(), epsilon=4.0, delta=1e-6, schema=SCHEMA, method="tree").value
    table = model.marginal("sex", "ok")
    assert table.column_names == ["sex", "ok", "count", "low", "high", "measured"]
    assert table["sex"].to_pylist() == ["f", "f", "f", "m", "m", "m", None, None, None]
    assert sum(table["count"].to_pylist()) == pytest.approx(model.rows)
    assert model.marginal("age")["age"].to_pylist()[0] == "0 to 3"
    for wrong in [(), ("sex", "sex"), ("height",)]:
        with pytest.raises(InvalidValue):
            model.marginal(*wrong)


def test_rows_in_memory_count_as_the_engine_does() -> None:
    codes = RANDOM.integers(0, 3, (200, 3))
    table = pa.table({f"c{i}": codes[:, i] for i in range(3)})
    schema = {f"c{i}": Column("categorical", values=(0, 1, 2), required=True) for i in range(3)}
    sets = [(0,), (2,), (0, 1), (1, 2), (0, 1, 2), ()]
    with Table(table, discreet.synth.Schema.of(schema), record()) as opened:
        found = opened.counts(sets)
    for mine, theirs in zip(Rows(codes, (3, 3, 3)).counts(sets[:-1]), found):
        assert (mine == theirs).all()
    assert found[-1] == 200


# ---- users with several rows ---------------------------------------------------------------------------------------------


def visits(counts: list[int]) -> pa.Table:
    """A table of people with so many rows each, in random cells; one row is nobody's."""
    ids = np.repeat(np.arange(len(counts)), counts)
    table = {
        "id": pa.array([*ids.tolist(), None], pa.int64()),
        "sex": pa.array(["f" if i % 2 else "m" for i in ids] + ["f"]),
        "kind": pa.array([*RANDOM.choice(["a", "b", "c"], len(ids)).tolist(), "a"]),
    }
    return pa.table(table)


VISITS = {"sex": Column("categorical", values=("f", "m"), required=True), "kind": ["a", "b", "c"]}


def test_rows_of_a_user_weigh_at_most_its_bound() -> None:
    """Whoever is taken away takes at most `rows` out of every table, in whole parts of a row, however many rows they have."""
    grain, sets = 1 << 20, [(0,), (1,), (0, 1)]
    counts = [1, 2, 3, 7, 50]
    table = visits(counts)
    schema = discreet.synth.Schema.of(VISITS)
    with Table(table, schema, user("id", rows=3)) as opened:
        whole = opened.counts(sets)
    for gone, rows in enumerate(counts):
        less = table.filter(pa.compute.not_equal(table["id"], gone))
        with Table(less, schema, user("id", rows=3)) as opened:
            for one, two in zip(whole, opened.counts(sets), strict=True):
                moved = (one - two).reshape(-1)
                assert (moved >= 0).all()
                assert 3 * grain * min(rows, 3) / 3 - rows <= moved.sum() <= 3 * grain


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
@pytest.mark.parametrize("method", [Independent(), Tree(), Junction(), Aim()], ids=str)
def test_the_event_of_users_keeps_the_budget_and_spends_it(method: Any, relation: str) -> None:
    mechanism = Synthesis((3, 4, 5, 2), user("id", rows=4, relation=relation), 1.0, 1e-9, method)
    (claim,) = mechanism.claims()
    assert 0.99 < curve(claim.event).epsilon(1e-9) <= 1.0
    one = Synthesis((3, 4, 5, 2), record(relation), 1.0, 1e-9, method).spending().parts["columns"]
    assert 4.0 < mechanism.spending().parts["columns"] / one < 4.4  # as many times the noise as rows, and what zCDP costs


@pytest.mark.parametrize("method", ["tree", "junction", "aim", "independent"])
def test_users_get_a_model_of_their_weighted_rows(method: str) -> None:
    counts = [1 + i % 3 for i in range(3000)]
    model = fit(visits(counts), unit=user("id", rows=3), epsilon=8.0, delta=1e-6, schema=VISITS | {}, method=method).value
    assert model.columns == ("sex", "kind")
    assert abs(model.rows - sum(counts)) < 200
    found = model.marginal("sex")
    women = sum(n for i, n in enumerate(counts) if i % 2)
    assert abs(found["count"].to_pylist()[0] - women) < 200


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"unit": user("id", rows=None)}, "no bound on its rows"),
        ({"unit": user("who", rows=2)}, "no such column"),
        ({"schema": VISITS | {"id": (0, 9)}}, "does not come into the synthetic table"),
        ({"method": Tree(score="information")}, "units of one row"),
    ],
)
def test_wrong_units_are_told_before_anything_is_read(change: Any, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Table, "counts", lambda *_: pytest.fail("rows were read"))
    given: dict[str, Any] = {"unit": user("id", rows=3), "epsilon": 1.0, "delta": 1e-6, "schema": VISITS} | change
    with pytest.raises(InvalidValue, match=told):
        fit(visits([1, 2]), **given)


def test_narrow_types_come_back_where_the_domain_fits_them() -> None:
    table = pa.table({
        "i": pa.array([1, 2, 3], pa.int16()), "u": pa.array([1, 2, 3], pa.uint8()), "f": pa.array([0.5, 1, 2], pa.float32()),
        "s": pa.array(["a", "b", "a"], pa.large_string()), "t": pa.array([0, 1, 2], pa.timestamp("ms")),
        "m": pa.array([1, 2, 3], pa.decimal128(9, 2)), "wide": pa.array([1, 2, 3], pa.int8()),
    })  # fmt: skip
    schema = {"i": (0, 300), "u": (0, 255), "f": (0.0, 9.0), "s": ["a", "b"], "m": (0.0, 99.0), "wide": (0, 1000),
              "t": (datetime(1970, 1, 1), datetime(1970, 1, 2))}  # fmt: skip
    made = fit(table, unit=record(), epsilon=1.0, delta=1e-6, schema=schema, method="tree").value.sample(400).to_arrow()
    known = dict(zip(table.schema.names, table.schema.types)) | {"s": pa.string(), "wide": pa.int64()}
    assert {name: kind for name, kind in zip(made.schema.names, made.schema.types) if name != "t"} == {
        name: kind for name, kind in known.items() if name != "t"
    }
    assert pa.types.is_timestamp(made.schema.field("t").type)


def test_a_fit_loads_no_pandas() -> None:
    """It would take as long as the fit, and more memory."""
    script = (
        "import sys, tempfile, duckdb; from discreet import record; from discreet.synth import Column, fit\n"
        "place = tempfile.mkdtemp() + '/t.csv'; open(place, 'w').write('x,y\\n1,2\\n')\n"
        "fit(place, unit=record(), epsilon=1.0, delta=1e-6, schema={'x': (0, 9), 'y': (0, 9)}, method='tree')\n"
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("method", ["csv", "jsonl"])
def test_whole_numbers_that_pandas_writes_with_a_point_are_read(method: str, tmp_path: Path) -> None:
    """A column of whole numbers of which some are missing holds floats in pandas: "45.0" in a file. All were missing values."""
    lines = {"csv": ["age,sex", *(["45.0,f", ",m", "7,f", "7.5,m"] * 500)],
             "jsonl": ['{"age": 45.0, "sex": "f"}', '{"age": null, "sex": "m"}', '{"age": 7, "sex": "f"}',
                       '{"age": 7.5, "sex": "m"}'] * 500}  # fmt: skip
    place = tmp_path / f"people.{method}"
    place.write_text("\n".join(lines[method]) + "\n")
    schema = Schema.of({"age": Column("integer", bounds=(0, 63), bins=64), "sex": ["f", "m"]})
    with Table(place, schema, record()) as table:
        (ages,) = table.counts([(0,)])
    assert {place: int(n) for place, n in enumerate(ages) if n} == {45: 500, 7: 500, 64: 1000}  # 7.5 is no whole number
