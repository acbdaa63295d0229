"""How many of the test queries of other private SQL systems private SQL answers: those of SmartNoise and of Tumult Analytics.

    python bench/sql_coverage.py --smartnoise CHECKOUT --tumult CHECKOUT [--show] [--out bench/results/sql_coverage.json]

Both suites are public; CHECKOUT is a folder with the repository of opendp/smartnoise-sdk, or of opendp/tumult-analytics.
Nothing of theirs is kept: the result has counts by kind. What is refused is shown with --show, with our reason.

SmartNoise: every different SELECT of a text in its tests of SQL (`sql/tests/**/*.py`, and the files of queries that are to be
answered, `queries/{compare,rewrite,run,validate,validate_pums}`), less those that their files list as failures and those of
tests of the parser alone, whose tables are nowhere. They run on made-up tables of the same names and columns; in three
queries the name of the table is changed. The kind `rows` asks for rows, which no private system gives out.

Tumult has no SQL: its queries are chains of Python methods. Those of its tests of sessions over rows
(`test/system/session/rows`) are run against a stand-in for its builder, which writes SQL: of steps that are Python functions
over a row, those that are one expression; a query with another one counts as refused. Which noise is asked for is passed
over; queries of the views of a test, and those whose parts only a running test knows, are left out.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import datetime
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import sqlglot
from sqlglot import exp

import discreet
from _record import write
from discreet.errors import DiscreetError

FOLDERS = ("compare", "rewrite", "run", "validate", "validate_pums")
TABLES = """
CREATE SCHEMA pums; CREATE SCHEMA telemetry; CREATE SCHEMA reddit;
CREATE TABLE pums.pums AS SELECT i % 400 AS pid, (i * 7 % 90)::BIGINT AS age, i % 2 AS sex, i % 13 AS educ,
    (i % 6)::VARCHAR AS race, (i * 31 % 90000)::BIGINT AS income, i % 3 = 0 AS married,
    DATE '2020-01-01' + (i % 9)::INT AS start_date, TIMESTAMP '2020-01-01' + to_hours(i % 9) AS start_time,
    (i % 100)::BIGINT AS sales FROM range(1000) AS r(i);
CREATE TABLE pums.pums_null AS SELECT * FROM pums.pums;
CREATE TABLE pums.pums_pid AS SELECT * FROM pums.pums;
CREATE TABLE pums.pums_dup AS SELECT * FROM pums.pums;
CREATE TABLE reddit.reddit AS SELECT i % 400 AS pid, (i % 9)::VARCHAR AS ngram FROM range(1000) AS r(i);
CREATE TABLE telemetry.crashes AS SELECT i % 400 AS deviceid, i % 2 = 0 AS refurbished, 25.0 + i % 40 AS temperature,
    (i % 12)::VARCHAR AS building, (i % 13)::VARCHAR AS region, (i % 11)::BIGINT AS crashes FROM range(1000) AS r(i);
CREATE TABLE telemetry.census AS SELECT i AS deviceid, (i % 9)::VARCHAR AS oem, (i % 5)::VARCHAR AS memory,
    100 + i % 900 AS disk FROM range(400) AS r(i);
CREATE TABLE telemetry.rollouts AS SELECT i AS deviceid, (i % 3)::BIGINT AS rolloutid, (i % 4)::BIGINT AS trialgroup
    FROM range(400) AS r(i);
CREATE TABLE features AS SELECT i % 40 AS store, DATE '2020-01-01' + (i % 9)::INT AS "date", (i % 100)::DOUBLE AS temperature,
    1.0 + i % 3 AS fuel_price, i % 7 = 0 AS isholiday FROM range(1000) AS r(i);
CREATE TABLE sales AS SELECT i % 40 AS store, DATE '2020-01-01' + (i % 9)::INT AS "date", (i % 1000)::DOUBLE AS weekly_sales,
    i % 7 = 0 AS isholiday FROM range(1000) AS r(i);
