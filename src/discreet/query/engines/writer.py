"""Questions as SQL: every engine writes the same closed table of operations in its own words.

Each relation is written as a SELECT whose columns are c0, c1, … , with `u`, the unit of the row, where it is private, and
`w`, its weight, where the table was registered. Only aggregates over bounded units leave an engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from discreet.errors import InvalidQuery
from discreet.query.tree import Base, Field, Join, Relation, Scalar, Select, Union

SCALE = 1 << 20  # the weight of a whole row, in whole numbers
LONGEST = 1 << 20  # letters of SQL for one expression or one relation
LONGEST_TEXT = 1 << 16  # letters of a text that is put together: engines fail on texts that grow without end
FURTHEST = float(1 << 50)  # numbers beyond are moved here when those of one unit are gathered
FINE = float(1 << 40)  # parts of 1 that are told apart then


@dataclass(frozen=True, slots=True)
class Plan:
    """How many rows of one unit count. `kind`: rows (a row is a unit), weighted, registered or sampled.

    weighted, registered: each row weighs min(1, rows / rows of its unit). sampled: a unit counts in at most `groups`
    groups, chosen at random for each unit, and in each as at most `each` rows (the mean of its rows there, times `each`).
    """

    kind: str
    rows: int
    groups: int = 0
    each: int = 0

    @property
    def scale(self) -> int:
        return SCALE if self.kind in ("weighted", "registered") else 1


@dataclass(frozen=True, slots=True)
class Term:
    """A whole number per row, to be added up: 1, `most` where `of` is known or beyond its bounds, or (of - centre) / step
    within +-most; or 1 for what was cut: a row that weighs less than a whole one, a unit of more than `each` rows in a group.
    """

    kind: str  # count, known, outside, sum, square, cut
    of: Scalar | None = None
    centre: float = 0.0
    step: float = 1.0
    most: int = 1


@dataclass(frozen=True, slots=True)
class Bins:
    """A histogram of `of`: equal parts of [low, high], numbered from 0."""

    of: Scalar
    low: float
    high: float
    parts: int


@dataclass(frozen=True, slots=True)
class Request:
    """What an engine is asked for: sums of terms by key, or a histogram by key."""

    rows: Select
    keys: tuple[Scalar, ...]
    plan: Plan
    terms: tuple[Term, ...] = ()
    bins: Bins | None = None


def preserves(relation: Relation, name: str) -> bool:
    """Whether each row of the table `name` gives at most one row of this relation, and nothing else does."""
    if isinstance(relation, Base):
        return relation.table == name
    if isinstance(relation, Select):
        return not relation.joins and relation.grouped is None and preserves(relation.first, name)
    return False


class Writer:
    """SQL as DuckDB understands it; other engines change a word here and there."""

    integer, double, text, timestamp = "BIGINT", "DOUBLE", "VARCHAR", "TIMESTAMP"
    registered: str = ""  # the name of the table that carries weights, if there is one

    # ---- words -----------------------------------------------------------------------------------------------------

    def name(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def table(self, name: str) -> str:
        return self.name(name)

    def string(self, value: str) -> str:
        return "'" + value.replace("'", "''").replace("\x00", "") + "'"

    def constant(self, value: Any) -> str:
        if isinstance(value, bool):
            return "TRUE" if value else "FALSE"
        if isinstance(value, int):
            return f"CAST({value} AS {self.integer})"
        if isinstance(value, float):
            exact = repr(value) if "e" in repr(value) else f"{value!r}e0"  # without an exponent it may pass through a decimal
            return f"CAST({exact} AS {self.double})"
        if isinstance(value, datetime):
            return f"TIMESTAMP '{value.replace(tzinfo=None).isoformat(sep=' ')}'"
        if isinstance(value, date):
            return f"DATE '{value.isoformat()}'"
        return self.string(str(value))

    def type(self, kind: str) -> str:
        return {"integer": self.integer, "number": self.double, "text": self.text, "boolean": "BOOLEAN", "date": "DATE",
                "timestamp": self.timestamp}[kind]  # fmt: skip

    def finite(self, text: str) -> str:
        """A double, NULL where it is NaN or infinite."""
        return f"CASE WHEN isfinite({text}) THEN {text} END"

    def clamped(self, text: str, most: float) -> str:
        """A double moved into +-most; NULL stays NULL, and NaN is the most."""
        inner = f"least(greatest({text}, {self.constant(-most)}), {self.constant(most)})"
        return f"CASE WHEN {text} IS NOT NULL THEN {inner} END"

    def rounded(self, text: str) -> str:
        """The nearest whole number, as a double; halves away from zero."""
        return f"round({text})"

    def whole_part(self, text: str) -> str:
        """A double within +-2^62 without what follows its point, as a whole number."""
        return f"CAST(trunc({text}) AS {self.integer})"

    def within(self, text: str, kind: str) -> str:
        """A date or timestamp of the years 1 to 9999, else NULL: dates reach further than timestamps, and than Python."""
        first, last = (date.min, date.max) if kind == "date" else (datetime.min, datetime.max)
        return f"CASE WHEN {text} BETWEEN {self.constant(first)} AND {self.constant(last)} THEN {text} END"

    def matches(self, text: str, pattern: str) -> str:
        return f"regexp_full_match({text}, {self.string(pattern)})"

    def to_whole(self, text: str) -> str:
        """The nearest whole number, halves to even; NULL where it has no 64 bits."""
        return f"TRY_CAST({text} AS {self.integer})"

    def try_cast(self, text: str, kind: str, to: str) -> str:
        """A value of another kind; NULL where it cannot be read."""
        if kind == "text":
            return self.read(self.trimmed(text), to)
        if to == "boolean":
            return f"{text} <> 0"
        if to == "integer":
            return self.to_whole(text)
        if kind == "date" and to == "timestamp":
            return self.sure_cast(self.within(text, kind), to)
        return self.sure_cast(text, to)

    def sure_cast(self, text: str, to: str) -> str:
        """A cast that cannot fail, or is NULL where it does."""
        return f"TRY_CAST({text} AS {self.type(to)})"

    def read(self, text: str, to: str) -> str:
        """What a text says; only what every engine reads alike is read."""
        if to == "boolean":
            yes, no = (", ".join(map(self.string, words)) for words in (YES, NO))
            return f"CASE WHEN lower({text}) IN ({yes}) THEN TRUE WHEN lower({text}) IN ({no}) THEN FALSE END"
        return f"CASE WHEN {self.matches(text, PATTERNS[to])} THEN {self.sure_cast(text, to)} END"

    def trimmed(self, text: str) -> str:
        return f"trim({text}, ' ')"

    def cut(self, text: str) -> str:
        return f"left({text}, {LONGEST_TEXT})"

    def quotient(self, left: str, right: str) -> str:
        return f"({left} / NULLIF({right}, 0.0))"

    def remainder(self, left: str, right: str) -> str:
        return f"({left} % NULLIF({right}, 0.0))"

    def whole_quotient(self, left: str, right: str) -> str:
        return f"({left} // {right})"

    def hash(self, parts: list[str], salt: int) -> str:
        """DuckDB adds the hash of the last part by exclusive or, which would leave the order to a few digits of the salt: the
        outer hash mixes it in."""
        return f"hash(hash({', '.join([*parts, str(salt)])}))"

    def unit(self, table: str, name: str, field: Field) -> str:
        """The column that says whose row it is; different units stay different."""
        return self.name(name)

    def column(self, table: str, name: str, field: Field) -> str:
        """A column of a table as this kind; a number that is none is NULL."""
        text = self.name(name)
        if field.kind == "number":
            return self.finite(f"CAST({text} AS {self.double})")
        return f"TRY_CAST({text} AS {self.type(field.kind)})"

    # ---- one row ---------------------------------------------------------------------------------------------------

    def scalar(self, it: Scalar) -> str:
        if it.op == "column":
            return f"r{it.value[0]}.c{it.value[1]}"
        if it.op == "literal":
            return self.constant(it.value)
        if it.op == "null":
            return f"CAST(NULL AS {self.type(it.kind)})"
        if it.op == "same_unit":
            return f"r{it.value[0]}.u = r{it.value[1]}.u"
        args = [self.scalar(arg) for arg in it.args]
        if it.op in _NUMERIC:
            args = [f"CAST({text} AS {self.double})" if arg.kind == "integer" else text for text, arg in zip(args, it.args)]
        return short(f"({self.operation(it, args)})")

    def operation(self, it: Scalar, args: list[str]) -> str:
        rule = getattr(self, "op_" + it.op, None)
        return _OPERATIONS[it.op](*args) if rule is None else rule(it, args)

    def op_div(self, it: Scalar, args: list[str]) -> str:
        return self.quotient(*args)

    def op_mod(self, it: Scalar, args: list[str]) -> str:
        if any(arg.kind != "integer" for arg in it.args):
            return self.remainder(*args)
        left, right = (f"CAST({self.scalar(arg)} AS {self.integer})" for arg in it.args)
        least = f"CASE WHEN {right} = -1 THEN 0 ELSE {left} % NULLIF({right}, 0) END"  # the least number over -1 overflows
        return f"CAST({least} AS {self.double})"

    def op_and(self, it: Scalar, args: list[str]) -> str:
        return " AND ".join(args)

    def op_or(self, it: Scalar, args: list[str]) -> str:
        return " OR ".join(args)

    def op_coalesce(self, it: Scalar, args: list[str]) -> str:
        return f"coalesce({', '.join(args)})"

    def op_greatest(self, it: Scalar, args: list[str]) -> str:
        return f"greatest({', '.join(args)})"

    def op_least(self, it: Scalar, args: list[str]) -> str:
        return f"least({', '.join(args)})"

    def op_case(self, it: Scalar, args: list[str]) -> str:
        pairs = " ".join(f"WHEN {test} THEN {then}" for test, then in zip(args[:-1:2], args[1:-1:2]))
        return f"CASE {pairs} ELSE {args[-1]} END"

    def op_round(self, it: Scalar, args: list[str]) -> str:
        digits = int(it.value)
        if digits > 20:
            return args[0]
        scale = self.constant(10.0**digits)
        return f"{self.rounded(f'{args[0]} * {scale}')} / {scale}" if digits else self.rounded(args[0])

    def op_sign(self, it: Scalar, args: list[str]) -> str:
        return f"CAST(sign({args[0]}) AS {self.double})"

    def op_trim(self, it: Scalar, args: list[str]) -> str:
        return self.trimmed(args[0])

    def op_substring(self, it: Scalar, args: list[str]) -> str:
        return f"substring({args[0]}, {it.value[0]}, {it.value[1]})"

    def op_concat(self, it: Scalar, args: list[str]) -> str:
        made = self.cut(args[0])
        for part in args[1:]:
            made = self.cut(f"{made} || {self.cut(part)}")
        return made

    def op_like(self, it: Scalar, args: list[str]) -> str:
        return f"{args[0]} LIKE {args[1]}"

    def op_part(self, it: Scalar, args: list[str]) -> str:
        return f"CAST(extract({it.value} FROM {args[0]}) AS {self.integer})"

    def op_days(self, it: Scalar, args: list[str]) -> str:
        return f"CAST({self.days(*(self.within(text, 'date') for text in args))} AS {self.double})"

    def days(self, start: str, end: str) -> str:
        """From one date to another, both within the years 1 to 9999."""
        return f"date_diff('day', {start}, {end})"

    def op_truncate(self, it: Scalar, args: list[str]) -> str:
        return f"CAST(date_trunc('{it.value}', {self.within(args[0], it.args[0].kind)}) AS {self.timestamp})"

    def op_power(self, it: Scalar, args: list[str]) -> str:
        """NULL where the base is negative or the result too large."""
        base, exponent = args
        size = f"{exponent} * ln(CASE WHEN {base} > 0 THEN {base} END)"
        power = f"CASE WHEN {size} BETWEEN -700 AND 700 THEN exp(CASE WHEN {size} BETWEEN -700 AND 700 THEN {size} END) END"
        if it.args[1].op == "literal" and it.args[1].value == 2:
            return f"{base} * {base}"
        return f"CASE WHEN {base} = 0 AND {exponent} > 0 THEN 0.0 ELSE {power} END"

    def op_bucket(self, it: Scalar, args: list[str]) -> str:
        low, high = it.bounds or (0.0, 1.0)
        parts = len(it.value)
        place = self.bin(Bins(it.args[0], low, high, parts))
        lower = f"{self.constant(low)} + {place} * {self.constant(high - low)} / {self.constant(float(parts))}"
        return f"CASE WHEN {args[0]} IS NOT NULL THEN {lower} END"

    def cast(self, it: Scalar, args: list[str]) -> str:
        return self.try_cast(args[0], it.args[0].kind, it.kind)

    op_to_integer = op_to_number = op_to_text = op_to_boolean = op_to_date = op_to_timestamp = cast

    # ---- rows ------------------------------------------------------------------------------------------------------

    def relation(self, it: Relation) -> str:
        if isinstance(it, Base):
            return self.base(it)
        if isinstance(it, Union):
            return short(" UNION ALL ".join(self.relation(part) for part in it.parts))
        columns = [f"{self.gathered(output)} AS c{i}" for i, output in enumerate(it.outputs)]
        if it.private and self._keyed(it):
            columns.append("r0.u AS u")
        if preserves(it, self.registered):
            columns.append("r0.w AS w")
        text = f"SELECT {', '.join(columns)} FROM {self.inputs(it)}"
        if it.grouped is not None:
            keys = ["r0.u", *(self.scalar(key) for key in it.grouped)]
            text += f" GROUP BY {', '.join(dict.fromkeys(keys))}"
        return short(text)

    def _keyed(self, it: Relation) -> bool:
        if isinstance(it, Base):
            return it.unit is not None
        return self._keyed(it.parts[0] if isinstance(it, Union) else it.first)

    def base(self, it: Base) -> str:
        columns = [f"{self.column(it.table, name, field)} AS c{i}" for i, (name, field) in enumerate(zip(it.names, it.fields))]
        if it.unit is not None:
            columns.append(f"{self.unit(it.table, it.names[it.unit], it.fields[it.unit])} AS u")
        if it.table == self.registered:
            columns.append(f"{self.name(WEIGHT)} AS w")
        table = self.table(REGISTERED) if it.table == self.registered else self.table(it.table)
        return f"SELECT {', '.join(columns)} FROM {table}"

    def inputs(self, it: Select, more: str = "") -> str:
        """What the rows are made of, with one more join, if any."""
        text = f"({self.relation(it.first)}) AS r0"
        for i, join in enumerate(it.joins, 1):
            text += f" {self.join_word(join)} ({self.relation(join.relation)}) AS r{i} ON {self.scalar(join.on)}"
        return text + more + (f" WHERE {self.scalar(it.where)}" if it.where is not None else "")

    def join_word(self, join: Join) -> str:
        return "LEFT JOIN" if join.keep else "JOIN"

    def gathered(self, it: Scalar) -> str:
        if it.op not in _GATHERED:
            return self.scalar(it)
        inner = [self.scalar(arg) for arg in it.args]
        if it.op == "count_of":
            return f"CAST(count({inner[0] if inner else '*'}) AS {self.integer})"
        number = f"CAST({inner[0]} AS {self.double})"
        if it.op == "sum_of":
            return self.exact_sum(number)
        if it.op == "avg_of":
            return f"{self.exact_sum(number)} / NULLIF(CAST(count({number}) AS {self.double}), {self.constant(0.0)})"
        return f"{_GATHERED[it.op]}({number})"

    def exact_sum(self, text: str) -> str:
        """The sum of doubles in whole numbers: added as doubles, it would depend on the order of the rows, and so on those of
        others (Casacuberta et al., Widespread Underestimation of Sensitivity, 2022)."""
        near = self.clamped(text, FURTHEST)
        whole = self.whole_part(near)
        rest = f"CAST({self.rounded(f'({near} - CAST({whole} AS {self.double})) * {self.constant(FINE)}')} AS {self.integer})"
        parts = [f"CAST({self.total(part)} AS {self.double})" for part in (whole, rest)]
        return f"(CASE WHEN count({text}) > 0 THEN {parts[0]} + {parts[1]} / {self.constant(FINE)} END)"

    # ---- what leaves the engine --------------------------------------------------------------------------------------

    def tame(self, text: str) -> str:
        """A double that arithmetic cannot make fail; most engines know infinity and zero instead."""
        return text

    def key(self, it: Scalar) -> str:
        """A group key; what Python's dates do not reach is NULL, and so is what is no number."""
        text = self.scalar(it)
        if it.kind == "number" and it.op != "column":
            return self.finite(text)
        return self.within(text, it.kind) if it.kind in ("date", "timestamp") else text

    def term(self, it: Term) -> str:
        """A whole number for each row, never NULL, of magnitude at most it.most."""
        if it.of is None:
            return "1"
        text = self.scalar(it.of)
        if it.kind == "known":
            return f"CASE WHEN {text} IS NULL THEN 0 ELSE {it.most} END"
        if it.kind == "outside":
            low, high = (self.constant(float(end)) for end in it.of.bounds or (0.0, 0.0))
            return f"CASE WHEN {text} < {low} OR {text} > {high} THEN {it.most} ELSE 0 END"
        number = self.tame(f"CAST({text} AS {self.double})")
        if it.kind == "square":
            number = f"(({number} - {self.constant(it.centre)}) * ({number} - {self.constant(it.centre)}))"
            centred = f"{number} / {self.constant(it.step)} - {self.constant(float(it.most))}"
        else:
            centred = f"({number} - {self.constant(it.centre)}) / {self.constant(it.step)}"
        most = float(it.most)
        near = f"least(greatest({centred}, {self.constant(-most)}), {self.constant(most)})"
        return f"CASE WHEN {text} IS NULL THEN 0 ELSE CAST({self.rounded(near)} AS {self.integer}) END"

    def bin(self, it: Bins) -> str:
        """The number of the part a value falls into; values outside fall into the first and the last."""
        number = self.tame(f"CAST({self.scalar(it.of)} AS {self.double})")
        place = f"({number} - {self.constant(it.low)}) * {self.constant(it.parts / (it.high - it.low))}"
        near = f"least(greatest({place}, {self.constant(0.0)}), {self.constant(it.parts - 1.0)})"
        return f"CAST(floor({near}) AS {self.integer})"

    def total(self, text: str) -> str:
        """An exact sum of whole numbers, within +-2^62; that of no rows is 0, as if it were of others."""
        return f"CAST(least(greatest(coalesce(sum({text}), 0), -{1 << 62}), {1 << 62}) AS {self.integer})"

    def added(self, text: str) -> str:
        """A sum over sampled units, as it leaves the engine."""
        return self.total(text)

    def rows(self, it: Request, *, unit: bool, terms: bool, join: str = "", where: str = "") -> str:
        """The rows as they are counted: u, k0 …, t0 … (and w); of some only, if they are joined and chosen."""
        columns = ["r0.u AS u"] if unit else []
        if terms:
            columns += [f"{self.key(key)} AS k{i}" for i, key in enumerate(it.keys)]
            columns += [f"{self.term(term)} AS t{i}" for i, term in enumerate(it.terms)]
            columns += [f"{self.bin(it.bins)} AS b"] if it.bins else []
            columns += ["r0.w AS w"] if it.plan.kind == "registered" else []
        conditions = ["r0.u IS NOT NULL"] if self._keyed(it.rows) else []
        if it.bins:
            conditions.append(f"{self.scalar(it.bins.of)} IS NOT NULL")
        conditions += [where] if where else []
        text = f"SELECT {', '.join(columns) or '1 AS one'} FROM {self.inputs(it.rows, join)}"
        if conditions:
            text += (" WHERE " if it.rows.where is None else " AND ") + " AND ".join(conditions)
        return text

    def request(self, it: Request, salt: int) -> str:
        """One aggregation: columns k0 …, then b for a histogram, then whole numbers t0 … (and units, if sampled)."""
        return getattr(self, "plan_" + it.plan.kind)(it, salt)  # type: ignore[no-any-return]

    def _by_key(self, it: Request, source: str, weight: str) -> str:
        keys = [f"k{i}" for i in range(len(it.keys))] + (["b"] if it.bins else [])
        weighed = [self.weighed(f"t{i}", self.below_whole(weight) if term.kind == "cut" else weight)
                   for i, term in enumerate(it.terms)] if not it.bins else [self.weighed("1", weight)]  # fmt: skip
        sums = [f"{self.total(text)} AS s{i}" for i, text in enumerate(weighed)]
        by = f" GROUP BY {', '.join(keys)}" if keys else ""
        return f"SELECT {', '.join([*keys, *sums])} FROM {source}{by}"

    def weighed(self, term: str, weight: str) -> str:
        return term if not weight else weight if term == "1" else f"{weight} * {term}"

    def below_whole(self, weight: str) -> str:
        """The weight, 0 where it is that of a whole row."""
        return f"(CASE WHEN {weight} < {self.constant(SCALE)} THEN {weight} ELSE 0 END)"

    def plan_rows(self, it: Request, salt: int) -> str:
        return self._by_key(it, f"({self.rows(it, unit=False, terms=True)}) AS x", "")

    def plan_registered(self, it: Request, salt: int) -> str:
        return self._by_key(it, f"({self.rows(it, unit=False, terms=True)}) AS x", f"CAST(w AS {self.integer})")

    def weight_of_units(self, rows: str, most: int) -> str:
        share = self.whole_quotient(self.constant(most * SCALE), "count(*)")
        return f"SELECT u, least({self.constant(SCALE)}, {share}) AS w FROM ({rows}) AS y GROUP BY u"

    def plan_weighted(self, it: Request, salt: int) -> str:
        weights = self.weight_of_units(self.rows(it, unit=True, terms=False), it.plan.rows)
        source = f"({self.rows(it, unit=True, terms=True)}) AS x JOIN ({weights}) AS n ON x.u = n.u"
        return self._by_key(it, source, "n.w")

    def plan_sampled(self, it: Request, salt: int) -> str:
        """At most `groups` groups of each unit, by a hash that is fresh for every query and differs between units."""
        if it.bins:
            return self._sampled_bins(it, salt)
        keys = [f"k{i}" for i in range(len(it.keys))]
        each = it.plan.each
        capped = [f"CASE WHEN n > {each} THEN 1 ELSE 0 END AS t{i}" if term.kind == "cut" else
                  f"{self.capped(f't{i}', each)} AS t{i}" for i, term in enumerate(it.terms)]  # fmt: skip
        kept = self.kept_pairs(it, salt)
        inner = f"SELECT {', '.join([*keys, *capped, '1 AS one'])} FROM ({kept}) AS z"
        sums = [f"{self.added(f't{i}')} AS s{i}" for i in range(len(it.terms))]
        by = f" GROUP BY {', '.join(keys)}" if keys else ""
        sums.append(f"{self.added('one')} AS units")
        return f"SELECT {', '.join([*keys, *sums])} FROM ({inner}) AS v{by}"

    def capped(self, term: str, each: int) -> str:
        most = (1 << 62) // each  # the product stays within 64 bits, whatever one unit holds
        near = f"least(greatest({term}, {self.constant(-most)}), {self.constant(most)})"
        share = self.whole_quotient(f"({near} * {self.constant(each)})", "n")
        return f"CASE WHEN n > {each} THEN {share} ELSE {term} END"

    def kept_pairs(self, it: Request, salt: int) -> str:
        """Per unit and group kept: its number of rows n and its sums t0 …"""
        keys = [f"k{i}" for i in range(len(it.keys))]
        sums = [f"CAST(sum(t{i}) AS {self.integer}) AS t{i}" for i in range(len(it.terms))]
        by = ", ".join(["u", *keys])
        chance = self.hash(["u", *keys], salt)
        columns = ", ".join(["u", *keys, *sums, "count(*) AS n", f"{chance} AS h"])
        pairs = f"SELECT {columns} FROM ({self.rows(it, unit=True, terms=True)}) AS x GROUP BY {by}"
        if not keys:
            return pairs
        place = f"row_number() OVER (PARTITION BY u ORDER BY {', '.join(['h', *keys])})"
        return f"SELECT * FROM (SELECT *, {place} AS place FROM ({pairs}) AS p) AS q WHERE place <= {it.plan.groups}"

    def _sampled_bins(self, it: Request, salt: int) -> str:
        plain = Request(it.rows, it.keys, it.plan)
        keys = [f"k{i}" for i in range(len(it.keys))]
        weight = f"least({self.constant(SCALE)}, {self.whole_quotient(self.constant(it.plan.each * SCALE), 'n')})"
        kept = f"SELECT u, {''.join(f'{key}, ' for key in keys)}{weight} AS w FROM ({self.kept_pairs(plain, salt)}) AS z"
        same = " AND ".join(["x.u = n.u", *(f"x.{key} IS NOT DISTINCT FROM n.{key}" for key in keys)])
        rows = f"({self.rows(it, unit=True, terms=True)}) AS x JOIN ({kept}) AS n ON {same}"
        columns = [f"x.{key}" for key in keys] + ["x.b"]
        return f"SELECT {', '.join(columns)}, {self.added('n.w')} AS s0 FROM {rows} GROUP BY {', '.join(columns)}"


