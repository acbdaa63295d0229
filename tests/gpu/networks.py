"""Networks and rows for the tests on a GPU: (model, inputs) by name, 48 rows each, small enough to be done in a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROWS, CLASSES = 48, 4


class Last(nn.Module):
    """A classifier on the last position of a recurrent layer."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer
        self.head = nn.Linear(layer.hidden_size * (2 if layer.bidirectional else 1), CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)[0][:, -1])


class ViT(nn.Module):
    def __init__(self, dropout: float = 0.0, layers: int = 2) -> None:
        super().__init__()
        self.project, self.position = nn.Linear(12, 32), nn.Parameter(0.02 * torch.randn(1, 9, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout, batch_first=True, norm_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False), nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.project(x) + self.position).mean(1))


class Text(nn.Module):
    """A head tied to its table, attention written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.place = nn.Embedding(30, 16), nn.Embedding(10, 16)
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.words, self.head = nn.Linear(16, 30, bias=False), nn.Linear(30, CLASSES)
        self.words.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        h = self.table(x) + self.place(torch.arange(x.shape[1], device=x.device))
        q, k, v = self.qkv(self.norm(h)).chunk(3, -1)
        h = h + self.out(F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], is_causal=True)[:, 0])
        return self.head(self.words(h).mean(1))


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


class Excite(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(channels, 4), nn.Linear(4, channels)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.up(F.relu(self.down(x.mean((2, 3))))).sigmoid()[:, :, None, None]


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.inner = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 1, 1)
        self.up, self.head = nn.ConvTranspose2d(8, 3, 4, 2, 1), nn.Linear(3, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((x + self.up(F.relu(self.inner(F.relu(self.down(x)))))).square().mean((2, 3)))


class Scaled(nn.Module):
    """A parameter of its own, of which every example gets a copy by vmap."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix, self.head = nn.Parameter(torch.randn(20, 20) / 5), nn.Linear(20, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(
            torch.linalg.matrix_norm(x[:, :, None] * self.matrix, dim=(1, 2))[:, None] * torch.tanh(x @ self.matrix)
        )


def images() -> nn.Sequential:
    block = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, bias=False), nn.GroupNorm(4, 16), nn.ReLU(), nn.Conv2d(16, 16, 3, 1, 1))
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1), nn.GroupNorm(4, 16), nn.ReLU(), Residual(block), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(64, CLASSES),
    )  # fmt: skip


def separable() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.GroupNorm(2, 8), nn.SiLU(), Excite(8),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES),
    )  # fmt: skip


def table() -> Tensor:
    return torch.randn(ROWS, 20)


def pictures() -> Tensor:
    return torch.randn(ROWS, 3, 8, 8)


def series() -> Tensor:
    return torch.randn(ROWS, 7, 12)


def words() -> Tensor:
    return torch.randint(30, (ROWS, 10))


def flat(*layers: nn.Module, width: int) -> nn.Sequential:
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width, CLASSES))


Network = tuple[Callable[[], nn.Module], Callable[[], Any]]
PLAIN: dict[str, Network] = {
    "linear": (lambda: nn.Linear(20, CLASSES), table),
    "mlp": (lambda: nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, CLASSES)), table),
    "layer norm": (lambda: nn.Sequential(nn.Linear(20, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, CLASSES)), table),
    "rms norm": (lambda: nn.Sequential(nn.Linear(20, 16), nn.RMSNorm(16), nn.Linear(16, CLASSES)), table),
    "group norm": (lambda: flat(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), width=288), pictures),
    "instance norm": (lambda: flat(nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8, affine=True), width=288), pictures),
    "conv 1d": (lambda: flat(nn.Conv1d(7, 6, 3), width=60), series),
    "conv 2d": (
        lambda: flat(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, dilation=2, padding=2), width=128),
        pictures,
    ),
    "conv 3d": (lambda: flat(nn.Unflatten(1, (1, 3)), nn.Conv3d(1, 4, 3, 1, 1), width=768), pictures),
    "conv transposed": (lambda: flat(nn.ConvTranspose2d(3, 4, 3, 2), width=4 * 17 * 17), pictures),
    "conv groups": (lambda: flat(nn.Conv2d(3, 12, 3, groups=3), width=432), pictures),
    "embedding": (lambda: flat(nn.Embedding(30, 8, padding_idx=0), width=80), words),
    "prelu": (lambda: nn.Sequential(nn.Linear(20, 16), nn.PReLU(16), nn.Linear(16, CLASSES)), table),
    "lstm": (lambda: Last(nn.LSTM(12, 16, batch_first=True)), series),
    "lstm both ways": (lambda: Last(nn.LSTM(12, 16, 2, batch_first=True, bidirectional=True)), series),
    "gru": (lambda: Last(nn.GRU(12, 16, batch_first=True)), series),
    "rnn": (lambda: Last(nn.RNN(12, 16, batch_first=True)), series),
    "vit": (ViT, lambda: torch.randn(ROWS, 9, 12)),
    "text, tied": (Text, words),
    "residual images": (images, pictures),
    "separable": (separable, pictures),
    "u-net": (UNet, pictures),
    "own parameter": (Scaled, table),
}
DRAWING: dict[str, Network] = {
    "mlp with dropout": (lambda: nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, CLASSES)), table),
    "vit with dropout": (lambda: ViT(0.1), lambda: torch.randn(ROWS, 9, 12)),
    "lstm with dropout": (lambda: Last(nn.LSTM(12, 16, 2, batch_first=True, dropout=0.2)), series),
}


def made(network: Network) -> tuple[nn.Module, Any, Tensor]:
    torch.manual_seed(0)
    return network[0](), network[1](), torch.randint(CLASSES, (ROWS,))
