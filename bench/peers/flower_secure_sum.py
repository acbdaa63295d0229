"""Flower's SecAgg+ (flwr>=1.41,<2, in an environment of its own): what the sum of ten updates costs in its workflow.

    python bench/peers/flower_secure_sum.py [--rounds N] [--out FILE]

Ten clients answer with an update each, of 101,770 numbers, that is there already: nobody trains, and nothing is sent over a
wire. Server and clients are Flower's own (`SecAggPlusWorkflow`, `secaggplus_mod`, `default_fit_workflow`, its message API), and
a grid that calls each client in turn stands for its network. CPU seconds of a round, of the server and all clients together.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"

import argparse
import copy
import json
import logging
import statistics
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.compat.common import recorddict_compat as compat
from flwr.server import LegacyContext, ServerConfig, SimpleClientManager
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.server.strategy import FedAvg
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.default_workflows import default_fit_workflow
from flwr.supercore.task_identity import TaskIdentity

CLIENTS, SIZE = 10, 101_770


def context(node: int) -> Context:
    return Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={}, series_id=None)


class Nodes:
    """Ten nodes in this process."""

    run = type("Run", (), {"run_id": 1})()

    def __init__(self, updates: Any, secure: bool) -> None:
        self.updates, self.secure = updates, secure
        self.contexts = {node: context(node) for node in range(1, CLIENTS + 1)}

    def get_node_ids(self) -> list[int]:
        return list(self.contexts)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            message = copy.deepcopy(message)  # as a wire would
            if self.secure:
                reply = secaggplus_mod(message, self.contexts[node], self.client)
            else:
                reply = self.client(message, self.contexts[node])
            reply.metadata._src_node_id = node
            replies.append(reply)
        return replies

    def client(self, message: Message, _: Context) -> Message:
        node = message.metadata.dst_node_id
        found = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([self.updates[node - 1]]), 1, {})
        return Message(compat.fitres_to_recorddict(found, keep_input=False), reply_to=message)


def one(secure: bool, updates: Any) -> tuple[float, float]:
    """CPU seconds of a round, and how far the mean is off."""
    nodes, manager = Nodes(updates, secure), SimpleClientManager()
    for node in nodes.get_node_ids():
        manager.register(GridClientProxy(node_id=node, grid=nodes, run_id=1))  # type: ignore[arg-type]
    strategy = FedAvg(fraction_fit=1.0, min_fit_clients=CLIENTS, min_available_clients=CLIENTS)
    world = LegacyContext(context(0), ServerConfig(num_rounds=1), strategy, manager)
    world.state.config_records["config"] = ConfigRecord({"current_round": 1, "start_time": 0.0})
    start_at = compat.parameters_to_arrayrecord(ndarrays_to_parameters([np.zeros(SIZE, np.float32)]), keep_input=False)
    world.state.array_records["parameters"] = start_at
    work = SecAggPlusWorkflow(num_shares=1.0, reconstruction_threshold=0.7) if secure else default_fit_workflow
    start = time.process_time()
    work(nodes, world)  # type: ignore[operator,arg-type]
    seconds = time.process_time() - start
    record = world.state.array_records["parameters"]
    mean = parameters_to_ndarrays(compat.arrayrecord_to_parameters(record, keep_input=True))[0]
    return seconds, float(np.abs(mean - updates.astype(np.float64).mean(0)).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out")
    asked = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    updates = np.random.default_rng(0).normal(0, 0.1, (CLIENTS, SIZE)).astype(np.float32)
    plain, secure = [], []
    for number in range(asked.rounds + 1):
        pair = one(False, updates), one(True, updates)
        if number:
            plain.append(pair[0])
            secure.append(pair[1])
    found = {
        "flwr": version("flwr"), "clients": CLIENTS, "parameters": SIZE, "rounds": asked.rounds,
        "plain sum alone, CPU seconds": statistics.median(seconds for seconds, _ in plain),
        "secure sum alone, CPU seconds": statistics.median(seconds for seconds, _ in secure),
        "error of the plain mean": max(off for _, off in plain), "error of the secure mean": max(off for _, off in secure),
    }  # fmt: skip
    print(json.dumps(found, indent=1))
    if asked.out:
        Path(asked.out).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
