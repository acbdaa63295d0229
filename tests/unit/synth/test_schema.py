"""What a schema says, and what it refuses."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path

import pytest

from discreet.errors import InvalidDocument, InvalidValue
from discreet.synth import Column, Schema

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
        ({"a": {"values": ["x"]}}, "must say a type"),
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
    with pytest.raises(InvalidDocument, match="not TOML"):
        Schema.read(place)
    place.write_text('[age]\ntype = "integer"\nbounds = [9, 1]')
    with pytest.raises(InvalidDocument, match="age: bounds must rise"):
        Schema.read(place)
