"""Questions of the kinds that the test suites of SmartNoise and Tumult Analytics ask, over made-up tables, by kind.

Each has the options of `Database.sql` that it needs. `REFUSED` has what cannot be answered, and words of the rewrite
that is told.
"""

from __future__ import annotations

from datetime import date
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa


class Question(NamedTuple):
    """A query, and what else it is asked with."""

    text: str
    options: dict[str, Any] = {}  # noqa: RUF012
    keyed: bool = False  # it needs to know whose row each is


ROWS, PEOPLE = 8_000, 4_000
DAYS = [date(2026, 1, 1), date(2026, 1, 2)]
SCHEMA: dict[str, Any] = {
    "people": {
        "age": {"bounds": [0, 100]},
        "income": {"bounds": [0, 200_000]},
        "educ": {"bounds": [0, 16]},
        "score": {"bounds": [0, 3]},
    },
    "visits": {"cost": {"bounds": [0, 500]}},
    "wards": {"public": True, "unique": ["ward"]},
    "doctors": {"public": True, "unique": ["ward"], "repeats": 2},
    "days": {"public": True, "unique": ["score"]},
}


def tables() -> dict[str, pa.Table]:
    draw = np.random.default_rng(17)
    people = {
        "id": np.arange(ROWS) % PEOPLE,
        "age": draw.integers(0, 95, ROWS),
        "sex": draw.integers(0, 2, ROWS),
        "educ": draw.integers(1, 17, ROWS),
        "income": draw.uniform(0, 150_000, ROWS),
        "smoker": draw.random(ROWS) < 0.3,
        "ward": draw.choice(["A", "B", "C"], ROWS),
        "score": draw.integers(0, 4, ROWS),
    }
    visits = {
        "id": draw.integers(0, PEOPLE, ROWS),
        "cost": draw.uniform(0, 500, ROWS),
        "kind": draw.choice(["in", "out"], ROWS),
    }
    return {
        "people": pa.table(people),
        "visits": pa.table(visits),
        "wards": pa.table({"ward": ["A", "B", "C"], "floor": [1, 2, 2]}),
        "doctors": pa.table({"ward": ["A", "A", "B", "B"], "doctor": ["Abe", "Bea", "Bea", "Cal"]}),
        "days": pa.table({"score": [0, 1, 2, 3], "day": [DAYS[0], DAYS[0], DAYS[1], DAYS[1]]}),
    }


def _plain(*texts: str) -> list[Question]:
    return [Question(text) for text in texts]


WARDS, GRID = {"ward": ["A", "B", "Z"]}, {"ward": ["A", "B"], "sex": [0, 1]}
TUPLES = {("ward", "sex"): [("A", 0), ("A", 1), ("B", 1)]}
ROW = "(ward, sex, score)"
TWICE = "(SELECT ward, score FROM people UNION ALL SELECT ward, score FROM people)"
MORE = (
    "(SELECT ward, score, CASE WHEN ward = 'A' THEN 1 ELSE 2 END AS times FROM people UNION ALL "
    "SELECT ward, score, CASE WHEN ward = 'A' THEN 1 ELSE 2 END AS times FROM people WHERE ward <> 'A')"
)
TEXTS = "(SELECT ward, CAST(sex AS VARCHAR) || CAST(sex AS VARCHAR) AS both FROM people)"

