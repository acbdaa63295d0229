"""Durable charges a second, from one process and from sixteen: synced in groups, and synced one by one.

    python bench/ledger.py [--folder FOLDER] [--out FILE]

Interleaved in one run. The folder must be on the disk that is meant; the bare syncs of a file there are timed beside.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _record import write
from discreet import Ledger, record

ROUNDS, CHARGES = 3, 1600
_WORKER = """
import sys
from discreet.ledger import sqlite
if sys.argv[2] == "one by one":
    sqlite.fcntl = None
from discreet import Ledger, record
from discreet.accounting import Gaussian
from discreet.core import Claim, Game
ledger = Ledger(sys.argv[1])
claim = Claim(game=Game(record(), {"answers"}), event=Gaussian(20000.0))
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[3])):
    ledger.reserve("people", claim)
"""


def charges(folder: Path, way: str, processes: int) -> float:
    """Charges a second of this many processes together."""
    path = Path(tempfile.mkdtemp(dir=folder)) / "ledger.db"
    with Ledger(path) as ledger:
        ledger.open("people", unit=record(), epsilon=3.0, delta=1e-6)
    command = [sys.executable, "-c", _WORKER, str(path), way, str(CHARGES // processes)]
    crowd = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    for process in crowd:
        assert process.stdout is not None
        process.stdout.readline()
    began = time.perf_counter()
    for process in crowd:
        _go(process)
    assert [process.wait() for process in crowd] == [0] * processes
    taken = time.perf_counter() - began
    with Ledger(path) as ledger:
        ledger.verify()
    return CHARGES / taken


def _go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def syncs(folder: Path) -> float:
    """Bare syncs of a small append a second."""
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        began = time.perf_counter()
        for _ in range(200):
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
        return 200 / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results") / "ledger.json")
    given = parser.parse_args()
    taken: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        taken.setdefault("bare syncs", []).append(syncs(given.folder))
        for processes in (1, 16):
            for way in ("in groups", "one by one"):
                taken.setdefault(f"{way}, {processes}", []).append(charges(given.folder, way, processes))
    rows = {
        name: {"median": round(statistics.median(found)), "all": [round(x) for x in found]} for name, found in taken.items()
    }
    for name, row in rows.items():
        print(f"{name:16} {row['median']:7} a second   {row['all']}")
    write(given.out, {"rounds": ROUNDS, "charges": CHARGES, "cores": os.cpu_count(), "a_second": rows})


if __name__ == "__main__":
    main()
