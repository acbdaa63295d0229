"""How many questions of analysts of other systems private SQL answers: ours of the same kinds, and SmartNoise's own.

    python bench/sql_asked.py [--smartnoise ../smartnoise-sdk] [--out bench/results/sql_asked.json]

Ours are in `_questions.py`, each asked with people and, where it needs no key, with records as units. SmartNoise's are
read from a checkout of opendp/smartnoise-sdk: the different query texts of `sql/tests`, without those that only their
parser sees (`queries/parse`) or must refuse (`*_fail.sql`), and of these the ones with an aggregate, GROUP BY or
DISTINCT, since the others ask for rows. They are asked, word for word, of made-up tables of the same names and columns.
An answer is a table; that answers are right is for `tests/unit/query` to show.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb

import discreet
from _questions import ASKED, REFUSED, SCHEMA, Question, tables
from _record import write
from discreet.errors import DiscreetError
from discreet.query import Database

STATISTIC = re.compile(r"\b(COUNT|SUM|AVG|VAR|STD|STDDEV|VARIANCE)\s*\(|GROUP BY|DISTINCT", re.IGNORECASE)
RUN = re.compile(r"sql/tests/query/queries/(?!parse/)\w+/\w+(?<!_fail)\.sql$")
PEOPLE = (
    "i::INTEGER AS pid, (random() * 90)::INTEGER AS {age}, (random() < 0.5)::INTEGER AS sex, (1 + floor(random() * "
    "15))::INTEGER "
    "AS educ, (1 + floor(random() * 5))::INTEGER AS race, (random() * 200000)::INTEGER AS income, (random() < "
    "0.5)::INTEGER AS married"
)
STORES = "(i % 5000)::INTEGER AS Store, DATE '2020-01-01' + (i % 30)::INTEGER AS Date, random() < 0.1 AS IsHoliday, "
OF_PEOPLE = {"age": (0, 100), "income": (0, 500_000)}
SOURCES: dict[str, tuple[str, str, int, dict[str, tuple[float, float]], dict[str, str]]] = {
    # what their query names -> database, unit, rows of a unit, bounds, tables
    r"telemetry\.": (
        "Devices",
        "DeviceID",
        8,
        {"Temperature": (25, 65), "Crashes": (0, 10)},
        {
            "Telemetry.Crashes": "(i % 5000)::INTEGER AS DeviceID, random() < 0.5 AS Refurbished, 25 + random() * "
            "40 AS Temperature, 'b' || "
            "(i % 12) AS Building, ['LATAM', 'EMEA', 'NA'][1 + i % 3] AS Region, (i % 10)::INTEGER AS Crashes",
            "Telemetry.Census": "i::INTEGER AS DeviceID, 'o' || (i % 5) AS OEM, 'm' || (i % 3) AS Memory, (i % "
            "1000)::INTEGER AS Disk",
            "Telemetry.Rollouts": "i::INTEGER AS DeviceID, (i % 50)::INTEGER AS RolloutID, (i % 2)::INTEGER AS TrialGroup",
        },
    ),
    r"\b(features|sales)\b": (
        "stores",
        "Store",
        8,
        {"Store": (0, 5000), "Temperature": (0, 100), "Fuel_Price": (0, 5), "Weekly_Sales": (0, 9)},
        {
            "main.features": STORES + "(i % 100)::DOUBLE AS Temperature, random() * 5 AS Fuel_Price",
            "main.sales": STORES + "random() * 9 AS Weekly_Sales",
        },
    ),
    r"reddit": ("reddit", "uid", 5, {}, {"reddit.reddit": "(i % 5000)::INTEGER AS uid, 'w' || (i % 50) AS ngram"}),
    r"My-Database": (
        "My-Database",
        "pid",
        1,
        {"person-age": (0, 100)},
        {'"My-Schema"."My-Table"': PEOPLE.format(age='"person-age"')},
    ),
    r"my-table": ("public", "pid", 1, OF_PEOPLE, {'public."my-table"': PEOPLE.format(age="age")}),
    r"": (
        "PUMS",
        "pid",
        1,
        {**OF_PEOPLE, "sales": (0, 100)},
        {
            "PUMS.PUMS": PEOPLE.format(age="age")
            + ", DATE '2020-01-01' + (i % 30)::INTEGER AS start_date, i % 24 AS start_time, random() * 9 AS sales",
            "PUMS.PUMS_null": PEOPLE.format(age="age"),
            "PUMS.PUMS_large": PEOPLE.format(age="age"),
        },
    ),
}


def answered(db: Database, question: Question) -> str:
    """Why a question is refused; nothing where it is answered."""
    try:
        db.sql(question.text, **{"epsilon": 1.0, "delta": 1e-6, **question.options})
    except DiscreetError as error:
        return str(error)
    return ""


def ours() -> dict[str, Any]:
    """By unit and kind: how many are asked and answered."""
    units = {"people": discreet.user("id", rows=4), "records": discreet.record()}
    found: dict[str, Any] = {}
    for name, unit in units.items():
        with discreet.connect(tables(), unit=unit, schema=SCHEMA) as db:
            for kind, questions in ASKED.items():
                asked = [question for question in questions if unit.key or not question.keyed]
                refused = [(question.text, answered(db, question)) for question in asked]
                found[f"{kind}, {name}"] = {"asked": len(asked), "answered": sum(not why for _, why in refused)}
                for text, why in refused:
                    print(f"{text}\n    {why}\n" * bool(why), end="")
            rewrites = [
                (text, answered(db, Question(text)), words)
                for text, words in REFUSED.items()
                if unit.key or words != "GROUP BY id"
            ]
            for text, why, words in rewrites:
                print(f"{text}\n    {why or 'answered'}\n" * (words not in why), end="")
            told = sum(words in why for _, why, words in rewrites)
            found[f"refused with a rewrite, {name}"] = {"asked": len(rewrites), "answered": told}
    return found


def theirs(checkout: Path) -> Iterator[tuple[str, str]]:
    """The different queries of their tests, and the file each is in first."""
    seen = set()
    for path in sorted(checkout.glob("sql/tests/**/*.*")):
        name = path.relative_to(checkout).as_posix()
        for text in _queries(path, name):
            plain = re.sub(r"\s+", " ", text.strip().rstrip(";"))
            if STATISTIC.search(plain) and plain not in seen:
                seen.add(plain)
                yield name, plain


def _queries(path: Path, name: str) -> list[str]:
    if RUN.search(name):
        lines = [line for line in path.read_text().splitlines() if not line.strip().startswith("--")]
        return [text for text in "\n".join(lines).split(";") if text.strip()]
    if path.suffix != ".py" or "/setup/" in name:
        return []
    nodes = list(ast.walk(ast.parse(path.read_text())))
    inside = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    texts = [
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside
    ]
    texts += ["".join(str(part.value) if isinstance(part, ast.Constant) else "PUMS" for part in node.values)
              for node in nodes if isinstance(node, ast.JoinedStr)]  # fmt: skip
    return [text for text in texts if re.match(r"\s*SELECT\s.*\sFROM\s", text, re.IGNORECASE | re.DOTALL)]


def source(folder: Path, made: tuple[str, str, int, Any, dict[str, str]]) -> Database:
    name, key, rows, bounds, parts = made
    path = folder / f"{name}.duckdb"
    with duckdb.connect(str(path)) as link:
        for table, columns in parts.items():
            link.execute(f'CREATE SCHEMA IF NOT EXISTS "{name}".{table.split(".")[0]}')
            link.execute(f'CREATE TABLE "{name}".{table} AS SELECT {columns} FROM range(20000) AS t(i)')
    return discreet.connect(path, unit=discreet.user(key, rows=rows), bounds=bounds)


def smartnoise(checkout: Path) -> dict[str, Any]:
    """How many of their queries are answered, by the file they are in."""
    asked, good = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        opened = {pattern: source(Path(folder), made) for pattern, made in SOURCES.items()}
        for name, text in theirs(checkout):
            named = re.split(r"\bFROM\b", text, maxsplit=1, flags=re.IGNORECASE)[-1]
            db = next(db for pattern, db in opened.items() if re.search(pattern, named, re.IGNORECASE))
            why = answered(db, Question(text))
            asked[name] += 1
            good[name] += not why
            print(f"{text}\n    {why}\n" * bool(why), end="")
        for db in opened.values():
            db.close()
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=checkout, capture_output=True, text=True, check=False
    )
    return {"commit": commit.stdout.strip(), "asked": asked.total(), "answered": good.total(),
            "files": {name: {"asked": asked[name], "answered": good[name]} for name in sorted(asked)}}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smartnoise", type=Path, help="a checkout of opendp/smartnoise-sdk")
    parser.add_argument("--out")
    chosen = parser.parse_args()
    found: dict[str, Any] = {"ours": ours()}
    for kind, counts in found["ours"].items():
        print(f"{counts['answered']:4} of {counts['asked']:4}  {kind}")
    if chosen.smartnoise:
        found["smartnoise"] = smartnoise(chosen.smartnoise)
        print(f"{found['smartnoise']['answered']:4} of {found['smartnoise']['asked']:4}  SmartNoise's")
    write(chosen.out, found, "duckdb", "sqlglot")


if __name__ == "__main__":
    main()
