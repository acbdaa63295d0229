"""Every operation that can be written down has SQL in every engine, and every kind of plan and term has one."""

from __future__ import annotations

import datetime

import numpy as np
import pytest
import sqlglot

from discreet.query import after
from discreet.query.engines.duckdb import DuckWriter
from discreet.query.engines.expressions import unwritten
from discreet.query.engines.postgres import PostgresWriter
from discreet.query.engines.request import Plan, Request, Term
from discreet.query.engines.spark import SparkWriter
from discreet.query.engines.writer import Writer
from discreet.query.operations import GATHERING, Kind, Op, PlanKind, TermKind
from discreet.query.tree import Base, Field, Scalar, Select
from discreet.query.values import OPERATIONS

WRITERS = {"duckdb": DuckWriter, "postgres": PostgresWriter, "spark": SparkWriter}
NAMES = {kind: f"c_{kind}" for kind in Kind if kind != Kind.NULL}


def column(kind: Kind) -> Scalar:
    return Scalar(
        Op.COLUMN, kind, (), (0, list(NAMES).index(kind)), (0.0, 10.0) if kind in (Kind.INTEGER, Kind.NUMBER) else None
    )


def of(op: Op, kind: Kind, *args: Kind, value: object = None) -> Scalar:
    return Scalar(op, kind, tuple(column(arg) for arg in args), value, (0.0, 10.0))


W, N, T, B, D, M = list(NAMES)  # W: whole numbers
LIKE = Scalar(Op.LIKE, B, (column(T), Scalar(Op.LITERAL, T, value="a%")))
BUCKETS = of(Op.BUCKET, N, N, value=(0.0, 2.5, 5.0, 7.5))
EXAMPLES = {
    Op.COLUMN: column(N), Op.LITERAL: Scalar(Op.LITERAL, D, value=datetime.date(2026, 1, 31)), Op.NULL: Scalar(Op.NULL, N),
    Op.SAME_UNIT: Scalar(Op.SAME_UNIT, B, value=(0, 1)), Op.ROUND: of(Op.ROUND, N, N, value=2), Op.BUCKET: BUCKETS,
    Op.TRUTH: of(Op.TRUTH, W, B), Op.NOT: of(Op.NOT, B, B), Op.IS_NULL: of(Op.IS_NULL, B, T), Op.CASE: of(Op.CASE, N, B, N, N),
    Op.COALESCE: of(Op.COALESCE, T, T, T), Op.LENGTH: of(Op.LENGTH, W, T), Op.SUBSTRING: of(Op.SUBSTRING, T, T, value=(1, 2)),
    Op.CONCAT: of(Op.CONCAT, T, T, T), Op.LIKE: LIKE, Op.PART: of(Op.PART, W, M, value="month"),
    Op.TRUNCATE: of(Op.TRUNCATE, M, M, value="quarter"), Op.DAYS: of(Op.DAYS, N, D, D),
    **{op: of(op, N, N, N) for op in (Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MOD, Op.POWER, Op.GREATEST, Op.LEAST)},
    **{op: of(op, N, N) for op in (Op.NEG, Op.ABS, Op.SIGN, Op.SQRT, Op.EXP, Op.LN, Op.LOG2, Op.LOG10, Op.FLOOR, Op.CEIL)},
    **{op: of(op, B, N, N) for op in (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE)},
    **{op: of(op, B, B, B) for op in (Op.AND, Op.OR)},
    **{op: of(op, T, T) for op in (Op.LOWER, Op.UPPER, Op.TRIM)},
    **{Op(f"to_{kind}"): of(Op(f"to_{kind}"), kind, T) for kind in NAMES if kind != T}, Op.TO_TEXT: of(Op.TO_TEXT, T, D),
    **{op: of(op, N, N) for op in GATHERING},
}  # fmt: skip


def test_every_operation_has_an_example() -> None:
    assert set(EXAMPLES) == set(Op)


@pytest.mark.parametrize("op", Op)
@pytest.mark.parametrize("engine", WRITERS)
def test_every_operation_is_written_for_every_engine(engine: str, op: Op) -> None:
    writer = WRITERS[engine]()
    text = writer.gathered(EXAMPLES[op])
    assert sqlglot.parse_one(f"SELECT {text} AS x", read=engine).find(sqlglot.exp.Select) is not None
    assert "Op." not in text
    assert "Kind." not in text


@pytest.mark.parametrize("kind", [TermKind.COUNT, TermKind.CUT, TermKind.WIDE])
@pytest.mark.parametrize("engine", WRITERS)
def test_terms_of_whole_rows(engine: str, kind: TermKind) -> None:
    assert WRITERS[engine]().term(Term(kind)) == "1"


@pytest.mark.parametrize("plan", PlanKind)
@pytest.mark.parametrize("engine", WRITERS)
def test_every_plan_and_term_is_written_for_every_engine(engine: str, plan: PlanKind) -> None:
    writer = WRITERS[engine]()
    writer.registered = "t" if plan == PlanKind.REGISTERED else ""
    table = Base("t", tuple(NAMES.values()), tuple(Field(kind) for kind in NAMES), True, 0)
    bounded = {TermKind.CUT, TermKind.WIDE}
    kinds = [kind for kind in TermKind if kind not in bounded or plan != PlanKind.ROWS]  # nothing is cut of one row
    terms = tuple(Term(kind, None if kind in {TermKind.COUNT, *bounded} else column(N)) for kind in kinds)
    request = Request(Select(table, (), None, (), (), True), (column(T),), Plan(plan, 3, 2, 1), terms)
    text = writer.request(request, 0)
    assert sqlglot.parse_one(text, read=engine).find(sqlglot.exp.Group) is not None
    assert all(f"AS s{i}" in text for i in range(len(terms)))


def test_a_writer_that_lacks_an_operation_is_seen() -> None:
    class Lacking:
        """Nothing but what the table at the end of expressions.py has."""

    assert Op.CASE in unwritten(Lacking)
    assert unwritten(Writer) == []


def test_every_operation_on_a_released_row_is_computed() -> None:
    rows_only = {Op.COLUMN, Op.SAME_UNIT, *GATHERING}
    assert {*after._NUMERIC, *after._COMPARISONS, *after._LOGIC, *after._CHOICES, *OPERATIONS, Op.LITERAL, Op.NULL} == (
        set(Op) - rows_only
    )
    cells = (np.array([2.0]), np.array([1.0]), np.array([3.0]))
    assert all(len(rule([cells, cells], None)) == 3 for op, rule in after._NUMERIC.items() if op != Op.BUCKET)
    small, large = ((np.array([value]),) * 3 for value in (1.0, 2.0))
    assert {op for op, rule in after._COMPARISONS.items() if rule(small, large)[0][0]} == {Op.NE, Op.LT, Op.LE}


def test_kinds_read_as_text() -> None:
    assert f"{Kind.INTEGER} {Op.IS_NULL} {PlanKind.ROWS}" == "integer is_null rows"
