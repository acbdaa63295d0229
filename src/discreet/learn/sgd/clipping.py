"""Clipping: a unit's whole gradient is never longer than the clip norm."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from discreet.core import check
from discreet.core.event import MOST_SIZES
from discreet.errors import InvalidValue

# Norms are sums of rounded products, so the true norm may be larger by this factor; clipping allows for it.
SLACK = 1e-4

# Squared norms are float32: the squares of gradients far shorter than this would be 0, and would seem short enough.
LEAST = 1e-15

# What a clipped gradient may gain on top where its factors are narrow. Norms and sums are added up in float32 whatever the
# type; but the clip factor is rounded to it, and so is every output gradient times that factor: two roundings of half a step.
NARROW = {torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}
TF32 = 2.0**-9  # both factors of a product lose all but 10 bits, by rounding or by cutting off


def slack(x: Tensor) -> float:
    """How much longer than its norm a gradient computed from tensors like this may come out, beyond SLACK.

    >>> slack(torch.zeros(2)), slack(torch.zeros(2, dtype=torch.bfloat16))
    (0.0, 0.0078125)
    """
    if x.dtype == torch.float32 and x.is_cuda:
        exact = torch.get_float32_matmul_precision() == "highest" and not torch.backends.cudnn.allow_tf32
        return 0.0 if exact else TF32
    return NARROW.get(x.dtype, 0.0)


class Clipping(Protocol):
    """`groups` says which records are clipped together, `factors` by how much: [groups, units] from squared norms."""

    @property
    def norm(self) -> float: ...
    @property
    def kind(self) -> str: ...
    def groups(self, records: Sequence[Any]) -> list[list[Any]]: ...
    def factors(self, squared: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Flat:
    """The whole gradient of a unit is shortened to `norm` where it is longer (Abadi et al. 2016)."""

    norm: float
    kind: ClassVar[str] = "Flat"  # how checkpoints name it

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", clip_norm(self.norm))

    def groups(self, records: Sequence[Any]) -> list[list[Any]]:
        return [list(records)]

    def factors(self, squared: Tensor) -> Tensor:
        return squared.rsqrt().mul_(self.norm / (1 + SLACK)).clamp_(max=1.0)

    def begin(self) -> Clipping:
        """The clipping of one run: the value itself, unless its norm adapts during the run."""
        return self


class PerLayer(Flat):
    """Every layer on its own, each to an equal share of `norm`, so that all together stay within it."""

    kind = "PerLayer"

    def groups(self, records: Sequence[Any]) -> list[list[Any]]:
        return [[record] for record in records]

    def factors(self, squared: Tensor) -> Tensor:
        share = self.norm / squared.shape[0] ** 0.5
        return squared.rsqrt().mul_(share / (1 + SLACK)).clamp_(max=1.0)


class Automatic(Flat):
    """Every gradient is scaled to almost `norm`, short ones too (Bu et al. 2023), which removes a hyperparameter."""

    kind = "Automatic"
    steady = 0.01

    def factors(self, squared: Tensor) -> Tensor:
        return self.norm / ((1 + SLACK) * squared.sqrt() + self.steady)


class FixedPoint(Flat):
    """Flat clipping in whole numbers, with exact noise: a claim that survives floating point (see fixed_point.py).

    Units are computed one by one, at the price of a backward pass for each of them.
    """


class Encoded(Flat):
    """A unit's gradient is replaced by the nearest word of a code before the noise (Nasr, Shokri & Houmansadr 2020).

    The words are one sample of a Gaussian, the middles of `levels` parts of its distribution that are equally likely, in every
    order and with every sign: the nearest word has its largest numbers where the gradient has (Slepian 1965). A word is `norm`
    long, and shorter where the gradient was. Numbers that are 0 stay 0.
    """

    kind = "Encoded"
    levels: int

    def __init__(self, norm: float, levels: int = 8) -> None:
        super().__init__(norm)
        object.__setattr__(self, "levels", check.whole("levels", levels, most=MOST_SIZES))

    def word(self, size: int) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """The sizes of the numbers of a word of length 1, largest first, and how many there are of each.

        >>> sizes, counts = Encoded(1.0, levels=2).word(4)
        >>> [round(size, 3) for size in sizes], counts
        ([0.681, 0.189], (2, 2))
        """
        levels = min(self.levels, size)
        counts = [(level + 1) * size // levels - level * size // levels for level in range(levels)]
        middles = (torch.arange(levels, dtype=torch.float64) + 0.5) / levels
        letters = (math.sqrt(2.0) * torch.erfinv(middles)).flip(0)
        length = (letters.square() * torch.tensor(counts)).sum().sqrt()
        return tuple((letters / length).tolist()), tuple(counts)

    def encode(self, gradients: Tensor) -> Tensor:
        """The word for each unit, of gradients [units, numbers]: zeros where one is not finite. Each row is looked at alone."""
        sizes, counts = self.word(gradients.shape[1])
        magnitudes = gradients.abs()
        lengths = torch.linalg.vector_norm(magnitudes, dim=1, dtype=torch.float64)
        good = torch.isfinite(lengths) & (lengths > 0)
        ranked = ascending(magnitudes)
        first, letters = 0, list(reversed(sizes))
        word = torch.full_like(magnitudes, letters[0])
        for step, count in zip((b - a for a, b in itertools.pairwise(letters)), reversed(counts)):
            first += count
            word.add_(magnitudes > ranked[:, first - 1 : first], alpha=step)  # of equal numbers none is raised
        scale = torch.where(good, self.norm / (1 + SLACK) * (lengths / self.norm).clamp(max=1.0), 0.0).to(gradients.dtype)
        return word.mul_(torch.where(good[:, None], gradients, 0.0).sign()).mul_(scale[:, None])


def ascending(rows: Tensor) -> Tensor:
    """Rows in order; numpy's sort is several times faster than torch's on a CPU."""
    if rows.is_cuda:
        return rows.sort(dim=1).values
    return torch.from_numpy(np.sort(rows.numpy(), axis=1))


CLIPPINGS = {"flat": Flat, "per_layer": PerLayer, "automatic": Automatic}  # by their names in configuration files


def clip_norm(norm: float) -> float:
    """A clip norm whose square float32 can hold."""
    norm = check.positive("clip_norm", norm)
    if norm < LEAST:
        raise InvalidValue(
            f"clip_norm must be at least {LEAST:g}, since squares of shorter gradients vanish in float32; got {norm:g}. "
            "Multiply the loss by a constant, and clip_norm by the same."
        )
    return norm
