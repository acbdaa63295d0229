"""What is said of an expression over one row holds for every row: its kind, its bounds, and that it is never NULL."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from discreet.errors import InvalidQuery
from discreet.query.engines.duckdb import DuckWriter
from discreet.query.scalars.expression import Scope, scalar
from discreet.query.tree import Base, Field, Scalar, Select

FIELDS = {
    "a": Field("number", (-5.0, 5.0)), "r": Field("number", (0.0, 10.0), required=True), "i": Field("integer", (-5.0, 5.0)),
    "q": Field("integer", (0.0, 10.0), required=True), "t": Field("text"), "d": Field("date"), "f": Field("boolean"),
}  # fmt: skip
ROWS = [
    (
        a,
        r,
        i,
        q,
        [None, "", "ab", " 12 "][k % 4],
        None if k % 3 else datetime.date(2024, 2, 29),
        [None, True, False][k // 4 % 3],
    )
    for k, (a, r, i, q) in enumerate(product([None, 0.0, 0.25, -5.0, 5.0], [0.0, 1.5, 10.0], [None, 0, 1, -5, 5], [0, 1, 10]))
]
TABLE = pa.table({name: list(column) for name, column in zip(FIELDS, zip(*ROWS))})
BASE = Base("t", tuple(FIELDS), tuple(FIELDS.values()), private=False)


@pytest.fixture(scope="module")
def link() -> Iterator[Any]:
    with duckdb.connect(config={"threads": 1}) as link:
        link.register("t", TABLE)
        yield link


def filled(shapes: list[str], **parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Shapes like "({N} + {N})", each part drawn anew."""

    @st.composite
    def made(draw: st.DrawFn) -> str:
        pieces = draw(st.sampled_from(shapes)).split("{")
        return pieces[0] + "".join(draw(parts[piece[0]]) + piece[2:] for piece in pieces[1:])

    return made()


NUMBERS, TRUTHS, TEXTS = (st.sampled_from(leaves) for leaves in (
    ["a", "r", "i", "q", "2", "0", "-3", "0.5", "CAST(NULL AS DOUBLE)", "CAST(NULL AS BIGINT)"],
    ["f", "a > 1", "i IS NULL", "TRUE", "NULL IS NULL"], ["t", "'ab'", "''"],
))  # fmt: skip
for _ in range(3):  # levels
    inner = {"N": NUMBERS, "C": TRUTHS, "T": TEXTS}
    NUMBERS, TRUTHS, TEXTS = (
        filled([
            "{N}", "({N} + {N})", "({N} - {N})", "({N} * {N})", "({N} / {N})", "({N} % {N})", "({N} // {N})", "-({N})",
            "abs({N})", "sqrt({N})", "floor({N})", "ceil({N})", "sign({N})", "round({N})", "round({N}, 2)", "ln({N})",
            "log({N})", "exp({N})", "({N} ** 2)", "({N} ** 3)", "({N} ** {N})", "least({N}, {N})", "greatest({N}, {N})",
            "coalesce({N}, {N})", "nullif({N}, {N})", "if({C}, {N}, NULL)", "if({C}, {N}, {C})",
            "CASE WHEN {C} THEN {N} WHEN {C} THEN {N} END",
            "CASE {N} WHEN {N} THEN {N} ELSE {N} END", "CAST({N} AS BIGINT)", "CAST({N} AS DOUBLE)", "CAST({C} AS BIGINT)",
            "CAST({T} AS DOUBLE)", "length({T})", "month(d)", "least(greatest({N}, 0), 9)",
            "bucket(least(greatest({N}, 0), 9), 3)",
        ], **inner),
        filled([
            "{C}", "({N} < {N})", "({N} = {N})", "({C} AND {C})", "({C} OR {C})", "(NOT {C})", "({N} IS NULL)", "({C} IS TRUE)",
            "({N} IN (1, 2.5))", "({N} BETWEEN {N} AND {N})", "({T} LIKE 'a%')", "(d < '2024-03-01')", "coalesce({C}, FALSE)",
        ], **inner),
        filled([
            "{T}", "({T} || {T})", "concat({T}, {T})", "upper({T})", "substring({T}, 2)", "CASE WHEN {C} THEN {T} END",
            "coalesce({T}, {T})", "nullif({T}, '')", "CAST({N} AS VARCHAR)",
        ], **inner),
    )  # fmt: skip


def read(text: str) -> Scalar:
    return scalar(sqlglot.parse_one(text, read="duckdb"), Scope((("t", BASE.names, BASE.fields),)))


def wrong(it: Scalar, link: Any) -> str:
    """What is said of the expression and does not hold for some row."""
    text = DuckWriter().relation(Select(BASE, (), None, ("x",), (it,), private=False))
    found = [row[0] for row in link.execute(text).fetchall()]
    known = [value for value in found if value is not None]
    kinds = {"integer": int, "number": float, "text": str, "boolean": bool}
    if any(type(value) is not kinds[it.kind] for value in known):
        return "kind"
    if it.required and len(known) < len(found):
        return "required"
    if it.bounds is not None:
        low, high = (end + sign * 1e-9 * (1 + abs(end)) for end, sign in zip(it.bounds, (-1, 1)))
        if any(math.isfinite(value) and not low <= value <= high for value in known):
            return "bounds"
    return ""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(NUMBERS, NUMBERS, TRUTHS, TEXTS))
def test_what_is_said_of_an_expression_holds(link: Any, text: str) -> None:
    try:
        it = read(text)
    except InvalidQuery:
        return
    assert wrong(it, link) == ""


BROKEN = {
    "kind": replace(read("coalesce(i, a)"), kind="integer"), "required": replace(read("nullif(q, 1)"), required=True),
    "bounds": replace(read("greatest(a, i)"), bounds=(0.0, 5.0)),
}  # fmt: skip


@pytest.mark.parametrize("part", BROKEN)
def test_what_does_not_hold_is_seen(part: str, link: Any) -> None:
    assert wrong(BROKEN[part], link) == part


def test_null_moves_no_end_of_an_extreme() -> None:
    """GREATEST(x, y) is x where y is NULL: only what is never NULL keeps it from falling."""
    assert read("greatest(a, i)").bounds == (-5.0, 5.0)
    assert read("greatest(a, q)").bounds == (0.0, 10.0)
    assert read("least(a, r, 3)").bounds == (-5.0, 3.0)
    assert read("least(greatest(a * a * a, -1), 7)").bounds == (-1.0, 7.0)
    assert read("least(greatest(a, 0), 9)").required
    assert not read("greatest(a, i)").required
