"""Client canaries: what they cost, how often they refute planted bugs, and how often a sound run.

    PYTHONPATH=src python bench/federated_canaries.py [--runs N] [--rounds N] [--out bench/results/federated_canaries.json]

`cost`: private FedAvg (784-32-10, 500 made-up clients of 60 rows, about 20 a round, five epochs), without and with 100
canaries, in turn; CPU seconds. `power`: four rounds, noise multiplier 2, all 60 clients take part, as many canaries as there
are parameters; refuted at confidence 0.95. The planted bugs are those of a stock wrapper: noise on a mean whose divisor shrinks
when half of the clients drop out; a mean weighted by rows, of which each of 300 canaries has a hundred times as many as each of
1,500 clients; parameters without a dimension that are not clipped (the model has many); and sampling that is claimed (rate
0.25) while all take part.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from _record import commit, write
from discreet.audit import epsilon_at_least, verdict
from discreet.federate import Central, Clients, FedAvg, FedSGD, client, noisy, simulate
from discreet.noise.vectors import gaussian

torch.set_num_threads(1)
LOSS = nn.CrossEntropyLoss(reduction="none")
ROUNDS, CLIENTS, NOISE = 4, 60, 2.0
MANY, HEAVY, SCALARS = 1500, 300, 400
CLAIM = Central(unit=client(), clip_norm=1.0, rate=1.0, divisor=CLIENTS, noise_multiplier=NOISE, delta=1e-5)


class Scalars(nn.Module):
    """A linear score whose parameters have no dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ParameterList([nn.Parameter(torch.zeros(())) for _ in range(SCALARS)])

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.stack(list(self.parts))


class Vector(nn.Module):
    """The same with one parameter."""

    size = 4000

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(self.size))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


class Long(Vector):
    size = 8000


def pull(output: Tensor, target: Tensor) -> Tensor:
    return -(output * target[:, None]).sum(1)


class HalfGone(noisy.Trusted):
    """The divisor is how many answered, and half of the clients drop out: noise as for all, on a mean of half of them."""

    def aggregate(self, exchange: Any, rule: Any) -> Tensor:
        total = sum(self.grid.rounded(noisy._shrunk(u, self.scheme.clip_norm, float(w)))
                    for u, w in zip(exchange.updates, exchange.weights))  # fmt: skip
        noise = gaussian(self.key, self.sigma, self.size, step=exchange.number) // 2
        return torch.from_numpy((total + noise) * (self.scheme.clip_norm / self.grid.radius / self.scheme.divisor)).float()


class ByRows(noisy.Trusted):
    """The mean weighted by rows; canaries hold a hundred times as many as others."""

    def aggregate(self, exchange: Any, rule: Any) -> Tensor:
        heavy = torch.where(torch.from_numpy(exchange.clients >= MANY), 100.0, 1.0)
        heavy = heavy / heavy.sum() * len(heavy)
        total = sum(float(w) * self.grid.rounded(noisy._shrunk(u, self.scheme.clip_norm, 1.0))
                    for u, w in zip(exchange.updates, heavy))  # fmt: skip
        noise = gaussian(self.key, self.sigma, self.size, step=exchange.number)
        return torch.from_numpy((total + noise) * (self.scheme.clip_norm / self.grid.radius / self.scheme.divisor)).float()


class Unclipped(noisy.Trusted):
    """What has no dimension is not clipped; here that is everything."""

    def aggregate(self, exchange: Any, rule: Any) -> Tensor:
        step = self.scheme.clip_norm / self.grid.radius
        total = np.rint(exchange.updates.double().sum(0).numpy() / step)
        noise = gaussian(self.key, self.sigma, self.size, step=exchange.number)
        return torch.from_numpy((total + noise) * step / self.scheme.divisor).float()


class Everybody(noisy.Trusted):
    """Clients are not sampled."""

    def draw(self, number: int, clients: int) -> Any:
        return np.arange(clients)


SAMPLED = replace(CLAIM, rate=0.25, divisor=CLIENTS / 4)
Case = tuple[type[noisy.Trusted], Central, type[nn.Module], int, int]
CASES: dict[str, Case] = {
    "sound": (noisy.Trusted, CLAIM, Vector, CLIENTS, Vector.size),
    "sound, sampled": (noisy.Trusted, SAMPLED, Vector, CLIENTS, Vector.size),
    "half drop out": (HalfGone, CLAIM, Long, CLIENTS, Long.size),
    "weighted by rows": (ByRows, replace(CLAIM, divisor=MANY), Vector, MANY, HEAVY),
    "no dimension, not clipped": (Unclipped, CLAIM, Scalars, CLIENTS, SCALARS),
    "claimed sampling": (Everybody, SAMPLED, Vector, CLIENTS, Vector.size),
}


@contextlib.contextmanager
def planted(twin: type[noisy.Trusted]) -> Iterator[None]:
    was, noisy.Trusted = noisy.Trusted, twin  # type: ignore[misc]
    try:
        yield
    finally:
        noisy.Trusted = was  # type: ignore[misc]


def power(runs: int) -> list[dict[str, Any]]:
    draw, rows = torch.Generator().manual_seed(0), []
    for name, (twin, claim, model, count, canaries) in CASES.items():
        size = sum(p.numel() for p in model().parameters())
        clients = Clients.evenly(torch.randn(count, size, generator=draw), torch.ones(count), clients=count, seed=0)
        refuted, floors = 0, []
        for _ in range(runs):
            with planted(twin):
                done = simulate(model(), clients, pull, strategy=FedSGD(learning_rate=0.01, weighting="equal"), rounds=ROUNDS,
                                privacy=claim, source="made up", canaries=canaries)  # fmt: skip
            assert done.release is not None
            (evidence,) = done.release.evidence
            refuted += verdict(done.release.claims[0], evidence, confidence=0.95).outcome == "refuted"
            floors.append(epsilon_at_least(evidence, 1e-5, 0.95))
        asked = claim.asked(ROUNDS, size)
        rows.append({"case": name, "canaries": canaries, "runs": runs, "refuted": refuted, "claim": asked and asked[0],
                     "median floor": float(np.median(floors))})  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def cost(rounds: int) -> dict[str, Any]:
    torch.manual_seed(0)
    clients = Clients.evenly(torch.randn(30_000, 784), torch.randint(0, 10, (30_000,)), clients=500, seed=0)
    model = nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
    claim = Central(unit=client(), clip_norm=1.0, rate=0.04, divisor=20, noise_multiplier=1.0, delta=1e-5)
    ratios = []
    for number in range(rounds + 1):
        seconds = []
        for canaries in (None, 100):
            start = time.process_time()
            simulate(model, clients, LOSS, strategy=FedAvg(learning_rate=0.1, epochs=5, batch_size=20, weighting="equal"),
                     rounds=40, privacy=claim, source="made up", canaries=canaries, seed=number)  # fmt: skip
            seconds.append(time.process_time() - start)
        if number:
            ratios.append(seconds[1] / seconds[0])
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    return {"canaries": 100, "clients": 500, "per round": 20, "time with over without": middle, "quartiles": [low, high]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out")
    asked = parser.parse_args()
    found = {"cost": cost(asked.rounds), "power": power(asked.runs)}
    print(json.dumps(found["cost"]))
    if asked.out:
        write(asked.out, {"commit": commit(), **found}, "torch")
    return 0


if __name__ == "__main__":
    sys.exit(main())