CREATE TABLE "my-table" AS SELECT i AS pid, (i % 90)::BIGINT AS age, i % 90 AS "person-age" FROM range(1000) AS r(i);
CREATE TABLE nametests AS SELECT i AS pid, (i % 9)::BIGINT AS "select" FROM range(1000) AS r(i);
"""
BOUNDS = {
    "age": (0, 100), "person-age": (0, 100), "income": (0, 100_000), "sales": (0, 100), "temperature": (0, 100),
    "crashes": (0, 10), "fuel_price": (0, 5),
    "weekly_sales": (0, 1000), "store": (0, 100), "disk": (0, 1000), "x": (0, 10), "b": (0, 5),
}  # fmt: skip
PUBLIC = ("public", "join_dtypes")


def texts(root: Path) -> Iterator[str]:
    """All texts of the tests that begin like a query."""
    for path in sorted((root / "sql/tests").rglob("*.py")):
        tree = ast.parse(path.read_text())
        parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if id(node) in parts:
                continue
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            if isinstance(node, ast.JoinedStr):
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "PUMS" for part in node.values)
            if text.lstrip().upper().startswith("SELECT "):
                yield text
    for folder in FOLDERS:
        for path in sorted((root / "sql/tests/query/queries" / folder).glob("*.sql")):
            lines = [line for line in path.read_text().splitlines() if not line.startswith("--")]
            if not path.stem.endswith("_fail"):
                yield from "\n".join(lines).split(";")


def failures(root: Path) -> set[str]:
    """The queries that their files list as failures."""
    found = set()
    for path in (root / "sql/tests/query/queries").rglob("*_fail.sql"):
        found |= {plain(text) for text in path.read_text().split(";")}
    return found


def plain(text: str) -> str:
    return " ".join(text.split()).rstrip(";").strip()


def smartnoise(root: Path) -> list[str]:
    wrong = failures(root)
    found = dict.fromkeys(map(plain, texts(root)))
    return [_named(text) for text in found if text and text not in wrong]


def _named(text: str) -> str:
    """The tables that are here, in place of databases that are not."""
    for theirs, ours in (("PUMS.PUMS.PUMS", "PUMS.PUMS"), ('public."my-table"', '"my-table"'),
                         ('`My-Database`.[My-Schema]."My-Table"', '"my-table"')):  # fmt: skip
        text = text.replace(theirs, ours)
    return text


# ---- Tumult --------------------------------------------------------------------------------------------------------------


class NoSql(Exception):
    """A step that is a Python function over a row."""


class Keys:
    """A stand-in for a set of public keys."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns = columns

    from_dict = classmethod(lambda cls, columns: cls(dict(columns)))

    @classmethod
    def from_tuples(cls, rows: Any, columns: Any) -> Keys:
        return cls({tuple(columns): list(rows)} if len(columns) > 1 else {columns[0]: [row[0] for row in rows]})

    @classmethod
    def from_dataframe(cls, frame: Any) -> Keys:
        return cls({"A": ["0", "1", "2"]})

    def __mul__(self, other: Keys) -> Keys:
        return Keys({**self.columns, **other.columns})

    def __getitem__(self, names: Any) -> Keys:
        return Keys({name: self.columns[name] for name in ([names] if isinstance(names, str) else names)})


def _names(keys: Any) -> list[str]:
    return [keys] if isinstance(keys, str) else list(keys)


