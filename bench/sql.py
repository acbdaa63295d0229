"""Private SQL against plain DuckDB, OpenDP, SmartNoise and PipelineDP: count, sum and mean of 1,000 skewed groups.

    python bench/sql.py [--part small|scale|peers|disk] [--opendp PYTHON] [--smartnoise PYTHON] [--pipeline-dp PYTHON]
                        [--folder FOLDER] [--out bench/results/sql.json]

    small   a query of 100 rows: parsing, the durable charge and the key threshold included
    scale   10 million rows in a DuckDB file (and in a parquet file): registered, weighted and sampled against the bare query
    peers   each peer at the largest size it manages here, at equal bounding, with the error of the answers
    disk    100 million rows of parquet against 10 million: is the cost linear, how much memory

Interleaved, on one core; medians of CPU time, wall time beside. Every engine runs in a process of its own; a peer needs
an interpreter that has it (its pins are named in bench/peers), and is left out without one. Tables are made from hashes
of row numbers, so they are the same everywhere. Without --part all four run; --out keeps what other parts have written.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}

import duckdb

from _record import write

UNITS, GROUPS = 100_000, 1_000
ASK: dict[str, Any] = {
    "keys": ["g"], "value": "v", "bounds": [0, 100], "unit": "uid", "groups": None, "rows": 40,
    "ask": ["count", "sum", "mean"], "epsilon": 1.0, "delta": 1e-7,
}  # fmt: skip
SAMPLED = {"groups": 4, "rows": 10}  # 4 groups of 10 rows: 40 rows in all, as elsewhere
PEERS = ("opendp", "smartnoise", "pipelinedp")
Measured = dict[str, Any]


def make(path: Path, rows: int, units: int = UNITS, groups: int = GROUPS) -> Path:
    """uid, g, v: units alike, groups skewed (g / groups is the square of a uniform number), whole values from 0 to 100."""
    if not path.exists():
        share = "hash(i, 2)::DOUBLE / 18446744073709551616.0"
        columns = (
            f"(hash(i, 1) % {units})::BIGINT AS uid, least(floor({groups} * power({share}, 2)), {groups - 1})::BIGINT AS g"
        )
        made = f"SELECT {columns}, (hash(i, 3) % 101)::DOUBLE AS v FROM range({rows}) AS r(i)"
        with duckdb.connect() as link:
            link.sql("SET preserve_insertion_order = false")
            link.execute(f"COPY ({made}) TO '{path}' (FORMAT parquet)").fetchall()
    return path


def stored(parquet: Path) -> Path:
    """The same rows in a DuckDB file."""
    path = parquet.with_suffix(".duckdb")
    if not path.exists():
        with duckdb.connect(str(path)) as link:
            link.execute(f"CREATE TABLE t AS SELECT * FROM read_parquet('{parquet}')").fetchall()
    return path


class Worker:
    """One engine in its own process; see peers/_loop.py for what it is asked and what it replies."""

    def __init__(self, name: str, python: str = sys.executable) -> None:
        script = Path(__file__).parent / "peers" / f"{name}_sql.py"
        self.process = subprocess.Popen([python, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.version = self._line().get("version", "")

    def ask(self, table: Path, **more: Any) -> Measured:
        assert self.process.stdin is not None
        print(json.dumps({**ASK, "table": str(table), **more}), file=self.process.stdin, flush=True)
        found = self._line()
        return found if found else {"failed": "the process ended"}

    def _line(self) -> Measured:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else {}

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@contextlib.contextmanager
def workers(*names: str, pythons: dict[str, str] | None = None) -> Iterator[dict[str, Worker]]:
    """One process a name ("duckdb distinct" and "duckdb" are two); peers without an interpreter are left out."""
    crowd = {}
    for name in names:
        kind = name.split()[0]
        if kind not in PEERS or (pythons or {}).get(kind):
            crowd[name] = Worker(kind, (pythons or {}).get(kind) or sys.executable)
    try:
        yield crowd
    finally:
        for worker in crowd.values():
            worker.close()


def rounds(cases: dict[str, Any], count: int) -> dict[str, list[Measured]]:
    """Each case once a round; a case is (worker, table, more). One round more comes first and is not kept."""
    found: dict[str, list[Measured]] = {name: [] for name in cases}
    for number in range(count + 1):
        for name, (worker, table, more) in cases.items():
            reply = worker.ask(table, **more)
            if "failed" in reply:
                print(f"{name}: {reply['failed']}", file=sys.stderr)
            elif number or count == 1:
                found[name].append(reply)
            print(f"{name}: {number or 'warm'} {reply.get('cpu')}", file=sys.stderr)
        if count == 1:
            break
    return {name: replies for name, replies in found.items() if replies}


def median(replies: list[Measured], what: str = "cpu") -> float:
    return statistics.median(value for reply in replies for value in reply[what])


def figures(replies: list[Measured]) -> Measured:
    cpu = [value for reply in replies for value in reply["cpu"]]
    return {
        "cpu_ms": round(median(replies) * 1e3, 2), "wall_ms": round(median(replies, "wall") * 1e3, 2),
        "cpu_ms_least": round(min(cpu) * 1e3, 2), "cpu_ms_most": round(max(cpu) * 1e3, 2),
        "groups": len(replies[-1]["answers"][-1]),
    }  # fmt: skip


def errors(replies: list[Measured], truth: dict[str, Any]) -> Measured:
    """Mean absolute error against all rows of the table (noise and bounding), over the groups released."""
    found = {}
    for name in ASK["ask"]:
        parts = [
            abs(values[name] - truth[group][name])
            for reply in replies for answer in reply["answers"] for group, values in answer.items() if name in values
        ]  # fmt: skip
        found[name] = float(f"{statistics.mean(parts):.4g}") if parts else None
    return found


def small(folder: Path, pythons: dict[str, str], count: int) -> Measured:
    """100 rows of 100 units in 5 groups; OpenDP is asked with rows as units, which is cheaper for it."""
    table = make(folder / "rows100.parquet", 100, 1_000_000_000, 5)
    one = {"rows": 1}
    with workers("duckdb", "discreet", "opendp", "smartnoise", pythons=pythons) as crowd:
        first = crowd["discreet"].ask(table, **one)
        cases = {name: (worker, table, one) for name, worker in crowd.items() if name != "opendp"}
        found = rounds(cases, max(count, 30))
        if "opendp" in crowd:
            plain = {"unit": None}
            found |= rounds({"opendp": (crowd["opendp"], table, plain)}, 2)
            again = crowd["opendp"].ask(table, **plain, times=20)
            found["opendp, scale found beforehand"] = [{**again, "cpu": again["cpu"][1:], "wall": again["wall"][1:]}]
        versions = {name: worker.version for name, worker in crowd.items()}
    rows = {name: figures(replies) for name, replies in found.items()}
    for row in rows.values():
        row["times_ours"] = round(row["cpu_ms"] / rows["discreet"]["cpu_ms"], 2)
    goals = {"at most 15 ms CPU a query": rows["discreet"]["cpu_ms"] <= 15}
    return {"versions": versions, "first_query_ms": round(first["cpu"][0] * 1e3, 1), "rows": rows, "goals": goals}


def scale(folder: Path, count: int, million: int) -> Measured:
    """10 million rows. Registered and per-query bounds against the bare query on the same file."""
    parquet = make(folder / f"rows{million}m.parquet", million * 1_000_000)
    found: dict[str, Any] = {}
    for kind, table in {"database": stored(parquet), "parquet": parquet}.items():
        names = ("duckdb", "duckdb distinct", "discreet registered", "discreet weighted", "discreet sampled")
        with workers(*names) as crowd:
            cases = {name: (crowd[name], table, _way(name)) for name in names}
            cases["duckdb distinct alone"] = (crowd["duckdb distinct"], table, {"way": "distinct", "ask": []})
            replies = rounds(cases, count)
        truth = replies["duckdb"][0]["answers"][0]
        rows = {name: figures(taken) for name, taken in replies.items()}
        for name, row in rows.items():
            row["times_bare"] = round(row["cpu_ms"] / rows["duckdb"]["cpu_ms"], 2)
            row["times_distinct"] = round(row["cpu_ms"] / rows["duckdb distinct"]["cpu_ms"], 2)
            row["times_distinct_alone"] = round(row["cpu_ms"] / rows["duckdb distinct alone"]["cpu_ms"], 2)
            if name.startswith("discreet"):
                row["mean_absolute_error"] = errors(replies[name], truth)
        found[kind] = {"rows": rows, "goals": {
            "registered at most 4 times bare": rows["discreet registered"]["times_bare"] <= 4,
            "weighted at most 8 times bare": rows["discreet weighted"]["times_bare"] <= 8,
            "sampled at most 1.3 times COUNT(DISTINCT) beside the same statistics":
                rows["discreet sampled"]["times_distinct"] <= 1.3,
            "sampled at most 1.3 times COUNT(DISTINCT) alone": rows["discreet sampled"]["times_distinct_alone"] <= 1.3,
        }}  # fmt: skip
    return {"million_rows": million, **found}


def _way(name: str) -> dict[str, Any]:
    """What a named case of ours or of DuckDB is asked with."""
    way = name.split()[-1]
    return {"way": way, **(SAMPLED if way == "sampled" else {})} if " " in name else {}


def against(folder: Path, pythons: dict[str, str], sizes: dict[str, int], count: int) -> Measured:
    """Each peer beside ours with the same bound: groups and rows, or rows in all where it knows rows only."""
    asked = {
        "opendp, 4 groups of 10 rows": ("opendp", SAMPLED), "opendp, 40 rows": ("opendp", {}),
        "smartnoise, 40 rows": ("smartnoise", {}), "pipelinedp, 4 groups of 10 rows": ("pipelinedp", SAMPLED),
    }  # fmt: skip
    goal = {"opendp": 10, "smartnoise": 30, "pipelinedp": 60}
    rows, goals, versions = {}, {}, {}
    for name, (peer, bound) in asked.items():
        if not pythons.get(peer):
            continue
        table = make(folder / f"rows{sizes[peer]}k.parquet", sizes[peer] * 1_000)
        with workers("duckdb", "discreet", peer, pythons=pythons) as crowd:
            versions[peer] = crowd[peer].version
            truth = crowd["duckdb"].ask(table)["answers"][0]
            crowd["discreet"].ask(table, **bound)  # warm; a peer's own first query is too dear to waste
            taken: dict[str, list[Measured]] = {"ours": [], peer: []}
            for _ in range(count):
                taken[peer].append(crowd[peer].ask(table, **bound))
                taken["ours"] += [crowd["discreet"].ask(table, **bound) for _ in range(3)]
                print(f"{name}: {taken[peer][-1].get('cpu', taken[peer][-1])}", file=sys.stderr)
        if any("failed" in reply for reply in taken[peer]):
            rows[name] = {"failed": taken[peer][0].get("failed")}
            continue
        both = {who: {**figures(replies), "mean_absolute_error": errors(replies, truth)} for who, replies in taken.items()}
        ratio = round(both[peer]["cpu_ms"] / both["ours"]["cpu_ms"], 1)
        rows[name] = {"thousand_rows": sizes[peer], "times_ours": ratio, "peer": both[peer], "ours": both["ours"]}
        goals[f"at least {goal[peer]} times faster than {name}"] = ratio >= goal[peer]
        goals[f"at least as many groups as {name}"] = _mean_groups(taken["ours"]) >= _mean_groups(taken[peer])
    return {"versions": versions, "rows": rows, "goals": goals}


def _mean_groups(replies: list[Measured]) -> float:
    return statistics.mean(len(answer) for reply in replies for answer in reply["answers"])


def disk(folder: Path, millions: tuple[int, int], count: int) -> Measured:
    """The same on parquet files of two sizes, each measurement in a process of its own so that its peak memory is known."""
    rows: dict[str, Any] = {}
    names = ("duckdb", "duckdb distinct", "discreet weighted", "discreet sampled")
    for million in millions:
        table = folder / f"rows{million}m.parquet"
        kept = table.exists()
        make(table, million * 1_000_000)
        taken: dict[str, list[Measured]] = {name: [] for name in names}
        for _ in range(count):
            for name in names:
                with workers(name) as crowd:
                    taken[name].append(crowd[name].ask(table, **_way(name)))
                print(f"{million} M {name}: {taken[name][-1]['cpu']}", file=sys.stderr)
        for name, replies in taken.items():
            memory = {what: round(statistics.median(reply[what] for reply in replies)) for what in ("start_mb", "peak_mb")}
            rows.setdefault(name, {})[f"{million}m"] = {**figures(replies), **memory}
        if not kept:
            table.unlink()
    less, more = (f"{million}m" for million in millions)
    for row in rows.values():
        row["growth"] = round(row[more]["cpu_ms"] / row[less]["cpu_ms"], 2)
        row["memory_times_bare"] = round(row[more]["peak_mb"] / rows["duckdb"][more]["peak_mb"], 2)
        row["memory_times_distinct"] = round(row[more]["peak_mb"] / rows["duckdb distinct"][more]["peak_mb"], 2)
    linear = 1.2 * millions[1] / millions[0]
    goals = {}
    for name in names[2:]:
        goals[f"{name}: cost linear (within a fifth)"] = rows[name]["growth"] <= linear
        goals[f"{name}: memory at most 1.5 times plain DuckDB's"] = rows[name]["memory_times_bare"] <= 1.5
    return {"million_rows": list(millions), "rows": rows, "goals": goals}


def show(part: str, found: Any, indent: str = "") -> None:
    """The figures as lines: one name, then its numbers."""
    print(f"{indent}{part}")
    for name, value in found.items():
        if isinstance(value, dict) and any(isinstance(it, dict) for it in value.values()):
            show(name, value, indent + "  ")
        else:
            print(f"{indent}  {name:34} {value}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=("small", "scale", "peers", "disk"))
    parser.add_argument("--opendp", metavar="PYTHON")
    parser.add_argument("--smartnoise", metavar="PYTHON")
    parser.add_argument("--pipeline-dp", metavar="PYTHON", dest="pipelinedp")
    parser.add_argument("--folder", type=Path, help="where the tables lie (kept there; else in a folder that goes away)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--million", type=int, default=10, help="rows of the scale part")
    parser.add_argument("--disk", type=int, nargs=2, default=(10, 100), help="rows of the disk part, in millions")
    parser.add_argument("--sizes", type=int, nargs=3, default=(10_000, 10_000, 10_000),
                        help="thousand rows for OpenDP, SmartNoise, PipelineDP")  # fmt: skip
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    parser.add_argument("--note", help="a line kept beside the figures of these parts")
    given = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one core for everyone, children too
    pythons = {name: getattr(given, name) for name in PEERS if getattr(given, name)}
    parts = json.loads(given.out.read_text())["parts"] if given.out and given.out.exists() else {}
    with tempfile.TemporaryDirectory() as spare:
        folder = given.folder or Path(spare)
        folder.mkdir(parents=True, exist_ok=True)
        run = {
            "small": lambda: small(folder, pythons, given.rounds),
            "scale": lambda: scale(folder, given.rounds, given.million),
            "peers": lambda: against(folder, pythons, dict(zip(PEERS, given.sizes, strict=True)), min(2, given.rounds)),
            "disk": lambda: disk(folder, tuple(given.disk), min(2, given.rounds)),
        }
        for part in given.part or run:
            found = run[part]()
            if part == "peers" and part in parts:  # peers that were not asked again keep their rows
                for name in ("versions", "rows", "goals"):
                    found[name] = {**parts[part][name], **found[name]}
            show(part, found)
            said = {"note": given.note} if given.note else {}
            today = datetime.datetime.now(datetime.UTC).date().isoformat()
            parts[part] = {"date": today, "rounds": given.rounds, **said, **found}
            write(given.out, {"units": UNITS, "groups": GROUPS, "asked": ASK, "parts": parts}, "duckdb", "sqlglot", "pyarrow")
    return 0


if __name__ == "__main__":
    sys.exit(main())
