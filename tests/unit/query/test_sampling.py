"""Which pairs of unit and group DuckDB keeps: those of the plain plan, and never too many."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from discreet import connect, user
from discreet.query import Database
from discreet.query.answer import requests
from discreet.query.engines import duckdb as duck
from discreet.query.engines.duckdb import DuckWriter
from discreet.query.engines.request import Request, Term
from discreet.query.engines.writer import Writer
from discreet.query.operations import Kind, Op
from discreet.query.tree import Scalar

ROWS = [(unit, f"g{group}", unit + group) for unit in range(60) for group in range(unit % 7) for _ in range(1 + group % 3)]
t = pa.table(dict(zip(("id", "g", "v"), zip(*ROWS))))


def kept(writer: Writer, groups: int = 2) -> dict[tuple[int, str], tuple[int, ...]]:
    with connect({"t": t}, unit=user("id", rows=8), schema={"t": {"v": {"bounds": [0, 100]}}}) as db:
        priced = db._price("SELECT g, COUNT(*) AS n, SUM(v) AS s FROM t GROUP BY g", 1.0, 1e-6, groups, None, None)
    text = writer.kept_pairs(requests(priced)[0], 12345)
    terms = ", ".join(f"t{i}" for i in range(len(requests(priced)[0].terms)))
    rows = duckdb.sql(f"SELECT u, k0, n, {terms} FROM ({text}) AS kept").fetchall()
    return {(unit, key): tuple(rest) for unit, key, *rest in rows}


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_units_in_few_groups_keep_the_pairs_of_the_plain_plan(groups):
    class Plain(Writer):
        hash = DuckWriter.hash

    found = kept(DuckWriter(), groups)
    assert found == kept(Plain(), groups)
    counts = [sum(unit == it for it, _ in found) for unit in range(60)]
    assert counts == [min(groups, unit % 7) for unit in range(60)]


def test_pairs_with_the_same_hash_are_never_too_many():
    class Same(DuckWriter):
        def hash(self, columns, salt):
            return "CAST(7 AS UBIGINT)"

    found = kept(Same())
    assert max(sum(unit == it for it, _ in found) for unit in range(60)) <= 2
    assert {unit for unit, _ in found} == {unit for unit in range(60) if 0 < unit % 7 <= 2}


def test_every_salt_draws_anew():
    """Of 400 units in 8 groups two are kept; 60 salts give 60 ways, where chance alone gives two of them alike below 1e-100."""
    duckdb.sql("CREATE OR REPLACE TEMP TABLE pairs AS SELECT u, g FROM range(400) AS a(u), range(8) AS b(g)")
    seen = set()
    for salt in range(60):
        place = f"row_number() OVER (PARTITION BY u ORDER BY {DuckWriter().hash(['u', 'g'], (1 << 40) + salt)})"
        kept = f"SELECT list(struct_pack(u, g) ORDER BY u, g) FROM (SELECT u, g FROM pairs QUALIFY {place} <= 2)"
        seen.add(str(duckdb.sql(kept).fetchall()))
    assert len(seen) == 60
    one = "SELECT g, count(*) FROM (SELECT salt, g FROM range(2000) AS s(salt), range(3) AS b(g) QUALIFY {} = 1) GROUP BY g"
    first = f"row_number() OVER (PARTITION BY salt ORDER BY {DuckWriter().hash(['5', 'g'], 0).replace(', 0)', ', salt)')})"
    counts = [count for _, count in duckdb.sql(one.format(first)).fetchall()]
    # Binomial(2000, 1/3) is outside 550..790 with probability below 1e-7, three times
    assert all(550 < count < 790 for count in counts), "each group of one unit alike"


# ---- some units at a time ----------------------------------------------------------------------------------------------

PEOPLE = pa.table({
    "id": [None if i % 31 == 0 else i * i % 67 for i in range(900)],
    "word": [[None, "it's", 'say "A"', "", "日本"][i % 5] for i in range(900)],
    "x": [[0.0, -0.0, math.nan, math.inf, None, 1e300, 2.5][i % 7] for i in range(900)],
    "age": [i % 90 for i in range(900)],
})  # fmt: skip
KINDS = {
    "number": "id + 0.5", "text": "'p' || id", "date": "DATE '2020-01-01' + id::INT", "boolean": "id % 2 = 0",
    "wide": "id * 1e17::HUGEINT",
}  # fmt: skip
QUESTIONS = [
    "SELECT word, COUNT(*) AS n, AVG(age) AS a, VARIANCE(age) AS v FROM people GROUP BY word",
    "SELECT word, age, COUNT(x) AS n, SUM(age) AS s FROM people WHERE age < 60 GROUP BY word, age",
    "SELECT word, x, COUNT(DISTINCT id) AS n, MEDIAN(age) AS m FROM people GROUP BY 1, 2",
    "SELECT floor, AVG(age) AS a, MAX(age) AS h FROM people LEFT JOIN wards USING (word) GROUP BY floor",
    "WITH a AS (SELECT id, age % 7 AS k, x FROM people) SELECT k, COUNT(*) AS n FROM a GROUP BY k",
]
SCHEMA = {"people": {"age": {"bounds": [0, 90]}}, "wards": {"public": True}}
WARDS = pa.table({"word": ["it's", "", "it's"], "floor": [1, 2, 3]})


def sums(db: Database, query: str, size: int, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What leaves the engine for a query, rows in the order of their text; one salt for all."""
    monkeypatch.setattr(duck, "PAIRS", size)
    monkeypatch.setattr(duck.secrets, "randbits", lambda bits: 2**bits // 3)
    asked = requests(db._price(query, 1.0, 1e-6, 3, None, None, bias=True))
    found = [zip(*db.engine.aggregate(request).values()) for request in asked]
    return [sorted(repr([it + 0.0 if isinstance(it, float) else it for it in row]) for row in rows) for rows in found]


def places(tmp_path: Path) -> dict[str, Any]:
    """The same rows in memory, in parquet files and in a database."""
    files = {"people": tmp_path / "people.parquet", "wards": tmp_path / "wards.parquet"}
    for name, table in {"people": PEOPLE, "wards": WARDS}.items():
        pq.write_table(table, files[name], row_group_size=100)
    with duckdb.connect(str(tmp_path / "all.duckdb")) as link:
        for name, path in files.items():
            link.execute(f"CREATE TABLE {name} AS SELECT * FROM read_parquet('{path}')")
    return {"memory": {"people": PEOPLE, "wards": WARDS}, "files": files, "database": tmp_path / "all.duckdb"}


@pytest.mark.parametrize("place", ["memory", "files", "database"])
@pytest.mark.parametrize("query", QUESTIONS)
def test_parts_of_the_units_give_what_all_give_at_once(place, query, tmp_path, monkeypatch):
    with connect(places(tmp_path)[place], unit=user("id", rows=6), schema=SCHEMA) as db:
        with monkeypatch.context() as patch:
            patch.setattr(duck, "_again", lambda *_: False)
            expected = sums(db, query, 1, patch)
        assert any(expected)
        for size in (10**9, 100, 29, 1):
            assert sums(db, query, size, monkeypatch) == expected
        left = db.engine._run("SELECT table_name FROM duckdb_tables() WHERE temporary")
        assert left == [], "nothing of the units is kept"


@pytest.mark.parametrize("kind", KINDS)
def test_units_of_any_kind_go_in_parts(kind, monkeypatch):
    rows = duckdb.sql(f"SELECT * REPLACE ({KINDS[kind]} AS id) FROM PEOPLE").to_arrow_table()
    with connect({"people": rows, "wards": WARDS}, unit=user("id", rows=6), schema=SCHEMA) as db:
        assert sums(db, QUESTIONS[1], 1, monkeypatch) == sums(db, QUESTIONS[1], 10**9, monkeypatch)


def readings(db: Database, query: str, size: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often sums of some units are kept for later."""
    texts = []
    run = db.engine._run
    monkeypatch.setattr(db.engine, "_run", lambda text: (texts.append(text), run(text))[1])
    sums(db, query, size, monkeypatch)
    return sum(duck.SUMS in text and "DROP" not in text for text in texts)


def test_tables_are_not_read_more_often_than_that(monkeypatch):
    """Nor is what is dear to read again: units of units, several private tables."""
    with connect({"people": PEOPLE, "wards": WARDS}, unit=user("id", rows=6), schema=SCHEMA) as db:
        assert readings(db, QUESTIONS[0], 1, monkeypatch) == duck.PARTS
        assert readings(db, QUESTIONS[0], 10**9, monkeypatch) == 0
        gathered = "SELECT n, COUNT(*) AS c FROM (SELECT id, COUNT(*) AS n FROM people GROUP BY id) q GROUP BY n"
        joined = "SELECT a.word, COUNT(*) AS n FROM people a JOIN people b ON a.id = b.id GROUP BY a.word"
        assert readings(db, gathered, 1, monkeypatch) == readings(db, joined, 1, monkeypatch) == 0


def test_how_many_parts_there_are_is_left_to_chance(monkeypatch):
    """Else one unit could decide about a whole reading. Of 24 rounds all alike: 2^-23, at 1.5 times the size."""
    with connect({"people": PEOPLE, "wards": WARDS}, unit=user("id", rows=6), schema=SCHEMA) as db:
        pairs = db.engine._run(f"SELECT sum(pairs) FROM ({db.engine._writer.chances(_request(db))})")[0][0]
        size = round(pairs / 1.5)
        assert {readings(db, QUESTIONS[0], size, monkeypatch) for _ in range(24)} == {0, 2}


def _request(db: Database) -> Request:
    return requests(db._price(QUESTIONS[0], 1.0, 1e-6, 3, None, None))[0]


def test_only_whole_sums_are_cut(monkeypatch):
    """Four units at 2^61 and two at -2^61 make 2^62; the four alone are more than that."""
    huge = Term("sum", Scalar(Op.COLUMN, Kind.NUMBER, value=(0, 1)), 0.0, 1.0, 1 << 61)
    rows = pa.table({"id": [1, 2, 3, 4, 5, 6], "x": [2.0**61] * 4 + [-(2.0**61)] * 2, "g": [0] * 6})
    with connect({"t": rows}, unit=user("id", rows=1), schema={"t": {"x": {"bounds": [0, 1]}}}) as db:
        asked = requests(db._price("SELECT g, SUM(x) AS s FROM t GROUP BY g", 1.0, 1e-6, 1, None, None))[0]
        monkeypatch.setattr(duck, "PAIRS", 1)
        found = db.engine.aggregate(Request(asked.rows, asked.keys, asked.plan, (huge,)))
        assert found == {"k0": (0,), "s0": (1 << 62,), "units": (6,)}
