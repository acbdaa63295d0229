"""Which pairs of unit and group DuckDB keeps: those of the plain plan, and never too many."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from discreet import connect, user
from discreet.query.answer import requests
from discreet.query.engines.duckdb import DuckWriter
from discreet.query.engines.writer import Writer

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
