"""Does the recorded program compute what model and loss compute? Asked of made-up rows; no claim rests on the answer.

Whatever the program does is proven of the program. But it should be the user's model that is trained: the clipped sums that the
engine gets from the program and from the code must be the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from discreet.learn.sgd.engine import Engine
from discreet.learn.sgd.engine.agreement import MORE, Losses, Make, copied, tolerance, with_gradient
from discreet.learn.sgd.engine.compiled import eagerly
from discreet.learn.sgd.engine.probe import awake, sensible
from discreet.learn.sgd.engine.training import SHORT


def unlike(engine: Engine, losses: Losses, program: Callable[[Any], Any], make: Make) -> str | None:
    """How the sums differ; None where they do not."""
    devices = [it for it in {p.device for p in engine.parameters} if it.type == "cuda"]
    with torch.random.fork_rng(devices=devices), awake(engine), eagerly():
        batch = sensible(engine, losses, make)(MORE * engine.rows)
        wanted = _summed(engine, losses, batch)
        try:
            found = _summed(engine, program, batch)
        except Exception as error:  # whatever an operation makes of shapes that the engine gives it
            return f"the recorded operations cannot be run on it: {type(error).__name__}"
        apart, size = float(engine.length(found - wanted)), float(engine.length(wanted))
    return "the recorded operations give other gradients" if apart > tolerance(engine) * size + 1e-12 else None


def _summed(engine: Engine, losses: Losses, batch: Any) -> Tensor:
    torch.manual_seed(0)
    with engine.recording(MORE * engine.rows), torch.enable_grad():
        into = engine.buffer()
        engine.add(with_gradient(losses(copied(batch))), SHORT, into, 1.0 / engine.processes)
    return into
