"""Federated training on the worst neighbours we know, and the mistakes of a stock wrapper, each of which breaks the claim.

Noise is seeded, so this is the same every time. Every verdict is asked at confidence 1 - 1e-6.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from discreet.audit import verdict
from discreet.core import Evidence, Verdict, record
from discreet.federate import Central, Clients, Distributed, Exchange, FedSGD, Local, PrivateSGD, Training, client, noisy
from discreet.noise.source import seeded_for_tests
from discreet.noise.vectors import VectorGrid

CONFIDENCE, RUNS = 1 - 1e-6, 200
OTHERS = 9
NOISE = 4.0
STILL = torch.zeros(1), torch.zeros(1)


class Tempered(nn.Module):
    """Its last parameter has no dimension, and its gradient is what a row says."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.temperature = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight + x * self.temperature


def loss(output: Tensor, target: Tensor) -> Tensor:
    return -output * target


def clients(*, rows: int = 1, there: bool, gone: bool = True) -> Clients:
    """A client that pulls hard, and others who pull not at all."""
    mine = (torch.full((rows,), 30.0), torch.ones(rows)) if there else (torch.zeros(0), torch.zeros(0))
    all_of_them = [STILL] * OTHERS if gone and not there else [mine, *[STILL] * OTHERS]
    return Clients(all_of_them.__getitem__, len(all_of_them))


def played(training: Training, there: Clients, gone: Clients, at: Any = slice(None)) -> Verdict:
    inside = np.arange(RUNS) % 2 == 0
    with seeded_for_tests(b"federated"):
        scores = [float(training.run(there if is_in else gone)[:, at].sum()) for is_in in inside]
    claim = training.claims()[0]
    seen = Evidence(game=claim.game, attack="pull", score=np.array(scores), inside=inside, run=np.arange(RUNS), design="paired")
    return verdict(claim, seen, confidence=CONFIDENCE)


def training(privacy: Any, **how: Any) -> Training:
    strategy = how.pop("strategy", FedSGD(learning_rate=1.0))
    return Training(Tempered(), loss, strategy=strategy, privacy=privacy, rounds=how.pop("rounds", 1), **how)


def central(**how: Any) -> Central:
    given: dict[str, Any] = {"clip_norm": 1.0, "noise_multiplier": NOISE, "rate": 1.0, "divisor": OTHERS + 1.0}
    return Central(unit=client(), **{**given, **how})


BLANK = client(relation="zero_out")
SOUND: dict[str, tuple[Any, bool]] = {
    "central": (central(), True),
    "central, weighted": (central(cap=2), True),
    "central, banded": (central(rate=0.5, bands=2), True),
    "local": (Local(unit=BLANK, clip_norm=1.0, noise_multiplier=NOISE), False),
    "distributed": (Distributed(unit=BLANK, clip_norm=1.0, noise_multiplier=NOISE, clients=10, honest=8), False),
}


@pytest.mark.parametrize("name", SOUND)
def test_what_is_claimed_holds(name: str) -> None:
    scheme, gone = SOUND[name]
    rounds = 4 if name == "central, banded" else 1
    found = played(training(scheme, rounds=rounds), clients(rows=50, there=True), clients(there=False, gone=gone))
    assert found.outcome == "holds"


def test_rows_of_one_client_hold() -> None:
    sgd = PrivateSGD(
        unit=record(), learning_rate=1.0, steps=3, rate=0.5, divisor=1.0, clip_norm=1.0, noise_multiplier=NOISE, times=1
    )
    assert played(training(None, strategy=sgd), clients(there=True), clients(there=False, gone=False)).outcome == "holds"


def weighted_by_rows(self: Any, exchange: Exchange, rule: Any) -> Tensor:
    """A mean weighted by rows, with the noise of a mean in which all count the same."""
    rows = torch.where(exchange.updates.norm(dim=1) > 0, 1000.0, 1.0)
    clipped = exchange.updates / exchange.updates.norm(dim=1, keepdim=True).clamp(min=1.0)
    noise = self.grid.noise(self.key, step=exchange.number) / self.grid.radius / len(rows)
    return (rows / rows.sum()) @ clipped + torch.from_numpy(noise).float()


def over_answers(self: Any, exchange: Exchange, rule: Any) -> Tensor:
    """The sum over those who answered, the noise over those who were asked."""
    clipped = exchange.updates / exchange.updates.norm(dim=1, keepdim=True).clamp(min=1.0)
    noise = self.grid.noise(self.key, step=exchange.number) / self.grid.radius / len(clipped)
    answered = exchange.weights > 0
    return clipped[answered].sum(0) / answered.sum().clamp(min=1) + torch.from_numpy(noise).float()


def without_the_last(update: Tensor, clip_norm: float, weight: float) -> Any:
    """Parameters of no dimension are left as they are."""
    vector = update.double().numpy().copy()
    vector[:-1] *= min(1.0, clip_norm / max(np.linalg.norm(vector), 1e-12))
    return vector


def others_drop_out(exchange: Exchange) -> Tensor:
    updates = exchange.updates.clone()
    updates[1:] = torch.nan
    return updates


def test_weights_that_are_not_bounded_are_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noisy.Trusted, "aggregate", weighted_by_rows)
    assert played(training(central()), clients(there=True), clients(there=False)).outcome == "refuted"


def test_a_divisor_that_drop_outs_shrink_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = training(central(), alter=others_drop_out)
    pair = clients(there=True), clients(there=False, gone=False)
    assert played(sound, *pair).outcome == "holds"
    monkeypatch.setattr(noisy.Trusted, "aggregate", over_answers)
    assert played(training(central(), alter=others_drop_out), *pair).outcome == "refuted"


def test_a_parameter_that_is_not_clipped_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noisy, "shrunk", without_the_last)
    monkeypatch.setattr(VectorGrid, "rounded", lambda self, v: np.rint(v * self.radius / self.clip_norm).astype(np.int64))
    assert played(training(central()), clients(there=True), clients(there=False)).outcome == "refuted"


def test_rounds_without_noise_where_nothing_changed_are_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = noisy.Trusted.aggregate

    def skipping(self: Any, exchange: Exchange, rule: Any) -> Tensor:
        return sound(self, exchange, rule) if bool(exchange.updates.any()) else torch.zeros_like(exchange.before)

    def told(self: Any, exchange: Exchange, rule: Any) -> Tensor:
        return (skipping(self, exchange, rule) != 0).float()

    monkeypatch.setattr(noisy.Trusted, "aggregate", told)  # whether there was noise, which anyone sees
    assert played(training(central()), clients(there=True), clients(there=False)).outcome == "refuted"


def test_half_the_noise_of_dishonest_clients_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client draws its part for ten others of whom only one did."""
    scheme = SOUND["distributed"][0]
    drawn = noisy.gaussian
    monkeypatch.setattr(noisy, "gaussian", lambda key, sigma, size, *, step: drawn(key, max(sigma // 10, 1), size, step=step))
    assert played(training(scheme), clients(there=True), clients(there=False, gone=False)).outcome == "refuted"
