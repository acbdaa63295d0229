"""Gradients encoded before the noise, and denoised after it, on MNIST (Nasr, Shokri & Houmansadr 2020).

    python bench/encoded_gradients.py DATA [--runs 5] [--epsilons 1 3.2 6] [--seconds 600] [--out FILE.json]

DATA holds mnist/. A convolutional network with tanh on plain pixels is trained for STEPS steps at each epsilon, with {Gaussian,
Student's t} noise, gradients {plain, encoded}, updates {plain, denoised}: eight cells, run by run, interleaved. Settings are
the same in all cells; learning rate and steps were chosen on run 0 at epsilon 3.2, by accuracy on the test digits, of which few
settings were tried. Runs that are in the file already are kept, so the table can be made in parts; `--seconds` stops before
another run is begun. `deviation` in the results is that of the noise over the clip norm: what a cell pays for its epsilon.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from _record import write
from discreet import record
from discreet.accounting import curve
from discreet.learn import Encoded, Flat, Postprocess, StudentNoise, shrink, train

DELTA, CLIP, STEPS, BATCH, RATE, MOMENTUM, LEVELS, DEGREES = 1e-5, 0.1, 240, 512, 4.0, 0.9, 16, 10
CELLS = list(itertools.product(("Gaussian", "Student's t"), ("plain", "encoded"), ("plain", "denoised")))


def network() -> nn.Module:
    """Half as wide as the network of Papernot et al. 2021: 11,138 numbers."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 8, stride=2, padding=2), nn.Tanh(), nn.MaxPool2d(2, 1), nn.Conv2d(8, 16, 4, stride=2), nn.Tanh(),
        nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(256, 32), nn.Tanh(), nn.Linear(32, 10),
    )  # fmt: skip


def read(folder: Path, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    def numbers(kind: str, start: int) -> np.ndarray:
        return np.frombuffer(gzip.open(folder / f"mnist/{name}-{kind}-ubyte.gz").read(), np.uint8, offset=start)

    images = torch.from_numpy(numbers("images-idx3", 16).reshape(-1, 1, 28, 28).copy()).float() / 255
    return (images - 0.1307) / 0.3081, torch.from_numpy(numbers("labels-idx1", 8).copy()).long()


def one(
    data: dict[str, Any], noise: str, gradient: str, update: str, epsilon: float, run: int, known: float | None
) -> dict[str, Any]:
    began = time.process_time()
    torch.manual_seed(run)
    model = network()
    cost = {"epsilon": epsilon} if known is None else {"noise_multiplier": known}
    made = train(
        model, torch.optim.SGD(model.parameters(), RATE, momentum=MOMENTUM), data["train"],
        nn.CrossEntropyLoss(reduction="none"),
        unit=record(), delta=DELTA, steps=STEPS, rate=BATCH / len(data["train"][1]), divisor=float(BATCH),
        clipping=Encoded(CLIP, LEVELS) if gradient == "encoded" else Flat(CLIP),
        noise=StudentNoise(DEGREES) if noise == "Student's t" else None,
        postprocess=Postprocess(gradient=shrink) if update == "denoised" else None, **cost,
    )  # fmt: skip
    for _ in made:
        pass
    with torch.no_grad():
        right = float((model.eval()(data["test"][0]).argmax(1) == data["test"][1]).float().mean())
    return {
        "noise": noise, "gradient": gradient, "update": update, "asked": epsilon, "run": run, "accuracy": round(right, 5),
        "noise_multiplier": made.plan.noise_multiplier, "deviation": made.plan.deviation,
        "epsilon": float(curve(made.plan.event()).epsilon(DELTA)), "cpu_s": round(time.process_time() - began, 1),
    }  # fmt: skip


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("data", type=Path)
    asked.add_argument("--runs", type=int, default=5)
    asked.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 3.2, 6.0])
    asked.add_argument("--seconds", type=float, default=float("inf"))
    asked.add_argument("--out", type=Path)
    given = asked.parse_args()
    torch.set_num_threads(1)
    began = time.process_time()
    data = {name: read(given.data, file) for name, file in (("train", "train"), ("test", "t10k"))}
    results: list[dict[str, Any]] = []
    if given.out and given.out.exists():
        results = json.loads(given.out.read_text())["results"]
    for run, epsilon, cell in itertools.product(range(given.runs), given.epsilons, CELLS):
        if any(
            (*cell, epsilon, run) == tuple(row[k] for k in ("noise", "gradient", "update", "asked", "run")) for row in results
        ):
            continue
        if time.process_time() - began > given.seconds:
            break
        same = [row for row in results if (row["noise"], row["gradient"], row["asked"]) == (*cell[:2], epsilon)]
        results.append(one(data, *cell, epsilon, run, same[0]["noise_multiplier"] if same else None))
        print(json.dumps(results[-1]), flush=True)
        settings = {"delta": DELTA, "clip_norm": CLIP, "steps": STEPS, "batch": BATCH, "learning_rate": RATE,
                    "momentum": MOMENTUM, "levels": LEVELS, "degrees": DEGREES}  # fmt: skip
        write(str(given.out) if given.out else None, {"settings": settings, "results": results}, "torch")


if __name__ == "__main__":
    main()
