"""Convolutions with standardised kernels: y = conv(x, c) * s + b, where c is the weight with its mean taken off.

With r = 1 / |c| and s = r * gain for every output channel, K the gradient of c, q that of s (each unit's; K and q of a channel
are all that is needed), D the numbers of a channel's kernel and P what takes a mean off, the chain rule gives

    d weight = P K - gain r^3 q c,    d gain = r q,    |d weight|^2 = |K|^2 - (sum K)^2 / D - gain^2 r^4 q^2,

because <K, c> = s q. So norms need no gradient in the space of the weight, and sums are taken there once, for all units.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from discreet.learn.layers import StandardizedConv2d
from discreet.learn.sgd.clipping import slack
from discreet.learn.sgd.engine.layers import conv, conv_nd, norm
from discreet.learn.sgd.engine.tape import Forward, Record, Tape, Views

HIDDEN = 2.0**-20  # what rounding may hide where a large part of |K|^2 is taken off, as a share of it


class StandardisedRecord(Record):
    """Two uses in one: of the centred kernel, and of the scale and shift behind it."""

    def __init__(self, tape: Tape, module: StandardizedConv2d, inner: conv.ConvRecord, outer: norm.GroupRecord) -> None:
        self.tape, self.module, self.inner, self.outer = tape, module, inner, outer
        self.weight, self.gain, self.bias = (
            p if p is not None and p.requires_grad else None for p in (module.weight, module.gain, module.bias)
        )
        self.parameters = [p for p in (self.weight, self.gain, self.bias) if p is not None]
        centred, self.r, self.free = module.centred()
        self.c = centred.flatten(1)
        self.bend = torch.where(self.free, module.gain * self.r**3, 0.0)  # gain r^3

    @property
    def gradient(self) -> Tensor | None:
        return getattr(self.outer, "gradient", None)

    def _scale(self) -> Tensor:
        """q, [units, p]."""
        assert self.outer.weight is not None
        return self.outer.instantiate()[self.outer.weight]

    def _sums(self) -> Tensor:
        """The sum of K over every kernel, [units, p]: what met a kernel's numbers, added up before the gradients meet it."""
        x, g, kernel, groups = self.inner.x, self.inner.gradient, self.module.weight, self.module.groups
        under = x.unflatten(1, (groups, -1)).sum(2, dtype=torch.float32)
        box = torch.ones(groups, 1, *kernel.shape[2:], device=x.device)
        met = F.conv2d(under, box, None, *self._how, groups).flatten(2)  # [examples, groups, positions]
        each = g.flatten(2).unflatten(1, (groups, -1)) @ met.to(g.dtype)[..., None]
        return each.flatten(1).float().unflatten(0, (-1, self.tape.rows)).sum(1)

    @property
    def _how(self) -> tuple[Any, Any, Any]:
        module = self.module
        return module.stride, (0 if conv_nd.uneven(module) else module.padding), module.dilation

    def squared_norms(self) -> Tensor:
        q = self._scale()
        found = torch.zeros(self.tape.units, device=q.device)
        if self.weight is not None:
            whole = self.inner.squared_norms()
            off = self._sums().square() / self.c.shape[1] + q.square() * (self.bend**2 * self.r**-2)
            found = (whole - off.sum(1)).clamp_min_(0.0) + (HIDDEN + slack(self.inner.gradient)) * whole
        if self.gain is not None:
            found = found + (q * self.r).square().sum(1)
        if self.bias is not None:
            found = found + self.outer.instantiate()[self.bias].square().sum(1)
        return found

    def instantiate(self) -> dict[Tensor, Tensor]:
        q, made = self._scale(), dict[Tensor, Tensor]()
        if self.weight is not None:
            assert self.inner.weight is not None
            whole = self.inner.instantiate()[self.inner.weight].float().flatten(2)
            made[self.weight] = self._turned(whole, q).view(-1, *self.weight.shape)
        if self.gain is not None:
            made[self.gain] = q * self.r
        if self.bias is not None:
            made[self.bias] = self.outer.instantiate()[self.bias]
        return made

    def _turned(self, whole: Tensor, q: Tensor) -> Tensor:
        """P K - gain r^3 q c, of one unit or of many together."""
        return whole - whole.mean(-1, keepdim=True) - (q * self.bend)[..., None] * self.c

    def add(self, factors: Tensor, into: Views) -> None:
        q = factors @ self._scale()
        if self.weight is not None:
            assert self.inner.weight is not None
            total = torch.zeros_like(self.inner.weight, dtype=torch.float32)
            self.inner.add(factors, {self.inner.weight: total})
            into[self.weight].add_(self._turned(total.flatten(1), q).view_as(self.weight))
        if self.gain is not None:
            into[self.gain].add_(q * self.r)
        if self.bias is not None:
            into[self.bias].add_(factors @ self.outer.instantiate()[self.bias])

    def blank(self, good: Tensor) -> None:
        self.inner.blank(good)
        self.outer.blank(good)


def standardised(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    assert isinstance(module, StandardizedConv2d)

    def forward(x: Tensor) -> Tensor:
        with torch.no_grad():
            centred, r, _ = module.centred()
            kernel, scale = centred.requires_grad_(), (r * module.gain).requires_grad_()
            uneven = conv_nd.uneven(module)
            plain: Any = SimpleNamespace(
                weight=kernel, bias=None, kernel_size=module.kernel_size, stride=module.stride, dilation=module.dilation,
                padding=(0, 0) if uneven else module.padding, groups=module.groups,
            )  # fmt: skip
            inner = conv.ConvRecord(tape, plain)
            outer = norm.GroupRecord(tape, scale, module.bias)
            tape.add(StandardisedRecord(tape, module, inner, outer))
        x = tape.batched(module, x)
        z = conv._Conv.apply(conv_nd.padded(module, x) if uneven else x, kernel, None, inner)
        return norm.channels(z, scale, module.bias, outer)

    return forward


LAYERS: dict[Any, Forward] = {StandardizedConv2d.forward: standardised}
