"""What private schemes do in a round, in whole numbers: who takes part, what clients send, and what the server releases.

All randomness follows from one secret key, so that a run which is continued draws what it would have drawn.
"""

from __future__ import annotations

import hmac
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from discreet.federate.clients import Rows
from discreet.federate.exchange import Exchange, Ints, Rule
from discreet.federate.looped import Looped, Loss, absorbed, made_up, per_row, seeded
from discreet.federate.privacy import FINE, Central, Distributed, Local, PrivateSGD, grid_of, whole_matrix
from discreet.noise.banded import columns, first_column
from discreet.noise.sampling import placed, thinned
from discreet.noise.vectors import gaussian, least_sigma

GROUPS = b"federate groups"


class Trusted:
    """The server of `Central`."""

    counts_are_private = True

    def __init__(self, scheme: Central, noise: float, rounds: int, size: int, key: bytes) -> None:
        self.scheme, self.key, self.size = scheme, key, size
        self.grid = grid_of(scheme, noise, size)
        self.matrix = np.array([[FINE]], np.int64)
        if scheme.bands > 1:
            self.matrix = whole_matrix(columns(first_column(rounds, scheme.bands, 0.0), rounds))
        fine = FINE if scheme.bands > 1 else 1
        self.sigma = least_sigma(Fraction(noise) * self.grid.radius * fine)
        self.sums: list[Ints] = []  # of the last bands - 1 rounds; nobody else sees them
        self.means: list[Any] = []  # what was released of them

    def draw(self, number: int, clients: int) -> Ints:
        """Each client of the group whose turn it is, on its own."""
        drawn = thinned(self.key, b"federate", number, clients, int(Fraction(self.scheme.share) * 2**64))
        if self.scheme.bands == 1:
            return drawn
        return drawn[placed(self.key, GROUPS, 0, clients, self.scheme.bands)[drawn] == number % self.scheme.bands]

    def weights(self, rows: list[Rows]) -> list[float]:
        """What each client counts as: at most 1, whatever the others have."""
        cap = self.scheme.cap
        return [1.0 if cap is None else min(len(inputs), cap) / cap for inputs, _ in rows]

    def sent(self, exchange: Exchange) -> Tensor:
        return exchange.updates

    def aggregate(self, exchange: Exchange, rule: Rule) -> Tensor:
        total = np.zeros(self.size, np.int64)
        for update, weight in zip(exchange.updates, exchange.weights.tolist()):
            total += self.grid.rounded(shrunk(update, self.scheme.clip_norm, weight))
        noise = gaussian(self.key, self.sigma, self.size, step=exchange.number)
        released = total + noise if self.scheme.bands == 1 else self._taken_back(exchange.number, total, noise)
        scale = self.scheme.clip_norm / self.grid.radius / self.scheme.divisor
        return torch.from_numpy(released * scale).to(exchange.before)

    def _taken_back(self, number: int, total: Ints, noise: Ints) -> Any:
        """Row `number` of C (sums) + noise, in whole numbers, which is what is released; and seen through C^-1.

        C^-1 is applied to what was released, so that its floating-point arithmetic decides nothing.
        """
        row = self.matrix[number]
        whole = row[0] * total + noise
        for back, earlier in enumerate(reversed(self.sums), 1):
            whole = whole + row[back] * earlier
        released = whole.astype(np.float64)
        for back, mean in enumerate(reversed(self.means), 1):
            released -= row[back] * mean
        found = released / row[0]
        self.sums, self.means = [*self.sums, total][1 - len(row) :], [*self.means, found][1 - len(row) :]
        return found

    def state(self) -> dict[str, Any]:
        return {
            "sums": [torch.from_numpy(each) for each in self.sums],
            "means": [torch.from_numpy(each) for each in self.means],
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.sums, self.means = ([each.numpy() for each in state[name]] for name in ("sums", "means"))


class Untrusted:
    """Clients that add noise themselves, each from a key of its own, and count their answers."""

    counts_are_private = False

    def __init__(self, scheme: Any, rounds: int, size: int, key: bytes) -> None:
        self.scheme, self.key, self.size = scheme, key, size
        self.times = min(scheme.times or rounds, rounds)
        self.answers: dict[int, int] = {}

    def willing(self, chosen: Ints) -> Ints:
        """Those who have not answered as often as they may; they count this answer."""
        kept = [int(client) for client in chosen if self.answers.get(int(client), 0) < self.times]
        self.answers.update({client: self.answers.get(client, 0) + 1 for client in kept})
        return np.array(kept, np.int64)

    def own(self, client: int) -> bytes:
        """The key of one client."""
        return hmac.digest(self.key, b"discreet federate: client" + client.to_bytes(8, "big"), "sha256")

    def weights(self, rows: list[Rows]) -> list[float]:
        return [1.0] * len(rows)

    def sent(self, exchange: Exchange) -> Tensor:
        return exchange.updates

    def aggregate(self, exchange: Exchange, rule: Rule) -> Tensor:
        return rule(exchange)

    def state(self) -> dict[str, Any]:
        return {"answers": dict(self.answers)}

    def restore(self, state: dict[str, Any]) -> None:
        self.answers = dict(state["answers"])


class NoisyClients(Untrusted):
    """The clients of `Local`."""

    def __init__(self, scheme: Local, noise: float, rounds: int, size: int, key: bytes) -> None:
        super().__init__(scheme, rounds, size, key)
        self.grid = grid_of(scheme, noise, size)

    def sent(self, exchange: Exchange) -> Tensor:
        rows = [
            self.grid.rounded(shrunk(update, self.scheme.clip_norm, 1.0))
            + gaussian(self.own(int(client)), self.grid.sigma, self.size, step=exchange.number)
            for client, update in zip(exchange.clients, exchange.updates)
        ]
        return _numbers(rows, self.scheme.clip_norm / self.grid.radius, exchange)


class SummedClients(Untrusted):
    """The clients of `Distributed`, and the sum of what they send, modulo 2^bits."""

    def __init__(self, scheme: Distributed, noise: float, rounds: int, size: int, key: bytes) -> None:
        super().__init__(scheme, rounds, size, key)
        self.grid, self.part = grid_of(scheme, noise, size), scheme.part(noise)
        self.whole: list[Ints] = []
        self._sent: Tensor | None = None

    def sent(self, exchange: Exchange) -> Tensor:
        self.whole = [
            self.grid.rounded(shrunk(update, self.scheme.clip_norm, 1.0))
            + gaussian(self.own(int(client)), self.part, self.size, step=exchange.number)
            for client, update in zip(exchange.clients, exchange.updates)
        ]
        self._sent = _numbers(self.whole, self.scheme.clip_norm / self.grid.radius, exchange)
        return self._sent

    def aggregate(self, exchange: Exchange, rule: Rule) -> Tensor:
        """The mean over those who answered, how many being known to the server; nothing where they are too few."""
        answered = exchange.weights > 0
        count = int(answered.sum())
        if count < self.scheme.honest or count > self.scheme.clients:
            return torch.zeros_like(exchange.before)
        assert self._sent is not None
        step, half = self.scheme.clip_norm / self.grid.radius, 1 << (self.scheme.bits - 1)
        total = np.zeros(self.size, np.int64)
        for place in np.flatnonzero(answered.cpu().numpy()):
            row = self.whole[place]
            if not torch.equal(exchange.updates[place], self._sent[place]):  # a liar: whatever it says is a number of steps
                row = np.rint(exchange.updates[place].double().cpu().numpy() / step).clip(-half, half - 1).astype(np.int64)
            total = (total + row + half) % (2 * half) - half
        return torch.from_numpy(total * (step / count)).to(exchange.before)


class PrivateClients(Untrusted):
    """Clients that train by private SGD, one row at a time, so that no row's gradient depends on another's."""

    def __init__(
        self, scheme: PrivateSGD, noise: float, rounds: int, key: bytes, model: nn.Module, loss: Loss, device: torch.device
    ) -> None:
        self.loop = Looped(model, loss, device)
        super().__init__(scheme, rounds, self.loop.size, key)
        self.grid, self._checked = grid_of(scheme, noise, self.size), False

    def check(self, sample: Rows) -> None:
        """Refuse a model whose training changes more than its parameters, on made-up rows of the same shape."""
        if not self._checked:
            self.loop.refuse_changing(*made_up(sample, 5))
            self._checked = True

    def trained(self, number: int, client: int, start: Tensor, rows: Rows, seed: int) -> Tensor:
        """How the weights of one client changed in this round."""
        weights, key, scheme, loop = start.clone(), self.own(client), self.scheme, self.loop
        inputs, targets = (part.to(loop.device) for part in rows)
        scale = scheme.learning_rate * scheme.clip_norm / self.grid.radius / scheme.divisor
        for step in range(number * scheme.steps, (number + 1) * scheme.steps):
            loop.put(weights)
            total = gaussian(key, self.grid.sigma, self.size, step=step)
            for row in thinned(key, b"federate rows", step, len(inputs), int(Fraction(scheme.rate) * 2**64)).tolist():
                with seeded(seed + row, loop.device), absorbed(True):
                    model, loss_of = loop.fresh()  # what a module keeps of one row reaches no other
                    loss = per_row(loss_of(model(inputs[row : row + 1]), targets[row : row + 1]), 1)
                    slopes = torch.autograd.grad(loss.sum(), loop.parameters, allow_unused=True, materialize_grads=True)
                    total += self.grid.rounded(torch.cat([slope.flatten() for slope in slopes]).double().cpu().numpy())
            weights -= torch.from_numpy(total * scale).to(weights)
        return weights - start


def shrunk(update: Tensor, clip_norm: float, weight: float) -> Any:
    """The update in double precision, clipped where it must be before its weight applies; not finite: nothing."""
    vector = update.double().cpu().numpy()
    if weight == 1.0:
        return vector  # the grid clips it
    length = float(np.linalg.norm(vector))
    return vector * (weight * min(1.0, clip_norm / length)) if 0 < length < np.inf else np.zeros_like(vector)


def _numbers(rows: list[Ints], step: float, exchange: Exchange) -> Tensor:
    if not rows:
        return exchange.updates
    return torch.from_numpy(np.stack(rows) * step).to(exchange.updates)


def runtime(
    scheme: Any, rounds: int, key: bytes, model: nn.Module, loss: Loss, device: torch.device, size: int
) -> Trusted | Untrusted:
    """The implementation of a private scheme, for one run."""
    noise = scheme.noise(rounds, size)
    if isinstance(scheme, Central):
        return Trusted(scheme, noise, rounds, size, key)
    if isinstance(scheme, Local):
        return NoisyClients(scheme, noise, rounds, size, key)
    if isinstance(scheme, Distributed):
        return SummedClients(scheme, noise, rounds, size, key)
    return PrivateClients(scheme, noise, rounds, key, model, loss, device)