class Builder:
    """A stand-in for Tumult's builder: it writes SQL and keeps the public keys."""

    def __init__(self, source: str) -> None:
        self.rows, self.where, self.keys = source, [], Keys({})  # type: ignore[var-annotated]
        self.columns = ["A", "B", "X"]

    def filter(self, condition: str) -> Builder:
        self.where.append(f"({condition})")
        return self

    def select(self, columns: Any) -> Builder:
        self.columns = list(columns)
        return self.around(", ".join(columns))

    def rename(self, names: dict[str, str]) -> Builder:
        return self.around(", ".join(["*", *(f"{old} AS {new}" for old, new in names.items())]))

    def around(self, columns: str) -> Builder:
        where = f" WHERE {' AND '.join(self.where)}" if self.where else ""
        self.rows, self.where = f"(SELECT {columns} FROM {self.rows}{where}) AS t", []
        return self

    def join_public(self, other: Any, join_columns: Any = None, **more: Any) -> Builder:
        columns = join_columns or (["A", "B"] if "dtypes" in str(other) else ["A"])
        name = other if isinstance(other, str) else "public"
        side = "LEFT " if str(more.get("how", "")).lower() == "left" else ""
        self.rows = f"(SELECT * FROM {self.rows} {side}JOIN {name} USING ({', '.join(columns)})) AS t"
        return self

    def join_private(self, other: Any, *args: Any, **more: Any) -> Builder:
        self.rows = f"(SELECT * FROM {self.rows} JOIN private_2 USING (id)) AS t"
        return self

    def replace_null_and_nan(self, replace_with: Any = None) -> Builder:
        new = ", ".join(f"COALESCE({name}, {value!r}) AS {name}_new" for name, value in (replace_with or {}).items())
        return self.around(f"*, {new}") if new else self

    def drop_null_and_nan(self, columns: Any = None) -> Builder:
        self.where += [f"{name} IS NOT NULL" for name in columns or ()]
        return self

    drop_infinity = drop_null_and_nan
    replace_infinity = lambda self, *args, **more: self  # noqa: E731
    enforce = lambda self, *args, **more: self  # noqa: E731

    def bin_column(self, column: str, spec: Any, name: str | None = None) -> Builder:
        ends, names = spec
        cases = " ".join(
            f"WHEN {column} >= {low} AND {column} < {high} THEN {text!r}".replace("THEN nan", "THEN NULL")
            for low, high, text in zip(ends, ends[1:], names)
        )
        self.columns.append(name or f"{column}_binned")
        return self.around(f"*, CASE {cases} END AS {self.columns[-1]}")

    def map(self, f: Any, new_column_types: Any = None, augment: bool = False, **more: Any) -> Builder:
        kept = ["*"] if augment else []
        return self.around(", ".join([*kept, *(f"{value} AS {name}" for name, value in f.columns().items())]))

    def flat_map(self, f: Any, max_rows: int = 1, **more: Any) -> Builder:
        rows = f.rows()
        if more.get("augment") and all(not row for row in rows):
            where = self.filtered()
            self.rows = "(" + " UNION ALL ".join([f"SELECT * FROM {self.rows}{where}"] * len(rows)) + ") AS t"
            self.where = []
            return self
        if len(rows) != 1:
            raise NoSql("a Python function over a row")
        return self.map(Function(rows[0]), augment=more.get("augment", False))

    flat_map_by_id = flat_map

    def groupby(self, keys: Any) -> Builder:
        self.keys = keys if isinstance(keys, Keys) else Keys({name: [] for name in _names(keys)})
        return self

    def histogram(self, column: str, spec: Any, **more: Any) -> tuple[str, Any]:
        return self.bin_column(column, spec, "bin").groupby("bin").ask("COUNT(*)")

    def get_groups(self, columns: Any = None) -> tuple[str, Any]:
        return f"SELECT DISTINCT {', '.join(columns or ['A'])} FROM {self.rows}{self.filtered()}", {}

    def get_bounds(self, column: str, **more: Any) -> tuple[str, Any]:
        return f"BOUNDS {column}", {}

    def filtered(self) -> str:
        return f" WHERE {' AND '.join(self.where)}" if self.where else ""

    def ask(self, statistic: str, where: str = "") -> tuple[str, Any]:
        if where:
            self.where.append(where)
        given = self.keys.columns
        names = [f'"{name}"' for key in given for name in ([key] if isinstance(key, str) else key)]
        known = {key: values for key, values in given.items() if values}
        text = f"SELECT {', '.join([*names, f'{statistic} AS answer'])} FROM {self.rows}{self.filtered()}"
        return text + (f" GROUP BY {', '.join(names)}" if names else ""), known

    def __getattr__(self, name: str) -> Callable[..., tuple[str, Any]]:
        return lambda *args, **more: self.statistic(name, list(args), more)

    def statistic(self, name: str, args: list[Any], more: dict[str, Any]) -> tuple[str, Any]:
        if name == "count":
            return self.ask("COUNT(*)")
        if name == "count_distinct":
            columns = args[0] if args and args[0] else more.get("columns") or more.get("cols") or self.columns
            row = ", '|', ".join(f'CAST("{name}" AS VARCHAR)' for name in columns)
            return self.ask(f"COUNT(DISTINCT CONCAT({row}))" if len(columns) > 1 else f'COUNT(DISTINCT "{columns[0]}")')
        column, *rest = [*args, *(more[part] for part in ("column", "quantile", "low", "high") if part in more)]
        rank = {"min": 0, "max": 1, "median": 0.5}.get(name)
        if name == "quantile":
            rank, *rest = rest
        low, high = rest[:2]
        inner = f"LEAST(GREATEST({column}, {low}), {high})"
        functions = {"sum": "SUM", "average": "AVG", "variance": "VARIANCE", "stdev": "STDDEV"}
        if name in functions:
            return self.ask(f"{functions[name]}({inner})")
        asked = {0: f"MIN({inner})", 1: f"MAX({inner})"}.get(rank, f"QUANTILE({inner}, {rank})")
        return self.ask(asked)


