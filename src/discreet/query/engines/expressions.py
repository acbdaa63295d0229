"""Expressions over one row as SQL: every engine writes the same closed table of operations in its own words.

An operation is a method `op_…` or a line of the table at the end; no value in a row may make one fail.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime
from typing import Any

from discreet.errors import InvalidQuery
from discreet.query.engines.request import Bins, Term
from discreet.query.operations import GATHERING, MOMENTS, Kind, Op, TermKind
from discreet.query.tree import Field, Scalar

LONGEST = 1 << 20  # letters of SQL for one expression or one relation
LONGEST_TEXT = 1 << 16  # letters of a text that is put together: engines fail on texts that grow without end


class Expressions:
    """SQL as DuckDB understands it; other engines change a word here and there."""

    integer, double, text, timestamp = "BIGINT", "DOUBLE", "VARCHAR", "TIMESTAMP"

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

    def type(self, kind: Kind) -> str:
        return {Kind.INTEGER: self.integer, Kind.NUMBER: self.double, Kind.TEXT: self.text, Kind.BOOLEAN: "BOOLEAN",
                Kind.DATE: "DATE", Kind.TIMESTAMP: self.timestamp}[kind]  # fmt: skip

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

    def within(self, text: str, kind: Kind) -> str:
        """A date or timestamp of the years 1 to 9999, else NULL: dates reach further than timestamps, and than Python."""
        first, last = (date.min, date.max) if kind == Kind.DATE else (datetime.min, datetime.max)
        return f"CASE WHEN {text} BETWEEN {self.constant(first)} AND {self.constant(last)} THEN {text} END"

    def matches(self, text: str, pattern: str) -> str:
        return f"regexp_full_match({text}, {self.string(pattern)})"

    def to_whole(self, text: str) -> str:
        """The nearest whole number, halves to even; NULL where it has no 64 bits."""
        return f"TRY_CAST({text} AS {self.integer})"

    def try_cast(self, text: str, kind: Kind, to: Kind) -> str:
        """A value of another kind; NULL where it cannot be read."""
        if kind == Kind.TEXT:
            return self.read(self.trimmed(text), to)
        if to == Kind.BOOLEAN:
            return f"{text} <> 0"
        if to == Kind.INTEGER:
            return self.to_whole(text)
        if kind == Kind.DATE and to == Kind.TIMESTAMP:
            return self.sure_cast(self.within(text, kind), to)
        return self.sure_cast(text, to)

    def sure_cast(self, text: str, to: Kind) -> str:
        """A cast that cannot fail, or is NULL where it does."""
        return f"TRY_CAST({text} AS {self.type(to)})"

    def read(self, text: str, to: Kind) -> str:
        """What a text says; only what every engine reads alike is read."""
        if to == Kind.BOOLEAN:
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
        if field.kind == Kind.NUMBER:
            return self.finite(f"CAST({text} AS {self.double})")
        return f"TRY_CAST({text} AS {self.type(field.kind)})"

    # ---- one row ---------------------------------------------------------------------------------------------------

    def scalar(self, it: Scalar) -> str:
        if it.op == Op.COLUMN:
            return f"r{it.value[0]}.c{it.value[1]}"
        if it.op == Op.LITERAL:
            return self.constant(it.value)
        if it.op == Op.NULL:
            return f"CAST(NULL AS {self.type(it.kind)})"
        if it.op == Op.SAME_UNIT:
            return f"r{it.value[0]}.u = r{it.value[1]}.u"
        args = [self.scalar(arg) for arg in it.args]
        if it.op in _NUMERIC:
            args = [f"CAST({text} AS {self.double})" if arg.kind == Kind.INTEGER else text for text, arg in zip(args, it.args)]
        return short(f"({self.operation(it, args)})")

    def operation(self, it: Scalar, args: list[str]) -> str:
        rule = getattr(self, f"op_{it.op}", None)
        return _OPERATIONS[it.op](*args) if rule is None else rule(it, args)

    def op_div(self, it: Scalar, args: list[str]) -> str:
        return self.quotient(*args)

    def op_mod(self, it: Scalar, args: list[str]) -> str:
        if any(arg.kind != Kind.INTEGER for arg in it.args):
            return self.remainder(*args)
        left, right = (f"CAST({self.scalar(arg)} AS {self.integer})" for arg in it.args)
        least = (
            f"CASE WHEN {right} = -1 THEN {left} * 0 ELSE {left} % NULLIF({right}, 0) END"  # the least number over -1 overflows
        )
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
        return f"CAST({self.days(*(self.within(text, Kind.DATE) for text in args))} AS {self.double})"

    def days(self, start: str, end: str) -> str:
        """From one date to another, both within the years 1 to 9999."""
        return f"date_diff('day', {start}, {end})"

    def op_truncate(self, it: Scalar, args: list[str]) -> str:
        return f"CAST(date_trunc('{it.value}', {self.within(args[0], it.args[0].kind)}) AS {self.timestamp})"

    def op_power(self, it: Scalar, args: list[str]) -> str:
        """NULL where the result is too large, or the base negative and the exponent no whole number that is written out."""
        base, exponent = args
        known = it.args[1].value if it.args[1].op == Op.LITERAL else math.nan
        if known == 2:
            return f"{base} * {base}"
        whole = float(known).is_integer()
        near = f"CASE WHEN {base} <> 0 THEN abs({base}) END" if whole else f"CASE WHEN {base} > 0 THEN {base} END"
        size = f"{exponent} * ln({near})"
        power = f"CASE WHEN {size} BETWEEN -700 AND 700 THEN exp(CASE WHEN {size} BETWEEN -700 AND 700 THEN {size} END) END"
        if whole and known % 2:
            power = f"CASE WHEN {base} < 0 THEN -1.0 ELSE 1.0 END * {power}"
        one = f"{exponent} = 0 AND {base} IS NOT NULL"
        return f"CASE WHEN {base} = 0 AND {exponent} > 0 THEN 0.0 WHEN {one} THEN 1.0 ELSE {power} END"

    def op_bucket(self, it: Scalar, args: list[str]) -> str:
        low, high = it.bounds or (0.0, 1.0)
        parts = len(it.value)
        place = self.bin(Bins(it.args[0], low, high, parts))
        lower = f"{self.constant(low)} + {place} * {self.constant(high - low)} / {self.constant(float(parts))}"
        return f"CASE WHEN {args[0]} IS NOT NULL THEN {lower} END"

    def cast(self, it: Scalar, args: list[str]) -> str:
        return self.try_cast(args[0], it.args[0].kind, it.kind)

    op_to_integer = op_to_number = op_to_text = op_to_boolean = op_to_date = op_to_timestamp = cast

    # ---- what is counted of one row -----------------------------------------------------------------------------------

    def tame(self, text: str) -> str:
        """A double that arithmetic cannot make fail; most engines know infinity and zero instead."""
        return text

    def key(self, it: Scalar) -> str:
        """A group key; what Python's dates do not reach is NULL, and so is what is no number."""
        text = self.scalar(it)
        if it.kind == Kind.NUMBER and it.op != Op.COLUMN:
            return self.finite(text)
        return self.within(text, it.kind) if it.kind in MOMENTS else text

    def term(self, it: Term) -> str:
        """A whole number for each row, never NULL, of magnitude at most it.most."""
        if it.of is None:
            return "1"
        text = self.scalar(it.of)
        if it.kind == TermKind.KNOWN:
            return f"CASE WHEN {text} IS NULL THEN 0 ELSE {it.most} END"
        if it.kind == TermKind.OUTSIDE:
            low, high = (self.constant(float(end)) for end in it.of.bounds or (0.0, 0.0))
            return f"CASE WHEN {text} < {low} OR {text} > {high} THEN {it.most} ELSE 0 END"
        number = self.tame(f"CAST({text} AS {self.double})")
        if it.kind == TermKind.SQUARE:
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


