"""Per-unit gradients of a kernel on a GPU in one pass: patches are never copied out, they are read where they lie.

For every unit, every place of the kernel and every tile of output and input channels one program multiplies the output
gradients with the input moved by that place, over all positions, in float32. What it needs to keep of that is the sum of
squares; the gradients themselves are written only where they are wanted.
"""

# mypy: ignore-errors
# (what @triton.jit holds is a language of its own, and Triton is not among what is installed for checking)

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from discreet.learn.sgd.engine.layers.patches import Block, Kernel

PROGRAMS = 1056  # that a sum over all units is divided among, about: some for every processor


def gradients(x: Tensor, g: Tensor, kernel: Kernel, rows: int, keep: bool) -> tuple[Tensor, list[Block]]:
    """Squared norms [units] of the kernel's gradients, and with `keep` these, in the type of x."""
    x, g = x.contiguous(), g.contiguous()
    p, c, kh, kw = kernel.size
    units, (tile, grid) = x.shape[0] // rows, _tiles(kernel, x)
    squares = torch.empty(units, grid, device=x.device)
    made = x.new_empty(units if keep else 0, kh, kw, p, c)
    with torch.cuda.device_of(x):
        _norms[(units * grid,)](x, g, made, squares, rows, *_shape(x, g, kernel), **tile, keep=keep, exact=_exact(x))
    return squares.sum(1), [Block(made, _turned)] if keep else []


