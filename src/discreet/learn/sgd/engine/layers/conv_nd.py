"""Convolutions of any number of axes, with any padding: linear layers over patches.

Padding that is more than zeros on both sides (circular, reflect, replicate, the same with an even kernel) is done first, as an
operation of its own. nn.Conv2d with ordinary padding runs in conv.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from discreet.learn.sgd.engine import tune
from discreet.learn.sgd.engine.compiled import casted
from discreet.learn.sgd.engine.layers import conv
from discreet.learn.sgd.engine.tape import Forward, Record, Tape, Views, add_instantiated, from_grams, gram, squared

_back = torch.ops.aten.convolution_backward
Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d


class _Conv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, record: PatchRecord) -> Tensor:
        x, weight, bias = casted(x, weight, bias)
        ctx.record = record
        ctx.save_for_backward(x, weight)
        return torch.convolution(x, weight, bias, *record.how)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None, None]:
        record = ctx.record
        record.gradient = gradient
        record.x, record.kernel = ctx.saved_tensors
        to_input = (
            _back(gradient, record.x, record.kernel, None, *record.how, (True, False, False))[0]
            if ctx.needs_input_grad[0]
            else None
        )
        return to_input, None, None, None


class PatchRecord(Record):
    """A kernel [p, c / groups, ...] (and a bias [p]) on [examples, c, ...]; padding is zeros, as much on both sides."""

    x: Tensor
    gradient: Tensor
    kernel: Tensor

    def __init__(self, tape: Tape, module: Convolution, padding: tuple[int, ...]) -> None:
        self.tape = tape
        self.weight = module.weight if module.weight.requires_grad else None
        self.bias = module.bias if module.bias is not None and module.bias.requires_grad else None
        self.parameters = [p for p in (self.weight, self.bias) if p is not None]
        self.padding, self.groups, self.size = padding, module.groups, module.kernel_size
        self.stride, self.dilation = module.stride, module.dilation
        self.how = (module.stride, padding, module.dilation, False, (0,) * len(padding), module.groups)
        self._kept: dict[Tensor, Tensor] | None = None

    def _view(self, x: Tensor, g: Tensor) -> Tensor:
        """A view of the input under the kernel: [units, rows, groups, c / groups, positions.., kernel..]."""
        if any(self.padding):
            x = F.pad(x, [p for axis in reversed(self.padding) for p in (axis, axis)])
        steps, strides = x.stride()[2:], x.stride()[:2]
        view = x.as_strided(
            (*x.shape[:2], *g.shape[2:], *self.size),
            (*strides, *(s * at for s, at in zip(steps, self.stride)), *(s * d for s, d in zip(steps, self.dilation))),
        )
        return view.unflatten(1, (self.groups, -1)).unflatten(0, (-1, self.tape.rows))

    def _patches(self, x: Tensor, g: Tensor) -> Tensor:
        """[units, groups, positions of all rows, width of a patch]"""
        axes = len(self.size)
        order = (0, 2, 1, *range(4, 4 + axes), 3, *range(4 + axes, 4 + 2 * axes))
        return self._view(x, g).permute(order).flatten(2, 2 + axes).flatten(3)

    def _gradients(self, g: Tensor) -> Tensor:
        """The output's gradients: [units, groups, p / groups, positions of all rows]."""
        grouped = g.flatten(2).unflatten(1, (self.groups, -1)).unflatten(0, (-1, self.tape.rows))
        return grouped.permute(0, 2, 3, 1, 4).flatten(3)

    def _by_patches(self, x: Tensor, g: Tensor) -> Tensor:
        return self._gradients(g) @ self._patches(x, g)

    def _by_windows(self, x: Tensor, g: Tensor) -> Tensor:
        """The same with positions last, for longer contiguous copies."""
        axes = len(self.size)
        order = (0, 2, 3, *range(4 + axes, 4 + 2 * axes), 1, *range(4, 4 + axes))
        return self._gradients(g) @ self._view(x, g).permute(order).flatten(3 + axes).flatten(2, 2 + axes).mT

    def _by_groups(self, x: Tensor, g: Tensor) -> Tensor:
        """One convolution backward in which every unit is a group of channels."""
        units = x.shape[0] // self.tape.rows
        x, g = (t.unflatten(0, (units, -1)).transpose(0, 1).flatten(1, 2) for t in (x, g))
        shape = x.new_empty(1).expand(units * self.kernel.shape[0], *self.kernel.shape[1:])  # only its shape is read
        return _back(g, x, shape, None, *self.how[:5], units * self.groups, (False, True, False))[1]

    def instantiate(self) -> dict[Tensor, Tensor]:
        return self._written("windows", self.x, self.gradient)

    def _written(self, way: str, x: Tensor, g: Tensor) -> dict[Tensor, Tensor]:
        gradients: dict[Tensor, Tensor] = {}
        if self.weight is not None:
            gradients[self.weight] = WRITTEN[way](self, x, g).reshape(-1, *self.weight.shape)
        if self.bias is not None:
            gradients[self.bias] = self._shift(g)
        return gradients

    def _shift(self, g: Tensor) -> Tensor:
        """The bias's gradient for every unit."""
        return g.flatten(2).sum(2, dtype=torch.float32).unflatten(0, (-1, self.tape.rows)).sum(1)

    def squared_norms(self) -> Tensor:
        return self._norms("windows" if self.weight is None else self._way(), self.x, self.gradient)

    def _norms(self, way: str, x: Tensor, g: Tensor) -> Tensor:
        self._kept = None
        if way != "gram":
            gradients = self._written(way, x, g)
            if x.shape[0] // self.tape.rows * self.kernel.numel() <= conv.KEPT * (x.numel() + g.numel()):
                self._kept = gradients
            return squared(gradients)
        patches, outputs = self._patches(x, g), self._gradients(g).mT
        both = from_grams(gram(patches.flatten(0, 1)), gram(outputs.flatten(0, 1)), g).view(-1, self.groups).sum(1)
        return both if self.bias is None else both + squared({self.bias: self._shift(g)})

    def _way(self) -> str:
        return tune.of_images(self, self._ways(), (self.how, self.kernel.shape))

    def _ways(self) -> list[str]:
        """The candidate methods, the most likely first: two Grams over positions are cheap where those are few."""
        positions = self.tape.rows * self.gradient[0, 0].numel()
        cost = 2 * positions * positions * self.groups
        if cost <= self.kernel.numel():
            return ["gram", *WRITTEN]
        return [*WRITTEN, "gram"] if cost <= 8 * self.kernel.numel() else list(WRITTEN)

    def add(self, factors: Tensor, into: Views) -> None:
        self._add(factors, into, self.x, self.gradient)

    def _add(self, factors: Tensor, into: Views, x: Tensor, g: Tensor) -> None:
        """Add the instantiated gradients, or else one ordinary gradient in which each unit is weighted by its factor."""
        if self._kept is not None:
            add_instantiated(self._kept, factors, into)
            return
        row_factors = factors.repeat_interleave(self.tape.rows).to(g.dtype)
        g = g * row_factors.view(-1, *(1,) * (g.ndim - 1))
        if self.weight is not None:  # added up in float32: see linear.py
            wide = (t.to(into[self.weight].dtype) for t in (g, x, self.kernel))
            into[self.weight].add_(_back(*wide, None, *self.how, (False, True, False))[1])
        if self.bias is not None:
            into[self.bias].add_(g.sum((0, *range(2, g.ndim)), dtype=torch.float32))


