"""Parsing: from the text of a query to a Question, or a refusal that says why. No row is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from discreet.core import check
from discreet.errors import InvalidQuery
from discreet.query.calls import Sources, read_call
from discreet.query.operations import MOMENTS, NUMBERS, Kind, Op, OutputOp
from discreet.query.relations import Catalogue, group_keys, is_unit_column, plain, sources, where_of
from discreet.query.scalars.expression import scalar
from discreet.query.scalars.operands import refused
from discreet.query.statistics import STATISTICS, Statistic
from discreet.query.tree import Output, Question, Scalar, Select

LONGEST = 100_000  # letters in a query
MOST_OUTPUTS = 1_000


@lru_cache(256)
def _tree(text: str) -> Any:
    try:
        statements = [statement for statement in sqlglot.parse(text, read="duckdb") if statement is not None]
    except SqlglotError as error:
        raise InvalidQuery(f"This is not SQL: {_first_line(error)}") from None
    except RecursionError:
        raise InvalidQuery("The query is nested too deeply. Write it flatter.") from None
    if len(statements) != 1:
        raise InvalidQuery(f"Ask one query at a time; got {len(statements)}.")
    return statements[0]


def _first_line(error: Exception) -> str:
    lines = str(error).replace("\x1b[4m", "").replace("\x1b[0m", "").strip().splitlines() or ["unreadable"]
    return lines[0][:200]


def parse(text: str, catalogue: Catalogue, statistics: Sequence[type[Statistic]] = STATISTICS) -> Question:
    """What the query asks; `statistics` are those it may ask for."""
    check.word("query", text)
    if len(text) > LONGEST:
        raise InvalidQuery(f"A query may have at most {LONGEST:,} letters; got {len(text):,}.")
    try:
        return _question(_tree(text), catalogue, {name: kind for kind in statistics for name in kind.functions})
    except RecursionError:
        raise InvalidQuery("The query is nested too deeply. Write it flatter.") from None


@dataclass
class _Reading:
    """The keys and statistics met so far."""

    sources: Sources
    keys: list[Scalar]
    functions: Mapping[str, type[Statistic]]
    aggregates: list[Statistic] = field(default_factory=list)

    def statistic(self, statistic: Statistic) -> Output:
        if statistic not in self.aggregates:
            self.aggregates.append(statistic)
        return Output(OutputOp.STATISTIC, value=self.aggregates.index(statistic))


def _question(node: Any, catalogue: Catalogue, functions: Mapping[str, type[Statistic]]) -> Question:
    plain(node)
    known = catalogue.with_views(node)
    first, joins, scope = sources(node, known)
    if not first.private:
        raise InvalidQuery("The query asks only public tables; no privacy is needed for it. Ask their engine itself.")
    where = where_of(node, scope)
    if not node.expressions:
        raise InvalidQuery("SELECT names nothing.")
    keys = [scalar(key, scope) for key in group_keys(node, node.expressions, scope)]
    if any(key.op in (Op.LITERAL, Op.NULL) for key in keys):
        raise InvalidQuery("GROUP BY a constant makes one group. Leave it out.")
    if any(key.op == Op.COLUMN and key.values is None and is_unit_column(key, first, joins, known) for key in keys):
        raise InvalidQuery(
            f"GROUP BY {known.key} makes groups of one person each, and none of them would be released. For statistics of "
            f"people, gather their rows first: SELECT AVG(LEAST(n, 20)) AS n FROM (SELECT {known.key}, COUNT(*) AS n FROM … "
            f"GROUP BY {known.key})."
        )
    reading = _Reading(Sources(scope, known.key, first, joins), keys, functions)
    names, outputs = [], []
    for item in node.expressions:
        for name, output in _outputs(item, reading):
            names.append(name)
            outputs.append(output)
    if len({name.lower() for name in names}) != len(names):
        raise InvalidQuery(f"Two columns of the answer have one name ({', '.join(names)[:80]}). Tell them apart with AS.")
    if len(outputs) > MOST_OUTPUTS:
        raise InvalidQuery(f"A query may have at most {MOST_OUTPUTS} columns.")
    aliases = dict(zip((name.lower() for name in names), outputs))
    later = _later(aliases, reading)
    having = _later(aliases, reading, keys_first=True)(node.args["having"].this) if node.args.get("having") else None
    order = tuple(_ordered(item, outputs, later) for item in (node.args["order"].expressions if node.args.get("order") else ()))
    if not reading.aggregates and not keys:
        raise InvalidQuery(
            "SELECT asks for rows, and rows are not released. Ask for statistics: COUNT(*), SUM, AVG, QUANTILE …"
        )
    for output in (*outputs, *(output for output, _ in order)):
        if kind_of(output, keys) == Kind.BOOLEAN and output.op != OutputOp.KEY:
            raise InvalidQuery("A comparison cannot be a column of the answer, nor order it. It can stand in HAVING.")
    if having is not None and (kind_of(having, keys) != Kind.BOOLEAN or having.op == OutputOp.KEY):
        raise InvalidQuery("HAVING takes comparisons of columns of the answer, such as n > 100.")
    rows = Select(first, joins, where, (), (), True)
    return Question(rows, tuple(keys), tuple(reading.aggregates), tuple(names), tuple(outputs), having, order, _limit(node))


def kind_of(output: Output, keys: list[Scalar]) -> Kind:
    """What an expression over the released row holds; a mix that has no meaning is refused before anything is spent."""
    if output.op == OutputOp.KEY:
        key: Scalar = keys[output.value]
        return key.kind
    if output.op == OutputOp.LITERAL:
        return _literal_kind(output.value)
    kinds = {Kind.NUMBER if kind in NUMBERS else kind for kind in (kind_of(part, keys) for part in output.args)}
    if output.op in (OutputOp.AND, OutputOp.OR, OutputOp.NOT):
        if kinds != {Kind.BOOLEAN} or any(part.op == OutputOp.KEY for part in output.args):
            raise InvalidQuery(f"{output.op.upper()} in HAVING takes comparisons, such as n > 100.")
        return Kind.BOOLEAN
    if output.op in _COMPARISONS.values():
        if len(kinds) > 1:
            raise InvalidQuery(f"HAVING compares {' with '.join(sorted(kinds))}. Compare things of one kind.")
        return Kind.BOOLEAN
    if kinds - {Kind.NUMBER}:
        raise InvalidQuery(f"Arithmetic on the columns of the answer takes numbers, and found {min(kinds - {'number'})}.")
    return Kind.NUMBER


def _literal_kind(value: Any) -> Kind:
    if isinstance(value, datetime):
        return Kind.TIMESTAMP
    return Kind.TEXT if isinstance(value, str) else Kind.DATE if isinstance(value, date) else Kind.NUMBER


def _moments(one: Output, two: Output, keys: list[Scalar]) -> Output:
    """The first operand, parsed as a date if it is a text compared with a date."""
    if one.op == OutputOp.LITERAL and isinstance(one.value, str) and two.op == OutputOp.KEY and keys[two.value].kind in MOMENTS:
        kind = keys[two.value].kind
        try:
            moment = date.fromisoformat(one.value) if kind == Kind.DATE else datetime.fromisoformat(one.value)
        except ValueError:
            raise InvalidQuery(f"{one.value[:40]!r} is not a {kind}; write it like 2026-01-31.") from None
        return Output(OutputOp.LITERAL, value=moment.replace(tzinfo=None) if isinstance(moment, datetime) else moment)
    return one


def _limit(node: Any) -> int | None:
    clause = node.args.get("limit")
    if clause is None:
        return None
    inner = clause.expression
    options = clause.args.get("limit_options")
    if options is not None and any(options.args.values()):
        raise InvalidQuery("LIMIT takes a whole number.")
    if not (
        isinstance(clause, exp.Limit) and isinstance(inner, exp.Literal) and inner.this.isdecimal() and len(inner.this) < 12
    ):
        raise InvalidQuery("LIMIT takes a whole number.")
    return int(inner.this)


def _ordered(item: Any, outputs: list[Output], later: Callable[[Any], Output]) -> tuple[Output, bool]:
    inner = item.this
    if item.args.get("nulls_first") or item.args.get("with_fill"):
        raise InvalidQuery("ORDER BY takes columns and DESC here; NULL comes last.")
    if isinstance(inner, exp.Literal) and not inner.is_string:
        place = int(inner.this) if inner.this.isdecimal() and len(inner.this) < 6 else 0
        if not 1 <= place <= len(outputs):
            raise InvalidQuery(f"ORDER BY {inner.this[:20]} names no column of SELECT.")
        return outputs[place - 1], bool(item.args.get("desc"))
    return later(inner), bool(item.args.get("desc"))


def _later(aliases: dict[str, Output], reading: _Reading, *, keys_first: bool = False) -> Callable[[Any], Output]:
    """How ORDER BY is read: names of output columns, then keys and statistics. In HAVING a key comes first, as in DuckDB."""

    def rule(node: Any) -> Output:
        if keys_first and isinstance(node, exp.Column) and (place := _key(node, reading)) is not None:
            return Output(OutputOp.KEY, value=place)
        if isinstance(node, exp.Column) and not node.table and node.name.lower() in aliases:
            return aliases[node.name.lower()]
        return _output(node, reading, rule)

    return rule


def _outputs(item: Any, reading: _Reading) -> list[tuple[str, Output]]:
    """The columns of the answer that one item of SELECT makes: a list of quantiles makes several."""
    alias, inner = (item.alias, item.this) if isinstance(item, exp.Alias) else ("", item)
    call = read_call(inner, reading.sources)
    kind = None if call is None else reading.functions.get(call.name)
    several = {} if call is None or kind is None else kind.read_columns(call)
    if call is not None and several:
        stem = alias or f"quantile_{call.argument.sql()}"[:60]
        return [(stem + suffix, reading.statistic(statistic)) for suffix, statistic in several.items()]
    output = _output(inner, reading, None)
    return [(alias or (inner.name if isinstance(inner, exp.Column) else inner.sql()[:60].lower()), output)]


def _statistic(node: Any, reading: _Reading) -> Statistic | None:
    """The statistic a node asks for, or None if it is not one."""
    call = read_call(node, reading.sources)
    kind = None if call is None else reading.functions.get(call.name)
    return None if call is None or kind is None else kind.read(call)


_ARITHMETIC = {exp.Add: OutputOp.ADD, exp.Sub: OutputOp.SUB, exp.Mul: OutputOp.MUL, exp.Div: OutputOp.DIV}
_COMPARISONS = {exp.EQ: OutputOp.EQ, exp.NEQ: OutputOp.NE, exp.LT: OutputOp.LT, exp.LTE: OutputOp.LE, exp.GT: OutputOp.GT,
                exp.GTE: OutputOp.GE}  # fmt: skip
_LOGIC = {exp.And: OutputOp.AND, exp.Or: OutputOp.OR}


def _output(node: Any, reading: _Reading, rule: Callable[[Any], Output] | None) -> Output:
    """An expression over the released row; `rule` reads its parts where names of the answer count too."""
    inner = rule or (lambda part: _output(part, reading, None))
    if isinstance(node, exp.Paren):
        return inner(node.this)
    if reading.keys and (place := _key(node, reading)) is not None:
        return Output(OutputOp.KEY, value=place)
    statistic = _statistic(node, reading)
    if statistic is not None:
        return reading.statistic(statistic)
    if isinstance(node, exp.Literal):
        return Output(OutputOp.LITERAL, value=node.this if node.is_string else _number(node))
    if isinstance(node, exp.Neg):
        return Output(OutputOp.NEG, (inner(node.this),))
    if isinstance(node, exp.Round):
        digits = node.args.get("decimals")
        return Output(OutputOp.ROUND, (inner(node.this),), _digits(digits))
    if type(node) in _LOGIC and rule is not None:
        return Output(_LOGIC[type(node)], tuple(inner(part) for part in node.flatten()))
    if isinstance(node, exp.Not) and rule is not None:
        return Output(OutputOp.NOT, (inner(node.this),))
    op = _ARITHMETIC.get(type(node)) or (_COMPARISONS.get(type(node)) if rule is not None else None)
    if op is not None:
        left, right = inner(node.this), inner(node.expression)
        return Output(op, (_moments(left, right, reading.keys), _moments(right, left, reading.keys)))
    if isinstance(node, exp.Column):
        scalar(node, reading.sources.scope)  # a name that is not there is told first
        raise InvalidQuery(
            f"{node.sql()} is neither in GROUP BY nor inside a statistic. Add it to GROUP BY, or take its AVG, …"
        )
    raise refused(node)


def _number(node: Any) -> float:
    try:
        return float(node.this)
    except ValueError:
        raise refused(node) from None


def _digits(node: Any) -> int:
    if node is None:
        return 0
    if isinstance(node, exp.Literal) and node.this.isdecimal() and len(node.this) < 3:
        return int(node.this)
    raise InvalidQuery("ROUND takes the number of digits written out.")


def _key(node: Any, reading: _Reading) -> int | None:
    if node.find(exp.AggFunc):
        return None
    if isinstance(node, exp.Literal):
        return None
    try:
        value = scalar(node, reading.sources.scope)
    except InvalidQuery:
        return None
    return reading.keys.index(value) if value in reading.keys else None
