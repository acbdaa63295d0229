"""What a schema says, and what it refuses."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path

import pytest

from discreet.errors import InvalidDocument, InvalidValue
from discreet.synth import Column, Forbidden, Implies, Schema

TOML = """
[age]
type = "integer"
bounds = [17, 90]
mass = [40]

[sex]
type = "categorical"
values = ["Female", "Male"]
required = true

[born]
type = "date"
bounds = [1950-01-01, 1999-12-31]

[seen]
type = "timestamp"
bounds = ["2024-01-01T00:00:00", "2024-12-31T23:59:59"]
bins = 12

[notes]
type = "omit"
"""


def test_toml_and_python_say_the_same(tmp_path: Path) -> None:
    place = tmp_path / "schema.toml"
    place.write_text(TOML)
    read = Schema.read(place)
    said = Schema.of({
        "age": Column("integer", bounds=(17, 90), mass=(40,)),
        "sex": Column("categorical", values=("Female", "Male"), required=True),
        "born": (date(1950, 1, 1), date(1999, 12, 31)),
        "seen": Column("timestamp", bounds=(datetime(2024, 1, 1), datetime(2024, 12, 31, 23, 59, 59)), bins=12),
        "notes": None,
    })  # fmt: skip
    assert read == said
    assert Schema.of(place) == read
    assert list(read) == ["age", "sex", "born", "seen"]


def test_shorthands_are_lists_and_pairs() -> None:
    schema = Schema.of({"a": ["x", "y"], "b": (0, 9), "c": (0.0, 1.5), "d": ["x", None]})
    assert [column.type for column in schema.columns.values()] == ["categorical", "integer", "real", "categorical"]
    assert schema.columns["d"].values == ("x",)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"a": {"type": "text"}}, "free text cannot be synthesised.*omit"),
        ({"a": {"type": "integer"}}, "pair"),
        ({"a": (5, 1)}, "rise"),
        ({"a": []}, "at least one"),
        ({"a": ["x", "x"]}, "different"),
        ({"a": ["x", 1]}, "one type"),
        ({"a": list(range(5000))}, "5,000 categories.*4096"),
        ({"a": {"type": "categorical", "values": ["x"], "colour": 1}}, "colour"),
        ({"a": {"required": True}}, "must say bounds, categories or a type"),
        ({"a": {"type": "integer", "bounds": [0, 9], "mass": [10]}}, "within the bounds"),
        ({"a": {"type": "integer", "bounds": [0, 9], "bins": [5, 3]}}, "rise"),
        ({"a": {"type": "integer", "bounds": [0, 9.5]}}, "whole"),
        ({"a": {"type": "real", "bounds": [0, float("inf")]}}, "finite"),
        ({"a": {"type": "date", "bounds": ["yesterday", "today"]}}, "date such as"),
        ({"a": {"type": "boolean", "values": [True]}}, "list none"),
        ({"a": {"type": "categorical", "values": ["x"], "bins": 3}}, "no bounds"),
        ({"a": 7}, "list of categories"),
        ({}, "no column"),
    ],
)
def test_what_makes_no_sense_is_refused(said: dict, told: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(InvalidValue, match=told):
        Schema.of(said)


def test_a_file_that_is_no_schema(tmp_path: Path) -> None:
    place = tmp_path / "schema.toml"
    with pytest.raises(InvalidDocument, match="cannot be read"):
        Schema.read(place)
    place.write_text("[age")
    with pytest.raises(InvalidDocument, match="not valid TOML"):
        Schema.read(place)
    place.write_text('[age]\ntype = "integer"\nbounds = [9, 1]')
    with pytest.raises(InvalidDocument, match="age: bounds must rise"):
        Schema.read(place)


RULES = """
[age]
type = "integer"
bounds = [0, 99]
bins = 10

[married]
type = "categorical"
values = ["yes", "no"]

[constraint]
type = "boolean"

[[workload]]
columns = ["age", "married"]
"""


def test_constraints_and_workloads_come_from_the_file(tmp_path: Path) -> None:
    place = tmp_path / "schema.toml"
    rules = """
    given = { age = { low = 0, high = 9 } }
    then = { married = "no" }
    """
    other = "forbidden = { married = { values = ['yes'], missing = true }, single = true }"
    place.write_text(RULES.replace("[constraint]", "[single]") + f"[[constraint]]{rules}\n[[constraint]]\n{other}\n")
    schema = Schema.read(place)
    assert list(schema.columns) == ["age", "married", "single"]
    assert schema.workload == (("age", "married"),)
    assert schema.constraints == (
        Implies({"age": (0, 9)}, {"married": "no"}), Forbidden({"married": ["yes", None], "single": True}),
    )  # fmt: skip


def test_a_column_may_be_called_constraint(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(RULES)
    assert list(Schema.read(tmp_path / "schema.toml").columns) == ["age", "married", "constraint"]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("[[constraint]]\nnever = 3", "given and then, or forbidden"),
        ("[[constraint]]\ngiven = { age = 1 }", "given and then"),
        ('[[constraint]]\nordered = ["age"]', "given and then"),
        ("[[constraint]]\nforbidden = { age = { least = 3 } }", "a value, a list of values"),
        ("[[workload]]\ncolumns = []", "says columns"),
    ],
)
def test_wrong_rules_in_a_file_are_told(more: str, told: str, tmp_path: Path) -> None:
    rest = RULES.replace("[constraint]", "[single]").split("[[workload]]")[0]
    (tmp_path / "schema.toml").write_text(rest + more)
    with pytest.raises(InvalidDocument, match=told):
        Schema.read(tmp_path / "schema.toml")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_categories_that_no_row_can_have_are_refused(value: float) -> None:
    with pytest.raises(InvalidValue, match="values must be finite"):
        Column("categorical", values=(1.5, value))