ASKED: dict[str, list[Question]] = {
    "counts and sums": _plain(
        "SELECT COUNT(*) AS n FROM people",
        "SELECT COUNT(age), COUNT(*) FROM people",
        "SELECT SUM(age) FROM people",
        "SELECT COUNT(age) AS a, COUNT(ward) AS w, COUNT(*) AS c FROM people",
        "SELECT (SUM(age)) AS age FROM people",
        "SELECT SUM(age), SUM(age), COUNT(ward) FROM people GROUP BY sex",
        "SELECT COUNT(*) * 5 AS c FROM people",
        "SELECT COUNT(DISTINCT id) AS n, COUNT(*) AS m FROM people",
        "SELECT SUM(income) FROM people WHERE age > 70 AND educ < 2",
        "SELECT COUNT(*) FROM people WHERE age > 90 AND educ = '8'",
        "SELECT SUM(income) FROM people WHERE smoker = TRUE",
        "SELECT COUNT(*) FROM people WHERE ward IN ('A', 'B')",
        "SELECT ALL COUNT(*) FROM people",
    ),
    "other statistics": _plain(
        "SELECT AVG(age) + 3, STD(age), VAR(age), SUM(age) / 10, COUNT(age) + 2 FROM people",
        "SELECT VARIANCE(age) FROM people",
        "SELECT (VAR(age)) AS v, ward FROM people GROUP BY ward",
        "SELECT STDDEV(income) FROM people",
        "SELECT CORR(age, income), COVAR_POP(age, income), COVAR_SAMP(age, income) FROM people",
        "SELECT MEDIAN(age) FROM people",
        "SELECT MIN(age), MAX(age), QUANTILE(age, [0.1, 0.9]) FROM people",
        "SELECT AVG(age * 2 + educ) FROM people",
        "SELECT PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY income) FROM people",
        "SELECT SUM(CASE WHEN age > 90 THEN 1 ELSE 0 END) FROM people",
        "SELECT SUM(score) FILTER (WHERE smoker) FROM people",
    ),
    "groups": _plain(
        "SELECT educ FROM people GROUP BY educ",
        "SELECT DISTINCT ward FROM people",
        "SELECT 3 AS three, ward, AVG(age) FROM people GROUP BY ward",
        "SELECT p.ward, AVG(age) AS a FROM people AS p GROUP BY ward",
        "SELECT SUM(age) FROM people GROUP BY sex, CASE WHEN age > 90 THEN 1 ELSE 0 END",
        "SELECT sex AS educ, educ AS sex, COUNT(*) AS n FROM people GROUP BY sex, educ",
        "SELECT age * 10 AS a, COUNT(*) FROM people GROUP BY age * 10",
        "SELECT ward, COUNT(*) AS n FROM people GROUP BY ALL",
        "SELECT ward, smoker, COUNT(*) FROM people GROUP BY 1, 2",
        "SELECT UPPER(ward) AS w, COUNT(*) FROM people GROUP BY w",
        "SELECT DISTINCT ward, sex FROM people",
        "SELECT ward, smoker, COUNT(*) FROM people GROUP BY ROLLUP (ward, smoker)",
        "SELECT ward, sex, COUNT(*) FROM people GROUP BY CUBE (ward, sex)",
        "SELECT ward, sex, GROUPING(sex), SUM(age) FROM people GROUP BY GROUPING SETS ((ward), (sex), ())",
        "SELECT BUCKET(income, 8) AS b, COUNT(*) FROM people GROUP BY 1",
    ),
    "after the noise": _plain(
        "SELECT ward, COUNT(*) AS n FROM people GROUP BY ward HAVING COUNT(*) > 50",
        "SELECT educ, COUNT(*) FROM people GROUP BY educ HAVING (COUNT(*) / CAST(educ AS INTEGER)) > 5",
        "SELECT age, COUNT(*) AS n FROM people GROUP BY age HAVING (age < 30 OR age > 60) AND n * 100 / 2 > 500",
        "SELECT age, sex, COUNT(*) AS n, SUM(income) AS income FROM people GROUP BY age, sex HAVING NOT (sex = "
        "TRUE) ORDER BY income, sex DESC LIMIT 10",
        "SELECT age, sex, COUNT(*) AS n FROM people GROUP BY age, sex HAVING sex",
        "SELECT age, sex, COUNT(*) AS n FROM people GROUP BY age, sex HAVING n > 10 OR NOT sex",
        "SELECT sex AS gender, educ FROM people GROUP BY sex, educ ORDER BY (CAST(gender AS INTEGER) * -1) DESC, educ ASC",
        "SELECT educ, COUNT(DISTINCT id) AS n FROM people GROUP BY educ ORDER BY COUNT(id) DESC",
        "SELECT ward, POWER(COUNT(*) / 100, 2) AS n FROM people GROUP BY ward",
        "SELECT SQRT(AVG(educ * educ) - AVG(educ) * AVG(educ)) FROM people",
        "SELECT PI(), POWER(AVG(age), 2) FROM people",
        "SELECT LN(COUNT(*)), CEIL(COUNT(*)), LOG2(COUNT(*)) FROM people",
        "SELECT ward, GREATEST(COUNT(*), 0) AS n, CASE WHEN AVG(age) > 50 THEN 'old' ELSE 'young' END FROM people "
        "GROUP BY ward",
        "SELECT ward, COUNT(*) / SUM(COUNT(*)) OVER () AS share FROM people GROUP BY ward ORDER BY share DESC",
        "SELECT ward, CAST(AVG(age) AS INTEGER) AS a FROM people GROUP BY ward ORDER BY UPPER(ward)",
    ),
    "the first rows": _plain(
        "SELECT TOP 2 ward, COUNT(*) AS n FROM people GROUP BY ward ORDER BY n DESC",
        "SELECT ward, COUNT(*) AS n FROM people GROUP BY ward LIMIT 2",
        "SELECT ward, AVG(income) FROM people GROUP BY ward ORDER BY 2 FETCH FIRST 2 ROWS ONLY",
        "SELECT TOP 1 ward, AVG(income) FROM people GROUP BY ward",
        "SELECT TOP (2) ward, COUNT(*) AS n FROM people GROUP BY ward ORDER BY n DESC",
        "SELECT ward, COUNT(*) AS n FROM people GROUP BY (ward) ORDER BY n DESC LIMIT 1 OFFSET 1",
    ),
    "names": _plain(
        "SELECT COUNT(*) FROM main.people",
        "SELECT COUNT(*) FROM memory.main.people",
        'SELECT SUM("age") FROM "people"',
        "SELECT SUM(`age`) FROM `people`",
        "SELECT SUM([age]) FROM [people]",
        "SELECT SUM(people.age) FROM people",
        "SELECT SUM(p.age) FROM (people) AS p",
        "SELECT COUNT(*) FROM (((people)))",
        "SELECT SUM(age) FROM (SELECT * FROM (SELECT age, ward FROM people))",
        "SELECT COUNT(*) FROM PEOPLE",
        "WITH old AS (SELECT age, ward FROM people WHERE age > 60) SELECT ward, AVG(age) FROM old GROUP BY ward",
    ),
    "joins of private tables": [
        Question(text, keyed=True)
        for text in (
            "SELECT kind, AVG(age) FROM people JOIN visits USING (id) GROUP BY kind ORDER BY kind",
            "SELECT kind, COUNT(*) AS n, SUM(cost) FROM (SELECT v.*, p.ward FROM visits AS v JOIN (SELECT id, ward "
            "FROM people) AS p USING (id)) AS z GROUP BY kind",
            "SELECT COUNT(people.id) FROM people JOIN visits ON people.id = visits.id",
            "SELECT SUM(cost) FROM (people JOIN visits USING (id))",
            "SELECT ward, AVG(cost) FROM people LEFT JOIN visits USING (id) GROUP BY ward",
            "SELECT ward, COUNT(*) FROM people JOIN (SELECT id, CASE WHEN cost > 9 THEN 1 ELSE 2 END AS c FROM "
            "visits) AS v USING (id) GROUP BY ward",
            "SELECT AVG(LEAST(n, 4)) FROM (SELECT id, COUNT(*) AS n FROM visits GROUP BY id)",
            "SELECT kind, SUM(LEAST(GREATEST(s, 0), 900)) FROM (SELECT id, kind, SUM(cost) AS s FROM visits GROUP "
            "BY id, kind) GROUP BY kind",
        )
    ],
    "public groups, without a delta": [
        Question("SELECT ward, COUNT(*) FROM people GROUP BY ward", {"keys": WARDS}),
        Question("SELECT ward, sex, COUNT(*) FROM people GROUP BY ward, sex", {"keys": GRID}),
        Question("SELECT ward, sex, COUNT(*) FROM people GROUP BY ward, sex", {"keys": TUPLES}),
        Question("SELECT ward, sex, MEDIAN(income) FROM people WHERE sex = 1 GROUP BY ward, sex", {"keys": TUPLES}),
        Question("SELECT ward, sex, AVG(income) FROM people WHERE sex = 1 GROUP BY ward, sex", {"keys": TUPLES}),
        Question("SELECT ward, SUM(LEAST(GREATEST(score, 0), 1)) AS s FROM people GROUP BY ward", {"keys": WARDS}),
        Question(
            f"SELECT ward, both, COUNT(*) FROM {TEXTS} AS t GROUP BY ward, both",
            {"keys": {"ward": ["A", "B"], "both": ["00", "11"]}},
        ),
        Question("SELECT smoker, COUNT(*) FROM people GROUP BY smoker"),
        Question("SELECT CASE WHEN age > 64 THEN 'old' ELSE 'young' END AS a, COUNT(*) FROM people GROUP BY 1"),
        Question("SELECT ward, COUNT(*) AS n FROM people GROUP BY ward HAVING n >= 1", {"keys": WARDS}),
        Question("SELECT ward, STDDEV(score) FROM people GROUP BY ward", {"keys": WARDS}),
        Question("WITH t AS (SELECT ward AS w FROM people) SELECT w, COUNT(*) FROM t GROUP BY w", {"keys": {"w": ["A", "B"]}}),
        Question(
            "SELECT w, COUNT(*) FROM (SELECT 'x' AS w, age FROM people UNION ALL SELECT 'y' AS w, age FROM people) "
            "AS t GROUP BY w",
            {"keys": {"w": ["x", "y"]}},
        ),
        Question("SELECT LOWER(ward) AS l, COUNT(*) FROM people GROUP BY 1", {"keys": {"l": ["a", "b", None]}}),
    ],
    "different values": [
        Question("SELECT COUNT(DISTINCT age) FROM people"),
        Question(f"SELECT COUNT(DISTINCT {ROW}) AS n FROM people"),
        Question(f"SELECT COUNT(DISTINCT {ROW}) AS n FROM people WHERE ward = 'A'"),
        Question(f"SELECT ward, sex, COUNT(DISTINCT {ROW}) FROM people GROUP BY ward, sex", {"keys": GRID}),
        Question(f"SELECT ward, sex, COUNT(DISTINCT {ROW}) FROM people GROUP BY ward, sex", {"keys": TUPLES}),
        Question(f"SELECT ward, COUNT(DISTINCT {ROW}) FROM people GROUP BY ward", {"keys": WARDS}),
        Question("SELECT COUNT(DISTINCT ward) FROM (SELECT ward FROM people) AS s"),
        Question("SELECT COUNT(DISTINCT ward, sex) FROM people"),
        Question("SELECT ward, COUNT(DISTINCT age) FROM people GROUP BY ward"),
        Question("SELECT COUNT(DISTINCT day) FROM people JOIN days USING (score)"),
        Question(
            f"SELECT ward, both, COUNT(DISTINCT (ward, both)) FROM {TEXTS} AS t GROUP BY ward, both",
            {"keys": {"ward": ["A", "B"], "both": ["00", "11"]}},
        ),
    ],
    "several rows of one": [
        Question(f"SELECT SUM(score) FROM {TWICE} AS t"),
        Question(f"SELECT SUM(score) FROM {MORE} AS t"),
        Question(f"SELECT times, SUM(score) FROM {MORE} AS t GROUP BY times", {"keys": {"times": [1, 2]}}),
        Question(f"SELECT times, SUM(score) FROM {MORE} AS t GROUP BY times", {"keys": {"times": [1, 2]}, "noise": "laplace"}),
        Question(
            "SELECT DISTINCT ward, c FROM (SELECT ward, '0' AS c FROM people UNION ALL SELECT ward, '1' AS c FROM people) AS t"
        ),
        Question(
            "SELECT ward, COUNT(*) FROM (SELECT ward FROM people UNION ALL SELECT UPPER(ward) AS ward FROM people) "
            "AS t GROUP BY ward",
            {"keys": WARDS},
        ),
    ],
    "bins": [
        Question("SELECT CASE WHEN score < 2 THEN '0,1' WHEN score < 4 THEN '2,3' END AS b, COUNT(*) FROM people GROUP BY b"),
        Question("SELECT BUCKET(age, 10) AS b, COUNT(*) FROM people GROUP BY b"),
        Question(
            "SELECT b, COUNT(*) FROM (SELECT CASE WHEN score < 2 THEN 0 ELSE 1 END AS b FROM people) AS t GROUP BY b",
            {"keys": {"b": [0, 1]}},
        ),
        Question(
            "SELECT CASE WHEN s > 9 THEN 'high' END AS b, COUNT(*) FROM (SELECT NULLIF(score, 3) AS s FROM people) "
            "AS t GROUP BY 1",
            {"keys": {"b": ["high", None]}},
        ),
    ],
    "joins with public tables": [
        Question("SELECT floor, COUNT(*) FROM people JOIN wards USING (ward) GROUP BY floor", {"keys": {"floor": [1, 2, 3]}}),
        Question("SELECT floor, AVG(age) FROM people LEFT JOIN wards ON people.ward = wards.ward GROUP BY floor"),
        Question(
            "SELECT doctor, COUNT(*) FROM people JOIN doctors USING (ward) GROUP BY doctor",
            {"keys": {"doctor": ["Abe", "Bea"]}},
        ),
        Question("SELECT doctor, COUNT(*) FROM people LEFT JOIN doctors USING (ward) GROUP BY doctor"),
        Question(
            "SELECT doctor, COUNT(DISTINCT (people.ward, sex, doctor)) FROM people JOIN doctors USING (ward) GROUP BY doctor"
        ),
        Question("SELECT day, COUNT(*) FROM people JOIN days USING (score) GROUP BY day", {"keys": {"day": DAYS}}),
        Question(
            "SELECT a.doctor AS d, b.doctor AS e, c.doctor AS f, COUNT(*) FROM people p JOIN doctors a ON p.ward = "
            "a.ward JOIN doctors b ON p.ward = b.ward JOIN doctors c ON p.ward = c.ward GROUP BY 1, 2, 3"
        ),
    ],
    "noise and intervals": [
        Question("SELECT COUNT(*) FROM people", {"noise": "gaussian"}),
        Question("SELECT ward, STDDEV(score) FROM people GROUP BY ward", {"noise": "gaussian", "keys": WARDS}),
        Question("SELECT AVG(score) FROM people", {"noise": "gaussian"}),
        Question("SELECT COUNT(*) FROM people", {"noise": "laplace"}),
        Question("SELECT COUNT(*), AVG(age) FROM people", {"confidence": 0.99}),
    ],
}

