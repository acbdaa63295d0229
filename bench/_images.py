"""Images and networks of bench/membership.py: CIFAR from lossless mosaics, small residual networks, an AlexNet, a DenseNet."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[1] / "examples"))

from image_data import load

MEAN, SPREAD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def images(
    folder: Path, *, rows: int | None = None, mean: Sequence[float] = MEAN, spread: Sequence[float] = SPREAD
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Train and test, scaled by channel; the first `rows` of each."""
    X, y, test, truth = load(folder)
    middle, size = (torch.tensor(numbers).view(3, 1, 1) for numbers in (mean, spread))
    scaled = [((part[:rows].float() / 255 - middle) / size).numpy() for part in (X, test)]
    return scaled[0], y[:rows].numpy(), scaled[1], truth[:rows].numpy()


def shifted(x: Tensor) -> Tensor:
    """Mirrored by a coin, and moved by up to four pixels each way; what is left open is filled by reflection."""
    count, size = len(x), x.shape[3]
    x = torch.where(torch.rand(count, 1, 1, 1, device=x.device) < 0.5, x.flip(3), x)
    wide = F.pad(x, (4, 4, 4, 4), mode="reflect")
    corner = torch.randint(0, 9, (2, count, 1), device=x.device) + torch.arange(size, device=x.device)
    each, colour = torch.arange(count, device=x.device), torch.arange(3, device=x.device)
    return wide[each[:, None, None, None], colour[:, None, None], corner[0][:, None, :, None], corner[1][:, None, None, :]]


def mirrored(x: Tensor) -> Tensor:
    return torch.where(torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5, x.flip(3), x)


class Block(nn.Module):
    """A convolution to more channels, and one around which a shortcut leads."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.wider = nn.Sequential(nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU())
        self.around = nn.Sequential(nn.Conv2d(after, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        x = self.wider(x)
        return x + self.around(x)


class Residual(nn.Module):
    """Seven convolutions in three residual blocks; asked, it answers for the image and its mirror image together."""

    def __init__(self, classes: int = 10, width: int = 64, *, both: bool = True) -> None:
        super().__init__()
        first = nn.Sequential(nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2))
        blocks = [Block(width, 2 * width), nn.MaxPool2d(2), Block(2 * width, 4 * width), nn.MaxPool2d(2)]
        self.body = nn.Sequential(first, *blocks, Block(4 * width, 8 * width), nn.AdaptiveMaxPool2d(1), nn.Flatten())
        self.head = nn.Linear(8 * width, classes)
        self.both = both

    def forward(self, x: Tensor) -> Tensor:
        once: Tensor = self.head(self.body(x)) / 4
        return once if self.training or not self.both else (once + self.head(self.body(x.flip(3))) / 4) / 2


class AlexNet(nn.Module):
    """AlexNet as it is cut down for images of 32 x 32: five convolutions and one linear layer, 2.5 M weights."""

    def __init__(self, classes: int = 100) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 64, 11, stride=4, padding=5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(), nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(),
            nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(256, classes)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.body(x))
        return found


class DenseNet(nn.Module):
    """DenseNet-BC (Huang et al. 2017) of three blocks of six layers that grow by 24 channels each: 0.7 M weights."""

    def __init__(self, classes: int = 100, growth: int = 24, layers: int = 6) -> None:
        super().__init__()
        width = 2 * growth
        parts: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1, bias=False)]
        for block in range(3):
            if block:
                parts += [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)]
                width //= 2
            parts += [Joined(width + layer * growth, growth) for layer in range(layers)]
            width += layers * growth
        self.body = nn.Sequential(*parts, nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.body(x))
        return found


class Joined(nn.Module):
    """What it finds is put beside what it was given."""

    def __init__(self, before: int, growth: int) -> None:
        super().__init__()
        narrow = nn.Sequential(nn.BatchNorm2d(before), nn.ReLU(), nn.Conv2d(before, 4 * growth, 1, bias=False))
        self.find = nn.Sequential(
            narrow, nn.BatchNorm2d(4 * growth), nn.ReLU(), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.find(x)], 1)


class Published(nn.Module):
    """ResNet-20 as published for CIFAR-10 (He et al. 2016): shortcuts take every second pixel and add empty channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.layer1, self.layer2, self.layer3 = (
            nn.Sequential(*(Basic(before if i == 0 else after, after) for i in range(3)))
            for before, after in ((16, 16), (16, 32), (32, 64))
        )
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x))))))
        found: Tensor = self.linear(x.mean((2, 3)))
        return found


class Basic(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.extra = after - before
        self.conv1 = nn.Conv2d(before, after, 3, 2 if self.extra else 1, 1, bias=False)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(after), nn.BatchNorm2d(after)

    def forward(self, x: Tensor) -> Tensor:
        found = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        around = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.extra // 2, self.extra // 2)) if self.extra else x
        return F.relu(found + around)
