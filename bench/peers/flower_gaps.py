"""What noise Flower's wrapper for central privacy delivers, and what discreet's strategy does: python flower_gaps.py

Answers of clients are made by hand and given to both, without a network. The influence of a client is what the result moves
when its update is large instead of none, with the same noise; noise over influence is the noise multiplier that really holds.
Both are asked for 1.0. Needs flwr and discreet in one environment. Prints JSON.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import NeighboringRelation, PrivacyConfig, SamplingMethod
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.supercore.privacy_accounting import GaussianPrivacyEvent

from discreet.accounting import Gaussian, Poisson, Repeat, curve
from discreet.federate import Central, client
from discreet.federate.noisy import Trusted
from discreet.integrations.flower import PrivateFedAvg

logging.disable(logging.CRITICAL)
SIZE, CLIENTS = 1000, 10
Update = dict[str, np.ndarray]

try:  # messages want an identity
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
except ImportError:
    pass


def replies(updates: list[Update], rows: list[int]) -> list[Any]:
    found = []
    for number, (update, count) in enumerate(zip(updates, rows), 1):
        asked = Message(content=RecordDict(), dst_node_id=number, message_type="train")
        arrays = ArrayRecord({name: Array(value) for name, value in update.items()})
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": count})})
        found.append(Message(content, reply_to=asked))
    return found


def zeros(update: Update) -> Any:
    return ArrayRecord({name: Array(np.zeros_like(value)) for name, value in update.items()})


def stock(updates: list[Update], rows: list[int], asked: int) -> list[np.ndarray]:
    wrapped = DifferentialPrivacyServerSideFixedClipping(
        FedAvg(), noise_multiplier=1.0, clipping_norm=1.0, num_sampled_clients=asked
    )
    wrapped.current_arrays = zeros(updates[0])
    np.random.seed(7)
    return wrapped.aggregate_train(1, replies(updates, rows))[0].to_numpy_ndarrays()


def ours(updates: list[Update], rows: list[int], asked: int) -> list[np.ndarray]:
    privacy = Central(unit=client(), clip_norm=1.0, noise_multiplier=1.0, rate=1.0, divisor=float(asked), cap=max(rows))
    strategy = PrivateFedAvg(privacy, rounds=1, source="gaps", ledger=None)
    strategy._sizes(zeros(updates[0]))
    strategy._weights = strategy._flat(zeros(updates[0]).to_numpy_ndarrays())
    strategy._memory, strategy._asked = [], set(range(1, asked + 1))
    strategy._trusted = Trusted(privacy, 1.0, 1, strategy._size, bytes(32))  # a fixed key, so that the noise is the same twice
    return strategy.aggregate_train(1, replies(updates, rows))[0].to_numpy_ndarrays()


def one(first: float) -> Update:
    vector = np.full(SIZE, 1e-6, np.float32)
    vector[0] = first
    return {"weight": vector}


def tempered(value: float) -> Update:
    return {"weight": np.full(SIZE, 1e-6, np.float32), "temperature": np.array(value, np.float32)}


def effective(aggregate: Any, rows: list[int], answers: int) -> float:
    with_it, without = (
        aggregate([one(first)] + [one(1e-6)] * (answers - 1), rows[:answers], CLIENTS) for first in (100.0, 1e-6)
    )
    return float(with_it[0][1:].std() / (with_it[0][0] - without[0][0]))


def unclipped(aggregate: Any) -> float:
    with_it, without = (aggregate([tempered(value), tempered(1e-6)], [1, 1], 2) for value in (1000.0, 1e-6))
    return float(without[0].std() / abs(float(with_it[1]) - float(without[1])))


def unchanged(aggregate: Any) -> str:
    try:
        aggregate([{"weight": np.zeros(SIZE, np.float32)}] * 2, [1, 1], 2)
    except Exception as error:
        return type(error).__name__
    return "a round like any other"


def epsilons() -> dict[str, float]:
    """100 rounds, noise multiplier 1, 10 of 1000 clients, delta 1e-5."""
    from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant

    accountant = RdpAccountant(
        PrivacyConfig(
            target_delta=1e-5, population_size=1000, sampling_method=SamplingMethod.NO_AMPLIFICATION,
            neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
        )
    )  # fmt: skip
    accountant.compose(GaussianPrivacyEvent(1.0, 10, 1000), 100)
    mine = curve(Repeat(Poisson(0.01, Gaussian(1.0)), 100)).epsilon(1e-5)
    return {"flower": accountant.get_privacy_spent().epsilon, "discreet": float(mine)}


def main() -> None:
    even, skewed = [1] * CLIENTS, [991] + [1] * (CLIENTS - 1)
    found: dict[str, Any] = {"epsilon": epsilons()}
    for name, aggregate in (("flower", stock), ("discreet", ours)):
        found[name] = {
            "all alike, all answer": effective(aggregate, even, CLIENTS),
            "one client has 99 % of the rows": effective(aggregate, skewed, CLIENTS),
            "5 of 10 answer": effective(aggregate, even, 5),
            "a parameter of no dimension": unclipped(aggregate),
            "the model comes back unchanged": unchanged(aggregate),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
