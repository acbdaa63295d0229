"""What client mods answer, message by message, in the environment of Flower: python flower_mods.py"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from discreet.federate import Local, client
from discreet.integrations.flower import LocalNoise

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


if __name__ == "__main__":
    local_noise()
    print("ok")
