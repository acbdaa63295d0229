"""Torch alone: SGD without privacy, the same with one Gaussian a number (what any private step adds at least), and
per-example gradients by vmap. One worker of bench/sgd.py, see _sgd_loop.py."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from _sgd_loop import CLIP, NOISE, RATE, Step, serve
from _sgd_nets import build, mean_loss, prepare, size
from torch import Tensor, nn


def plain(model: nn.Module, x: Tensor, y: Tensor, precision: Any, noise: bool = False) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), RATE)

    def step() -> None:
        optimizer.zero_grad()
        with precision():
            loss = mean_loss(model(x), y)
        loss.backward()
        if noise:
            for parameter in model.parameters():
                parameter.grad += torch.normal(0.0, NOISE * CLIP / len(x), parameter.shape, device=x.device)
        optimizer.step()

    return step


def vmap(model: nn.Module, x: Tensor, y: Tensor, precision: Any) -> Step:
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.SGD(parameters.values(), RATE)

    def loss(values: dict[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
        with precision():
            return mean_loss(torch.func.functional_call(model, values, (one[None],)), label[None])

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))

    def step() -> None:
        found = gradients({name: value.detach() for name, value in parameters.items()}, x, y)
        squares = torch.stack([each.flatten(1).square().sum(1) for each in found.values()]).sum(0)
        factors = (CLIP / (squares.sqrt() + 1e-6)).clamp(max=1.0)
        for name, parameter in parameters.items():
            total = torch.einsum("b,b...->...", factors, found[name])
            parameter.grad = (total + torch.normal(0.0, NOISE * CLIP, total.shape, device=x.device)) / len(x)
        optimizer.step()

    return step


def worker(given: argparse.Namespace) -> tuple[int, Callable[[], Step]]:
    precision = prepare(given)
    model, x, y = build(given.task, given.device)
    if given.variant == "vmap":
        return size(model), lambda: vmap(model, x, y, precision)
    return size(model), lambda: plain(model, x, y, precision, noise=given.variant == "plain+noise")


if __name__ == "__main__":
    serve(worker)
