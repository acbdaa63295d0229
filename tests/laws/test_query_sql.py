"""Laws of private SQL: parts of epsilon never exceed it, no text does harm, and no value makes an engine fail."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from discreet import Ledger, connect, record, user
from discreet.accounting import curve
from discreet.errors import DiscreetError, EngineFailed
from discreet.query import Database
from discreet.query.mechanism import SqlQuery
from discreet.query.split import GRAIN, split

EPSILONS = st.floats(1e-6, 100, allow_nan=False) | st.sampled_from([1e-6, 0.1, 0.3, 1.0, math.nextafter(1, 2), 100.0])
PLANS = ("rows", "weighted", "registered", "sampled")
MOMENT = datetime.datetime
ROWS: list[tuple[Any, ...]] = [  # id, whole, number, text, flag, day, moment
    (1, 2**63 - 1, 1.7e308, "", True, datetime.date.max, MOMENT.max),
    (1, -(2**63), -1.7e308, "it's", False, datetime.date.min, MOMENT.min),
    (1, 0, math.nan, "\U0001f600 e\u0301", None, datetime.date(2024, 2, 29), MOMENT(2024, 2, 29, 23, 59, 59, 999_999)),
    (2, -1, math.inf, "9" * 400, True, datetime.date(1970, 1, 1), MOMENT(1970, 1, 1)),
    (2, 1, -math.inf, "1e999", False, None, None),
    (3, None, None, None, None, None, None),
    (None, 5, 5e-324, "%_\\", True, datetime.date(1969, 12, 31), MOMENT(1969, 12, 31)),
    (4, 7, -0.0, "null", False, datetime.date(2000, 1, 1), MOMENT(2000, 1, 1, 12)),
    *((i, i, i / 3, "abc"[i % 3], i % 2 == 0, datetime.date(2024, 1, 1 + i), MOMENT(2024, 1, 1 + i)) for i in range(5, 25)),
]
NAMES = ("id", "i", "x", "s", "f", "d", "m")
TYPES = (pa.int64(), pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.date32(), pa.timestamp("us"))
TABLE = pa.table({name: pa.array(column, kind, from_pandas=False) for name, kind, column in zip(NAMES, TYPES, zip(*ROWS))})
SCHEMA = {"t": {"i": {"bounds": [-10, 10]}, "x": {"bounds": [-1.5, 2.5]}, "s": {"values": ["", "a", "b", None]}},
          "wards": {"public": True}}  # fmt: skip
TABLES = {"t": TABLE, "wards": pa.table({"w": ["a", "a", "b", None], "floor": [1, 2, 3, 4]})}


def opened(plan: str) -> Database:
    db = connect(TABLES, unit=record() if plan == "rows" else user("id", rows=3), schema=SCHEMA)
    return db.register() if plan == "registered" else db


@pytest.fixture(scope="module")
def sources() -> Iterator[dict[str, Database]]:
    made = {plan: opened(plan) for plan in PLANS}
    yield made
    for db in made.values():
        db.close()


# ---- epsilon -----------------------------------------------------------------------------------------------------------


@given(st.data(), EPSILONS, st.integers(1, 40))
def test_parts_of_epsilon_are_positive_and_never_exceed_it(data: st.DataObject, epsilon: float, count: int) -> None:
    need = st.dictionaries(st.integers(0, count - 1), st.floats(1e-6, 1e6), min_size=1, max_size=6)
    spare = data.draw(st.integers(0, 20))
    parts = split(epsilon, data.draw(st.lists(need, max_size=12)), count, spare)
    assert len(parts) == count
    assert all(part > 0 for part in parts)
    written, whole = Fraction(repr(epsilon)), sum(map(Fraction, parts))
    assert whole <= written
    assert written - whole < (spare + 1) * GRAIN + Fraction(1, 10**15), "and nothing is left over"


STATISTICS = [
    "COUNT(*)", "COUNT(x)", "COUNT_IF(i > 2)", "SUM(i)", "SUM(x)", "AVG(x)", "AVG(i)", "VARIANCE(x)", "STDDEV(i)", "MEDIAN(x)",
    "QUANTILE(i, 0.9)", "MIN(x)", "MAX(i)", "SUM(x * i)", "AVG(x) FILTER (WHERE f)",
]  # fmt: skip
CHOSEN = st.lists(st.sampled_from(STATISTICS), min_size=1, max_size=6, unique=True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(PLANS), CHOSEN, EPSILONS, st.booleans(), st.booleans(), st.floats(0.01, 100))
def test_the_claim_never_exceeds_epsilon(
    sources: dict[str, Database], plan: str, chosen: list[str], epsilon: float, grouped: bool, bias: bool, weight: float
) -> None:
    query = f"SELECT {', '.join(f'{it} AS c{i}' for i, it in enumerate(chosen))} FROM t{' GROUP BY s' if grouped else ''}"
    groups = 2 if plan == "sampled" else None
    try:
        priced = sources[plan]._price(query, epsilon, None, groups, None, {"c0": weight}, bias)
    except DiscreetError as error:
        told = str(error)
        assert "64 bits" in told or "too little" in told or "no bias" in told or "larger" in told
        return
    assert sum(map(Fraction, priced.epsilons)) <= Fraction(repr(epsilon))
    claimed = curve(SqlQuery(sources[plan].unit, priced).claims()[0].event).epsilon(0.0)
    spare = 3 * sum(len(measure.ranks) for measure in priced.measures) * float(GRAIN)  # each part of a quantile is rounded up
    assert 0.99 * epsilon - spare < claimed <= epsilon * (1 + 1e-9)


# ---- any text ----------------------------------------------------------------------------------------------------------

WORDS = [
    "SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "JOIN", "LEFT JOIN", "ON", "USING", "UNION ALL",
    "WITH", "AS", "AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS NULL", "CASE WHEN", "THEN", "ELSE", "END", "CAST(",
    "COUNT(*)", "COUNT(", "SUM(", "AVG(", "MEDIAN(", "QUANTILE(", "BUCKET(", "DISTINCT", "FILTER (WHERE", "OVER (", "t",
    "wards", "id", "i", "x", "s", "f", "d", "m", "n", "q", "w", "(", ")", ",", "*", "+", "-", "/", "%", "//", "=", "<>", "<",
    ">", "||", "::", "1", "0", "-1", "0.5", "1e999", "1e-999", "99999999999999999999", "'a'", "'2024-01-01'",
    "DATE '2024-01-01'", "NULL", "TRUE", ";", "--", "/*", "[", "]", "{", "}", "$1", "?", ".", "t.i", '"t"',
    "EXTRACT(YEAR FROM d)", "DATE_TRUNC('day', m)", "ROUND(", "COALESCE(", "INTERVAL 1 DAY", "DESC", "ALL", "x'00'", "0x1F",
]  # fmt: skip
SOUP = st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join)
HALF = st.tuples(SOUP, st.sampled_from(["", " FROM t", " FROM t GROUP BY s", " FROM t WHERE f"])).map(
    lambda parts: f"SELECT {parts[0]}{parts[1]}"
)
VALID = [
    "SELECT s , COUNT(*) AS n , AVG(x) AS a FROM t WHERE i > 2 AND f GROUP BY s HAVING n > 3 ORDER BY a DESC LIMIT 5",
    "SELECT d , SUM(i) / COUNT(x) AS r , MEDIAN(x) AS h FROM t GROUP BY d HAVING d > '2024-01-01' OR r < 0.5 ORDER BY 1",
    "WITH q AS ( SELECT id , MAX(x) AS y FROM t GROUP BY id ) SELECT COUNT(*) AS n , COUNT(y) AS k FROM q WHERE y > 0",
    "SELECT BUCKET( i , 5 ) AS b , ROUND( AVG(x) , 2 ) AS a , - b AS c FROM t JOIN wards ON s = w GROUP BY b , s ORDER BY - b",
    "SELECT COUNT(*) AS n , QUANTILE( x , [0.1, 0.5] ) AS p , 'a' AS l FROM ( SELECT * FROM t UNION ALL SELECT * FROM t ) AS q",
]
CHANGE = st.tuples(st.integers(0, 60), st.integers(0, 2), st.sampled_from(WORDS))


def changed(text: str, changes: list[tuple[int, int, str]]) -> str:
    """A query with some words left out, put in or replaced."""
    words = text.split(" ")
    for place, kept, word in changes:
        at = place % len(words)
        words[at : at + kept] = [word] if place % 3 else []
    return " ".join(words)


NEARLY = st.builds(changed, st.sampled_from(VALID), st.lists(CHANGE, max_size=3))
TEXTS = st.text(max_size=200) | SOUP | HALF | NEARLY


@pytest.fixture(scope="module")
def charged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Database, Ledger]]:
    unit = user("id", rows=3)
    with Ledger(tmp_path_factory.mktemp("laws") / "ledger.db") as ledger:
        ledger.open("t", unit=unit, epsilon=50.0, delta=1e-2, failure=5e-3)
        with connect(TABLES, unit=unit, schema=SCHEMA, ledger=ledger, source="t") as db:
            yield db, ledger


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TEXTS)
def test_text_that_is_refused_spends_nothing(charged: tuple[Database, Ledger], text: str) -> None:
    db, ledger = charged
    before = ledger.spent("t")
    try:
        db.explain(text, epsilon=1e-3, delta=1e-9)
    except EngineFailed:
        raise
    except DiscreetError as error:
        assert len(str(error)) < 2_000  # noqa: PT017
        with pytest.raises(type(error)):
            db.sql(text, epsilon=1e-3, delta=1e-9)
        assert ledger.spent("t") == before
        return
    assert ledger.spent("t") == before, "to explain is free"
    db.sql(text, epsilon=1e-3, delta=1e-9)
    assert ledger.spent("t") >= before


# ---- any valid query ---------------------------------------------------------------------------------------------------


def _grammar() -> tuple[st.SearchStrategy[str], st.SearchStrategy[str], st.SearchStrategy[str]]:
    """Numbers, truth values and texts over one row."""
    leaves = st.sampled_from(["i", "x", "id", "0", "1", "-7", "2.5", "1e14", "999999999999999", "LENGTH(s)",
                              "EXTRACT(YEAR FROM d)",
                              "EXTRACT(HOUR FROM m)", "CAST(s AS DOUBLE)", "CAST(s AS BIGINT)", "f"])  # fmt: skip
    words = st.sampled_from(["s", "'a'", "LOWER(s)", "UPPER(s)", "TRIM(s)", "SUBSTRING(s, 2, 3)", "LEFT(s, 1)", "s || s || s",
                             "CAST(x AS VARCHAR)", "CAST(i AS VARCHAR)", "CAST(d AS VARCHAR)", "COALESCE(s, 'z')",
                             "NULLIF(s, '')"])  # fmt: skip

    def wider(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        two = st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "%", "//"]), inner).map(
            lambda it: f"({it[0]} {it[1]} {it[2]})"
        )
        calls = ["ABS", "FLOOR", "CEIL", "SIGN", "SQRT", "LN", "EXP", "ROUND"]
        one = st.tuples(st.sampled_from(calls), inner).map(lambda it: f"{it[0]}({it[1]})")
        power = st.tuples(inner, st.sampled_from(["2", "0.5", "-3", "x", "400"])).map(lambda it: f"POWER({it[0]}, {it[1]})")
        both = st.tuples(st.sampled_from(["LEAST", "GREATEST", "COALESCE", "NULLIF"]), inner, inner)
        case = st.tuples(inner, inner, inner).map(lambda it: f"CASE WHEN {it[0]} > {it[1]} THEN {it[2]} END")
        casts = st.tuples(inner, st.sampled_from(["BIGINT", "DOUBLE", "INTEGER"])).map(lambda it: f"CAST({it[0]} AS {it[1]})")
        digits = inner.map(lambda it: f"ROUND({it}, 3)")
        pairs = both.map(lambda it: f"{it[0]}({it[1]}, {it[2]})")
        return two | one | power | pairs | case | casts | digits | inner.map("-({})".format)

    numbers = st.recursive(leaves, wider, max_leaves=6)
    compared = st.tuples(numbers, st.sampled_from(["<", "<=", "=", "<>", ">=", ">"]), numbers).map(" ".join)
    simple = st.sampled_from(["f", "s LIKE '%a'", "s IN ('a', 'b')", "x IS NULL", "d > '2024-01-05'",
                              "m <= '2024-01-05'", "NOT f", "CAST(s AS DATE) IS NULL", "i BETWEEN -5 AND 5",
                              "DATE_TRUNC('month', m) = m"])  # fmt: skip
    truths = st.lists(compared | simple, min_size=1, max_size=3).map(lambda parts: "(" + " OR ".join(parts) + ")")
    return numbers, truths, words


NUMBERS, TRUTHS, TEXT = _grammar()
CLIPPED = NUMBERS.map("LEAST(GREATEST({}, -3), 7)".format)
BOUNDED = st.sampled_from(["SUM({})", "AVG({})", "VARIANCE({})", "STDDEV({})", "MEDIAN({})", "MIN({})", "QUANTILE({}, 0.25)"])
ASKED = (
    st.just("COUNT(*)")
    | TRUTHS.map("COUNT_IF({})".format)
    | TEXT.map("COUNT({})".format)
    | st.tuples(BOUNDED, CLIPPED).map(lambda it: it[0].format(it[1]))
    | st.tuples(BOUNDED, TRUTHS).map(lambda it: it[0].format("x") + f" FILTER (WHERE {it[1]})")
)
KEYS = (
    st.sampled_from(["s", "f", "d", "DATE_TRUNC('quarter', m)", "BUCKET(i, 5)", "EXTRACT(MONTH FROM d)", "x", "i"])
    | TEXT
    | NUMBERS
)
SOURCES = st.sampled_from([
    "t", "(SELECT * FROM t WHERE f) q", "(SELECT * FROM t UNION ALL SELECT * FROM t) q", "t JOIN wards ON s = w",
    "(SELECT a.* FROM t a JOIN t b ON a.id = b.id AND a.i < b.i) q",
    "(SELECT id, SUM(x) AS x, MAX(i) AS i, MIN(s) AS s0, s, f, d, m FROM t GROUP BY id, s, f, d, m) q",
])  # fmt: skip


@st.composite
def queries(draw: st.DrawFn) -> tuple[str, bool]:
    columns = [f"{it} AS c{i}" for i, it in enumerate(draw(st.lists(ASKED, min_size=1, max_size=3)))]
    keys = [f"{it} AS k{i}" for i, it in enumerate(draw(st.lists(KEYS, max_size=2)))]
    source = draw(SOURCES)
    text = f"SELECT {', '.join([*keys, *columns])} FROM {source}"
    if draw(st.booleans()):
        text += f" WHERE {draw(TRUTHS)}"
    return text + (f" GROUP BY {', '.join(str(i + 1) for i in range(len(keys)))}" if keys else ""), draw(st.booleans())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(st.sampled_from(PLANS), queries())
def test_no_value_makes_the_engine_fail(sources: dict[str, Database], plan: str, query: tuple[str, bool]) -> None:
    groups = 2 if plan == "sampled" else None
    text, bias = query
    try:
        answer = sources[plan].sql(text, epsilon=1.0, delta=1e-3, groups=groups, bias=bias)
    except EngineFailed as error:
        raise AssertionError(f"{text} failed: {error.__cause__}") from error
    except DiscreetError:
        return  # outside the subset, in its place
    for name in answer.value.column_names:
        if name.startswith("c") and not name.endswith(("_low", "_high")):
            low, value, high = (answer.value[name + end].to_pylist() for end in ("_low", "", "_high"))
            assert all(not a > b and not b > c for a, b, c in zip(low, value, high)), text
