"""An expression over one row means what it means in DuckDB, unless the guide says otherwise."""

from __future__ import annotations

import datetime
import math
from itertools import product
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot

from discreet import connect, record
from discreet.errors import InvalidQuery
from discreet.query.engines.duckdb import DuckWriter
from discreet.query.scalars.expression import Scope, scalar
from discreet.query.tree import Base, Field, Select

KINDS = {"a": "number", "i": "integer", "j": "integer", "t": "text", "f": "boolean", "d": "date", "m": "timestamp"}
DAYS = [None, datetime.date(2024, 2, 29), datetime.date(1969, 12, 31)]
ROWS = [
    (a, i, j, t, f, DAYS[k % 3], None if k % 5 == 0 else datetime.datetime(2024, 1 + k % 12, 28, k % 24, k % 60))
    for k, (a, i, j, t, f) in enumerate(product(
        [None, 0.0, 1.5, -2.5, -7.0, 1000.0], [None, 0, 1, -1, 7, -7], [None, 0, 2, -1, -3], [None, "", "aB", " 12 "],
        [None, True, False],
    ))
]  # fmt: skip
TABLE = pa.table({name: list(column) for name, column in zip(KINDS, zip(*ROWS))})
BASE = Base("t", tuple(KINDS), tuple(map(Field, KINDS.values())), private=False)


def read(text: str) -> Any:
    return scalar(sqlglot.parse_one(text, read="duckdb"), Scope((("t", BASE.names, BASE.fields),)))


def both(text: str) -> tuple[list[Any], list[Any]]:
    """What the operations make of the text, and what DuckDB makes of it by itself; NULL where that is an error."""
    made = DuckWriter().relation(Select(BASE, (), None, ("x",), (read(text),), private=False))
    with duckdb.connect() as link:
        link.register("t", TABLE)
        return [row[0] for row in link.sql(made).fetchall()], [
            row[0] for row in link.sql(f"SELECT TRY({text}) FROM t").fetchall()
        ]


SAME = [
    "i % j", "a % 2.5", "i // j", "i / NULLIF(j, 0)", "-i // 2", "LOG(ABS(a) + 1)", "LOG2(ABS(a) + 1)", "LOG10(ABS(a) + 1)",
    "FLOOR(LOG(NULLIF(ABS(a), 0)))",
    "POWER(a, 3)",
    "POWER(a, 2)", "POWER(a, 0)", "POWER(i, 5)", "POWER(i + 10, -3)", "POWER(ABS(a), 1.5)", "POWER(ABS(a), ABS(j))",
    "CASE WHEN f THEN i ELSE a END", "CASE WHEN f THEN 1 WHEN i = 1 THEN 0.25 END",
    "CASE WHEN f THEN 1 WHEN i = 1 THEN 0.25 ELSE 0 END",
    "CASE i WHEN 1 THEN j WHEN 7 THEN a END", "COALESCE(i, a)", "COALESCE(i, 2.5) % 2", "IF(f, i, a) % 2", "IF(f, i, NULL)",
    "CASE WHEN f THEN i > 0 WHEN i = 1 THEN NULL END", "CAST(NULL AS DOUBLE)", "CAST(NULL AS VARCHAR) IS NULL", "NULL IS NULL",
    "COALESCE(CAST(NULL AS BIGINT), i)", "a > CAST(NULL AS DOUBLE)", "NULLIF(i, 7)", "NULLIF(i, 0.5) % 3", "CONCAT(t, 'x', t)",
    "CONCAT('x', t)", "t || 'x' || t", "LOWER(t)", "LENGTH(t)", "i IN (1, 7)", "i NOT IN (1, 7)", "d IN ('2024-02-29')",
    "d IN (TIMESTAMP '2024-02-29 00:00:00', TIMESTAMP '2024-03-01 00:00:00')", "f IS NOT TRUE", "d < m",
    "ROUND(a, 1)", "SIGN(a)",
    "GREATEST(a, i, 0)", "EXTRACT(DOW FROM d)", "DATE_DIFF('day', d, m)", "DATE_TRUNC('quarter', m)", "CAST(a AS BIGINT)",
]  # fmt: skip


@pytest.mark.parametrize("text", SAME)
def test_an_expression_means_the_same_in_duckdb(text: str) -> None:
    found, right = both(text)
    for row, one, two in zip(ROWS, found, right, strict=True):
        if isinstance(two, bool) or not isinstance(two, (int, float)):
            assert one == two, f"{text} of {row}"
        else:
            assert one is not None, f"{text} of {row}"
            assert math.isclose(one, two, rel_tol=1e-12, abs_tol=1e-12), f"{text} of {row}"


def test_quotient_and_remainder_make_the_number_again() -> None:
    found, _ = both("i // j * j + i % j")
    assert found == [None if i is None or not j else i for _, i, j, *_ in ROWS]


def test_numbers_are_whole_only_where_all_branches_are() -> None:
    """Else they would be added up in whole steps, and a quarter would count as nothing."""
    assert [read(text).kind for text in ("COALESCE(i, 0)", "COALESCE(i, a)", "COALESCE(i, 0.5)", "IF(f, f, 2)")] == [
        "integer", "number", "number", "integer"]  # fmt: skip
    table = pa.table({"f": [True, False, False, None] * 250, "g": [False, True, False, True] * 250})
    with connect({"t": table}, unit=record()) as db:
        found = db.sql("SELECT AVG(CASE WHEN f THEN 1 WHEN g THEN 0.25 ELSE 0 END) AS x FROM t", epsilon=100).value
        assert found["x"][0].as_py() == pytest.approx(0.375, abs=0.005)  # noise of a scale of about 1e-5


@pytest.mark.parametrize(
    "text", ["NULL = NULL", "NULL > 1", "a + NULL", "NOT NULL", "LENGTH(NULL)", "BUCKET(5, 3)", "BUCKET(a, 3)"]
)
def test_what_has_no_value_is_refused(text: str) -> None:
    with pytest.raises(InvalidQuery):
        read(text)


@pytest.mark.parametrize("text", ["LEAST(COUNT(*), 9)", "SUM(a) > 3"])
def test_a_statistic_inside_an_expression_over_one_row_is_told_where_it_stands(text: str) -> None:
    with pytest.raises(InvalidQuery, match=r"In a sub-query name it by itself"):
        read(text)


def test_a_group_of_nothing_is_refused() -> None:
    with connect({"t": TABLE}, unit=record()) as db, pytest.raises(InvalidQuery, match="GROUP BY a constant"):
        db.explain("SELECT COUNT(*) AS n FROM t GROUP BY CAST(NULL AS DATE)", epsilon=1.0)


@pytest.mark.parametrize("kind", ["DECIMAL", "DECIMAL(10, 2)", "NUMERIC(4, 1)"])
def test_a_cast_that_rounds_says_what_to_write(kind: str) -> None:
    with connect({"t": TABLE}, unit=record()) as db, pytest.raises(InvalidQuery, match="digits; write ROUND"):
        db.explain(f"SELECT COUNT(*) AS n FROM t WHERE CAST(a AS {kind}) > 1", epsilon=1.0)
