"""Layers for networks that are trained privately, where BatchNorm cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

__all__ = ["RectifiedGroupNorm", "StandardizedConv2d"]

TYPES = (torch.float32, torch.bfloat16, torch.float16)  # that the kernels of layers_triton.py are for
SMALLEST = 1e-4  # a kernel shorter than the root of this is not made longer


class StandardizedConv2d(nn.Conv2d):
    """A convolution whose kernel has mean 0 and length 1 for every output channel, times a learned gain.

    With GroupNorm it takes the place of BatchNorm in private image models (De et al. 2022, arXiv 2204.13650; scaled weight
    standardisation is from Brock et al. 2021). Takes the arguments of nn.Conv2d; `gain` is one number for each output channel.

    >>> layer = StandardizedConv2d(3, 8, 3, padding=1)
    >>> kernel = layer.standardized().flatten(1)
    >>> bool(kernel.mean(1).abs().max() < 1e-6), bool((kernel.norm(dim=1) - 1).abs().max() < 1e-5)
    (True, True)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.gain = nn.Parameter(torch.ones(self.out_channels, device=self.weight.device, dtype=self.weight.dtype))

    def centred(self) -> tuple[Tensor, Tensor, Tensor]:
        """Per output channel: the kernel with mean 0, the factor to length 1, and whether that is not limited by SMALLEST."""
        spread, mean = torch.var_mean(self.weight, (1, 2, 3), correction=0, keepdim=True)
        size = spread.flatten() * self.weight[0].numel()
        return self.weight - mean, size.clamp_min(SMALLEST).rsqrt(), size > SMALLEST

    def standardized(self) -> Tensor:
        """The kernel that is used."""
        centred, scale, _ = self.centred()
        return centred * (scale * self.gain)[:, None, None, None]

    def forward(self, input: Tensor) -> Tensor:
        if self.bias is None or not shifts(input):
            return self._conv_forward(input, self.standardized(), self.bias)
        result: Tensor = _Shifted.apply(self._conv_forward(input, self.standardized(), None), self.bias)
        return result


Keep = Callable[[Tensor, Tensor], None]  # is given the gradients of scale and shift for every example, [examples, channels]


class RectifiedGroupNorm(nn.GroupNorm):
    """ReLU, then GroupNorm, in this order: what a standardised convolution then reads has mean 0.

    Computed in float32 and returned in the type of its input, under autocast too, where nn.GroupNorm would return float32. On
    a GPU it is one kernel forward and one backward, for images of either layout (channels first or last).

    >>> layer = RectifiedGroupNorm(4, 8)
    >>> x = torch.randn(2, 8, 5, 5)
    >>> torch.allclose(layer(x), nn.functional.group_norm(x.relu(), 4), atol=1e-5)
    True
    """

    def forward(self, input: Tensor) -> Tensor:
        kernels = fused_norm(self, input)
        if kernels is not None:
            return _Rectified.apply(input, self.weight, self.bias, self.num_groups, self.eps, kernels, None)
        weight, bias = (None if p is None else p.to(wide(input)) for p in (self.weight, self.bias))
        return F.group_norm(F.relu(input).to(wide(input)), self.num_groups, weight, bias, self.eps).to(input.dtype)


def wide(x: Tensor) -> torch.dtype:
    """The type in which something like x is normalised."""
    return torch.promote_types(x.dtype, torch.float32)


def fused_norm(module: RectifiedGroupNorm, x: Tensor) -> Any:
    """The kernels for this layer and input, or None where they are not for it."""
    kernels = _kernels(x) if module.affine else None
    return kernels if kernels is not None and kernels.tile(x, module.num_groups) else None


def shifts(x: Tensor) -> bool:
    """Whether `shifted` applies to a convolution's output for this input."""
    return x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last) and _kernels(x) is not None


def shifted(y: Tensor, bias: Tensor) -> Tensor:
    """y plus a number for each channel, in place."""
    result: Tensor = _triton().shifted(y, bias)
    return result


class _Shifted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, bias: Tensor) -> Tensor:
        ctx.mark_dirty(y)
        ctx.kind = bias.dtype
        return shifted(y, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return gradient, gradient.sum((2, 3), dtype=torch.float32).sum(0).to(ctx.kind)


def _kernels(x: Tensor) -> Any:
    """The kernels, on a GPU with Triton and where no other tool records the operations; None elsewhere."""
    followed = torch.compiler.is_compiling() or torch.jit._trace.is_tracing() or torch._C._are_functorch_transforms_active()
    followed = followed or torch._C._len_torch_dispatch_stack() > 0  # a trace without values, say
    return _triton() if not followed and x.is_cuda and x.numel() and x.dtype in TYPES else None


@cache
def _triton() -> Any:
    try:
        from discreet.learn import layers_triton
    except ImportError:
        return None
    return layers_triton


class _Rectified(torch.autograd.Function):
    """The kernels as one operation; with `keep`, scale and shift have a gradient for every example, and none otherwise."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float, kernels: Any, keep: Keep | None
    ) -> Tensor:
        x = kernels.flat(x)
        y, mean, sharpness = kernels.forward(x, weight, bias, groups, eps)
        ctx.kernels, ctx.keep = kernels, keep
        ctx.save_for_backward(x, weight, mean, sharpness)
        result: Tensor = y
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, sharpness = ctx.saved_tensors
        back, scale, shift = ctx.kernels.backward(gradient, x, weight, mean, sharpness)
        if ctx.keep is not None:
            ctx.keep(scale, shift)
            return back, *[None] * 6
        return back, scale.sum(0).to(weight.dtype), shift.sum(0).to(weight.dtype), *[None] * 4


def rectified(x: Tensor, module: RectifiedGroupNorm, kernels: Any, keep: Keep) -> Tensor:
    """The layer, run by its kernels, with a gradient of scale and shift for every example."""
    result: Tensor = _Rectified.apply(x, module.weight, module.bias, module.num_groups, module.eps, kernels, keep)
    return result
