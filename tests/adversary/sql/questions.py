"""Questions made at random from what private SQL may be asked, of tables `people`, `visits`, `again` and `wards`."""

from __future__ import annotations

from random import Random
from typing import Any

from adversary.sql.worlds import World

STATISTICS = ["COUNT(*) AS n", "COUNT(x) AS k", "SUM(x) AS s", "AVG(x) AS m", "VARIANCE(x) AS v", "MEDIAN(x) AS h",
              "SUM(LEAST(GREATEST(x * x - 1, 0), 9)) AS q", "COUNT_IF(x > 3) AS c", "COUNT(DISTINCT x) AS d",
              "COUNT(DISTINCT g) AS e", "COUNT(DISTINCT (x, g)) AS t", "COUNT(DISTINCT g, x) AS y",
              "COVAR_POP(x, LEAST(x, 5)) AS w", "CORR(x, x * x) AS r"]  # fmt: skip
AFTER = ["", "", "COUNT(*) / SUM(COUNT(*)) OVER () AS after", "CASE WHEN COUNT(*) > 9 THEN ROUND(AVG(x), 1) END AS after",
         "CAST(COUNT(*) AS VARCHAR) AS after", "COUNT(*) > SUM(x) AS after"]  # fmt: skip
LATER = ["", "", " HAVING COUNT(*) + 1 > 3", " ORDER BY COUNT(*) * 2 DESC", " ORDER BY 1 LIMIT 2"]
CONDITIONS = ["", "", "x > 1", "g = 'a'", "g LIKE 'a%'", "x IS NULL OR x < 5", "LENGTH(g) < 3", "EXP(x) > 2", "g < 'b'",
              "CAST(g AS DOUBLE) IS NULL", "x / (x - 3) > 1", "g IN ('A', 'b')", "LOWER(g) = 'a'", "NOT LENGTH(g)"]  # fmt: skip
TUPLES = {("g", "big"): [("a", True), ("a", None), ("b", False)]}
SETS = [
    "ROLLUP (g)",
    "CUBE (g, x > 1)",
    "GROUPING SETS ((g), ())",
    "ROLLUP (UPPER(g), CASE WHEN x > 3 THEN 'hi' ELSE 'lo' END)",
]
GROUPS = [
    "CASE WHEN x > 3 THEN 'hi' WHEN g IS NULL THEN 'none' END",
    "",
    "g",
    "g",
    "UPPER(g)",
    "BUCKET(x, 3)",
    "x > 1",
    "g || 'x'",
    "x / (x - 3)",
    "SQRT(x - 1) * 7919",
    "COALESCE(g, 'none')",
    "CAST(x AS INTEGER) % 2",
    "CAST(g AS DOUBLE)",
    "NULLIF(LENGTH(g), 1)",
    "g IN ('a', 'zz')",
    "CONCAT(LENGTH(g), g)",
    "CASE WHEN g = 'a' THEN 'A' ELSE g END",
]


def first(world: World) -> str:
    """The question that is always asked: counts and sums by group, of all tables joined."""
    return (
        f"SELECT g, COUNT(*) AS n, SUM(x) AS s, COUNT(DISTINCT x) AS d FROM {_rows(world, Random(0), plain=True)[0]} GROUP BY g"
    )


def question(world: World, random: Random) -> tuple[str, int | None, Any]:
    """A question that the tables of a world can be asked, how many groups of a sampled unit count, and public keys."""
    rows, shaped = _rows(world, random)
    statistics = random.sample(STATISTICS, random.randint(1, 3))
    if world.unit.key is not None and random.random() < 0.2:
        statistics.append(f"COUNT(DISTINCT {'a.' if ' a ' in rows else ''}id) AS u")
    condition, group = random.choice(CONDITIONS), random.choice(GROUPS)
    if shaped:
        condition, group = random.choice(["", "x > 1"]), random.choice(["", "g"])
    sampled, where = (
        random.choice([None, 1, 2]) if world.unit.key is not None else None,
        f" WHERE {condition}" * bool(condition),
    )
    kind = random.random()
    if kind < 0.1:
        return f"SELECT DISTINCT {group or 'g'} AS grp FROM {rows}{where}", sampled, None
    if kind < 0.2:
        text = f"SELECT g, x > 1 AS big, {', '.join(statistics)} FROM {rows}{where} GROUP BY 1, 2"
        return text, sampled, TUPLES
    statistics += [random.choice(AFTER)]
    if kind < 0.4 and not shaped:
        text = f"SELECT {', '.join(filter(None, statistics))} FROM {rows}{where} GROUP BY {random.choice(SETS)}"
        return text, sampled, None
    text = f"SELECT {f'{group} AS grp, ' if group else ''}{', '.join(filter(None, statistics))} FROM {rows}{where}"
    text += f" GROUP BY {group}{random.choice(LATER)}" if group else ""
    return text, sampled, None


def _rows(world: World, random: Random, *, plain: bool = False) -> tuple[str, bool]:
    """What stands in FROM, and whether its columns are those of a sub-query."""
    choices = [("people", False)]
    if "visits" in world.tables:
        joined = "(SELECT p.id, p.g, v.cost AS x FROM people p JOIN visits v ON p.id = v.id) j"
        return random.choice([(joined, True), *([] if plain else [(joined.replace("JOIN", "LEFT JOIN"), True)])])
    if "again" in world.tables:
        choices = [("(SELECT g, x FROM people UNION ALL SELECT g, x FROM again) q", True)]
    if "wards" in world.tables:
        choices = [("(SELECT p.g, p.x FROM people p LEFT JOIN wards w ON p.g = w.ward) q", True)]
    if world.unit.key is None and not plain:  # a record in several rows
        parts = ("g, x FROM people", "g, x FROM people WHERE x > 2", "g, x + 1 FROM people")
        choices += [(f"({' UNION ALL '.join(f'SELECT {part}' for part in parts)}) q", True)]
    if world.unit.key is not None and not plain:
        choices += [
            ("(SELECT id, g, SUM(x) / 10 AS x FROM people GROUP BY id, g) q", True),
            ("(SELECT id, g, x FROM people UNION ALL SELECT id, g, x FROM people WHERE x > 2) q", True),
            ("(SELECT a.id, b.g, a.x FROM people a JOIN people b ON a.id = b.id) q", True),
        ]
    return random.choice(choices)
