"""Client canaries: made-up clients that audit a private run while it runs (after Andrew et al. 2023, Steinke et al. 2023).

Each canary is in the federation by a fair coin, and asks for the worst that a client may: a change as long as the clip norm,
of a parameter that no other canary asks about, up or down by a coin of each round. What is released tells, by how far the
parameter went along, which of them were there; so many fair coins guessed right refute a claim that is false, in one run.
Nobody trains for them. They are clients like others to everything that follows: sampling, clipping, noise, sums, claims.

They move the model: by less than the noise does, where there are fewer of them than clients. Under `Local` and `Distributed`
they take places in rounds of `per_round` clients. A leak through a single parameter reaches the one canary that has it, which
is too few to refute anything: that is for an audit by pairs of worlds (`discreet.audit` of a `Training`).
"""

from __future__ import annotations

import hmac
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from discreet.core import Claim, Evidence
from discreet.federate.clients import Clients, Rows
from discreet.federate.exchange import Exchange
from discreet.federate.local import draw
from discreet.federate.privacy import Central, Local

LENGTH = 10.0  # clip norms: how long an update is before it is clipped, so that one that is not clipped is found out
NAME = "client canaries"


class ClientCanaries:
    """`count` canaries of one run. Their coins follow from its secret key, so that a run which is continued has the same."""

    def __init__(self, count: int, scheme: Any, rounds: int, size: int, clients: Clients, key: bytes) -> None:
        self.count = count
        own = hmac.digest(key, b"discreet federate: canaries", "sha256")
        coins = np.random.Generator(np.random.Philox(key=draw(own, 0, 0)))
        self.inside = coins.random(self.count) < 0.5
        self.places = coins.permutation(size)[: self.count]
        self._key, self.scheme, self.first = own, scheme, len(clients)
        self.there = self.inside if scheme.unit.relation == "add_remove" else np.ones(self.count, np.bool_)
        self.members = np.flatnonzero(self.there)  # the canary that each client behind the real ones is
        self._noise = scheme.noise(rounds, size)
        self.score = np.zeros(self.count)

    def among(self, clients: Clients) -> Clients:
        """The clients of the round, followed by the canaries that take part."""
        inputs, targets = clients[0]
        nothing: Rows = (inputs[:0], targets[:0])
        return Clients(lambda client: clients[client] if client < self.first else nothing, self.first + len(self.members))

    def put(self, exchange: Exchange) -> None:
        """The updates of the canaries, before clipping."""
        for place, canary in self._here(exchange):
            asked = 1.0 if self.inside[canary] else -1.0 if self.scheme.unit.relation == "replace" else 0.0
            exchange.updates[place] = 0.0
            exchange.updates[place, self.places[canary]] = (
                asked * self._signs(exchange)[canary] * LENGTH * self.scheme.clip_norm
            )
            exchange.weights[place] = 1.0

    def watch(self, exchange: Exchange) -> None:
        """Add this round's logarithm of the likelihood ratio to the score of each canary."""
        signs = self._signs(exchange)
        if isinstance(self.scheme, Central):
            assert exchange.aggregate is not None
            moved = self._along(exchange.aggregate, signs) * self.scheme.divisor
            self.score += _ratio(moved, self.scheme.rate, _deviation(moved, self._noise))
            return
        here = self._here(exchange)
        if isinstance(self.scheme, Local):
            for place, canary in here:
                own = float(exchange.updates[place, self.places[canary]]) / self.scheme.clip_norm
                self.score[canary] += own * signs[canary]
            return
        assert exchange.aggregate is not None
        moved = self._along(exchange.aggregate, signs) * float((exchange.weights > 0).sum())
        took_part = [canary for _, canary in here]
        self.score[took_part] += moved[took_part]

    def evidence(self, claims: tuple[Claim, ...]) -> tuple[Evidence, ...]:
        return tuple(
            Evidence(
                game=claim.game, attack=NAME, score=self.score, inside=self.inside, run=np.zeros(self.count, np.int64),
                design="canary",
            )
            for claim in claims
        )  # fmt: skip

    def _here(self, exchange: Exchange) -> list[tuple[int, int]]:
        """The places and numbers of canaries that take part in a round."""
        present = np.flatnonzero(exchange.clients >= self.first)
        return [(int(place), int(self.members[exchange.clients[place] - self.first])) for place in present]

    def _signs(self, exchange: Exchange) -> NDArray[np.float64]:
        """A random sign for each canary and round, so that updates of canaries do not add up over rounds."""
        coins = np.random.Generator(np.random.Philox(key=draw(self._key, exchange.number, 1)))
        return coins.choice([-1.0, 1.0], self.count)

    def _along(self, released: Tensor, signs: NDArray[np.float64]) -> NDArray[np.float64]:
        """How far the released update moved each canary's parameter in its direction, in clip norms."""
        moved = released[torch.from_numpy(self.places).to(released.device)].double().cpu().numpy()
        return np.asarray(moved * signs / self.scheme.clip_norm)


def _deviation(moved: NDArray[np.float64], noise: float) -> float:
    """The standard deviation of noise and clients' updates together; a robust estimate, which canaries hardly move."""
    return max(noise, 1.4826 * float(np.median(np.abs(moved - np.median(moved)))))


def _ratio(moved: NDArray[np.float64], rate: float, noise: float) -> NDArray[np.float64]:
    """Gaussian noise around 1, with probability `rate`, against around 0."""
    gain = (2 * moved - 1) / (2 * noise**2)
    if rate >= 1:
        return np.asarray(gain)
    return np.asarray(np.logaddexp(np.log1p(-rate), np.log(rate) + gain))
