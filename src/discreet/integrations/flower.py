"""Federated learning on a Flower cluster: `discreet.federate.Central` as a strategy, `Local` as a client mod, and a ledger.

    strategy = PrivateFedAvg(Central(unit=client(), clip_norm=1.0, rate=0.1, divisor=10, noise_multiplier=1.0),
                             rounds=100, source="people", ledger="ledger.db")
    strategy.start(grid=grid, initial_arrays=ArrayRecord(model.state_dict()), num_rounds=100)
    strategy.release.claims

Flower must be installed (`discreet-privacy[federated]`), in an environment of its own where its pinned versions conflict.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from discreet.accounting import curve
from discreet.core import Claim, Event, Game, Release, Unit, check
from discreet.core import event as events
from discreet.core.facts import made
from discreet.errors import BudgetExceeded, InvalidValue, MissingExtra
from discreet.federate.exchange import Exchange, mean
from discreet.federate.noisy import Trusted, shrunk
from discreet.federate.privacy import Central, Local, client, grid_of
from discreet.federate.strategies import Descent
from discreet.ledger import open_charge
from discreet.ledger.opening import LedgerLike, opened
from discreet.noise import refuse_seeded
from discreet.noise.source import open_source
from discreet.noise.vectors import gaussian

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.serverapp import NeighboringRelation, PrivacyConfig, PrivacySpent, SamplingMethod
    from flwr.serverapp.strategy import Strategy

    FLOWER = True
except ImportError:  # raised as MissingExtra when a class here is used
    FLOWER, Strategy = False, object

__all__ = ["LedgerAccountant", "LocalNoise", "PrivateFedAvg"]

Arrays = list[NDArray[Any]]
ONE_NODE = "A client is one node of the cluster, which keeps its number: one that comes back under another is drawn for both."
log = logging.getLogger(__name__)


def _need_flower() -> None:
    if not FLOWER:
        raise MissingExtra("flwr", "federated", "Federated learning on Flower")


class _Arrays(Strategy):  # type: ignore[misc]
    """The arrays of a model as one vector and back, and rounds that are paid for before a message is sent."""

    privacy: Any
    rounds: int
    source: Any
    ledger: LedgerLike | None
    account: str | None
    server: Descent

    def _prepare(self, rounds: int, server: Descent | None) -> None:
        _need_flower()
        self.rounds, self.server = check.whole("rounds", rounds), Descent() if server is None else server
        self.release: Release[ArrayRecord] | None = None
        self._claims: tuple[Claim, ...] = ()
        self._done = 0

    def summary(self) -> None:
        """Nothing: what ran is in the release."""

    def start(self, grid: Any, initial_arrays: Any, num_rounds: int = 3, *args: Any, **named: Any) -> Any:
        """Charge for all rounds, then run them."""
        if num_rounds != self.rounds:
            raise InvalidValue(
                f"The strategy is for {self.rounds} rounds, which its noise is for; start was given {num_rounds}."
            )
        refuse_seeded()
        self._sizes(initial_arrays)
        if self.privacy is not None:
            claims = self.privacy.claims(self.rounds, self._size)
            self._claims = tuple(replace(claim, assumptions=(*claim.assumptions, ONE_NODE)) for claim in claims)
        if self.ledger is None:
            return self._run(grid, initial_arrays, None, *args, **named)
        request = self.privacy.asked(self.rounds, self._size)
        with opened(self.ledger) as payer:
            charge = open_charge(self._claims, source=self.source, ledger=payer, account=self.account, asked=request)
            with charge as entry:
                return self._run(grid, initial_arrays, entry, *args, **named)

    def _begin(self, noise: float) -> None:
        """What a run needs beside its arrays."""

    def _run(self, grid: Any, initial: Any, entry: str | None, *args: Any, **named: Any) -> Any:
        noise = 0.0 if self.privacy is None else self.privacy.noise(self.rounds, self._size)
        self._done = 0
        self._weights = self._flat(initial.to_numpy_ndarrays())
        self._memory = self.server.memory(self._weights)
        self._begin(noise)
        result = super().start(grid, initial, self.rounds, *args, **named)
        if self.privacy is not None and self.source is not None:
            self.release = Release(
                value=result.arrays, source=self.source, claims=self._claims, entry=entry,
                facts={"title": "Federated model", "federated": self._facts(noise), "made": made()},
            )  # fmt: skip
        return result

    def _facts(self, noise: float) -> dict[str, Any]:
        return {
            "strategy": f"{type(self).__name__} on Flower", "rounds": self.rounds, "parameters": self._size,
            "privacy": type(self.privacy).__name__, "clip_norm": self.privacy.clip_norm, "noise_multiplier": noise,
        }  # fmt: skip

    def _sizes(self, arrays: Any) -> None:
        """Record the names, types and shapes that every answer must have."""
        self._names, self._like = list(arrays.keys()), [np.asarray(array) for array in arrays.to_numpy_ndarrays()]
        self._moving = [array.dtype.kind == "f" for array in self._like]
        self._size = sum(array.size for array, moves in zip(self._like, self._moving) if moves)
        if not self._size or not all(np.isfinite(array).all() for array, moves in zip(self._like, self._moving) if moves):
            raise InvalidValue("initial_arrays must hold at least one array of finite floating-point numbers.")

    def _flat(self, arrays: Sequence[NDArray[Any]]) -> torch.Tensor:
        moving = [np.asarray(array, np.float64).ravel() for array, moves in zip(arrays, self._moving) if moves]
        return torch.from_numpy(np.concatenate(moving))

    def _record(self, weights: torch.Tensor) -> Any:
        """The weights as the model's arrays."""
        flat, at, named = weights.numpy(), 0, {}
        for name, like, moves in zip(self._names, self._like, self._moving):
            value = flat[at : at + like.size].reshape(like.shape).astype(like.dtype) if moves else like
            named[name] = Array(np.asarray(value))
            at += like.size * moves
        return ArrayRecord(named)

    def _next(self, server_round: int) -> None:
        if server_round != self._done + 1 or server_round > self.rounds:
            raise InvalidValue(f"Round {self._done + 1} of {self.rounds} comes next; Flower asked for round {server_round}.")

    def configure_evaluate(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Iterable[Any]:
        """Nothing: what nodes measure on their rows would be a release without a claim. Use evaluate_fn on public rows."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Any]) -> None:
        """Nothing came."""


class PrivateFedAvg(_Arrays):
    """`Central` on Flower: Poisson-sampled nodes, clipped updates, a fixed divisor, and noise in every round.

    The run is charged when it starts, before a message is sent. Answers that are missing, late, of another shape, or not
    finite count as no change; the divisor stays. What nodes measure (metrics) is not passed on: it has no claim. Arrays that
    are not of floating point, such as counters, stay what the server sent. A server that is started again pays again.
    """

    def __init__(
        self, privacy: Central, *, rounds: int, source: str, ledger: LedgerLike | None, account: str | None = None,
        server: Descent | None = None, least_nodes: int = 1, rows: str = "num-examples",
    ) -> None:  # fmt: skip
        self._prepare(rounds, server)
        if not isinstance(privacy, Central):
            raise InvalidValue(f"privacy must be Central(…), whose noise a server adds; got {check.shown(privacy)}.")
        self.privacy, self.source, self.ledger, self.account = privacy, check.word("source", source), ledger, account
        self.least_nodes, self.rows = check.whole("least_nodes", least_nodes), rows
        self._asked: set[int] = set()

    def _begin(self, noise: float) -> None:
        self._key = open_source().take(32)
        self._trusted = Trusted(self.privacy, noise, self.rounds, self._size, self._key)

    def _facts(self, noise: float) -> dict[str, Any]:
        return {**super()._facts(noise), "clients_per_round": f"about {self.privacy.divisor:g}, each drawn on its own"}

    # ---- rounds ------------------------------------------------------------------------------------------------------

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Iterable[Any]:
        """A message to each node that this round draws; there may be none."""
        self._next(server_round)
        nodes = _wait_for_nodes(grid, self.least_nodes)
        self._asked = {node for node in nodes if self._drawn(server_round - 1, node)}
        config["server-round"] = server_round
        record = RecordDict({"arrays": arrays, "config": config})
        return [Message(content=record, message_type="train", dst_node_id=node) for node in sorted(self._asked)]

    def _drawn(self, number: int, node: int) -> bool:
        """Whether a node takes part, drawn independently of the other nodes."""
        if self._word(b"group", 0, node) % self.privacy.bands != number % self.privacy.bands:
            return False
        return Fraction(self._word(b"drawn", number, node), 1 << 256) < Fraction(self.privacy.share)

    def _word(self, purpose: bytes, number: int, node: int) -> int:
        place = number.to_bytes(8, "big") + (node % (1 << 64)).to_bytes(8, "big")
        return int.from_bytes(hmac.digest(self._key, b"discreet flower: " + purpose + place, "sha256"), "big")

    def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> tuple[Any, Any]:
        """The weights after this round: clipped changes and noise, over the divisor."""
        if server_round != self._done + 1:
            raise InvalidValue(f"Round {server_round} was aggregated already, or comes too early: its noise is for one sum.")
        self._done = server_round
        updates, weights = self._answers(replies)
        stacked = torch.stack(updates) if updates else self._weights.new_zeros(0, self._size)
        exchange = Exchange(
            server_round - 1, np.arange(len(updates)), self._weights, self._weights, stacked, torch.tensor(weights)
        )
        step = self._trusted.aggregate(exchange, mean)
        self._weights = self.server.step(self._weights, step, self._memory)
        return self._record(self._weights), None

    def _answers(self, replies: Iterable[Any]) -> tuple[list[torch.Tensor], list[float]]:
        """The updates, at most one for each node that was drawn."""
        waiting, updates, weights = set(self._asked), [], []
        for reply in replies:
            node = reply.metadata.src_node_id
            if node not in waiting or reply.has_error():
                continue
            waiting.discard(node)
            update, weight = self._answer(reply)
            if update is not None and weight is not None:
                updates.append(update)
                weights.append(weight)
        return updates, weights

    def _answer(self, reply: Any) -> tuple[torch.Tensor | None, float | None]:
        """One node's update and its weight; None for an answer that does not fit this model."""
        records = list(reply.content.array_records.values())
        if len(records) != 1 or list(records[0].keys()) != self._names:
            return None, None
        try:
            arrays = [np.asarray(array) for array in records[0].to_numpy_ndarrays()]
        except (ValueError, TypeError, EOFError, OSError):
            return None, None
        if any(array.shape != like.shape or array.dtype != like.dtype for array, like in zip(arrays, self._like)):
            return None, None
        update = self._flat(arrays) - self._weights
        return (update, self._weight(reply)) if bool(torch.isfinite(update).all()) else (None, None)

    def _weight(self, reply: Any) -> float | None:
        if self.privacy.cap is None:
            return 1.0
        rows = [record.get(self.rows) for record in reply.content.metric_records.values()]
        if len(rows) != 1 or not isinstance(rows[0], (int, float)) or not 0 <= rows[0] < float("inf"):
            return None
        return float(min(rows[0], self.privacy.cap) / self.privacy.cap)


def _wait_for_nodes(grid: Any, least: int) -> list[int]:
    """The connected nodes, once there are `least` of them; Flower decides which nodes connect."""
    from time import sleep

    while len(nodes := list(grid.get_node_ids())) < least:
        sleep(0.5)
    return nodes


class LocalNoise:
    """A client mod for `Local`: clips a client's update, adds noise, and drops everything else in its answer.

    An app that fails, or answers another model, is answered for by noise alone: its error stays in the log of the client.

        app = ClientApp(mods=[LocalNoise(Local(unit=…, clip_norm=1.0, epsilon=4.0, delta=1e-6, times=100))])

    A client answers `times` times in a run, which it counts in its own state, and then no more. It tells 1 as its number of
    rows.
    """

    def __init__(self, privacy: Local) -> None:
        _need_flower()
        if not isinstance(privacy, Local) or privacy.times is None:
            raise InvalidValue("LocalNoise needs Local(…) with times, the number of answers that its noise is for.")
        self.privacy = privacy

    def claims(self, size: int) -> tuple[Claim, ...]:
        """What a client's answers claim, for a model of so many parameters."""
        assert self.privacy.times is not None
        return self.privacy.claims(self.privacy.times, size)

    def __call__(self, message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
        if message.metadata.message_type.split(".")[0] != "train":
            raise InvalidValue("LocalNoise bounds answers to train messages only; other answers have no claim.")
        counted = context.state.config_records.setdefault("discreet", ConfigRecord({"answers": 0}))
        assert self.privacy.times is not None
        if int(counted["answers"]) >= self.privacy.times:
            raise InvalidValue(f"This client has given its {self.privacy.times} answers; its claim holds for no more.")
        counted["answers"] = int(counted["answers"]) + 1  # before the rows are read: a failure gives nothing back
        (name, sent), *others = message.content.array_records.items()
        if others:
            raise InvalidValue(f"A message with one record of arrays is needed; got {1 + len(others)}.")
        before = [np.asarray(array) for array in sent.to_numpy_ndarrays()]
        try:
            after = [np.asarray(array) for array in _only(call_next(message, context)).to_numpy_ndarrays()]
            answer = self.noisy(before, after)
        except (Exception, SystemExit):  # that rows make an app fail, and with what words, would be an answer without noise
            log.warning("This client's app gave no update of the model; noise alone is sent.", exc_info=True)
            answer = self.noisy(before, before)
        record = ArrayRecord(dict(zip(sent.keys(), map(Array, answer))))
        return Message(RecordDict({name: record, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    def noisy(self, before: Arrays, after: Arrays) -> Arrays:
        """What a client sends: the weights it received plus its clipped, noisy update. Arrays without floats stay."""
        moving = [array.dtype.kind == "f" for array in before]
        shapes = [array.shape for array in before]
        if [array.shape for array in after] != shapes:
            raise InvalidValue("The client's arrays have other shapes than those it was sent.")
        change = [(a.astype(np.float64) - b).ravel() for a, b, moves in zip(after, before, moving) if moves]
        flat, times = np.concatenate(change), self.privacy.times
        assert times is not None
        grid = grid_of(self.privacy, self.privacy.noise(times, flat.size), flat.size)
        noise = gaussian(open_source().take(32), grid.sigma, flat.size, step=0)
        whole = grid.rounded(shrunk(torch.from_numpy(flat), self.privacy.clip_norm, 1.0)) + noise
        step, at, sent = self.privacy.clip_norm / grid.radius, 0, []
        for array, moves in zip(before, moving):
            part = whole[at : at + array.size].reshape(array.shape) * step if moves else 0
            sent.append(np.asarray(array + part, array.dtype))
            at += array.size * moves
        return sent


def _only(message: Any) -> Any:
    records = list(message.content.array_records.values())
    if len(records) != 1:
        raise InvalidValue(f"A message with one record of arrays is needed; got {len(records)}.")
    return records[0]


class LedgerAccountant:
    """Flower's accounting protocol over a ledger: each round is charged before its clients train, and durably.

    For Flower's own wrappers (`DifferentialPrivacyServerSideFixedClipping(accountant=…)`). The wrapper decides whether its
    events are true: up to Flower 1.42 it does not clip parameters of no dimension. `PrivateFedAvg` does.
    """

    def __init__(
        self, ledger: LedgerLike, *, source: str, delta: float, population: int, unit: Unit | None = None,
        account: str | None = None,
    ) -> None:  # fmt: skip
        _need_flower()
        self.ledger, self.source, self.account = ledger, check.word("source", source), account
        self.unit = client() if unit is None else unit
        if self.unit.relation != "add_remove":
            raise InvalidValue(f"Flower accounts for clients that are added or removed; got {self.unit}.")
        self.config = PrivacyConfig(
            target_delta=check.open_fraction("delta", delta), population_size=check.whole("population", population),
            neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE, sampling_method=SamplingMethod.NO_AMPLIFICATION,
            max_epsilon=1e9,  # so that Flower asks before each round; the ledger decides when the budget is spent
        )  # fmt: skip
        self.entries: list[str] = []
        self._charged: list[Event] = []  # paid for, and not composed by Flower yet
        self._events: list[Event] = []

    @property
    def num_releases(self) -> int:
        return len(self._events)

    def would_exceed(self, event: Any, max_epsilon: float | None = None, count: int = 1) -> bool:
        """Whether the ledger refuses the next rounds; where it does not, they are paid for now."""
        requested: list[Event] = [events.Gaussian(event.noise_multiplier)] * check.whole("count", count)
        if self._charged == requested:
            return False
        try:
            self._pay(requested)
        except BudgetExceeded:
            return True
        self._charged = requested
        return False

    def compose(self, event: Any, count: int = 1) -> None:
        """What was released; rounds that were not asked for before are paid for now."""
        requested: list[Event] = [events.Gaussian(event.noise_multiplier)] * check.whole("count", count)
        if self._charged != requested:
            self._pay(requested)
        self._charged = []
        self._events += requested

    def _pay(self, requested: list[Event]) -> None:
        event = events.Repeat(requested[0], len(requested))
        assumed = ("Flower's wrapper clips every parameter, scales its noise to the largest weight, and is the only release.",)
        claim = Claim(game=Game(self.unit, {"transcript"}), event=event, assumptions=assumed)
        with opened(self.ledger) as payer:
            charge = open_charge((claim,), source=self.source, ledger=payer, account=self.account)
            with charge as entry:
                self.entries.append(entry)

    def get_epsilon(self, delta: float) -> float:
        return float(curve(events.Sequence(self._events)).epsilon(delta)) if self._events else 0.0

    def get_delta(self, epsilon: float) -> float:
        return float(curve(events.Sequence(self._events)).delta(epsilon)) if self._events else 0.0

    def get_privacy_spent(self, delta: float | None = None) -> Any:
        delta = self.config.target_delta if delta is None else delta
        return PrivacySpent(
            epsilon=self.get_epsilon(delta), delta=delta, num_releases=self.num_releases, accounting_method="privacy-loss"
        )

    def state_dict(self) -> dict[str, object]:
        """The events so far; what was spent lies in the ledger."""
        return {"events": [event.to_json() for event in self._events], "entries": list(self.entries)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._events = [events.event_from_json(item) for item in state["events"]]
        self.entries = list(state["entries"])
