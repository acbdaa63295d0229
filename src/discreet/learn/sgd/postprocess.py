"""Post-processing of noisy gradients and weights, which keeps every claim at no cost.

`Average` averages the weights; `shrink` and `encode` are passed to `train` as `Postprocess(gradient=…)` and see only the noisy
gradient and its public noise, and no row. They are the denoising of Nasr, Shokri & Houmansadr 2020: reduce the weight of
gradients that noise dominates, and quantise their values. Their encoding before the noise is `Encoded` (clipping.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from discreet.core import check
from discreet.errors import InvalidValue

After = Callable[[list[Tensor], float], None]  # the noisy gradient by parameter, and the standard deviation of its noise


class Average:
    """An exponential average of weights along a run; usually better than the last ones, since noise averages out.

    >>> model = nn.Linear(1, 1)
    >>> average = Average(model, decay=0.5)
    >>> for _ in range(3):
    ...     _ = model.weight.data.fill_(8.0)
    ...     average.update()
    >>> average.copy_to(model)
    """

    def __init__(self, model: nn.Module, decay: float = 0.999) -> None:
        self.decay = check.open_fraction("decay", decay)
        self._model = model
        self._averages = [p.detach().clone() for p in model.parameters()]
        self._count = 0

    @torch.no_grad()
    def update(self) -> None:
        """Call after every step. Early on the average is shorter, so that the first weights are soon forgotten."""
        self._count += 1
        decay = min(self.decay, self._count / (9.0 + self._count))
        for average, p in zip(self._averages, self._model.parameters()):
            average.lerp_(p, 1.0 - decay)

    @torch.no_grad()
    def copy_to(self, model: nn.Module) -> None:
        """Put the averaged weights into a model of the same shape."""
        into = list(model.parameters())
        if [p.shape for p in into] != [average.shape for average in self._averages]:
            raise InvalidValue(
                "The average is of a model with other parameters than this one: their number or a shape differs. Give the "
                "model that it was made from, or one built in the same way."
            )
        for average, p in zip(self._averages, into):
            p.copy_(average)


def shrink(gradients: list[Tensor], noise: float) -> None:
    """Scale each parameter's noisy gradient by its share of signal: max(0, 1 - d s^2 / |g|^2), after James & Stein 1961.

    Of a sum of signal and noise of variance s^2 in d directions, d s^2 of the squared length is expected to be noise.

    >>> noisy = [torch.full((100,), 0.1), torch.full((100,), 10.0)]
    >>> shrink(noisy, 1.0)
    >>> [round(float(g[0]), 2) for g in noisy]
    [0.0, 9.9]
    """
    for gradient in gradients:
        whole = float(gradient.square().sum())
        gradient.mul_(max(0.0, 1.0 - gradient.numel() * noise**2 / whole) if whole else 0.0)


def encode(levels: int) -> After:
    """Write every value as the nearest of `levels` values that a Gaussian of the same size would take equally often.

    >>> gradient = torch.linspace(-3, 3, 7)
    >>> encode(2)([gradient], 0.0)
    >>> sorted({round(float(v), 2) for v in gradient})
    [-1.35, 1.35]
    """
    levels = check.whole("levels", levels, least=2, most=1 << 16)
    middles = (torch.arange(levels, dtype=torch.float64) + 0.5) / levels
    letters = (math.sqrt(2.0) * torch.erfinv(2.0 * middles - 1.0)).float()
    between = (letters[1:] + letters[:-1]) / 2

    def after(gradients: list[Tensor], noise: float) -> None:
        for gradient in gradients:
            size = gradient.square().mean().sqrt().clamp_min(1e-30)
            places = torch.bucketize(gradient / size, between.to(gradient.device))
            gradient.copy_(letters.to(gradient.device)[places] * size)

    return after
