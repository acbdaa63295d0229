"""Does an audit of training find planted bugs in one run, and how often does it cry wolf?

    python bench/audit_training.py [--part bugs,models] [--runs 200] [--sound 1000] [--jobs 2] [--out FILE]

bugs    A small private training (a linear model of 20 inputs on 400 rows, one pass of 4 Poisson batches, claimed epsilon 6 at
        delta 1e-5) with 60,000 gradient canaries beside it, each among the rows by a fair coin. Every trial is one run, by
        our own engine, with one bug planted in it; the observer sees the updates. Detected: the claim is refuted at 95 %.
        Beside it the floor on epsilon at delta 1e-5 that needs no assumption on what ran (all canaries as one run).
models  Private models of Location-30 at epsilon 8, 3 and 1, attacked, and audited in one run: see audit_models.py.
command `discreet attack model` as a user runs it, with controls, on 10,000 rows of 600 bits in 100 classes with 64 shadows.

Rates carry exact 95 % intervals (Clopper and Pearson). Noise is that of the operating system unless the bug is its seed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ |= {"OMP_NUM_THREADS": "1"}

import numpy as np
import torch
from torch import nn

import discreet
from _record import machine, write
from discreet.audit import epsilon_at_least
from discreet.audit.binomial import rate_ceiling, rate_floor
from discreet.learn import inject_gradient_canaries, train
from discreet.learn.sgd.clipping import Flat
from discreet.learn.sgd.gradient_canaries import judged
from discreet.learn.sgd.sampling import Poisson
from discreet.learn.sgd.stream import Stream

CONFIDENCE, CANARIES, EPSILON, DELTA, RATE, STEPS, CLIP, DIVISOR = 0.95, 60_000, 6.0, 1e-5, 0.25, 4, 1.0, 100.0
PARTS = ("bugs", "models", "command")
PART = 25  # trials that a process does at a time
RIGHT_FILL = Stream.fill


@dataclass(frozen=True)
class Bug:
    """What is wrong, and how it is injected: a context in which the engine has the bug, or an epsilon that really ran."""

    what: str
    plant: Callable[[int], contextlib.AbstractContextManager[Any]] = lambda trial: contextlib.nullcontext()
    really: float = EPSILON


def no_clipping(trial: int) -> Any:
    return patch.object(Flat, "factors", lambda self, squared: torch.ones_like(squared))


def noise_times(share: float) -> Callable[[int], Any]:
    def fill(self: Stream, out: torch.Tensor, *, scale: float, **at: Any) -> torch.Tensor:
        return RIGHT_FILL(self, out, scale=scale * share, **at)

    return lambda trial: patch.object(Stream, "fill", fill)


def same_every_step(trial: int) -> Any:
    def fill(self: Stream, out: torch.Tensor, *, step: int, **at: Any) -> torch.Tensor:
        return RIGHT_FILL(self, out, step=0, **at)

    return patch.object(Stream, "fill", fill)


@contextlib.contextmanager
def seeded(trial: int) -> Iterator[None]:
    """Noise of torch's generator, seeded once with a number that people set, drawn parameter by parameter."""
    generator = torch.Generator().manual_seed((0, 1, 7, 42, 123, 1234, 2024)[trial % 7])

    def fill(self: Stream, out: torch.Tensor, *, scale: float, **at: Any) -> torch.Tensor:
        parts = [torch.randn(size, generator=generator) for size in (CANARIES, 40, 2)]
        return out.copy_(torch.cat(parts) * scale)

    with patch.object(Stream, "fill", fill):
        yield


