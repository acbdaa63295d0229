"""What client mods answer, message by message, in the environment of Flower: python flower_mods.py"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower has an environment of its own, in which test_flower.py runs this file")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from discreet import Ledger
from discreet.errors import DiscreetError
from discreet.federate import Central, Distributed, Identity, Local, SecureSum, client
from discreet.integrations.flower import LocalNoise, PrivateFedAvg
from discreet.integrations.flower_sums import RECORD, SecureFedAvg, SecureUpdates

logging.disable(logging.CRITICAL)
TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
SIZE, FAR = 2000, 1e6


def asked(kind: str = "train") -> Any:
    arrays = ArrayRecord({"weight": Array(np.zeros(SIZE, np.float32)), "seen": Array(np.asarray(np.int64(5)))})
    return Message(RecordDict({"model": arrays, "config": ConfigRecord({"round": 1})}), dst_node_id=1, message_type=kind)


def context() -> Any:
    return Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})


def answered(update: Any, name: str = "anything") -> Any:
    """An app that moves the weights so, and tells all that it can."""

    def app(message: Any, context: Any) -> Any:
        if isinstance(update, BaseException):
            raise update
        record = ArrayRecord({"weight": Array(np.asarray(update)), "seen": Array(np.asarray(np.int64(77)))})
        told = {name: record, "metrics": MetricRecord({"num-examples": 1717, "loss": 17.17})}
        return Message(RecordDict(told), reply_to=message)

    return app


def weight(reply: Any) -> np.ndarray:
    assert not reply.has_error()
    assert list(reply.content.keys()) == ["model", "metrics"]
    assert dict(reply.content["metrics"]) == {"num-examples": 1}
    record = reply.content["model"]
    assert int(record["seen"].numpy()) == 5
    return record["weight"].numpy().astype(np.float64)


def local_noise() -> None:
    """Whatever the app does, the answer is the clipped change and noise, in the form of what was sent."""
    mod = LocalNoise(Local(unit=client(relation="zero_out"), clip_norm=2.0, noise_multiplier=0.5, times=3))
    pulled = weight(mod(asked(), context(), answered(np.full(SIZE, FAR, np.float32))))
    assert abs(pulled.sum() / SIZE**0.5 - 2.0) < 8.0  # the clip norm in that direction, under noise of 1
    for update in (
        ValueError("Target 1717 is out of bounds."),
        SystemExit(17),
        np.full(SIZE, np.nan, np.float32),
        np.zeros(3, np.float32),
    ):
        noise = weight(mod(asked(), context(), answered(update)))
        assert 0.9 < noise.std() < 1.1
    own = context()
    for _ in range(3):
        mod(asked(), own, answered(RuntimeError("17")))
    refused = ""
    try:
        mod(asked(), own, answered(np.zeros(SIZE, np.float32)))
    except ValueError as error:
        refused = str(error)
    assert "has given its 3 answers" in refused


class Grid:
    """Nodes in this process: each message goes to a mod of its own, as in a process that is started for it."""

    def __init__(self, make: Any, apps: dict[int, Any]) -> None:
        self.make, self.apps, self.seen = make, apps, []
        self.contexts = {node: context() for node in apps}

    def get_node_ids(self) -> list[int]:
        return list(self.apps)

    def send_and_receive(self, messages: Any, timeout: float) -> list[Any]:
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            step = str(message.content.config_records[RECORD]["step"])
            if self.apps[node] is None and step == "masked":
                continue  # gone in the middle of the round
            reply = self.make(node)(message, self.contexts[node], self.apps[node])
            assert list(reply.content.keys()) == [RECORD]
            assert list(reply.content.config_records[RECORD]) == ["body"]
            replies.append(reply)
            self.seen.append((node, step, message, reply))
        return replies


def refused(call: Any) -> str:
    try:
        call()
    except DiscreetError as error:
        return str(error)
    raise AssertionError("it was not refused")


def secure_sums(noise: float | None) -> None:
    """The mean of those that stayed, also where one is gone, and nothing but what the protocol sends leaves a client."""
    identities = [Identity() for _ in range(5)]
    roster = [identity.public for identity in identities]
    plan = SecureSum(size=SIZE, clients=5, clip=1.0, threshold=3, bits=24)
    privacy, how = None, {}
    if noise is not None:
        unit = client(relation="zero_out")
        privacy = Distributed(unit=unit, clip_norm=30.0, noise_multiplier=noise, clients=5, honest=4, bits=24, times=2)
        place = Path(tempfile.mkdtemp()) / "ledger.db"
        with Ledger(place) as ledger:
            ledger.open("people", unit=unit, epsilon=4000.0, delta=1e-6)
        how = {"privacy": privacy, "source": "people", "ledger": str(place)}

    def mod(node: int) -> Any:
        return SecureUpdates(plan, roster, lambda _: (node - 1, identities[node - 1]), privacy=privacy)

    failing = answered(ValueError("Target 1717 is out of bounds."))
    apps = {n: answered(np.full(SIZE, 0.1 * n, np.float32)) for n in (1, 2, 3)} | {4: failing, 5: None}
    grid = Grid(mod, apps)
    strategy = SecureFedAvg(plan, roster, rounds=2, **how)
    start = {"weight": Array(np.zeros(SIZE, np.float32)), "seen": Array(np.asarray(np.int64(5)))}
    found = strategy.start(grid=grid, initial_arrays=ArrayRecord(start), num_rounds=2).arrays
    weight = found["weight"].numpy().astype(np.float64)
    first = (0.1 + 0.2 + 0.3) / 4  # one of the four that stayed changes nothing
    second = first + sum(0.1 * n - first for n in (1, 2, 3)) / 4
    assert int(found["seen"].numpy()) == 5
    slack = 1e-6 if noise is None else 6 * noise * 30.0 * (5 / 4 * 2 / SIZE) ** 0.5 / 4  # six deviations
    assert abs(weight.mean() - second) < slack
    assert noise is not None or np.abs(weight - second).max() < 1e-6
    if noise is not None:
        assert strategy.release is not None
        assert strategy.release.claims == tuple(strategy._claims)
        with Ledger(place) as ledger:
            assert ledger.payment(strategy.release) is not None
    for node, _, message, _ in grid.seen:  # nothing is answered twice
        refused(lambda node=node, message=message: mod(node)(message, grid.contexts[node], apps[node]))
    assert all(not bytes(grid.contexts[node].state.config_records[RECORD]["kept"]) for node in (1, 2, 3, 4))
    bodies = b"".join(bytes(reply.content.config_records[RECORD]["body"]) for *_, reply in grid.seen)
    assert b"1717" not in bodies
    assert np.full(8, 0.1, np.float32).tobytes() not in bodies


class Nodes:
    """Nodes without a mod, which answer at once."""

    def __init__(self, apps: dict[int, Any]) -> None:
        self.apps = apps

    def get_node_ids(self) -> list[int]:
        return list(self.apps)

    def send_and_receive(self, messages: Any, timeout: float) -> list[Any]:
        return [self.apps[message.metadata.dst_node_id](message, None) for message in messages]


def central() -> None:
    """A whole run of the central strategy: clipped updates over the divisor, one charge, and what is assumed of nodes."""
    privacy = Central(unit=client(), clip_norm=1.0, rate=1.0, divisor=4.0, noise_multiplier=0.1, delta=1e-6)
    place = Path(tempfile.mkdtemp()) / "ledger.db"
    with Ledger(place) as ledger:
        ledger.open("people", unit=client(), epsilon=4600.0, delta=1e-3)
    far = np.full(SIZE, FAR, np.float32)
    apps = {1: answered(far), 2: answered(far), 3: answered(far * np.nan), 4: answered(np.zeros(3, np.float32))}
    strategy = PrivateFedAvg(privacy, rounds=2, source="people", ledger=str(place))
    start = {"weight": Array(np.zeros(SIZE, np.float32)), "seen": Array(np.asarray(np.int64(5)))}
    weight = strategy.start(grid=Nodes(apps), initial_arrays=ArrayRecord(start), num_rounds=2).arrays["weight"].numpy()
    along = float(weight.astype(np.float64).sum() / SIZE**0.5)
    assert abs(along - 2 * 2 / 4) < 6 * 0.1 / 4 * 2**0.5  # two clients count in each of two rounds
    assert strategy.release is not None
    assert any("one node of the cluster" in each for each in strategy.release.claims[0].assumptions)
    with Ledger(place) as ledger:
        assert ledger.payment(strategy.release) is not None


def bad_plans() -> None:
    identities = [Identity() for _ in range(5)]
    roster = [identity.public for identity in identities]
    plan = SecureSum(size=4, clients=5, clip=1.0, threshold=3, bits=20)
    unit = client(relation="zero_out")
    given = {"unit": unit, "clip_norm": 1.0, "noise_multiplier": 1.0, "clients": 5, "honest": 5, "bits": 20, "times": 2}
    assert "threshold at least 4" in refused(
        lambda: SecureFedAvg(plan, roster, rounds=2, privacy=Distributed(**given), source="people")
    )
    fewer = Distributed(**{**given, "honest": 4, "times": 1})
    assert "with 2 rounds" in refused(lambda: SecureFedAvg(plan, roster, rounds=2, privacy=fewer, source="people"))
    assert "give both" in refused(lambda: SecureFedAvg(plan, roster, rounds=2, ledger="x"))
    assert "messages of SecureFedAvg only" in refused(
        lambda: SecureUpdates(plan, roster, lambda _: (0, identities[0]))(asked(), context(), None)
    )


if __name__ == "__main__":
    central()
    local_noise()
    secure_sums(None)
    secure_sums(0.05)
    bad_plans()
    print("ok")
