"""Constraints hold in every row, in any method, and contradictions are told before anything is read."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from discreet.core import record
from discreet.errors import InvalidValue
from discreet.synth import Column, Forbidden, Implies, Ordered, fit
from discreet.synth import model as models
from discreet.synth.junction import JunctionTree
from discreet.synth.table import Table

RANDOM = np.random.default_rng(4)
SCHEMA: dict[str, Any] = {
    "age": Column("integer", bounds=(0, 99), bins=20, mass=(42,)), "married": ["no", "yes"],
    "born": Column("date", bounds=(date(1920, 1, 1), date(2019, 12, 31)), bins=(date(1970, 1, 1),)),
    "height": Column("real", bounds=(0.5, 2.5), bins=4, required=True),
}  # fmt: skip


def people(count: int = 3000) -> pa.Table:
    age = RANDOM.integers(0, 100, count)
    return pa.table({
        "age": age, "married": np.where((age > 20) & (RANDOM.random(count) < 0.5), "yes", "no"),
        "born": pa.array([date(2019 - int(it), 6, 1) for it in age]), "height": 0.5 + 2 * RANDOM.random(count),
    })  # fmt: skip


def fitted(method: str, *constraints: Any) -> Any:
    given = {"unit": record(), "epsilon": 1.0, "delta": 1e-6, "schema": SCHEMA}
    return fit(people(), **given, method=method, constraints=constraints).value  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["independent", "tree", "junction"])
def test_no_row_breaks_a_constraint(method: str) -> None:
    model = fitted(
        method, Implies({"age": (0, 14)}, {"married": ["no"]}), Forbidden({"married": [None]}),
        Forbidden({"age": 42, "height": (0.5, 1.0)}),
        Implies({"born": (date(1970, 1, 1), date(2019, 12, 31))}, {"age": (0, 49)}),
    )  # fmt: skip
    rows = model.sample(30_000, seed=1).to_pandas()
    assert set(rows["married"][rows["age"] <= 14]) == {"no"}
    assert rows["married"].notna().all()
    assert not ((rows["age"] == 42) & (rows["height"] < 1.0)).any()
    born = rows["born"].map(lambda day: day is not None and day >= date(1970, 1, 1))
    assert (rows["age"][born] <= 49).all()
    assert (rows["age"] == 42).any()
    assert model.sample(500, given={"age": 3}).to_pandas()["married"].eq("no").all()
    with pytest.raises(InvalidValue, match="no rows with these values"):
        model.sample(5, given={"age": 3, "married": "yes"})


@pytest.mark.parametrize("bins", [(8, 5), (40, 3), (1, 1), (3, 50)])
@pytest.mark.parametrize("kind", ["integer", "real", "date"])
def test_two_columns_stay_in_order(kind: str, bins: tuple[int, int]) -> None:
    first, length = RANDOM.integers(0, 60, 2000), RANDOM.integers(0, 40, 2000)
    last = np.minimum(first + length, 99)
    ends: Any = {"integer": (0, 99), "real": (0.0, 99.0), "date": (date(2000, 1, 1), date(2000, 4, 9))}[kind]
    values = [[date.fromordinal(date(2000, 1, 1).toordinal() + int(it)) for it in column] for column in (first, last)]
    made = values if kind == "date" else [first.astype(float), last.astype(float)] if kind == "real" else [first, last]
    mass = (ends[0],) if kind == "integer" and bins != (40, 3) else ()
    schema = {
        "end": Column(kind, bounds=ends, bins=bins[1]),
        "start": Column(kind, bounds=ends, bins=bins[0], mass=mass, required=True),
    }
    table = pa.table({"end": pa.array(made[1], mask=RANDOM.random(2000) < 0.1), "start": pa.array(made[0])})
    model = fit(
        table, unit=record(), epsilon=1.0, delta=1e-6, schema=schema, constraints=[Ordered("start", "end")], method="tree"
    ).value
    rows = model.sample(20_000, seed=2).to_pandas()
    known = rows["end"].notna()
    assert (rows["start"][known] <= rows["end"][known]).all()
    assert (~known).any()
    if kind == "integer":
        late = model.sample(300, given={"start": 55}).to_pandas()
        assert (late["start"] == 55).all()
        assert (late["end"][late["end"].notna()] >= 55).all()


def test_where_chance_does_not_find_an_order_the_ends_of_the_cells_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "TRIES", 0)
    column = Column("integer", bounds=(0, 99), bins=2, required=True)
    table = pa.table({"a": RANDOM.integers(0, 50, 500), "b": RANDOM.integers(40, 100, 500)})
    given: Any = {"unit": record(), "epsilon": 4.0, "delta": 1e-6, "schema": {"a": column, "b": column}}
    model = fit(table, **given, constraints=[Ordered("a", "b")]).value
    rows = model.sample(2000, seed=1).to_pandas()
    assert (rows["a"] <= rows["b"]).all()
    assert (model.sample(200, given={"a": 30}).to_pandas()["a"] == 30).all()


@pytest.mark.parametrize(
    ("constraints", "told"),
    [
        ([Forbidden({"married": ["no", "yes", None]})], "contradict"),
        ([Implies({"age": (0, 49)}, {"married": ["no"]}), Forbidden({"married": ["no"]}), Forbidden({"age": (50, 99)}),
          Forbidden({"age": [None]})], "contradict"),
        ([Forbidden({"age": (0, 12)})], "cuts a bin"),
        ([Forbidden({"height": (0.5, 1.1)})], "cuts a bin"),
        ([Forbidden({"age": 7})], "bin with other values"),
        ([Forbidden({"married": "maybe"})], "no category"),
        ([Forbidden({"weight": 3})], "no column"),
        ([Forbidden({})], "at least one column"),
        ([Implies({"age": (0, 4)}, {"age": (5, 9)})], "one other"),
        ([Implies({}, {"age": (5, 9)})], "at least one column given"),
        ([Ordered("age", "born")], "cannot be ordered"),
        ([Ordered("age", "married")], "cannot be ordered"),
        ([Ordered("age", "height"), Ordered("height", "age")], "one order only"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_told_before_anything_is_read(
    constraints: list[Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Table, "counts", lambda *_: pytest.fail("rows were read"))
    with pytest.raises(InvalidValue, match=told):
        fitted("tree", *constraints)


@pytest.mark.parametrize("method", ["tree", "junction", "aim"])
def test_constraints_that_cross_the_chosen_pairs_leave_a_model_that_fits_into_memory(method: str) -> None:
    """Chosen pairs form a path, and constraints a ring across it: cliques of both could have any number of cells, which a
    MemoryError told after the charge."""
    draw, count, bins = np.random.default_rng(0), 10, 10
    columns = [draw.integers(0, bins, 2000)]
    for _ in range(count - 1):
        columns.append(np.where(draw.random(2000) < 0.9, columns[-1], draw.integers(0, bins, 2000)))
    ring = [(3 * i % count, 3 * (i + 1) % count) for i in range(count)]
    path = [(i, i + 1) for i in range(count - 1)]
    assert JunctionTree.of([bins] * count, [*ring, *path]).cells > 900_000
    given = {"unit": record(), "epsilon": 20.0, "delta": 1e-6}
    schema = {f"c{i}": Column("integer", bounds=(0, bins - 1), required=True) for i in range(count)}
    rules = [Forbidden({f"c{a}": 0, f"c{b}": 9}) for a, b in ring]
    work = {"workload": [[f"c{a}", f"c{b}"] for a, b in path]} if method == "aim" else {}
    table = pa.table({f"c{i}": values for i, values in enumerate(columns)})
    model = fit(table, **given, schema=schema, method=method, constraints=rules, **work).value  # type: ignore[arg-type]
    assert model.tree.cells <= 300_000
    rows = model.sample(20_000, seed=1).to_pandas()
    assert not any(((rows[f"c{a}"] == 0) & (rows[f"c{b}"] == 9)).any() for a, b in ring)
