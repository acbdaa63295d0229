"""pfl's simulation, one round when told: python pfl_simulation.py mlp|cnn CLIENTS_PER_ROUND"""

from __future__ import annotations

import os
import sys

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch
import torch.nn.functional as F
from federated_clients import BATCH, CLIENTS, RATE, Turns, network, rows
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel

KIND, EACH = sys.argv[1], int(sys.argv[2])
turns = Turns()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = network(KIND)

    def forward(self, x):
        return self.inner(x)

    def loss(self, x, y, eval=False):
        return F.cross_entropy(self(x), y)

    def metrics(self, x, y, eval=False):
        return {}


class WaitForTurn(TrainingProcessCallback):
    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        if not turns.next():
            os._exit(0)
        return False, Metrics()


def main():
    kept = {number: Dataset(list(rows(number))) for number in range(CLIENTS)}
    users = FederatedDataset(kept.__getitem__, get_user_sampler("random", list(range(CLIENTS))))
    net = Net()
    model = PyTorchModel(net, lambda p, lr: torch.optim.SGD(p, lr), torch.optim.SGD(net.parameters(), 1.0))
    FederatedAveraging().run(
        NNAlgorithmParams(central_num_iterations=10**6, evaluation_frequency=10**6, train_cohort_size=EACH, val_cohort_size=0),
        SimulatedBackend(training_data=users, val_data=None), model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=RATE, local_batch_size=BATCH),
        NNEvalHyperParams(local_batch_size=10000), callbacks=[WaitForTurn()],
    )  # fmt: skip


if __name__ == "__main__":
    main()