def short(text: str) -> str:
    """The text, or a refusal where expressions inside one another have grown beyond what is sane."""
    if len(text) > LONGEST:
        raise InvalidQuery(
            f"The query grows to more than {LONGEST:,} letters for the engine. Write it flatter, or ask its parts."
        )
    return text


YES, NO = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")
_YEAR = "([0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
_LEAP = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
_DAY = (
    f"({_YEAR}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
    f"|{_LEAP}-02-29)"
)
PATTERNS = {  # what texts are read as, alike in every engine: no backslash, no look-ahead
    Kind.INTEGER: "[+-]?[0-9]{1,18}",
    Kind.NUMBER: "[+-]?([0-9]{1,40}([.][0-9]{0,40})?|[.][0-9]{1,40})([eE][+-]?[0-9]{1,2})?",
    Kind.DATE: _DAY,
    Kind.TIMESTAMP: f"{_DAY}([ T]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{{1,6}})?)?)?",
}

_NUMERIC = {Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MOD, Op.POWER, Op.NEG, Op.ABS, Op.SQRT, Op.EXP, Op.LN, Op.LOG2, Op.LOG10,
            Op.FLOOR, Op.CEIL, Op.SIGN, Op.ROUND, Op.GREATEST, Op.LEAST}  # fmt: skip
_OPERATIONS: dict[Op, Callable[..., str]] = {
    Op.ADD: "{} + {}".format, Op.SUB: "{} - {}".format, Op.MUL: "{} * {}".format, Op.NEG: "-({})".format,
    Op.ABS: "abs({})".format, Op.FLOOR: "floor({})".format, Op.CEIL: "ceil({})".format,
    Op.SQRT: lambda x: f"sqrt(CASE WHEN {x} >= 0 THEN {x} END)",
    Op.LN: lambda x: f"ln(CASE WHEN {x} > 0 THEN {x} END)",
    Op.LOG2: lambda x: f"log2(CASE WHEN {x} > 0 THEN {x} END)",
    Op.LOG10: lambda x: f"log10(CASE WHEN {x} > 0 THEN {x} END)",
    Op.EXP: lambda x: f"exp(CASE WHEN {x} BETWEEN -700 AND 700 THEN {x} WHEN {x} < -700 THEN -700.0 END)",
    Op.EQ: "{} = {}".format, Op.NE: "{} <> {}".format, Op.LT: "{} < {}".format, Op.LE: "{} <= {}".format,
    Op.GT: "{} > {}".format, Op.GE: "{} >= {}".format, Op.NOT: "NOT {}".format, Op.IS_NULL: "{} IS NULL".format,
    Op.TRUTH: lambda x: f"CASE WHEN {x} THEN 1 WHEN NOT {x} THEN 0 END",
    Op.LOWER: "lower({})".format, Op.UPPER: "upper({})".format, Op.LENGTH: "length({})".format,
}  # fmt: skip

_READ = (Op.COLUMN, Op.LITERAL, Op.NULL, Op.SAME_UNIT)  # by Expressions.scalar itself


def unwritten(writer: type) -> list[Op]:
    """The operations on one row for which a writer has no SQL."""
    return [op for op in Op if op not in (*_OPERATIONS, *_READ, *GATHERING) and not hasattr(writer, f"op_{op}")]


if unwritten(Expressions):
    raise TypeError(f"No SQL is written for {', '.join(unwritten(Expressions))}. Add a line to _OPERATIONS or a method op_….")