REFUSED = {
    "SELECT * FROM people": "Ask for statistics",
    "SELECT age FROM people WHERE age > 90": "AVG",
    "SELECT SUM(c) FROM (SELECT AVG(age) AS c FROM people GROUP BY ward)": "GROUP BY id",
    "SELECT ward, AVG(cost) FROM people, visits GROUP BY ward": "ON a.key",
    "SELECT RANDOM(), COUNT(*) FROM people": "Leave it out",
    "SELECT educ FROM people GROUP BY educ ORDER BY sex": "Add it to GROUP BY",
    "SELECT COUNT(*) FROM (SELECT DISTINCT ward, sex FROM people)": "COUNT(DISTINCT (",
    "SELECT SUM(age) FROM people ORDER BY RANK() OVER ()": "ORDER BY",
    "SELECT COUNT(*) FROM people WHERE id IN (SELECT id FROM visits)": "JOIN",
    "SELECT ward, COUNT(*) FROM people GROUP BY ward UNION ALL SELECT ward, COUNT(*) FROM people GROUP BY ward": "one SELECT",
    "SELECT SUM(SUM(age)) FROM people": "sub-query",
}

ASKED["public groups, without a delta"] = [
    question._replace(options={**question.options, "delta": None}) for question in ASKED["public groups, without a delta"]
]
