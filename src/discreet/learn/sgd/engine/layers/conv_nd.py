"""Convolutions of any number of axes, with any padding: linear layers over patches.

Padding is done first, as an operation of its own, so that every kind of it (same, circular, reflect, replicate) is torch's;
the convolution itself then has none. nn.Conv2d with ordinary padding runs in conv.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from discreet.learn.sgd.engine.cast import casted
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
        given = (
            _back(gradient, record.x, record.kernel, None, *record.how, (True, False, False))[0]
            if ctx.needs_input_grad[0]
            else None
        )
        return given, None, None, None


class PatchRecord(Record):
    """A kernel [p, c / groups, ...] (and a bias [p]) on [examples, c, ...], without padding."""

    x: Tensor
    gradient: Tensor
    kernel: Tensor

    def __init__(self, tape: Tape, module: Convolution) -> None:
        self.tape = tape
        self.weight = module.weight if module.weight.requires_grad else None
        self.bias = module.bias if module.bias is not None and module.bias.requires_grad else None
        self.parameters = [p for p in (self.weight, self.bias) if p is not None]
        none = (0,) * len(module.kernel_size)
        self.how = (module.stride, none, module.dilation, False, none, module.groups)
        self.stride, self.dilation, self.groups, self.size = module.stride, module.dilation, module.groups, module.kernel_size
        self._kept: dict[Tensor, Tensor] | None = None

    def _patches(self) -> Tensor:
        """What the kernel met at every position: [units, groups, positions of all rows, width of a patch]."""
        x, axes = self.x, len(self.size)
        steps, strides = x.stride()[2:], x.stride()[:2]
        over = self.gradient.shape[2:]
        view = x.as_strided(
            (*x.shape[:2], *over, *self.size),
            (*strides, *(s * at for s, at in zip(steps, self.stride)), *(s * d for s, d in zip(steps, self.dilation))),
        )
        view = view.unflatten(1, (self.groups, -1)).unflatten(0, (-1, self.tape.rows))  # [units, rows, groups, c, L.., K..]
        order = (0, 2, 1, *range(4, 4 + axes), 3, *range(4 + axes, 4 + 2 * axes))
        return view.permute(order).flatten(2, 2 + axes).flatten(3)

    def _gradients(self) -> Tensor:
        """The output's gradients: [units, groups, positions of all rows, p / groups]."""
        g = self.gradient.flatten(2).unflatten(1, (self.groups, -1)).unflatten(0, (-1, self.tape.rows))
        return g.permute(0, 2, 1, 4, 3).flatten(2, 3)

    def instantiate(self) -> dict[Tensor, Tensor]:
        made: dict[Tensor, Tensor] = {}
        g = self._gradients()
        if self.weight is not None:
            made[self.weight] = (g.mT @ self._patches()).reshape(-1, *self.weight.shape)
        if self.bias is not None:
            made[self.bias] = g.sum(2, dtype=torch.float32).flatten(1)
        return made

    def squared_norms(self) -> Tensor:
        if self.weight is None or not self._ghost():
            self._kept = self.instantiate()
            return squared(self._kept)
        patches, g = self._patches(), self._gradients()
        both = from_grams(gram(patches.flatten(0, 1)), gram(g.flatten(0, 1)), g).view(-1, self.groups).sum(1)
        return both if self.bias is None else both + squared({self.bias: g.sum(2, dtype=torch.float32)})

    def _ghost(self) -> bool:
        """Whether two Grams over positions cost less than the gradients themselves."""
        positions = self.tape.rows * self.gradient[0, 0].numel()
        return 2 * positions * positions * self.groups <= self.kernel.numel()

    def add(self, factors: Tensor, into: Views) -> None:
        if self._kept is not None:
            add_instantiated(self._kept, factors, into)
            return
        each = factors.repeat_interleave(self.tape.rows).to(self.gradient.dtype)
        g = self.gradient * each.view(-1, *(1,) * (self.gradient.ndim - 1))
        if self.weight is not None:  # added up in float32: see linear.py
            wide = (t.to(into[self.weight].dtype) for t in (g, self.x, self.kernel))
            into[self.weight].add_(_back(*wide, None, *self.how, (False, True, False))[1])
        if self.bias is not None:
            into[self.bias].add_(g.sum((0, *range(2, g.ndim)), dtype=torch.float32))


def padded(module: Convolution, x: Tensor) -> Tensor:
    """x with the module's padding around it."""
    around = module._reversed_padding_repeated_twice
    if not any(around):
        return x
    return F.pad(x, around, "constant" if module.padding_mode == "zeros" else module.padding_mode)


def convolution(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    assert isinstance(module, Convolution)

    def forward(x: Tensor) -> Tensor:
        record = PatchRecord(tape, module)
        tape.add(record)
        return _Conv.apply(padded(module, tape.batched(module, x)), module.weight, module.bias, record)

    return forward


def conv2d(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    """nn.Conv2d: the fast way where padding is as much on both sides, and zeros."""
    assert isinstance(module, nn.Conv2d)
    return (convolution if uneven(module) else conv.conv2d)(module, tape)


def uneven(module: Convolution) -> bool:
    """Whether padding is more on one side, or not zeros."""
    around = module._reversed_padding_repeated_twice
    return module.padding_mode != "zeros" or any(left != right for left, right in zip(around[::2], around[1::2]))


LAYERS: dict[Any, Forward] = {nn.Conv1d.forward: convolution, nn.Conv2d.forward: conv2d, nn.Conv3d.forward: convolution}
