"""Files, data frames and DuckDB databases, by DuckDB; it may open nothing but what it was given."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from discreet.errors import EngineFailed, InvalidValue, MissingExtra
from discreet.query.engines.writer import REGISTERED, SCALE, WEIGHT, Request, Writer

READERS = {".parquet": "read_parquet", ".csv": "read_csv", ".tsv": "read_csv", ".json": "read_json", ".jsonl": "read_json",
           ".ndjson": "read_json"}  # fmt: skip
FAST = "perfect_ht_threshold = 20"  # units numbered within a million are counted in a table of their own, of a few MB
DATABASES = (".duckdb", ".db", ".ddb")


class DuckWriter(Writer):
    """DuckDB's own shapes of the plans."""

    def kept_pairs(self, it: Request, salt: int) -> str:
        """As everywhere, after dropping most pairs of units in many groups by the same hash, and without a window: a unit keeps
        what is below the hash of its first pair too many. Of pairs with that same hash it keeps none, so never too many.

        What is dropped depends on the unit's own rows and its hashes alone. A unit in d groups keeps each with probability
        about `wanted` / d at least, so that fewer than `groups` remain once in a thousand units or less; d is estimated from 64
        buckets.
        """
        keys = [f"k{i}" for i in range(len(it.keys))]
        if not keys or it.plan.groups > 16:
            return super().kept_pairs(it, salt)
        rows = self.rows(it, unit=True, terms=True)
        bucket = f"hash({', '.join(keys)}) & 63"
        seen = f"64.0 * ln(64.0 / greatest(64.25 - bit_count(bit_or(CAST(1 AS UBIGINT) << ({bucket}))), 0.25))"
        share = f"least(count(*), {seen})"
        wanted = float(max(3 * it.plan.groups, it.plan.groups + 9))
        often = f"CAST(least({wanted} / {share}, 1.0) * 4294967296 AS BIGINT)"
        chances = f"SELECT u, {often} AS p FROM ({rows}) AS x GROUP BY u"
        sums = ["count(*) AS t{0}" if term.kind == "count" else "CAST(sum(t{0}) AS {1}) AS t{0}" for term in it.terms]
        sums = [text.format(i, self.integer) for i, text in enumerate(sums)]  # a count takes less memory, and pairs are many
        hashed = f"SELECT y.*, {self.hash(['u', *keys], salt)} AS h FROM ({rows}) AS y"
        hashed = f"SELECT x.* FROM ({hashed}) AS x JOIN chances AS o ON x.u = o.u WHERE CAST(x.h >> 32 AS BIGINT) < o.p"
        columns = ", ".join(["x.u", *keys, *sums, "count(*) AS n", f"{self.hash(['x.u', *keys], salt)} AS h"])
        pairs = f"SELECT {columns} FROM ({hashed}) AS x GROUP BY {', '.join(['x.u', *keys])}"
        most = it.plan.groups
        first = f"SELECT u, min(h, {most + 1}) AS l FROM pairs GROUP BY u"
        ends = f"SELECT u, CASE WHEN len(l) > {most} THEN list_max(l) END AS e FROM ({first}) AS f"
        return (
            f"WITH chances AS ({chances}), pairs AS ({pairs}), ends AS ({ends}) SELECT p.* FROM pairs AS p JOIN ends AS e "
            "ON p.u = e.u WHERE e.e IS NULL OR p.h < e.e"
        )


