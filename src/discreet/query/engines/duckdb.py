"""Files, data frames and DuckDB databases, by DuckDB; it may open nothing but what it was given."""

from __future__ import annotations

import contextlib
import copy
import os
import secrets
import shutil
import tempfile
import threading
import weakref
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from discreet.errors import EngineFailed, EngineUnreachable, InvalidValue, MissingExtra
from discreet.query.engines.ducktypes import collated, kind_of, rule_of
from discreet.query.engines.folders import ParquetFiles, parquet_files, partitions, state
from discreet.query.engines.frames import TEXT_FILES, Declared, frame_table, marks, parquet_table, text_table
from discreet.query.engines.request import SCALE, Marginals, Request
from discreet.query.engines.stored import NO_RULE, Stored
from discreet.query.engines.writer import REGISTERED, WEIGHT, Writer
from discreet.query.operations import PlanKind, TermKind
from discreet.query.tree import Base, Relation, Select

FAST = "perfect_ht_threshold = 20"  # units numbered within a million are counted in a table of their own, of a few MB
PAIRS = 1 << 18  # of unit and group, gathered at once: some 40 MB
PARTS = 8  # at most so many readings of a table
CHANCES, SUMS = 'temp.main."discreet chances"', 'temp.main."discreet sums"'
CODES = 'temp.main."discreet codes"'
AGAIN = 3  # times that the same codes are asked for until they are copied
DATABASES = (".duckdb", ".db", ".ddb")


class DuckWriter(Writer):
    """DuckDB's SQL for the plans."""

    chosen = ""  # where chances are kept in a table: which of them, as a SELECT of u and p

    def __init__(self) -> None:
        self.places: dict[str, str] = {}  # table -> where it is

    def table(self, name: str) -> str:
        return self.places.get(name, self.name(name))

    def thins(self, request: Request) -> bool:
        """Whether most pairs of units in many groups are dropped before they are gathered."""
        return request.plan.kind == PlanKind.SAMPLED and bool(request.keys) and request.plan.groups <= 16

    def chances(self, request: Request) -> str:
        """Per unit u: in how many of 2^32 cases a pair of it is looked at, p, and about how many `pairs` that leaves.

        The groups d of a unit are estimated from 64 buckets. From 300 groups on those are full, and there may be as many groups
        as rows n: about √(d n) are taken to be there.
        """
        keys = ", ".join(f"k{i}" for i in range(len(request.keys)))
        rows = self.rows(Request(request.rows, request.keys, request.plan), unit=True, terms=True)
        seen = f"64.0 * ln(64.0 / greatest(64.25 - bit_count(bit_or(CAST(1 AS UBIGINT) << (hash({keys}) & 63))), 0.25))"
        wanted = float(max(3 * request.plan.groups, request.plan.groups + 9))
        counted = f"SELECT u, count(*) AS n, least(count(*), {seen}) AS d FROM ({rows}) AS x GROUP BY u"
        often = f"CAST(least({wanted} / d, 1.0) * 4294967296 AS BIGINT)"
        left = f"CAST(ceil(CASE WHEN d < 300 THEN least(d, {wanted}) ELSE {wanted} * sqrt(n / d) END) AS BIGINT)"
        return f"SELECT u, {often} AS p, {left} AS pairs FROM ({counted}) AS c"

    def kept_pairs(self, request: Request, salt: int) -> str:
        """As everywhere, after dropping most pairs of units in many groups by the same hash, and without a window: a unit keeps
        what is below the hash of its first pair too many. Of pairs with that same hash it keeps none, so never too many.

        What is dropped depends on the unit's own rows and its hashes alone. A unit in d groups keeps each with probability
        about `wanted` / d at least, so that fewer than `groups` remain once in a thousand units or less.
        """
        keys = [f"k{i}" for i in range(len(request.keys))]
        if not self.thins(request):
            return super().kept_pairs(request, salt)
        lot = self.hash(["r0.u", *map(self.key, request.keys)], salt)
        rows = self.rows(  # sums are made of those rows only that are looked at
            request, unit=True, terms=True, join=" JOIN chances AS o ON r0.u = o.u", where=f"CAST({lot} >> 32 AS BIGINT) < o.p"
        )
        counts = [term.kind == TermKind.COUNT for term in request.terms]
        sums = ["count(*) AS t{0}" if counted else "CAST(sum(t{0}) AS {1}) AS t{0}" for counted in counts]
        sums = [text.format(i, self.integer) for i, text in enumerate(sums)]  # a count takes less memory, and pairs are many
        columns = ", ".join(["x.u", *keys, *sums, "count(*) AS n", f"{self.hash(['x.u', *keys], salt)} AS h"])
        pairs = f"SELECT {columns} FROM ({rows}) AS x GROUP BY {', '.join(['x.u', *keys])}"
        most = request.plan.groups
        first = f"SELECT u, min(h, {most + 1}) AS l FROM pairs GROUP BY u"
        ends = f"SELECT u, CASE WHEN len(l) > {most} THEN list_max(l) END AS e FROM ({first}) AS f"
        return (
            f"WITH chances AS ({self.chosen or self.chances(request)}), pairs AS ({pairs}), ends AS ({ends}) "
            "SELECT p.* FROM pairs AS p JOIN ends AS e ON p.u = e.u WHERE e.e IS NULL OR p.h < e.e"
        )

    def of_some(self, chosen: str) -> DuckWriter:
        """The same writer, restricted to the units in a table of chances."""
        writer = copy.copy(self)
        writer.chosen = chosen
        return writer

    def added(self, text: str) -> str:
        """Sums of some units are not yet cut to 64 bits: the answer must not depend on which units are together."""
        return f"coalesce(sum({text}), 0)" if self.chosen else self.total(text)

    def together(self, request: Request, source: str) -> str:
        """The sums of all parts, as the plan in one piece gives them."""
        keys = [f"k{i}" for i in range(len(request.keys))] + (["b"] if request.bins else [])
        sums = ["s0"] if request.bins else [*(f"s{i}" for i in range(len(request.terms))), "units"]
        totals = ", ".join(f"{self.total(name)} AS {name}" for name in sums)
        return f"SELECT {', '.join(keys)}, {totals} FROM {source} GROUP BY {', '.join(keys)}"


