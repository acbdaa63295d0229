"""The way in: three changed lines make a torch loop private."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import nn

from discreet.core import Unit, check
from discreet.errors import InvalidValue
from discreet.learn.sgd.clipping import CLIPPINGS
from discreet.learn.sgd.plan import planned
from discreet.learn.sgd.rows import Augment, Rows
from discreet.learn.sgd.run import Loss, Run
from discreet.learn.sgd.sampling import Poisson
from discreet.learn.sgd.smooth import After


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, data: Any, loss: Loss, *, unit: Unit, delta: float, rate: float,
    steps: int, clip_norm: float, epsilon: float | None = None, noise_multiplier: float | None = None,
    divisor: float | None = None, owners: Any = None, clipping: str = "flat", augment: Augment | None = None, copies: int = 1,
    after: After | None = None, radius: float | None = None, microbatch: int | None = None, ledger: Any = None,
    source: str = "data", account: str | None = None, checkpoint: str | os.PathLike[str] | None = None, every: int = 100,
    progress: bool = False,
) -> Run:  # fmt: skip
    """A run that trains `model` privately when iterated.

    `rate` is the share of units in one batch and `steps` the number of batches: public numbers, like `divisor`, by which the
    noisy sum of clipped gradients is divided. Without a divisor the units are counted with noise, for a fiftieth of epsilon.
    `loss(model(inputs), target)` gives one number per example. `epsilon` decides the noise, or `noise_multiplier` the epsilon.

    `owners` says whose row each row is, where a unit owns several. `augment(inputs)` changes inputs at random, example by
    example; each row is used `copies` times and counts once. `after` may change the noisy gradient (see `shrink`), `radius`
    keeps the weights in a ball: post-processing, like anything done between steps. `microbatch` bounds the units computed at
    once and changes speed and memory only. A run with a `checkpoint` writes it `every` so many steps and goes on from it.

    >>> import discreet
    >>> model = nn.Linear(3, 2)
    >>> data = torch.randn(200, 3), torch.randint(2, (200,))
    >>> run = train(model, torch.optim.SGD(model.parameters(), 0.5), data, nn.CrossEntropyLoss(reduction="none"),
    ...             unit=discreet.record(), epsilon=2.0, delta=1e-5, rate=0.1, steps=20, clip_norm=1.0)
    >>> for step in run:
    ...     pass
    >>> step.number, 1.9 < run.spent() <= 2.0
    (20, True)
    """
    if not isinstance(model, nn.Module):
        raise InvalidValue(f"model must be a torch module; got {type(model).__name__}.")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidValue(
            f"optimizer must be a torch optimizer, such as torch.optim.SGD(model.parameters(), 0.1); "
            f"got {type(optimizer).__name__}."
        )
    if not isinstance(unit, Unit):
        raise InvalidValue(f"unit must be a Unit, such as discreet.record(); got {type(unit).__name__}.")
    if not callable(loss):
        raise InvalidValue(f"loss must be a function of (output, target); got {type(loss).__name__}.")
    kind = CLIPPINGS[check.word("clipping", clipping, tuple(CLIPPINGS))]
    sampler = Poisson(rate)
    plan = planned(
        unit=unit, sampler=sampler, rate=sampler.rate, steps=steps, clip_norm=clip_norm, delta=delta,
        epsilon=epsilon, noise_multiplier=noise_multiplier, counted=divisor is None,
    )  # fmt: skip
    return Run(
        model, optimizer, Rows(data, unit, owners, augment, copies), loss, plan, kind(clip_norm),
        divisor=None if divisor is None else check.positive("divisor", divisor),
        microbatch=None if microbatch is None else check.whole("microbatch", microbatch),
        ledger=ledger, source=check.word("source", source), account=account, checkpoint=checkpoint,
        every=check.whole("every", every), after=after, radius=None if radius is None else check.positive("radius", radius),
        progress=progress,
    )  # fmt: skip