class Function:
    """A Python function over a row that is written as SQL, if it is one expression."""

    def __init__(self, body: Any) -> None:
        self.body = body

    def rows(self) -> list[Any]:
        if not isinstance(self.body, ast.List):
            raise NoSql("a Python function over a row")
        return [row if row.keys else None for row in self.body.elts if isinstance(row, ast.Dict)]

    def columns(self) -> dict[str, str]:
        if not isinstance(self.body, ast.Dict):
            raise NoSql("a Python function over a row")
        return {ast.literal_eval(key): self.sql(value) for key, value in zip(self.body.keys, self.body.values) if key}

    def sql(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(None):
                return "NULL"
            case ast.Constant(value):
                return repr(value)
            case ast.Subscript(ast.Name(), ast.Constant(name)):
                return str(name)
            case ast.IfExp(test, body, orelse):
                return f"CASE WHEN {self.sql(test)} THEN {self.sql(body)} ELSE {self.sql(orelse)} END"
            case ast.Compare(left, [operator], [right]) if type(operator) in COMPARED:
                return f"{self.sql(left)} {COMPARED[type(operator)]} {self.sql(right)}"
            case ast.BinOp(left, operator, right) if (
                type(operator) in COMPUTED and not self.text(left) and not self.text(right)
            ):
                return f"({self.sql(left)} {COMPUTED[type(operator)]} {self.sql(right)})"
            case ast.BinOp(ast.Constant(2), ast.Mult(), text):
                return f"{self.sql(text)} || {self.sql(text)}"
            case ast.Call(ast.Name("str"), [value]):
                return f"CAST({self.sql(value)} AS VARCHAR)"
        raise NoSql("a Python function over a row")

    def text(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call)


COMPARED = {ast.Eq: "=", ast.NotEq: "<>", ast.Lt: "<", ast.Gt: ">", ast.LtE: "<=", ast.GtE: ">="}
COMPUTED = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


class _Functions(ast.NodeTransformer):
    """Functions are not run but kept as they are written."""

    def __init__(self) -> None:
        self.kept: dict[str, Function] = {}

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        name = f"function{len(self.kept)}"
        self.kept[name] = Function(node.body)
        return ast.copy_location(ast.Name(name, ast.Load()), node)


class Anything:
    """Whatever else a query may mention."""

    def __getattr__(self, name: str) -> Anything:
        return self

    def __call__(self, *args: Any, **more: Any) -> Anything:
        return self


def tumult(root: Path) -> list[tuple[str, Any]]:
    """The different queries of the session tests, as (SQL, public keys); ("", reason) for those without SQL."""
    found: dict[str, tuple[str, Any]] = {}
    for path in sorted((root / "test/system/session/rows").glob("*.py")):
        tree = ast.parse(path.read_text())
        inner = {id(part) for node in ast.walk(tree) for part in _inside(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and id(node) not in inner and _is_query(node):
                made = _run(node)
                if made is not None:
                    found.setdefault(repr(made) if made[0] else ast.unparse(node), made)
    return list(found.values())


def _is_query(node: ast.expr) -> bool:
    while isinstance(node, (ast.Call, ast.Attribute)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return node.func.id == "QueryBuilder"
        node = node.func if isinstance(node, ast.Call) else node.value
    return False


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """The shorter chains inside a chain."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield node.func.value


class _Names(dict):  # type: ignore[type-arg]
    def __missing__(self, name: str) -> Any:
        return Anything()


def _run(node: ast.expr) -> tuple[str, Any] | None:
    functions = _Functions()
    node = functions.visit(copy.deepcopy(node))
    names = _Names(QueryBuilder=Builder, KeySet=Keys, __builtins__={}, float=float, int=int, list=list, range=range)
    names |= functions.kept
    names |= {"BinningSpec": lambda ends, names=None, **more: (ends, names or ends[:-1]), "date": datetime.date,
              "datetime": datetime, "GROUPBY_ONE_COLUMN_DICT": {"A": ["0", "1", "2"]}}  # fmt: skip
    try:
        made = eval(compile(ast.Expression(node), "query", "eval"), names)  # noqa: S307 - a chain of methods of the stand-in
    except NoSql as error:
        return "", str(error)
    except Exception:
        return None  # a part of a test that is no query by itself
    whole = isinstance(made, tuple) and "Anything" not in repr(made)  # with no part that only a running test knows
    return made if whole and (not made[0] or made[0].startswith("BOUNDS") or re.search(r"FROM private\b", made[0])) else None


TUMULT = """
CREATE TABLE private AS SELECT i % 300 AS id, (i % 3)::VARCHAR AS A, (i % 5)::BIGINT AS B, i % 11 AS X FROM range(1000) AS r(i);
CREATE TABLE private_2 AS SELECT i AS id, (i % 2)::BIGINT AS C FROM range(300) AS r(i);
CREATE TABLE public AS SELECT i::VARCHAR AS A, i AS "A+B" FROM range(3) AS r(i);
CREATE TABLE join_dtypes AS SELECT i::VARCHAR AS A, i AS B, DATE '2020-01-01' AS "DATE" FROM range(3) AS r(i);
"""


# ---- asking --------------------------------------------------------------------------------------------------------------


def kind(text: str) -> str:
    """What a query is about, by the hardest thing in it."""
    if not text:
        return "Python functions"
    with contextlib.suppress(Exception):
        tree = sqlglot.parse_one(text.replace("TOP 5", "").replace("TOP 20", ""), read="duckdb")
        if not tree.find(exp.AggFunc) and not tree.args.get("group") and not tree.args.get("distinct"):
            return "rows"
        parts = {
            "joins": tree.find(exp.Join), "sub-queries": tree.find(exp.Subquery), "having": tree.args.get("having"),
            "order and limit": tree.args.get("order") or tree.args.get("limit"), "distinct": tree.find(exp.Distinct),
            "groups": tree.args.get("group"),
        }  # fmt: skip
        for name, found in parts.items():
            if found:
                return name
        return "statistics"
    return "other"


def ask(databases: list[discreet.Database], text: str, keys: Any = None) -> str:
    """Empty if one of the databases answers, else the reason of the last."""
    reason = ""
    for db in databases:
        try:
            if text.startswith("BOUNDS"):
                db.find_bounds(text.split()[1], epsilon=1.0, table="private")
            else:
                db.sql(text, epsilon=1.0, delta=1e-6, keys=keys or None)
            return ""
        except DiscreetError as error:
            reason = str(error) if not reason or reason.startswith("There is no table") else reason
    return reason


def counted(queries: list[tuple[str, Any]], databases: list[discreet.Database], show: bool) -> dict[str, Any]:
    by_kind: dict[str, Counter[str]] = {}
    for text, keys in queries:
        reason = ask(databases, text, keys) if text else keys
        by_kind.setdefault(kind(text), Counter())["refused" if reason else "answered"] += 1
        if reason and show:
            print(f"refused: {text}\n    {reason}")
    answered = sum(found["answered"] for found in by_kind.values())
    kinds = {name: dict(found) for name, found in sorted(by_kind.items())}
    return {"queries": len(queries), "answered": answered, "kinds": kinds}


@contextlib.contextmanager
def opened(tables: str, units: list[discreet.Unit]) -> Iterator[list[discreet.Database]]:
    """The tables under each unit; those without its key are left out."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        made = []
        for i, unit in enumerate(units):
            path = Path(folder) / f"t{i}.duckdb"
            with duckdb.connect(str(path)) as link:
                link.execute(tables)
                found = link.execute("SELECT schema_name, table_name, list(lower(column_name)) FROM duckdb_columns() "
                                     "WHERE NOT internal GROUP BY ALL").fetchall()  # fmt: skip
                for schema, name, columns in found:
                    if unit.key is not None and unit.key not in columns and name not in PUBLIC:
                        link.execute(f'DROP TABLE {schema}."{name}"')
            names = {name for _, table, columns in found if unit.key is None or unit.key in columns for name in columns}
            bounds = {name: pair for name, pair in BOUNDS.items() if name in names}
            public = {name: {"public": True} for _, name, _ in found if name in PUBLIC}
            made.append(stack.enter_context(discreet.connect(path, unit=unit, bounds=bounds, schema=public)))
        yield made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smartnoise", type=Path)
    parser.add_argument("--tumult", type=Path)
    parser.add_argument("--show", action="store_true", help="print what is refused, and why")
    parser.add_argument("--out")
    given = parser.parse_args()
    result: dict[str, Any] = {}
    if given.smartnoise:
        queries = [(text, None) for text in smartnoise(given.smartnoise)]
        units = [
            discreet.user("pid", rows=10),
            discreet.record(),
            discreet.user("deviceid", rows=10),
            discreet.user("store", rows=50),
        ]
        with opened(TABLES, units) as databases:
            result["smartnoise"] = counted(queries, databases, given.show)
    if given.tumult:
        with opened(TUMULT, [discreet.record(), discreet.user("id", rows=5)]) as databases:
            result["tumult"] = counted(tumult(given.tumult), databases, given.show)
    for name, found in result.items():
        print(f"{name}: {found['answered']} of {found['queries']} answered")
        for part, numbers in found["kinds"].items():
            print(f"    {part:18} {numbers.get('answered', 0):4} answered {numbers.get('refused', 0):4} refused")
    write(given.out, result, "duckdb", "sqlglot")


if __name__ == "__main__":
    main()
