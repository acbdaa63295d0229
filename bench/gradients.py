"""What is read out of one gradient: exact rows of tables, images through ReLU and smooth networks.

    PYTHONPATH=src python bench/gradients.py --data ../shared/data [--quick] [--out bench/results/gradients.json]

`tables`: made-up rows of Adult's shape (105 numbers: eight columns of categories one-hot, six numbers), two hidden ReLU layers
of 100, one update in float32 of each batch; a row counts where it comes back to a root mean square distance below 1e-3.
`images`: CIFAR-10 test images through four convolutions of width 32, fresh weights, one image an update; PSNR in dB. The
baseline beside it is the common one: cosine distance with total variation and signed Adam, by `method="cosine"`. CPU seconds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from torch import nn

from _record import write
from discreet.attack.gradients import gradients
from discreet.attack.gradients.layout import Layout

CATEGORIES = (9, 16, 7, 15, 6, 5, 2, 39)
SCHEMA: dict[str, Any] = {f"c{width}": list(range(width)) for width in CATEGORIES} | {
    f"n{index}": (-3.0, 3.0) for index in range(6)
}


def sent(model: nn.Module, rows: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    made = torch.autograd.grad(nn.functional.cross_entropy(model(rows), labels), model.parameters())
    return dict(zip(dict(model.named_parameters()), made))


def tables(size: int, seeds: int, seconds: float) -> dict[str, Any]:
    """How many updates give away every row, and in what time."""
    layout, whole, spent, right = Layout.of(SCHEMA), 0, [], 0
    for seed in range(seeds):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(layout.width, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 2))
        generator = torch.Generator().manual_seed(seed)
        rows = layout.sample(size, generator).float()
        rows[:, -6:] = torch.randn(size, 6, generator=generator)
        labels = torch.randint(0, 2, (size,), generator=generator)
        found = gradients(
            model, sent(model, rows, labels), batch=size, data=SCHEMA, method="sparse", seconds=seconds, seed=seed
        )
        close = sum(found.distance(row) < 1e-3 for row in rows)
        certified = bool(found.exact.all()) and len(found) == size
        whole += close == size and certified
        right += close
        spent.append(found.seconds)
    return {
        "batch": size, "updates": seeds, "whole": whole, "rows_exact": right / (size * seeds),
        "cpu_seconds_median": statistics.median(spent), "cpu_seconds_most": max(spent), "limit": seconds,
    }  # fmt: skip


def network(activation: type[nn.Module], width: int = 32) -> nn.Module:
    def block(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, stride, 1), activation()]

    return nn.Sequential(
        *block(3, width, 1), *block(width, width, 2), *block(width, 2 * width, 2), *block(2 * width, 2 * width, 2),
        nn.Flatten(), nn.Linear(2 * width * 16, 10),
    )  # fmt: skip


def cifar(folder: Path, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    from PIL import Image

    mosaic = np.asarray(Image.open(folder / "cifar10" / "test.webp"))
    down, across = mosaic.shape[0] // 32, mosaic.shape[1] // 32
    tiles = mosaic.reshape(down, 32, across, 32, 3).swapaxes(1, 2).reshape(down * across, 32, 32, 3)[:count]
    labels = np.load(folder / "cifar10" / "labels.npz")["test"][:count]
    return torch.tensor(tiles).permute(0, 3, 1, 2).float() / 255, torch.tensor(labels).long()


def images(folder: Path, activation: type[nn.Module], count: int, method: str, steps: int, seconds: float) -> dict[str, Any]:
    pictures, labels = cifar(folder, count)
    decibels, spent, exact = [], [], 0
    for index in range(count):
        torch.manual_seed(1 + index)
        model, image, label = network(activation), pictures[index : index + 1], labels[index : index + 1]
        found = gradients(
            model,
            sent(model, image, label),
            batch=1,
            shape=(3, 32, 32),
            method=method,
            steps=steps,
            seconds=seconds,
            seed=index,
        )
        error = float(((image.double() - found.rows.clamp(0, 1)) ** 2).mean())
        decibels.append(-10 * np.log10(error + 1e-30))
        spent.append(found.seconds)
        exact += bool(found.exact.all())
    return {
        "activation": activation.__name__, "method": method, "images": count, "certified": exact,
        "psnr_median": statistics.median(decibels), "psnr_least": min(decibels),
        "at_least_60_db": sum(each >= 60 for each in decibels),
        "cpu_seconds_median": statistics.median(spent), "cpu_seconds_most": max(spent),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="the folder with cifar10/; without it, tables alone")
    parser.add_argument("--quick", action="store_true", help="few updates of each, to see that it works")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    seeds = 3 if asked.quick else 20
    result: dict[str, Any] = {"tables": [tables(size, seeds, 60.0) for size in ((8, 16) if asked.quick else (8, 12, 16, 24))]}
    if asked.data:
        few, many = (2, 4) if asked.quick else (5, 100)
        result["images"] = [
            images(asked.data, nn.ReLU, many, "convolutions", 1, 30.0),
            images(asked.data, nn.Tanh, few * 2, "second_order", 600, 20.0),
            images(asked.data, nn.GELU, few * 2, "second_order", 600, 20.0),
            images(asked.data, nn.ReLU, few, "cosine", 1000, 60.0),
        ]
    for part, rows in result.items():
        print(part)
        for row in rows:
            print(
                "  ".join(
                    f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in row.items()
                )
            )
    if asked.out:
        write(asked.out, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