def summed(x: Tensor, g: Tensor, factors: Tensor, kernel: Kernel, rows: int) -> Tensor:
    """The sum of the kernel's gradients, each unit times its factor, in float32."""
    x, g = x.contiguous(), g.contiguous()
    p, c, kh, kw = kernel.size
    units, (tile, grid) = x.shape[0] // rows, _tiles(kernel, x)
    each = max(1, -(-units // max(1, PROGRAMS // grid)))  # units of one program
    parts = -(-units // each)
    made = torch.empty(parts, kh, kw, p, c, device=x.device)
    with torch.cuda.device_of(x):
        _sums[(parts * grid,)](
            x, g, made, factors.float().contiguous(), units, each, rows, *_shape(x, g, kernel), **tile, exact=_exact(x)
        )
    return _back(made.sum(0))


def _turned(whole: Tensor) -> Tensor:
    """Something shaped like the kernel, as the gradients lie: places first."""
    return whole.permute(2, 3, 0, 1)


def _back(made: Tensor) -> Tensor:
    return made.permute(2, 3, 0, 1)


def _exact(x: Tensor) -> bool:
    return x.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"


def _tiles(kernel: Kernel, x: Tensor) -> tuple[dict[str, int], int]:
    """The tile that one program makes, and how many there are for a unit."""
    p, c, kh, kw = kernel.size
    tall, wide = (min(128, max(16, triton.next_power_of_2(size))) for size in (p, c))
    tile = {"tall": tall, "wide": wide, "deep": 64 if x.element_size() == 2 else 32}
    return {**tile, "num_warps": 8 if tall * wide > 64 * 64 else 4}, -(-p // tall) * -(-c // wide) * kh * kw


def _shape(x: Tensor, g: Tensor, kernel: Kernel) -> tuple[int, ...]:
    p, c, kh, kw = kernel.size
    return (p, c, *x.shape[2:], *g.shape[2:], kh, kw, *kernel.stride, *kernel.padding, *kernel.dilation)


@triton.jit
def _met(
    acc, x, g, unit, place, p, c, rows, filters, channels, high, wide_image, out_high, out_wide, kernel_wide, stride_high,
    stride_wide, pad_high, pad_wide, hole_high, hole_wide, deep: tl.constexpr, exact: tl.constexpr,
):  # fmt: skip
    """`acc` plus the sum over the rows and positions of a unit of output gradients times the input at this place."""
    down = place // kernel_wide * hole_high - pad_high
    right = place % kernel_wide * hole_wide - pad_wide
    positions, pixels = out_high * out_wide, high * wide_image
    for row in range(rows):
        example = unit * rows + row
        given = g + example * filters * positions + p[:, None] * positions
        seen = x + example * channels * pixels + c[:, None] * pixels
        for start in range(0, positions, deep):
            k = start + tl.arange(0, deep)
            line = k // out_wide
            h = line * stride_high + down
            w = (k - line * out_wide) * stride_wide + right
            there = (k < positions) & (h >= 0) & (h < high) & (w >= 0) & (w < wide_image)
            a = tl.load(given + k[None, :], mask=(p[:, None] < filters) & (k[None, :] < positions), other=0.0)
            b = tl.load(seen + (h * wide_image + w)[None, :], mask=(c[:, None] < channels) & there[None, :], other=0.0)
            if exact:
                acc = tl.dot(a, tl.trans(b), acc, input_precision="ieee")
            else:
                acc = tl.dot(a, tl.trans(b), acc)
    return acc


@triton.jit
def _norms(
    x, g, made, squares, rows, filters, channels, high, wide_image, out_high, out_wide, kernel_high, kernel_wide,
    stride_high, stride_wide, pad_high, pad_wide, hole_high, hole_wide, tall: tl.constexpr, wide: tl.constexpr,
    deep: tl.constexpr, keep: tl.constexpr, exact: tl.constexpr,
):  # fmt: skip
    places, across = kernel_high * kernel_wide, tl.cdiv(channels, wide)
    grid = tl.cdiv(filters, tall) * across * places
    unit, rest = (tl.program_id(0) // grid).to(tl.int64), tl.program_id(0) % grid
    place, tile = rest % places, rest // places
    p, c = tile // across * tall + tl.arange(0, tall), tile % across * wide + tl.arange(0, wide)
    acc = _met(
        tl.zeros([tall, wide], tl.float32), x, g, unit, place, p, c, rows, filters, channels, high, wide_image, out_high,
        out_wide, kernel_wide, stride_high, stride_wide, pad_high, pad_wide, hole_high, hole_wide, deep, exact,
    )  # fmt: skip
    if keep:
        narrow = acc.to(made.dtype.element_ty)
        at = made + ((unit * places + place) * filters + p[:, None]) * channels + c[None, :]
        tl.store(at, narrow, mask=(p[:, None] < filters) & (c[None, :] < channels))
        acc = narrow.to(tl.float32)  # the norm is that of what is added up
    tl.store(squares + tl.program_id(0), tl.sum(tl.sum(acc * acc, 1), 0))


@triton.jit
def _sums(
    x, g, made, factors, units, each, rows, filters, channels, high, wide_image, out_high, out_wide, kernel_high,
    kernel_wide, stride_high, stride_wide, pad_high, pad_wide, hole_high, hole_wide, tall: tl.constexpr,
    wide: tl.constexpr, deep: tl.constexpr, exact: tl.constexpr,
):  # fmt: skip
    places, across = kernel_high * kernel_wide, tl.cdiv(channels, wide)
    grid = tl.cdiv(filters, tall) * across * places
    part, rest = (tl.program_id(0) // grid).to(tl.int64), tl.program_id(0) % grid
    place, tile = rest % places, rest // places
    p, c = tile // across * tall + tl.arange(0, tall), tile % across * wide + tl.arange(0, wide)
    total = tl.zeros([tall, wide], tl.float32)
    for unit in range(part * each, tl.minimum((part + 1) * each, units)):
        acc = _met(
            tl.zeros([tall, wide], tl.float32), x, g, unit, place, p, c, rows, filters, channels, high, wide_image, out_high,
            out_wide, kernel_wide, stride_high, stride_wide, pad_high, pad_wide, hole_high, hole_wide, deep, exact,
        )  # fmt: skip
        total += acc * tl.load(factors + unit)
    at = made + ((part * places + place) * filters + p[:, None]) * channels + c[None, :]
    tl.store(at, total, mask=(p[:, None] < filters) & (c[None, :] < channels))