WRITTEN = {"windows": PatchRecord._by_windows, "patches": PatchRecord._by_patches, "groups": PatchRecord._by_groups}


def padded(module: Convolution, x: Tensor) -> Tensor:
    """x with the module's padding around it."""
    around = module._reversed_padding_repeated_twice
    if not any(around):
        return x
    return F.pad(x, around, "constant" if module.padding_mode == "zeros" else module.padding_mode)


def convolution(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    assert isinstance(module, Convolution)

    def forward(x: Tensor) -> Tensor:
        around = module._reversed_padding_repeated_twice
        first = uneven(module)
        record = PatchRecord(tape, module, (0,) * len(module.kernel_size) if first else tuple(around[::-2]))
        tape.add(record)
        x = tape.batched(module, x)
        return _Conv.apply(padded(module, x) if first else x, module.weight, module.bias, record)

    return forward


def conv2d(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    """nn.Conv2d: the fast path for symmetric zero padding."""
    assert isinstance(module, nn.Conv2d)
    return (convolution if uneven(module) else conv.conv2d)(module, tape)


def uneven(module: Convolution) -> bool:
    """Whether padding is asymmetric, or not zeros."""
    around = module._reversed_padding_repeated_twice
    return module.padding_mode != "zeros" or any(left != right for left, right in zip(around[::2], around[1::2]))


LAYERS: dict[Any, Forward] = {nn.Conv1d.forward: convolution, nn.Conv2d.forward: conv2d, nn.Conv3d.forward: convolution}
