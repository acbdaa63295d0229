"""Whose gradient is whose in the mode that the model trains in? Asked of made-up rows, before anything private is read.

`agreement` compares with the units one by one, for which dropout would draw otherwise, so it looks at the model in eval mode.
Some models do more in training: they leave some examples out of a layer, or change their order. That is seen by the engine
alone: where the losses of one unit only are given, what is added must be no longer than one clipped unit. Parts of its gradient
that are taken for another's are clipped apart, and are longer together.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from discreet.errors import InvalidValue
from discreet.learn.sgd.clipping import Flat
from discreet.learn.sgd.engine.agreement import Losses, Make, copied, tolerance
from discreet.learn.sgd.engine.compiled import eagerly
from discreet.learn.sgd.engine.engine import Engine
from discreet.learn.sgd.engine.probe import awake, sensible

FEWEST, MOST = 3, 5  # units, so that hardly any change of order leaves all where they are
EXAMPLES = 48  # more of them only where units are fewest


class Short(Flat):
    """Every gradient as long as the norm: by itself, since not the clipping is looked at but who is clipped."""

    def factors(self, squared: Tensor) -> Tensor:
        return squared.rsqrt().mul_(self.norm).clamp_(max=1.0)


SHORT = Short(1e-3)


def shares(engine: Engine, losses: Losses, make: Make) -> None:
    """Refuse a model in which one unit adds more than the clip norm, as it is run in training."""
    if not any(module.training for module in engine.model.modules()):
        return  # agreement saw it so
    devices = [it for it in {p.device for p in engine.parameters} if it.type == "cuda"]
    with torch.random.fork_rng(devices=devices), awake(engine), eagerly():
        torch.manual_seed(0)
        units = max(FEWEST, min(MOST, EXAMPLES // engine.rows))
        batch = sensible(engine, losses, make)(units * engine.rows)
        for only in torch.eye(units).repeat_interleave(engine.rows, 1):
            if not _of_one(engine, losses, batch, only) <= SHORT.norm * (1 + tolerance(engine)):
                raise InvalidValue(
                    "In training mode the engine cannot tell which part of a gradient belongs to which example of this model, "
                    "though it can in eval mode. Look for what the model does in training only (if self.training: …) and let "
                    "it give every layer all examples in their order, along the first axis."
                )


def _of_one(engine: Engine, losses: Losses, batch: Any, only: Tensor) -> float:
    """How long the sum is where the losses of one unit alone count, all units there."""
    with engine.recording(len(only)):
        lone = engine.buffer()
        found = losses(copied(batch))
        engine.add(found * only.to(found.device), SHORT, lone, 1.0 / engine.processes)
    return float(engine.length(lone))
