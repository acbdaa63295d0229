"""How wrong private answers are at equal epsilon, delta and unit: ours, OpenDP, SmartNoise, PipelineDP.

    python bench/sql_accuracy.py [--opendp PYTHON] [--smartnoise PYTHON] [--pipeline-dp PYTHON] [--case NAME]
                                 [--kept FOLDER] [--out bench/results/sql_accuracy.json]

Each of count, sum, mean and median is asked alone, the first three in one query, and all four in one, many times with
fresh noise. The error
of one answer is the mean over groups of the distance from the truth in all rows of the table, what bounding loses
included; of several answers their mean, with its standard error. Where group names are public, all groups count;
where they are private, those that everyone released in nearly every answer, with the number released beside.

    adult, public      Adult by education, age; a row is a unit
    adult, private     Adult by education and occupation, hours a week; a row is a unit
    users, public      200,000 made-up rows of 20,000 people, some far busier than others, in 50 skewed groups
    users, private     the same, with private names of groups

Units that are people are bounded to 4 groups of 10 rows, or to 40 rows in all; where an engine offers both, its better one
is taken, statistic by statistic. Adult is read from ../shared/data/adult, and left out where it is absent.

Peers take an hour. With --kept their answers are kept in a folder, one file an engine and case, and an engine that is not asked
again (no interpreter, or --without it) is compared by what is there.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pyarrow import parquet

from _record import write
from sql import PEERS, Measured, Worker

ADULT = Path(__file__).parents[2] / "shared" / "data" / "adult"
STATISTICS = ("count", "sum", "mean", "median")
QUERIES = {**{name: [name] for name in STATISTICS}, "of three": ["count", "sum", "mean"], "of four": list(STATISTICS)}
BY_GROUPS, BY_ROWS = {"groups": 4, "rows": 10}, {"groups": None, "rows": 40}
RUNS = {"discreet": 60, "opendp": 60, "smartnoise": 15, "pipelinedp": 10}  # what their speed allows
WAYS: dict[str, dict[str, dict[str, Any]]] = {
    "discreet": {"4 groups of 10 rows": BY_GROUPS, "40 rows": BY_ROWS},
    "opendp": {"4 groups of 10 rows": BY_GROUPS, "40 rows": BY_ROWS},
    "smartnoise": {"40 rows": BY_ROWS},
    "pipelinedp": {"4 groups of 10 rows": BY_GROUPS},
}


def adult(path: Path) -> Path:
    """Education, occupation, age and hours of all 48,842 rows."""
    rows = []
    for name in ("adult.data.gz", "adult.test.gz"):
        for line in gzip.decompress((ADULT / name).read_bytes()).decode().splitlines():
            cells = [cell.strip() for cell in line.split(",")]
            if len(cells) == 15:
                rows.append((cells[3], cells[6], int(cells[0]), int(cells[12])))
    names = ("education", "occupation", "age", "hours")
    parquet.write_table(pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))), path)
    return path


def people(path: Path, rows: int = 200_000, units: int = 20_000, groups: int = 50) -> Path:
    """Some people are far busier than others; most rows of one are in three groups; groups are skewed, and differ in value."""
    share = "hash({}, {})::DOUBLE / 18446744073709551616.0"
    skewed = f"least(floor({groups} * power({{}}, 2)), {groups - 1})::BIGINT"
    busy = f"least(floor({units} * power({share.format('i', 11)}, 1.5)), {units - 1})::BIGINT"
    home = skewed.format(share.format("uid, hash(i, 12) % 3", 13))
    away = skewed.format(share.format("i", 14))
    made = f"""SELECT uid, CASE WHEN hash(i, 15) % 20 = 0 THEN {away} ELSE {home} END AS g, {share.format("i", 16)} AS z
        FROM (SELECT i, {busy} AS uid FROM range({rows}) AS r(i)) AS m"""
    with duckdb.connect() as link:
        link.execute(f"""COPY (SELECT uid, g, floor(100 * power(z, 0.5 + g / {groups}.0))::BIGINT AS v FROM ({made}) AS m)
            TO '{path}' (FORMAT parquet)""").fetchall()
    return path


def cases(folder: Path) -> dict[str, dict[str, Any]]:
    record = {"unit": None, "groups": None, "rows": 1}
    found: dict[str, dict[str, Any]] = {}
    if ADULT.exists():
        table = str(adult(folder / "adult.parquet"))
        found["adult, public"] = {**record, "table": table, "keys": ["education"], "value": "age", "bounds": [17, 90]}
        found["adult, private"] = {
            **record, "table": table, "keys": ["education", "occupation"], "value": "hours", "bounds": [1, 99],
        }  # fmt: skip
    user = {"table": str(people(folder / "people.parquet")), "unit": "uid", "keys": ["g"], "value": "v", "bounds": [0, 100]}
    found["users, public"] = found["users, private"] = user
    return {name: {**case, "epsilon": 1.0, "delta": 1e-7} for name, case in found.items()}


def truth_of(case: dict[str, Any]) -> dict[str, dict[str, float]]:
    worker = Worker("duckdb")
    found = worker.ask(**{"groups": None, "rows": 1, **case, "ask": list(STATISTICS)})
    worker.close()
    return found["answers"][0]


def public(case: dict[str, Any]) -> list[list[Any]]:
    keys = ", ".join(case["keys"])
    with duckdb.connect() as link:
        return [list(row) for row in link.sql(f"SELECT DISTINCT {keys} FROM '{case['table']}' ORDER BY ALL").fetchall()]


def answers(
    engine: str, worker: Worker, name: str, case: dict[str, Any], runs: float, only: list[str]
) -> dict[str, dict[str, Any]]:
    """Way -> query -> the answers."""
    ways = WAYS[engine] if case["unit"] else {"rows": {}}
    found: dict[str, dict[str, Any]] = {}
    for way, bound in ways.items():
        for query, ask in QUERIES.items():
            if only and query not in only:
                continue
            times = max(2, round(RUNS[engine] * runs))
            reply = worker.ask(**{**case, **bound, "ask": ask, "times": times})
            if "failed" in reply:
                print(f"{name}, {engine}, {way}, {query}: {reply['failed']}", file=sys.stderr)
                continue
            found.setdefault(way, {})[query] = reply["answers"]
            print(f"{name}, {engine}, {way}, {query}: {sum(reply['cpu']):.1f} s", file=sys.stderr)
    return found


def asked_or_kept(
    engine: str, worker: Worker | None, folder: Path | None, name: str, case: dict[str, Any], runs: float, only: list[str]
) -> dict[str, Any]:
    """The version and the answers of an engine: asked now, and then kept; else what was kept; else nothing."""
    path = folder / f"{engine}, {name}.json" if folder else None
    if worker is not None:
        reply = {"version": worker.version, "answers": answers(engine, worker, name, case, runs, only)}
        if only and path and path.exists():  # the other queries stay as they were
            for way, queries in json.loads(path.read_text())["answers"].items():
                reply["answers"][way] = {**queries, **reply["answers"].get(way, {})}
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(reply))
        return reply
    return json.loads(path.read_text()) if path and path.exists() else {}


def common(found: dict[str, dict[str, dict[str, Any]]], query: str, truth: Iterable[str]) -> set[str]:
    """Groups released in 9 of 10 answers by every way that releases at least half as many as the best one."""
    often: list[set[str]] = []
    for ways in found.values():
        for queries in ways.values():
            runs = queries.get(query, [])
            if runs:
                often.append({group for group in truth if sum(group in answer for answer in runs) >= 0.9 * len(runs)})
    most = max((len(groups) for groups in often), default=0)
    return set.intersection(*(groups for groups in often if len(groups) >= most / 2)) if often else set()


def errors(runs: list[Any], statistic: str, groups: set[str], truth: dict[str, Any]) -> Measured | None:
    """The mean over answers, its standard error, and how many groups were released."""
    each = []
    for answer in runs:
        parts = [abs(answer[g][statistic] - truth[g][statistic]) for g in groups if statistic in answer.get(g, {})]
        if len(parts) >= 0.8 * len(groups) and parts:
            each.append(statistics.mean(parts))
    if len(each) < 2:
        return None
    spread = statistics.stdev(each) / math.sqrt(len(each))
    released = statistics.mean(len(answer) for answer in runs)
    return {"error": _short(statistics.mean(each)), "standard_error": _short(spread), "answers": len(each),
            "released": round(released, 1)}  # fmt: skip


def _short(number: float) -> float:
    return float(f"{number:.4g}")


def compare(found: dict[str, Any], truth: dict[str, Any], private: bool, before: dict[str, Any]) -> dict[str, Any]:
    """Query and statistic -> engine -> its best way; and who is best. Engines without answers keep their figures from before,
    where as many groups were compared."""
    rows: dict[str, Any] = {}
    for query, ask in QUERIES.items():
        groups = common(found, query, truth) if private else set(truth)
        for statistic in ask:
            row: dict[str, Any] = {}
            for engine, ways in found.items():
                taken = {way: errors(made[query], statistic, groups, truth) for way, made in ways.items() if query in made}
                best = min((way for way in taken if taken[way]), key=lambda way: taken[way]["error"], default=None)
                if best:
                    row[engine] = {"way": best, **taken[best], "ways": {way: it for way, it in taken.items() if it}}
            name = statistic if query == statistic else f"{statistic} {query}"
            old = before.get(name, {})
            if old.get("groups_compared") == len(groups):
                row = {engine: row.get(engine) or old[engine] for engine in RUNS if engine in row or engine in old}
            rows[name] = {"groups_compared": len(groups), "of": len(truth), **row, **judge(row)}
    return rows


def judge(row: dict[str, Any]) -> dict[str, Any]:
    """Better or worse only beyond two standard errors of the difference."""
    peers = {name: it for name, it in row.items() if name != "discreet"}
    if "discreet" not in row or not peers:
        return {}
    ours, best = row["discreet"], min(peers, key=lambda name: peers[name]["error"])
    slack = 2 * math.hypot(ours["standard_error"], peers[best]["standard_error"])
    gap = ours["error"] - peers[best]["error"]
    verdict = "better" if gap < -slack else "worse" if gap > slack else "equal"
    return {"best_peer": best, "ours_of_best_peer": round(ours["error"] / peers[best]["error"], 3), "verdict": verdict}


def show(name: str, rows: dict[str, Any]) -> None:
    print(f"\n{name}")
    print(f"  {'':17} {'groups':>9}  " + "".join(f"{engine:>26}" for engine in RUNS) + "   ours/best peer")
    for statistic, row in rows.items():
        cells = "".join(_cell(row.get(engine)) for engine in RUNS)
        print(f"  {statistic:17} {row['groups_compared']:>4}/{row['of']:<4}  {cells}", end="   ")
        print(row.get("ours_of_best_peer", "-"), row.get("verdict", ""))
    print("  mean absolute error of a group ± standard error (groups released)")


def _cell(it: dict[str, Any] | None) -> str:
    return f"{it['error']:>12.5g} ±{it['standard_error']:<6.2g}({it['released']:>4.0f})" if it else f"{'-':>26}"


def goals(found: dict[str, Any]) -> dict[str, bool]:
    made = {}
    for name, rows in found.items():
        for asked, more in {"asked alone": "", "in one query": " of four"}.items():
            verdicts = [rows[statistic + more].get("verdict") for statistic in STATISTICS]
            made[f"{name}, {asked}: no worse than the best peer on any"] = "worse" not in verdicts and None not in verdicts
            made[f"{name}, {asked}: better on at least three of four"] = verdicts.count("better") >= 3
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--opendp", metavar="PYTHON")
    parser.add_argument("--smartnoise", metavar="PYTHON")
    parser.add_argument("--pipeline-dp", metavar="PYTHON", dest="pipelinedp")
    parser.add_argument("--case", action="append", help="only these cases")
    parser.add_argument("--runs", type=float, default=1.0, help="times the usual number of answers")
    parser.add_argument("--kept", type=Path, help="where answers are kept, and taken from for engines that are not asked")
    parser.add_argument("--query", action="append", default=[], choices=tuple(QUERIES), help="ask only these again")
    parser.add_argument("--without", action="append", default=[], choices=tuple(RUNS), help="do not ask these again")
    parser.add_argument("--out", type=Path, help="write the result as JSON; other cases in it are kept")
    given = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    kept = json.loads(given.out.read_text()) if given.out and given.out.exists() else {}
    found: dict[str, Any] = kept.get("cases", {})
    versions: dict[str, str] = kept.get("versions", {})
    with tempfile.TemporaryDirectory() as folder:
        pythons = {"discreet": sys.executable} | {name: getattr(given, name) for name in PEERS if getattr(given, name)}
        crowd = {name: Worker(name, python) for name, python in pythons.items() if name not in given.without}
        for name, case in cases(Path(folder)).items():
            if given.case and name not in given.case:
                continue
            private = name.endswith("private")
            asked = case if private else {**case, "public": public(case)}
            replies = {
                engine: asked_or_kept(engine, crowd.get(engine), given.kept, name, asked, given.runs, given.query)
                for engine in RUNS
            }
            versions |= {engine: reply["version"] for engine, reply in replies.items() if reply}
            taken = {engine: reply["answers"] for engine, reply in replies.items() if reply}
            found[name] = compare(taken, truth_of(case), private, found.get(name, {}))
            show(name, found[name])
        for worker in crowd.values():
            worker.close()
    made = goals(found)
    for line, met in made.items():
        print(f"{'met    ' if met else 'NOT MET'} {line}")
    write(given.out, {"versions": versions, "epsilon": 1.0, "delta": 1e-7, "runs": RUNS, "goals": made, "cases": found},
          "duckdb", "sqlglot", "pyarrow")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
