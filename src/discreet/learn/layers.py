"""Layers for networks that are trained privately, where BatchNorm cannot be used."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["StandardizedConv2d"]

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
        """The kernel with mean 0, what makes its length 1, and where that is not held back by SMALLEST; per output channel."""
        spread, mean = torch.var_mean(self.weight, (1, 2, 3), correction=0, keepdim=True)
        size = spread.flatten() * self.weight[0].numel()
        return self.weight - mean, size.clamp_min(SMALLEST).rsqrt(), size > SMALLEST

    def standardized(self) -> Tensor:
        """The kernel that is used."""
        centred, scale, _ = self.centred()
        return centred * (scale * self.gain)[:, None, None, None]

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.standardized(), self.bias)
