"""Rows, networks and updates of bench/gradients.py."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from discreet.attack.gradients.layout import Layout

NAMES = (  # noqa: SIM905
    "age workclass fnlwgt education education_num marital_status occupation relationship race sex capital_gain capital_loss "
    "hours_per_week native_country income"
).split()
NUMBERS = ("age", "fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week")
PUBLIC = 2000


def sent(model: nn.Module, rows: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """The gradient of the mean cross entropy, as a client would send it."""
    made = torch.autograd.grad(F.cross_entropy(model(rows), labels), list(model.parameters()))
    return dict(zip(dict(model.named_parameters()), made))


class Adult:
    """Adult as a network sees it: eight columns one-hot, six numbers to mean 0 and deviation 1, the income as label.

    Batches are rows of the training file, `public` are rows of the test file: other people of the same population.
    """

    def __init__(self, folder: Path) -> None:
        private, public = (_read(folder / "adult" / f"adult.{name}.gz") for name in ("data", "test"))
        self.schema: dict[str, Any] = {}
        pieces: list[tuple[Tensor, Tensor]] = []
        for name in NAMES[:-1]:
            if name in NUMBERS:
                first, other = (torch.tensor([float(row[name]) for row in rows]) for rows in (private, public))
                middle, size = other.mean(), other.std()
                ends = torch.cat([first, other])
                low, high = float((ends.min() - middle) / size), float((ends.max() - middle) / size)
                self.schema[name] = (low, high)
                pieces.append((((first - middle) / size)[:, None], ((other - middle) / size)[:, None]))
            else:
                kinds = sorted({row[name] for row in [*private, *public]})
                place = {kind: index for index, kind in enumerate(kinds)}
                self.schema[name] = kinds
                coded = [torch.tensor([place[row[name]] for row in rows]) for rows in (private, public)]
                pieces.append((F.one_hot(coded[0], len(kinds)).float(), F.one_hot(coded[1], len(kinds)).float()))
        self.rows = torch.cat([piece for piece, _ in pieces], 1)
        self.public = torch.cat([piece for _, piece in pieces], 1)[:PUBLIC]
        self.labels = torch.tensor([int(">50K" in row["income"]) for row in private])
        self.layout = Layout.of(self.schema)

    def batch(self, size: int, seed: int) -> tuple[Tensor, Tensor]:
        chosen = torch.from_numpy(np.random.default_rng(seed).choice(len(self.rows), size, replace=False))
        return self.rows[chosen], self.labels[chosen]


def _read(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt") as file:
        return [dict(zip(NAMES, row)) for row in csv.reader(file, skipinitialspace=True) if len(row) == len(NAMES)]


def mlp(inputs: int, width: int, classes: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, width), activation(), nn.Linear(width, width), activation(), nn.Linear(width, classes)
    )


def convolutional(activation: type[nn.Module], width: int = 32) -> nn.Sequential:
    def block(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, stride, 1), activation()]

    return nn.Sequential(
        *block(3, width, 1), *block(width, width, 2), *block(width, 2 * width, 2), *block(2 * width, 2 * width, 2),
        nn.Flatten(), nn.Linear(2 * width * 16, 10),
    )  # fmt: skip


def resnet18(classes: int = 10) -> nn.Module:
    """ResNet-18 for images of 32 x 32 with group normalisation."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.GroupNorm(8, 64), nn.ReLU()]
    before = 64
    for width, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        layers.append(Residual(before, width, stride))
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


class Residual(nn.Module):
    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.GroupNorm(8, width), nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.GroupNorm(8, width),
        )  # fmt: skip
        self.around = nn.Identity() if stride == 1 and before == width else nn.Conv2d(before, width, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.inner(x) + self.around(x))


def cifar(folder: Path, count: int) -> tuple[Tensor, Tensor]:
    """The first test images, in [0, 1], and their labels."""
    from PIL import Image

    mosaic = np.asarray(Image.open(folder / "cifar10" / "test.webp"))
    down, across = mosaic.shape[0] // 32, mosaic.shape[1] // 32
    tiles = mosaic.reshape(down, 32, across, 32, 3).swapaxes(1, 2).reshape(down * across, 32, 32, 3)[:count]
    labels = np.load(folder / "cifar10" / "labels.npz")["test"][:count]
    return torch.tensor(tiles).permute(0, 3, 1, 2).float() / 255, torch.tensor(labels).long()


def decibels(truth: Tensor, found: Tensor) -> list[float]:
    """The peak signal-to-noise ratio of each image."""
    error = ((truth.double() - found.double()) ** 2).flatten(1).mean(1)
    return (-10.0 * torch.log10(error + 1e-30)).tolist()


def structure(truth: Tensor, found: Tensor) -> list[float]:
    """The structural similarity of each image (Wang et al. 2004), by windows of 8 x 8."""
    x, y = truth.double(), found.double()

    def mean(values: Tensor) -> Tensor:
        return F.avg_pool2d(values, 8, 1)

    a, b = mean(x), mean(y)
    spread_a, spread_b, both = mean(x * x) - a * a, mean(y * y) - b * b, mean(x * y) - a * b
    share = (2 * a * b + 1e-4) * (2 * both + 9e-4) / ((a * a + b * b + 1e-4) * (spread_a + spread_b + 9e-4))
    return share.flatten(1).mean(1).tolist()
