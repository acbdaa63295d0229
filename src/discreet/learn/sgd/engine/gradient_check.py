"""Compare the engine's clipped sum with the units computed one by one, on made-up rows, before anything private is read.

A wrong norm, or a part of a gradient attributed to the wrong unit, gives a wrong sum when every unit is clipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from discreet.errors import InvalidValue
from discreet.learn.sgd.clipping import NARROW, Flat
from discreet.learn.sgd.engine.engine import Engine

Losses = Callable[[Any], Tensor]  # the loss of every example of a batch
Make = Callable[[int], Any]  # made-up examples

SAME = 1e-4  # rounding may differ between batches of different sizes, by less than this share
MORE = 3  # units that are taken one by one
CROWD = 12  # units in the interaction test: three would all fit where capacity is limited, as in routing
ROUNDINGS = 4  # in a narrow type, the tolerance in multiples of the effect of rounding every weight
DRAWS = 64  # evaluations of a stochastic model, to average its losses
TINY = Flat(1e-3)  # so small that every unit is clipped


def check_gradients(engine: Engine, losses: Losses, make: Make) -> None:
    """The engine's clipped sum against the units taken one by one, without dropout.

    A stochastic model (variational, denoising) draws other numbers for a unit alone, so its units are computed one by one
    beside the others, with the draws held fixed. In a narrow type a deep network amplifies rounding, which differs between
    batch sizes. A difference that this may explain is checked again by the engine alone, where it does not occur.
    """
    modes = {module: module.training for module in engine.model.modules()}
    cudnn = torch.backends.cudnn.enabled
    engine.model.eval()
    if any(isinstance(module, nn.RNNBase) for module in modes):
        torch.backends.cudnn.enabled = False  # cuDNN has no backward for recurrent layers in eval mode
    try:
        batch = make(MORE * engine.rows)
        beside = _draws(losses, batch)
        if beside:
            _of_any_size_on_average(engine, losses, make)
        with engine.recording(MORE * engine.rows):
            summed = engine.buffer()
            together = with_gradient(_fixed(losses, batch))
            engine.add(together, TINY, summed, 1.0 / engine.processes)  # all of them add the same
        whole, rest, sizes = float(engine.length(summed)), summed.clone(), []
        for alone, flat, size in _one_by_one(engine, losses, batch, beside):
            own, together = together.detach()[: engine.rows], together[engine.rows :]
            _of_any_size(own, alone, tolerance(engine) * (1e-3 + alone.abs().nan_to_num(0.0, 0.0).max()))
            sizes.append(float(size))
            rest -= flat
        finite, apart, allowed = all(map(math.isfinite, sizes)), float(engine.length(rest)), tolerance(engine) * whole + 1e-12
        if finite and _narrow(engine) and allowed < apart <= min(ROUNDINGS * _rounding(engine, losses, batch, beside), whole):
            apart = one_after_another(engine, losses, batch, summed, sizes)
        if finite and not apart <= allowed:
            repeated(_fixed(losses, batch).detach(), _fixed(losses, batch).detach())
            raise InvalidValue(
                "The engine cannot tell which part of a gradient belongs to which example of this model. Layers must be given "
                "their examples along the first axis ([examples, …] or [examples x positions, …]); for sequences "
                "use batch_first=True."
            )
    finally:
        torch.backends.cudnn.enabled = cudnn
        for module, mode in modes.items():
            module.training = mode


def _fixed(losses: Losses, batch: Any) -> Tensor:
    """The losses of a copy of the batch, with the same random draws in every call and process."""
    torch.manual_seed(0)
    return losses(copied(batch))


@torch.no_grad()
def _draws(losses: Losses, batch: Any) -> bool:
    """Whether the losses of the same rows differ between calls."""
    return not close(_fixed(losses, batch), losses(copied(batch)))


def _one_by_one(engine: Engine, losses: Losses, batch: Any, beside: bool) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """For every unit, alone or beside the others: its losses, its clipped gradient, and the norm before clipping."""
    for unit in range(MORE):
        own = slice(unit * engine.rows, (unit + 1) * engine.rows)
        part = batch if beside else pytree.tree_map(lambda leaf, own=own: leaf[own], batch)
        own_losses = _fixed(losses, part)[own if beside else slice(None)]
        flat = engine.gradient(own_losses.sum())
        size = engine.length(flat)
        yield own_losses.detach(), flat.mul_(TINY.factors(size.square())), size


def one_after_another(engine: Engine, losses: Losses, batch: Any, summed: Tensor, sizes: list[float]) -> float:
    """The larger of two distances: of the engine's sum from its sums of one unit's losses with all units present, and of the
    norm of one of these from that of a clipped unit. Parts attributed to a wrong unit are clipped separately, which shows."""
    rest, far = summed.clone(), 0.0
    for unit, size in enumerate(sizes):
        only = torch.zeros(MORE * engine.rows, device=summed.device)
        only[unit * engine.rows : (unit + 1) * engine.rows] = 1.0
        with engine.recording(MORE * engine.rows):
            lone = engine.buffer()
            engine.add(_fixed(losses, batch) * only, TINY, lone, 1.0 / engine.processes)
        far = max(far, abs(float(engine.length(lone)) - min(TINY.norm, size)))
        rest -= lone
    return max(far, float(engine.length(rest)))


def _rounding(engine: Engine, losses: Losses, batch: Any, beside: bool) -> float:
    """How far the sum moves when every weight moves by one bfloat16 rounding, which deep networks amplify."""
    generator, moved = torch.Generator().manual_seed(2), engine.buffer()  # the same in every process
    saved = [(weight, weight.clone()) for weight in map(local, engine.parameters)]
    for _, flat, _ in _one_by_one(engine, losses, batch, beside):
        moved += flat
    try:
        for weight, _ in saved:
            weight.mul_(1 + NARROW[torch.bfloat16] * torch.randn(weight.shape, generator=generator).sign().to(weight.device))
        for _, flat, _ in _one_by_one(engine, losses, batch, beside):
            moved -= flat
    finally:
        for weight, before in saved:
            weight.copy_(before)
    return float(engine.length(moved))


def _of_any_size(together: Tensor, alone: Tensor, room: Tensor) -> None:
    """Refuse a loss that is divided by the batch size: one unit more would change the gradients of all others."""
    both = torch.isfinite(together) & torch.isfinite(alone)
    if bool(((together - alone).abs() > room)[both].any()):
        raise InvalidValue(
            "The loss of an example alone is not its loss beside other examples: it depends on them, or on their number, which "
            "is private, so one unit more or less would change the gradients of all. Leave out what looks along the batch axis "
            "or divides by its size (len(x), x.shape[0]); the divisor of the run does that with a public number."
        )


@torch.no_grad()
def _of_any_size_on_average(engine: Engine, losses: Losses, make: Make) -> None:
    """The same for a stochastic model, within five standard errors."""
    torch.manual_seed(0)
    crowd = make(CROWD * engine.rows)
    unit = pytree.tree_map(lambda leaf: leaf[: engine.rows], crowd)
    together, alone = (
        torch.stack([losses(copied(examples))[: engine.rows] for _ in range(DRAWS)]) for examples in (crowd, unit)
    )
    error = ((together.var(0) + alone.var(0)) / DRAWS).sqrt()
    middle = alone.mean(0)
    _of_any_size(together.mean(0), middle, 5 * error + tolerance(engine) * (1e-3 + middle.abs().nan_to_num(0.0, 0.0).max()))


def tolerance(engine: Engine) -> float:
    """The relative error that rounding may explain: 8-bit gradients that nearly cancel are off by some percent."""
    return 0.15 if _narrow(engine) else 0.02


def _narrow(engine: Engine) -> bool:
    device = engine.parameters[0].device.type
    return engine.tape.narrow or torch.is_autocast_enabled(device) or any(p.dtype in NARROW for p in engine.parameters)


def with_gradient(losses: Tensor) -> Tensor:
    """The losses, if they have a gradient."""
    if not losses.requires_grad:
        raise InvalidValue(
            "The loss does not depend on any trained parameter, so there is no gradient: it was detached, or computed under "
            "torch.no_grad(), or does not use what the model gave."
        )
    return losses


def repeated(once: Tensor, again: Tensor) -> None:
    """Refuse losses that differ between two equal calls, before attributing a difference to something else."""
    if not close(once, again):
        raise InvalidValue(
            "The loss of the same rows is another when it is computed again with torch's generator as it was, so nothing of "
            "the model can be tried. Let model and loss draw all their randomness from torch (torch.randn, nn.Dropout, …) and "
            "keep nothing between calls; if they do so already, the device does not add up the same numbers twice."
        )


def copied(batch: Any) -> Any:
    """A copy of a batch, for a model that may change it in place."""
    return pytree.tree_map(lambda leaf: leaf.clone(), batch)


def local(parameter: Tensor) -> Tensor:
    return getattr(parameter, "_local_tensor", parameter).detach()


def close(value: Tensor, other: Tensor) -> bool:
    both = torch.isfinite(value) & torch.isfinite(other)
    return bool(torch.allclose(value[both], other[both], rtol=SAME, atol=SAME)) and bool(
        (torch.isfinite(value) == torch.isfinite(other)).all()
    )
