"""Projected stochastic gradient descent with the noise of Bassily, Smith & Thakurta 2014, as the lectures give it.

One row a step on average, gradients bounded by the loss's Lipschitz constant, weights kept inside a ball. The published noise
keeps (epsilon, delta) for epsilon at most 1 by advanced composition; the claim of the run is the exact account of the same
noise, which is smaller. Where the lectures draw one row uniformly, rows are taken on their own with probability 1/n, since that
is what the account covers.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from discreet.core import Unit, check
from discreet.errors import InvalidValue
from discreet.learn.sgd.clipped_sum import Loss
from discreet.learn.sgd.options import Postprocess
from discreet.learn.sgd.run import Run
from discreet.learn.sgd.train import train


def bassily_noise(*, lipschitz: float, size: int, steps: int, epsilon: float, delta: float) -> float:
    """Standard deviation 16 l sqrt(T ln(2/delta) ln(2.5 T / (delta n))) / (n epsilon), as published.

    >>> round(bassily_noise(lipschitz=1.0, size=1000, steps=1000, epsilon=1.0, delta=1e-5), 2)
    6.23
    """
    lipschitz, epsilon = check.positive("lipschitz", lipschitz), check.positive("epsilon", epsilon)
    size, steps, delta = check.whole("size", size), check.whole("steps", steps), check.open_fraction("delta", delta)
    if epsilon > 1:
        raise InvalidValue(f"The theorem behind this noise holds for epsilon up to 1; got {epsilon:g}. Use train(epsilon=…).")
    inside = 2.5 * steps / (delta * size)
    if inside <= 1:
        raise InvalidValue("2.5 T / (delta n) must be above 1; take more steps or a smaller delta.")
    return 16 * lipschitz * math.sqrt(steps * math.log(2 / delta) * math.log(inside)) / (size * epsilon)


def projected(
    model: nn.Module, data: Any, loss: Loss, *, unit: Unit, size: int, steps: int, epsilon: float, delta: float,
    lipschitz: float, radius: float, learning_rate: float, **more: Any,
) -> Run:  # fmt: skip
    """A run of projected private SGD; `size` is the public number of units, `radius` the ball the weights are kept in."""
    noise = bassily_noise(lipschitz=lipschitz, size=size, steps=steps, epsilon=epsilon, delta=delta)
    optimizer = torch.optim.SGD(model.parameters(), check.positive("learning_rate", learning_rate))
    return train(
        model, optimizer, data, loss, unit=unit, delta=delta, rate=1 / size, steps=steps, clip_norm=lipschitz,
        noise_multiplier=noise / lipschitz, divisor=1.0, postprocess=Postprocess(radius=radius), **more,
    )  # fmt: skip
