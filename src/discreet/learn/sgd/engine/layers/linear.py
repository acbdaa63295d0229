"""Linear layers: y = x W^T + b, over examples or over sequences of positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from discreet.learn.sgd.clipping import NARROW
from discreet.learn.sgd.engine import tune
from discreet.learn.sgd.engine.compiled import casted
from discreet.learn.sgd.engine.tape import (
    VANISHED,
    Forward,
    Record,
    Tape,
    Views,
    add_instantiated,
    from_grams,
    gram,
    squared,
)

KEPT = 1  # instantiated gradients are kept if they take at most so many times the memory of the records


class _Linear(torch.autograd.Function):
    """The layer as torch computes it; its backward gives the input's gradient alone and records the output's."""

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
        units, x, g = self.tape.units, self.x, self.gradient
        if x.ndim != 3 or len(x) != units or not g.is_contiguous():
            self.x, self.gradient = x, g = x.reshape(units, -1, x.shape[-1]), g.reshape(units, -1, g.shape[-1])
        return x, g

    def instantiate(self) -> dict[Tensor, Tensor]:
        return self._written(*self.shaped())

    def _written(self, x: Tensor, g: Tensor) -> dict[Tensor, Tensor]:
        gradients: dict[Tensor, Tensor] = {}
        if self.weight is not None:
            gradients[self.weight] = torch.bmm(g.mT, x)
        if self.bias is not None:
            gradients[self.bias] = g.sum(1)
        return gradients

    def squared_norms(self) -> Tensor:
        if self.x.ndim == 2 and len(self.x) == self.tape.units:
            return self._rank_one(self.x, self.gradient)
        x, g = self.shaped()
        if x.shape[1] == 1:
            return self._rank_one(x[:, 0], g[:, 0])
        if self.weight is None:
            self._kept = self._written(x, g)
            return squared(self._kept)
        return self._norms(self._way(x, g), x, g, self.tape.gram)

    def _rank_one(self, x: Tensor, g: Tensor) -> Tensor:
        """The norm of a product is the product of norms (Goodfellow 2015); a bias met a one."""
        size = torch.linalg.vector_norm(g, dim=1, dtype=torch.float32).square_().add_(g.shape[1] * VANISHED)
        if self.weight is None:
            return size
        inputs = torch.linalg.vector_norm(x, dim=1, dtype=torch.float32).square_().add_(x.shape[1] * VANISHED)
        return size * inputs if self.bias is None else torch.addcmul(size, size, inputs)

    def _norms(self, way: str, x: Tensor, g: Tensor, inputs: Callable[[Tensor], Tensor]) -> Tensor:
        """Norms from Grams over positions, where `inputs` gives that of the activations, or from instantiated gradients."""
        if way == "grams":
            self._kept, input_gram = None, inputs(x)
            return from_grams(input_gram if self.bias is None else input_gram + 1.0, gram(g), x)
        self._kept = self._written(x, g)
        return squared(self._kept)

    def _way(self, x: Tensor, g: Tensor) -> str:
        """The fastest method, measured on some units once for every shape; by operation count where there are too few units."""
        units, positions, d = x.shape
        p = g.shape[2]
        if d * p > KEPT * positions * (d + p):
            return "grams"  # written out they would take more memory than everything that was recorded
        first = "grams" if 2 * positions * positions <= d * p else "written"
        ways, shared = [first, *({"grams", "written"} - {first})], self.tape.known_gram(x)
        some = min(units, tune.SOME.get(x.device.type, 32))
        shape = ("linear", d, p, positions, some.bit_length(), x.dtype, shared, self.bias is None)
        known = tune.known(ways, shape, x.device)
        if known is not None or units < tune.FEW:
            return known or first
        x, g = x[:some], g[:some]
        factors, input_gram = torch.ones(some, device=x.device), gram(x)
        into = {p: torch.zeros_like(p, dtype=torch.float32) for p in self.parameters}

        def run(way: str) -> None:
            self._norms(way, x, g, lambda x: input_gram if shared else gram(x))
            self._add(factors, into, x, g)

        return tune.fastest(ways, run, shape, x.device)

    def add(self, factors: Tensor, into: Views) -> None:
        flat = self.x.ndim == 2 and len(self.x) == self.tape.units
        self._add(factors, into, *((self.x, self.gradient) if flat else self.shaped()))

    def _add(self, factors: Tensor, into: Views, x: Tensor, g: Tensor) -> None:
        """Add the instantiated gradients, or else one product whose narrower side is weighted by the units' factors."""
        if self._kept is not None:
            return add_instantiated(self._kept, factors, into)
        if x.ndim == 3:
            factors = factors.repeat_interleave(x.shape[1]) if x.shape[1] > 1 else factors
            x, g = x.flatten(0, 1), g.flatten(0, 1)
        if self.weight is not None:
            column = factors.to(g.dtype)[:, None]
            left, right = (g * column, x) if g.shape[1] <= x.shape[1] else (g, x * column)
            _add_product(into[self.weight], left, right)
        if self.bias is not None:
            _add_rows(into[self.bias], g, factors)

    def join(self, other: Record) -> Record | None:
        """Join two calls of one layer by concatenating positions."""
        if not isinstance(other, LinearRecord) or self.weight is not other.weight or self.bias is not other.bias:
            return None
        both = LinearRecord(self.tape, self.weight, self.bias)
        (x, g), (more_x, more_g) = self.shaped(), other.shaped()
        both.x, both.gradient = torch.cat((x, more_x), 1), torch.cat((g, more_g), 1)
        return both


def _add_product(into: Tensor, g: Tensor, x: Tensor) -> None:
    """into += g^T x, added up in float32: a sum over all units, rounded to a narrow type, moves by more than one unit may."""
    if g.dtype == into.dtype:
        into.addmm_(g.mT, x)
    elif g.is_cuda and g.dtype in NARROW:
        into.add_(torch.mm(g.mT, x, out_dtype=torch.float32))
    else:
        into.addmm_(g.mT.to(into.dtype), x.to(into.dtype))


def _add_rows(into: Tensor, g: Tensor, factors: Tensor) -> None:
    """into += the rows of g, each times its factor, added up in float32."""
    if g.is_cuda and g.dtype in NARROW:
        into.add_(torch.mm(factors.to(g.dtype)[None], g, out_dtype=torch.float32)[0])
    else:
        into.addmv_(g.to(into.dtype).mT, factors.to(into.dtype))


def use(tape: Tape, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """One use of a linear map with these parameters on [examples, ..., d], recorded where they are trained."""
    moving = weight if weight.requires_grad else None
    shift = bias if bias is not None and bias.requires_grad else None
    if moving is None and shift is None:
        return F.linear(x, weight, bias)
    record = LinearRecord(tape, moving, shift)
    tape.add(record)
    return _Linear.apply(tape.whole(x), weight, bias, record)


def linear(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    assert isinstance(module, nn.Linear)
    return lambda x: use(tape, tape.batched(module, x), module.weight, module.bias)


LAYERS: dict[Any, Forward] = {nn.Linear.forward: linear}