class DuckEngine:
    """One connection that reads what it was opened for. `locations`: name -> file, or an object DuckDB can scan."""

    name = "duckdb"

    def __init__(self, locations: Mapping[str, Any] | str | os.PathLike[str], *, threads: int | None = None) -> None:
        try:
            import duckdb
        except ImportError:
            raise MissingExtra("duckdb", "sql", "Private SQL over files") from None
        self._error = duckdb.Error
        self._lock = threading.Lock()
        self._writer = DuckWriter()
        self._files: list[Path] = []
        try:
            if isinstance(locations, (str, os.PathLike)):
                self._files = [_existing(locations)]
                self._link = duckdb.connect(str(self._files[0]), read_only=True)
            else:
                self._link = duckdb.connect(":memory:")
                self._read(locations)
            shut = ("enable_external_access", "autoinstall_known_extensions", "autoload_known_extensions")
            threads = threads or _threads()
            for setting in (*([f"threads = {threads}"] if threads else []), FAST, *(f"{name} = false" for name in shut)):
                self._run(f"SET {setting}")
            self._run("SET lock_configuration = true")
        except duckdb.Error as error:
            raise InvalidValue(f"DuckDB cannot open {locations if isinstance(locations, (str, os.PathLike)) else 'the data'}: "
                               f"{str(error).splitlines()[0][:200]}") from None  # fmt: skip

    def _read(self, locations: Mapping[str, Any]) -> None:
        files = {name: _existing(it) for name, it in locations.items() if isinstance(it, (str, os.PathLike))}
        self._files = list(files.values())
        allowed = ", ".join(self._writer.string(str(path)) for path in self._files)
        self._run(f"SET allowed_paths = [{allowed}]")
        for name, it in locations.items():
            if name in files:
                reader = READERS.get(files[name].suffix.lower())
                if reader is None:
                    known = ", ".join([*READERS, *DATABASES])
                    raise InvalidValue(f"{files[name].name} is of no known type; known are {known}.")
                place = self._writer.string(str(files[name]))
                self._run(f"CREATE VIEW {self._writer.name(name)} AS SELECT * FROM {reader}({place})")
            else:
                self._link.register(name, it)

    def _run(self, text: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._link.execute(text).fetchall()
        return found

    def tables(self) -> Mapping[str, Mapping[str, str]]:
        names = [row[0] for row in self._run(
            "SELECT DISTINCT table_name FROM information_schema.tables WHERE table_catalog IN (current_database(), 'temp')"
        )]  # fmt: skip
        found = {}
        for name in sorted(names):
            columns = self._run(f"DESCRIBE {self._writer.name(name)}")
            found[name] = {column[0]: _kind(column[1]) for column in columns}
        return found

    def text(self, request: Request) -> str:
        return self._writer.request(request, 0)

    def aggregate(self, request: Request) -> Mapping[str, Sequence[Any]]:
        text = self._writer.request(request, secrets.randbits(63))
        with self._lock:
            try:
                cursor = self._link.execute(text)
                names = [column[0] for column in cursor.description]
                rows = cursor.fetchall()
            except self._error as error:
                raise EngineFailed(self.name) from error
        columns = list(zip(*rows)) if rows else [()] * len(names)
        return dict(zip(names, columns))

    def register(self, table: str, key: str, rows: int) -> None:
        it = self._writer
        unit = it.name(key)
        share = f"least({SCALE}, ({rows} * {SCALE}) // n)"
        weights = f"SELECT {unit} AS u, count(*) AS n FROM {it.name(table)} WHERE {unit} IS NOT NULL GROUP BY {unit}"
        with self._lock:
            self._run(
                f"CREATE OR REPLACE TEMP TABLE {it.name(REGISTERED)} AS "
                f"SELECT t.*, CAST({share} AS INTEGER) AS {it.name(WEIGHT)} "
                f"FROM {it.name(table)} AS t JOIN ({weights}) AS n ON t.{unit} = n.u"
            )
            it.registered = table

    def fingerprint(self) -> str:
        return " ".join(f"{path.name}:{path.stat().st_size}:{path.stat().st_mtime_ns}" for path in self._files)

    def close(self) -> None:
        self._link.close()


def _threads() -> int | None:
    """As many as this process may use, where those are not all; DuckDB would count all, and each takes memory."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    return usable if 0 < usable < (os.cpu_count() or 1) else None


def _existing(location: Any) -> Path:
    path = Path(location)
    if not path.is_file():
        raise InvalidValue(f"{path} is not a file. Name a parquet, csv or json file, or a DuckDB database.")
    return path.absolute()


def _kind(name: str) -> str:
    head = name.upper().split("(")[0]
    if name.endswith("]"):
        return "other"
    if head in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"):
        return "integer"
    if head in ("HUGEINT", "UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL"):
        return "number"
    if head in ("VARCHAR", "ENUM", "UUID"):
        return "text"
    return {"BOOLEAN": "boolean", "DATE": "date"}.get(head, "timestamp" if head.startswith("TIMESTAMP") else "other")
