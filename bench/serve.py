"""200 analysts at once ask the web app for a minute: no error, no overspending, and how long an answer takes.

    python bench/serve.py [--analysts 200] [--seconds 60] [--out bench/results/serve.json]

`discreet serve` runs on loopback with a table of 20,000 rows and a budget that each analyst has an equal share of. Every
analyst is a program with a connection of its own that asks without a pause: what a question would cost, the question, the
same question again (the same answer, free), the page of the source. Shares run out on the way, and from then on questions
are refused: that is no error. An error is any other status than 200 and 409, a connection that breaks, or an answer that
says something else the second time. Afterwards the ledger is verified, its sums are held against its limits, and every
answer against its charge. Clients run on the same machine, so the times are those of a crowded one.
"""

from __future__ import annotations

import argparse
import http.client
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from _record import write

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import serving
from discreet import Ledger
from discreet.ledger.amount import Amount

EPSILON, PART = 3.0, 0.02  # of the source, and of one question
STEPS = ("explain", "ask", "again", "source")


class Crowd:
    """What all analysts saw."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {step: [] for step in STEPS}
        self.entries: list[str] = []
        self.statuses: Counter[int] = Counter()
        self.errors: list[str] = []
        self._lock = threading.Lock()

    def saw(self, step: str, taken: float, status: int, found: Any) -> None:
        with self._lock:
            self.times[step].append(taken)
            self.statuses[status] += 1
            if status not in (200, 409):
                self.errors.append(f"{step}: {status} {str(found)[:200]}")

    def failed(self, told: str) -> None:
        with self._lock:
            self.errors.append(told)


def timed(crowd: Crowd, step: str, call: Any) -> tuple[int, Any]:
    began = time.perf_counter()
    status, found = call()
    crowd.saw(step, time.perf_counter() - began, status, found)
    return status, found


def work(crowd: Crowd, address: str, name: str, token: str, start: threading.Barrier, seconds: float) -> None:
    """One analyst, until the time is over."""
    try:
        with serving.Analyst(address, token) as one:
            start.wait()
            end, number = time.monotonic() + seconds, 0
            while time.monotonic() < end:
                number += 1
                turn(crowd, one, f"SELECT ward, COUNT(*) AS {name}_{number}, AVG(age) AS age FROM visits GROUP BY ward")
    except (OSError, http.client.HTTPException, ValueError) as error:
        crowd.failed(f"{type(error).__name__}: {str(error)[:200]}")


def turn(crowd: Crowd, one: serving.Analyst, sql: str) -> None:
    """What it would cost, the answer, the same answer again, and what is left."""
    form = {"source": serving.SOURCE, "sql": sql, "epsilon": PART}
    timed(crowd, "explain", lambda: one.call("/console/explain", **form))
    status, answer = timed(crowd, "ask", lambda: one.ask(sql, PART))
    if status == 200:
        crowd.entries.append(answer["entry"])
        again = timed(crowd, "again", lambda: one.ask(sql, PART))
        if again[0] != 200 or (again[1]["entry"], again[1]["columns"]) != (answer["entry"], answer["columns"]):
            crowd.failed(f"another answer the second time: {again[0]}")
    timed(crowd, "source", lambda: one.call(f"/sources/{serving.SOURCE}"))


def audited(folder: Path, crowd: Crowd) -> dict[str, Any]:
    """The ledger afterwards: its chain, its sums against its limits, its charges against the answers."""
    with Ledger(folder / "ledger.db") as ledger:
        ledger.verify()
        entries = list(ledger.history(serving.SOURCE))
        accounts = [ledger.balance(serving.SOURCE, name) for name in (*ledger.accounts(serving.SOURCE), None)]
    paid = {entry.id for entry in entries if entry.kind == "reserve"}
    over = sum(not each.holds(Amount(0, 0, 0)) for each in accounts)
    return {
        "charges": len(paid), "refusals": sum(entry.kind == "refuse" for entry in entries), "accounts_overspent": over,
        "answers_without_a_charge": len(set(crowd.entries) - paid), "charges_without_an_answer": len(paid - set(crowd.entries)),
        "answers_that_share_a_charge": len(crowd.entries) - len(set(crowd.entries)),
        "budget_spent": round(accounts[-1].part_spent, 4),
    }  # fmt: skip


def figures(times: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(times, n=100) if len(times) > 1 else times * 99
    return {"count": len(times), "median_s": round(cuts[49], 3), "p95_s": round(cuts[94], 3), "most_s": round(max(times), 3)}


def measure(analysts: int, seconds: float) -> dict[str, Any]:
    crowd = Crowd()
    with tempfile.TemporaryDirectory() as spare:
        folder = Path(spare)
        tokens = serving.prepare(folder, analysts, epsilon=EPSILON)
        with serving.running(folder) as (process, address):
            start = threading.Barrier(analysts + 1)
            threads = [threading.Thread(target=work, args=(crowd, address, name, token, start, seconds))
                       for name, token in tokens.items()]  # fmt: skip
            for thread in threads:
                thread.start()
            start.wait()
            began = time.perf_counter()
            for thread in threads:
                thread.join()
            taken = time.perf_counter() - began
            alive = process.poll() is None
        found = audited(folder, crowd)
        quiet = "Traceback" not in (folder / "server.log").read_text() and " ERROR " not in (folder / "server.log").read_text()
    asked = sum(map(len, crowd.times.values()))
    return {
        "analysts": analysts, "seconds": round(taken, 1), "requests": asked, "requests_a_second": round(asked / taken, 1),
        "statuses": {str(status): count for status, count in sorted(crowd.statuses.items())},
        "errors": len(crowd.errors), "first_errors": crowd.errors[:5],
        "steps": {step: figures(times) for step, times in crowd.times.items() if times}, "ledger": found,
        "goals": {
            "no error": not crowd.errors and alive and quiet,
            "no account beyond its share, nor the source beyond its budget": found["accounts_overspent"] == 0,
            "no answer without its charge": found["answers_without_a_charge"] + found["answers_that_share_a_charge"] == 0,
            "questions were answered, and refused when shares ran out": found["charges"] > 0 and found["refusals"] > 0,
        },
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--analysts", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    given = parser.parse_args()
    found = measure(given.analysts, given.seconds)
    for name, value in found.items():
        print(f"{name:20} {value}")
    write(given.out, found, "duckdb", "starlette", "uvicorn")
    return 0 if all(found["goals"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
