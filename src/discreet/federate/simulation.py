"""Rounds of federated learning on one machine."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from discreet.core import check
from discreet.errors import InvalidValue
from discreet.federate.clients import Clients
from discreet.federate.exchange import Alter, Exchange, Ints, Rule, Send, Watch, mean
from discreet.federate.local import draw
from discreet.federate.looped import Looped, Loss
from discreet.federate.strategies import Strategy

Progress = Callable[[int, int], None]
Evaluate = Callable[[nn.Module], Any]


@dataclass
class Simulation:
    """What came of it: the model, and for each round who answered, by numbers only."""

    model: nn.Module
    history: list[dict[str, Any]]


def simulate(
    model: nn.Module, clients: Clients, loss: Loss, *, strategy: Strategy, rounds: int, per_round: int | None = None,
    seed: int = 0, rule: Rule = mean, alter: Alter | None = None, send: Send | None = None, watch: Watch | None = None,
    evaluate: Evaluate | None = None, progress: Progress | None = None, device: str = "cpu",
) -> Simulation:  # fmt: skip
    """Train a copy of `model` over `rounds` rounds with `per_round` clients each (all of them unless told).

    `loss(model(inputs), targets)` gives one number for each row. `evaluate(model)` is called after each round, and what it
    gives is in the history. For `rule`, `alter`, `send` and `watch` see `Exchange`.

    >>> from discreet.federate import FedAvg
    >>> torch.manual_seed(0); inputs = torch.randn(60, 4)
    <torch._C.Generator object at ...>
    >>> clients = Clients.evenly(inputs, (inputs[:, 0] > 0).long(), clients=6, seed=0)
    >>> done = simulate(nn.Linear(4, 2), clients, nn.CrossEntropyLoss(reduction="none"), strategy=FedAvg(learning_rate=0.5),
    ...                 rounds=10, per_round=3)
    >>> float((done.model(inputs).argmax(1) == (inputs[:, 0] > 0)).float().mean()) > 0.9
    True
    """
    rounds = check.whole("rounds", rounds)
    if not isinstance(clients, Clients):
        raise InvalidValue(f"clients must be Clients, such as Clients.by_column(…); got {type(clients).__name__}.")
    count = len(clients) if per_round is None else check.whole("per_round", per_round, most=len(clients))
    place = torch.device(device)
    own = copy.deepcopy(model).to(place)
    loop = _Rounds(own, clients, loss, strategy, place, seed)
    history = []
    for number in range(rounds):
        chosen = _drawn(loop.key, number, len(clients), count)
        exchange = loop.round(number, chosen, rule, alter, send)
        history.append({"round": number, "clients": len(chosen), "answered": int((exchange.weights > 0).sum())})
        if evaluate is not None:
            loop.engine.put(loop.weights)
            history[-1]["evaluation"] = evaluate(own.eval())
        if watch is not None:
            watch(exchange)
        if progress is not None:
            progress(number + 1, rounds)
    loop.engine.put(loop.weights)
    return Simulation(own.eval(), history)


class _Rounds:
    """What goes on from round to round."""

    def __init__(
        self, model: nn.Module, clients: Clients, loss: Loss, strategy: Strategy, device: torch.device, seed: int
    ) -> None:
        self.clients, self.strategy, self.device = clients, strategy, device
        self.engine = Looped(model, loss, device)
        self.weights = self.engine.weights()
        self.memory = strategy.server.memory(self.weights)
        self.key = hashlib.sha256(b"discreet federate: seed" + str(check.whole("seed", seed, least=0)).encode()).digest()

    def round(self, number: int, chosen: Ints, rule: Rule, alter: Alter | None, send: Send | None) -> Exchange:
        before = self.weights
        empty = before.new_empty(0)
        exchange = Exchange(number, chosen, before, before, empty, empty)
        if send is not None:
            exchange.sent = _shaped("send", send(exchange), before, len(chosen))
        rows = [self.clients[int(client)] for client in chosen]
        exchange.weights = torch.tensor([float(len(inputs)) for inputs, _ in rows], device=self.device)
        if self.strategy.weighting == "equal":
            exchange.weights = torch.ones_like(exchange.weights)
        exchange.updates = self._trained(number, chosen, exchange.sent, rows)
        if alter is not None:
            exchange.updates = _shaped("alter", alter(exchange), exchange.updates, len(chosen))
        finite = torch.isfinite(exchange.updates).all(1)
        exchange.updates = torch.where(finite[:, None], exchange.updates, 0.0)
        exchange.weights = exchange.weights * finite
        exchange.aggregate = _shaped("rule", rule(exchange), before, 0)
        exchange.after = self.weights = self.strategy.server.step(before, exchange.aggregate, self.memory)
        return exchange

    def _trained(self, number: int, chosen: Ints, sent: Tensor, rows: list[Any]) -> Tensor:
        how, members = self.strategy.local(), [int(client) for client in chosen]
        orders = [how.order(self.key, number, client, len(inputs)) for client, (inputs, _) in zip(members, rows)]
        seeds = [draw(self.key, number, client) >> 65 for client in members]
        return self.engine.train(how, sent, rows, orders, seeds)


def _shaped(name: str, found: Any, like: Tensor, clients: int) -> Tensor:
    """What a hook gave, if it is of a shape that it may give."""
    allowed = {tuple(like.shape)} | ({(clients, like.shape[-1])} if clients else set())
    if not isinstance(found, Tensor) or tuple(found.shape) not in allowed:
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise InvalidValue(f"{name} must give a tensor of shape {' or '.join(map(str, sorted(allowed)))}; got {shape}.")
    return found.detach()


def _drawn(key: bytes, number: int, clients: int, count: int) -> Ints:
    """So many clients, uniformly, in ascending order."""
    if count == clients:
        return np.arange(clients)
    generator = np.random.Generator(np.random.Philox(key=draw(key, number, 2**63)))
    return np.sort(generator.choice(clients, count, replace=False, shuffle=False))
