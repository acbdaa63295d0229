"""PostgreSQL: aggregation stays on the server, in transactions that can only read.

PostgreSQL raises an error where others know infinity: on an overflow, an underflow, a root of a negative number, a text that
is no number. Such an error would tell what is in a row, so everything here is written such that none can occur.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from discreet.errors import EngineFailed, EngineUnreachable, InvalidValue, MissingExtra
from discreet.query.engines.expressions import LONGEST_TEXT, short
from discreet.query.engines.pgcatalogue import CATALOGUE, kind_of, rule_of
from discreet.query.engines.request import SCALE, Marginals, Request, columns_of
from discreet.query.engines.stored import NO_RULE, Stored
from discreet.query.engines.writer import REGISTERED, WEIGHT, Writer
from discreet.query.operations import Kind, Op
from discreet.query.tree import Base, Field, Relation, Scalar, Select, Union, bases

HUGE = 1e100  # factors beyond are moved here, so that no product overflows
TINY = 1e-54  # added and taken away again, it leaves 0 of what is below 1e-70, so that no product underflows
BELOW_ZERO = -5e-324  # the greatest double below 0
ABOVE_700 = 700.0000000000001  # the least double above 700


class PostgresWriter(Writer):
    """PostgreSQL's dialect. The strict functions float8larger and float8smaller keep NULL, where greatest and least drop it."""

    double, text = "DOUBLE PRECISION", "TEXT"

    def __init__(self) -> None:
        self.places: dict[str, str] = {}  # table -> where it is
        self.types: dict[tuple[str, str], str] = {}  # (table, column) -> PostgreSQL's name of its type

    # ---- dialect ---------------------------------------------------------------------------------------------------

    def table(self, name: str) -> str:
        return f"pg_temp.{self.name(name)}" if name == REGISTERED else self.places.get(name, self.name(name))

    def constant(self, value: Any) -> str:
        return f"CAST({super().constant(value)} AS TEXT)" if isinstance(value, str) else super().constant(value)

    def larger(self, text: str, least: float) -> str:
        return f"pg_catalog.float8larger({text}, {self.constant(least)})"

    def smaller(self, text: str, most: float) -> str:
        return f"pg_catalog.float8smaller({text}, {self.constant(most)})"

    def clamped(self, text: str, most: float) -> str:
        return self.smaller(self.larger(text, -most), most)

    def tame(self, text: str) -> str:
        tiny = self.constant(TINY)
        return f"({self.clamped(text, HUGE)} + {tiny} - {tiny})"

    def finite(self, text: str) -> str:
        ends = (f"CAST({self.string(end)} AS {self.double})" for end in ("-Infinity", "Infinity"))
        return f"CASE WHEN {text} > {next(ends)} AND {text} < {next(ends)} THEN {text} END"

    def rounded(self, text: str) -> str:
        """PostgreSQL rounds halves to even."""
        return f"trunc({text} + sign({text}) * {self.constant(0.49999999999999994)})"

    def matches(self, text: str, pattern: str) -> str:
        return f"{text} ~ {self.string(f'^({pattern})$')}"

    def to_whole(self, text: str) -> str:
        ends = f"{text} >= {self.constant(-(2.0**63))} AND {text} < {self.constant(2.0**63)}"
        return f"CASE WHEN {ends} THEN CAST({text} AS {self.integer}) END"

    def sure_cast(self, text: str, to: Kind) -> str:
        cast = f"CAST({text} AS {self.type(to)})"
        return f'{cast} COLLATE "C"' if to == Kind.TEXT else cast

    def trimmed(self, text: str) -> str:
        return f"btrim({text}, ' ')"

    def whole_quotient(self, left: str, right: str) -> str:
        return f"({left} / {right})"

    def hash(self, parts: list[str], salt: int) -> str:
        """Of all parts, written so that different parts are different texts."""
        texts = [self.cut(f"CAST({part} AS TEXT)") for part in parts]
        shown = [f"coalesce(length({part}) || ':' || {part}, '')" for part in texts]
        return f'hashtextextended(({" || ".join(shown)}) COLLATE "C", {self.constant(salt)})'

    # ---- one row ---------------------------------------------------------------------------------------------------

    def binary(self, text: str) -> str:
        return f'({text} COLLATE "C")'

    def digits(self, text: str) -> str:
        """1.0 and 1.00 are one number, so zeros after the point are dropped."""
        return f"CAST(trim_scale(CAST({text} AS NUMERIC)) AS TEXT)"

    def column(self, table: str, name: str, field: Field) -> str:
        text = self.name(name)
        if field.kind == Kind.TEXT:
            return self.binary(f"left(CAST({text} AS TEXT), {LONGEST_TEXT})")
        if field.kind == Kind.NUMBER and self.types.get((table, name)) == "numeric":
            inner = f"round(least(greatest({text}, -1e100), 1e100), 130)"  # a double holds neither 1e400 nor 1e-400
            return f"CASE WHEN {text} - {text} = 0 THEN CAST({inner} AS {self.double}) END"
        if field.kind == Kind.NUMBER:
            return self.finite(f"CAST({text} AS {self.double})")
        return f"CAST({text} AS {self.type(field.kind)})"

    def relation(self, relation: Relation) -> str:
        """As everywhere, but what a sub-query computes is computed once: PostgreSQL would copy it to every place of use."""
        if isinstance(relation, Union):
            return short(" UNION ALL ".join(f"({self.relation(part)})" for part in relation.parts))
        text = super().relation(relation)
        computes = isinstance(relation, Select) and any(output.op not in (Op.COLUMN, Op.LITERAL) for output in relation.outputs)
        return f"{text} OFFSET 0" if computes else text

    def _operands(self, expression: Scalar, args: list[str], guard: Callable[[str], str]) -> list[str]:
        """The operands, guarded unless their kind bounds them."""
        sure = [arg.kind == Kind.INTEGER or (arg.op == Op.LITERAL and abs(arg.value) > 1e-15) for arg in expression.args]
        return [text if fine else guard(text) for text, fine in zip(args, sure)]

    def op_add(self, expression: Scalar, args: list[str]) -> str:
        return " + ".join(self._operands(expression, args, lambda text: self.clamped(text, 1e300)))

    def op_sub(self, expression: Scalar, args: list[str]) -> str:
        return " - ".join(self._operands(expression, args, lambda text: self.clamped(text, 1e300)))

    def op_mul(self, expression: Scalar, args: list[str]) -> str:
        return " * ".join(self._operands(expression, args, self.tame))

    def op_div(self, expression: Scalar, args: list[str]) -> str:
        left, right = self._operands(expression, args, self.tame)
        return f"{left} / NULLIF({right}, {self.constant(0.0)})"

    def op_mod(self, expression: Scalar, args: list[str]) -> str:
        """PostgreSQL has no remainder of doubles."""
        if all(arg.kind == Kind.INTEGER for arg in expression.args):
            return super().op_mod(expression, args)
        left, right = self._operands(expression, args, self.tame)
        return f"{left} - {right} * trunc({left} / NULLIF({right}, {self.constant(0.0)}))"

    def op_round(self, expression: Scalar, args: list[str]) -> str:
        return super().op_round(expression, self._operands(expression, args, self.tame))

    def op_sqrt(self, expression: Scalar, args: list[str]) -> str:
        return f"sqrt(NULLIF({self.larger(args[0], BELOW_ZERO)}, {self.constant(BELOW_ZERO)}))"

    def op_ln(self, expression: Scalar, args: list[str]) -> str:
        return f"ln(NULLIF({self.larger(args[0], 0.0)}, {self.constant(0.0)}))"

    def op_log10(self, expression: Scalar, args: list[str]) -> str:
        return f"log(NULLIF({self.larger(args[0], 0.0)}, {self.constant(0.0)}))"

    def op_log2(self, expression: Scalar, args: list[str]) -> str:
        """PostgreSQL has no log2 of doubles."""
        return f"{self.op_ln(expression, args)} / {self.constant(math.log(2))}"

    def op_exp(self, expression: Scalar, args: list[str]) -> str:
        near = self.smaller(self.larger(args[0], -700.0), ABOVE_700)
        return f"exp(NULLIF({near}, {self.constant(ABOVE_700)}))"

    def op_power(self, expression: Scalar, args: list[str]) -> str:
        return super().op_power(expression, [self.tame(text) for text in args])

    def op_like(self, expression: Scalar, args: list[str]) -> str:
        return f"{args[0]} LIKE {args[1]} ESCAPE ''"

    def op_lower(self, expression: Scalar, args: list[str]) -> str:
        return self._letters("lower", args[0])

    def op_upper(self, expression: Scalar, args: list[str]) -> str:
        return self._letters("upper", args[0])

    def _letters(self, function: str, text: str) -> str:
        return f'{function}({text} COLLATE {self.letters}) COLLATE "C"'

    letters = '"default"'

    def op_part(self, expression: Scalar, args: list[str]) -> str:
        return f"CASE WHEN isfinite({args[0]}) THEN {super().op_part(expression, args)} END"

    def days(self, start: str, end: str) -> str:
        return f"({end} - {start})"

    def op_truncate(self, expression: Scalar, args: list[str]) -> str:
        return f"date_trunc('{expression.value}', CAST({self.within(args[0], expression.args[0].kind)} AS TIMESTAMP))"


