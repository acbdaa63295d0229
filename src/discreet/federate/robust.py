"""Robust rules of aggregation in place of the mean: `simulate(rule=Median())`.

They see every update, which a secure sum hides: one or the other. **None of them is private.** How far one client can move
the median, the trimmed mean, what Krum picks or FLTrust's mean has no proven bound here, so noise added to them has no claim
(`sensitivity` is None). `NormBound` is the exception: with equal weights one client moves the mean by at most bound / clients;
a claim takes noise as well, which `discreet.federate.Central` adds.

Median and trimmed mean are Yin et al. 2018, Krum and multi-Krum Blanchard et al. 2017, norm bounding Sun et al. 2019, FLTrust
Cao et al. 2021. Clients whose update was rejected (weight 0) are left out; weights count in `NormBound` alone.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from discreet.core import check
from discreet.errors import InvalidValue
from discreet.federate.clients import rows_of
from discreet.federate.exchange import Exchange
from discreet.federate.local import draw
from discreet.federate.looped import Looped, Loss
from discreet.federate.strategies import Strategy

__all__ = ["FLTrust", "Krum", "Median", "NormBound", "TrimmedMean"]


@dataclass(frozen=True)
class Median:
    """The coordinate-wise median of the updates.

    >>> from discreet.federate.exchange import Exchange
    >>> import numpy as np
    >>> updates = torch.tensor([[1.0], [2.0], [900.0]])
    >>> Median()(Exchange(0, np.arange(3), torch.zeros(1), torch.zeros(1), updates, torch.ones(3)))
    tensor([2.])
    """

    def __call__(self, exchange: Exchange) -> Tensor:
        updates = _counted(exchange)
        if not len(updates):
            return torch.zeros_like(exchange.before)
        ordered = updates.sort(0).values
        low, high = (len(ordered) - 1) // 2, len(ordered) // 2
        return (ordered[low] + ordered[high]) / 2

    @staticmethod
    def sensitivity(clients: int) -> float | None:
        """How far one client can move it: no bound is proven."""
        return None


@dataclass(frozen=True)
class TrimmedMean:
    """The coordinate-wise mean without the `trimmed` largest and the `trimmed` smallest values."""

    trimmed: int

    def __post_init__(self) -> None:
        check.whole("trimmed", self.trimmed, least=0)

    def __call__(self, exchange: Exchange) -> Tensor:
        updates = _enough(exchange, 2 * self.trimmed + 1, f"trimmed={self.trimmed}")
        return updates.sort(0).values[self.trimmed : len(updates) - self.trimmed].mean(0)

    @staticmethod
    def sensitivity(clients: int) -> float | None:
        """How far one client can move it: no bound is proven."""
        return None


@dataclass(frozen=True)
class Krum:
    """The update whose nearest others are nearest; with `kept` above 1 the mean of so many best ones (multi-Krum).

    It is made for up to `malicious` clients of n, where n is at least 2 malicious + 3; an update is judged by its
    n - malicious - 2 nearest.
    """

    malicious: int
    kept: int = 1

    def __post_init__(self) -> None:
        check.whole("malicious", self.malicious, least=0)
        check.whole("kept", self.kept)

    def __call__(self, exchange: Exchange) -> Tensor:
        updates = _enough(exchange, max(2 * self.malicious + 3, self.kept), f"malicious={self.malicious}, kept={self.kept}")
        distances = torch.cdist(updates.double(), updates.double(), compute_mode="donot_use_mm_for_euclid_dist").square()
        nearest = distances.sort(1).values[:, 1 : len(updates) - self.malicious - 1]
        best = nearest.sum(1).argsort(stable=True)[: self.kept]
        return updates[best].mean(0)

    @staticmethod
    def sensitivity(clients: int) -> float | None:
        """How far one client can move it: no bound is proven."""
        return None


@dataclass(frozen=True)
class NormBound:
    """The weighted mean of the updates, each shortened to a length of at most `bound`."""

    bound: float

    def __post_init__(self) -> None:
        check.positive("bound", self.bound)

    def __call__(self, exchange: Exchange) -> Tensor:
        total = exchange.weights.sum()
        if not total > 0:
            return torch.zeros_like(exchange.before)
        lengths = exchange.updates.norm(dim=1)
        shrink = (self.bound / lengths.clamp(min=self.bound)).to(exchange.updates)
        return (exchange.weights / total * shrink) @ exchange.updates

    def sensitivity(self, clients: int) -> float | None:
        """How far one of so many equally weighted clients moves it, when its update is put to zero."""
        return self.bound / check.whole("clients", clients)


@dataclass(frozen=True)
class FLTrust:
    """The mean of the updates, weighted by their cosine similarity with an update of the server's own.

    The server trains on `rows` of its own, as `strategy` says. A client counts by the cosine between its update and the
    server's, where that is above 0, and its update is brought to the length of the server's.
    """

    model: nn.Module
    loss: Loss
    rows: Any
    strategy: Strategy
    device: str = "cpu"
    _engine: list[Looped] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rows = rows_of(self.rows, "the server")
        if not len(rows[0]):
            raise InvalidValue(
                "The server's own rows are none; FLTrust compares updates with what the server learns from them."
            )
        place = torch.device(self.device)
        self._engine.append(Looped(copy.deepcopy(self.model).to(place), self.loss, place))

    def __call__(self, exchange: Exchange) -> Tensor:
        own = self.trained(exchange)
        updates, length = _counted(exchange), own.norm()
        lengths = updates.norm(dim=1)
        trust = ((updates @ own) / (lengths * length).clamp(min=1e-30)).clamp(min=0)
        if not trust.sum() > 0:
            return torch.zeros_like(exchange.before)
        return (trust / trust.sum() * length / lengths.clamp(min=1e-30)) @ updates

    def trained(self, exchange: Exchange) -> Tensor:
        """The server's own update in this round."""
        rows, how = rows_of(self.rows, "the server"), self.strategy.local()
        order = how.order(b"FLTrust", exchange.number, 2**62, len(rows[0]))
        seed = draw(b"FLTrust", exchange.number, 2**62) >> 65
        return self._engine[0].train(how, exchange.before, [rows], [order], [seed])[0]

    @staticmethod
    def sensitivity(clients: int) -> float | None:
        """How far one client can move it: no bound is proven."""
        return None


def _counted(exchange: Exchange) -> Tensor:
    return exchange.updates[exchange.weights > 0]


def _enough(exchange: Exchange, least: int, why: str) -> Tensor:
    updates = _counted(exchange)
    if len(updates) < least:
        raise InvalidValue(
            f"{why} needs at least {least} updates in a round; {len(updates)} counted. Ask more clients a round."
        )
    return updates