def short(text: str) -> str:
    """The text, or a refusal where expressions inside one another have grown beyond what is sane."""
    if len(text) > LONGEST:
        raise InvalidQuery(
            f"The query grows to more than {LONGEST:,} letters for the engine. Write it flatter, or ask its parts."
        )
    return text


WEIGHT = "discreet weight"
REGISTERED = "discreet registered"

YES, NO = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")
_YEAR = "([0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
_LEAP = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
_DAY = (
    f"({_YEAR}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
    f"|{_LEAP}-02-29)"
)
PATTERNS = {  # what texts are read as, alike in every engine: no backslash, no look-ahead
    "integer": "[+-]?[0-9]{1,18}",
    "number": "[+-]?([0-9]{1,40}([.][0-9]{0,40})?|[.][0-9]{1,40})([eE][+-]?[0-9]{1,2})?",
    "date": _DAY,
    "timestamp": f"{_DAY}([ T]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{{1,6}})?)?)?",
}

_NUMERIC = {"add", "sub", "mul", "div", "mod", "power", "neg", "abs", "sqrt", "exp", "ln", "floor", "ceil", "sign", "round",
            "greatest", "least"}  # fmt: skip
_GATHERED = {"sum_of": "sum", "avg_of": "avg", "min_of": "min", "max_of": "max", "count_of": "count"}
_OPERATIONS: dict[str, Callable[..., str]] = {
    "add": "{} + {}".format, "sub": "{} - {}".format, "mul": "{} * {}".format, "neg": "-({})".format,
    "abs": "abs({})".format, "floor": "floor({})".format, "ceil": "ceil({})".format,
    "sqrt": lambda x: f"sqrt(CASE WHEN {x} >= 0 THEN {x} END)",
    "ln": lambda x: f"ln(CASE WHEN {x} > 0 THEN {x} END)",
    "exp": lambda x: f"exp(CASE WHEN {x} BETWEEN -700 AND 700 THEN {x} WHEN {x} < -700 THEN -700.0 END)",
    "eq": "{} = {}".format, "ne": "{} <> {}".format, "lt": "{} < {}".format, "le": "{} <= {}".format, "gt": "{} > {}".format,
    "ge": "{} >= {}".format, "not": "NOT {}".format, "is_null": "{} IS NULL".format,
    "truth": lambda x: f"CASE WHEN {x} THEN 1 WHEN NOT {x} THEN 0 END",
    "lower": "lower({})".format, "upper": "upper({})".format, "length": "length({})".format,
}  # fmt: skip
