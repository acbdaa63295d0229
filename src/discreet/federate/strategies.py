"""What a client computes, and what the server makes of it.

FedSGD and FedAvg are McMahan et al. 2017, `proximal` Li et al. 2020 (FedProx), the server's momentum Hsu, Qi and Brown 2019,
its Adam Reddi et al. 2021.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from discreet.core import check
from discreet.errors import InvalidValue
from discreet.federate.local import LocalSGD

Memory = list[Tensor]


@dataclass(frozen=True)
class Descent:
    """The server adds the aggregate, times `learning_rate`, to the weights."""

    learning_rate: float = 1.0

    def __post_init__(self) -> None:
        check.positive("learning_rate", self.learning_rate)

    def memory(self, like: Tensor) -> Memory:
        return []

    def step(self, weights: Tensor, update: Tensor, memory: Memory) -> Tensor:
        return weights + self.learning_rate * update


@dataclass(frozen=True)
class Momentum(Descent):
    """The server goes on in the direction of earlier rounds, of which a share `momentum` is kept."""

    momentum: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        check.small_fraction("momentum", self.momentum)

    def memory(self, like: Tensor) -> Memory:
        return [torch.zeros_like(like)]

    def step(self, weights: Tensor, update: Tensor, memory: Memory) -> Tensor:
        memory[0].mul_(self.momentum).add_(update)
        return weights + self.learning_rate * memory[0]


@dataclass(frozen=True)
class Adam(Descent):
    """The server divides each number's step by how large such steps have been; `floor` keeps small ones small."""

    learning_rate: float = 0.01
    first: float = 0.9
    second: float = 0.99
    floor: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        check.small_fraction("first", self.first)
        check.small_fraction("second", self.second)
        check.positive("floor", self.floor)

    def memory(self, like: Tensor) -> Memory:
        return [torch.zeros_like(like), torch.zeros_like(like)]

    def step(self, weights: Tensor, update: Tensor, memory: Memory) -> Tensor:
        memory[0].mul_(self.first).add_(update, alpha=1 - self.first)
        memory[1].mul_(self.second).addcmul_(update, update, value=1 - self.second)
        return weights + self.learning_rate * memory[0] / (memory[1].sqrt() + self.floor)


WEIGHTINGS = ("rows", "equal")


@dataclass(frozen=True, kw_only=True)
class FedSGD:
    """Every client computes the gradient of its mean loss over all of its rows; the server descends along their mean."""

    learning_rate: float
    server: Descent = field(default_factory=Descent)
    weighting: str = "rows"  # or "equal": what a client counts as in the mean

    def __post_init__(self) -> None:
        check.positive("learning_rate", self.learning_rate)
        _check(self.server, self.weighting)

    def local(self) -> LocalSGD:
        return LocalSGD(self.learning_rate, batch_size=None)


@dataclass(frozen=True, kw_only=True)
class FedAvg:
    """Every client trains on its own rows for some epochs, and answers how its weights changed; the server takes the mean.

    `momentum` is the client's own, and begins anew each round. With `proximal` a client is pulled back to where it started, by
    so much times the distance (FedProx). `batch_size=None` puts all rows of a client into one batch.
    """

    learning_rate: float
    epochs: int = 1
    batch_size: int | None = 32
    momentum: float = 0.0
    proximal: float = 0.0
    server: Descent = field(default_factory=Descent)
    weighting: str = "rows"

    def __post_init__(self) -> None:
        self.local()
        _check(self.server, self.weighting)

    def local(self) -> LocalSGD:
        return LocalSGD(self.learning_rate, self.epochs, self.batch_size, self.momentum, self.proximal)


Strategy = FedSGD | FedAvg


def _check(server: object, weighting: str) -> None:
    check.word("weighting", weighting, WEIGHTINGS)
    if not isinstance(server, Descent):
        raise InvalidValue(f"server must be Descent(), Momentum() or Adam(); got {check.shown(server)}.")
