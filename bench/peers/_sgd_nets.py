"""The nets and batches of bench/sgd.py in torch, the same for every variant: seeded, random data of the right shape."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
from typing import Any

import torch
import torch.nn.functional as F
from _sgd_loop import BATCH
from torch import Tensor, nn


class Digits(nn.Module):
    """The MNIST net of Tramer and Boneh and of Opacus's example: 26,010 numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 16, 8, 2, padding=3), nn.Conv2d(16, 32, 4, 2)
        self.hidden, self.head = nn.Linear(512, 32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(torch.tanh(self.first(x)), 2, 1)
        x = F.max_pool2d(torch.tanh(self.second(x)), 2, 1)
        return self.head(torch.tanh(self.hidden(x.flatten(1))))


def pictures() -> nn.Module:
    """The CIFAR-10 net of Tramer and Boneh: 550,570 numbers."""
    widths, layers = [3, 32, 32, 64, 64, 128, 128], []
    for place in range(6):
        layers += [nn.Conv2d(widths[place], widths[place + 1], 3, 1, 1), nn.Tanh()]
        if place % 2:
            layers.append(nn.MaxPool2d(2, 2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2048, 128), nn.Tanh(), nn.Linear(128, 10))


def dense(*widths: int) -> nn.Module:
    layers: list[nn.Module] = []
    for wide, narrow in itertools.pairwise(widths):
        layers += [nn.Linear(wide, narrow), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


class Residual(nn.Module):
    """A block of a wide residual net, activation first, GroupNorm in place of BatchNorm."""

    def __init__(self, wide: int, out: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(16, wide), nn.Conv2d(wide, out, 3, stride, 1)
        self.norm2, self.conv2 = nn.GroupNorm(16, out), nn.Conv2d(out, out, 3, 1, 1)
        self.short = nn.Conv2d(wide, out, 1, stride) if wide != out or stride > 1 else None

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu(self.norm1(x))
        kept = x if self.short is None else self.short(hidden)
        return kept + self.conv2(F.relu(self.norm2(self.conv1(hidden))))


def wide_residual(widen: int = 4, blocks: int = 2) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 1, 1)]
    width = 16
    for out, stride in ((16 * widen, 1), (32 * widen, 2), (64 * widen, 2)):
        for place in range(blocks):
            layers.append(Residual(width, out, 1 if place else stride))
            width = out
    layers += [nn.GroupNorm(16, width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]
    return nn.Sequential(*layers)


class Attend(nn.Module):
    """Causal attention with its MLP; queries, keys and values from one layer where `fused`, from three otherwise."""

    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.ask = nn.ModuleList([nn.Linear(width, 3 * width)] if fused else [nn.Linear(width, width) for _ in range(3)])
        self.out, self.up, self.down = nn.Linear(width, width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        hidden = self.norm1(x)
        parts = self.ask[0](hidden).chunk(3, -1) if len(self.ask) == 1 else [layer(hidden) for layer in self.ask]
        query, key, value = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, words: int, length: int, width: int, layers: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Attend(width, heads, fused) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1], device=x.device).repeat(x.shape[0], 1)  # engines with hooks need the batch here
        hidden = self.words(x) + self.places(places)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(self.norm(hidden))


def build(task: str, device: str = "cpu") -> tuple[nn.Module, Tensor, Tensor]:
    """Model, inputs, labels."""
    torch.manual_seed(0)
    batch, source = BATCH[task], torch.Generator().manual_seed(1)

    def whole(high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, generator=source)

    def real(*shape: int) -> Tensor:
        return torch.randn(shape, generator=source)

    if task in ("mlp", "mlp-4096"):
        model, x, y = dense(600, 1024, 512, 256, 100), whole(2, batch, 600).float(), whole(100, batch)
    elif task == "mlp-small":
        model, x, y = dense(600, 128, 100), whole(2, batch, 600).float(), whole(100, batch)
    elif task == "mnist-cnn":
        model, x, y = Digits(), real(batch, 1, 28, 28), whole(10, batch)
    elif task == "cifar-cnn":
        model, x, y = pictures(), real(batch, 3, 32, 32), whole(10, batch)
    elif task == "wrn-16-4":
        model, x, y = wide_residual(), real(batch, 3, 32, 32), whole(10, batch)
    elif task == "gpt":
        model, x, y = GPT(512, 64, 256, 4, 4, fused=False), whole(512, batch, 64), whole(512, batch, 64)
    else:
        model, x, y = GPT(8192, 256, 768, 12, 12, fused=True), whole(8192, batch, 256), whole(8192, batch, 256)
    return model.to(device), x.to(device), y.to(device)


def tiny(device: str) -> tuple[nn.Module, Tensor, Tensor]:
    """The smallest thing that loads what training needs."""
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.Flatten(), nn.Linear(32, 2))
    return model.to(device), torch.randn(2, 1, 4, 4, device=device), torch.tensor([0, 1], device=device)


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def mean_loss(out: Tensor, y: Tensor) -> Tensor:
    """The mean over the batch; a sequence's loss is the mean over its tokens."""
    return F.cross_entropy(out.flatten(0, -2), y.flatten())


def losses(out: Tensor, y: Tensor) -> Tensor:
    """One loss an example, whose mean is `mean_loss`."""
    found = F.cross_entropy(out.flatten(0, -2), y.flatten(), reduction="none")
    return found.view(len(y), math.prod(y.shape[1:])).mean(1) if y.ndim > 1 else found


def prepare(given: argparse.Namespace) -> Any:
    """One math thread, the precision asked for; returns what the forward pass runs inside.

    A step of a tiny net comes first: what torch loads when it trains for the first time is no memory of a step.
    """
    torch.set_num_threads(1)
    model, x, y = tiny(given.device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    mean_loss(model(x), y).backward()
    optimizer.step()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = given.precision != "float32"
    if given.precision == "bf16":
        return lambda: torch.autocast(given.device, torch.bfloat16)
    return contextlib.nullcontext
