"""Does the engine's clipped sum agree with the units taken one by one? Asked of made-up rows, before anything private is read.

A norm that is wrong, or a part of a gradient that is given to the wrong unit, shows as a wrong sum where every unit is clipped.
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
CROWD = 12  # units that may be in each other's way: where places are few, three would all find one
ROUNDINGS = 4  # in a narrow type, as many times what moving every weight by its rounding does
DRAWS = 64  # of a model that draws, to know its losses on average
TINY = Flat(1e-3)  # so small that every unit is clipped


def check_gradients(engine: Engine, losses: Losses, make: Make) -> None:
    """The engine's clipped sum against the units taken one by one, without dropout.

    A model that draws (a variational one, one that learns to take noise away) draws otherwise for a unit alone, so its units
    are taken one by one beside the others, and what is drawn is held fixed. In a narrow type a deep network makes much of how
    its sums are rounded, and those of other ways are rounded otherwise. What that may explain is looked at once more, by the
    engine alone, where it explains nothing.
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
    """The losses of a copy of the batch. What is drawn is the same whenever it is asked, and in every process."""
    torch.manual_seed(0)
    return losses(copied(batch))


@torch.no_grad()
def _draws(losses: Losses, batch: Any) -> bool:
    """Whether the losses of the same rows are others the next time."""
    return not close(_fixed(losses, batch), losses(copied(batch)))


def _one_by_one(engine: Engine, losses: Losses, batch: Any, beside: bool) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Of every unit, alone or beside the others: its losses, its clipped gradient, and how long that was before."""
    for unit in range(MORE):
        own = slice(unit * engine.rows, (unit + 1) * engine.rows)
        part = batch if beside else pytree.tree_map(lambda leaf, own=own: leaf[own], batch)
        own_losses = _fixed(losses, part)[own if beside else slice(None)]
        flat = engine.gradient(own_losses.sum())
        size = engine.length(flat)
        yield own_losses.detach(), flat.mul_(TINY.factors(size.square())), size


def one_after_another(engine: Engine, losses: Losses, batch: Any, summed: Tensor, sizes: list[float]) -> float:
    """How far the engine's sum is from its sums of one unit's losses, all units there; or, if that is more, how far one of
    those is from being as long as a clipped unit. Parts given to a wrong unit are clipped apart, and that shows."""
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
    """How far the sum moves when every weight moves by as little as bfloat16 can tell: deep networks make much of that."""
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
    """A loss divided by the size of its batch is clipped all the same, but one unit more changes it for all others."""
    both = torch.isfinite(together) & torch.isfinite(alone)
    if bool(((together - alone).abs() > room)[both].any()):
        raise InvalidValue(
            "The loss of an example alone is not its loss beside other examples: it depends on them, or on their number, which "
            "is private, so one unit more or less would change the gradients of all. Leave out what looks along the batch axis "
            "or divides by its size (len(x), x.shape[0]); the divisor of the run does that with a public number."
        )


@torch.no_grad()
def _of_any_size_on_average(engine: Engine, losses: Losses, make: Make) -> None:
    """The same of a model that draws, within five standard errors."""
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
    """How much of a sum rounding may explain: gradients of 8 bits that nearly cancel are wrong by some percent."""
    return 0.15 if _narrow(engine) else 0.02


def _narrow(engine: Engine) -> bool:
    device = engine.parameters[0].device.type
    return engine.tape.narrow or torch.is_autocast_enabled(device) or any(p.dtype in NARROW for p in engine.parameters)


def with_gradient(losses: Tensor) -> Tensor:
    """The losses, if they know where they come from."""
    if not losses.requires_grad:
        raise InvalidValue(
            "The loss does not depend on any trained parameter, so there is no gradient: it was detached, or computed under "
            "torch.no_grad(), or does not use what the model gave."
        )
    return losses


def repeated(once: Tensor, again: Tensor) -> None:
    """Who finds that a loss depends on this or that must first know that it is the same twice."""
    if not close(once, again):
        raise InvalidValue(
            "The loss of the same rows is another when it is computed again with torch's generator as it was, so nothing of "
            "the model can be tried. Let model and loss draw all their randomness from torch (torch.randn, nn.Dropout, …) and "
            "keep nothing between calls; if they do so already, the device does not add up the same numbers twice."
        )


def copied(batch: Any) -> Any:
    """For a model that may change what it is given."""
    return pytree.tree_map(lambda leaf: leaf.clone(), batch)


def local(parameter: Tensor) -> Tensor:
    return getattr(parameter, "_local_tensor", parameter).detach()


def close(value: Tensor, other: Tensor) -> bool:
    both = torch.isfinite(value) & torch.isfinite(other)
    return bool(torch.allclose(value[both], other[both], rtol=SAME, atol=SAME)) and bool(
        (torch.isfinite(value) == torch.isfinite(other)).all()
    )
