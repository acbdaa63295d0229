"""Replaces the forwards of a model's layers for one step, runs one backward, clips every unit, and sums into a flat buffer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from discreet.errors import InvalidValue
from discreet.learn.sgd.clipping import Clipping, Encoded
from discreet.learn.sgd.engine.compiled import eagerly, forward_of
from discreet.learn.sgd.engine.fallback import LISTS, Spreads, copied, own, spread_over, tried
from discreet.learn.sgd.engine.layers import find
from discreet.learn.sgd.engine.tape import PART, Forward, Record, Tape
from discreet.learn.sgd.engine.tied import joined

TYPES = (torch.float32, torch.bfloat16, torch.float16)  # of the parameters that can be trained


class Engine:
    """Clipped sums of per-unit gradients for the trained parameters of a model.

    The model is never wrapped or renamed: while `recording`, the layers that hold trained parameters run a forward of ours,
    which computes what theirs does and keeps what the gradients need.
    """

    def __init__(self, model: nn.Module, rows: int = 1) -> None:
        self.model = model
        _python(model)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        if not self.parameters:
            raise InvalidValue("The model has no trainable parameter: all have requires_grad=False, or there are none.")
        wide = [name for name, p in model.named_parameters() if p.requires_grad and p.dtype not in TYPES]
        if wide:
            kind = model.get_parameter(wide[0]).dtype
            way = (
                "Hold real and imaginary part in a float32 parameter [..., 2], and use torch.view_as_complex of it."
                if kind.is_complex
                else "Train in float32 (model.float(), and data of the same type), or in a narrower type."
            )
            raise InvalidValue(
                f"{', '.join(wide[:5])}: of type {str(kind).removeprefix('torch.')}, while sums and noise are float32. {way}"
            )
        self.rows = rows
        self.tape = Tape(rows)
        self._enclosed: set[nn.Module] = set()  # run example by example, with all that is inside
        self._arm({})
        self.size = sum(p.numel() for p in self.parameters)
        self.armed = False  # while a step is recorded
        self.processes = 1  # that add into one sum
        self.good: Tensor | None = None  # where to say whether all units were finite, while a step is recorded
        self._views: tuple[Tensor, dict[Tensor, Tensor]] | None = None

    @contextmanager
    def trying(self) -> Iterator[None]:
        """A context in which modules without a layer of ours determine how they are run from then on."""
        spreads: Spreads = {}
        self._arm(spreads, trying=True)
        try:
            yield
        finally:
            self._arm(spreads)

    def _arm(self, spreads: Spreads, trying: bool = False) -> None:
        self._modules = self._armed(spreads, trying)
        self.layers = [module for module, _ in self._modules]  # in whose place something runs while a step is recorded

    def _armed(self, spreads: Spreads, trying: bool = False) -> list[tuple[nn.Module, Forward]]:
        """What runs in place of which module."""
        return _owners(self.model, spreads, self._enclosed, trying)

    def enclose(self) -> bool:
        """Run by vmap the modules around layers whose input all examples share, one level further out at each call; else False.

        The output of such a layer has an axis of examples that its caller may not expect. The same is done first around modules
        that cannot be run example by example, for instance because they receive no examples.
        """
        inner = self._enclosed or self.tape.layout.lost or self.tape.layout.sharing()
        outer = {near for module in inner if (near := _around(self.model, module)) is not None}
        if not outer or outer == inner:
            return False
        self._enclosed = outer
        return True

    def buffer(self) -> Tensor:
        """A flat buffer for all trained numbers."""
        return torch.zeros(self.size, dtype=torch.float32, device=self.parameters[0].device)

    def views(self, flat: Tensor) -> dict[Tensor, Tensor]:
        """The parts of a flat buffer that belong to each parameter."""
        if self._views is None or self._views[0] is not flat:  # a run has one buffer for all its steps
            parts = flat.split([p.numel() for p in self.parameters])
            self._views = flat, {p: part.view(p.shape) for p, part in zip(self.parameters, parts)}
        return self._views[1]

    @contextmanager
    def recording(self, examples: int) -> Iterator[Tape]:
        """Layers record a batch of so many examples while this is open; afterwards the model is as it was."""
        self.tape.clear()
        self.tape.examples = examples
        before = {module: module.__dict__.get("forward") for module, _ in self._modules}
        outer, self.armed = self.armed, True
        try:
            for module, make in self._modules:
                module.__dict__["forward"] = _recorded(make(module, self.tape), before[module], module)
            with eagerly():
                yield self.tape
        finally:
            self.armed = outer
            for module, forward in before.items():
                if forward is None:
                    module.__dict__.pop("forward", None)
                else:
                    module.__dict__["forward"] = forward

    def add(self, losses: Tensor, clipping: Clipping, into: Tensor, scale: float = 1.0) -> None:
        """Add to a flat buffer the clipped gradients of the losses just recorded, each unit's times `scale`."""
        if not losses.numel():
            self.tape.clear()
            return
        records = self._backward(losses)
        kind = into.device.type
        narrow = torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()
        with torch.no_grad(), narrow:  # norms are not for narrow types
            self._add(records, clipping, into, scale)
        self.tape.clear()

    def _add(self, records: list[Record], clipping: Clipping, into: Tensor, scale: float) -> None:
        if isinstance(clipping, Encoded):
            into.add_(clipping.encode(self._instantiated(records)).sum(0), alpha=scale)
            return
        groups = clipping.groups(records)
        norms = torch.stack([_total(self._lengths(group)) for group in groups])
        factors = clipping.factors(norms)
        if self.good is not None:  # recorded for later: whoever replays it looks, and does it again the ordinary way
            self.good.copy_(torch.isfinite(norms).all())
        elif not math.isfinite(float(norms.sum())):  # rare: one unit with NaN or infinity contributes nothing, the rest as ever
            factors = _drop(records, norms, factors)
        self._contract([(record, factor) for group, factor in zip(groups, factors * scale) for record in group], into)

    def _instantiated(self, records: Sequence[Record]) -> Tensor:
        """The instantiated gradient of every unit, [units, numbers], laid out like a buffer."""
        gradients = torch.zeros(self.tape.units, self.size, dtype=torch.float32, device=self.parameters[0].device)
        parts = gradients.split([p.numel() for p in self.parameters], dim=1)
        views = self.tape.views({p: part.view(-1, *p.shape) for p, part in zip(self.parameters, parts)})
        for record in records:
            for p, gradient in record.instantiate().items():
                if gradient.shape[0] != self.tape.units:
                    raise InvalidValue(PART)
                views[p].add_(gradient)
        return gradients

    def _lengths(self, group: Sequence[Record]) -> list[Tensor]:
        """The squared norms by record; InvalidValue unless there is one for each unit."""
        norms = [record.longest() for record in group]
        if any(norm.shape != (self.tape.units,) for norm in norms):
            raise InvalidValue(PART)
        return norms

    def _contract(self, weighted: Sequence[tuple[Record, Tensor]], into: Tensor) -> None:
        views = self.tape.views(self.views(into))
        for record, factor in weighted:
            record.add(factor, views)
            record.__dict__.clear()  # what it kept is not needed while the others are added

    def gradient(self, loss: Tensor) -> Tensor:
        """The ordinary gradient of a loss, laid out like a buffer; the fast path is compared with it."""
        gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        whole = [torch.zeros_like(p) if g is None else g.to_dense() for g, p in zip(gradients, self.parameters)]
        return torch.cat([g.flatten().float() for g in whole])

    def length(self, flat: Tensor) -> Tensor:
        """The norm of what a buffer holds."""
        return flat.norm()

    def _backward(self, losses: Tensor) -> list[Record]:
        for p in self.parameters:
            p.grad = None
        losses.backward(torch.ones_like(losses))
        strays = [p for p in self.parameters if p.grad is not None]
        if strays:
            names = [name for name, p in self.model.named_parameters() if any(p is stray for stray in strays)]
            for p in strays:
                p.grad = None
            raise InvalidValue(
                f"{', '.join(names[:5])}: used outside the module that holds it, or in a gradient of a gradient "
                "(create_graph=True), so no unit's share of its gradient is known. "
                "Use a parameter in the forward of its own module only (call that module instead of reading its weight). For a "
                "penalty on weights, which needs no noise, use the optimizer's weight_decay instead of the loss."
            )
        return joined([record for record in self.tape.records if record.reached()], self.tape.parts)


