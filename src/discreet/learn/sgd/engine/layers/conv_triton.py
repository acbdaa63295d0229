"""Per-unit gradients of a kernel on a GPU in one pass: patches are read in place and never copied.

For every unit, every position in the kernel and every tile of output and input channels, one program multiplies the output
gradients with the shifted input, over all positions of all rows of the unit, in float32. Three adjacent kernel positions share
one program, which reads the output gradients once. Usually only the sum of squares is needed; the gradients themselves are
written only on request. Images may have channels first or last (last is faster).
"""

# mypy: ignore-errors
# (what @triton.jit holds is a language of its own, and Triton is not among what is installed for checking)

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from discreet.learn.layers_triton import flat
from discreet.learn.sgd.engine.layers.patches import Block, Kernel

PROGRAMS = 1056  # that a sum over all units is divided among, about: some for every processor


def gradients(x: Tensor, g: Tensor, kernel: Kernel, rows: int, keep: bool) -> tuple[Tensor, list[Block]]:
    """Squared norms [units] of the kernel's gradients, and with `keep` these, in the type of x."""
    norms, blocks = measured(x, g, kernel, rows, keep)
    return norms.flatten(1).sum(1), blocks


def measured(
    x: Tensor, g: Tensor, kernel: Kernel, rows: int, keep: bool, along: Tensor | None = None
) -> tuple[Tensor, list[Block]]:
    """Statistics of each output channel's gradient, [units, statistics, p]; with `keep` also the gradients, in x's type.

    They are the sum of its squares and, where `along` (of the kernel's shape) is given, its sum and its inner product with it.
    """
    x, g = flat(x), flat(g)
    (p, c, kh, kw), units = kernel.size, x.shape[0] // rows
    tile = _tile(kernel, x, together=kw == 3 and x.element_size() == 2)
    grid = (-(-p // tile["tall"]), -(-c // tile["wide"]) * (kh * kw // tile["together"]))
    sums = torch.empty(units, 1 if along is None else 3, grid[1], p, device=x.device)
    gradients = x.new_empty(units if keep else 0, kh, kw, p, c)
    other = sums if along is None else _turned(along).float().contiguous()
    with torch.cuda.device_of(x):
        _measure[(units * grid[0] * grid[1],)](
            x, g, gradients, sums, other, rows, *_shape(x, g, kernel), **tile, **_places(g), keep=keep, whole=along is not None
        )
    return sums.sum(2), [Block(gradients, _turned)] if keep else []


def summed(x: Tensor, g: Tensor, factors: Tensor, kernel: Kernel, rows: int) -> Tensor:
    """The sum of the kernel's gradients, each unit times its factor, in float32."""
    x, g = flat(x), flat(g)
    (p, c, kh, kw), units = kernel.size, x.shape[0] // rows
    tile = _tile(kernel, x, together=False)
    grid = -(-p // tile["tall"]) * -(-c // tile["wide"]) * kh * kw
    share = max(1, -(-units // max(1, PROGRAMS // grid)))  # units of one program
    parts = -(-units // share)
    partial = torch.empty(parts, kh, kw, p, c, device=x.device)
    with torch.cuda.device_of(x):
        _sums[(parts * grid,)](
            x, g, partial, factors.float().contiguous(), units, share, rows, *_shape(x, g, kernel), **tile, **_places(g)
        )
    return partial.sum(0).permute(2, 3, 0, 1)


def _turned(whole: Tensor) -> Tensor:
    """Something shaped like the kernel, as the gradients lie: places first."""
    return whole.permute(2, 3, 0, 1)


def _tile(kernel: Kernel, x: Tensor, together: bool) -> dict[str, int]:
    """What one program makes: tall x wide numbers at `together` places, `deep` positions at a time."""
    tall, wide = (min(128, max(16, triton.next_power_of_2(size))) for size in kernel.size[:2])
    wide = min(64, wide) if together else wide
    exact = x.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"
    tile = {"tall": tall, "wide": wide, "deep": 64 if x.element_size() == 2 else 32, "together": 3 if together else 1}
    return {**tile, "exact": exact, "num_warps": 8 if tall * wide > 64 * 64 else 4}


def _places(g: Tensor) -> dict[str, int]:
    return {"positions": g.shape[2] * g.shape[3], "out_wide": g.shape[3]}


def _shape(x: Tensor, g: Tensor, kernel: Kernel) -> tuple[int, ...]:
    p, c, kh, kw = kernel.size
    strides = (*x.stride(), *g.stride()[:2], g.stride(3 if g.shape[3] > 1 else 2))
    return (*strides, p, c, *x.shape[2:], kh, kw, *kernel.stride, *kernel.padding, *kernel.dilation)


@triton.jit
def _met(
    x, g, unit, place, p, c, rows, x_example, x_channel, x_line, x_column, g_example, g_filter, g_position, filters,
    channels, high, wide_image, kernel_wide, stride_high, stride_wide, pad_high, pad_wide, hole_high, hole_wide,
    positions: tl.constexpr, out_wide: tl.constexpr, tall: tl.constexpr, wide: tl.constexpr, deep: tl.constexpr,
    together: tl.constexpr, exact: tl.constexpr,
):  # fmt: skip
    """Sums over the rows and positions of a unit of output gradients times the input, at this place and the two after it."""
    down = place // kernel_wide * hole_high - pad_high
    right = place % kernel_wide * hole_wide - pad_wide
    g_start = g + unit * rows * g_example + p[None, :] * g_filter
    x_start = x + unit * rows * x_example + c[None, :] * x_channel
    precision: tl.constexpr = "ieee" if exact else "tf32"
    first, second, third = (tl.zeros([tall, wide], tl.float32),) * 3
    for start in range(0, rows * positions, deep):
        k = start + tl.arange(0, deep)
        row, position = k // positions, k % positions
        h, w = position // out_wide * stride_high + down, position % out_wide * stride_wide + right
        line = (k < rows * positions) & (h >= 0) & (h < high)
        at = x_start + (row * x_example + h * x_line)[:, None]
        met = (k < rows * positions)[:, None] & (p[None, :] < filters)
        a = tl.trans(tl.load(g_start + (row * g_example + position * g_position)[:, None], mask=met, other=0.0))
        inside = (line & (w >= 0) & (w < wide_image))[:, None] & (c[None, :] < channels)
        first = tl.dot(a, tl.load(at + (w * x_column)[:, None], mask=inside, other=0.0), first, input_precision=precision)
        if together == 3:
            w += hole_wide
            inside = (line & (w >= 0) & (w < wide_image))[:, None] & (c[None, :] < channels)
            second = tl.dot(a, tl.load(at + (w * x_column)[:, None], mask=inside, other=0.0), second, input_precision=precision)
            w += hole_wide
            inside = (line & (w >= 0) & (w < wide_image))[:, None] & (c[None, :] < channels)
            third = tl.dot(a, tl.load(at + (w * x_column)[:, None], mask=inside, other=0.0), third, input_precision=precision)
    return first, second, third


@triton.jit
def _store(acc, out, at, inside, keep: tl.constexpr):
    """Gradients as they are added up later: written down in the type of `made`, where they are kept."""
    if keep:
        acc = acc.to(out.dtype.element_ty)
        tl.store(out + at, acc, mask=inside)
    return acc.to(tl.float32)


@triton.jit
def _measure(
    x, g, gradients, sums_out, along, rows, x_example, x_channel, x_line, x_column, g_example, g_filter, g_position, filters,
    channels, high, wide_image, kernel_high, kernel_wide, stride_high, stride_wide, pad_high, pad_wide, hole_high, hole_wide,
    positions: tl.constexpr, out_wide: tl.constexpr, tall: tl.constexpr, wide: tl.constexpr, deep: tl.constexpr,
    together: tl.constexpr, exact: tl.constexpr, keep: tl.constexpr, whole: tl.constexpr,
):  # fmt: skip
    spots, across = kernel_high * kernel_wide // together, tl.cdiv(channels, wide)
    parts = spots * across
    grid = tl.cdiv(filters, tall) * parts
    unit, rest = (tl.program_id(0) // grid).to(tl.int64), tl.program_id(0) % grid
    part, place = rest % parts, rest % spots * together
    p, c = rest // parts * tall + tl.arange(0, tall), part // spots * wide + tl.arange(0, wide)
    first, second, third = _met(
        x, g, unit, place, p, c, rows, x_example, x_channel, x_line, x_column, g_example, g_filter, g_position, filters,
        channels, high, wide_image, kernel_wide, stride_high, stride_wide, pad_high, pad_wide, hole_high, hole_wide,
        positions, out_wide, tall, wide, deep, together, exact,
    )  # fmt: skip
    inside, step = (p[:, None] < filters) & (c[None, :] < channels), filters * channels
    spot = (place * filters + p[:, None]) * channels + c[None, :]
    mine = gradients + unit * kernel_high * kernel_wide * step
    first = _store(first, mine, spot, inside, keep)  # norms are those of what is added up
    squares = tl.sum(first * first, 1)
    if together == 3:
        second, third = _store(second, mine, spot + step, inside, keep), _store(third, mine, spot + 2 * step, inside, keep)
        squares += tl.sum(second * second, 1) + tl.sum(third * third, 1)
    into, stride = sums_out + (unit * (3 if whole else 1) * parts + part) * filters + p, parts * filters
    tl.store(into, squares, mask=p < filters)
    if whole:
        sums, dots = tl.sum(first, 1), tl.sum(first * tl.load(along + spot, mask=inside, other=0.0), 1)
        if together == 3:
            sums += tl.sum(second, 1) + tl.sum(third, 1)
            dots += tl.sum(second * tl.load(along + spot + step, mask=inside, other=0.0), 1)
            dots += tl.sum(third * tl.load(along + spot + 2 * step, mask=inside, other=0.0), 1)
        tl.store(into + stride, sums, mask=p < filters)
        tl.store(into + 2 * stride, dots, mask=p < filters)


@triton.jit
def _sums(
    x, g, total_out, factors, units, share, rows, x_example, x_channel, x_line, x_column, g_example, g_filter, g_position,
    filters, channels, high, wide_image, kernel_high, kernel_wide, stride_high, stride_wide, pad_high, pad_wide, hole_high,
    hole_wide, positions: tl.constexpr, out_wide: tl.constexpr, tall: tl.constexpr, wide: tl.constexpr, deep: tl.constexpr,
    together: tl.constexpr, exact: tl.constexpr,
):  # fmt: skip
    places, across = kernel_high * kernel_wide, tl.cdiv(channels, wide)
    grid = tl.cdiv(filters, tall) * across * places
    part, rest = (tl.program_id(0) // grid).to(tl.int64), tl.program_id(0) % grid
    place, tile = rest % places, rest // places
    p, c = tile // across * tall + tl.arange(0, tall), tile % across * wide + tl.arange(0, wide)
    total = tl.zeros([tall, wide], tl.float32)
    for unit in range(part * share, tl.minimum((part + 1) * share, units)):
        product, _, _ = _met(
            x, g, unit, place, p, c, rows, x_example, x_channel, x_line, x_column, g_example, g_filter, g_position, filters,
            channels, high, wide_image, kernel_wide, stride_high, stride_wide, pad_high, pad_wide, hole_high, hole_wide,
            positions, out_wide, tall, wide, deep, together, exact,
        )  # fmt: skip
        total += product * tl.load(factors + unit)
    at = total_out + ((part * places + place) * filters + p[:, None]) * channels + c[None, :]
    tl.store(at, total, mask=(p[:, None] < filters) & (c[None, :] < channels))
