"""Spark: aggregation stays on the cluster; only sums of bounded units are collected.

Nothing here depends on ANSI mode: no operation that it makes fail is written. Each request reads its rows once, since a
DataFrame need not give the same rows twice.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from discreet.errors import DiscreetError, EngineFailed, EngineUnreachable, InvalidValue, MissingExtra
from discreet.query.engines.expressions import LONGEST_TEXT
from discreet.query.engines.request import SCALE, Marginals, Request, columns_of
from discreet.query.engines.sparkplans import derived
from discreet.query.engines.stored import DOUBLE, NO_RULE, TEXT, WHOLE, WIDE, Stored
from discreet.query.engines.writer import REGISTERED, WEIGHT, Writer
from discreet.query.operations import Kind
from discreet.query.tree import Base, Scalar

_OURS = re.compile("discreet_[0-9a-f]{16}_")
EXACT = float(1 << 52)  # doubles beyond are whole


class SparkWriter(Writer):
    """Spark's dialect."""

    text, timestamp = "STRING", "TIMESTAMP_NTZ"

    def __init__(self, collates: bool = True) -> None:
        self.places: dict[str, str] = {}  # table -> where it is
        self.collates = collates  # before Spark 4 texts have no collation

    # ---- dialect ---------------------------------------------------------------------------------------------------

    def name(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def table(self, name: str) -> str:
        return self.places.get(name, self.name(name))

    def string(self, value: str) -> str:
        """As hexadecimal unless plain: what a backslash means depends on settings."""
        if re.fullmatch(r"[A-Za-z0-9 _.:,%/+-]*", value):
            return f"'{value}'"
        return f"CAST(X'{value.encode('utf-8', 'replace').hex()}' AS STRING)"

    def constant(self, value: Any) -> str:
        if isinstance(value, float):
            return f"{value!r}D"
        if isinstance(value, datetime):
            return f"TIMESTAMP_NTZ '{value.replace(tzinfo=None).isoformat(sep=' ')}'"
        return super().constant(value)

    def finite(self, text: str) -> str:
        return f"CASE WHEN abs({text}) < CAST('Infinity' AS DOUBLE) THEN {text} END"

    def rounded(self, text: str) -> str:
        """round() would go through decimals."""
        near = f"CAST(floor(abs({text}) + {self.constant(0.49999999999999994)}) AS DOUBLE) * signum({text})"
        return f"CASE WHEN abs({text}) < {self.constant(EXACT)} THEN {near} ELSE {text} END"

    def whole_part(self, text: str) -> str:
        return f"CAST({text} AS BIGINT)"

    def matches(self, text: str, pattern: str) -> str:
        return f"{text} RLIKE {self.string(f'^({pattern})' + chr(92) + 'z')}"

    def to_whole(self, text: str) -> str:
        ends = f"{text} >= {self.constant(-(2.0**63))} AND {text} < {self.constant(2.0**63)}"
        return f"CASE WHEN {ends} THEN CAST(rint({text}) AS BIGINT) END"

    def trimmed(self, text: str) -> str:
        return f"trim({text})"

    def binary(self, text: str) -> str:
        return f"({text} COLLATE UTF8_BINARY)" if self.collates else text

    def cut(self, text: str) -> str:
        return f"substring({text}, 1, {LONGEST_TEXT})"

    def whole_quotient(self, left: str, right: str) -> str:
        return f"({left} div {right})"

    def hash(self, parts: list[str], salt: int) -> str:
        return f"xxhash64({', '.join([self.constant(salt), *parts])})"

    def total(self, text: str) -> str:
        """Sums of BIGINT wrap around or fail."""
        return super().total(f"CAST({text} AS DECIMAL(20, 0))")

    def exact_total(self, text: str) -> str:
        return super().exact_total(f"CAST({text} AS DECIMAL(20, 0))")

    # ---- one row ---------------------------------------------------------------------------------------------------

    def op_sign(self, expression: Scalar, args: list[str]) -> str:
        return f"signum({args[0]})"

    def op_floor(self, expression: Scalar, args: list[str]) -> str:
        """floor() and ceil() give whole numbers of 64 bits."""
        near = f"abs({args[0]}) < {self.constant(EXACT)}"
        return f"CASE WHEN {near} THEN CAST({expression.op}({args[0]}) AS DOUBLE) ELSE {args[0]} END"

    op_ceil = op_floor

    def op_like(self, expression: Scalar, args: list[str]) -> str:
        return f"{args[0]} LIKE {self.string(str(expression.args[1].value).replace(chr(92), chr(92) * 2))}"

    def days(self, start: str, end: str) -> str:
        return f"datediff({end}, {start})"

    def op_part(self, expression: Scalar, args: list[str]) -> str:
        """Spark's week begins with 1."""
        return f"CAST(dayofweek({args[0]}) - 1 AS BIGINT)" if expression.value == "dow" else super().op_part(expression, args)

    def op_truncate(self, expression: Scalar, args: list[str]) -> str:
        """date_trunc() would pass through the time zone, whose days may have 23 hours."""
        moment = self.within(args[0], expression.args[0].kind)
        parts = ["year", "month", "day", "hour"]
        kept = {"year": 1, "quarter": 2, "month": 2, "day": 3, "hour": 4}[expression.value]
        if expression.args[0].kind == Kind.DATE:
            kept = min(kept, 3)
        fields = [f"{part}({moment})" for part in parts[:kept]] + ["1", "1", "0"][kept - 1 :]
        if expression.value == "quarter":
            fields[1] = f"(quarter({moment}) * 3 - 2)"
        return f"make_timestamp_ntz({', '.join(fields)}, 0, 0)"

    # ---- rows, read once -------------------------------------------------------------------------------------------

    def plan_weighted(self, request: Request, salt: int) -> str:
        share = self.whole_quotient(self.constant(request.plan.rows * SCALE), "count(*) OVER (PARTITION BY u)")
        rows = f"SELECT *, least({self.constant(SCALE)}, {share}) AS w FROM ({self.rows(request, unit=True, terms=True)}) AS y"
        return self._by_key(request, f"({rows}) AS x", "w")

    def _sampled_bins(self, request: Request, salt: int) -> str:
        keys = [f"k{i}" for i in range(len(request.keys))]
        hashed = f"SELECT *, {self.hash(['u', *keys], salt)} AS h FROM ({self.rows(request, unit=True, terms=True)}) AS x"
        place = f"dense_rank() OVER (PARTITION BY u ORDER BY {', '.join(['h', *keys])})"
        count = f"count(*) OVER (PARTITION BY {', '.join(['u', *keys])})"
        placed = f"SELECT *, {place} AS place, {count} AS n FROM ({hashed}) AS y"
        weight = f"least({self.constant(SCALE)}, {self.whole_quotient(self.constant(request.plan.each * SCALE), 'n')})"
        by = ", ".join([*keys, "b"])
        kept = f"({placed}) AS z WHERE place <= {max(1, request.plan.groups)}"
        return f"SELECT {by}, {self.total(weight)} AS s0 FROM {kept} GROUP BY {by}"


def cluster(master: str) -> Any:
    """A session on a cluster, such as spark://host:7077, with the tables of its catalogue; the running one, if there is one."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtra("pyspark", "spark", "Private SQL on Spark") from None
    return SparkSession.builder.master(master).appName("discreet").getOrCreate()


class SparkEngine:
    """A session, whose tables and views can be asked; or a DataFrame, asked as `data`; or a dict of DataFrames by name."""

    name = "Spark"
    exact_names = False

    def __init__(self, location: Any) -> None:
        try:
            import pyspark  # noqa: F401
        except ImportError:
            raise MissingExtra("pyspark", "spark", "Private SQL on Spark") from None
        self._lock = threading.Lock()
        self._writer = SparkWriter()
        self._mark = f"discreet_{secrets.token_hex(8)}"
        self._views: list[str] = []
        self._numbers: dict[str, str] = {}
        self._session: Any
        try:
            self._open(location)
        except DiscreetError:
            raise
        except Exception as error:
            raise InvalidValue("Spark cannot open these tables; their owner sees why as __cause__.") from error

    def _open(self, location: Any) -> None:
        self._paths: dict[str, tuple[str, ...]] = {}  # of a catalogue's tables: catalogue, database and name
        if hasattr(location, "catalog") and hasattr(location, "sql"):
            self._session = location
            self._frames = self._listed()
        else:
            self._frames = dict(location) if isinstance(location, Mapping) else {"data": location}
            self._session = next(iter(self._frames.values())).sparkSession
        for place, (name, frame) in enumerate(self._frames.items()):
            self._numbers[name] = str(place)
            self._writer.places[name] = self._view(frame, str(place))
        for name, frame in self._frames.items():
            if frame.sparkSession is not self._session:
                raise InvalidValue(f"{name} is of another Spark session. Make all DataFrames in one.")
            if frame.isStreaming:
                raise InvalidValue(f"{name} is a stream, which never ends. Ask a table it is written to.")
        self._writer.collates = int(str(self._session.version).split(".")[0]) >= 4
        self._functions = self._own_functions()
        self._tables = {name: self._described(name) for name in self._frames}
        self._check_functions()

    def _listed(self) -> dict[str, Any]:
        """The tables of the current database and the temporary views, which hide tables of their names."""
        listed = [table for table in self._session.catalog.listTables() if not _OURS.match(table.name)]
        hidden = {table.name for table in listed if not (table.namespace and table.catalog)}
        self._paths = {
            table.name: (table.catalog, *table.namespace, table.name) for table in listed if table.name not in hidden
        }
        return {name: self._found(name) if name in self._paths else self._session.table(self._writer.name(name))
                for name in dict.fromkeys(table.name for table in listed)}  # fmt: skip

    def _found(self, name: str) -> Any:
        """A table of the catalogue as it is now, whichever database is the current one."""
        return self._session.table(".".join(map(self._writer.name, self._paths[name])))

    def _described(self, name: str) -> Stored:
        return replace(_stored(self._frames[name]), place=self._paths.get(name, ())[:-1])

    def _own_functions(self) -> set[str]:
        return {row[0] for row in self._session.sql("SHOW SYSTEM FUNCTIONS").collect()}

    def _check_functions(self) -> None:
        """Before Spark 4 a session's function stands in for Spark's own of that name: bounds would be what it says."""
        made = {row[0] for row in self._session.sql("SHOW USER FUNCTIONS").collect()}
        hidden = sorted(made & self._functions)
        if hidden:
            raise InvalidValue(f"The session has functions of the names of Spark's own: {', '.join(hidden[:5])}. Bounds "
                               "might be what they say; rename them.")  # fmt: skip

    def _view(self, frame: Any, suffix: str) -> str:
        name = f"{self._mark}_{suffix}"
        frame.createOrReplaceTempView(name)
        self._views = [*dict.fromkeys([*self._views, name])]
        return self._writer.name(name)

    def tables(self) -> Mapping[str, Stored]:
        return self._tables

    def ready(self, tables: Collection[str]) -> None:
        """A session that has stopped gives one clear error; nothing was asked of it. Frames and temporary views stay what they
        were; tables of the catalogue are looked up again, since their files change."""
        try:
            context = getattr(self._session, "_jsc", None)
            running = self._session.version and (context is None or not context.sc().isStopped())
        except Exception as error:
            raise EngineUnreachable(self.name, _STOPPED) from error
        if not running:
            raise EngineUnreachable(self.name, _STOPPED)
        try:
            self._check_functions()
        except InvalidValue as error:
            raise EngineUnreachable(self.name, str(error)) from error
        for name in sorted(set(tables) & set(self._paths)):
            self._look_again(name)

    def _look_again(self, name: str) -> None:
        told = "It is not the table that was connected, or has other columns: connect again."
        try:
            frame = self._found(name)
            now = replace(_stored(frame), place=self._paths[name][:-1])
        except Exception as error:
            raise EngineUnreachable(name, told) from error
        if _lasting(now) != _lasting(self._tables[name]):
            raise EngineUnreachable(name, told)
        self._frames[name] = frame
        self._view(frame, self._numbers[name])

    def unique(self, base: Base) -> bool:
        return not self._session.sql(self._writer.repeated(base)).collect()[0][0]

    def types(self, table: str) -> Mapping[str, Any]:
        return {}

    def text(self, request: Request | Marginals) -> str:
        return self._writer.request(request, 0)

    def aggregate(self, request: Request | Marginals) -> Mapping[str, Sequence[Any]]:
        text = self._writer.request(request, secrets.randbits(62))
        with self._lock:
            try:
                frame = self._session.sql(text)
                rows = [tuple(row) for row in frame.collect()]
                columns = frame.columns
            except Exception as error:
                raise EngineFailed(self.name) from error
        return columns_of(columns, rows)

    def register(self, base: Base, rows: int) -> None:
        """The copy is kept by the executors; where they lose it, queries fail rather than mix old rows with new ones."""
        assert base.unit is not None
        writer, table = self._writer, base.table
        columns = [field.name for field in self._frames[table].schema.fields]
        unit = writer.unit(table, base.names[base.unit], base.fields[base.unit])
        share = writer.whole_quotient(writer.constant(rows * SCALE), f"count(*) OVER (PARTITION BY {unit})")
        weight = f"CAST(least({writer.constant(SCALE)}, {share}) AS INT) AS {writer.name(WEIGHT)}"
        kept = f"SELECT {', '.join([*map(writer.name, columns), weight])} FROM {writer.table(table)} WHERE {unit} IS NOT NULL"
        with self._lock:
            try:
                copy = self._session.sql(kept).localCheckpoint()
            except Exception as error:
                raise EngineFailed(self.name, charged=False) from error
            writer.places[REGISTERED] = self._view(copy, "registered")
            writer.registered = table

    def fingerprint(self) -> str:
        """The plans of the DataFrames, as far as Spark tells them apart."""
        return " ".join(f"{name}:{frame.semanticHash()}" for name, frame in sorted(self._frames.items()))

    def close(self) -> None:
        """The session goes on; it is not ours."""
        for name in self._views:
            self._session.catalog.dropTempView(name)
        self._views.clear()


_STOPPED = "Its session has stopped: start one and connect again."


def _lasting(stored: Stored) -> Stored:
    """What must stay as it is: all but marks that each reading of a plan makes anew."""
    anew = (("plan",), ("rdd",))
    return replace(stored, same=frozenset(mark for mark in stored.same if not (isinstance(mark, tuple) and mark[:1] in anew)))


def _stored(frame: Any) -> Stored:
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    why, same = derived(frame)
    kinds, rules = ({name: rule(kind) for name, kind in types.items()} for rule in (_kind, _rule))
    return Stored(kinds, rules, why, same)


_KINDS = {
    "tinyint": "integer", "smallint": "integer", "int": "integer", "bigint": "integer", "float": "number",
    "double": "number", "decimal": "number", "string": "text", "varchar": "text", "char": "text", "boolean": "boolean",
    "date": "date", "timestamp": "timestamp", "timestamp_ntz": "timestamp",
}  # fmt: skip


def _kind(name: str) -> str:
    """The kind of a type of Spark; a text may name its collation: string collate UTF8_LCASE."""
    return _KINDS.get(re.split(r"[( ]", name.lower())[0], "other")


def _rule(name: str) -> str:
    """How unit keys of a type of Spark are compared."""
    kind, head = _kind(name), re.split(r"[( ]", name.lower())[0]
    if kind == "text":
        return NO_RULE if "collate" in name.lower() and "utf8_binary" not in name.lower() else TEXT
    if head == "decimal":
        scale = name.rstrip(")").split(",")[-1]
        return WIDE if scale == "0" else f"decimal {scale}"
    return WHOLE if kind == "integer" else DOUBLE if kind == "number" else NO_RULE if kind == "other" else head
