"""The task that every simulator of bench/federated.py is given; imported by the peers, so that all run the same."""

from __future__ import annotations

import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

CLIENTS, ROWS, BATCH, RATE = 100, 64, 16, 0.1
torch.set_num_threads(1)


def network(kind: str) -> nn.Module:
    torch.manual_seed(0)
    if kind == "mlp":  # 25,450 parameters
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
    return nn.Sequential(  # 26,010, the small network of many papers on private training
        nn.Conv2d(1, 16, 8, 2, 2), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


def rows(client: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(client)
    return torch.randn(ROWS, 1, 28, 28, generator=draw), torch.randint(0, 10, (ROWS,), generator=draw)


def train(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> None:
    """What a client does in a round: one epoch of SGD."""
    descent = torch.optim.SGD(model.parameters(), lr=RATE)
    for start in range(0, ROWS, BATCH):
        descent.zero_grad()
        F.cross_entropy(model(inputs[start : start + BATCH]), targets[start : start + BATCH]).backward()
        descent.step()


class Turns:
    """A round each time that the benchmark says so: its wall-clock seconds go back as a line."""

    def __init__(self) -> None:
        self.began: float | None = None

    def next(self) -> bool:
        """Tell how long the last round took, and wait for the next; False at the end."""
        if self.began is not None:
            print(f"took {time.perf_counter() - self.began:.6f}", flush=True)
        more = sys.stdin.readline().strip() == "go"
        self.began = time.perf_counter()
        return more
