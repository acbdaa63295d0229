"""Reading what is made of released rows: columns of the answer, HAVING and ORDER BY, after the noise and for free.

Keys and statistics are put in the place of the expressions that stand for them; what is left is read by the rules for one row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from discreet.errors import InvalidQuery
from discreet.query.calls import Sources, read_call
from discreet.query.operations import NUMBERS, Kind, Op, OutputOp
from discreet.query.scalars.expression import Scope, has_rule, scalar
from discreet.query.scalars.operands import LONG, refused, text_of
from discreet.query.statistics import Statistic
from discreet.query.tree import Field, Output, Scalar

RELEASED = "released"
_NAME = re.compile(rf"{RELEASED}\.p(\d+)")
Rule = Callable[[Any], Output | None]  # what a name stands for in some clause


@dataclass
class Reading:
    """The keys and statistics met so far."""

    sources: Sources
    keys: list[Scalar]
    functions: Mapping[str, type[Statistic]]
    aggregates: list[Statistic] = field(default_factory=list)

    def statistic(self, statistic: Statistic) -> Output:
        if statistic not in self.aggregates:
            self.aggregates.append(statistic)
        return Output(OutputOp.STATISTIC, value=self.aggregates.index(statistic))

    def key(self, place: int) -> Output:
        return Output(OutputOp.KEY, value=place, kind=self.keys[place].kind)

    def find_key(self, node: Any) -> Output | None:
        """The key that an expression is, if it is one."""
        if isinstance(node, exp.Literal) or not self.keys or node.find(exp.AggFunc):
            return None
        try:
            value = scalar(node, self.sources.scope)
        except InvalidQuery:
            return None
        return self.key(self.keys.index(value)) if value in self.keys else None


def named_outputs(item: Any, reading: Reading, before: Mapping[str, Output]) -> list[tuple[str, Output]]:
    """The columns of the answer that one item of SELECT makes: a list of quantiles makes several.

    `before` are the columns to its left, whose names may be used where no column of the tables has them.
    """
    alias, inner = (item.alias, item.this) if isinstance(item, exp.Alias) else ("", item)
    call = read_call(inner, reading.sources)
    kind = None if call is None else reading.functions.get(call.name)
    several = {} if call is None or kind is None else kind.read_columns(call)
    if call is not None and several:
        stem = alias or f"quantile_{text_of(call.argument, LONG)}"[:60]
        return [(stem + suffix, reading.statistic(statistic)) for suffix, statistic in several.items()]
    output = read_output(inner, reading, lambda node: _unless_column(node, reading, before))
    return [(alias or (inner.name if isinstance(inner, exp.Column) else text_of(inner).lower()), output)]


def _unless_column(node: Any, reading: Reading, aliases: Mapping[str, Output]) -> Output | None:
    """What an alias stands for, where it is not the name of a column too."""
    found = _alias(node, reading, aliases)
    return None if found is None or reading.sources.scope.has(node) else found


def _alias(node: Any, reading: Reading, aliases: Mapping[str, Output]) -> Output | None:
    named = isinstance(node, exp.Column) and not node.table
    return aliases.get(node.name.lower()) if named else None


def later(aliases: Mapping[str, Output], reading: Reading, *, keys_first: bool = False) -> Callable[[Any], Output]:
    """How ORDER BY is read: names of output columns, then keys and statistics. In HAVING a key comes first, as in DuckDB."""

    def rule(node: Any) -> Output | None:
        key = reading.find_key(node) if keys_first and isinstance(node, exp.Column) else None
        return key or _alias(node, reading, aliases)

    return lambda node: read_output(node, reading, rule)


def read_output(node: Any, reading: Reading, rule: Rule) -> Output:
    """An expression over the released row; `rule` says what names stand for before keys and statistics do."""
    placing = _Placing(reading, rule)
    shaped, parts = placing.place(node), placing.parts
    fields = tuple(Field(part.kind, required=part.kind in NUMBERS and part.op != OutputOp.KEY) for part in parts)
    scope = Scope(((RELEASED, tuple(f"p{i}" for i in range(len(parts))), fields),))
    try:
        value = scalar(shaped, scope)
    except InvalidQuery as error:
        raise InvalidQuery(_NAME.sub(lambda name: placing.texts[int(name[1])], str(error))) from None
    if value.kind == Kind.NULL:
        raise InvalidQuery(f"{text_of(node)} is always NULL. Leave it out.")
    return _output(value, parts)


def _output(value: Scalar, parts: list[Output]) -> Output:
    if value.op == Op.COLUMN:
        place: int = value.value[1]
        return parts[place]
    if value.op == Op.LITERAL:
        number = value.kind in NUMBERS
        return Output(OutputOp.LITERAL, value=float(value.value) if number else value.value, kind=value.kind)
    return Output(value.op, tuple(_output(arg, parts) for arg in value.args), value.value, value.kind)


@dataclass
class _Placing:
    """Puts names of released parts in the place of the expressions that stand for them."""

    reading: Reading
    rule: Rule
    parts: list[Output] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)  # what stands in the query for each part

    def place(self, node: Any) -> Any:
        return node.copy().transform(self._one, copy=False)

    def _one(self, node: Any) -> Any:
        if not isinstance(node, exp.Expression) or isinstance(node, (exp.Identifier, exp.DataType, exp.Var)):
            return node
        found = self.rule(node) or self.reading.find_key(node) or self._whole(node) or self._statistic(node)
        if found is not None:
            self.parts.append(found)
            self.texts.append(text_of(node, 60, "duckdb"))
            return exp.column(f"p{len(self.parts) - 1}", table=RELEASED)
        if isinstance(node, exp.Column) and node.table != RELEASED:
            scalar(node, self.reading.sources.scope)  # a name that is not there is told first
            raise InvalidQuery(
                f"{text_of(node, LONG)} is neither in GROUP BY nor inside a statistic. Add it to GROUP BY, or take its AVG, …"
            )
        if isinstance(node, exp.Func) and not has_rule(node):
            raise refused(node)
        return node

    def _statistic(self, node: Any) -> Output | None:
        call = read_call(node, self.reading.sources)
        kind = None if call is None else self.reading.functions.get(call.name)
        return None if call is None or kind is None else self.reading.statistic(kind.read(call))

    def _whole(self, node: Any) -> Output | None:
        """What is of the answer as a whole: totals of its columns, and which grouping set a row is of."""
        if isinstance(node, exp.Window):
            return self._total(node)
        if not isinstance(node, exp.Grouping):
            return None
        key = self.reading.find_key(node.expressions[0]) if len(node.expressions) == 1 else None
        if key is None:
            raise InvalidQuery(f"{text_of(node)}: GROUPING takes one key of GROUP BY.")
        return Output(OutputOp.GROUPING, value=key.value, kind=Kind.INTEGER)

    def _total(self, node: Any) -> Output:
        """SUM(…) OVER (PARTITION BY …) of released numbers: the total that shares are of."""
        inner = node.this
        known = ("this", "partition_by", "over")
        if not isinstance(inner, exp.Sum) or any(part for name, part in node.args.items() if name not in known):
            raise refused(node)
        value = read_output(inner.this, self.reading, self.rule)
        if value.kind not in NUMBERS:
            raise InvalidQuery(f"{text_of(node)} adds up {value.kind}. Add up numbers of the answer.")
        keys = [read_output(key, self.reading, self.rule) for key in node.args.get("partition_by") or ()]
        if any(key.op != OutputOp.KEY for key in keys):
            raise InvalidQuery(f"{text_of(node)}: PARTITION BY takes keys of GROUP BY.")
        return Output(OutputOp.TOTAL, (value,), tuple(key.value for key in keys))
