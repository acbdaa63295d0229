"""What is read out of one update: tables, images, text, federated averaging; beside what guessing gets.

    PYTHONPATH=src:bench python bench/gradients.py --data ../shared/data [--cases closed,adult] [--quick]
                                                   [--out bench/results/gradients.json]

Each case is one network, one kind of row, and fresh weights for every update; what a case measures is said where it is
defined. Results go into the file case by case, each with the commit and the date it was measured at; CPU seconds throughout.
Networks and rows: _updates.py. Federated averaging, text and malicious servers: _clients.py; cells and the game: _games.py.
"""

from __future__ import annotations

import argparse
import datetime
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
from torch import nn

import _clients
import _games
from _record import commit, machine
from _updates import Adult, cifar, convolutional, decibels, mlp, resnet18, sent, structure
from discreet.attack.gradients import gradients

Rows = list[dict[str, Any]]
KNOWN = 1e-3  # root mean square distance under which a row of a table counts as read


def closed(data: Path, quick: bool) -> Rows:
    """One CIFAR-10 image behind a linear layer of float64 and of float32."""
    count, out = 5 if quick else 50, []
    pictures, labels = cifar(data, count)
    for dtype in (torch.float64, torch.float32):
        errors, spent = [], []
        for index in range(count):
            torch.manual_seed(index)
            model = nn.Sequential(nn.Flatten(), mlp(3072, 100, 10)).to(dtype)
            image = pictures[index : index + 1].to(dtype)
            update = sent(model, image, labels[index : index + 1])
            found = gradients(model, update, batch=1, shape=(3, 32, 32))
            errors.append(found.distance(image[0]))
            spent.append(found.seconds)
        out.append(
            {
                "precision": str(dtype).removeprefix("torch."), "images": count, "rmse_most": max(errors),
                "cpu_seconds_median": statistics.median(spent),
            }
        )  # fmt: skip
    return out


def adult(data: Path, quick: bool) -> Rows:
    """Rows of Adult through two ReLU layers of 100, one float32 gradient: how many updates give away every row."""
    table, out = Adult(data), []
    for size in (8, 16) if quick else (8, 12, 16, 20, 24):
        whole, spent, right = 0, [], 0
        seeds = 3 if quick else 20
        for seed in range(seeds):
            torch.manual_seed(seed)
            model = mlp(table.layout.width, 100, 2)
            rows, labels = table.batch(size, seed)
            found = gradients(
                model, sent(model, rows, labels), batch=size, data=table.schema, public=table.public, method="sparse",
                seconds=60.0, seed=seed,
            )  # fmt: skip
            close = sum(found.distance(row) < KNOWN for row in rows)
            whole += close == size and bool(found.exact.all()) and len(found) == size
            right += close
            spent.append(found.seconds)
        out.append(
            {
                "batch": size, "updates": seeds, "whole": whole, "rows_exact": right / (size * seeds),
                "cpu_seconds_median": statistics.median(spent), "cpu_seconds_most": max(spent), "limit": 60.0,
            }
        )  # fmt: skip
        print(out[-1], flush=True)
    return out


def images(
    data: Path, activation: type[nn.Module], count: int, *, batch: int = 1, method: str = "auto", steps: int = 600,
    seconds: float = 30.0, width: int = 32, trained: int = 0, labels_known: bool = False, precision: Any = torch.float32,
) -> dict[str, Any]:  # fmt: skip
    """CIFAR-10 test images through four convolutions, fresh weights (or so many steps of training) for each update."""
    pictures, labels = cifar(data, 2000)
    quality, alike, spent, exact, used = [], [], [], 0, []
    for index in range(count):
        torch.manual_seed(1 + index)
        model = convolutional(activation, width)
        _train(model, pictures[1000:], labels[1000:], trained)
        here = slice(index * batch, (index + 1) * batch)
        update = {name: value.to(precision) for name, value in sent(model, pictures[here], labels[here]).items()}
        found = gradients(
            model, update, batch=batch, shape=(3, 32, 32), method=method, steps=steps, seconds=seconds, seed=index,
            labels=labels[here] if labels_known else None,
        )  # fmt: skip
        ordered = found.matched(pictures[here]).clamp(0, 1)
        quality += decibels(pictures[here], ordered)
        alike += structure(pictures[here], ordered)
        spent.append(found.seconds)
        exact += int(found.exact.sum())
        used.append(found.method)
    return {
        "activation": activation.__name__, "batch": batch, "method": method, "width": width, "trained_steps": trained,
        "images": count * batch, "certified": exact, "psnr_median": statistics.median(quality),
        "psnr_mean": statistics.fmean(quality), "psnr_least": min(quality), "ssim_mean": statistics.fmean(alike),
        "at_least_60_db": sum(each >= 60 for each in quality), "at_least_21_db": sum(each >= 21 for each in quality),
        "cpu_seconds_median": statistics.median(spent), "cpu_seconds_most": max(spent),
        "methods": {name: used.count(name) for name in sorted(set(used))},
    }  # fmt: skip


