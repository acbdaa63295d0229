"""Convolutions: linear layers over patches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from discreet.learn.sgd.engine.cast import casted
from discreet.learn.sgd.engine.tape import Forward, Record, Tape, Views, add_instantiated, squared

_back = torch.ops.aten.convolution_backward


class _Conv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, record: ConvRecord) -> Tensor:
        x, weight, bias = casted(x, weight, bias)
        ctx.record = record
        ctx.save_for_backward(x, weight)
        return torch.conv2d(x, weight, bias, *record.how)  # type: ignore[arg-type]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None, None]:
        ctx.record.gradient = gradient
        ctx.record.x, weight = ctx.saved_tensors
        if not ctx.needs_input_grad[0]:
            return None, None, None, None
        return ctx.record.back(gradient, ctx.record.x, weight, (True, False, False))[0], None, None, None


class ConvRecord(Record):
    """A kernel [p, c / groups, h, w] (and a bias [p]) on images [examples, c, H, W]."""

    x: Tensor
    gradient: Tensor

    def __init__(self, tape: Tape, module: nn.Conv2d) -> None:
        self.tape, self.module = tape, module
        self.weight = module.weight if module.weight.requires_grad else None
        self.bias = module.bias if module.bias is not None and module.bias.requires_grad else None
        self.parameters = [p for p in (self.weight, self.bias) if p is not None]
        self.how = (module.stride, module.padding, module.dilation, module.groups)
        self._kept: dict[Tensor, Tensor] | None = None

    def back(self, gradient: Tensor, x: Tensor, weight: Tensor, mask: tuple[bool, bool, bool]) -> Any:
        """torch's own backward of this convolution, of which only the parts in `mask` are computed."""
        stride, _, dilation, groups = self.how
        return _back(gradient, x, weight, None, stride, self._padding(), dilation, False, [0, 0], groups, mask)

    def _padding(self) -> tuple[int, ...]:
        module = self.module
        if module.padding == "valid":
            return (0,) * len(module.kernel_size)
        if module.padding == "same":
            return tuple(d * (k - 1) // 2 for d, k in zip(module.dilation, module.kernel_size))
        return tuple(module.padding)  # type: ignore[arg-type]

    def instantiate(self) -> dict[Tensor, Tensor]:
        units = self.x.shape[0] // self.tape.rows
        groups, p = self.module.groups, self.module.weight.shape[0]
        g = self.gradient.flatten(2)  # [examples, p, positions]
        made: dict[Tensor, Tensor] = {}
        if self.weight is not None:
            module = self.module
            patches = unfolded(self.x, module, self._padding())
            patches = patches.reshape(units, self.tape.rows, groups, -1, patches.shape[-1])
            each = g.reshape(units, self.tape.rows, groups, p // groups, -1)
            made[self.weight] = torch.einsum("urgpl,urgdl->ugpd", each, patches).reshape(units, *self.weight.shape)
        if self.bias is not None:
            made[self.bias] = g.sum(2).reshape(units, self.tape.rows, p).sum(1)
        return made

    def squared_norms(self) -> Tensor:
        self._kept = self.instantiate()
        return squared(self._kept)

    def add(self, factors: Tensor, into: Views) -> None:
        add_instantiated(self._kept or self.instantiate(), factors, into)


def unfolded(x: Tensor, module: nn.Conv2d, padding: tuple[int, ...]) -> Tensor:
    """The patches under the kernel, [examples, channels x kernel, positions].

    F.unfold launches a kernel per image on a GPU (2.5 ms and more for 512 images on an H200, where copying a strided view
    takes 0.1 to 1.4 ms); on a CPU it is the faster of the two for most shapes.
    """
    if not x.is_cuda:
        return F.unfold(x, module.kernel_size, module.dilation, padding, module.stride)
    x = F.pad(x, (padding[1], padding[1], padding[0], padding[0]))
    (kh, kw), (sh, sw), (dh, dw) = module.kernel_size, module.stride, module.dilation
    high = (x.shape[2] - dh * (kh - 1) - 1) // sh + 1
    wide = (x.shape[3] - dw * (kw - 1) - 1) // sw + 1
    n, c, h, w = x.stride()
    view = x.as_strided((x.shape[0], x.shape[1], kh, kw, high, wide), (n, c, dh * h, dw * w, sh * h, sw * w))
    return view.reshape(x.shape[0], x.shape[1] * kh * kw, high * wide)


def conv2d(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    assert isinstance(module, nn.Conv2d)

    def forward(x: Tensor) -> Tensor:
        record = ConvRecord(tape, module)
        tape.add(record)
        return _Conv.apply(x, module.weight, module.bias, record)

    return forward


LAYERS: dict[Any, Forward] = {nn.Conv2d.forward: conv2d}
