"""What is found privately: categories, edges of bins, mass points; what it costs; and what leaves nothing half done."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from discreet import record, user
from discreet.accounting import curve
from discreet.core import Release
from discreet.errors import InvalidValue
from discreet.noise.source import seeded_for_tests
from discreet.synth import Column, Forbidden, Independent, Schema, Synthesis, explain, fit, measure_fidelity, release_fidelity
from discreet.synth.cells import Cells, settled_edges
from discreet.synth.domain import MOST_CATEGORIES
from discreet.synth.table import Table

RANDOM = np.random.default_rng(7)
ROWS = 6000
OPEN = {
    "id": None,
    "job": Column("categorical", find="categories"),
    "pay": Column("integer", bounds=(0, 100_000), bins=8, find=["bins", "mass"]),
    "hours": Column("real", bounds=(0.0, 99.0), bins=8, find="mass", mass=(7.5,)),
    "day": Column("date", bounds=(date(2000, 1, 1), date(2020, 1, 1)), bins=4, find="bins"),
}


def people() -> pa.Table:
    jobs = np.where(RANDOM.random(ROWS) < 0.7, RANDOM.choice(["cook", "nurse"], ROWS), [f"rare {i}" for i in range(ROWS)])
    days = RANDOM.integers(12_000, 13_000, ROWS).astype(np.int32)
    return pa.table({
        "id": np.arange(ROWS) // 2, "job": pa.array(jobs.tolist(), mask=RANDOM.random(ROWS) < 0.05),
        "pay": np.where(RANDOM.random(ROWS) < 0.5, 0, RANDOM.integers(20_000, 30_000, ROWS)),
        "hours": np.where(RANDOM.random(ROWS) < 0.5, 40.0, RANDOM.random(ROWS) * 99), "day": pa.array(days).cast(pa.date32()),
    })  # fmt: skip


def settled(unit: Any, epsilon: float = 8.0) -> tuple[Any, Synthesis]:
    schema = {name: column for name, column in OPEN.items() if name != unit.key}
    with Table(people(), Schema.of(schema), unit) as table, seeded_for_tests(b"domain"):
        mechanism = Synthesis(table.sizes, unit, epsilon, 1e-6, Independent(), open=table.open)
        return mechanism.run(table), mechanism


@pytest.mark.parametrize("unit", [record(), record("replace"), user("id", rows=2)], ids=str)
def test_cells_are_found_and_the_whole_stays_within_the_budget(unit: Any) -> None:
    model, mechanism = settled(unit)
    job, pay, hours, day = model.cells
    assert job.values == ("cook", "nurse", "OTHER")
    assert pay.column.mass == (0,)
    assert sum(20_000 <= edge <= 30_000 for edge in pay.edges) >= 3
    assert hours.column.mass == (7.5, 40.0)
    assert all(date(2002, 1, 1) < edge < date(2006, 6, 1) for edge in day.edges[1:-1])
    assert 0.98 < curve(mechanism.claims()[0].event).epsilon(1e-6) / 8.0 <= 1.0
    counts = model.marginal("job")["count"].to_pylist()
    assert counts[2] == pytest.approx(0.3 * 0.95 * ROWS, rel=0.15)  # what is rare is one cell
    assert counts[3] == pytest.approx(0.05 * ROWS, abs=60)  # and not missing
    rows = model.sample(500).to_pandas()
    assert set(rows["job"].dropna()) <= {"cook", "nurse", "OTHER"}
    assert (rows["hours"] == 40.0).mean() > 0.3


def test_no_category_of_one_person_is_found() -> None:
    model, _ = settled(record(), epsilon=1.0)
    assert not any(value.startswith("rare") for value in model.cells[0].values)


def test_at_most_so_many_categories_are_kept() -> None:
    """A column with a million categories gives a table of bounded size, and no error that tells of them."""
    names = np.repeat([f"n{i}" for i in range(400)], 300)
    schema = Schema.of({"x": Column("categorical", find="categories")})
    with Table(pa.table({"x": names}), schema, record()) as table, seeded_for_tests(b"many"):
        mechanism = Synthesis(table.sizes, record(), 20.0, 1e-6, Independent(), open=table.open)
        model = mechanism.run(table)
    assert model.cells[0].size == MOST_CATEGORIES + 2 == mechanism.sizes[0]


@pytest.mark.parametrize("kind", ["integer", "real"])
def test_nothing_found_is_no_error(kind: str) -> None:
    schema = Schema.of({
        "job": Column("categorical", find="categories"), "x": Column(kind, bounds=(0, 9), bins=3, find=["bins", "mass"]),
    })  # fmt: skip
    nothing = pa.table({"job": pa.array([], pa.string()), "x": pa.array([], pa.float64() if kind == "real" else pa.int64())})
    with Table(nothing, schema, record()) as table:
        model = Synthesis(table.sizes, record(), 1.0, 1e-6, Independent(), open=table.open).run(table)
    assert model.cells[0].values == ("OTHER",)
    assert model.sample(10).to_arrow().num_rows == 10


@pytest.mark.parametrize("mass", [{1, 2, 3}, {0, 9}, {4, 5}, set(range(10))])
def test_mass_points_that_fill_a_bin_get_bins_of_their_own(mass: set[int]) -> None:
    column = Column("integer", bounds=(0, 9), bins=(1, 4, 6))
    edges = settled_edges(column, (1, 4, 6), mass)
    cells = Cells.of("x", Column("integer", bounds=(0, 9), bins=edges, mass=tuple(mass)), "integer")
    assert [cells.place(value) for value in range(10)]
    assert {cells.ends(cells.place(value)) for value in mass} == {(value, value) for value in mass}


def test_the_cost_is_shown_before_it_is_spent() -> None:
    cost = explain(people(), unit=record(), epsilon=1.0, delta=1e-6, schema=OPEN)
    assert len(cost.found) == 5
    assert sum(cost.split.values()) == pytest.approx(1.0)
    assert 0.1 < cost.split["domain"] <= 0.3
    assert "job: categories by private selection (epsilon 0.05, delta 1.67e-07)" in str(cost)
    assert "day: 4 bins by private quantiles" in str(cost)


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ({"type": "categorical", "find": "bins"}, "can find categories"),
        ({"type": "boolean", "find": "mass"}, "nothing to find"),
        ({"type": "date", "bounds": (date(2000, 1, 1), date(2001, 1, 1)), "find": "mass"}, "can find bins"),
        ({"type": "categorical", "find": "categories", "values": ("a",)}, "listed or found"),
        ({"type": "integer", "bounds": (0, 9), "bins": (3, 5), "find": "bins"}, "say how many"),
        ({"type": "integer", "bounds": (0, 9), "other": 3}, "other is for listed"),
        ({"type": "integer", "find": "bins"}, "must be a pair"),
    ],
)
def test_what_cannot_be_found_is_told(column: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidValue, match=told):
        Column(**column)


def test_open_columns_are_no_part_of_constraints_and_need_a_name_for_the_rest() -> None:
    table = pa.table({"n": [1, 2, 3], "job": ["a", "b", "c"]})
    given: dict[str, Any] = {"unit": record(), "epsilon": 1.0, "delta": 1e-6}
    schema = {"n": (0, 9), "job": Column("categorical", find="categories")}
    with pytest.raises(InvalidValue, match="cells are yet to be found"):
        explain(table, schema=schema, constraints=[Forbidden({"job": ["a"]})], **given)
    with pytest.raises(InvalidValue, match=r"holds integer.*other = "):
        explain(table, schema=schema | {"n": Column("categorical", find="categories")}, **given)
    assert explain(table, schema=schema | {"n": Column("categorical", find="categories", other=-1)}, **given)


def test_listed_categories_can_have_a_name_for_the_rest() -> None:
    schema = Schema.of({"x": Column("categorical", values=("a", "b"), other="else")})
    with Table(pa.table({"x": ["a", "b", "zz", "zy", None]}), schema, record()) as table:
        assert table.cells[0].labels() == ["a", "b", "else", None]
        assert table.counts([(0,)])[0].tolist() == [1, 1, 2, 1]


def test_fidelity_is_measured_in_the_cells_that_were_found() -> None:
    table, schema = people(), dict(OPEN)
    given: dict[str, Any] = {"unit": record(), "epsilon": 8.0, "delta": 1e-6, "schema": schema}
    model = fit(table, **given, method="tree").value
    assert measure_fidelity(table, model, unit=record(), schema=schema).mean(1) < 0.05
    assert release_fidelity(table, model, **given).value.for_release
    with pytest.raises(InvalidValue, match="compare with the model"):
        measure_fidelity(table, model.sample(100).to_arrow(), unit=record(), schema=schema)


@pytest.mark.parametrize(
    ("common", "rest"),
    [([2**62 + 1, -(2**63)], 0), ([date(1, 1, 1), date(9999, 12, 31)], date(2000, 1, 1)),
     ([datetime(1969, 7, 20, 20, 17, 40, 5)], datetime(2000, 1, 1)), ([1e300, -0.5], 0.0),
     (["\x00", "", "x" * 10_000], "OTHER")],
)  # fmt: skip
def test_what_is_found_is_told_whatever_it_is_and_read_back(common: list[Any], rest: Any, tmp_path: Path) -> None:
    """Whole numbers beyond 2^53 were an InvalidValue after the charge: the fit was lost, and the message held one of them."""
    table, column = pa.table({"x": common * 2000}), Column("categorical", find="categories", other=rest)
    fitted = fit(table, unit=record(), epsilon=8.0, delta=1e-6, schema={"x": column})
    assert set(fitted.value.cells[0].values) == {*common, rest}
    (told,) = Release.load(fitted.save(tmp_path / "release.json")).facts["synthetic"]["columns"]
    settled = Schema.of({"x": column}).settled({"x": told["found"]})
    assert settled.columns["x"] == fitted.value.cells[0].column
