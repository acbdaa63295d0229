"""How a unit's gradient is made short enough: never longer, altogether, than the clip norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from discreet.core import check

# Norms are sums of rounded products; this much longer is what rounding may have hidden, and it is clipped away.
SLACK = 1e-4


class Clipping(Protocol):
    """`groups` says which records are clipped together, `factors` by how much: [groups, units] from squared norms."""

    norm: float

    def groups(self, records: Sequence[Any]) -> list[list[Any]]: ...
    def factors(self, squared: Tensor) -> Tensor: ...


class Flat:
    """The whole gradient of a unit is shortened to `norm` where it is longer (Abadi et al. 2016)."""

    def __init__(self, norm: float) -> None:
        self.norm = check.positive("clip_norm", norm)

    def groups(self, records: Sequence[Any]) -> list[list[Any]]:
        return [list(records)]

    def factors(self, squared: Tensor) -> Tensor:
        return torch.clamp(self.norm / ((1 + SLACK) * squared.sqrt()), max=1.0)


class PerLayer(Flat):
    """Every layer on its own, each to an equal share of `norm`, so that all together stay within it."""

    def groups(self, records: Sequence[Any]) -> list[list[Any]]:
        return [[record] for record in records]

    def factors(self, squared: Tensor) -> Tensor:
        share = self.norm / squared.shape[0] ** 0.5
        return torch.clamp(share / ((1 + SLACK) * squared.sqrt()), max=1.0)


class Automatic(Flat):
    """Every gradient is scaled to almost `norm`, short ones too (Bu et al. 2023): one number less to choose."""

    steady = 0.01

    def factors(self, squared: Tensor) -> Tensor:
        return self.norm / ((1 + SLACK) * squared.sqrt() + self.steady)


CLIPPINGS = {"flat": Flat, "per_layer": PerLayer, "automatic": Automatic}
