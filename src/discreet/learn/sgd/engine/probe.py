"""Checks before anything private is read: that the model treats examples independently, and that the engine is correct for it.

Class names are not trusted. Made-up examples go through the model:

    probe                 changing one must leave the losses of all others as they were, and the engine's sum must equal the
                          gradients of the examples taken one by one (gradient_check.py, in eval mode)
    check_training_mode   some models leave examples out of a layer, or change their order, in training only: where the losses
                          of one unit alone are given, the sum must be no longer than one clipped gradient
    program_differs       a recorded program should give the clipped sums that the code gives; no claim rests on it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils import _pytree as pytree

from discreet.errors import InvalidValue
from discreet.learn.sgd.clipping import Flat
from discreet.learn.sgd.engine.compiled import eagerly
from discreet.learn.sgd.engine.engine import Engine
from discreet.learn.sgd.engine.gradient_check import (
    CROWD,
    MORE,
    Losses,
    Make,
    check_gradients,
    close,
    copied,
    local,
    repeated,
    tolerance,
    with_gradient,
)

OTHERWISE = 'Or ask for performance=Performance(path="isolated"): every unit is computed by itself, more slowly.'
FEW = 2  # units in the smaller of two sizes of batch


def probe(engine: Engine, losses: Losses, make: Make, *, alone: bool = False) -> bool:
    """Refuse a model whose examples interact, and learn which layers have an input that all examples share.

    Returns whether model and loss leave their input rows unchanged. Where every unit is computed `alone`, the engine need not
    learn anything about the model.
    """
    _no_batch_norm(engine.model)
    buffers = {name: b.clone() for name, b in engine.model.named_buffers()}
    with torch.random.fork_rng(devices=_cuda(engine)), nonzero_init(engine), eagerly():
        make = finite_examples(engine, losses, make)
        gentle = _alone(engine, losses, make)
        if not alone:
            try:
                learn(engine, losses, make)
                _settle(engine, losses, make)
            except InvalidValue as error:
                raise InvalidValue(f"{error} {OTHERWISE}") from error
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
def nonzero_init(engine: Engine) -> Iterator[None]:
    """A context in which all-zero parameters are random, since they would hide everything behind them."""
    generator = torch.Generator().manual_seed(1)  # the same in every process
    zeros = [tensor for p in engine.parameters if not bool((tensor := local(p)).any())]
    try:
        for tensor in zeros:
            tensor.copy_(0.1 * torch.randn(tensor.shape, generator=generator))
        yield
    finally:
        for tensor in zeros:
            tensor.zero_()


def finite_examples(engine: Engine, losses: Losses, make: Make) -> Make:
    """Made-up examples whose loss is a number: normal ones, or else positive ones below 1 (logarithms, roots, shares)."""
    examples = MORE * engine.rows
    for maker in (make, lambda count: pytree.tree_map(_between, make(count))):
        with torch.no_grad():
            values = checked(losses(maker(examples)), examples)
        if bool(torch.isfinite(values).all()):
            return maker
    raise InvalidValue(
        "The loss of made-up examples is NaN or infinite, so it cannot be tried whether examples influence each other. Normal "
        "numbers and numbers between 0 and 1 were tried as inputs; make model and loss give numbers for either of them "
        "(clamp what goes into a logarithm or a root)."
    )


def _between(leaf: Tensor) -> Tensor:
    return leaf.sigmoid() if leaf.is_floating_point() else leaf


def probe_augment(augment: Callable[[Any], Any], inputs: Any, rows: int) -> None:
    """Refuse an augmentation that mixes units, such as mixup over the batch."""

    def of(batch: Any) -> list[Tensor]:
        torch.manual_seed(0)
        return pytree.tree_leaves(augment(pytree.tree_map(lambda leaf: leaf.clone(), batch)))

    with torch.random.fork_rng():
        before, again = of(inputs), of(inputs)
        after = of(pytree.tree_map(lambda leaf: _first_changed(leaf, rows, 1.0), inputs))
    if not all(_equal(value, other) for value, other in zip(before, again)):
        raise InvalidValue(
            "augment gives something else when it is called again with torch's generator as it was, so it cannot be tried "
            "whether it mixes examples. Let it draw all its randomness from torch (torch.rand, torch.randint, …)."
        )
    if any(value.shape != other.shape or not _equal(value[rows:], other[rows:]) for value, other in zip(before, after)):
        raise InvalidValue(
            "augment puts something of one example into another (as mixup does), so clipping each unit's gradient bounds "
            "nothing. Change every example by itself; mixing the copies of one row with each other is allowed."
        )


def learn(engine: Engine, losses: Losses, make: Make) -> None:
    """Run two batch sizes: first to choose how modules without a layer of ours run, then to see which inputs grow with them."""
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
            where = f"The layer {name!r} of the model" if name else "The model"
            raise InvalidValue(
                f"{where} is {type(module).__name__}, which mixes the examples of a batch: one unit would change the gradients "
                f"of all. Replace it by {_group_norm_replacement(module)}"
                f"{'' if 'Sync' in type(module).__name__ else ', or freeze it with .eval()'}."
            )


def _group_norm_replacement(module: Any) -> str:
    """A layer that takes what a BatchNorm took. A group has several channels where it can: one channel alone would be an
    instance norm, and fails where there is one number per channel.
    """
    channels = module.num_features
    groups = next(g for g in (32, 16, 8, 4, 2, 1) if channels % g == 0 and (g == 1 or channels // g >= 2))
    grouped = f"nn.GroupNorm({groups}, {channels})"
    if isinstance(module, nn.BatchNorm1d):
        return f"nn.LayerNorm({channels}), or for sequences (examples, channels, length) by {grouped}"
    return grouped


def _alone(engine: Engine, losses: Losses, make: Make) -> bool:
    """Change the first unit, slightly and drastically: no other loss may move. Returns whether the rows stayed unchanged."""
    rows, examples = engine.rows, max(MORE, min(CROWD, 4 * CROWD // engine.rows)) * engine.rows
    batch = make(examples)
    untouched = copied(batch)
    seed = torch.initial_seed() % 2**63
    with torch.no_grad():
        torch.manual_seed(seed)
        before = checked(losses(untouched), examples)
        gentle = not any(leaf._version for leaf in pytree.tree_leaves(untouched))
        for size in (1.0, 1e3, -1e3):
            other = pytree.tree_map(lambda leaf, size=size: _first_changed(leaf, rows, size), batch)
            torch.manual_seed(seed)
            after = losses(other)
            if not close(before[rows:], after[rows:]):
                torch.manual_seed(seed)
                repeated(before, losses(copied(batch)))
                raise InvalidValue(
                    "The loss of an example changes when another example of its batch does, so clipping each unit's gradient "
                    "bounds nothing. Look for statistics over the batch axis (x.mean(0), BatchNorm, routing with a capacity, "
                    "a loss normalised by the batch) and take them per example."
                )
    return gentle


def _first_changed(leaf: Tensor, rows: int, size: float) -> Tensor:
    leaf = leaf.clone()
    leaf[:rows] = leaf[:rows].neg() * size + size if leaf.is_floating_point() else 1 - leaf[:rows].long().clamp(0, 1)
    return leaf


def _settle(engine: Engine, losses: Losses, make: Make) -> None:
    """Check the gradients. If they differ, layers whose input all examples share may be the cause: T5 transposes its position
    biases, which then have an axis of examples. The modules around such layers are run example by example, from inside out."""
    try:
        return check_gradients(engine, losses, make)
    except Exception as error:  # whatever a user's forward raises for an unexpected axis
        first = error
    while engine.enclose():
        try:
            learn(engine, losses, make)
            return check_gradients(engine, losses, make)
        except Exception:
            continue
    raise first


def checked(losses: Any, examples: int) -> Tensor:
    """The losses, if there is one for each example."""
    if not isinstance(losses, Tensor) or losses.shape != (examples,):
        raise InvalidValue(
            f"loss must give one number for each example, a tensor of one axis; got {_described(losses)}. "
            "Use reduction='none', and for sequences take the mean over positions: loss.mean(1)."
        )
    return losses


def _described(losses: Any) -> str:
    """What came instead, in words that do not reveal the private batch size."""
    if not isinstance(losses, Tensor):
        return type(losses).__name__
    return {0: "a single number", 1: "more or fewer of them than examples"}.get(losses.ndim, f"a tensor of {losses.ndim} axes")


def _equal(value: Tensor, other: Tensor) -> bool:
    return bool(torch.equal(value, other)) or bool(((value == other) | (value.isnan() & other.isnan())).all())


def _cuda(engine: Engine) -> list[torch.device]:
    device = engine.parameters[0].device
    return [device] if device.type == "cuda" else []


FEWEST, MOST = 3, 5  # units, so that hardly any change of order leaves all where they are
EXAMPLES = 48  # more of them only where units are fewest


class Rescaled(Flat):
    """Every gradient is scaled to the clip norm, short ones too: parts attributed to a wrong unit make the sum longer."""

    def factors(self, squared: Tensor) -> Tensor:
        return squared.rsqrt().mul_(self.norm).clamp_(max=1.0)


RESCALED = Rescaled(1e-3)


def check_training_mode(engine: Engine, losses: Losses, make: Make) -> None:
    """Refuse a model in which one unit adds more than the clip norm in training mode."""
    if not any(module.training for module in engine.model.modules()):
        return  # the gradient check saw it in this mode
    devices = [device for device in {p.device for p in engine.parameters} if device.type == "cuda"]
    with torch.random.fork_rng(devices=devices), nonzero_init(engine), eagerly():
        torch.manual_seed(0)
        units = max(FEWEST, min(MOST, EXAMPLES // engine.rows))
        batch = finite_examples(engine, losses, make)(units * engine.rows)
        for only in torch.eye(units).repeat_interleave(engine.rows, 1):
            if not _of_one(engine, losses, batch, only) <= RESCALED.norm * (1 + tolerance(engine)):
                raise InvalidValue(
                    "In training mode the engine cannot tell which part of a gradient belongs to which example of this model, "
                    "though it can in eval mode. Look for what the model does in training only (if self.training: …) and let "
                    "it give every layer all examples in their order, along the first axis."
                )


def _of_one(engine: Engine, losses: Losses, batch: Any, only: Tensor) -> float:
    """The norm of the sum where only one unit's losses count but all units are in the batch."""
    with engine.recording(len(only)):
        lone = engine.buffer()
        unit_losses = losses(copied(batch))
        engine.add(unit_losses * only.to(unit_losses.device), RESCALED, lone, 1.0 / engine.processes)
    return float(engine.length(lone))


def program_differs(engine: Engine, losses: Losses, program: Callable[[Any], Any], make: Make) -> str | None:
    """A description of how the clipped sums of a recorded program differ from those of the code; None where they agree."""
    devices = [device for device in {p.device for p in engine.parameters} if device.type == "cuda"]
    with torch.random.fork_rng(devices=devices), nonzero_init(engine), eagerly():
        batch = finite_examples(engine, losses, make)(MORE * engine.rows)
        wanted = _summed(engine, losses, batch)
        try:
            actual = _summed(engine, program, batch)
        except Exception as error:  # whatever an operation makes of shapes that the engine gives it
            return f"the recorded operations cannot be run on it: {type(error).__name__}"
        apart, size = float(engine.length(actual - wanted)), float(engine.length(wanted))
    return "the recorded operations give other gradients" if apart > tolerance(engine) * size + 1e-12 else None


def _summed(engine: Engine, losses: Losses, batch: Any) -> Tensor:
    torch.manual_seed(0)
    with engine.recording(MORE * engine.rows), torch.enable_grad():
        into = engine.buffer()
        engine.add(with_gradient(losses(copied(batch))), RESCALED, into, 1.0 / engine.processes)
    return into
