"""How long `discreet demo` takes, from its start to the report.

    python bench/demo.py

Writes bench/results/demo.json. Promised: below two minutes of processor time. Wall time stands beside it, for a quiet machine.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _record import write

RUNS, PROMISED = 3, 120.0


def once() -> dict[str, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "discreet.cli", "demo", "-o", folder], check=True, capture_output=True)
        size = (Path(folder) / "report.html").stat().st_size
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_seconds": round(wall, 1), "cpu_seconds": round(cpu, 1), "report_kilobytes": round(size / 1e3, 1)}


def main() -> int:
    load = round(os.getloadavg()[0], 1)
    runs = [once() for _ in range(RUNS)]
    for run in runs:
        print(f"{run['cpu_seconds']:.1f} s of processor time, {run['wall_seconds']:.1f} s on the clock")
    write(
        Path(__file__).parent / "results/demo.json",
        {"promised_cpu_seconds": PROMISED, "load_before": load, "runs": runs},
        "torch",
        "duckdb",
    )
    return int(max(run["cpu_seconds"] for run in runs) > PROMISED)


if __name__ == "__main__":
    sys.exit(main())
