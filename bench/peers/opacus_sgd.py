"""Opacus (opacus==1.6.0 beside torch): each of its ways to per-example gradients. One worker of bench/sgd.py, see
_sgd_loop.py. The batch is fixed, so its own sampling is not timed; its noise is torch's, its default."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from _sgd_loop import CLIP, NOISE, RATE, Step, serve
from _sgd_nets import build, mean_loss, prepare, size, tiny
from opacus import PrivacyEngine
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


def private(model: nn.Module, x: Tensor, y: Tensor, precision: Any, mode: str) -> Step:
    found = PrivacyEngine(accountant="rdp").make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), RATE), grad_sample_mode=mode, poisson_sampling=False,
        data_loader=DataLoader(TensorDataset(x, y), batch_size=len(x)), criterion=nn.CrossEntropyLoss(),
        noise_multiplier=NOISE, max_grad_norm=CLIP,
    )  # fmt: skip
    wrapped, optimizer, *more = found

    def step() -> None:
        optimizer.zero_grad()
        with precision():
            loss = mean_loss(wrapped(x), y) if mode != "ghost" else ghost(wrapped(x), y, more[0])
        loss.backward()
        optimizer.step()

    return step


def ghost(out: Tensor, y: Tensor, criterion: Any) -> Any:
    """Its two backward passes hide behind its own criterion, which is told the shape of sequences."""
    return criterion(out.flatten(0, 1), y.flatten(), shape=out.shape) if y.ndim > 1 else criterion(out, y)


def worker(given: argparse.Namespace) -> tuple[int, Callable[[], Step]]:
    precision, mode = prepare(given), given.variant.removeprefix("opacus-")
    private(*tiny(given.device), precision, mode)()  # what is loaded for the first step is no memory of a step
    model, x, y = build(given.task, given.device)
    return size(model), lambda: private(model, x, y, precision, mode)


if __name__ == "__main__":
    serve(worker)
