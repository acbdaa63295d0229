"""Per-unit gradients of a kernel, and Grams of its inputs and output gradients, by several methods.

A kernel [p, c / groups, kh, kw] on images x [examples, c, H, W] with output gradients g [examples, p, oh, ow]; a unit owns
`rows` consecutive examples. Each way is the fastest for some shape (bench/results/sgd.json); conv.py chooses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

_back = torch.ops.aten.convolution_backward
ROOM = {"cpu": 1 << 21, "cuda": 3 << 24}  # bytes of patches at a time: what is in flight stays in cache


@dataclass(frozen=True)
class Kernel:
    """The shape of a convolution; padding is zeros, as much on both sides."""

    size: tuple[int, ...]  # [p, c / groups, kh, kw]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def back(self, g: Tensor, x: Tensor, weight: Tensor, mask: tuple[bool, bool, bool], many: int = 1) -> tuple[Tensor, ...]:
        """torch's own backward, of which only the parts in `mask` (input, weight, bias) are computed."""
        none = [0] * len(self.stride)
        bias = [weight.shape[0]] if mask[2] else None
        return _back(g, x, weight, bias, self.stride, self.padding, self.dilation, False, none, self.groups * many, mask)


class Block(NamedTuple):
    """Gradients of a part of the kernel, [units, ...], and which part: `part` finds it in something shaped like the kernel."""

    each: Tensor
    part: Callable[[Tensor], Tensor]


def padded(x: Tensor, kernel: Kernel) -> Tensor:
    high, wide = kernel.padding
    return F.pad(x, (wide, wide, high, high)) if high or wide else x


