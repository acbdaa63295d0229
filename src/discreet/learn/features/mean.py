"""A private mean of features: subtracting it costs little and helps a linear layer that is trained on them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from discreet.errors import InvalidValue
from discreet.learn.sgd.options import Performance
from discreet.learn.sgd.run import Run
from discreet.learn.sgd.train import train

PIECES = Performance(microbatch=8192)  # units at a time: rows are wide


class Centre(nn.Module):
    """Subtracts a mean from its input: the first module of a model that is trained on centred features."""

    mean: Tensor

    def __init__(self, mean: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)

    def forward(self, features: Tensor) -> Tensor:
        return features - self.mean


def private_mean(rows: Tensor, *, clip_norm: float, **settings: Any) -> tuple[Tensor, Run]:
    """The private mean of `rows` [n, numbers], each clipped to length `clip_norm`, and the run that made it, with its claim.

    The common part of the inputs makes a linear layer's gradients long without teaching anything, and under a clip norm it
    displaces what does. A mean that is good enough to remove it is cheap, since everybody adds to one vector.

    It is one step over everybody of a layer whose gradient is its input; `settings` are those of `train`: unit, delta, epsilon
    or noise_multiplier, divisor, ledger, … The price comes on top of whatever is trained later.

    >>> import discreet
    >>> people = {"unit": discreet.record(), "divisor": 5000}
    >>> mean, run = private_mean(torch.ones(5000, 3), clip_norm=2.0, epsilon=1.0, delta=1e-5, **people)
    >>> bool((mean - 1).abs().max() < 0.1), round(run.spent(), 2)
    (True, 1.0)
    """
    if rows.dim() != 2:
        raise InvalidValue(f"private_mean takes rows [n, numbers]; got {tuple(rows.shape)}. Flatten them: rows.flatten(1).")
    layer = nn.Linear(rows.shape[1], 1, bias=False).to(rows.device)
    nn.init.zeros_(layer.weight)
    data = rows, torch.zeros(len(rows), device=rows.device)
    descent = torch.optim.SGD(layer.parameters(), lr=1.0)
    run = train(layer, descent, data, _along, rate=1.0, steps=1, clip_norm=clip_norm, **({"performance": PIECES} | settings))
    for _ in run:
        pass
    return layer.weight[0].detach().clone(), run


def _along(output: Tensor, target: Tensor) -> Tensor:
    """A loss that falls along every row, so that descent adds the rows up."""
    return target - output[:, 0]
