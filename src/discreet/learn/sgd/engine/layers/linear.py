"""Linear layers: y = x W^T + b, over examples or over sequences of positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from discreet.learn.sgd.clipping import NARROW
from discreet.learn.sgd.engine.cast import casted
from discreet.learn.sgd.engine.tape import Forward, Record, Tape, Views, add_instantiated, from_grams, gram, squared


class _Linear(torch.autograd.Function):
    """The layer as torch computes it; its backward gives the input's gradient alone and keeps what came in."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, record: LinearRecord) -> Tensor:
        x, weight, bias = casted(x, weight, bias)
        ctx.record = record
        ctx.save_for_backward(x, weight)
        if x.ndim == 2:
            return F.linear(x, weight, bias)
        y = x.new_empty(*x.shape[:-1], weight.shape[0])  # not a view, which what comes next could not change in place
        flat, x = y.view(-1, y.shape[-1]), x.reshape(-1, x.shape[-1])
        torch.mm(x, weight.mT, out=flat) if bias is None else torch.addmm(bias, x, weight.mT, out=flat)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None, None]:
        ctx.record.gradient = gradient
        ctx.record.x, weight = ctx.saved_tensors
        return (gradient @ weight if ctx.needs_input_grad[0] else None), None, None, None


class LinearRecord(Record):
    """A weight [p, d] (and a bias [p]) that met activations [units, positions, d] and gradients [units, positions, p]."""

    x: Tensor
    gradient: Tensor

    def __init__(self, tape: Tape, weight: Tensor | None, bias: Tensor | None) -> None:
        self.tape, self.weight, self.bias = tape, weight, bias
        self.parameters = [p for p in (weight, bias) if p is not None]
        self._kept: dict[Tensor, Tensor] | None = None

    def shaped(self) -> tuple[Tensor, Tensor]:
        """Activations and gradients as [units, positions, width]."""
        units = self.tape.units
        return self.x.reshape(units, -1, self.x.shape[-1]), self.gradient.reshape(units, -1, self.gradient.shape[-1])

    def instantiate(self) -> dict[Tensor, Tensor]:
        x, g = self.shaped()
        made: dict[Tensor, Tensor] = {}
        if self.weight is not None:
            made[self.weight] = torch.bmm(g.mT, x)
        if self.bias is not None:
            made[self.bias] = g.sum(1)
        return made

    def squared_norms(self) -> Tensor:
        x, g = self.shaped()
        if x.shape[1] == 1:  # of rank one: the norm of a product is the product of norms (Goodfellow 2015)
            size = _squares(g)
            return size * (_squares(x) + (self.bias is not None)) if self.weight is not None else size
        if self.weight is None or not self._ghost(x, g):
            self._kept = self.instantiate()
            return squared(self._kept)
        inputs = self.tape.gram(x)
        return from_grams(inputs if self.bias is None else inputs + 1.0, gram(g), x)

    def _ghost(self, x: Tensor, g: Tensor) -> bool:
        """Whether two Grams over positions cost less than the gradients themselves."""
        positions, d, p = x.shape[1], x.shape[2], g.shape[2]
        return 2 * positions * positions <= d * p

    def add(self, factors: Tensor, into: Views) -> None:
        if self._kept is not None:
            add_instantiated(self._kept, factors, into)
            return
        x, g = self.shaped()
        each = factors.to(g.dtype)[:, None, None]
        if self.bias is not None or g.shape[2] <= x.shape[2]:
            g = g * each
        else:
            x = x * each
        g, x = g.flatten(0, 1), x.flatten(0, 1)
        if self.weight is not None:
            _add_product(into[self.weight], g, x)
        if self.bias is not None:
            into[self.bias].add_(g.sum(0, dtype=into[self.bias].dtype))

    def join(self, other: Record) -> Record | None:
        """A layer called again: its positions stand after the first ones."""
        if not isinstance(other, LinearRecord) or (self.weight, self.bias) != (other.weight, other.bias):
            return None
        both = LinearRecord(self.tape, self.weight, self.bias)
        (x, g), (more_x, more_g) = self.shaped(), other.shaped()
        both.x, both.gradient = torch.cat((x, more_x), 1), torch.cat((g, more_g), 1)
        return both


def _squares(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x.flatten(1), dim=1, dtype=torch.float32).square_()


def _add_product(into: Tensor, g: Tensor, x: Tensor) -> None:
    """into += g^T x, added up in float32: a sum over all units, rounded to a narrow type, moves by more than one unit may."""
    if g.dtype == into.dtype:
        into.addmm_(g.mT, x)
    elif g.is_cuda and g.dtype in NARROW:
        into.add_(torch.mm(g.mT, x, out_dtype=torch.float32))
    else:
        into.addmm_(g.mT.to(into.dtype), x.to(into.dtype))


def use(tape: Tape, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """One use of a linear map with these parameters on [examples, ..., d], recorded where they are trained."""
    trained = [p if p is not None and p.requires_grad else None for p in (weight, bias)]
    if trained == [None, None]:
        return F.linear(x, weight, bias)
    record = LinearRecord(tape, *trained)
    tape.add(record)
    return _Linear.apply(x, weight, bias, record)


def linear(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    assert isinstance(module, nn.Linear)
    return lambda x: use(tape, tape.batched(module, x), module.weight, module.bias)


LAYERS: dict[Any, Forward] = {nn.Linear.forward: linear}
