"""Client canaries: what a run shows of itself, and a planted bug that they refute.

Coins and noise are seeded here, so this is the same every time. bench/federated_canaries.py has the rates over many runs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from discreet import Ledger
from discreet.audit import epsilon_at_least, verdict
from discreet.core import Verdict, record
from discreet.errors import InvalidValue
from discreet.federate import (
    Central,
    Clients,
    Distributed,
    FedAvg,
    FedSGD,
    Local,
    PrivateSGD,
    Simulation,
    Training,
    canaries,
    client,
    noisy,
    simulate,
)
from discreet.federate.simulation import _Hooks
from discreet.noise.source import open_source, seeded_for_tests

SIZE, COUNT = 600, 500
CENTRAL = Central(unit=client(), clip_norm=1.0, rate=1.0, divisor=20, noise_multiplier=2.0, delta=1e-5)
SCHEMES: dict[str, Any] = {
    "central": CENTRAL,
    "sampled": replace(CENTRAL, rate=0.5, noise_multiplier=1.0),
    "replaced": replace(CENTRAL, unit=client(relation="replace"), noise_multiplier=4.0),
    "banded": replace(CENTRAL, rate=0.5, bands=2, noise_multiplier=1.0),
    "local": Local(unit=client(relation="zero_out"), clip_norm=1.0, noise_multiplier=2.0),
    "distributed": Distributed(unit=client(relation="zero_out"), clip_norm=1.0, noise_multiplier=2.0, clients=600, honest=500),
}


class Vector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(SIZE))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


def pull(output: Tensor, target: Tensor) -> Tensor:
    return -(output * target[:, None]).sum(1)


@pytest.fixture(scope="module")
def clients() -> Clients:
    draw = torch.Generator().manual_seed(0)
    return Clients.evenly(torch.randn(20, SIZE, generator=draw), torch.ones(20), clients=20, seed=0)


def run(scheme: Any) -> Training:
    how = FedSGD(learning_rate=0.01, weighting="equal")
    return Training(Vector(), pull, strategy=how, rounds=4, privacy=scheme, canaries=COUNT)


def judged(clients: Clients, scheme: Any, seed: bytes = b"canaries") -> tuple[Verdict, Any]:
    training = run(scheme)
    with seeded_for_tests(seed):
        found = training._rounds(clients, open_source().take(32), None, _Hooks(), None)
    assert found.canaries is not None
    (evidence,) = found.canaries.evidence(training.claims())
    return verdict(training.claims()[0], evidence, confidence=0.95), evidence


@pytest.mark.parametrize("name", sorted(SCHEMES))
def test_a_sound_run_is_not_refuted_and_its_canaries_are_seen(clients: Clients, name: str) -> None:
    said, evidence = judged(clients, SCHEMES[name])
    assert said.outcome in ("holds", "inconclusive")
    assert evidence.auc() > 0.6  # they are seen, so that a sound run is a test
    assert 0 < epsilon_at_least(evidence, 1e-5, 0.95) < said.ceiling or said.outcome == "inconclusive"


def test_no_clipping_is_refuted(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unclipped(noisy.Trusted):
        def aggregate(self, exchange: Any, rule: Any) -> Tensor:
            exchange.updates = exchange.updates / canaries.LENGTH  # brings back what was never clipped, ten times too long
            sound = super().aggregate(exchange, rule)
            exchange.updates = exchange.updates * canaries.LENGTH
            return sound + exchange.updates.sum(0) * (1 - 1 / canaries.LENGTH) / self.scheme.divisor

    monkeypatch.setattr(noisy, "Trusted", Unclipped)
    said, evidence = judged(clients, CENTRAL)
    assert said.outcome == "refuted"
    assert evidence.auc() > 0.99


def test_sampling_that_is_claimed_and_not_done_is_refuted(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    claimed = replace(CENTRAL, rate=0.1, noise_multiplier=1.0)
    assert judged(clients, claimed)[0].outcome != "refuted"
    monkeypatch.setattr(noisy.Trusted, "draw", lambda self, number, count: np.arange(count))
    assert judged(clients, claimed)[0].outcome == "refuted"


def test_a_release_has_the_evidence_beside_its_claim(clients: Clients, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "clients.db")
    ledger.open("clients", unit=client(), epsilon=10.0, delta=1e-5)

    def go(rounds: int, **more: Any) -> Simulation:
        how = FedAvg(learning_rate=0.01, weighting="equal")
        return simulate(Vector(), clients, pull, strategy=how, rounds=rounds, privacy=CENTRAL, ledger=ledger, source="clients",
                        canaries=100, checkpoint=tmp_path / "run", **more)  # fmt: skip

    class Stopped(Exception):
        pass

    def stop(done: int, _: int) -> None:
        if done == 2:
            raise Stopped

    with pytest.raises(Stopped):
        go(4, progress=stop)
    release = go(4).release
    assert release is not None
    (evidence,) = release.evidence
    assert evidence.design == "canary"
    assert len(evidence) == 100
    assert evidence.game == release.claims[0].game
    assert "100 made-up clients" in release.facts["federated"]["canaries"]
    assert verdict(release.claims[0], evidence, confidence=0.95).outcome != "refuted"
    assert evidence.auc() > 0.6  # four rounds tell what one would not: the scores of the first two were kept
    with pytest.raises(InvalidValue, match="another model, clients"):
        simulate(Vector(), clients, pull, strategy=FedAvg(learning_rate=0.01, weighting="equal"), rounds=4, privacy=CENTRAL,
                 source="clients", canaries=50, checkpoint=tmp_path / "run")  # fmt: skip


def test_canaries_hardly_move_the_model(clients: Clients) -> None:
    """They ask up and down in turn: over many rounds their changes are below the noise."""
    moved = []
    for count in (None, 20):
        training = Training(Vector(), pull, strategy=FedSGD(learning_rate=1e-6, weighting="equal"), rounds=30, privacy=CENTRAL,
                            canaries=count)  # fmt: skip
        with seeded_for_tests(b"moved"):
            moved.append(np.linalg.norm(training.run(clients).sum(0)))
    assert moved[1] < 1.1 * moved[0]


def test_bad_input(clients: Clients) -> None:
    how = FedSGD(learning_rate=0.01, weighting="equal")
    with pytest.raises(InvalidValue, match="what a run claims about clients"):
        simulate(Vector(), clients, pull, strategy=how, rounds=1, canaries=20)
    sgd = PrivateSGD(unit=record(), learning_rate=0.1, steps=1, rate=0.5, divisor=1, clip_norm=1.0, noise_multiplier=1.0)
    with pytest.raises(InvalidValue, match="what a run claims about clients"):
        simulate(Vector(), clients, pull, strategy=sgd, rounds=1, source="x", canaries=20)
    for count, says in ((5, "at least 10"), (SIZE + 1, "at most 600 canaries")):
        with pytest.raises(InvalidValue, match=says):
            simulate(Vector(), clients, pull, strategy=how, rounds=1, privacy=CENTRAL, source="x", canaries=count)
