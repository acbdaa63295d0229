"""Hospitals train a model together, privately: what it costs in accuracy to bound what the model tells of a whole hospital.

python examples/federated_hospitals.py
"""

import numpy as np
import torch
from torch import nn

from discreet.federate import Central, Clients, FedAvg, client, simulate

HOSPITALS, ROUNDS = 200, 15
LOSS = nn.CrossEntropyLoss(reduction="none")


def patients(seed: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows with a label, each of some hospital; some hospitals are large."""
    draw = np.random.default_rng(seed)
    rows = draw.normal(size=(count, 12)).astype(np.float32)
    ill = rows[:, 0] * rows[:, 1] + rows[:, 2] > 0
    return rows, ill.astype(np.int64), (HOSPITALS * draw.random(count) ** 1.5).astype(int)


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 2))
    clients = Clients.by_column(*patients(0, 6_000))
    test = patients(1, 4000)
    strategy = FedAvg(learning_rate=0.5, epochs=3, batch_size=16)

    plain = simulate(model, clients, LOSS, strategy=strategy, rounds=ROUNDS, per_round=60)
    print(f"no privacy: {right(plain.model, test):.3f} right")
    for epsilon in (8.0, 2.0):
        privacy = Central(unit=client("hospital"), clip_norm=1.0, rate=0.3, divisor=60, epsilon=epsilon, delta=1e-5)
        done = simulate(model, clients, LOSS, strategy=strategy, rounds=ROUNDS, privacy=privacy, source="hospitals")
        print(f"epsilon {epsilon:g} for a whole hospital: {right(done.model, test):.3f} right")


def right(model: nn.Module, test: tuple[np.ndarray, np.ndarray, np.ndarray]) -> float:
    with torch.no_grad():
        return float((model(torch.from_numpy(test[0])).argmax(1).numpy() == test[1]).mean())


if __name__ == "__main__":
    main()
