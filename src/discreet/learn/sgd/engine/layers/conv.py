"""Convolutions over images: linear layers over patches."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from discreet.learn import layers
from discreet.learn.sgd.clipping import NARROW
from discreet.learn.sgd.engine import tune
from discreet.learn.sgd.engine.compiled import casted
from discreet.learn.sgd.engine.layers import kernels, patches
from discreet.learn.sgd.engine.layers.patches import Kernel
from discreet.learn.sgd.engine.tape import Forward, Record, Tape, Views, from_grams, squared, weighted

WRITTEN = {
    "patches": patches.by_patches, "channels": patches.by_channels, "lines": patches.by_lines, "shifts": patches.by_shifts,
    "groups": patches.by_groups,
}  # fmt: skip
FUSED = (torch.float32, torch.bfloat16, torch.float16)  # types that the kernel of conv_triton.py is for
KEPT = 4  # instantiated gradients are kept if they take at most so many times the memory of the records


class _Conv(torch.autograd.Function):
    """The layer as torch computes it; its backward gives the input's gradient alone and records the output's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, record: ConvRecord) -> Tensor:
        x, weight, narrow = casted(x, weight, bias)
        ctx.record = record
        ctx.save_for_backward(x, weight)
        kernel = record.kernel
        last = bias is not None and layers.shifts(x)
        y = torch.conv2d(x, weight, None if last else narrow, kernel.stride, kernel.padding, kernel.dilation, kernel.groups)
        return layers.shifted(y, bias) if last and bias is not None else y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None, None]:
        record = ctx.record
        record.gradient = gradient
        record.x, record.narrow = ctx.saved_tensors
        if not ctx.needs_input_grad[0]:
            return None, None, None, None
        return record.kernel.back(gradient, record.x, record.narrow, (True, False, False))[0], None, None, None