def by_patches(x: Tensor, g: Tensor, kernel: Kernel, rows: int) -> list[Block]:
    """Copy patches for a few units at a time, then one product per unit."""
    p, width, kh, kw = kernel.size
    groups, units, over = kernel.groups, x.shape[0] // rows, g.shape[2:]
    gradients = x.new_empty(units * groups, p // groups, width * kh * kw)
    for start, stop in _pieces(x, rows * groups * width * kh * kw * over.numel(), rows):
        view = _windows(padded(x[start * rows : stop * rows], kernel), over, kernel)  # [examples, c, kh, kw, oh, ow]
        view = view.unflatten(0, (-1, rows)).permute(0, 2, 3, 4, 1, 5, 6)
        patches = view.reshape((stop - start) * groups, width * kh * kw, -1)
        outputs = _rows_last(g[start * rows : stop * rows], rows).reshape((stop - start) * groups, p // groups, -1)
        torch.bmm(outputs, patches.mT, out=gradients[start * groups : stop * groups])
    return [Block(gradients.view(units, *kernel.size), lambda whole: whole)]


def by_channels(x: Tensor, g: Tensor, kernel: Kernel, rows: int) -> list[Block]:
    """The same with channels last, for longer contiguous copies; not for groups."""
    p, width, kh, kw = kernel.size
    units, over = x.shape[0] // rows, g.shape[2:]
    gradients = x.new_empty(units, p, kh * kw * width)
    for start, stop in _pieces(x, rows * kh * kw * width * over.numel(), rows):
        last = padded(x[start * rows : stop * rows], kernel).permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
        view = _windows(last, over, kernel).permute(0, 4, 5, 2, 3, 1)  # [examples, oh, ow, kh, kw, c]
        patches = view.reshape(stop - start, -1, kh * kw * width)
        torch.bmm(_rows_last(g[start * rows : stop * rows], rows), patches, out=gradients[start:stop])
    return [Block(gradients.view(units, p, kh, kw, width), lambda whole: whole.permute(0, 2, 3, 1))]


def by_lines(x: Tensor, g: Tensor, kernel: Kernel, rows: int = 1) -> list[Block]:
    """Patches one line high are copied; the lines of the kernel are shifts of them, each with a product of its own.

    For units of one row, kernels without groups or holes, of a height that the stride divides.
    """
    p, width, kh, kw = kernel.size
    (sh, sw), (oh, ow) = kernel.stride, g.shape[2:]
    gradients = x.new_empty(kh // sh, x.shape[0], p, width * sh * kw)
    lines = oh + kh // sh - 1
    for start, stop in _pieces(x, width * sh * kw * lines * ow):
        pixels = padded(x[start:stop], kernel)
        n, c, h, w = pixels.stride()
        view = pixels.as_strided(
            (stop - start, width, sh, kw, lines, ow), (n, c, h, w, sh * h, sw * w), pixels.storage_offset()
        )
        flat, outputs = view.reshape(stop - start, width * sh * kw, lines * ow), g[start:stop].flatten(2)
        for line, into in enumerate(gradients):
            torch.bmm(outputs, flat.narrow(2, line * ow, oh * ow).mT, out=into[start:stop])
    return [Block(part.view(-1, p, width, sh, kw), _lines(place * sh, sh)) for place, part in enumerate(gradients)]


def _lines(start: int, count: int) -> Callable[[Tensor], Tensor]:
    return lambda whole: whole.narrow(2, start, count)


def by_shifts(x: Tensor, g: Tensor, kernel: Kernel, rows: int = 1) -> list[Block]:
    """No copies: each position in the kernel is a shift of the whole image and has a product of its own.

    Images have channels last and lines as long as the padded image's, so that a shift is an offset. For units of one row, and
    kernels without groups and with stride 1.
    """
    p, width, kh, kw = kernel.size
    (dh, dw), (oh, ow) = kernel.dilation, g.shape[2:]
    wide = ow + dw * (kw - 1)
    length = oh * wide - dw * (kw - 1)  # behind the last place of the last line there is nothing
    gradients = x.new_empty(kh * kw, x.shape[0], p, width)
    for start, stop in _pieces(x, (oh + dh * (kh - 1)) * wide * width + oh * wide * p):
        pixels = padded(x[start:stop], kernel).permute(0, 2, 3, 1).reshape(stop - start, -1, width)
        outputs = F.pad(g[start:stop], (0, wide - ow)).permute(0, 2, 3, 1).reshape(stop - start, -1, p)[:, :length].mT
        for place, into in enumerate(gradients):
            shift = place // kw * dh * wide + place % kw * dw
            torch.bmm(outputs, pixels[:, shift : shift + length], out=into[start:stop])
    return [Block(part, _place(*divmod(place, kw))) for place, part in enumerate(gradients)]


def _place(line: int, column: int) -> Callable[[Tensor], Tensor]:
    return lambda whole: whole[:, :, line, column]


def by_groups(x: Tensor, g: Tensor, kernel: Kernel, rows: int) -> list[Block]:
    """One convolution backward in which every unit is a group of channels."""
    units = x.shape[0] // rows
    if rows > 1:
        x, g = (t.unflatten(0, (units, rows)).transpose(0, 1) for t in (x, g))
    x, g = x.reshape(rows, -1, *x.shape[-2:]), g.reshape(rows, -1, *g.shape[-2:])
    weight = x.new_empty(1).expand(units * kernel.size[0], *kernel.size[1:])  # only its shape is read
    gradients = kernel.back(g, x, weight, (False, True, False), units)[1]
    return [Block(gradients.view(units, *kernel.size), lambda whole: whole)]


def patch_gram(x: Tensor, g: Tensor, kernel: Kernel, rows: int) -> Tensor:
    """Products of all pairs of patches of a unit, [units, positions, positions], without copying a patch.

    Two patches are equal shifts of two pixels: pixels are multiplied first, then the products are added up along the
    diagonals of the window, one axis after the other. Not for groups.
    """
    (kh, kw), over = kernel.size[2:], g.shape[2:]
    pixels = padded(x, kernel)
    high, wide = pixels.shape[2:]
    flat = pixels.unflatten(0, (-1, rows)).permute(0, 2, 1, 3, 4).flatten(2)  # [units, c, rows x pixels]
    products = _product(flat.mT, flat).view(-1, rows, high, wide, rows, high, wide)
    products = _diagonals(products, 2, 5, kh, kernel.stride[0], kernel.dilation[0], over[0])
    products = _diagonals(products, 3, 6, kw, kernel.stride[1], kernel.dilation[1], over[1])
    return products.reshape(products.shape[0], rows * over.numel(), -1)


def gradient_gram(g: Tensor, rows: int) -> Tensor:
    """Products of all pairs of output gradients of a unit, [units, positions, positions]."""
    flat = _rows_last(g, rows)
    return _product(flat.mT, flat)


def positions(kernel: Kernel, x: Tensor, rows: int) -> int:
    """How many pixels of a unit `patch_gram` multiplies with each other."""
    return rows * (x.shape[2] + 2 * kernel.padding[0]) * (x.shape[3] + 2 * kernel.padding[1])


def _product(first: Tensor, second: Tensor) -> Tensor:
    """Added up in float32 whatever the type."""
    if first.dtype not in (torch.bfloat16, torch.float16):
        return torch.bmm(first, second)
    return torch.bmm(first, second, out_dtype=torch.float32) if first.is_cuda else torch.bmm(first.float(), second.float())


def _diagonals(
    products: Tensor, first_axis: int, second_axis: int, size: int, stride: int, dilation: int, count: int
) -> Tensor:
    """The sum over the window of both axes moved by the same step."""
    length, total = stride * (count - 1) + 1, None
    for step in range(0, size * dilation, dilation):
        part = products.narrow(first_axis, step, length).narrow(second_axis, step, length)
        if stride > 1:
            part = part[(slice(None),) * first_axis + (slice(None, None, stride),)]
            part = part[(slice(None),) * second_axis + (slice(None, None, stride),)]
        total = part.clone() if total is None and size > 1 else part if total is None else total.add_(part)
    assert total is not None
    return total


def _windows(x: Tensor, over: torch.Size, kernel: Kernel) -> Tensor:
    """A view of everything under the kernel, [examples, c, kh, kw, oh, ow]."""
    (kh, kw), (sh, sw), (dh, dw) = kernel.size[2:], kernel.stride, kernel.dilation
    n, c, h, w = x.stride()
    return x.as_strided((*x.shape[:2], kh, kw, *over), (n, c, dh * h, dw * w, sh * h, sw * w), x.storage_offset())


def _rows_last(g: Tensor, rows: int) -> Tensor:
    """[units, p, rows x positions]"""
    flat = g.flatten(2)
    return flat if rows == 1 else flat.unflatten(0, (-1, rows)).transpose(1, 2).flatten(2)


def _pieces(x: Tensor, numbers: int, rows: int = 1) -> list[tuple[int, int]]:
    """Units, so many at a time that their patches, of so many numbers each, fit into ROOM."""
    units, most = x.shape[0] // rows, max(1, ROOM.get(x.device.type, 1 << 26) // (numbers * x.element_size()))
    return [(start, min(start + most, units)) for start in range(0, units, most)]
