"""Before anything private is read: does this model treat every example on its own, and does the engine see it right?

Class names are not trusted. Made-up examples go through the model: changing one must leave the losses of all others as they
were, and the engine's sum must equal the gradients of the examples taken one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils import _pytree as pytree

from discreet.errors import InvalidValue
from discreet.learn.sgd.clipping import NARROW, Flat
from discreet.learn.sgd.engine.compiled import eagerly
from discreet.learn.sgd.engine.engine import Engine

Losses = Callable[[Any], Tensor]  # the loss of every example of a batch
Make = Callable[[int], Any]  # made-up examples

SAME = 1e-4  # rounding may differ between batches of different sizes, by less than this share
FEW, MORE = 2, 3  # units in the two sizes of batch that are tried
ROUNDINGS = 4  # in a narrow type, as many times what moving every weight by its rounding does
CROWD = 12  # units that may be in each other's way: where places are few, three would all find one


def probe(engine: Engine, losses: Losses, make: Make) -> bool:
    """Refuse a model whose examples interact, and learn which layers are given something all examples share.

    Returns whether model and loss leave the rows they are given as they were.
    """
    _no_batch_norm(engine.model)
    buffers = {name: b.clone() for name, b in engine.model.named_buffers()}
    with torch.random.fork_rng(devices=_cuda(engine)), _awake(engine), eagerly():
        make = _sensible(engine, losses, make)
        gentle = _alone(engine, losses, make)
        learn(engine, losses, make)
        _settle(engine, losses, make)
    changed = [name for name, b in engine.model.named_buffers() if not _equal(b, buffers[name])]
    for name, b in engine.model.named_buffers():
        b.copy_(buffers[name])
    if changed:
        raise InvalidValue(
            f"A forward changed the buffer {changed[0]}: it keeps something about the examples that no noise covers. "
            "Freeze it (module.eval()), or use a layer without running statistics, such as GroupNorm."
        )
    return gentle


@contextmanager
def _awake(engine: Engine) -> Iterator[None]:
    """Weights that are all 0 let nothing through, so nothing could be seen behind them: they are made-up for the while."""
    generator = torch.Generator().manual_seed(1)  # the same in every process
    asleep = [it for p in engine.parameters if not bool((it := _here(p)).any())]
    try:
        for it in asleep:
            it.copy_(0.1 * torch.randn(it.shape, generator=generator))
        yield
    finally:
        for it in asleep:
            it.zero_()


def _here(parameter: Tensor) -> Tensor:
    return getattr(parameter, "_local_tensor", parameter).detach()


def _sensible(engine: Engine, losses: Losses, make: Make) -> Make:
    """Made-up examples whose loss is a number: normal ones, or else positive ones below 1 (logarithms, roots, shares)."""
    examples = MORE * engine.rows
    for one in (make, lambda count: pytree.tree_map(_between, make(count))):
        with torch.no_grad():
            found = checked(losses(one(examples)), examples)
        if bool(torch.isfinite(found).all()):
            return one
    raise InvalidValue(
        "The loss of made-up examples is NaN or infinite, so it cannot be tried whether examples influence each other. Normal "
        "numbers and numbers between 0 and 1 were tried as inputs; make model and loss give numbers for either of them "
        "(clamp what goes into a logarithm or a root)."
    )


def _between(leaf: Tensor) -> Tensor:
    return leaf.sigmoid() if leaf.is_floating_point() else leaf


def probe_augment(augment: Callable[[Any], Any], inputs: Any, rows: int) -> None:
    """Refuse an augmentation that puts something of one unit into another, such as mixing examples of a batch."""

    def of(given: Any) -> list[Tensor]:
        torch.manual_seed(0)
        return pytree.tree_leaves(augment(pytree.tree_map(lambda leaf: leaf.clone(), given)))

    with torch.random.fork_rng():
        before, again = of(inputs), of(inputs)
        after = of(pytree.tree_map(lambda leaf: _first_changed(leaf, rows, 1.0), inputs))
    if not all(_equal(one, other) for one, other in zip(before, again)):
        raise InvalidValue(
            "augment gives something else when it is called again with torch's generator as it was, so it cannot be tried "
            "whether it mixes examples. Let it draw all its randomness from torch (torch.rand, torch.randint, …)."
        )
    if any(one.shape != other.shape or not _equal(one[rows:], other[rows:]) for one, other in zip(before, after)):
        raise InvalidValue(
            "augment puts something of one example into another (as mixup does), so clipping each unit's gradient bounds "
            "nothing. Change every example by itself; mixing the copies of one row with each other is allowed."
        )


def learn(engine: Engine, losses: Losses, make: Make) -> None:
    """Run two sizes of batch: first to see how modules without a layer of ours are run, then to note what grows with them."""
    layout = engine.tape.layout
    layout.learning = True
    try:
        with engine.trying():
            _two_sizes(engine, losses, make)
        _two_sizes(engine, losses, make)
    finally:
        engine.tape.clear()
        layout.learned()


def _two_sizes(engine: Engine, losses: Losses, make: Make) -> None:
    for units in (FEW, MORE):
        batch = make(units * engine.rows)
        with engine.recording(units * engine.rows), torch.enable_grad():
            losses(batch)


def _no_batch_norm(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and module.training:
            groups = next(g for g in (32, 16, 8, 4, 2, 1) if module.num_features % g == 0)
            raise InvalidValue(
                f"{name or 'The model'} is {type(module).__name__}, which mixes the examples of a batch: one unit would change "
                f"the gradients of all. Replace it by nn.GroupNorm({groups}, {module.num_features})"
                f"{'' if 'Sync' in type(module).__name__ else ', or freeze it with .eval()'}."
            )


def _alone(engine: Engine, losses: Losses, make: Make) -> bool:
    """Change the first unit, gently and wildly: no other unit's loss may move. Returns whether rows stayed as they were."""
    rows, examples = engine.rows, max(MORE, min(CROWD, 4 * CROWD // engine.rows)) * engine.rows
    batch = make(examples)
    given = _copy(batch)
    seed = torch.initial_seed() % 2**63
    with torch.no_grad():
        torch.manual_seed(seed)
        before = checked(losses(given), examples)
        gentle = not any(leaf._version for leaf in pytree.tree_leaves(given))
        for size in (1.0, 1e3):
            other = pytree.tree_map(lambda leaf, size=size: _first_changed(leaf, rows, size), batch)
            torch.manual_seed(seed)
            after = losses(other)
            if not _close(before[rows:], after[rows:]):
                raise InvalidValue(
                    "The loss of an example changes when another example of its batch does, so clipping each unit's gradient "
                    "bounds nothing. Look for statistics over the batch axis (x.mean(0), BatchNorm, routing with a capacity, "
                    "a loss normalised by the batch) and take them per example."
                )
    return gentle


def _copy(batch: Any) -> Any:
    """For a model that may change what it is given."""
    return pytree.tree_map(lambda leaf: leaf.clone(), batch)


def _first_changed(leaf: Tensor, rows: int, size: float) -> Tensor:
    leaf = leaf.clone()
    leaf[:rows] = leaf[:rows].neg() * size + size if leaf.is_floating_point() else 1 - leaf[:rows].long().clamp(0, 1)
    return leaf


def _settle(engine: Engine, losses: Losses, make: Make) -> None:
    """See that the engine agrees. Where it does not, layers whose input all examples share may be why: T5 turns what its table
    of distances gives, which then has an axis of examples. What is around them is run example by example, wider and wider."""
    try:
        return _agrees(engine, losses, make)
    except Exception as error:  # whatever a stranger's forward makes of an axis that it did not expect
        first = error
    while engine.enclose():
        try:
            learn(engine, losses, make)
            return _agrees(engine, losses, make)
        except Exception:
            continue
    raise first


def _agrees(engine: Engine, losses: Losses, make: Make) -> None:
    """The engine's clipped sum against the units taken one by one, without dropout.

    In a narrow type a deep network makes much of how its sums are rounded, and those of other ways are rounded otherwise. What
    that may explain is then looked at once more, by the engine alone, where it explains nothing.
    """
    modes = {module: module.training for module in engine.model.modules()}
    engine.model.eval()
    try:
        batch = make(MORE * engine.rows)
        with engine.recording(MORE * engine.rows):
            found = engine.buffer()
            together = with_gradient(losses(_copy(batch)))
            engine.add(together, _TINY, found, 1.0 / engine.processes)  # all of them add the same
        whole, rest, sizes = float(engine.length(found)), found.clone(), []
        for alone, flat, size in _one_by_one(engine, losses, batch):
            _of_any_size(together.detach()[: engine.rows], alone, _tolerance(engine))
            together = together[engine.rows :]
            sizes.append(float(size))
            rest -= flat
        finite, apart, allowed = all(map(math.isfinite, sizes)), float(engine.length(rest)), _tolerance(engine) * whole + 1e-12
        if finite and _narrow(engine) and allowed < apart <= min(ROUNDINGS * _rounding(engine, losses, batch), whole):
            apart = _one_after_another(engine, losses, batch, found, sizes)
    finally:
        for module, mode in modes.items():
            module.training = mode
    if finite and not apart <= allowed:
        raise InvalidValue(
            "The engine cannot tell which part of a gradient belongs to which example of this model. Layers must be given "
            "their examples along the first axis ([examples, …] or [examples x positions, …]); for sequences "
            "use batch_first=True."
        )


def _one_by_one(engine: Engine, losses: Losses, batch: Any) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Of every unit alone: its losses, its clipped gradient, and how long that was before."""
    for unit in range(MORE):
        part = pytree.tree_map(lambda leaf, unit=unit: leaf[unit * engine.rows : (unit + 1) * engine.rows], batch)
        alone = losses(_copy(part))
        flat = engine.gradient(alone.sum())
        size = engine.length(flat)
        yield alone.detach(), flat.mul_(_TINY.factors(size.square())), size


def _one_after_another(engine: Engine, losses: Losses, batch: Any, found: Tensor, sizes: list[float]) -> float:
    """How far the engine's sum is from its sums of one unit's losses, all units there; or, if that is more, how far one of
    those is from being as long as a clipped unit. Parts given to a wrong unit are clipped apart, and that shows."""
    rest, far = found.clone(), 0.0
    for unit, size in enumerate(sizes):
        only = torch.zeros(MORE * engine.rows, device=found.device)
        only[unit * engine.rows : (unit + 1) * engine.rows] = 1.0
        with engine.recording(MORE * engine.rows):
            lone = engine.buffer()
            engine.add(losses(_copy(batch)) * only, _TINY, lone, 1.0 / engine.processes)
        far = max(far, abs(float(engine.length(lone)) - min(_TINY.norm, size)))
        rest -= lone
    return max(far, float(engine.length(rest)))


def _rounding(engine: Engine, losses: Losses, batch: Any) -> float:
    """How far the sum moves when every weight moves by as little as bfloat16 can tell: deep networks make much of that."""
    generator, moved = torch.Generator().manual_seed(2), engine.buffer()  # the same in every process
    kept = [(it, it.clone()) for it in map(_here, engine.parameters)]
    for _, flat, _ in _one_by_one(engine, losses, batch):
        moved += flat
    try:
        for it, _ in kept:
            it.mul_(1 + NARROW[torch.bfloat16] * torch.randn(it.shape, generator=generator).sign().to(it.device))
        for _, flat, _ in _one_by_one(engine, losses, batch):
            moved -= flat
    finally:
        for it, before in kept:
            it.copy_(before)
    return float(engine.length(moved))


def _of_any_size(together: Tensor, alone: Tensor, share: float) -> None:
    """A loss divided by the size of its batch is clipped all the same, but one unit more changes it for all others."""
    both = torch.isfinite(together) & torch.isfinite(alone)
    one, other = together[both], alone[both]
    if one.numel() and not bool(((one - other).abs() <= share * (1e-3 + other.abs().max())).all()):
        raise InvalidValue(
            "The loss of an example alone is not its loss beside other examples: it depends on them, or on their number, which "
            "is private, so one unit more or less would change the gradients of all. Leave out what looks along the batch axis "
            "or divides by its size (len(x), x.shape[0]); the divisor of the run does that with a public number."
        )


def _tolerance(engine: Engine) -> float:
    """How much of a sum rounding may explain: gradients of 8 bits that nearly cancel are wrong by some percent."""
    return 0.15 if _narrow(engine) else 0.02


def _narrow(engine: Engine) -> bool:
    device = engine.parameters[0].device.type
    return engine.tape.narrow or torch.is_autocast_enabled(device) or any(p.dtype != torch.float32 for p in engine.parameters)


_TINY = Flat(1e-3)  # so small that every unit is clipped: then a wrong norm shows as a wrong sum


def with_gradient(losses: Tensor) -> Tensor:
    """The losses, if they know where they come from."""
    if not losses.requires_grad:
        raise InvalidValue(
            "The loss does not depend on any trained parameter, so there is no gradient: it was detached, or computed under "
            "torch.no_grad(), or does not use what the model gave."
        )
    return losses


def checked(losses: Any, examples: int) -> Tensor:
    """The losses, if there is one for each example."""
    if not isinstance(losses, Tensor) or losses.shape != (examples,):
        raise InvalidValue(
            f"loss must give one number for each example, a tensor of one axis; got {_found(losses)}. "
            "Use reduction='none', and for sequences take the mean over positions: loss.mean(1)."
        )
    return losses


def _found(losses: Any) -> str:
    """What came instead, in words: how many examples there are in a batch is private."""
    if not isinstance(losses, Tensor):
        return type(losses).__name__
    return {0: "a single number", 1: "more or fewer of them than examples"}.get(losses.ndim, f"a tensor of {losses.ndim} axes")


def _close(one: Tensor, other: Tensor) -> bool:
    both = torch.isfinite(one) & torch.isfinite(other)
    return bool(torch.allclose(one[both], other[both], rtol=SAME, atol=SAME)) and bool(
        (torch.isfinite(one) == torch.isfinite(other)).all()
    )


def _equal(one: Tensor, other: Tensor) -> bool:
    return bool(torch.equal(one, other)) or bool(((one == other) | (one.isnan() & other.isnan())).all())


def _cuda(engine: Engine) -> list[torch.device]:
    device = engine.parameters[0].device
    return [device] if device.type == "cuda" else []