def _train(model: nn.Module, pictures: torch.Tensor, labels: torch.Tensor, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(steps):
        chosen = torch.randint(len(pictures), (64,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(pictures[chosen]), labels[chosen]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def relu(data: Path, quick: bool) -> Rows:
    return [images(data, nn.ReLU, 4 if quick else 100)]


def relu_trained(data: Path, quick: bool) -> Rows:
    return [images(data, nn.ReLU, 2 if quick else 10, trained=steps) for steps in (200,)]


def batch4(data: Path, quick: bool) -> Rows:
    return [images(data, nn.ReLU, 1 if quick else 4, batch=4, seconds=46.0, steps=1500)]


def smooth(data: Path, quick: bool) -> Rows:
    return [images(data, kind, 2 if quick else 10, method="second_order", seconds=20.0) for kind in (nn.Tanh, nn.GELU)]


def baseline(data: Path, quick: bool) -> Rows:
    """What is common: cosine distance with total variation and signed Adam, batches of 1 and 4, labels known."""
    few = 1 if quick else 2
    return [
        images(data, nn.ReLU, few, batch=batch, method="cosine", steps=2000, seconds=46.0, labels_known=True)
        for batch in (1, 4)
    ]


def resnet(data: Path, quick: bool) -> Rows:
    """ResNet-18 with group normalisation, one CIFAR-10 image; needs a GPU and is left out without one."""
    if not torch.cuda.is_available():
        return [{"skipped": "needs a CUDA GPU; none was there"}]
    pictures, labels = cifar(data, 20)
    quality, alike, spent = [], [], []
    for index in range(2 if quick else 20):
        torch.manual_seed(index)
        model, begin = resnet18(), time.perf_counter()
        here = slice(index, index + 1)
        found = gradients(
            model, sent(model, pictures[here], labels[here]), batch=1, shape=(3, 32, 32), method="cosine", steps=8000,
            seconds=600.0, device="cuda", labels=labels[here],
        )  # fmt: skip
        quality += decibels(pictures[here], found.rows)
        alike += structure(pictures[here], found.rows)
        spent.append(time.perf_counter() - begin)
    return [
        {
            "images": len(alike), "ssim_mean": statistics.fmean(alike), "psnr_mean": statistics.fmean(quality),
            "seconds_median": statistics.median(spent), "device": torch.cuda.get_device_name(),
        }
    ]  # fmt: skip


CASES: dict[str, Callable[[Path, bool], Rows]] = {
    "closed": closed, "adult": adult, "relu": relu, "batch4": batch4, "smooth": smooth, "relu_trained": relu_trained,
    "baseline": baseline, "resnet": resnet, "averaging": _clients.averaging, "text": _clients.text,
    "malicious": _clients.malicious, "cells": _games.cells, "game": _games.game, "defended": _games.defended,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder with adult/, cifar10/, mnist/ and wikitext2/")
    parser.add_argument("--cases", help=f"some of {', '.join(CASES)}; all of them unless told")
    parser.add_argument("--quick", action="store_true", help="few updates of each, to see that it works")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for name in asked.cases.split(",") if asked.cases else CASES:
        begin = time.process_time()
        rows = CASES[name](asked.data, asked.quick)
        for row in rows:
            cells = (f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items())
            print(name, "  ".join(cells), flush=True)
        if asked.out:
            _keep(asked.out, name, rows, time.process_time() - begin)
    return 0


def _keep(path: Path, name: str, rows: Rows, seconds: float) -> None:
    """One case into the file, beside those that are there."""
    kept = json.loads(path.read_text()) if path.exists() else {}
    kept["machine"] = machine("torch")
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    kept[name] = {"date": date, "commit": commit(), "cpu_seconds": round(seconds, 1), "rows": rows}
    path.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