class PostgresEngine:
    """One session. `url`: postgresql://user@host/database; tables are those of its search_path that the user may read."""

    name = "PostgreSQL"
    exact_names = True  # "ID" and id are two columns

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ImportError:
            raise MissingExtra("psycopg", "postgres", "Private SQL on PostgreSQL") from None
        self._psycopg = psycopg
        self._url = url
        self._lock = threading.Lock()
        self._writer = PostgresWriter()
        self._schemas: list[str] | None = None  # of the search_path, when it was connected
        self._kept: tuple[Base, int] | None = None  # what was registered
        self._lost = False  # whether a new session lacks it
        self._link = self._connect()
        try:
            with self._reading() as cursor:
                self._tables, self._identity = self._look(cursor)
        except BaseException:
            self._link.close()
            raise

    def _connect(self) -> Any:
        """A session in which texts, dates and numbers are written one way, whatever the server's settings are."""
        location = self._location()
        try:
            link = self._psycopg.connect(self._url, autocommit=True, client_encoding="utf8", connect_timeout=30)
        except self._psycopg.Error as error:
            raise InvalidValue(f"PostgreSQL cannot be opened at {location}: {self._reason(error)}.") from None
        try:
            encoding = link.info.parameter_status("server_encoding")
            if encoding != "UTF8":
                raise InvalidValue(f"The database at {location} keeps text as {encoding}; only UTF8 can be read without errors "
                                   "that depend on the data.")  # fmt: skip
            if self._schemas is None:
                self._schemas = link.execute("SELECT current_schemas(false)::text[]").fetchall()[0][0]
            for name, value in _SESSION.items():
                link.execute(f"SET {name} = {value}")
        except BaseException:
            link.close()
            raise
        return link

    def _location(self) -> str:
        """Where the database is, without the password."""
        try:
            parts = self._psycopg.conninfo.conninfo_to_dict(self._url)
        except self._psycopg.Error:
            raise InvalidValue("This is no URL of PostgreSQL. Write it like postgresql://user@host:5432/database, with special "
                               "characters as %40 and the like.") from None  # fmt: skip
        where = f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"
        return f"{parts['user']}@{where}" if parts.get("user") else where

    def _reason(self, error: Exception) -> str:
        password = str(self._psycopg.conninfo.conninfo_to_dict(self._url).get("password") or "")
        line = (str(error).strip().splitlines() or ["no answer"])[0][:200]
        return line if not password or password not in line else "no session could be opened"

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        """A cursor in a transaction that cannot write; what the server says of an error is kept from the user."""
        with self._lock:
            try:
                if self._link.closed:
                    self._again()
                if self._lost and self._kept is not None:
                    self._keep(self._link, *self._kept)
                    self._lost = False
                with self._link.transaction(), self._link.cursor() as cursor:
                    cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED READ ONLY")
                    yield cursor
            except Exception as error:
                raise EngineFailed(self.name) from error

    def _again(self) -> None:
        """A new session where the old one is gone; what was registered is made again with the next question."""
        self._link, self._lost = self._connect(), self._kept is not None

    def ready(self, tables: Collection[str]) -> None:
        """Open a session where the server closed the last one; whether it can be reached does not depend on rows."""
        with self._lock:
            try:
                found = None if self._link.closed else self._described(self._link)
            except self._psycopg.Error:
                self._link.close()
                found = None
            try:
                if found is None:
                    self._again()
                    found = self._described(self._link)
            except (InvalidValue, self._psycopg.Error) as error:
                raise EngineUnreachable(self.name, "Ask again when the server is back.") from error
        changed = [table for table in sorted(tables) if found.get(self._places[table]) != self._known[self._places[table]]]
        if changed:
            raise EngineUnreachable(changed[0], "It is not the table that was connected, or has other columns: connect again.")

    def _check_unchanged(self, cursor: Any, rows: Relation) -> None:
        """A table that became a view, or has other columns, is not asked. The question that ran keeps its tables locked until
        the transaction ends, so that they are now what they were then."""
        asked, found = {self._places[base.table] for base in bases(rows)}, self._described(cursor)
        if any(found.get(place) != self._known[place] for place in asked):
            raise InvalidValue("the tables changed since they were connected")

    def unique(self, base: Base) -> bool:
        with self._reading() as cursor:
            return not cursor.execute(self._writer.repeated(base)).fetchone()[0]

    def _look(self, cursor: Any) -> tuple[dict[str, Stored], str]:
        writer = self._writer
        cursor.execute(
            "SELECT count(*) FROM pg_collation WHERE collname = 'und-x-icu' AND collnamespace = 'pg_catalog'::regnamespace"
        )
        if cursor.fetchone()[0]:
            writer.letters = '"und-x-icu"'
        self._known = self._described(cursor)
        self._places: dict[str, tuple[str, str]] = {}
        kinds: dict[str, dict[str, str]] = {}
        rules: dict[str, dict[str, str]] = {}
        derived: dict[str, str] = {}
        oids: dict[str, int] = {}
        schemas: dict[str, str] = {}
        listed = [row for rows in self._known.values() for row in rows]
        for oid, schema, plain, column, base, category, exact, why, _ in listed:
            table = plain
            if oids.setdefault(table, oid) != oid:  # one of that name is earlier on the search_path
                table = f"{schema}.{plain}"
                oids[table] = oid
            writer.places[table] = f"{writer.name(schema)}.{writer.name(plain)}"
            schemas[table] = schema
            self._places[table] = schema, plain
            writer.types[table, column] = base
            derived[table] = why or ""
            kinds.setdefault(table, {})[column] = kind_of(base, category)
            rules.setdefault(table, {})[column] = rule_of(base, category) if exact else NO_RULE
        cursor.execute("SELECT oid, datname FROM pg_database WHERE datname = current_database()")
        number, database = cursor.fetchone()
        identity = f"{number}:{database}"
        tables = {table: Stored(columns, rules[table], derived[table], place=(database, schemas[table]))
                  for table, columns in kinds.items()}  # fmt: skip
        return tables, " ".join([identity, *(f"{table}:{oid}" for table, oid in sorted(oids.items()))])

    def tables(self) -> Mapping[str, Stored]:
        return self._tables

    def types(self, table: str) -> Mapping[str, Any]:
        return {}

    def text(self, request: Request | Marginals) -> str:
        return self._writer.request(request, 0)

    def aggregate(self, request: Request | Marginals) -> Mapping[str, Sequence[Any]]:
        text = self._writer.request(request, secrets.randbits(62))
        with self._reading() as cursor:
            cursor.execute(text)
            names = [column.name for column in cursor.description]
            rows = cursor.fetchall()
            self._check_unchanged(cursor, request.rows)
        return columns_of(names, rows)

    def register(self, base: Base, rows: int) -> None:
        """The copy is a temporary table of this session: the database itself stays as it is."""
        with self._lock:
            try:
                self._keep(self._link, base, rows)
            except self._psycopg.errors.InsufficientPrivilege:
                raise InvalidValue(f"To register {base.table} the user of the database needs the right to make temporary "
                                   "tables: GRANT TEMPORARY ON DATABASE …. Or ask without registering.") from None  # fmt: skip
            except Exception as error:
                raise EngineFailed(self.name, charged=False) from error
        self._kept, self._lost = (base, rows), False
        self._writer.registered = base.table

    def _keep(self, link: Any, base: Base, rows: int) -> None:
        assert base.unit is not None
        writer, table = self._writer, base.table
        columns = self._tables[table].kinds
        unit = writer.unit(table, base.names[base.unit], base.fields[base.unit])
        share = f"least({SCALE}, {rows * SCALE} / count(*) OVER (PARTITION BY {unit}))"
        with link.transaction():
            link.execute("SET TRANSACTION READ WRITE")
            link.execute(f"DROP TABLE IF EXISTS {writer.table(REGISTERED)}")
            link.execute(
                f"CREATE TEMPORARY TABLE {writer.name(REGISTERED)} AS SELECT {', '.join(map(writer.name, columns))}, "
                f"CAST({share} AS INTEGER) AS {writer.name(WEIGHT)} FROM {writer.table(table)} WHERE {unit} IS NOT NULL"
            )
            link.execute(f"ANALYZE {writer.table(REGISTERED)}")

    def fingerprint(self) -> str:
        """The database and its tables, not their rows: to say that rows changed would be to say that somebody came or went."""
        return self._identity

    def _described(self, link: Any) -> dict[tuple[str, str], list[tuple[Any, ...]]]:
        """The catalogue's rows, one for each column, by schema and table."""
        found: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
        for row in link.execute(CATALOGUE, {"schemas": self._schemas}).fetchall():
            found.setdefault((row[1], row[2]), []).append(row)
        return found

    def close(self) -> None:
        self._link.close()


_SESSION = {  # with functions and operators of PostgreSQL alone: others of their names might fit a column better
    "search_path": "pg_catalog, pg_temp",
    "default_transaction_read_only": "on", "standard_conforming_strings": "on", "DateStyle": "'ISO, YMD'", "TimeZone": "'UTC'",
    "extra_float_digits": "1", "application_name": "'discreet'",
}  # fmt: skip
