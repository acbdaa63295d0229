"""The noise of private training beside torch's own generator, interleaved in one run.

    python bench/sgd_noise.py [--device cuda] [--rounds N] [--out bench/results/sgd_noise.json]

Nanoseconds for each weight, medians over the rounds, one thread: CPU time on a CPU, CUDA events on a GPU. `ours` is what
training uses: a cipher keyed by the operating system, any shard of it bit for bit the same. Beside it the same numbers
made without a compiler (numpy) or without Triton (torch's operations). With --out, a device that was not measured keeps
the rows that the file has.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from _record import write
from discreet.learn.sgd import chacha, native, stream
from discreet.learn.sgd.stream import Stream

SIZES = {"cpu": (26_010, 89_956, 1_302_116, 3_442_688), "cuda": (1_302_116, 25_000_000, 124_000_000)}
ENOUGH = {"cpu": 1_000_000, "cuda": 2_000_000_000}  # weights in one timing


def cases(device: str, size: int) -> dict[str, Callable[[], Any]]:
    out, source = torch.empty(size, device=device), Stream(bytes(range(32)), device)
    ours = {"torch normal_": out.normal_, "ours": lambda: source.fill(out, step=1, scale=0.5)}
    if device == "cpu":
        return {**ours, "ours without a compiler": lambda: without_compiler(source, out)}
    return {
        **ours,
        "torch randn": lambda: torch.randn(size, device=device),
        "ours without Triton": lambda: chacha.fill(bytes(32), 1, 0, 0.5, out),
    }


def without_compiler(source: Stream, out: torch.Tensor) -> None:
    kept, stream.native.kernel = native.kernel, lambda: None
    try:
        source.fill(out, step=1, scale=0.5)
    finally:
        stream.native.kernel = kept


def nanoseconds(device: str, function: Callable[[], Any], repeat: int) -> float:
    if device == "cpu":
        start = time.process_time()
        for _ in range(repeat):
            function()
        return (time.process_time() - start) / repeat * 1e9
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(repeat):
        function()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / repeat * 1e6


def measure(device: str, rounds: int) -> list[dict[str, Any]]:
    rows = []
    for size in SIZES[device]:
        found: dict[str, list[float]] = {}
        work = cases(device, size)
        for number in range(rounds + 1):
            for name, function in work.items():
                few = "without Triton" in name
                taken = nanoseconds(device, function, 1 if few else max(1, ENOUGH[device] // size)) / size
                if number:  # the first round warms up
                    found.setdefault(name, []).append(taken)
        median = {name: statistics.median(times) for name, times in found.items()}
        ratio = [mine / theirs for mine, theirs in zip(found["ours"], found["torch normal_"])]
        rows.append({
            "device": device, "weights": size, "ns_per_weight": {name: float(f"{value:.3g}") for name, value in median.items()},
            "times_torch": round(statistics.median(ratio), 3),
            "times_torch_spread": [round(min(ratio), 3), round(max(ratio), 3)],
        })  # fmt: skip
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        each = ", ".join(f"{name} {value:g}" for name, value in row["ns_per_weight"].items())
        print(f"{row['device']:>5} {row['weights']:>11,} weights: {row['times_torch']:.2f} x torch    ns a weight: {each}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = measure(options.device, options.rounds)
    show(rows)
    compiled = native.kernel() if options.device == "cpu" else None
    how = {"compiled": compiled is not None, "aes_instructions": bool(compiled and compiled.fill)}
    if options.device == "cuda":
        how = {"gpu": torch.cuda.get_device_name(), "rounds_of_chacha": chacha.ROUNDS, "torch": torch.__version__}
    old = json.loads(options.out.read_text())["rows"] if options.out and options.out.exists() else []
    kept = [row for row in old if row["device"] != options.device]
    write(options.out, {"rounds": options.rounds, "rows": kept + [{**row, **how} for row in rows]}, "torch", "cryptography")
    return 0


if __name__ == "__main__":
    sys.exit(main())
