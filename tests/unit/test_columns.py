"""One adapter for every kind of table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.columns import classes, codes, columns, like, missing
from discreet.errors import InvalidValue

PLAIN = {"age": [34, 51, 34], "sex": ["f", None, "f"]}


def kinds():
    pandas, pyarrow, polars = (pytest.importorskip(name) for name in ("pandas", "pyarrow", "polars"))
    return [PLAIN, pandas.DataFrame(PLAIN), pyarrow.table(PLAIN), polars.DataFrame(PLAIN)]


def test_every_kind_of_table_gives_the_same_columns():
    for table in kinds():
        found = columns(table)
        assert found["age"].tolist() == [34, 51, 34]
        assert codes(found["sex"])[0].tolist() == [0, 1, 0]
        assert codes(found["sex"])[1] == ["f", None]


def test_what_comes_out_is_of_the_kind_that_went_in():
    for table in kinds():
        made = like(table, {"x": np.array(["a", "b"], dtype=object)})
        assert type(made) is type(table)
        assert columns(made)["x"].tolist() == ["a", "b"]


def test_numbers_that_may_be_missing_are_numbers_where_none_is():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": pandas.array([1, 2], dtype="Int64"), "y": pandas.array([1, None], dtype="Int64")})
    assert columns(frame)["x"].dtype == np.int64
    assert codes(columns(frame)["y"])[1] == [1, None]
    assert columns({"b": [True, False]})["b"].dtype == np.bool_


@pytest.mark.parametrize(
    ("table", "names", "told"),
    [
        (PLAIN, ["zip"], "no column 'zip'; it has age, sex"),
        (PLAIN, [], "No column was named"),
        ({"a": [1], "b": [1, 2]}, None, "equally long"),
        ({"a": []}, None, "The table is empty"),
        ({"a": [[1, 2]]}, None, "."),
        (3, None, "got int"),
    ],
)
def test_what_is_no_table_is_told(table, names, told):
    if told == ".":
        assert len(columns(table)["a"]) == 1  # a cell may hold anything
        return
    with pytest.raises(InvalidValue, match=told):
        columns(table, names)


@given(st.lists(st.one_of(st.none(), st.integers(-3, 3), st.sampled_from(["a", "b"]), st.just(float("nan"))), min_size=1))
def test_codes_lead_back_to_the_values(values):
    column = np.empty(len(values), dtype=object)
    column[:] = values
    code, found = codes(column)
    back = [found[place] for place in code]
    assert all((b is None and missing(a)) or a == b for a, b in zip(values, back))
    assert len(found) == len(set(found)) == code.max() + 1


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("xy"), st.booleans()), min_size=1, max_size=30))
def test_classes_are_just_the_equal_rows(rows):
    label, count = classes([np.array(column) for column in zip(*rows)])
    assert count == len(set(rows)) == len(set(label.tolist()))
    assert len(set(zip(rows, label.tolist()))) == count
