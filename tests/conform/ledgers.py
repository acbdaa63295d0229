"""Every engine a ledger can live in, and a worker that charges one from a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ENGINES = ["sqlite", "sqlite without file locks"]

_WORKER = """
import sys
from discreet.ledger import sqlite
path, engine, times, noise, key = sys.argv[1:]
if engine == "sqlite without file locks":
    sqlite.fcntl = None
from discreet import Ledger, record
from discreet.accounting import Gaussian
from discreet.core import Claim, Game
from discreet.errors import BudgetExceeded
ledger = Ledger(path)
claim = Claim(game=Game(record(), {"answers"}), event=Gaussian(float(noise)))
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(times)):
    try:
        charge = ledger.reserve("people", claim, key=key or None)
    except BudgetExceeded:
        print("refused", flush=True)
        continue
    print("reserved", charge.id, int(charge.repeated), flush=True)
    with charge:
        if not charge.repeated:
            charge.settle(answer=charge.id)
    print("settled", charge.id, flush=True)
"""


def worker(path: Path, engine: str, times: int, noise: float, key: str = "") -> subprocess.Popen[str]:
    """A process that waits for a line, then charges `times` times and tells of each step."""
    arguments = [sys.executable, "-c", _WORKER, str(path), engine, str(times), str(noise), key]
    made = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert made.stdout is not None
    assert made.stdout.readline() == "ready\n"
    return made


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
