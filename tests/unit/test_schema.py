"""The one reader of public facts about columns."""

from __future__ import annotations

from contextlib import suppress
from datetime import date
from pathlib import Path

import pytest

from discreet import synth
from discreet.attack.gradients.layout import Layout
from discreet.errors import DiscreetError, InvalidDocument, InvalidValue
from discreet.query.schema import read_schema
from discreet.schema import column, learned, read, read_mapping, reading

DAYS = (date(2020, 1, 1), date(2021, 1, 1))


@pytest.mark.parametrize(
    ("said", "facts", "told"),
    [
        ([18, 90], {"bounds": (18, 90)}, "integer 18 to 90"),
        ([0.5, 1], {"bounds": (0.5, 1)}, "real 0.5 to 1"),
        (
            [date(2020, 1, 1), date(2021, 1, 1)],
            {"bounds": (date(2020, 1, 1), date(2021, 1, 1))},
            "date 2020-01-01 to 2021-01-01",
        ),
        (["a", "b"], {"values": ("a", "b")}, "2 categories"),
        (["2020", "2021"], {"values": ("2020", "2021")}, "2 categories"),
        ([True, False], {"values": (True, False)}, "2 categories"),
        ({"categories": [18, 90]}, {"values": (18, 90)}, "2 categories"),
        ({"type": "ordinal", "values": ["l", "h"]}, {"type": "ordinal", "values": ("l", "h")}, "2 categories in order"),
        ({"type": "omit"}, {"type": "omit"}, "left out"),
        ({"bins": [1, 2]}, {"bins": (1, 2)}, "number in 3 bins"),
        ({"find": "categories"}, {"find": "categories"}, "categories, found privately"),
        ({"type": "boolean"}, {"type": "boolean"}, "true or false"),
        ({"required": True}, {"required": True}, "of the type it has"),
    ],
)
def test_a_form_has_one_meaning(said: object, facts: object, told: str) -> None:
    assert column("x", said, written=True) == facts
    assert reading(column("x", said, written=True)) == told


def test_a_list_of_two_numbers_in_python_is_refused_where_it_could_be_either() -> None:
    for refusing in (lambda: synth.Schema.of({"age": [18, 90]}), lambda: Layout.of({"age": [18, 90]})):
        with pytest.raises(InvalidValue, match=r"tuple, \(18, 90\), and categories as \{'categories'"):
            refusing()
    assert synth.Schema.of({"age": (18, 90)}).columns["age"].bounds == (18, 90)
    assert synth.Schema.of({"age": {"categories": [18, 90]}}).columns["age"].values == (18, 90)
    assert synth.Schema.of({"age": [1, 2, 3]}).columns["age"].values == (1, 2, 3)
    assert Layout.of({"age": {"categories": [18, 90]}}).categories == ((18, 90),)


def test_a_table_is_told_from_a_column(tmp_path: Path) -> None:
    place = tmp_path / "schema.toml"
    place.write_text("""
        age = [0, 120]
        [rows]
        type = "integer"
        bounds = [0, 9]
        [wards]
        public = true
        floor = [0, 10]
        [people.bounds]
        categories = ["a"]
        [[constraint]]
        ordered = ["a", "b"]
    """)
    said = read(place)
    assert set(said.columns[""]) == {"age", "rows"}
    assert said.columns["wards"] == {"floor": {"bounds": (0, 10)}}
    assert said.columns["people"] == {"bounds": {"values": ("a",)}}
    assert said.tables == {"wards": {"public": True}}
    assert said.lists == {"constraint": [{"ordered": ["a", "b"]}]}
    assert set(said.one("WARDS")) == {"age", "rows", "floor"}
    with pytest.raises(InvalidValue, match="tables wards, people"):
        said.one("visits")


@pytest.mark.parametrize("facts", [{"type": "integer"}, {"find": "bins"}, {"bounds": DAYS}])
def test_a_model_says_what_it_lacks(facts: dict[str, object]) -> None:
    with pytest.raises(InvalidValue, match='type = "omit"'):
        learned("x", facts, "discreet fit")


HOSTILE = ("[x]\nbounds = 3", "[x]\nbounds = [1, 'a']", "[x]\ncategories = 3", "x = [nan, 1.0]", "x = [0.0, inf]",
           "x = 1979-05-27", "[x]\nbins = 'a'", "x = {}", "[x]\nfind = 7", "[x]\ntype = ['a']")  # fmt: skip


@pytest.mark.parametrize("said", HOSTILE)
def test_hostile_files_are_our_errors(said: str, tmp_path: Path) -> None:
    place = tmp_path / "schema.toml"
    place.write_text(said)
    with pytest.raises(DiscreetError):
        synth.Schema.read(place)
    with suppress(DiscreetError):
        assert not {name: learned(name, own, "fit", bins=True) for name, own in read(place).one().items()}
    with suppress(DiscreetError):
        read_schema(place)


def test_an_error_in_a_file_names_it(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text("age = [1, 2, 3]")
    with pytest.raises(InvalidDocument, match=r"schema.toml: age = \[1, 2, 3\]"):
        read(tmp_path / "schema.toml")
    with pytest.raises(InvalidValue, match="could be a range"):
        read_mapping({"people": {"age": [1, 2]}})