def _python(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise InvalidValue(
                f"{name or 'The model'} is compiled by torch.jit, and its layers cannot be asked what they saw. Give the model "
                "as it was before torch.jit.script or torch.jit.trace; script it after training."
            )


def _recorded(ours: Callable[..., Any], before: Callable[..., Any] | None, module: nn.Module) -> Callable[..., Any]:
    """Our forward, or the module's own where gradients are off: such calls, of any batch size, are not recorded."""
    if isinstance(module, nn.parallel.DistributedDataParallel):
        return ours  # which goes straight through, while its own would wait for other processes

    def forward(*args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled():
            return ours(*args, **kwargs)
        return forward_of(module)(*args, **kwargs) if before is None else before(*args, **kwargs)

    forward.discreet = True  # type: ignore[attr-defined]
    return forward


def _total(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(parts)).sum(0) if len(parts) > 1 else parts[0]


def _drop(records: Sequence[Record], norms: Tensor, factors: Tensor) -> Tensor:
    """Blank the units whose norm is not finite, in everything that was recorded; zero times infinity is not zero."""
    good = torch.isfinite(norms).all(0)
    for record in records:
        record.blank(good)
    return torch.where(good, factors, torch.zeros_like(factors))


def _around(model: nn.Module, module: nn.Module) -> nn.Module | None:
    """The enclosing module that is itself called; None for the model."""
    name = next((name for name, other in model.named_modules() if other is module), "")
    while name:
        name = name.rpartition(".")[0]
        outer = model.get_submodule(name)
        if not isinstance(outer, (nn.ModuleList, nn.ModuleDict)):
            return outer
    return None


def _owners(
    model: nn.Module, spreads: Spreads, enclosed: set[nn.Module], trying: bool = False
) -> list[tuple[nn.Module, Forward]]:
    """Every module that holds trained parameters of its own, with what to run in its place."""
    owners: list[tuple[nn.Module, Forward]] = []
    inside: set[int] = set()
    for module in model.modules():
        make, whole = (None, True) if module in enclosed else find(module)
        if id(module) in inside or isinstance(module, LISTS):
            continue
        if not (any(p.requires_grad for p in module.parameters()) if whole else own(module)):
            continue
        if make is None:
            axes = spreads.get(module)
            make = copied if whole else tried(spreads) if trying else spread_over(axes) if axes else copied
        if whole or make is copied:
            inside |= {id(child) for child in module.modules()}
        owners.append((module, make))
    return owners
