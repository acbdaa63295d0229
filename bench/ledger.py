"""Durable charges a second, from one process and from sixteen: SQLite synced in groups and one by one, and PostgreSQL.

    python bench/ledger.py [--folder FOLDER] [--out FILE]

Interleaved in one run, each process warm before the clock starts; the clock stops when the last of them has told its last
charge. Beside the charges a second stands the processor time of one charge, which others on the machine change less. The
folder must be on the disk that is meant; bare syncs of a file there are timed beside. PostgreSQL, where it is installed, is
started for the purpose, with its files in the system's folder for temporary files.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from _record import write
from discreet import Ledger, record

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import postgres

ROUNDS, CHARGES = 5, 3200
WAYS = ("in groups", "one by one", "postgres")
_WORKER = """
import resource, sys
from discreet.ledger import sqlite
if sys.argv[2] == "one by one":
    sqlite.fcntl = None
from discreet import Ledger, record
from discreet.accounting import Gaussian
from discreet.core import Claim, Game
ledger = Ledger(sys.argv[1])
claim = Claim(game=Game(record(), {"answers"}), event=Gaussian(20000.0))
ledger.reserve("people", claim)
print("ready", flush=True)
sys.stdin.readline()
before = resource.getrusage(resource.RUSAGE_SELF)
for _ in range(int(sys.argv[3])):
    ledger.reserve("people", claim)
after = resource.getrusage(resource.RUSAGE_SELF)
print(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, flush=True)
sys.stdin.readline()
"""


def charges(place: str, way: str, processes: int, count: int) -> tuple[float, float]:
    """Charges a second of this many processes together, and the microseconds of processor time of each charge."""
    with Ledger(place) as ledger:
        ledger.open("people", unit=record(), epsilon=3.0, delta=1e-6)
    command = [sys.executable, "-c", _WORKER, place, way, str(count // processes)]
    crowd = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    for process in crowd:
        _line(process)
    began = time.perf_counter()
    for process in crowd:
        _go(process)
    used = sum(float(_line(process)) for process in crowd)
    taken = time.perf_counter() - began
    for process in crowd:
        process.communicate("\n")
    assert [process.returncode for process in crowd] == [0] * processes
    with Ledger(place) as ledger:
        ledger.verify()
        assert len(ledger.history()) == 1 + processes + count // processes * processes
    return count / taken, 1e6 * used / count


def _go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def syncs(folder: Path) -> float:
    """Bare syncs of a small append a second."""
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        began = time.perf_counter()
        for _ in range(200):
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
        return 200 / (time.perf_counter() - began)


def one(folder: Path, server: str | None, way: str, processes: int, count: int) -> tuple[float, float]:
    """One measurement, on a new ledger."""
    if way != "postgres":
        with tempfile.TemporaryDirectory(dir=folder) as own:
            return charges(str(Path(own) / "ledger.db"), way, processes, count)
    assert server is not None
    with postgres.database(server) as url:
        return charges(url, way, processes, count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results") / "ledger.json")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--charges", type=int, default=CHARGES)
    given = parser.parse_args()
    rates: dict[str, list[float]] = {}
    used: dict[str, list[float]] = {}
    with ExitStack() as stack:
        server = None if postgres.missing() else stack.enter_context(postgres.server())
        for _ in range(given.rounds):
            rates.setdefault("bare syncs", []).append(syncs(given.folder))
            for processes in (1, 16):
                for way in WAYS if server else WAYS[:2]:
                    found = one(given.folder, server, way, processes, given.charges)
                    rates.setdefault(f"{way}, {processes}", []).append(found[0])
                    used.setdefault(f"{way}, {processes}", []).append(found[1])
    told = {"a_second": _summary(rates), "processor_us_a_charge": _summary(used)}
    for name, row in told["a_second"].items():
        cost = told["processor_us_a_charge"].get(name)
        print(f"{name:16} {row['median']:7} a second   {row['all']}" + (f"   {cost['median']} us each" if cost else ""))
    write(given.out, {"rounds": given.rounds, "charges": given.charges, "cores": os.cpu_count(), **told}, "psycopg")


def _summary(found: dict[str, list[float]]) -> dict[str, Any]:
    return {
        name: {"median": round(statistics.median(values)), "all": [round(value) for value in values]}
        for name, values in found.items()
    }


if __name__ == "__main__":
    main()
