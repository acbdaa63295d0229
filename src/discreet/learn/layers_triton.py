"""Kernels for a GPU: ReLU and GroupNorm, and the shift of every channel, each reading its images once.

For a norm, one program holds all positions of some channels (whole groups) of one image in registers, in float32, so statistics
are computed in two passes and not as differences of large sums. Images may have channels first or last.
"""

# mypy: ignore-errors
# (what @triton.jit holds is a language of its own, and Triton is not among what is installed for checking)

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST = 1 << 15  # numbers that one program holds at most
BLOCK = 1 << 12  # numbers that one program shifts
SOME = 1 << 13  # that it holds if channels can be divided so, and sixteen of them still lie side by side


def tile(x: Tensor, groups: int) -> int:
    """Channels of one program, or 0 where the kernels are not for this: groups of no power of two, images too large."""
    if x.ndim != 4:
        return 0
    channels, positions = x.shape[1], triton.next_power_of_2(x.shape[2] * x.shape[3])
    size = channels // groups
    if size & (size - 1) or positions * size > MOST:
        return 0
    while channels % (2 * size) == 0 and (2 * size <= 16 or 2 * size * positions <= SOME):
        size *= 2
    return size if size * positions <= MOST else channels // groups


def forward(x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """The normalised images, laid out as x is, and the mean and 1 / deviation of every group, [examples, groups]."""
    y, mean = torch.empty_like(x), torch.empty(len(x), groups, device=x.device)
    sharpness = torch.empty_like(mean)
    grid, shape = _launch(x, groups)
    with torch.cuda.device_of(x):
        _forward[grid](x, y, weight, bias, mean, sharpness, *_strides(x), *_strides(y), eps, **shape)
    return y, mean, sharpness


def backward(g: Tensor, x: Tensor, weight: Tensor, mean: Tensor, sharpness: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the input, and of scale and shift for every example, [examples, channels], in float32."""
    g = flat(g)
    back, scale = torch.empty_like(x), torch.empty(x.shape[:2], device=x.device)
    shift = torch.empty_like(scale)
    grid, shape = _launch(x, mean.shape[1])
    with torch.cuda.device_of(x):
        _backward[grid](
            g, x, back, weight, mean, sharpness, scale, shift, *_strides(g), *_strides(x), *_strides(back), **shape
        )  # fmt: skip
    return back, scale, shift


def shifted(y: Tensor, bias: Tensor) -> Tensor:
    """y plus a number for each channel, in place; where channels lie last torch would add them one by one."""
    if not y.is_contiguous(memory_format=torch.channels_last):
        return y.add_(bias[:, None, None])
    with torch.cuda.device_of(y):
        _shift[(triton.cdiv(y.numel(), BLOCK),)](y, bias, y.numel(), channels=y.shape[1], block=BLOCK, num_warps=8)
    return y


def flat(x: Tensor) -> Tensor:
    """The images, if their positions lie at equal distances; else a copy with channels last."""
    even = x.stride(2) == x.shape[3] * x.stride(3) or 1 in x.shape[2:]
    return x if even else x.contiguous(memory_format=torch.channels_last)


def _strides(x: Tensor) -> tuple[int, int, int]:
    return x.stride(0), x.stride(1), x.stride(3 if x.shape[3] > 1 else 2)


def _launch(x: Tensor, groups: int) -> tuple[tuple[int], dict[str, int]]:
    channels, across = x.shape[1], tile(x, groups)
    positions = x.shape[2] * x.shape[3]
    deep = triton.next_power_of_2(positions)
    warps = min(16, max(4, deep * across // 1024))
    shape = {"channels": channels, "positions": positions, "size": channels // groups, "across": across, "deep": deep}
    return (len(x) * (channels // across),), {**shape, "num_warps": warps}


@triton.jit
def _place(channels: tl.constexpr, across: tl.constexpr, deep: tl.constexpr):
    """The example, the channels and the positions of this program."""
    parts: tl.constexpr = channels // across
    example, part = (tl.program_id(0) // parts).to(tl.int64), tl.program_id(0) % parts
    return example, part * across + tl.arange(0, across), tl.arange(0, deep)


@triton.jit
def _at(images, example, c, k, of_example, of_channel, of_position):
    """Where they lie, [positions, channels]."""
    return images + example * of_example + c[None, :] * of_channel + k[:, None] * of_position


@triton.jit
def _shared(of_channels, size: tl.constexpr, across: tl.constexpr):
    """Numbers of channels added up over their group, for every channel of it."""
    groups: tl.constexpr = across // size
    total = tl.sum(tl.reshape(of_channels, [groups, size]), 1)
    return tl.reshape(tl.broadcast_to(total[:, None], [groups, size]), [across])


@triton.jit
def _forward(
    x, y, weight, bias, mean, sharpness, x_example, x_channel, x_position, y_example, y_channel, y_position, eps,
    channels: tl.constexpr, positions: tl.constexpr, size: tl.constexpr, across: tl.constexpr, deep: tl.constexpr,
):  # fmt: skip
    example, c, k = _place(channels, across, deep)
    inside = (k < positions)[:, None]
    values = tl.load(_at(x, example, c, k, x_example, x_channel, x_position), mask=inside, other=0.0)
    values = tl.maximum(values.to(tl.float32), 0.0, propagate_nan=tl.PropagateNan.ALL)
    middle = _shared(tl.sum(values, 0), size, across) / (size * positions)
    away = tl.where(inside, values - middle[None, :], 0.0)
    sharp = 1.0 / tl.sqrt(_shared(tl.sum(away * away, 0), size, across) / (size * positions) + eps)
    scale = tl.load(weight + c).to(tl.float32) * sharp
    result = away * scale[None, :] + tl.load(bias + c).to(tl.float32)[None, :]
    at = _at(y, example, c, k, y_example, y_channel, y_position)
    tl.store(at, result.to(y.dtype.element_ty), mask=inside)
    first, group = c % size == 0, example * (channels // size) + c // size
    tl.store(mean + group, middle, mask=first)
    tl.store(sharpness + group, sharp, mask=first)


@triton.jit
def _backward(
    g, x, back, weight, mean, sharpness, scale, shift, g_example, g_channel, g_position, x_example, x_channel, x_position,
    back_example, back_channel, back_position, channels: tl.constexpr, positions: tl.constexpr, size: tl.constexpr,
    across: tl.constexpr, deep: tl.constexpr,
):  # fmt: skip
    example, c, k = _place(channels, across, deep)
    inside = (k < positions)[:, None]
    gradient = tl.load(_at(g, example, c, k, g_example, g_channel, g_position), mask=inside, other=0.0)
    values = tl.load(_at(x, example, c, k, x_example, x_channel, x_position), mask=inside, other=0.0)
    gradient, values = gradient.to(tl.float32), values.to(tl.float32)
    group = example * (channels // size) + c // size
    middle, sharp = tl.load(mean + group), tl.load(sharpness + group)
    plain = (tl.maximum(values, 0.0, propagate_nan=tl.PropagateNan.ALL) - middle[None, :]) * sharp[None, :]
    of_scale, of_shift = tl.sum(gradient * plain, 0), tl.sum(gradient, 0)
    tl.store(scale + example * channels + c, of_scale)
    tl.store(shift + example * channels + c, of_shift)
    factor = tl.load(weight + c).to(tl.float32)
    along = _shared(factor * of_scale, size, across) / (size * positions)
    level = _shared(factor * of_shift, size, across) / (size * positions)
    result = sharp[None, :] * (gradient * factor[None, :] - level[None, :] - plain * along[None, :])
    result = tl.where(values <= 0.0, 0.0, result)
    at = _at(back, example, c, k, back_example, back_channel, back_position)
    tl.store(at, result.to(back.dtype.element_ty), mask=inside)


@triton.jit
def _shift(y, bias, numel, channels: tl.constexpr, block: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    result = tl.load(y + i, mask=i < numel).to(tl.float32) + tl.load(bias + i % channels).to(tl.float32)
    tl.store(y + i, result.to(y.dtype.element_ty), mask=i < numel)
