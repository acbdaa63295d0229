"""Membership in federated learning: what a curious server, a curious client and a malicious server learn from rounds.

`RoundSignals` is a `watch` of `discreet.federate.simulate`: in each round that it observes it asks, of every row in question
and every client, how the client's update treats the row. `passive_server` compares the client in question with the *other*
clients of the same round, whose updates say what the row looks like to models that were not trained on it: the null of a
likelihood ratio that no shadow model is needed for (after FedMIA, Zhu et al. 2024). `learned` teaches a linear discriminant on
the same signals by rows whose membership is known, as Nasr, Shokri and Houmansadr 2019 do with a network. `passive_client` sees
the weights that it is sent and nothing else. `Ascent` is a `send` for a malicious server: it moves the weights up the loss of
rows in question before it sends them, and only a client that holds such a row pulls its loss back (Nasr et al.).
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.func import functional_call, jvp

from discreet.attack.membership import signals
from discreet.core import Evidence, Game, check, record
from discreet.errors import InvalidValue

__all__ = ["Ascent", "RoundSignals", "learned", "passive_client", "passive_server"]

Array = NDArray[np.float64]
NAMES = ("margin", "drop", "slope")
BATCH = 2048
FOLDS = 5
RIDGE = 1e-3


class _Flat:
    """A classifier as a function of one vector, its trainable parameters in order, and of rows."""

    def __init__(self, model: nn.Module, X: Any, y: Any, device: str) -> None:
        self.model, self.device = model, torch.device(device)
        self.X, self.y = torch.as_tensor(X).float().to(self.device), torch.as_tensor(y).long().to(self.device)
        if len(self.X) != len(self.y) or not len(self.X):
            raise InvalidValue(f"Rows in question must be as many inputs as labels; got {len(self.X)} and {len(self.y)}.")
        self._names = [(name, p.shape) for name, p in model.named_parameters() if p.requires_grad]
        self._rest = {name: p.detach().to(self.device) for name, p in (*model.named_parameters(), *model.named_buffers())}

    def scores(self, weights: Tensor, X: Tensor) -> Tensor:
        parts = weights.split([shape.numel() for _, shape in self._names])
        own = {name: part.view(shape) for (name, shape), part in zip(self._names, parts)}
        was, _ = self.model.training, self.model.eval()
        outputs = functional_call(self.model, {**self._rest, **own}, (X,))
        self.model.train(was)
        assert isinstance(outputs, Tensor)
        return outputs

    def slopes(self, weights: Tensor, update: Tensor) -> tuple[Array, Array]:
        """The scores at these weights [rows, classes], and how the loss of each row falls along the update [rows]."""
        scores, falls = [], []
        for X, y in zip(self.X.split(BATCH), self.y.split(BATCH)):

            def losses(flat: Tensor, X: Tensor = X, y: Tensor = y) -> tuple[Tensor, Tensor]:
                out = self.scores(flat, X)
                return nn.functional.cross_entropy(out, y, reduction="none"), out

            slope, out = _along(losses, weights, update)
            scores.append(out.detach())
            falls.append(-slope.detach())
        return _numpy(torch.cat(scores)), _numpy(torch.cat(falls))

    def asked(self, weights: Tensor) -> Array:
        """The scores of every row [rows, classes]."""
        with torch.no_grad():
            return _numpy(torch.cat([self.scores(weights, X) for X in self.X.split(BATCH)]))


class RoundSignals:
    """A `watch` that keeps what rounds tell of rows: a few numbers for each row, client and round, and no update.

    `rounds` are the numbers of the rounds that are observed; all unless told. Signals of a client's update, higher where the
    row seems to be its own: `margin`, how sure the client's model is of the row's label; `drop`, how far the update lowered the
    row's loss; `slope`, how far the loss falls along the update by its first derivative, for an update of length 1.
    """

    def __init__(self, model: nn.Module, X: Any, y: Any, *, rounds: Collection[int] | None = None, device: str = "cpu") -> None:
        self._flat, self._observed = _Flat(model, X, y, device), None if rounds is None else set(rounds)
        self.labels = np.asarray(self._flat.y.cpu())
        self.rounds: list[int] = []
        self.clients: list[NDArray[np.int64]] = []
        self.own: list[dict[str, Array]] = []  # of each round: the signals [clients, rows]
        self.sent: list[Array] = []  # of each round: the margin of the weights that a client was sent [rows]

    def __len__(self) -> int:
        return len(self.labels)

    def __call__(self, exchange: Any) -> None:
        if self._observed is not None and exchange.number not in self._observed:
            return
        found: dict[str, list[Array]] = {name: [] for name in NAMES}
        before: Array | None = None
        for place in range(len(exchange.clients)):
            sent = exchange.sent if exchange.sent.ndim == 1 else exchange.sent[place]
            update = exchange.updates[place]
            scores, fall = self._flat.slopes(sent, update)
            after = self._flat.asked(sent + update)
            found["margin"].append(signals.margin(after, self.labels))
            gain = signals.log_probability(after, self.labels) - signals.log_probability(scores, self.labels)
            found["drop"].append(gain)
            found["slope"].append(fall / max(float(update.norm()), 1e-30))
            before = signals.margin(scores, self.labels) if before is None else before
        if before is None:
            return
        self.rounds.append(exchange.number)
        self.clients.append(np.asarray(exchange.clients))
        self.own.append({name: np.stack(rows) for name, rows in found.items()})
        self.sent.append(before)

    def ratios(self, client: int) -> Array:
        """Of each signal and round in which the client took part: how far it lies above the other clients [signals, rows].

        In standard deviations of the null, which are pooled over rows where fewer than 16 others took part.
        """
        found = []
        for clients, own in zip(self.clients, self.own):
            here = clients == client
            if here.any() and (~here).sum() >= 2:
                found += [_above(own[name][here][0], own[name][~here]) for name in NAMES]
        if not found:
            raise InvalidValue(f"Client {client} took part in no observed round with at least 2 others, to compare it with.")
        return np.stack(found)


class Ascent:
    """A `send` for a malicious server: in the named rounds, weights that were moved up the loss of rows, to every client.

    The loss of each row is raised by the gradient of all of them, times `rate`. Rows in question should be asked about by few
    at a time: many pull in different directions.
    """

    def __init__(self, model: nn.Module, X: Any, y: Any, *, rate: float, rounds: Collection[int], device: str = "cpu") -> None:
        self._flat, self.rate, self.rounds = _Flat(model, X, y, device), check.positive("rate", rate), set(rounds)

    def __call__(self, exchange: Any) -> Tensor:
        weights = exchange.before
        assert isinstance(weights, Tensor)
        if exchange.number not in self.rounds:
            return weights
        with torch.enable_grad():
            at = weights.detach().clone().requires_grad_()
            total = torch.zeros((), device=at.device)
            for X, y in zip(self._flat.X.split(BATCH), self._flat.y.split(BATCH)):
                total = total + nn.functional.cross_entropy(self._flat.scores(at, X), y, reduction="sum")
            (slope,) = torch.autograd.grad(total, at)
        return weights + self.rate * slope / len(self._flat.y)


def passive_server(found: RoundSignals, inside: ArrayLike, *, client: int, design: str = "post_hoc") -> Evidence:
    """Was the row in this client's data? By likelihood ratios against the other clients, summed over signals and rounds."""
    return _evidence(found, found.ratios(client).sum(0), inside, "federated ratios", {"updates", "transcript"}, design)


