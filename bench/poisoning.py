"""Accuracy, and success of a backdoor, with 0 to 40 % malicious clients: every rule against every attack, IID and skewed.

    PYTHONPATH=src python bench/poisoning.py --data ../shared/data [--seeds N] [--quick] [--out bench/results/poisoning.json]
        [--plot docs/guides/poisoning.svg]

MNIST, a network of 784-32-10, 20 clients that all take part, 100 rows each on average, 12 rounds of FedAvg with one epoch;
`skewed` deals labels out by a Dirichlet law with alpha 0.5. Accuracy is on 1,000 test images. Each cell is the mean over seeds,
which draw the rows, the malicious clients and the start. Rules are told the true number of malicious clients, the best
they can hope for; FLTrust's server has 100 rows of its own; norms are bounded by twice the median length of an honest update
in the first round. Attacks: all labels flipped (c to 9 - c); updates times -5; a trigger of 9 pixels on half of the rows, which
are called 0, and updates times 3; -1 times the mean of the honest updates; noise in the place of training.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import gzip
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from _record import commit, write
from discreet.charts.frame import OTHER, Frame, line, on_paper, picture
from discreet.federate import Clients, FedAvg, simulate
from discreet.federate.exchange import Exchange, mean
from discreet.federate.poisoning import (
    FreeRiders,
    InnerProduct,
    Patch,
    Scaled,
    backdoor,
    backdoor_success,
    flip_labels,
    pick_malicious,
)
from discreet.federate.robust import FLTrust, Krum, Median, NormBound, TrimmedMean

torch.set_num_threads(1)
COUNT, ROWS, ROUNDS, OWN, TEST = 20, 100, 12, 100, 1000
SHARES = (0.0, 0.1, 0.2, 0.3, 0.4)
TRIGGER = Patch(tuple(28 * row + column for row in (24, 25, 26) for column in (24, 25, 26)), 1.0)
HOW = FedAvg(learning_rate=0.2, batch_size=25)
LOSS = nn.CrossEntropyLoss(reduction="none")
RULES = ("mean", "median", "trimmed mean", "Krum", "multi-Krum", "norm bound", "FLTrust")
ATTACKS = ("label flip", "scaled", "backdoor", "inner product", "free riders")


def images(folder: Path, name: str) -> tuple[Tensor, Tensor]:
    pixels = np.frombuffer(gzip.decompress((folder / f"{name}-images-idx3-ubyte.gz").read_bytes()), np.uint8, offset=16)
    labels = np.frombuffer(gzip.decompress((folder / f"{name}-labels-idx1-ubyte.gz").read_bytes()), np.uint8, offset=8)
    return torch.from_numpy(pixels.reshape(-1, 784) / np.float32(255)), torch.from_numpy(labels.astype(np.int64))


class World:
    """Rows, clients and start of one seed and one way to deal rows out."""

    def __init__(self, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], split: str, seed: int) -> None:
        chosen = torch.from_numpy(np.random.default_rng(seed).permutation(len(train[0]))[: COUNT * ROWS + OWN])
        inputs, targets = train[0][chosen[OWN:]], train[1][chosen[OWN:]]
        self.own = train[0][chosen[:OWN]], train[1][chosen[:OWN]]
        self.test, self.seed = (test[0][:TEST], test[1][:TEST]), seed
        if split == "skewed":
            self.clients = Clients.dirichlet(inputs, targets, clients=COUNT, alpha=0.5, seed=seed)
        else:
            self.clients = Clients.evenly(inputs, targets, clients=COUNT, seed=seed)
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
        seen: list[Exchange] = []
        simulate(self.model, self.clients, LOSS, strategy=HOW, rounds=1, seed=seed, watch=seen.append)
        self.bound = 2 * float(seen[0].updates.norm(dim=1).median())

    def rule(self, name: str, malicious: int) -> Callable[[Exchange], Tensor]:
        return {
            "mean": lambda: mean, "median": Median, "trimmed mean": lambda: TrimmedMean(malicious),
            "Krum": lambda: Krum(malicious), "multi-Krum": lambda: Krum(malicious, kept=COUNT - malicious - 2),
            "norm bound": lambda: NormBound(self.bound), "FLTrust": lambda: FLTrust(self.model, LOSS, self.own, HOW),
        }[name]()  # fmt: skip

    def run(self, rule: str, attack: str, share: float) -> tuple[float, float]:
        """Accuracy and success of the backdoor."""
        bad = pick_malicious(COUNT, share, seed=self.seed)
        clients, alter = self.clients, None
        if attack == "label flip":
            clients = flip_labels(clients, bad, classes=10)
        elif attack == "backdoor":
            clients, alter = backdoor(clients, bad, TRIGGER, target=0, share=0.5), Scaled(bad, 3.0)
        else:
            alter = {
                "scaled": Scaled(bad, -5.0),
                "inner product": InnerProduct(bad, 1.0),
                "free riders": FreeRiders(bad, 1e-3),
            }[attack]
        done = simulate(
            self.model, clients, LOSS, strategy=HOW, rounds=ROUNDS, seed=self.seed, rule=self.rule(rule, len(bad)), alter=alter
        )
        with torch.no_grad():
            right = float((done.model(self.test[0]).argmax(1) == self.test[1]).float().mean())
        return right, backdoor_success(done.model, *self.test, TRIGGER, target=0)


def measure(data: Path, seeds: int, shares: Sequence[float]) -> list[dict[str, Any]]:
    train, test = images(data / "mnist", "train"), images(data / "mnist", "t10k")
    rows = []
    for split in ("IID", "skewed"):
        worlds = [World(train, test, split, seed) for seed in range(seeds)]
        for rule in RULES:
            clean = [world.run(rule, "scaled", 0.0) for world in worlds]  # nobody is malicious: the same for every attack
            for attack in ATTACKS:
                for share in shares:
                    found = clean if share == 0 else [world.run(rule, attack, share) for world in worlds]
                    rows.append({
                        "split": split, "rule": rule, "attack": attack, "malicious": share,
                        "accuracy": statistics.mean(right for right, _ in found),
                        "backdoor": statistics.mean(success for _, success in found),
                        "accuracies": [right for right, _ in found], "backdoors": [success for _, success in found],
                    })  # fmt: skip
            print(split, rule, {r["attack"]: round(r["accuracy"], 2) for r in rows[-len(ATTACKS) * len(shares) :]
                                if r["malicious"] == shares[-1]}, flush=True)  # fmt: skip
    return rows


PAINT = ("#555555", "#3b6fd4", "#12906f", "#c0392b", OTHER, "#8e44ad", "#16a2b8")


def plot(rows: list[dict[str, Any]]) -> str:
    """A panel for each attack and split, a line for each rule."""
    panels = [(attack, "accuracy") for attack in ATTACKS] + [("backdoor", "backdoor")]
    width, height, parts = 300, 190, []
    for column, split in enumerate(("IID", "skewed")):
        for place, (attack, what) in enumerate(panels):
            frame = Frame((0.0, 0.4), (0.0, 1.0), width, height, top=26)
            heading = f"{attack}, {split}: {'success of the backdoor' if what == 'backdoor' else 'accuracy'}"
            inside = f'<text x="{frame.left}" y="16" font-weight="600">{heading}</text>' + frame.axes(across="malicious", up="")
            for rule, paint in zip(RULES, PAINT):
                points = [
                    (r["malicious"], r[what]) for r in rows if (r["split"], r["rule"], r["attack"]) == (split, rule, attack)
                ]
                inside += line(frame.path(points), "rule", paint, 1.8)
            parts.append(f'<g transform="translate({column * width} {place * height})">{inside}</g>')
    bottom = len(panels) * height + 6
    for place, (rule, paint) in enumerate(zip(RULES, PAINT)):
        x, y = 20 + (place % 4) * 145, bottom + 14 + 20 * (place // 4)
        parts.append(line(f"M{x} {y - 4} h22", "key", paint, 2.4) + f'<text x="{x + 28}" y="{y}">{rule}</text>')
    return on_paper(
        picture("".join(parts), kind="poisoning", size=(2 * width, bottom + 46), title="Rules against malicious clients",
                description="Accuracy, and success of the backdoor, by the share of malicious clients, for each rule.")
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="only without and with 30 %% malicious clients")
    parser.add_argument("--out")
    parser.add_argument("--plot", type=Path)
    asked = parser.parse_args()
    start = time.process_time()
    rows = measure(asked.data, asked.seeds, (0.0, 0.3) if asked.quick else SHARES)
    setting = {"clients": COUNT, "rows of a client": ROWS, "rounds": ROUNDS, "test rows": TEST, "seeds": asked.seeds}
    seconds = time.process_time() - start
    print(f"{seconds:.0f} CPU seconds")
    if asked.out:
        write(asked.out, {"commit": commit(), "setting": setting, "CPU seconds": seconds, "rows": rows}, "torch")
    if asked.plot:
        asked.plot.write_text(plot(rows) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