class DuckEngine:
    """One connection that reads what it was opened for. `locations`: name -> file or data frame; or a DuckDB database."""

    name = "duckdb"
    exact_names = False

    def __init__(
        self, locations: Mapping[str, Any] | str | os.PathLike[str], declared: Mapping[str, Declared] | None = None, *,
        threads: int | None = None,
    ) -> None:  # fmt: skip
        try:
            import duckdb
        except ImportError:
            raise MissingExtra("duckdb", "sql", "Private SQL over files") from None
        self._error, self._connect = duckdb.Error, duckdb.connect
        self._lock = threading.Lock()
        self._writer = DuckWriter()
        self._files: list[Path] = []
        self._parquet: dict[str, ParquetFiles] = {}
        self._copied = ""  # what the text files were when they were read
        self._asked: tuple[Any, int] = (None, 0)  # the codes that were asked for last, and how often
        self._memory = ""  # a name of this connection's own, where some tables are in memory
        self._same: dict[str, frozenset[Any]] = {}
        self._database = isinstance(locations, (str, os.PathLike))
        scratch = tempfile.mkdtemp(prefix="discreet-")  # rows that do not fit into memory: for no other user to read
        self._sweep = weakref.finalize(self, shutil.rmtree, scratch, ignore_errors=True)
        try:
            self._files = [_existing(locations)] if isinstance(locations, (str, os.PathLike)) else []
            self._link = duckdb.connect(str(self._files[0]), read_only=True) if self._files else duckdb.connect(":memory:")
            self._run(f"SET temp_directory = {self._writer.string(scratch)}")
            if isinstance(locations, Mapping):
                self._read(locations, declared or {})
            shut = ("enable_external_access", "autoinstall_known_extensions", "autoload_known_extensions")
            threads = threads or _threads()
            for setting in (*([f"threads = {threads}"] if threads else []), FAST, *(f"{name} = false" for name in shut)):
                self._run(f"SET {setting}")
            self._run("SET lock_configuration = true")
            if self._database:  # a connection of our own has no macros
                self._check_macros()
            self._tables = self._look()
        except duckdb.Error as error:
            what = ", ".join(path.name for path in self._files) or "the data"
            raise InvalidValue(f"DuckDB cannot read {what}. Its owner sees why as __cause__.") from error

    def _read(self, locations: Mapping[str, Any], declared: Mapping[str, Declared]) -> None:
        named = {name: location for name, location in locations.items() if isinstance(location, (str, os.PathLike))}
        many = {name: parquet_files(location) for name, location in named.items()}
        files = {name: many[name] or [_existing(location)] for name, location in named.items()}
        stored = {name: paths for name, paths in files.items() if paths[0].suffix.lower() not in TEXT_FILES}
        self._files = [path for paths in stored.values() for path in paths]
        allowed = ", ".join(self._writer.string(str(path)) for path in self._files)
        self._run(f"SET allowed_paths = [{allowed}]")
        for name, location in locations.items():
            if name in stored:
                if stored[name][0].suffix.lower() != ".parquet":
                    known = ", ".join([".parquet", *TEXT_FILES, *DATABASES])
                    raise InvalidValue(f"{stored[name][0].name} is of no known type; known are {known}.")
                places = ", ".join(self._writer.string(str(path)) for path in stored[name])
                hive = "true, hive_types_autocast = false" if many[name] else "false"
                read = f"read_parquet([{places}], hive_partitioning = {hive})"
                self._run(f"CREATE VIEW {self._writer.name(name)} AS SELECT * FROM {read}")
                self._parquet[name] = ParquetFiles.of(stored[name], hive=bool(many[name]))
                self._check_rows(name)
            elif name in files:
                self._link.register("discreet file", text_table(files[name][0], declared.get(name, declared.get(""))))
                self._run(f'CREATE TABLE {self._writer.name(name)} AS SELECT * FROM "discreet file"')
                self._link.unregister("discreet file")
                self._copied += state(files[name][0])
            else:
                table = frame_table(name, location)
                self._link.register(name, table)
                self._memory = secrets.token_hex(16)
                self._same[name] = marks(location, table)
            if name in files:
                self._same[name] = frozenset((status.st_dev, status.st_ino) for status in (path.stat() for path in files[name]))

    def _check_rows(self, name: str) -> None:
        if not self._readable(name):
            self._repair(name, self._parquet[name].paths, self._parquet[name].hive)

    def _readable(self, name: str) -> bool:
        """Whether no text of a file is other than UTF-8 and no moment out of range: DuckDB would fail on it in a query."""
        described = self._run(f"DESCRIBE {self._writer.name(name)}")
        checked = [column[0] for column in described if kind_of(column[1]) in ("text", "timestamp", "date")]
        hashes = ", ".join(f"bit_xor(hash({self._writer.name(column)}))" for column in checked)
        if hashes:
            try:
                self._run(f"SELECT {hashes} FROM {self._writer.name(name)}")
            except self._error:
                return False
        return True

    def _repair(self, name: str, paths: Sequence[Path], hive: bool) -> None:
        """What DuckDB cannot read is NULL in its own row: refusing the file would tell that the row is there."""
        import pyarrow as pa

        try:
            parts = [parquet_table(path, partitions(path) if hive else {}) for path in paths]
            table = pa.concat_tables(parts, promote_options="permissive")
        except (pa.ArrowException, OSError) as error:
            raise InvalidValue(f"{name} is damaged. Write it again; its owner sees why as __cause__.") from error
        self._run(f"DROP VIEW {self._writer.name(name)}")
        self._link.register(name, table)
        self._memory = secrets.token_hex(16)
        if not self._readable(name):
            raise InvalidValue(f"{name} has a moment that DuckDB cannot read. Write its dates and times again.")

    def _run(self, text: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._link.execute(text).fetchall()
        return rows

    def tables(self) -> Mapping[str, Stored]:
        return self._tables

    def _check_macros(self) -> None:
        """A macro of the name of a function or an operator would stand in for it: bounds would be what the macro says."""
        found = self._run(
            "SELECT DISTINCT function_name FROM duckdb_functions() WHERE NOT internal INTERSECT "
            "SELECT function_name FROM duckdb_functions() WHERE internal ORDER BY 1"
        )
        if found:
            names = ", ".join(name for (name,) in found[:5])
            raise InvalidValue(f"{self._files[0].name} has macros of the names of DuckDB's own functions: {names}. Bounds "
                               "would be what the macros say; rename them.")  # fmt: skip

    def _look(self) -> dict[str, Stored]:
        """Tables of a database by what its catalogue says; files and frames are as they were given."""
        listed = self._run(
            "SELECT database_name, schema_name, table_name, sql FROM duckdb_tables() WHERE NOT internal "
            "AND database_name = current_database() "
            "UNION ALL SELECT database_name, schema_name, view_name, NULL FROM duckdb_views() WHERE NOT internal "
            "AND database_name IN (current_database(), 'temp') ORDER BY schema_name <> 'main', 2, 3"
        )
        found: dict[str, Stored] = {}
        for database, schema, name, sql in listed:
            if name == "discreet file":
                continue
            plain = name
            if name in found:  # one of that name comes earlier; this one has to be asked with its schema
                name = f"{schema}.{name}"
            # with its database: a schema of the same name would make schema.table ambiguous
            place = ".".join(self._writer.name(part) for part in (database, schema, plain))
            self._writer.places[name] = place if self._database else self._writer.name(name)
            types = {column[0]: column[1] for column in self._run(f"DESCRIBE {self._writer.table(name)}")}
            spelled = collated(sql) if sql else set()
            rules = {column: NO_RULE if column in spelled else rule_of(kind) for column, kind in types.items()}
            derived = "a view" if self._database and sql is None else ""
            kinds = {column: kind_of(kind) for column, kind in types.items()}
            where = (database, schema) if self._database else ("memory", "main")
            found[name] = Stored(kinds, rules, derived, self._same.get(name, frozenset()), where)
        order = {name: place for place, name in enumerate(self._same)}  # as they were given
        return dict(sorted(found.items(), key=lambda item: (order.get(item[0], 0), item[0])))

    def ready(self, tables: Collection[str]) -> None:
        try:
            with self._lock:  # a connection in use by another thread refuses, which is not that it was closed
                self._link.execute("SELECT 1").fetchall()
        except self._error as error:
            raise EngineUnreachable("DuckDB", "The connection was closed: connect again.") from error
        missing = next((path.name for path in self._files if not path.is_file()), None)
        if missing is not None:
            raise EngineUnreachable(missing, "The file is gone: put it back, or connect again.")
        for name in tables:
            if name in self._parquet:
                self._look_again(name, self._parquet[name])

    def _look_again(self, name: str, before: ParquetFiles) -> None:
        """A file that was written anew has the columns it had, or is not asked; its rows are looked at as when connecting."""
        told = "It was written anew, with other columns or types: connect again."
        try:
            if not before.changed():
                return
            now = ParquetFiles.of(before.paths, hive=before.hive)
            alike = all(schema.equals(before.schemas[0]) for schema in now.schemas)
            if alike:
                with self._lock:
                    self._check_rows(name)
        except (OSError, InvalidValue, self._error) as error:
            raise EngineUnreachable(name, told) from error
        if not alike:
            raise EngineUnreachable(name, told)
        self._parquet[name] = now

    def unique(self, base: Base) -> bool:
        return not self._run(self._writer.repeated(base))[0][0]

    def types(self, table: str) -> Mapping[str, Any]:
        with self._lock:
            schema: Any = self._link.sql(f"SELECT * FROM {self._writer.table(table)} LIMIT 0").to_arrow_table().schema
        return dict(zip(schema.names, schema.types))

    def text(self, request: Request | Marginals) -> str:
        return self._writer.request(request, 0)

    def aggregate(self, request: Request | Marginals) -> Mapping[str, Sequence[Any]]:
        salt = secrets.randbits(63)
        with self._lock:
            try:
                if isinstance(request, Marginals):
                    return self._marginals(request)
                if self._writer.thins(request) and _again(request.rows):
                    return self._in_parts(request, salt, PAIRS)
                return self._columns(self._writer.request(request, salt))
            except Exception as error:
                raise EngineFailed(self.name) from error

    def _marginals(self, it: Marginals) -> Mapping[str, Any]:
        """Straight from the rows; the third time the same codes are asked for, from a copy of them in a byte or two each, which
        takes memory and saves computing them again."""
        key = (it.rows, it.codes, it.plan)
        times = self._asked[1] + 1 if self._asked[0] == key else 1
        types = ["UTINYINT" if size <= 256 else "USMALLINT" if size <= 65536 else "UINTEGER" for size in it.sizes]
        small = ", ".join(f"CAST(k{i} AS {name}) AS k{i}" for i, name in enumerate(types))
        small += "" if it.plan.kind == "rows" else ", w"
        codes = f"SELECT {small} FROM ({self._writer.coded(it)}) AS z"
        if times == AGAIN:
            self._run(f"CREATE OR REPLACE TEMP TABLE {CODES} AS {codes}")
        self._asked = (key, times)
        source = f"{CODES} AS x" if times >= AGAIN else f"({codes}) AS x"
        found = self._link.execute(self._writer.grouped_sets(it, source)).fetchnumpy()
        which = cell = np.zeros(len(found["s0"]), np.int64)
        for place, code in enumerate(it.used):  # as the writer says it in SQL, which takes longer than the counting
            there = ~np.ma.getmaskarray(found[f"k{code}"])
            which = which + (there.astype(np.int64) << place)
            cell = np.where(there, cell * it.sizes[code] + np.ma.getdata(found[f"k{code}"]).astype(np.int64), cell)
        return {"s": which, "k": cell, "s0": np.ma.getdata(found["s0"])}

    def _columns(self, text: str) -> Mapping[str, Sequence[Any]]:
        cursor = self._link.execute(text)
        names = [column[0] for column in cursor.description]
        rows = cursor.fetchall()
        return dict(zip(names, zip(*rows) if rows else [()] * len(names)))

    def _in_parts(self, request: Request, salt: int, size: int) -> Mapping[str, Sequence[Any]]:
        """The same numbers, from one part of the units after another: fewer pairs are held at once.

        Each unit is in one part, and sums are whole numbers, so nothing but time and memory depends on the parts. How many
        there are is rounded at random: else one unit more could be what adds a whole reading of the table.
        """
        writer = self._writer
        parts = 1
        try:
            self._run(f"CREATE OR REPLACE TEMP TABLE {CHANCES} AS {writer.chances(request)}")
            pairs = int(self._run(f"SELECT coalesce(sum(pairs), 0) FROM {CHANCES}")[0][0])
            parts = min(PARTS, (pairs + secrets.randbelow(size)) // size)
            if parts < 2:
                one = writer.of_some(f"SELECT u, p FROM {CHANCES}")
                return self._columns(writer.together(request, f"({one.request(request, salt)}) AS x"))
            before = "sum(pairs) OVER (ORDER BY u ROWS UNBOUNDED PRECEDING) - pairs"
            self._run(f"CREATE OR REPLACE TEMP TABLE {CHANCES} AS SELECT u, p, "
                      f"CAST(({before}) * {parts} // {pairs} AS INTEGER) AS part FROM {CHANCES}")  # fmt: skip
            for part in range(parts):
                some = writer.of_some(f"SELECT u, p FROM {CHANCES} WHERE part = {part}")
                into = f"INSERT INTO {SUMS}" if part else f"CREATE OR REPLACE TEMP TABLE {SUMS} AS"
                self._run(f"{into} {some.request(request, salt)}")
            return self._columns(writer.together(request, SUMS))
        finally:
            for name in (CHANCES, SUMS):
                self._run(f"DROP TABLE IF EXISTS {name}")
            if parts > 1:
                self._hand_back()

    def _hand_back(self) -> None:
        """Make DuckDB return memory: on a single thread it keeps freed pages until some database is closed."""
        with contextlib.suppress(self._error):
            self._connect(":memory:", config={"threads": 1}).close()

    def register(self, base: Base, rows: int) -> None:
        assert base.unit is not None
        writer = self._writer
        unit = writer.unit(base.table, base.names[base.unit], base.fields[base.unit])
        owner, weights, count = (writer.name(f"discreet {name}") for name in ("unit", "weights", "rows"))
        owned = f"SELECT *, {unit} AS {owner} FROM {writer.table(base.table)}"
        counted = f"SELECT {owner} AS u, count(*) AS {count} FROM ({owned}) AS o WHERE {owner} IS NOT NULL GROUP BY {owner}"
        share = f"least({SCALE}, ({rows} * {SCALE}) // {weights}.{count})"
        with self._lock:
            try:
                self._run(
                    f"CREATE OR REPLACE TEMP TABLE {writer.name(REGISTERED)} AS "
                    f"SELECT o.* EXCLUDE ({owner}), CAST({share} AS INTEGER) AS {writer.name(WEIGHT)} "
                    f"FROM ({owned}) AS o JOIN ({counted}) AS {weights} ON o.{owner} = {weights}.u"
                )
            except Exception as error:
                raise EngineFailed(self.name, charged=False) from error
            writer.registered = base.table

    def fingerprint(self) -> str:
        """Sizes and times of files. Tables in memory have none, so the answers of one connection are not those of another."""
        return " ".join([*map(state, self._files), *filter(None, (self._copied, self._memory))])

    def close(self) -> None:
        self._link.close()
        self._sweep()


def _again(relation: Relation) -> bool:
    """Whether it is cheap to read the rows once more: those of one table, joined with public ones at most."""
    if isinstance(relation, Select):
        joins = any(join.relation.private for join in relation.joins)
        return relation.grouped is None and not joins and _again(relation.first)
    return isinstance(relation, Base)


def _threads() -> int | None:
    """The CPUs this process may use, where they are fewer than all. DuckDB would start one thread per CPU of the machine."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    return usable if 0 < usable < (os.cpu_count() or 1) else None


def _existing(location: Any) -> Path:
    path = Path(location)
    if not path.is_file():
        raise InvalidValue(f"{path} is not a file. Name a parquet, csv or jsonl file, a folder or a pattern of parquet files, "
                           "or a DuckDB database.")  # fmt: skip
    return path.absolute()
