"""How long discreet takes to start, as a multiple of a bare interpreter, interleaved in one run.

    python bench/startup.py

Writes bench/results/startup.json. Promised: `import discreet` below 2, `discreet --help` below 6.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from _record import write

ROUNDS = 25
PROMISED = {"import discreet": 2.0, "discreet --help": 6.0}
COMMANDS = {
    "bare": [sys.executable, "-c", ""],
    "import discreet": [sys.executable, "-c", "import discreet"],
    "discreet --help": [str(Path(sys.executable).with_name("discreet")), "--help"],
    "import click": [sys.executable, "-c", "import click"],
    "import numpy": [sys.executable, "-c", "import numpy"],
}


def seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> int:
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for name in COMMANDS:
        seconds(COMMANDS[name])  # warm the caches
    for _ in range(ROUNDS):
        for name, command in COMMANDS.items():
            taken[name].append(seconds(command))
    ratios = {name: [a / b for a, b in zip(times, taken["bare"])] for name, times in taken.items() if name != "bare"}
    rows = {
        name: {"median": round(statistics.median(found), 2), "low": round(min(found), 2), "high": round(max(found), 2)}
        for name, found in ratios.items()
    }
    print(f"{'':20} median   low  high   (times a bare interpreter, {ROUNDS} interleaved rounds)")
    for name, row in rows.items():
        print(f"{name:20} {row['median']:6.2f} {row['low']:5.2f} {row['high']:5.2f}")
    found = {
        "rounds": ROUNDS,
        "bare_milliseconds": round(statistics.median(taken["bare"]) * 1000, 1),
        "ratio_to_bare_interpreter": rows,
    }
    write(Path(__file__).with_name("results") / "startup.json", found)
    return int(any(rows[name]["median"] >= limit for name, limit in PROMISED.items()))


if __name__ == "__main__":
    sys.exit(main())
