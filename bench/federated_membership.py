"""What the parties of a federation learn of single rows, by observed rounds: CIFAR-100, a small network after AlexNet.

    PYTHONPATH=src python bench/federated_membership.py --data ../shared/data [--each N] [--rounds N]
        [--out bench/results/federated_membership.json]

Four clients train by FedAvg, one epoch a round. Of 2 `each` candidate rows each is in the first client's data by a fair coin,
and is what the attacks are asked about; the others have `each` rows. The ladder is that of Nasr et al. 2019 (57.4, 76.5, 79.5
and 85.1 % on AlexNet with 50,000 images, by five observed epochs of 300 each), scaled to the rounds of this run. `active`: in
the rounds of the second step the server moves the weights up the loss of 64 candidates, and asks about those. Accuracy is the
best threshold's. Epsilon is a lower bound at confidence 0.95, delta 1e-5; the run claims nothing.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from _record import commit, write
from discreet.attack.membership.federated import Ascent, RoundSignals, learned, passive_client, passive_server
from discreet.audit import epsilon_at_least, tpr_interval
from discreet.core import Evidence
from discreet.federate import Clients, FedAvg, simulate

torch.set_num_threads(1)
OTHERS, ASKED = 3, 64
LOSS = nn.CrossEntropyLoss(reduction="none")


def images(folder: Path, count: int) -> tuple[Tensor, Tensor]:
    mosaic = np.asarray(Image.open(folder / "cifar100" / "train-0.webp"))
    rows, columns = mosaic.shape[0] // 32, mosaic.shape[1] // 32
    tiles = mosaic.reshape(rows, 32, columns, 32, 3).swapaxes(1, 2).reshape(-1, 32, 32, 3)[:count]
    labels = np.load(folder / "cifar100" / "labels.npz")["train_0"][:count]
    scaled = (tiles.transpose(0, 3, 1, 2) / np.float32(255) - np.float32(0.45)) / np.float32(0.27)
    return torch.from_numpy(np.ascontiguousarray(scaled)), torch.from_numpy(labels.astype(np.int64))


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(2048, 128), nn.ReLU(), nn.Linear(128, 100),
    )  # fmt: skip


def reached(evidence: Evidence) -> dict[str, Any]:
    roc = [np.mean((evidence.score >= level) == evidence.inside) for level in np.unique(evidence.score)]
    return {
        "attack": evidence.attack, "rows": len(evidence), "AUC": evidence.auc(), "best accuracy": float(max(roc)),
        "TPR at 1 % FPR": evidence.tpr(0.01), "TPR at 1 % FPR, 95 % interval": list(tpr_interval(evidence, 0.01)),
        "TPR at 0.1 % FPR": evidence.tpr(0.001), "epsilon at least": epsilon_at_least(evidence, 1e-5, 0.95),
    }  # fmt: skip


def ladder(rounds: int) -> dict[str, list[int]]:
    """Five observed rounds for each step, of the last ones of its part."""
    return {
        "early": [round(rounds * epoch / 300) for epoch in (5, 10, 15, 20, 25)],
        "first sixth": [round(rounds * epoch / 300) for epoch in (10, 20, 30, 40, 50)],
        "first five sixths": [round(rounds * epoch / 300) - 1 for epoch in (50, 100, 150, 200, 250)],
        "all": [round(rounds * epoch / 300) - 1 for epoch in (100, 150, 200, 250, 300)],
    }


def only(found: RoundSignals, rounds: list[int]) -> RoundSignals:
    """The same signals, of some rounds."""
    part = object.__new__(RoundSignals)
    part.labels = found.labels
    places = [found.rounds.index(number) for number in sorted(set(rounds))]
    for name in ("rounds", "clients", "own", "sent"):
        setattr(part, name, [getattr(found, name)[place] for place in places])
    return part


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--each", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--out")
    asked = parser.parse_args()
    start, each = time.process_time(), asked.each
    X, y = images(asked.data, (2 + OTHERS) * each)
    inside = np.random.default_rng(0).random(2 * each) < 0.5
    kept = np.concatenate([inside, np.ones(OTHERS * each, bool)])
    owner = np.concatenate([np.zeros(2 * each, int), np.repeat(np.arange(1, OTHERS + 1), each)])
    clients = Clients.by_column(X[kept], y[kept], owner[kept])
    how = FedAvg(learning_rate=0.05, batch_size=20, momentum=0.9)
    steps = ladder(asked.rounds)
    found = RoundSignals(net(), X[: 2 * each], y[: 2 * each], rounds={number for some in steps.values() for number in some})
    right: list[float] = []

    def test(model: nn.Module) -> None:
        with torch.no_grad():
            right.append(float((model(X[2 * each : 3 * each]).argmax(1) == y[2 * each : 3 * each]).float().mean()))

    def say(done: int, total: int) -> None:
        print(f"round {done} of {total}, {time.process_time() - start:.0f} CPU seconds", flush=True)

    simulate(net(), clients, LOSS, strategy=how, rounds=asked.rounds, watch=found, evaluate=test, progress=say)
    rows = []
    for name, rounds in steps.items():
        some = only(found, rounds)
        for party, evidence in (
            ("passive server", passive_server(some, inside, client=0, design="canary")),
            ("passive server, learned", learned(some, inside, client=0, design="canary")),
            ("passive client", passive_client(some, inside, design="canary")),
        ):
            rows.append({"observed": name, "rounds": rounds, "party": party, **reached(evidence)})
            print(rows[-1]["observed"], party, round(rows[-1]["best accuracy"], 3), round(rows[-1]["AUC"], 3), flush=True)
    few, late = slice(0, ASKED), steps["first sixth"]
    send = Ascent(net(), X[few], y[few], rate=1.0, rounds=late)
    active = RoundSignals(net(), X[few], y[few], rounds=late)
    simulate(net(), clients, LOSS, strategy=how, rounds=max(late) + 1, watch=active, send=send)
    passive = passive_server(only(found, late), inside, client=0)
    for party, evidence in (
        ("active server", passive_server(active, inside[few], client=0, design="canary")),
        ("passive server, the same rows", Evidence(
            game=passive.game, attack=passive.attack, score=passive.score[few], inside=inside[few], run=passive.run[few],
            design="canary")),
    ):  # fmt: skip
        rows.append({"observed": "first sixth", "rounds": late, "party": party, **reached(evidence)})
        print(party, round(rows[-1]["best accuracy"], 3), round(rows[-1]["AUC"], 3))
    setting = {"clients": 1 + OTHERS, "rows of a client": each, "candidates": 2 * each, "rounds": asked.rounds,
               "accuracy on rows that another client trained on": right[-1]}  # fmt: skip
    if asked.out:
        write(asked.out, {"commit": commit(), "setting": setting, "CPU seconds": time.process_time() - start, "rows": rows},
              "torch")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
