"""Malicious clients: what they train on, and what they send.

Two kinds, after what they change. `flip_labels` and `backdoor` give clients other rows: `simulate(model, flip_labels(clients,
…))`. `Scaled`, `InnerProduct` and `FreeRiders` put other updates in the place of theirs: `simulate(alter=Scaled({3}, -5.0))`.
Both may be combined; a backdoor is commonly scaled as well.

Scaling is Bagdasaryan et al. 2020 (model replacement), and with a factor below zero an attack on the mean; inner-product
manipulation Xie, Koyejo and Gupta 2020; free riders Lin, Du and Liu 2019.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from discreet.core import check
from discreet.errors import InvalidValue
from discreet.federate.clients import Clients, Rows
from discreet.federate.exchange import Exchange
from discreet.federate.local import draw

__all__ = ["FreeRiders", "InnerProduct", "Patch", "Scaled", "backdoor", "backdoor_success", "flip_labels", "pick_malicious"]

Trigger = Callable[[Tensor], Tensor]


def pick_malicious(clients: int, share: float, *, seed: int) -> frozenset[int]:
    """So many clients at random, rounded down.

    >>> len(pick_malicious(20, 0.4, seed=0))
    8
    """
    count = int(check.whole("clients", clients) * check.fraction("share", share) + 1e-9)
    return frozenset(np.random.default_rng(seed).permutation(clients)[:count].tolist())


def flip_labels(clients: Clients, malicious: Collection[int], *, classes: int) -> Clients:
    """Malicious clients label rows of class c as class `classes` - 1 - c.

    >>> rows = Clients.evenly(torch.zeros(4, 1), torch.tensor([0, 1, 2, 2]), clients=2, seed=0)
    >>> sorted(flip_labels(rows, {0, 1}, classes=3)[0][1].tolist() + flip_labels(rows, {0, 1}, classes=3)[1][1].tolist())
    [0, 0, 1, 2]
    """
    check.whole("classes", classes, least=2)
    return _other_rows(clients, malicious, lambda rows: (rows[0], classes - 1 - rows[1]))


def backdoor(clients: Clients, malicious: Collection[int], trigger: Trigger, *, target: int, share: float) -> Clients:
    """Malicious clients put a trigger on a share of their rows, and label those as class `target`."""
    check.fraction("share", share)

    def poisoned(rows: Rows) -> Rows:
        count = round(share * len(rows[0]))
        inputs = torch.cat([trigger(rows[0][:count].clone()), rows[0][count:]])
        return inputs, torch.cat([torch.full_like(rows[1][:count], target), rows[1][count:]])

    return _other_rows(clients, malicious, poisoned)


@dataclass(frozen=True)
class Patch:
    """A trigger: these numbers of each input, counted in the flattened input, get a value.

    >>> Patch((0, 3), 1.0)(torch.zeros(1, 2, 2))
    tensor([[[1., 0.],
             [0., 1.]]])
    """

    places: Sequence[int]
    value: float

    def __call__(self, inputs: Tensor) -> Tensor:
        patched = inputs.clone()
        patched.reshape(len(patched), -1)[:, list(self.places)] = torch.tensor(self.value, dtype=patched.dtype)
        return patched


def backdoor_success(model: nn.Module, inputs: Tensor, targets: Tensor, trigger: Trigger, *, target: int) -> float:
    """The share of rows of other classes that the model takes for `target` when the trigger is on them."""
    others = inputs[targets != target]
    if not len(others):
        raise InvalidValue(f"All rows are of class {target}; the success of a backdoor is counted on rows of other classes.")
    with torch.no_grad():
        return float((model(trigger(others)).argmax(1) == target).float().mean())


@dataclass(frozen=True)
class Scaled:
    """Malicious clients send their update times `factor`: above 1 to outweigh others, below 0 to undo what is learned."""

    malicious: Collection[int]
    factor: float

    def __post_init__(self) -> None:
        check.real("factor", self.factor)

    def __call__(self, exchange: Exchange) -> Tensor:
        return torch.where(_among(exchange, self.malicious), self.factor * exchange.updates, exchange.updates)


@dataclass(frozen=True)
class InnerProduct:
    """Malicious clients know the others' updates, and send the negative of their mean, times `strength`.

    A small strength stays close to honest updates and still turns their mean against what they want.
    """

    malicious: Collection[int]
    strength: float

    def __post_init__(self) -> None:
        check.positive("strength", self.strength)

    def __call__(self, exchange: Exchange) -> Tensor:
        bad = _among(exchange, self.malicious)
        if bad.all():
            return exchange.updates
        honest = exchange.updates[~bad[:, 0]].mean(0)
        return torch.where(bad, -self.strength * honest, exchange.updates)


@dataclass(frozen=True)
class FreeRiders:
    """Malicious clients train nothing: they send Gaussian noise of standard deviation `noise` around zero."""

    malicious: Collection[int]
    noise: float
    seed: int = 0

    def __post_init__(self) -> None:
        check.nonnegative("noise", self.noise)

    def __call__(self, exchange: Exchange) -> Tensor:
        key = b"free riders" + str(self.seed).encode()
        generator = torch.Generator().manual_seed(draw(key, exchange.number, 0) >> 65)
        nothing = self.noise * torch.randn(exchange.updates.shape, generator=generator).to(exchange.updates)
        return torch.where(_among(exchange, self.malicious), nothing, exchange.updates)


def _among(exchange: Exchange, malicious: Collection[int]) -> Tensor:
    hostile = np.isin(exchange.clients, np.fromiter(malicious, np.int64, len(malicious)))
    return torch.from_numpy(hostile).to(exchange.updates.device)[:, None]


def _other_rows(clients: Clients, malicious: Collection[int], change: Callable[[Rows], Any]) -> Clients:
    return clients.replaced({client: change(clients[client]) for client in sorted(malicious)})
