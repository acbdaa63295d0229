"""Transposed convolutions over images: convolutions with input and output exchanged.

y = conv_transpose(x, W) is the adjoint of a convolution with the kernel W. So the gradient of W is that of this convolution,
with the gradient of y as its images and x as the gradient of its output; only the bias is another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from discreet.learn.sgd.engine.compiled import casted
from discreet.learn.sgd.engine.layers.conv import ConvRecord
from discreet.learn.sgd.engine.layers.patches import Kernel
from discreet.learn.sgd.engine.tape import Forward, Tape, Views, blanked, squared

_back = torch.ops.aten.convolution_backward


class _Transposed(torch.autograd.Function):
    """The layer as torch computes it; its backward gives the input's gradient alone and records the output's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, record: TransposedRecord) -> Tensor:
        x, weight, bias = casted(x, weight, bias)
        ctx.record = record
        ctx.save_for_backward(x, weight)
        return torch.convolution(x, weight, bias, *record.how)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None, None]:
        x, weight = ctx.saved_tensors
        ctx.record.met(x, gradient, weight)
        if not ctx.needs_input_grad[0]:
            return None, None, None, None
        return _back(gradient, x, weight, None, *ctx.record.how, (True, False, False))[0], None, None, None


class TransposedRecord(ConvRecord):
    """A kernel [c, p / groups, kh, kw] (and a bias [p]) on images [examples, c, H, W]."""

    def __init__(self, tape: Tape, module: nn.ConvTranspose2d, more: Sequence[int]) -> None:
        self.tape = tape
        self.weight = module.weight if module.weight.requires_grad else None
        self.bias = None  # of the convolution, which has none
        self.offset = module.bias if module.bias is not None and module.bias.requires_grad else None
        self.parameters = [p for p in (self.weight, self.offset) if p is not None]
        padding = tuple(int(p) for p in module.padding)
        self.kernel = Kernel(tuple(module.weight.shape), module.stride, padding, module.dilation, module.groups)
        self.how = (module.stride, padding, module.dilation, True, tuple(more), module.groups)
        self._kept, self._fused = None, False

    def met(self, x: Tensor, gradient: Tensor, weight: Tensor) -> None:
        """Record the inputs of the backward. Images larger than the patches cover get less padding on that side."""
        self.shift = self._shift(gradient) if self.offset is not None else None
        (high, wide), (more_high, more_wide) = self.kernel.padding, self.how[4]
        if any(more >= step for more, step in zip(self.how[4], self.kernel.stride)):
            gradient = F.pad(gradient, (wide, wide - more_wide, high, high - more_high))
            self.kernel = replace(self.kernel, padding=(0, 0))
        self.x, self.gradient, self.narrow = gradient, x, weight

    def instantiate(self) -> dict[Tensor, Tensor]:
        gradients = super().instantiate()
        if self.offset is not None and self.shift is not None:
            gradients[self.offset] = self.shift
        return gradients

    def squared_norms(self) -> Tensor:
        parts = [] if self.weight is None else [super().squared_norms()]
        if self.shift is not None:
            parts.append(squared({0: self.shift}))
        return torch.stack(parts).sum(0)

    def add(self, factors: Tensor, into: Views) -> None:
        if self.weight is not None:
            super().add(factors, into)
        if self.offset is not None and self.shift is not None:
            into[self.offset].addmv_(self.shift.mT, factors)

    def blank(self, good: Tensor) -> None:
        super().blank(good)
        if self.shift is not None:
            self.shift = blanked(self.shift, good)


def transposed(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    assert isinstance(module, nn.ConvTranspose2d)

    def forward(x: Tensor, output_size: list[int] | None = None) -> Tensor:
        stride, padding, size = (list[Any](value) for value in (module.stride, module.padding, module.kernel_size))
        more = module._output_padding(x, output_size, stride, padding, size, 2, list(module.dilation))
        record = TransposedRecord(tape, module, more)
        tape.add(record)
        return _Transposed.apply(tape.batched(module, x), module.weight, module.bias, record)

    return forward


LAYERS: dict[Any, Forward] = {nn.ConvTranspose2d.forward: transposed}
