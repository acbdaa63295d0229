"""Each rule that keeps neighbours alike is taken away, and the game finds it out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import spark
from adversary.sql.game import compare, sides
from adversary.sql.test_neighbours import one_salt, url  # noqa: F401
from adversary.sql.worlds import WORLDS
from discreet.core import lines
from discreet.query import answer, catalogue, price, tree
from discreet.query.engines import duckdb, frames
from discreet.query.engines.duckdb import DuckEngine
from discreet.query.engines.expressions import Expressions
from discreet.query.engines.postgres import PostgresEngine, PostgresWriter
from discreet.query.engines.spark import SparkWriter
from discreet.query.engines.writer import Writer
from discreet.query.operations import Kind
from discreet.query.statistics.quantity import Bounding

Patch = Callable[[pytest.MonkeyPatch], None]


def engine_compares_keys(patch: pytest.MonkeyPatch) -> None:
    """Keys of two types, by whatever the engine makes of them."""
    patch.setattr(catalogue, "common_rule", lambda rules: "as it is")
    patch.setattr(Expressions, "unit", lambda self, table, name, field: self.name(name))


def collations_of_columns(patch: pytest.MonkeyPatch) -> None:
    for writer in (Expressions, PostgresWriter, SparkWriter):
        patch.setattr(writer, "binary", lambda self, text: text)
    cast = SparkWriter.column  # a cast to STRING leaves the collation behind
    patch.setattr(SparkWriter, "column", lambda self, table, name, field: (
        self.name(name) if field.kind == Kind.TEXT else cast(self, table, name, field)))  # fmt: skip


def keys_of_many_spellings(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(duckdb, "collated", lambda sql: set())


def names_without_case(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(catalogue, "_same", lambda one, two, exact: one.lower() == two.lower())


def views_as_tables(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(catalogue, "_derived", lambda name, stored, before: "")


def types_of_files_guessed(patch: pytest.MonkeyPatch) -> None:
    def read(path: Path, declared: Any) -> pa.Table:
        import pyarrow.csv

        options = pyarrow.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=lambda _: "skip")
        return pyarrow.csv.read_csv(path, parse_options=options, convert_options=pyarrow.csv.ConvertOptions(check_utf8=False))

    patch.setattr(duckdb, "text_table", read)


def quotes_over_lines(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lines, "records", lambda body, delimiter, width: [body])


def types_of_objects_guessed(patch: pytest.MonkeyPatch) -> None:
    def column(series: Any) -> Any:
        try:
            return pa.chunked_array([pa.array(series, from_pandas=True)])
        except pa.ArrowException:
            return frames.texts(series.tolist())

    patch.setattr(frames, "_pandas_column", column)


def texts_unchecked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(frames, "_valid", lambda column: column)


def uniqueness_unchecked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DuckEngine, "unique", lambda self, base: True)
    uniqueness_when_connecting(patch)


def uniqueness_when_connecting(patch: pytest.MonkeyPatch) -> None:
    """What was unique is taken to stay so."""
    patch.setattr(Writer, "first_of_each", lambda self, text, base: text)


def macros_unchecked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DuckEngine, "_check_macros", lambda self: None)


def tables_by_name(patch: pytest.MonkeyPatch) -> None:
    """Tables are looked at when connecting, and whatever has their names then is asked."""
    patch.setattr(PostgresEngine, "ready", lambda self, tables: None)
    patch.setattr(PostgresEngine, "_check_unchanged", lambda self, cursor, rows: None)
    patch.setattr(SparkWriter, "table", SparkWriter.name)


def views_by_columns(patch: pytest.MonkeyPatch) -> None:
    """A view is the same as long as it has the same columns."""
    right = PostgresEngine._described
    patch.setattr(PostgresEngine, "_described", lambda self, link: {
        place: [(*row[:-1], None) for row in rows] for place, rows in right(self, link).items()})  # fmt: skip


def values_not_bounded(patch: pytest.MonkeyPatch) -> None:
    """COUNT(DISTINCT x) of all rows of a unit."""
    right = answer._values

    def all_values(question: Any, plan: Any, value: Any) -> Any:
        request = right(question, plan, value)
        return replace(request, plan=replace(request.plan, groups=10**6))

    patch.setattr(answer, "_values", all_values)


def values_together_not_bounded(patch: pytest.MonkeyPatch) -> None:
    """COUNT(DISTINCT (x, g)) as if a unit were in one row."""
    patch.setattr(Bounding, "values", property(lambda self: self.times))


def rows_of_joins_counted_once(patch: pytest.MonkeyPatch) -> None:
    """A record that is joined with many rows of a public table counts as one."""
    patch.setattr(tree, "_matches", lambda join, place: 1)


def rows_of_unions_counted_once(patch: pytest.MonkeyPatch) -> None:
    """A record that is in several parts of a UNION ALL counts as one."""
    patch.setattr(price, "copies", lambda rows: 1)


def sets_not_shared(patch: pytest.MonkeyPatch) -> None:
    """Each grouping set is measured as if it were the only one."""
    right = price.split
    patch.setattr(price, "split", lambda epsilon, needs, *more: [epsilon] * len(needs) if more[:1] == (len(needs),) and all(
        need == {i: 1.0} for i, need in enumerate(needs)) else right(epsilon, needs, *more))  # fmt: skip


TWINS: list[tuple[Patch, str]] = [
    (engine_compares_keys, "duckdb keys ubigint double"), (engine_compares_keys, "duckdb keys decimal double"),
    (engine_compares_keys, "postgres keys numeric float8"), (engine_compares_keys, "spark keys decimal double"),
    (collations_of_columns, "duckdb collation"), (collations_of_columns, "postgres collation"),
    (keys_of_many_spellings, "duckdb spelled keys"),
    (names_without_case, "postgres names"), (views_as_tables, "duckdb view repeats"),
    (views_as_tables, "duckdb view tells of others"), (views_as_tables, "duckdb one frame twice"),
    (views_as_tables, "postgres view repeats"), (views_as_tables, "postgres view tells of others"),
    (views_as_tables, "postgres children"), (views_as_tables, "spark window"), (types_of_files_guessed, "duckdb csv"),
    (quotes_over_lines, "duckdb csv"),
    (types_of_objects_guessed, "duckdb objects undeclared"), (texts_unchecked, "duckdb encoding"),
    (uniqueness_unchecked, "duckdb join fanned out"), (values_not_bounded, "duckdb values"),
    (sets_not_shared, "duckdb values of records"), (collations_of_columns, "spark collation"),
    (uniqueness_when_connecting, "duckdb public file written anew"),
    (uniqueness_when_connecting, "postgres public table changed"), (uniqueness_when_connecting, "postgres repeats changed"),
    (rows_of_joins_counted_once, "duckdb join repeated"), (rows_of_joins_counted_once, "postgres join repeated"),
    (rows_of_joins_counted_once, "spark join repeated"), (rows_of_unions_counted_once, "duckdb values of records"),
    (values_together_not_bounded, "duckdb values"),
    (macros_unchecked, "duckdb macro"),
    (tables_by_name, "postgres table exchanged"), (tables_by_name, "spark view exchanged"),
    (views_by_columns, "postgres view exchanged"), (views_by_columns, "postgres view below exchanged"),
]  # fmt: skip


@pytest.mark.parametrize(("twin", "name"), TWINS, ids=[f"{twin.__name__} {name}" for twin, name in TWINS])
def test_a_rule_that_is_missing_is_found_out(
    twin: Patch, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    world = next(world for world in WORLDS if f"{world.engine} {world.name}" == name)
    if world.engine == "spark" and spark.missing():
        pytest.skip(spark.missing() or "")
    place = request.getfixturevalue("url") if world.engine == "postgres" else ""
    twin(monkeypatch)
    with sides(world, tmp_path, place) as made:
        assert compare(world, made, Random(0), 2 if world.engine == "spark" else 100) != []  # it stops at the first that tells
