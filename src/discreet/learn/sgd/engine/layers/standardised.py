"""Convolutions with standardised kernels: y = conv(x, c) * s + b, where c is the weight minus its mean.

Let r = 1 / |c| and s = r * gain for every output channel, K the gradient of c and q that of s (for each unit), D the size of a
channel's kernel and P the projection that subtracts the mean. The chain rule gives

    d weight = P K - s r^2 q c,    d gain = r q,    |d weight|^2 = |K|^2 - (sum K)^2 / D - s^2 r^2 q^2,

because <K, c> = s q. So norms need no gradient of the weight, and the weight's sums are computed once, for all units. Where r
is clamped (a kernel that is too short) it does not depend on c, and the terms with q vanish.
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
from discreet.learn.sgd.engine.layers import conv, conv_nd, norm, patches
from discreet.learn.sgd.engine.tape import Forward, Record, Tape, Views, squared, weighted

HIDDEN = 2.0**-20  # the rounding error where a large part of |K|^2 is subtracted, as a share of it


class Chain:
    """From gradients of c and s to those of the weight and the gain, for one use."""

    def __init__(self, kernel: tuple[Tensor, Tensor, Tensor], scale: Tensor) -> None:
        self.shape = kernel[0].shape
        self.c, self.r, free = kernel[0].flatten(1), kernel[1], kernel[2]
        self.s = scale
        bend = scale * self.r
        self.bend = bend * self.r * free  # s r^2
        self.counts = bend.square() * free  # s^2 r^2

    def kernel(self, x: Tensor) -> Tensor:
        """s c, laid out as the images are."""
        scaled = (self.c * self.s[:, None]).view(self.shape)
        last = x.is_contiguous(memory_format=torch.channels_last)
        return scaled.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)

    def turned(self, whole: Tensor, q: Tensor) -> Tensor:
        """P K - s r^2 q c, of one unit or of many together."""
        return torch.addcmul(whole - whole.mean(-1, keepdim=True), (q * self.bend)[..., None], self.c, value=-1)


class StandardisedRecord(Record):
    """The record of the centred kernel, and of the scale and shift behind it, in few operations: small kernels are bound
    by their launch on a GPU."""

    def __init__(
        self, tape: Tape, module: StandardizedConv2d, inner: conv.ConvRecord, outer: norm.GroupRecord, chain: Chain
    ) -> None:
        self.tape, self.module, self.inner, self.outer, self.chain = tape, module, inner, outer, chain
        self.weight, self.gain, self.bias = (
            p if p is not None and p.requires_grad else None for p in (module.weight, module.gain, module.bias)
        )
        self.parameters = [p for p in (self.weight, self.gain, self.bias) if p is not None]

    @property
    def gradient(self) -> Tensor | None:
        return getattr(self.outer, "gradient", None)

    def _scale(self) -> Tensor:
        """q, [units, p]."""
        assert self.outer.weight is not None
        return self.outer.instantiate()[self.outer.weight]

    def _sums(self) -> Tensor:
        """The sum of K over every kernel, [units, p], from the sum of the inputs under the kernel."""
        x, g, groups = self.inner.x, self.inner.gradient, self.module.groups
        met = self._windows(x.unflatten(1, (groups, -1)).sum(2, dtype=torch.float32)).flatten(2)
        gradients = g.flatten(2).unflatten(1, (groups, -1)) @ met.to(g.dtype)[..., None]
        gradients = gradients.flatten(1).float()
        return gradients if self.tape.rows == 1 else gradients.unflatten(0, (-1, self.tape.rows)).sum(1)

    def _windows(self, x: Tensor) -> Tensor:
        """The sum of what is under the kernel, at every position."""
        module, size = self.module, self.module.kernel_size
        padding = self.inner.kernel.padding
        if max(module.dilation) == 1 and all(2 * p <= k for p, k in zip(padding, size)):
            return F.avg_pool2d(x, size, module.stride, padding, divisor_override=1)
        box = torch.ones(x.shape[1], 1, *size, device=x.device)
        return F.conv2d(x, box, None, module.stride, padding, module.dilation, x.shape[1])

    def squared_norms(self) -> Tensor:
        q, r, counts = self._scale(), self.chain.r, self.chain.counts
        parts: list[tuple[Tensor, Tensor]] = []  # what is squared, and by how much each channel then counts
        if self.weight is not None:
            parts.append((q, -counts if self.gain is None else r.square() - counts))
            parts.append((self._sums(), torch.full_like(r, -1.0 / self.chain.c.shape[1])))
        elif self.gain is not None:
            parts.append((q, r.square()))
        if self.bias is not None:
            parts.append((self.outer.instantiate()[self.bias], torch.ones_like(r)))
        total = torch.cat([part for part, _ in parts], 1).square_() @ torch.cat([by for _, by in parts])
        if self.weight is None:
            return total
        whole = self.inner.squared_norms()
        hidden = (HIDDEN + slack(self.inner.gradient)) * whole
        return torch.maximum(total + whole + hidden, hidden)

    def instantiate(self) -> dict[Tensor, Tensor]:
        q, gradients = self._scale(), dict[Tensor, Tensor]()
        if self.weight is not None:
            assert self.inner.weight is not None
            whole = self.inner.instantiate()[self.inner.weight].float().flatten(2)
            gradients[self.weight] = self.chain.turned(whole, q).view(-1, *self.weight.shape)
        if self.gain is not None:
            gradients[self.gain] = q * self.chain.r
        if self.bias is not None:
            gradients[self.bias] = self.outer.instantiate()[self.bias]
        return gradients

    def add(self, factors: Tensor, into: Views) -> None:
        q = factors @ self._scale()
        if self.weight is not None:
            assert self.inner.weight is not None
            total = torch.zeros_like(self.inner.weight, dtype=torch.float32)
            self.inner.add(factors, {self.inner.weight: total})
            into[self.weight].add_(self.chain.turned(total.flatten(1), q).view_as(self.weight))
        if self.gain is not None:
            into[self.gain].addcmul_(q, self.chain.r)
        if self.bias is not None:
            into[self.bias].addmv_(self.outer.instantiate()[self.bias].mT, factors)

    def blank(self, good: Tensor) -> None:
        self.inner.blank(good)
        self.outer.blank(good)


class FusedRecord(conv.ConvRecord):
    """The same on a GPU in one pass, y = conv(x, s c) + b. With G the gradient of s c, K is s G and q is <G, c>: the kernel
    that meets every number of G to find its squares finds that and the sum of G as well."""

    def __init__(self, tape: Tape, module: StandardizedConv2d, inside: Any, chain: Chain) -> None:
        super().__init__(tape, inside)
        self.chain, self.standard, self.gain = chain, module.weight, module.gain
        self.parameters = [self.standard, self.gain, *([] if self.bias is None else [self.bias])]
        self._known: dict[Tensor, Tensor] = {}  # q, under the name of the gain, and the bias's gradients

    def squared_norms(self) -> Tensor:
        x, g, chain, keep = self.x, self.gradient, self.chain, self._keeps(self.x, self.gradient)
        sums, blocks = conv.triton().measured(x, g, self.kernel, self.tape.rows, keep, chain.c.view(chain.shape))
        self._kept, self._known = (blocks, None) if blocks else None, {self.gain: sums[:, 2]}
        weight = chain.s.square()
        whole = sums[:, 0] @ weight
        weights = torch.cat((weight / chain.c.shape[1], chain.counts - chain.r.square()))  # how (sum G)^2 and q^2 count
        # G and q are added up with factors that may differ by their rounding: what is orthogonal then adds its square
        hidden = (HIDDEN + slack(g) ** 2) * whole
        total = torch.maximum(whole + hidden - sums[:, 1:].square().flatten(1) @ weights, hidden)
        if self.bias is None:
            return total
        self._known[self.bias] = self._shift(g)
        return total + squared({0: self._known[self.bias]})

    def instantiate(self) -> dict[Tensor, Tensor]:
        kernel_gradients = patches.by_patches(self.x, self.gradient, self.kernel, self.tape.rows)[0].each.float().flatten(2)
        chain, q = self.chain, torch.linalg.vecdot(kernel_gradients, self.chain.c)
        weight = chain.turned(kernel_gradients * chain.s[:, None], q).view(-1, *chain.shape)
        gradients = {self.standard: weight, self.gain: q * chain.r}
        return gradients if self.bias is None else {**gradients, self.bias: self._shift(self.gradient)}

    def add(self, factors: Tensor, into: Views) -> None:
        total, chain = torch.zeros(self.chain.shape, device=factors.device), self.chain
        if self._kept is None:
            total = conv.triton().summed(self.x, self.gradient, factors, self.kernel, self.tape.rows)
        else:
            for gradients, part in self._kept[0]:
                part(total).copy_(weighted(gradients.flatten(1), factors).view(gradients.shape[1:]))
        q = factors @ self._known[self.gain]
        into[self.standard].add_(chain.turned(total.flatten(1) * chain.s[:, None], q).view(chain.shape))
        into[self.gain].addcmul_(q, chain.r)
        if self.bias is not None:
            into[self.bias].addmv_(self._known[self.bias].mT, factors)


def standardised(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    assert isinstance(module, StandardizedConv2d)
    uneven = conv_nd.uneven(module)
    trained = module.weight.requires_grad and module.gain.requires_grad

    def used(weight: Tensor, bias: Tensor | None) -> Any:
        """The convolution inside, as a layer of its own."""
        return SimpleNamespace(
            weight=weight, bias=bias, kernel_size=module.kernel_size, stride=module.stride, dilation=module.dilation,
            padding=(0, 0) if uneven else module.padding, groups=module.groups,
        )  # fmt: skip

    def forward(x: Tensor) -> Tensor:
        x = tape.batched(module, x)
        x = conv_nd.padded(module, x) if uneven else x
        with torch.no_grad():
            kernel = module.centred()
            chain = Chain(kernel, kernel[1] * module.gain)
        if trained and module.groups == 1 and conv.fits(x):
            weight = chain.kernel(x).requires_grad_()
            fused = FusedRecord(tape, module, used(weight, module.bias), chain)
            tape.add(fused)
            return conv._Conv.apply(x, weight, module.bias, fused)
        centred, scale = kernel[0].requires_grad_(), chain.s.detach().requires_grad_()
        inner, outer = conv.ConvRecord(tape, used(centred, None)), norm.GroupRecord(tape, scale, module.bias)
        tape.add(StandardisedRecord(tape, module, inner, outer, chain))
        return norm.channels(conv._Conv.apply(x, centred, None, inner), scale, module.bias, outer)

    return forward


LAYERS: dict[Any, Forward] = {StandardizedConv2d.forward: standardised}
