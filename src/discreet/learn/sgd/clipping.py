"""How a unit's gradient is made short enough: never longer, altogether, than the clip norm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from discreet.core import check
from discreet.errors import InvalidValue

# Norms are sums of rounded products; this much longer is what rounding may have hidden, and it is clipped away.
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
        """What a run clips with: the value itself, unless its norm moves while the run goes on."""
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
    """Every gradient is scaled to almost `norm`, short ones too (Bu et al. 2023): one number less to choose."""

    kind = "Automatic"
    steady = 0.01

    def factors(self, squared: Tensor) -> Tensor:
        return self.norm / ((1 + SLACK) * squared.sqrt() + self.steady)


class FixedPoint(Flat):
    """Flat clipping in whole numbers, with exact noise: a claim that survives floating point (see fixed_point.py).

    Units are computed one by one, at the price of a backward pass for each of them.
    """


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