def passive_client(found: RoundSignals, inside: ArrayLike, *, design: str = "post_hoc") -> Evidence:
    """Was the row in anybody's data? By the margins of the weights that a client was sent, over the observed rounds."""
    if not found.sent:
        raise InvalidValue("No round was observed.")
    return _evidence(found, np.mean(found.sent, 0), inside, "federated margins", {"transcript"}, design)


def learned(
    found: RoundSignals, inside: ArrayLike, *, client: int | None = None, design: str = "post_hoc", seed: int = 0
) -> Evidence:
    """As a server that knows of some rows whether they are in `client`; without one, as a client that knows of some rows.

    A linear discriminant over all signals of all rounds is taught by four fifths of the rows, and scores the rest.
    """
    truth = _truth(found, inside)
    seen = np.stack(found.sent) if client is None else np.concatenate([found.ratios(client), _raw(found, client)])
    seen = (seen - seen.mean(1, keepdims=True)) / (seen.std(1, keepdims=True) + 1e-12)
    fold = np.random.default_rng(seed).permutation(len(truth)) % FOLDS
    score = np.empty(len(truth))
    for number in range(FOLDS):
        rest = fold != number
        if truth[rest].all() or not truth[rest].any():
            raise InvalidValue("To learn from, there must be rows that were inside and rows that were not.")
        score[~rest] = _discriminant(seen[:, rest], truth[rest]) @ seen[:, ~rest]
    view = {"transcript"} if client is None else {"updates", "transcript"}
    return _evidence(found, score, inside, "federated, learned", view, design)


def _raw(found: RoundSignals, client: int) -> Array:
    """The signals themselves, of rounds in which the client took part."""
    own = [(each, clients == client) for clients, each in zip(found.clients, found.own) if (clients == client).any()]
    return np.stack([each[name][here][0] for each, here in own for name in NAMES])


def _above(mine: Array, others: Array) -> Array:
    """How many standard deviations above the others, row by row."""
    spread = others.var(0, ddof=1)
    if len(others) < 16:
        spread = np.full_like(spread, spread.mean())
    return np.clip((mine - others.mean(0)) / np.sqrt(spread + 1e-12), -30.0, 30.0)


def _discriminant(seen: Array, truth: NDArray[np.bool_]) -> Array:
    """Fisher's: the direction that parts the two classes best, with a ridge."""
    one, two = seen[:, truth], seen[:, ~truth]
    within = (np.cov(one) * len(one.T) + np.cov(two) * len(two.T)) / seen.shape[1]
    within = np.atleast_2d(within)
    ridge = RIDGE * np.trace(within) / len(within) + 1e-9
    return np.asarray(np.linalg.solve(within + ridge * np.eye(len(within)), one.mean(1) - two.mean(1)))


def _truth(found: RoundSignals, inside: ArrayLike) -> NDArray[np.bool_]:
    truth = np.asarray(inside, np.bool_)
    if truth.shape != (len(found),):
        raise InvalidValue(f"inside must say of each of {len(found)} rows whether it was trained on; got shape {truth.shape}.")
    return truth


def _evidence(found: RoundSignals, score: Array, inside: ArrayLike, name: str, view: set[str], design: str) -> Evidence:
    truth = _truth(found, inside)
    return Evidence(
        game=Game(record(), view), attack=name, score=score, inside=truth, run=np.zeros(len(truth), np.int64), design=design
    )


def _along(function: Any, at: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
    """The derivative along a direction, and what else the function gives."""
    with warnings.catch_warnings():  # torch's own rules for forward derivatives load what it has deprecated
        warnings.simplefilter("ignore", DeprecationWarning)
        found: Any = jvp(function, (at,), (direction,), has_aux=True)
    return found[1], found[2]


def _numpy(values: Tensor) -> Array:
    return values.double().cpu().numpy()
