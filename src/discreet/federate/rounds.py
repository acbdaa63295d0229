"""The state of a run and its rounds: clients are sampled, they compute updates, the server aggregates them."""

from __future__ import annotations

import copy
import hashlib
import hmac
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from discreet.errors import InvalidValue
from discreet.federate.canaries import ClientCanaries
from discreet.federate.clients import Clients, Rows
from discreet.federate.exchange import Alter, Exchange, Ints, Rule, Send
from discreet.federate.local import draw
from discreet.federate.looped import Looped, Loss
from discreet.federate.noisy import PrivateClients, Trusted, Untrusted
from discreet.federate.privacy import PrivateSGD
from discreet.federate.strategies import Selective, Strategy
from discreet.federate.together import engine


class Rounds:
    """The state of a run, and its next round."""

    def __init__(
        self, model: nn.Module, clients: Clients, loss: Loss, strategy: Strategy | PrivateSGD, device: torch.device, seed: int,
        scheme: Trusted | Untrusted | None, per_round: int | None, secret: bytes, canaries: ClientCanaries | None = None,
    ) -> None:  # fmt: skip
        self.canaries = canaries
        self.clients, self.strategy, self.device, self.scheme = clients, strategy, device, scheme
        self._model, self._loss = copy.deepcopy(model), loss  # clients train in this copy; `model` sees no row
        self.per_round = len(clients) if per_round is None else per_round
        self._plain = Looped(model, loss, device)
        self._engine: Looped | None = None
        self.number, self.history = 0, cast(list[dict[str, Any]], [])
        self.weights = self._plain.weights()
        self.memory = strategy.server.memory(self.weights)
        self.key = hashlib.sha256(b"discreet federate: seed" + str(seed).encode()).digest()
        if scheme is not None:  # whoever knew the order of rows by a client's number would see numbers move when one leaves
            self.key = hmac.digest(secret, b"discreet federate: what is drawn by clients", "sha256")
        self.changes = torch.zeros_like(self.weights, dtype=torch.int32)  # how often the server changed each parameter
        self.own: dict[int, Tensor] = {}  # the models that clients keep, under Selective

    def model(self) -> nn.Module:
        """A copy with the weights of now."""
        self._plain.put(self.weights)
        return copy.deepcopy(self._plain.model).eval()

    def next(self, rule: Rule, alter: Alter | None, send: Send | None) -> Exchange:
        """One round."""
        chosen, before = self._chosen(), self.weights
        nothing = before.new_empty(0)
        exchange = Exchange(self.number, chosen, before, before, nothing, nothing)
        if send is not None:
            exchange.sent = _shaped("send", send(exchange), before, len(chosen))
        rows = [self.clients[int(client)] for client in chosen]
        exchange.weights = torch.tensor(self._counted(rows), device=self.device)
        exchange.updates = self._trained(exchange, rows)
        if self.canaries is not None:
            self.canaries.put(exchange)
        if self.scheme is not None:
            exchange.updates = self.scheme.sent(exchange)
        if alter is not None:
            exchange.updates = _shaped("alter", alter(exchange), exchange.updates, len(chosen))
        finite = torch.isfinite(exchange.updates).all(1)
        exchange.updates = torch.where(finite[:, None], exchange.updates, 0.0)
        exchange.weights = exchange.weights * finite
        aggregate = rule(exchange) if self.scheme is None else self.scheme.aggregate(exchange, rule)
        exchange.aggregate = _shaped("rule", aggregate, before, 0)
        if self.canaries is not None:
            self.canaries.watch(exchange)
        exchange.after = self.weights = self.strategy.server.step(before, exchange.aggregate, self.memory)
        self.changes += exchange.aggregate != 0
        self._noted(exchange)
        return exchange

    def _chosen(self) -> Ints:
        if isinstance(self.scheme, Trusted):
            return self.scheme.draw(self.number, len(self.clients))
        chosen = _drawn(self.key, self.number, len(self.clients), self.per_round)
        return chosen if self.scheme is None else self.scheme.willing(chosen)

    def _counted(self, rows: list[Rows]) -> list[float]:
        """The weight of each client in the mean."""
        if self.scheme is not None:
            return self.scheme.weights(rows)
        if self.strategy.weighting == "equal":
            return [1.0] * len(rows)
        return [float(len(inputs)) for inputs, _ in rows]

    def _trained(self, exchange: Exchange, rows: list[Rows]) -> Tensor:
        """How each client's weights changed."""
        members, number, starts = [int(client) for client in exchange.clients], self.number, exchange.sent
        seeds = [draw(self.key, number, client) >> 65 for client in members]
        sample = next((pair for pair in rows if len(pair[0])), None)
        if isinstance(self.scheme, PrivateClients):
            if sample is not None:
                self.scheme.check(sample)
            origins = starts.expand(len(rows), -1)
            own = [self.scheme.trained(number, *each) for each in zip(members, origins, rows, seeds)]
            return torch.stack(own) if own else starts.new_zeros(0, self._plain.size)
        assert not isinstance(self.strategy, PrivateSGD)
        how = self.strategy.local()
        orders = [how.order(self.key, number, client, len(inputs)) for client, (inputs, _) in zip(members, rows)]
        if isinstance(self.strategy, Selective):
            starts = self._taken_over(self.strategy, members, starts)
        if self._engine is None:
            if sample is None:
                return starts.new_zeros(len(rows), self._plain.size)
            self._engine = engine(self._model, self._loss, self.device, sample, how, total=self.scheme is not None)
        updates = self._engine.train(how, starts, rows, orders, seeds)
        return self._selected(self.strategy, members, starts, updates) if isinstance(self.strategy, Selective) else updates

    def _taken_over(self, strategy: Selective, members: list[int], sent: Tensor) -> Tensor:
        """Where each client starts: at its own model with what it downloads."""
        origins = sent.expand(len(members), -1)
        own = [strategy.taken_over(self.own.get(client, it), it, self.changes) for client, it in zip(members, origins)]
        return torch.stack(own) if own else sent.new_zeros(0, self._plain.size)

    def _selected(self, strategy: Selective, members: list[int], starts: Tensor, updates: Tensor) -> Tensor:
        """The part of its update that each client uploads; it keeps the whole."""
        for place, client in enumerate(members):
            self.own[client] = starts[place] + updates[place]
            generator = torch.Generator().manual_seed(draw(self.key, self.number, client) >> 66)
            updates[place] = strategy.shared(updates[place], generator)
        return updates

    def _noted(self, exchange: Exchange) -> None:
        note: dict[str, Any] = {"round": self.number}
        if self.scheme is None or not self.scheme.counts_are_private:
            note |= {"clients": len(exchange.clients), "answered": int((exchange.weights > 0).sum())}
        self.history.append(note)
        self.number += 1

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "number": self.number, "history": self.history, "weights": self.weights.cpu(),
            "memory": [each.cpu() for each in self.memory], "changes": self.changes.cpu(),
            "own": {client: each.cpu() for client, each in self.own.items()},
            "scheme": {} if self.scheme is None else self.scheme.state(),
            "canaries": None if self.canaries is None else torch.from_numpy(self.canaries.score.copy()),
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        self.number, self.history = state["number"], state["history"]
        self.weights, self.changes = state["weights"].to(self.device), state["changes"].to(self.device)
        self.memory = [each.to(self.device) for each in state["memory"]]
        self.own = {client: each.to(self.device) for client, each in state["own"].items()}
        if self.scheme is not None:
            self.scheme.restore(state["scheme"])
        if self.canaries is not None:
            self.canaries.score = state["canaries"].numpy().copy()


def _shaped(name: str, found: Any, like: Tensor, clients: int) -> Tensor:
    """What a hook returned, after a check of its shape."""
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