class Shuffled(Poisson):
    """A loader that shuffles all rows once a pass, under the name of Poisson sampling."""

    def draw(self, key: bytes, step: int, units: int) -> np.ndarray:
        batches = round(1 / self.rate)
        order = np.random.default_rng([int.from_bytes(key, "big"), step // batches]).permutation(units)
        return np.sort(order[step % batches :: batches])


def shuffled(trial: int) -> Any:
    return patch("discreet.learn.sgd.train.Poisson", Shuffled)


BUGS = {
    "sound": Bug("no bug"),
    "no clipping": Bug("gradients are not clipped", no_clipping),
    "noise / sqrt 2": Bug("each of two ranks adds its part of the noise and one part is lost", noise_times(0.5**0.5)),
    "noise / divisor": Bug("noise is divided by the expected batch twice", noise_times(1 / DIVISOR)),
    "same noise": Bug("the generator is seeded anew in every step", same_every_step),
    "known seed": Bug("the generator is seeded with a number that people set", seeded),
    "shuffled": Bug("a shuffling loader is claimed as Poisson sampling", shuffled),
    "epsilon + 2": Bug("the claim says 6, the noise is for 8", really=EPSILON + 2),
    "epsilon x 2": Bug("the claim says 6, the noise is for 12", really=2 * EPSILON),
}


def rows() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(2, (400,), generator=generator)
    return torch.randn(400, 20, generator=generator) + (y[:, None] - 0.5), y


def started(injected: Any, epsilon: float) -> Any:
    return train(
        injected.model, torch.optim.SGD(injected.model.parameters(), 0.5), injected.data, injected.loss, unit=discreet.record(),
        epsilon=epsilon, delta=DELTA, rate=RATE, steps=STEPS, clip_norm=CLIP, divisor=DIVISOR,
    )  # fmt: skip


def trial(name: str, number: int) -> tuple[bool, float]:
    """One run: whether the claim was refuted, and the floor without assumptions."""
    bug = BUGS[name]
    torch.set_num_threads(1)
    injected = inject_gradient_canaries(
        nn.Linear(20, 2), rows(), nn.CrossEntropyLoss(reduction="none"), canaries=CANARIES, clip_norm=CLIP
    )
    said = started(injected, EPSILON).plan  # what is claimed
    with bug.plant(number):
        injected.trained(started(injected, bug.really))
    how = {"rate": RATE, "noise_multiplier": said.noise_multiplier, "step": CLIP / DIVISOR}
    found = judged(said.claim(), injected.evidence(**how), confidence=CONFIDENCE)
    floor = epsilon_at_least(injected.evidence(**how, together=True), DELTA, CONFIDENCE)
    return found.outcome == "refuted", floor


def trials(name: str, first: int, count: int) -> list[tuple[bool, float]]:
    return [trial(name, number) for number in range(first, first + count)]


def suite(runs: int, sound: int, pool: ProcessPoolExecutor) -> list[dict[str, Any]]:
    counts = {name: sound if name == "sound" else runs for name in BUGS}
    jobs = {
        name: [pool.submit(trials, name, start, min(PART, count - start)) for start in range(0, count, PART)]
        for name, count in counts.items()
    }
    table = []
    for name, waiting in jobs.items():
        found = [each for job in waiting for each in job.result()]
        hits, count = sum(refuted for refuted, _ in found), len(found)
        floors = np.array([floor for _, floor in found])
        table.append({
            "bug": name, "what": BUGS[name].what, "runs": count, "refuted": hits, "rate": hits / count,
            "low": float(rate_floor(hits, count, 0.025)), "high": float(rate_ceiling(hits, count, 0.025)),
            "floor_median": float(np.median(floors)), "floor_above_claim": int((floors > EPSILON).sum()),
        })  # fmt: skip
        row = table[-1]
        print(
            f"{name:16s} refuted {hits:4d} of {count} ({row['low']:.1%} to {row['high']:.1%}); "
            f"floor {row['floor_median']:.2f}, above the claim in {row['floor_above_claim']}",
            flush=True,
        )
    return table


def bugs(runs: int, sound: int, jobs: int) -> dict[str, Any]:
    began = time.perf_counter()
    with ProcessPoolExecutor(jobs) as pool:
        table = suite(runs, sound, pool)
    return {
        "confidence": CONFIDENCE, "canaries": CANARIES, "claimed_epsilon": EPSILON, "delta": DELTA, "rate": RATE,
        "steps": STEPS, "seconds": round(time.perf_counter() - began), "table": table,
    }  # fmt: skip


WIDE = """
from torch import nn
from discreet.models import Recipe
recipe = Recipe(lambda: nn.Sequential(nn.Linear(600, 128), nn.Tanh(), nn.Linear(128, 100)), epochs=40)
"""


def command() -> dict[str, Any]:
    """The time of all processes together, which does not hang on what else the machine does, and by the clock."""
    from discreet.models import Trainer
    from discreet.models.files import read_recipe

    draw = np.random.default_rng(100)
    odds = draw.normal(-1.5, 1.0, 600) + draw.normal(0.0, 1.0, (100, 600)) * (draw.random((100, 600)) < 0.25)
    y = draw.integers(0, 100, 10_000)
    X = (draw.random((10_000, 600)) < 1.0 / (1.0 + np.exp(-odds[y]))).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "recipe.py").write_text(WIDE)
        np.savez(path / "train.npz", X=X[:5_000], y=y[:5_000])
        np.savez(path / "test.npz", X=X[5_000:], y=y[5_000:])
        recipe = read_recipe(str(path / "recipe.py"))
        torch.save(Trainer(recipe).one(X[:5_000], y[:5_000]).state_dict(), path / "model.pt")
        words = [sys.executable, "-m", "discreet.cli", "attack", "model", "model.pt", "--recipe", "recipe.py", "--members",
                 "train.npz", "--nonmembers", "test.npz", "--shadows", "64", "--processes", "2", "--out", "audit",
                 "--json"]  # fmt: skip
        began, used = time.perf_counter(), os.times()
        said = subprocess.run(words, cwd=path, check=True, capture_output=True, text=True).stdout
        now = os.times()
    spent = now.children_user - used.children_user + now.children_system - used.children_system
    found = {
        "rows": 10_000, "inputs": 600, "classes": 100, "shadows": 64, "epochs": 40, "processes": 2,
        "cpu_seconds": round(spent, 1), "seconds": round(time.perf_counter() - began, 1), "load": round(os.getloadavg()[0], 1),
        "controls": len(json.loads(said)["controls"]),
        "bayes_lira": next(each["auc"] for each in json.loads(said)["attacks"] if each["attack"] == "bayes_lira"),
    }  # fmt: skip
    print(f"discreet attack model: {found['cpu_seconds']} CPU-seconds, {found['seconds']} by the clock (load {found['load']})")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="bugs,models,command")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("DISCREET_DATA", "../shared/data")))
    parser.add_argument("--targets", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--sound", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    if "bugs" in options.part:
        found["bugs"] = {"machine": machine("torch"), **bugs(options.runs, options.sound, options.jobs)}
    torch.set_num_threads(1)
    if "models" in options.part:
        from audit_models import models  # with the command line, which machines for long runs may lack

        found["models"] = {"machine": machine("torch"), **models(options.data, options.targets, options.repeats)}
    if "command" in options.part:
        found["command"] = {"machine": machine("torch"), **command()}
    if options.out and Path(options.out).exists():
        before = json.loads(Path(options.out).read_text())
        found = {**{part: before[part] for part in PARTS if part in before}, **found}
    write(options.out, found, "torch")


if __name__ == "__main__":
    main()
