"""What a client computes, and what the server makes of it.

FedSGD and FedAvg are McMahan et al. 2017, `proximal` Li et al. 2020 (FedProx), the server's momentum Hsu, Qi and Brown 2019,
its Adam Reddi et al. 2021, selective sharing Shokri and Shmatikov 2015.
"""

from __future__ import annotations

import math
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
    """The server descends with momentum over rounds."""

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
    """The server takes Adam's steps over rounds, without bias correction; `floor` is added to the denominator."""

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
    weighting: str | None = None  # "rows" or "equal": what a client counts as in the mean; "rows" unless the run is private

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
    weighting: str | None = None

    def __post_init__(self) -> None:
        self.local()
        _check(self.server, self.weighting)

    def local(self) -> LocalSGD:
        return LocalSGD(self.learning_rate, self.epochs, self.batch_size, self.momentum, self.proximal)


@dataclass(frozen=True, kw_only=True)
class Selective:
    """Clients keep a model of their own, take over part of the server's, and share part of what they learned.

    A client downloads the share `download` of the server's parameters that changed most often, trains for some epochs, and
    uploads the share `upload` of its changes: the largest, or with a `threshold` a random choice among those that are at least
    as large. The server adds the mean; `server=Descent(number of clients)` adds the sum, as the paper does. Client models take
    memory for every client that ever took part.
    """

    learning_rate: float
    upload: float
    download: float = 1.0
    threshold: float | None = None
    epochs: int = 1
    batch_size: int | None = 32
    server: Descent = field(default_factory=Descent)
    weighting: str | None = "equal"

    def __post_init__(self) -> None:
        self.local()
        for name in ("upload", "download"):
            if not check.fraction(name, getattr(self, name)):
                raise InvalidValue(f"{name} must be above 0: the share of the parameters that are shared; got 0.")
        if self.threshold is not None:
            check.positive("threshold", self.threshold)
        _check(self.server, self.weighting)

    def local(self) -> LocalSGD:
        return LocalSGD(self.learning_rate, self.epochs, self.batch_size)

    def taken_over(self, own: Tensor, sent: Tensor, changes: Tensor) -> Tensor:
        """A client's model with the parameters that it downloads; `changes` counts how often the server changed each.

        >>> Selective(learning_rate=1, upload=1, download=0.5).taken_over(
        ...     torch.zeros(4), torch.ones(4), torch.tensor([0, 3, 1, 0]))
        tensor([0., 1., 1., 0.])
        """
        if self.download == 1:
            return sent.clone()
        places = changes.topk(math.ceil(self.download * len(changes))).indices
        return own.clone().index_copy_(0, places, sent[places])

    def shared(self, update: Tensor, draw: torch.Generator) -> Tensor:
        """The changes that a client uploads, 0 elsewhere.

        >>> Selective(learning_rate=1, upload=0.5).shared(torch.tensor([1.0, -3.0, 0.5, 2.0]), torch.Generator())
        tensor([ 0., -3.,  0.,  2.])
        """
        most = math.ceil(self.upload * len(update))
        if self.threshold is None:
            places = update.abs().topk(most).indices
        else:
            above = (update.abs() >= self.threshold).nonzero().flatten()
            places = above[torch.randperm(len(above), generator=draw)[:most].to(above.device)]
        return torch.zeros_like(update).index_copy_(0, places, update[places])


Strategy = FedSGD | FedAvg | Selective


def _check(server: object, weighting: str | None) -> None:
    if weighting is not None:
        check.word("weighting", weighting, WEIGHTINGS)
    if not isinstance(server, Descent):
        raise InvalidValue(f"server must be Descent(), Momentum() or Adam(); got {check.shown(server)}.")