class ConvRecord(Record):
    """A kernel [p, c / groups, kh, kw] (and a bias [p]) on images [examples, c, H, W]."""

    x: Tensor
    gradient: Tensor
    narrow: Tensor  # the kernel in the type it was used in

    def __init__(self, tape: Tape, module: nn.Conv2d) -> None:
        self.tape = tape
        self.weight = module.weight if module.weight.requires_grad else None
        self.bias = module.bias if module.bias is not None and module.bias.requires_grad else None
        self.parameters = [p for p in (self.weight, self.bias) if p is not None]
        self.kernel = _kernel(module)
        self._kept: tuple[list[patches.Block], Tensor | None] | None = None
        self._fused = False

    def instantiate(self) -> dict[Tensor, Tensor]:
        gradients: dict[Tensor, Tensor] = {}
        if self.weight is not None:
            gradients[self.weight] = patches.by_patches(self.x, self.gradient, self.kernel, self.tape.rows)[0].each
        if self.bias is not None:
            gradients[self.bias] = self._shift(self.gradient)
        return gradients

    def _shift(self, g: Tensor) -> Tensor:
        """The bias's gradient for every unit."""
        if self.tape.rows == 1:
            return g.flatten(2).sum(2, dtype=torch.float32)
        return g.unflatten(0, (-1, self.tape.rows)).sum((1, 3, 4), dtype=torch.float32)

    def squared_norms(self) -> Tensor:
        if self.weight is None:
            return squared(self.instantiate())
        return self._norms(self._way(), self.x, self.gradient)

    def _norms(self, way: str, x: Tensor, g: Tensor) -> Tensor:
        rows, self._kept, self._fused = self.tape.rows, None, "fused" in way
        if "gram" in way:
            inputs = patches.patch_gram(x, g, self.kernel, rows)
            return from_grams(inputs if self.bias is None else inputs.add_(1.0), patches.gradient_gram(g, rows), x)
        shift = None if self.bias is None else self._shift(g)
        if self._fused:
            norms, blocks = triton().gradients(x, g, self.kernel, rows, keep=self._keeps(x, g))
            self._kept = (blocks, shift) if blocks else None
            return norms if shift is None else norms + squared({0: shift})
        if way == "compiled":
            norms, blocks = kernels.gradients(x, g, self.kernel, rows, keep=self._keeps(x, g))
            self._kept = (blocks, shift) if blocks else None
            return norms if shift is None else norms + squared({0: shift})
        blocks = WRITTEN[way](x, g, self.kernel, rows)
        self._kept = (blocks, shift) if self._keeps(x, g) else None
        return squared(dict(enumerate([block.each for block in blocks] + ([] if shift is None else [shift]))))

    def _keeps(self, x: Tensor, g: Tensor) -> bool:
        units = x.shape[0] // self.tape.rows
        return units * self.narrow.numel() <= KEPT * (x.numel() + g.numel())

    def add(self, factors: Tensor, into: Views) -> None:
        self._add(factors, into, self.x, self.gradient)

    def _add(self, factors: Tensor, into: Views, x: Tensor, g: Tensor) -> None:
        """Add the instantiated gradients, or else one ordinary gradient in which each unit is weighted by its factor."""
        if self._kept is None and self._fused:
            if self.weight is not None:
                into[self.weight].add_(triton().summed(x, g, factors, self.kernel, self.tape.rows))
            if self.bias is not None:
                into[self.bias].addmv_(self._shift(g).mT, factors)
            return
        if self._kept is None:
            gradients = factors.to(g.dtype).repeat_interleave(self.tape.rows)[:, None, None, None]
            mask = (False, self.weight is not None, self.bias is not None)
            _, weight, bias = self.kernel.back(_wide(g * gradients), _wide(x), _wide(self.narrow), mask)
            for parameter, gradient in ((self.weight, weight), (self.bias, bias)):
                if parameter is not None:
                    into[parameter].add_(gradient)
            return
        blocks, shift = self._kept
        assert self.weight is not None
        for gradients, part in blocks:
            part(into[self.weight]).add_(weighted(gradients.flatten(1), factors).view(gradients.shape[1:]))
        if shift is not None:
            assert self.bias is not None
            into[self.bias].addmv_(shift.mT, factors)

    def blank(self, good: Tensor) -> None:
        self._kept = None  # written out again where it is needed
        super().blank(good)

    def _ways(self) -> list[str]:
        """The candidate methods, the most likely first."""
        kernel, rows = self.kernel, self.tape.rows
        if kernel.groups > 1:
            return ["patches", "groups"]
        ways = ["patches", "channels", "groups"] if self.x.is_cuda else ["groups", "channels", "patches"]
        if rows == 1 and max(kernel.dilation) == 1 and kernel.size[2] % kernel.stride[0] == 0:
            ways.append("lines")
        if rows == 1 and max(kernel.stride) == 1:
            ways.append("shifts")
        if kernels.fits(self.x, kernel):
            ways.insert(0, "compiled")
        grams = ["gram"]
        if fits(self.x) and self.x.dtype == self.gradient.dtype:
            ways.insert(0, "fused")
            grams = ["gram", "fused gram"]
        pixels = patches.positions(kernel, self.x, rows)
        if pixels * pixels <= self.narrow.numel():
            return [*grams, *ways]
        return [*ways, *grams] if pixels * pixels <= 4 * self.narrow.numel() else ways

    def _way(self) -> str:
        return tune.of_images(self, self._ways(), (self.kernel,))


@cache
def triton() -> Any:
    """The fused kernel, or None where there is no Triton."""
    try:
        from discreet.learn.sgd.engine.layers import conv_triton
    except ImportError:
        return None
    return conv_triton


def fits(x: Tensor) -> bool:
    """Whether the fused kernel is for images like these, of the type that autocast makes them."""
    return x.is_cuda and (x.dtype in FUSED or torch.is_autocast_enabled("cuda")) and triton() is not None


def _wide(t: Tensor) -> Tensor:
    """Float32, for a sum over all units: rounded to a narrow type it would move by more than one unit may."""
    return t.float() if t.dtype in NARROW else t


def _kernel(module: nn.Conv2d) -> Kernel:
    padding = module.padding
    if isinstance(padding, str):
        padding = tuple(d * (k - 1) // 2 if padding == "same" else 0 for d, k in zip(module.dilation, module.kernel_size))
    return Kernel(tuple(module.weight.shape), module.stride, padding, module.dilation, module.groups)


def conv2d(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    assert isinstance(module, nn.Conv2d)

    def forward(x: Tensor) -> Tensor:
        record = ConvRecord(tape, module)
        tape.add(record)
        return _Conv.apply(tape.batched(module, x), module.weight, module.bias, record)

    return forward


LAYERS: dict[Any, Forward] = {nn.Conv2d.forward: conv2d}
