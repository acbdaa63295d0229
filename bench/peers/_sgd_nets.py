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


class Basic(nn.Module):
    """A block of ResNet-18 with GroupNorm."""

    def __init__(self, wide: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(wide, out, 3, stride, 1, bias=False), nn.GroupNorm(32, out)
        self.conv2, self.norm2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.GroupNorm(32, out)
        self.short = nn.Conv2d(wide, out, 1, stride, bias=False) if wide != out or stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))) + self.short(x))


def resnet() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.GroupNorm(32, 64), nn.ReLU()]
    width = 64
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Basic(width, out, stride), Basic(out, out, 1)]
        width = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


class Excite(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(channels, channels // 4), nn.Linear(channels // 4, channels)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.up(F.silu(self.down(x.mean((2, 3))))).sigmoid()[:, :, None, None]


def separable() -> nn.Module:
    """Depthwise-separable convolutions with squeeze and excitation."""
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 1, 1), nn.GroupNorm(8, 32), nn.SiLU()]
    width = 32
    for out, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1)):
        layers += [nn.Conv2d(width, width, 3, stride, 1, groups=width), nn.GroupNorm(8, width), nn.SiLU(), Excite(width)]
        layers += [nn.Conv2d(width, out, 1), nn.GroupNorm(8, out), nn.SiLU()]
        width = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


class UNet(nn.Module):
    """Two levels down, two up by transposed convolutions; a class for every pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = self._pair(3, 32), self._pair(32, 64), self._pair(64, 128)
        self.up2, self.up1 = nn.ConvTranspose2d(128, 64, 2, 2), nn.ConvTranspose2d(64, 32, 2, 2)
        self.back2, self.back1, self.head = self._pair(128, 64), self._pair(64, 32), nn.Conv2d(32, 10, 1)

    @staticmethod
    def _pair(wide: int, out: int) -> nn.Module:
        first = [nn.Conv2d(wide, out, 3, 1, 1), nn.GroupNorm(8, out), nn.ReLU()]
        return nn.Sequential(*first, nn.Conv2d(out, out, 3, 1, 1), nn.GroupNorm(8, out), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        one = self.one(x)
        two = self.two(F.max_pool2d(one, 2))
        low = self.three(F.max_pool2d(two, 2))
        two = self.back2(torch.cat((two, self.up2(low)), 1))
        one = self.back1(torch.cat((one, self.up1(two)), 1))
        return self.head(one).flatten(2).mT


class ViT(nn.Module):
    """Six of torch's own encoder layers over patches of 4 x 4."""

    def __init__(self, width: int = 192, layers: int = 6, dropout: float = 0.1) -> None:
        super().__init__()
        self.patch, self.place = nn.Conv2d(3, width, 4, 4), nn.Parameter(0.02 * torch.randn(1, 64, width))
        layer = nn.TransformerEncoderLayer(width, 6, 4 * width, dropout, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.patch(x).flatten(2).mT + self.place).mean(1))


class Llama(nn.Module):
    """Rotary positions, RMSNorm, gated MLPs, a head tied to the table."""

    def __init__(self, words: int = 4096, length: int = 128, width: int = 384, layers: int = 6) -> None:
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Rotated(width, 6, length) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.table(x)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(self.norm(hidden))


class Rotated(nn.Module):
    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.RMSNorm(width), nn.RMSNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, 1024, bias=False) for _ in range(2))
        self.down = nn.Linear(1024, width, bias=False)
        half = width // heads // 2
        angle = torch.arange(length)[:, None] / 10_000 ** (torch.arange(half) / half)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def _turned(self, x: Tensor) -> Tensor:
        one, other = x.chunk(2, -1)
        return torch.cat((one * self.cos - other * self.sin, one * self.sin + other * self.cos), -1).to(x.dtype)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.norm1(x)
        parts = [layer(hidden).unflatten(2, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)]
        mixed = F.scaled_dot_product_attention(self._turned(parts[0]), self._turned(parts[1]), parts[2], is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        hidden = self.norm2(x)
        return x + self.down(F.silu(self.gate(hidden)) * self.up(hidden))


class Reader(nn.Module):
    """A bidirectional LSTM of two layers over words, and a class for the whole."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.lstm = nn.Embedding(4096, 128), nn.LSTM(128, 256, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(512, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(self.table(x))[0].mean(1))


def dropped() -> nn.Module:
    layers: list[nn.Module] = []
    for wide, narrow in ((600, 1024), (1024, 512), (512, 256)):
        layers += [nn.Linear(wide, narrow), nn.ReLU(), nn.Dropout(0.2)]
    return nn.Sequential(*layers, nn.Linear(256, 100))


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
    elif task in ("resnet-18", "separable", "vit"):
        made = {"resnet-18": resnet, "separable": separable, "vit": ViT}[task]()
        model, x, y = made, real(batch, 3, 32, 32), whole(10, batch)
    elif task == "u-net":
        model, x, y = UNet(), real(batch, 3, 32, 32), whole(10, batch, 1024)
    elif task == "mlp-dropout":
        model, x, y = dropped(), whole(2, batch, 600).float(), whole(100, batch)
    elif task == "llama":
        model, x, y = Llama(), whole(4096, batch, 128), whole(4096, batch, 128)
    elif task == "lstm":
        model, x, y = Reader(), whole(4096, batch, 64), whole(10, batch)
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
