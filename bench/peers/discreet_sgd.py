"""Ours, through the public interface: one worker of bench/sgd.py, see _sgd_loop.py.

Every unit is in every batch (a rate of one), so that the batch is the one that everybody has; drawing it, gathering its
rows and drawing the noise from the cipher are part of the step.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import torch
from _sgd_loop import CLIP, NOISE, RATE, Step, serve
from _sgd_nets import build, losses, prepare, size, tiny
from torch import Tensor, nn

import discreet
from discreet.learn import train

STEPS = 1_000_000  # more than are ever timed


def private(model: nn.Module, x: Tensor, y: Tensor, precision: Any) -> Iterator[None]:
    run = train(
        model, torch.optim.SGD(model.parameters(), RATE), (x, y), losses, unit=discreet.record(), delta=1e-5, rate=1.0,
        steps=STEPS, clip_norm=CLIP, noise_multiplier=NOISE, divisor=len(x),
    )  # fmt: skip
    with precision():
        for _ in run:
            yield


def worker(given: argparse.Namespace) -> tuple[int, Callable[[], Step]]:
    precision = prepare(given)
    next(private(*tiny(given.device), precision))  # what is loaded when a run is planned is no memory of a step
    model, x, y = build(given.task, given.device)
    return size(model), lambda: private(model, x, y, precision).__next__


if __name__ == "__main__":
    serve(worker)
