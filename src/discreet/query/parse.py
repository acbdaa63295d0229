"""Parsing: from the text of a query to a Question, or a refusal that says why. No row is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.tsql import TSQL
from sqlglot.errors import SqlglotError

from discreet.core import check
from discreet.errors import DiscreetError, InvalidQuery
from discreet.query.calls import Sources
from discreet.query.groups import Lists, grouping, listed
from discreet.query.operations import Kind, Op, OutputOp
from discreet.query.outputs import Reading, later, named_outputs
from discreet.query.relations import Catalogue, is_unit_column, plain, sources, where_of
from discreet.query.scalars.expression import Scope, scalar
from discreet.query.scalars.operands import LONG, text_of
from discreet.query.statistics import STATISTICS, Statistic
from discreet.query.tree import Output, Question, Scalar, Select

LONGEST = 100_000  # letters in a query
MOST_OUTPUTS = 1_000


class Wider(DuckDB):
    """DuckDB's SQL, with SELECT TOP and names in backticks or brackets: what is no SQL of DuckDB is read so."""

    class Tokenizer(DuckDB.Tokenizer):
        IDENTIFIERS = ['"', "`", ("[", "]")]  # noqa: RUF012
        KEYWORDS = {**DuckDB.Tokenizer.KEYWORDS, "TOP": TSQL.Tokenizer.KEYWORDS["TOP"]}  # noqa: RUF012


@lru_cache(256)
def _tree(text: str) -> Any:
    try:
        statements = _statements(text)
    except SqlglotError as error:
        raise InvalidQuery(f"This is not SQL: {_first_line(error)}") from None
    if len(statements) != 1:
        raise InvalidQuery(f"Ask one query at a time; got {len(statements)}.")
    return statements[0]


def _statements(text: str) -> list[Any]:
    try:
        found = _read(text, "duckdb")
    except SqlglotError:
        try:
            return _read(text, Wider)
        except SqlglotError:
            pass
        raise
    top = any(call.name.upper() == "TOP" for statement in found for call in statement.find_all(exp.Anonymous))
    return _read(text, Wider) if top else found  # SELECT TOP (2) x would be a function with an alias


def _read(text: str, dialect: Any) -> list[Any]:
    return [statement for statement in sqlglot.parse(text, read=dialect) if statement is not None]


def _first_line(error: Exception) -> str:
    lines = str(error).replace("\x1b[4m", "").replace("\x1b[0m", "").strip().splitlines() or ["unreadable"]
    return lines[0][:200]


def parse(
    text: str, catalogue: Catalogue, statistics: Sequence[type[Statistic]] = STATISTICS, lists: Lists | None = None
) -> Question:
    """What the query asks; `statistics` are those it may ask for, and `lists` public values of its keys, by name."""
    check.word("query", text)
    if len(text) > LONGEST:
        raise InvalidQuery(f"A query may have at most {LONGEST:,} letters; got {len(text):,}.")
    try:
        functions = {name: kind for kind in statistics for name in kind.functions}
        return _question(_tree(text), catalogue, functions, lists or {})
    except DiscreetError:
        raise
    except RecursionError:
        raise InvalidQuery("The query is nested too deeply. Write it flatter.") from None
    except Exception as error:  # trees of sqlglot that no rule here foresaw: nothing was charged, and no row read
        raise InvalidQuery("This query has a part that private SQL cannot read. Write it in simpler parts.") from error


