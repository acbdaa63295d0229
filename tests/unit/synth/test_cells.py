"""Cells: what the engine counts is what the sampler gives back."""

from __future__ import annotations

import math
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from discreet.core import record
from discreet.errors import InvalidValue
from discreet.synth import Column, Schema
from discreet.synth.cells import Cells
from discreet.synth.table import Table

RNG = np.random.default_rng(3)
COLUMNS: list[tuple[Column, pa.DataType, list[Any]]] = [
    (Column("integer", bounds=(0, 99), mass=(40, 0)), pa.int64(), [0, 1, 40, 41, 99, 17, None, -5, 1000]),
    (Column("integer", bounds=(3, 7)), pa.int64(), [3, 4, 5, 6, 7, None]),
    (Column("integer", bounds=(0, 10), bins=(2, 5), required=True), pa.int64(), [0, 1, 2, 4, 5, 10]),
    (Column("integer", bounds=(0, 999), bins=7), pa.float64(), [0.0, 142.0, 143.0, 999.0, math.nan, math.inf]),
    (Column("real", bounds=(-1.0, 1.0), bins=8, mass=(0.0,)), pa.float64(), [-1.0, 0.0, 0.1, 1.0, None, 5.0]),
    (Column("date", bounds=(date(2020, 1, 1), date(2020, 12, 31)), bins=12), pa.date32(),
     [date(2020, 1, 1), date(2020, 12, 31), date(2020, 6, 15), None, date(1990, 1, 1)]),
    (Column("timestamp", bounds=(datetime(2020, 1, 1), datetime(2020, 1, 2)), bins=24), pa.timestamp("us"),
     [datetime(2020, 1, 1), datetime(2020, 1, 1, 12, 30), datetime(2020, 1, 2), None]),
    (Column("categorical", values=("a", "b", "it's")), pa.string(), ["a", "it's", None, "zzz", "b"]),
    (Column("ordinal", values=(1, 2, 3)), pa.int64(), [1, 2, 3, None, 9]),
    (Column("ordinal", values=(10, 30, 20), required=True), pa.int64(), [10, 20, 30, None]),
    (Column("boolean"), pa.bool_(), [True, False, None, True]),
]  # fmt: skip


@pytest.mark.parametrize(("column", "kind", "values"), COLUMNS, ids=lambda it: it.type if isinstance(it, Column) else "")
def test_the_engine_and_python_agree_on_cells(column: Column, kind: pa.DataType, values: list[Any]) -> None:
    with Table(pa.table({"x": pa.array(values, kind)}), Schema.of({"x": column}), record()) as table:
        (found,) = table.counts([(0,)])
        cells = table.cells[0]
    expected = np.zeros(cells.size, np.int64)
    for value in values:
        expected[_cell(cells, value)] += 1
    assert found.tolist() == expected.tolist()
    assert len(cells.labels()) == cells.size


def _cell(cells: Cells, value: Any) -> int:
    if isinstance(value, float) and not math.isfinite(value):
        value = None
    outside = cells.known if cells.size > cells.known else cells._middle()
    if value is None:
        return outside
    if cells.bins:
        low, high = cells.column.bounds or (0, 0)
        return cells.place(min(max(value, low), high))
    return cells.values.index(value) if value in cells.values else outside


@pytest.mark.parametrize(("column", "kind", "values"), COLUMNS, ids=lambda it: it.type if isinstance(it, Column) else "")
def test_what_is_sampled_lies_in_the_cell_it_was_sampled_from(column: Column, kind: pa.DataType, values: list[Any]) -> None:
    names = {pa.int64(): "integer", pa.float64(): "number", pa.date32(): "date", pa.string(): "text", pa.bool_(): "boolean"}
    cells = Cells.of("x", column, names.get(kind, "timestamp"))
    codes = np.repeat(np.arange(cells.size), 200)
    drawn = cells.decode(codes, RNG)
    assert drawn.type == kind
    for code, value in zip(codes.tolist(), drawn.to_pylist()):
        assert (value is None) == (code == cells.known)
        assert cells.place(value) == code


def test_mass_points_are_not_drawn_from_the_bins_around_them() -> None:
    cells = Cells.of("hours", Column("integer", bounds=(0, 99), bins=4, mass=(40, 35), required=True), "integer")
    drawn = cells.decode(np.full(3000, 1), RNG).to_pylist()
    assert set(drawn) == set(range(25, 50)) - {35, 40}
    assert set(cells.decode(np.full(9, 5), RNG).to_pylist()) == {40}


def test_a_mass_point_that_is_a_bin_already_is_no_second_cell() -> None:
    assert Cells.of("x", Column("integer", bounds=(0, 3), mass=(2,), required=True), "integer").size == 4
    with pytest.raises(InvalidValue, match="fill a bin"):
        Cells.of("x", Column("integer", bounds=(0, 3), bins=2, mass=(0, 1)), "integer")


@pytest.mark.parametrize(
    ("column", "kind", "told"),
    [
        (Column("integer", bounds=(0, 9)), "text", "holds text, and the schema says integer"),
        (Column("categorical", values=("a",)), "integer", "listed values are text"),
        (Column("boolean"), "integer", "schema says boolean"),
    ],
)
def test_a_schema_for_another_table_is_refused(column: Column, kind: str, told: str) -> None:
    with pytest.raises(InvalidValue, match=told):
        Cells.of("x", column, kind)


def test_decimals_round_what_is_drawn() -> None:
    cells = Cells.of("price", Column("real", bounds=(0.0, 5.0), decimals=2, required=True), "number")
    drawn = np.array(cells.decode(np.full(50, 7), RNG).to_pylist())
    assert np.allclose(drawn * 100, np.round(drawn * 100))
