"""Convolutions with standardised kernels: y = conv(x, c) * s + b, where c is the weight with its mean taken off.

With r = 1 / |c| and s = r * gain for every output channel, K the gradient of c, q that of s (each unit's; K and q of a channel
are all that is needed), D the numbers of a channel's kernel and P what takes a mean off, the chain rule gives

    d weight = P K - s r^2 q c,    d gain = r q,    |d weight|^2 = |K|^2 - (sum K)^2 / D - s^2 r^2 q^2,

because <K, c> = s q. So norms need no gradient in the space of the weight, and sums are taken there once, for all units.
Where r is held back (a kernel too short to be made longer) it does not depend on c, and the terms with q are not there.
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
    """Two uses in one: of the centred kernel, and of the scale and shift behind it. Few and small operations: a GPU is
    faster than what starts them."""

    def __init__(
        self, tape: Tape, module: StandardizedConv2d, inner: conv.ConvRecord, outer: norm.GroupRecord,
        kernel: tuple[Tensor, Tensor, Tensor], scale: Tensor,
    ) -> None:  # fmt: skip
        self.tape, self.module, self.inner, self.outer = tape, module, inner, outer
        self.weight, self.gain, self.bias = (
            p if p is not None and p.requires_grad else None for p in (module.weight, module.gain, module.bias)
        )
        self.parameters = [p for p in (self.weight, self.gain, self.bias) if p is not None]
        self.c, self.r, free = kernel[0].flatten(1), kernel[1], kernel[2]
        bend = scale * self.r
        self.bend = bend * self.r * free  # s r^2
        self.counts = bend.square() * free  # s^2 r^2

    @property
    def gradient(self) -> Tensor | None:
        return getattr(self.outer, "gradient", None)

    def _scale(self) -> Tensor:
        """q, [units, p]."""
        assert self.outer.weight is not None
        return self.outer.instantiate()[self.outer.weight]

    def _sums(self) -> Tensor:
        """The sum of K over every kernel, [units, p]: what met a kernel's numbers, added up before the gradients meet it."""
        x, g, groups = self.inner.x, self.inner.gradient, self.module.groups
        met = self._windows(x.unflatten(1, (groups, -1)).sum(2, dtype=torch.float32)).flatten(2)
        each = g.flatten(2).unflatten(1, (groups, -1)) @ met.to(g.dtype)[..., None]
        each = each.flatten(1).float()
        return each if self.tape.rows == 1 else each.unflatten(0, (-1, self.tape.rows)).sum(1)

    def _windows(self, x: Tensor) -> Tensor:
        """The sum of what is under the kernel, at every position."""
        module, size = self.module, self.module.kernel_size
        padding = self.inner.kernel.padding
        if max(module.dilation) == 1 and all(2 * p <= k for p, k in zip(padding, size)):
            return F.avg_pool2d(x, size, module.stride, padding, divisor_override=1)
        box = torch.ones(x.shape[1], 1, *size, device=x.device)
        return F.conv2d(x, box, None, module.stride, padding, module.dilation, x.shape[1])

    def squared_norms(self) -> Tensor:
        q, r = self._scale(), self.r
        parts: list[tuple[Tensor, Tensor]] = []  # what is squared, and by how much each channel then counts
        if self.weight is not None:
            parts.append((q, -self.counts if self.gain is None else r.square() - self.counts))
            parts.append((self._sums(), torch.full_like(r, -1.0 / self.c.shape[1])))
        elif self.gain is not None:
            parts.append((q, r.square()))
        if self.bias is not None:
            parts.append((self.outer.instantiate()[self.bias], torch.ones_like(r)))
        found = torch.cat([part for part, _ in parts], 1).square_() @ torch.cat([by for _, by in parts])
        if self.weight is None:
            return found
        whole = self.inner.squared_norms()
        hidden = (HIDDEN + slack(self.inner.gradient)) * whole
        return torch.maximum(found + whole + hidden, hidden)

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
        """P K - s r^2 q c, of one unit or of many together."""
        return torch.addcmul(whole - whole.mean(-1, keepdim=True), (q * self.bend)[..., None], self.c, value=-1)

    def add(self, factors: Tensor, into: Views) -> None:
        q = factors @ self._scale()
        if self.weight is not None:
            assert self.inner.weight is not None
            total = torch.zeros_like(self.inner.weight, dtype=torch.float32)
            self.inner.add(factors, {self.inner.weight: total})
            into[self.weight].add_(self._turned(total.flatten(1), q).view_as(self.weight))
        if self.gain is not None:
            into[self.gain].addcmul_(q, self.r)
        if self.bias is not None:
            into[self.bias].addmv_(self.outer.instantiate()[self.bias].mT, factors)

    def blank(self, good: Tensor) -> None:
        self.inner.blank(good)
        self.outer.blank(good)


def standardised(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    assert isinstance(module, StandardizedConv2d)
    uneven = conv_nd.uneven(module)

    def forward(x: Tensor) -> Tensor:
        with torch.no_grad():
            kernel = module.centred()
            centred, scale = kernel[0].requires_grad_(), (kernel[1] * module.gain).requires_grad_()
            plain: Any = SimpleNamespace(
                weight=centred, bias=None, kernel_size=module.kernel_size, stride=module.stride, dilation=module.dilation,
                padding=(0, 0) if uneven else module.padding, groups=module.groups,
            )  # fmt: skip
            inner, outer = conv.ConvRecord(tape, plain), norm.GroupRecord(tape, scale, module.bias)
            tape.add(StandardisedRecord(tape, module, inner, outer, kernel, scale))
        x = tape.batched(module, x)
        z = conv._Conv.apply(conv_nd.padded(module, x) if uneven else x, centred, None, inner)
        return norm.channels(z, scale, module.bias, outer)

    return forward


LAYERS: dict[Any, Forward] = {StandardizedConv2d.forward: standardised}
