"""What every worker of bench/sgd.py does: build one step of training, then time blocks of it.

    WORKER.py TASK VARIANT [--device cpu|cuda] [--precision float32|tf32|bf16]

The first line of its answers says how many numbers are trained, or why it failed. Then each line it reads is a number of
steps, to which it replies with the seconds each took (wall, CPU and, on a GPU, by device events) and the most memory held so
far, in MiB over what was held when the model and its batch were loaded; or "settled": what is needed to begin has been done,
so the peak starts again; or "profile". The standard library is enough.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

CLIP, NOISE, RATE = 1.0, 1.0, 0.05  # clip norm, noise multiplier, learning rate
BATCH = {
    "mlp": 256, "mlp-small": 256, "mnist-cnn": 256, "cifar-cnn": 64, "gpt": 32,
    "mlp-4096": 4096, "wrn-16-4": 512, "gpt-12": 32,
    "resnet-18": 256, "separable": 256, "llama": 64, "mlp-dropout": 256, "u-net": 128, "vit": 256, "lstm": 128,
}  # fmt: skip
Step = Callable[[], Any]


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("task")
    parser.add_argument("variant")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    return parser.parse_args()


def serve(build: Callable[[argparse.Namespace], tuple[int, Callable[[], Step]]]) -> None:
    """`build` loads model and batch and returns how many numbers are trained and what makes the step of it."""
    warnings.simplefilter("ignore")
    given = asked()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is not an answer
    clock = Device() if given.device == "cuda" else Host()
    try:
        size, make = build(given)
        clock.loaded()
        step = make()
        say(out, {"numbers": size})
    except Exception as error:
        say(out, failure(error))
        return
    for line in sys.stdin:
        try:
            say(out, answer(line.strip(), step, clock))
        except Exception as error:  # a peer that cannot is a result, not a crash
            say(out, failure(error))


def answer(line: str, step: Step, clock: Host) -> dict[str, Any]:
    if line == "profile":
        return {"profile": profile(step)}
    if line == "settled":
        return {"begin_mib": clock.settled()}
    return clock.block(step, int(line))


def say(out: Any, what: dict[str, Any]) -> None:
    print(json.dumps(what), file=out, flush=True)


def failure(error: Exception) -> dict[str, Any]:
    return {"failed": f"{type(error).__name__}: {str(error)[:300]}"}


def profile(step: Step, steps: int = 5, lines: int = 25) -> list[str]:
    """Where the time of a step goes, operation by operation: microseconds a step, calls a step, name."""
    import torch

    with torch.profiler.profile() as taken:
        for _ in range(steps):
            step()
    report, events = list[str](), taken.key_averages()
    for place in ("device", "host"):
        there = [event.device_type != torch.autograd.DeviceType.CPU for event in events]
        here = [event for event, is_there in zip(events, there, strict=True) if is_there == (place == "device")]
        took = "self_device_time_total" if place == "device" else "self_cpu_time_total"
        spent = {event: getattr(event, took) / steps for event in here}
        report += [f"{sum(spent.values()):10.1f} us on the {place}"] if here else []
        for event in sorted(here, key=spent.__getitem__, reverse=True)[:lines]:
            report.append(f"{spent[event]:10.1f} us {event.count / steps:7.1f} calls  {event.key[:90]}")
    return report


class Host:
    """Seconds of this process, memory of this process."""

    base = 0.0

    def loaded(self) -> None:
        self.settled()
        self.base = status("VmRSS")

    def settled(self) -> float:
        """The peak so far; another one starts from what is held now."""
        most = status("VmHWM") - self.base
        Path("/proc/self/clear_refs").write_text("5")
        return most

    def block(self, step: Step, steps: int) -> dict[str, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(steps):
            step()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return {"wall": wall / steps, "cpu": cpu / steps, "peak_mib": status("VmHWM") - self.base}


class Device(Host):
    """Seconds between two events on the device; memory that torch holds of it, what a recorded graph keeps included."""

    def loaded(self) -> None:
        import torch

        self.settled()
        self.base = torch.cuda.memory_reserved() / 2**20

    def settled(self) -> float:
        import torch

        most = torch.cuda.max_memory_reserved() / 2**20 - self.base
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return most

    def block(self, step: Step, steps: int) -> dict[str, float]:
        import torch

        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        wall = time.perf_counter()
        start.record()
        for _ in range(steps):
            step()
        end.record()
        torch.cuda.synchronize()
        wall = time.perf_counter() - wall
        peak = torch.cuda.max_memory_reserved() / 2**20 - self.base
        return {"wall": wall / steps, "device": start.elapsed_time(end) / 1e3 / steps, "peak_mib": peak}


def status(what: str) -> float:
    """A line of this process's status, in MiB; getrusage would count what its parent held before it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what + ":"):
            return int(line.split()[1]) / 1024
    return math.nan
