"""Flower's own simulation (Ray, two workers), one round when told: python flower_simulation.py mlp|cnn CLIENTS_PER_ROUND"""

from __future__ import annotations

import os
import sys

os.environ |= {"OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
os.environ["PYTHONPATH"] = os.path.dirname(os.path.abspath(__file__))

from federated_clients import CLIENTS, ROWS, Turns, network, rows, train
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

KIND, EACH = sys.argv[1], int(sys.argv[2])
client, server, turns = ClientApp(), ServerApp(), Turns()


@client.train()
def fit(message, context):
    cache = sys.modules["federated_clients"].__dict__.setdefault("_cache", {})  # reading rows is not what is timed
    number = context.node_config["partition-id"]
    if number not in cache:
        cache[number] = rows(number)
    model = network(KIND)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    train(model, *cache[number])
    told = MetricRecord({"num-examples": ROWS})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": told}), reply_to=message)


@server.main()
def main(grid, context):
    def after(number, arrays):
        if not turns.next():
            os._exit(0)

    FedAvg(fraction_train=EACH / CLIENTS, fraction_evaluate=0.0, min_available_nodes=2).start(
        grid=grid, initial_arrays=ArrayRecord(network(KIND).state_dict()), num_rounds=10**6, evaluate_fn=after
    )


if __name__ == "__main__":
    workers = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}}
    run_simulation(server, client, num_supernodes=CLIENTS, backend_config=workers)