def _question(node: Any, catalogue: Catalogue, functions: Mapping[str, type[Statistic]], lists: Lists) -> Question:
    if isinstance(node, exp.Subquery) and not any(part for name, part in node.args.items() if name != "this"):
        node = node.this  # a query in parentheses
    plain(node, ("distinct", "offset"))
    known = catalogue.with_views(node)
    first, joins, scope = sources(node, known)
    if not first.private:
        raise InvalidQuery("The query asks only public tables; no privacy is needed for it. Ask their engine itself.")
    where = where_of(node, scope)
    if not node.expressions:
        raise InvalidQuery("SELECT names nothing.")
    _check_distinct(node)
    groups = grouping(node, node.expressions, scope)
    columns = [scope.known(column) for base in known.tables.values() for column in base.names]
    keys, tuples = listed(*_keys(groups.keys, node.expressions, scope), lists, columns)
    if any(key.op in (Op.LITERAL, Op.NULL) for key in keys):
        raise InvalidQuery("GROUP BY a constant makes one group. Leave it out.")
    if any(key.op == Op.COLUMN and key.values is None and not any(i in some.places for some in tuples)
           and is_unit_column(key, first, joins, known) for i, key in enumerate(keys)):  # fmt: skip
        raise InvalidQuery(
            f"GROUP BY {known.key} makes groups of one person each, and none of them would be released. For statistics of "
            f"people, gather their rows first: SELECT AVG(LEAST(n, 20)) AS n FROM (SELECT {known.key}, COUNT(*) AS n FROM … "
            f"GROUP BY {known.key})."
        )
    reading = Reading(Sources(scope, known.key, first, joins), [scalar(key, scope) for key in groups.keys], functions)
    answer: dict[str, Output] = {}
    aliases: dict[str, Output] = {}
    for item in node.expressions:
        for name, output in named_outputs(item, reading, aliases):
            if name.lower() in aliases and not isinstance(item, exp.Alias):
                name = next(f"{name}_{i}" for i in range(1, MOST_OUTPUTS + 2) if f"{name}_{i}".lower() not in aliases)
            if name.lower() in aliases:
                raise InvalidQuery(f"Two columns of the answer have one name ({name[:80]}). Tell them apart with AS.")
            answer[name] = aliases[name.lower()] = output
    if len(answer) > MOST_OUTPUTS:
        raise InvalidQuery(f"A query may have at most {MOST_OUTPUTS} columns.")
    having = later(aliases, reading, keys_first=True)(node.args["having"].this) if node.args.get("having") else None
    outputs, by_name = list(answer.values()), later(aliases, reading)
    ordered = node.args["order"].expressions if node.args.get("order") else ()
    order = tuple(_ordered(item, outputs, by_name) for item in ordered)
    if not reading.aggregates and not keys:
        raise InvalidQuery(
            "SELECT asks for rows, and rows are not released. Ask for statistics: COUNT(*), SUM, AVG, QUANTILE …"
        )
    if having is not None and having.kind == Kind.INTEGER:  # as in SQL: what is not 0 holds
        having = Output(Op.NE, (having, Output(OutputOp.LITERAL, value=0.0, kind=Kind.NUMBER)), kind=Kind.BOOLEAN)
    if having is not None and having.kind != Kind.BOOLEAN:
        raise InvalidQuery("HAVING takes a condition on columns of the answer, such as n > 100.")
    if having is not None and having.totals():
        raise InvalidQuery("SUM(…) OVER (…) is of the groups that HAVING leaves; HAVING cannot use it. ORDER BY it, or pick "
                           "rows of the answer.")  # fmt: skip
    rows = Select(first, joins, where, (), (), True)
    return Question(rows, tuple(keys), tuple(reading.aggregates), tuple(answer), tuple(outputs), having, order, _limit(node),
                    _skipped(node), tuples, groups.sets)  # fmt: skip


def _check_distinct(node: Any) -> None:
    """SELECT DISTINCT a, b is GROUP BY a, b; of an aggregation, it is nothing to compare."""
    distinct = node.args.get("distinct")
    if distinct is None:
        return
    if distinct.args.get("on"):
        raise InvalidQuery("DISTINCT ON takes one row of each group, and rows are not released. GROUP BY, and take MIN or MAX.")
    if node.args.get("group") is None and any(item.find(exp.AggFunc) for item in node.expressions):
        raise InvalidQuery("SELECT DISTINCT of statistics without GROUP BY is one row. Leave DISTINCT out.")
    if node.args.get("group") is not None:
        raise InvalidQuery("The groups of an answer are different already. Leave DISTINCT out.")


def _keys(nodes: list[Any], items: list[Any], scope: Scope) -> tuple[list[Scalar], list[set[str]]]:
    """The keys, and the names by which public values may be given for each: of its column, and in SELECT."""
    keys, names = [], []
    for node in nodes:
        key = scalar(node, scope)
        known = {scope.spelled(node.this)} if isinstance(node, exp.Column) else {text_of(node, LONG).lower()}
        known |= {scope.spelled(item.args["alias"]) for item in items if isinstance(item, exp.Alias) and item.this == node}
        keys.append(key)
        names.append(known)
    return keys, names


def _skipped(node: Any) -> int:
    """OFFSET n."""
    clause = node.args.get("offset")
    inner = None if clause is None else clause.expression
    if clause is None:
        return 0
    if not (isinstance(inner, exp.Literal) and not inner.is_string and inner.this.isdecimal() and len(inner.this) < 12):
        raise InvalidQuery("OFFSET takes a whole number of rows.")
    return int(inner.this)


def _limit(node: Any) -> int | None:
    """LIMIT n, FETCH FIRST n ROWS ONLY or TOP n."""
    clause = node.args.get("limit")
    if clause is None:
        return None
    options = clause.args.get("limit_options")
    asked = [name for name, part in (options.args if options is not None else {}).items() if part and name != "rows"]
    if isinstance(clause, exp.Fetch) and clause.args.get("count") is None and not asked:
        return 1  # FETCH FIRST ROW ONLY
    inner = clause.args.get("count") if isinstance(clause, exp.Fetch) else clause.expression
    while isinstance(inner, exp.Paren):
        inner = inner.this
    if asked or not (isinstance(inner, exp.Literal) and inner.this.isdecimal() and len(inner.this) < 12):
        raise InvalidQuery("LIMIT, TOP and FETCH FIRST take a whole number of rows, without PERCENT or TIES.")
    return int(inner.this)


def _ordered(item: Any, outputs: list[Output], by_name: Callable[[Any], Output]) -> tuple[Output, bool]:
    inner = item.this
    if item.args.get("nulls_first") or item.args.get("with_fill"):
        raise InvalidQuery("ORDER BY takes columns and DESC here; NULL comes last.")
    if isinstance(inner, exp.Literal) and not inner.is_string:
        place = int(inner.this) if inner.this.isdecimal() and len(inner.this) < 6 else 0
        if not 1 <= place <= len(outputs):
            raise InvalidQuery(f"ORDER BY {inner.this[:20]} names no column of SELECT.")
        return outputs[place - 1], bool(item.args.get("desc"))
    return by_name(inner), bool(item.args.get("desc"))
