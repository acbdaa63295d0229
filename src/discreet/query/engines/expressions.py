"""Expressions over one row as SQL: every engine renders the same closed set of operations in its dialect.

An operation is a method `op_…` or an entry of the table at the end. No value in a row may raise an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime
from typing import Any

from discreet.errors import InvalidQuery
from discreet.query.engines.request import Bins, Term
from discreet.query.engines.stored import DOUBLE, TEXT, WHOLE, WIDE
from discreet.query.operations import GATHERING, MOMENTS, NUMBERS, Kind, Op, TermKind
from discreet.query.tree import Field, Scalar

LONGEST = 1 << 20  # letters of SQL for one expression or one relation
LONGEST_TEXT = 1 << 16  # letters of a text that is put together: engines fail on texts that grow without end


class Expressions:
    """DuckDB's dialect; other engines override what differs."""

    integer, double, text, timestamp = "BIGINT", "DOUBLE", "VARCHAR", "TIMESTAMP"

    # ---- dialect ---------------------------------------------------------------------------------------------------

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
        """A text parsed as another kind: only formats that every engine parses alike."""
        if to == Kind.BOOLEAN:
            yes, no = (", ".join(map(self.string, words)) for words in (YES, NO))
            return f"CASE WHEN lower({text}) IN ({yes}) THEN TRUE WHEN lower({text}) IN ({no}) THEN FALSE END"
        plain = f"split_part({text}, {self.string('.')}, 1)" if to == Kind.INTEGER else text
        return f"CASE WHEN {self.matches(text, PATTERNS[to])} THEN {self.sure_cast(plain, to)} END"

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

    def binary(self, text: str) -> str:
        """A text that is compared byte by byte, whatever the collation of its column or of the database is."""
        return f'({text} COLLATE "binary")'

    def digits(self, text: str) -> str:
        """A whole number of any length, in decimal digits: the same for the same number, of whatever type."""
        return f"CAST({text} AS {self.text})"

    def unit(self, table: str, name: str, field: Field) -> str:
        """The column that says whose row it is, as it is compared in all tables; different units stay different."""
        text = self.name(name) if field.stored is None else self.declared(table, name, field)
        if field.compared == WHOLE:
            return f"CAST({text} AS {self.integer})"
        if field.compared == WIDE:
            return self.binary(self.digits(text))
        if field.compared == DOUBLE:
            return self.finite(f"(CAST({text} AS {self.double}) + {self.constant(0.0)})")
        return self.binary(f"CAST({text} AS {self.text})") if field.compared == TEXT else text

    def column(self, table: str, name: str, field: Field) -> str:
        """A column of a table as this kind; NaN is NULL."""
        text = self.name(name)
        if field.kind == Kind.NUMBER:
            return self.finite(f"CAST({text} AS {self.double})")
        cast = f"TRY_CAST({text} AS {self.type(field.kind)})"
        return self.binary(cast) if field.kind == Kind.TEXT else cast

    def declared(self, table: str, name: str, field: Field) -> str:
        """A column as the schema declares it, whatever the engine stores; NULL where a value does not fit."""
        if field.stored is None:
            return self.column(table, name, field)
        cast = self.try_cast(self.column(table, name, Field(field.stored)), field.stored, field.kind)
        return self.binary(cast) if field.kind == Kind.TEXT else f"({cast})"

    # ---- one row ---------------------------------------------------------------------------------------------------

    def scalar(self, expression: Scalar) -> str:
        if expression.op == Op.COLUMN:
            return f"r{expression.value[0]}.c{expression.value[1]}"
        if expression.op == Op.LITERAL:
            return self.constant(expression.value)
        if expression.op == Op.NULL:
            return f"CAST(NULL AS {self.type(expression.kind)})"
        if expression.op == Op.SAME_UNIT:
            return f"r{expression.value[0]}.u = r{expression.value[1]}.u"
        args = [self.scalar(arg) for arg in expression.args]
        if expression.op in _NUMERIC:
            whole = [arg.kind == Kind.INTEGER for arg in expression.args]
            args = [f"CAST({text} AS {self.double})" if cast else text for text, cast in zip(args, whole)]
        elif expression.op in _COMPARED and Kind.TEXT in (arg.kind for arg in expression.args):
            args = [self.binary(text) for text in args]
        elif expression.op in _COMPARED and len({arg.kind for arg in expression.args}) > 1:
            args = [
                f"CAST({text} AS {self.double})" if arg.kind in NUMBERS else text for text, arg in zip(args, expression.args)
            ]
        return short(f"({self.operation(expression, args)})")

    def grouped(self, expression: Scalar) -> str:
        """What rows are grouped by: texts that are computed are compared byte by byte, as those of columns are."""
        text = self.scalar(expression)
        return self.binary(text) if expression.kind == Kind.TEXT and expression.op != Op.COLUMN else text

    def operation(self, expression: Scalar, args: list[str]) -> str:
        rule = getattr(self, f"op_{expression.op}", None)
        return _OPERATIONS[expression.op](*args) if rule is None else rule(expression, args)

    def op_div(self, expression: Scalar, args: list[str]) -> str:
        return self.quotient(*args)

    def op_mod(self, expression: Scalar, args: list[str]) -> str:
        if any(arg.kind != Kind.INTEGER for arg in expression.args):
            return self.remainder(*args)
        left, right = (f"CAST({self.scalar(arg)} AS {self.integer})" for arg in expression.args)
        least = (
            f"CASE WHEN {right} = -1 THEN {left} * 0 ELSE {left} % NULLIF({right}, 0) END"  # the least number over -1 overflows
        )
        return f"CAST({least} AS {self.double})"

    def op_and(self, expression: Scalar, args: list[str]) -> str:
        return " AND ".join(args)

    def op_or(self, expression: Scalar, args: list[str]) -> str:
        return " OR ".join(args)

    def op_coalesce(self, expression: Scalar, args: list[str]) -> str:
        return f"coalesce({', '.join(args)})"

    def op_greatest(self, expression: Scalar, args: list[str]) -> str:
        return f"greatest({', '.join(args)})"

    def op_least(self, expression: Scalar, args: list[str]) -> str:
        return f"least({', '.join(args)})"

    def op_case(self, expression: Scalar, args: list[str]) -> str:
        pairs = " ".join(f"WHEN {test} THEN {then}" for test, then in zip(args[:-1:2], args[1:-1:2]))
        return f"CASE {pairs} ELSE {args[-1]} END"

    def op_round(self, expression: Scalar, args: list[str]) -> str:
        digits = int(expression.value)
        if digits > 20:
            return args[0]
        scale = self.constant(10.0**digits)
        return f"{self.rounded(f'{args[0]} * {scale}')} / {scale}" if digits else self.rounded(args[0])

    def op_sign(self, expression: Scalar, args: list[str]) -> str:
        return f"CAST(sign({args[0]}) AS {self.double})"

    def op_trim(self, expression: Scalar, args: list[str]) -> str:
        return self.trimmed(args[0])

    def op_substring(self, expression: Scalar, args: list[str]) -> str:
        return f"substring({args[0]}, {expression.value[0]}, {expression.value[1]})"

    def op_concat(self, expression: Scalar, args: list[str]) -> str:
        joined = self.cut(args[0])
        for part in args[1:]:
            joined = self.cut(f"{joined} || {self.cut(part)}")
        return joined

    def op_like(self, expression: Scalar, args: list[str]) -> str:
        return f"{args[0]} LIKE {args[1]}"

    def op_part(self, expression: Scalar, args: list[str]) -> str:
        return f"CAST(extract({expression.value} FROM {args[0]}) AS {self.integer})"

    def op_days(self, expression: Scalar, args: list[str]) -> str:
        return f"CAST({self.days(*(self.within(text, Kind.DATE) for text in args))} AS {self.double})"

    def days(self, start: str, end: str) -> str:
        """From one date to another, both within the years 1 to 9999."""
        return f"date_diff('day', {start}, {end})"

    def op_truncate(self, expression: Scalar, args: list[str]) -> str:
        return f"CAST(date_trunc('{expression.value}', {self.within(args[0], expression.args[0].kind)}) AS {self.timestamp})"

    def op_power(self, expression: Scalar, args: list[str]) -> str:
        """NULL where the result is too large, or the base negative and the exponent no whole number that is written out."""
        base, exponent = args
        known = expression.args[1].value if expression.args[1].op == Op.LITERAL else math.nan
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

    def op_bucket(self, expression: Scalar, args: list[str]) -> str:
        low, high = expression.bounds or (0.0, 1.0)
        parts = len(expression.value)
        place = self.bin(Bins(expression.args[0], low, high, parts))
        lower = f"{self.constant(low)} + {place} * {self.constant(high - low)} / {self.constant(float(parts))}"
        return f"CASE WHEN {args[0]} IS NOT NULL THEN {lower} END"

    def cast(self, expression: Scalar, args: list[str]) -> str:
        return self.try_cast(args[0], expression.args[0].kind, expression.kind)

    op_to_integer = op_to_number = op_to_text = op_to_boolean = op_to_date = op_to_timestamp = cast

    # ---- what is counted of one row -----------------------------------------------------------------------------------

    def tame(self, text: str) -> str:
        """A double that arithmetic cannot overflow; only engines without infinity change it."""
        return text

    def key(self, expression: Scalar) -> str:
        """A group key; NULL for dates outside Python's range and for NaN."""
        text = self.grouped(expression)
        if expression.kind == Kind.NUMBER and expression.op != Op.COLUMN:
            return self.finite(text)
        return self.within(text, expression.kind) if expression.kind in MOMENTS else text

    def term(self, term: Term) -> str:
        """A whole number for each row, never NULL, of magnitude at most `term.most`."""
        if term.of is None:
            return "1"
        text = self.scalar(term.of)
        if term.kind == TermKind.KNOWN:
            return f"CASE WHEN {text} IS NULL THEN 0 ELSE {term.most} END"
        if term.kind == TermKind.OUTSIDE:
            low, high = (self.constant(float(end)) for end in term.of.bounds or (0.0, 0.0))
            return f"CASE WHEN {text} < {low} OR {text} > {high} THEN {term.most} ELSE 0 END"
        number = self.tame(f"CAST({text} AS {self.double})")
        if term.kind == TermKind.SQUARE:
            number = f"(({number} - {self.constant(term.centre)}) * ({number} - {self.constant(term.centre)}))"
            centred = f"{number} / {self.constant(term.step)} - {self.constant(float(term.most))}"
        else:
            centred = f"({number} - {self.constant(term.centre)}) / {self.constant(term.step)}"
        most = float(term.most)
        near = f"least(greatest({centred}, {self.constant(-most)}), {self.constant(most)})"
        return f"CASE WHEN {text} IS NULL THEN 0 ELSE CAST({self.rounded(near)} AS {self.integer}) END"

    def bin(self, bins: Bins) -> str:
        """The number of the part a value falls into; values outside fall into the first and the last."""
        number = self.tame(f"CAST({self.scalar(bins.of)} AS {self.double})")
        place = f"({number} - {self.constant(bins.low)}) * {self.constant(bins.parts / (bins.high - bins.low))}"
        near = f"least(greatest({place}, {self.constant(0.0)}), {self.constant(bins.parts - 1.0)})"
        return f"CAST(floor({near}) AS {self.integer})"


def short(text: str) -> str:
    """The text; refused where nested expressions made it too long."""
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
    Kind.INTEGER: "[+-]?[0-9]{1,18}([.]0{0,40})?",  # pandas writes 45.0 where some are missing
    Kind.NUMBER: "[+-]?([0-9]{1,40}([.][0-9]{0,40})?|[.][0-9]{1,40})([eE][+-]?[0-9]{1,2})?",
    Kind.DATE: _DAY,
    Kind.TIMESTAMP: f"{_DAY}([ T]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{{1,6}})?)?)?",
}

_NUMERIC = {Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MOD, Op.POWER, Op.NEG, Op.ABS, Op.SQRT, Op.EXP, Op.LN, Op.LOG2, Op.LOG10,
            Op.FLOOR, Op.CEIL, Op.SIGN, Op.ROUND, Op.GREATEST, Op.LEAST}  # fmt: skip
_COMPARED = {Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE}
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
