"""Private runs: what they claim, that it is paid before a row is read, and that they go on where they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from discreet import Ledger, record
from discreet.accounting import curve
from discreet.core import Release
from discreet.core import event as events
from discreet.errors import BudgetExceeded, InvalidValue
from discreet.federate import (
    Central,
    Clients,
    Distributed,
    Exchange,
    FedAvg,
    FedSGD,
    Local,
    PrivateSGD,
    SecureSum,
    Selective,
    Training,
    client,
    simulate,
)
from discreet.federate.noisy import SummedClients, Trusted
from discreet.federate.privacy import FINE
from discreet.noise.source import seeded_for_tests

LOSS = nn.CrossEntropyLoss(reduction="none")
BLANK = client(relation="zero_out")
SGD = FedSGD(learning_rate=0.5)


def central(**how: Any) -> Central:
    given: dict[str, Any] = {"unit": client(), "clip_norm": 1.0, "noise_multiplier": 1.0, "rate": 0.5, "divisor": 5.0}
    return Central(**{**given, **how})


SCHEMES: dict[str, dict[str, Any]] = {
    "central": {"privacy": central()},
    "banded": {"privacy": central(rate=0.25, bands=4)},
    "local": {"privacy": Local(unit=BLANK, clip_norm=1.0, noise_multiplier=2.0, times=3)},
    "distributed": {
        "privacy": Distributed(unit=BLANK, clip_norm=1.0, noise_multiplier=1.0, clients=10, honest=5),
        "per_round": 6,
    },
    "private SGD": {
        "strategy": PrivateSGD(
            unit=record(), learning_rate=0.1, steps=2, rate=0.3, divisor=3.0, clip_norm=1.0, noise_multiplier=1.0
        )
    },
    "selective, central": {"privacy": central(), "strategy": Selective(learning_rate=0.5, upload=0.3, download=0.5)},
}


@pytest.fixture(scope="module")
def clients() -> Clients:
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(100, 3, generator=draw)
    return Clients.evenly(inputs, (inputs[:, 0] > 0).long(), clients=10, seed=0)


def model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Linear(3, 2)


def flat(net: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])


def train(clients: Clients, **how: Any) -> Any:
    return simulate(model(), clients, LOSS, **{"strategy": SGD, "rounds": 4, "source": "people", **how})


@pytest.mark.parametrize("name", SCHEMES)
def test_a_run_is_paid_before_rows_are_read_and_continued_for_nothing(name: str, clients: Clients, tmp_path: Path) -> None:
    how, place = SCHEMES[name], tmp_path / "run"
    unit = (how.get("privacy") or how["strategy"]).unit
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("people", unit=unit, epsilon=500.0, delta=1e-6)

        def looked(number: int) -> Any:
            assert ledger.spent("people") > 0
            return clients[number]

        def stop(done: int, rounds: int) -> None:
            if done == 2:
                raise KeyboardInterrupt

        watched = Clients(looked, len(clients))
        with pytest.raises(KeyboardInterrupt):
            train(watched, ledger=ledger, checkpoint=place, progress=stop, **how)
        spent = ledger.spent("people")
        assert place.stat().st_mode & 0o077 == 0
        copied = place.read_bytes()
        done = train(watched, ledger=ledger, checkpoint=place, **how)
        place.write_bytes(copied)
        again = train(watched, ledger=ledger, checkpoint=place, **how)
        assert torch.equal(flat(done.model), flat(again.model))
        assert ledger.spent("people") == spent
        assert done.release.entry == again.release.entry
        assert ledger.payment(done.release) is not None
        ledger.verify()
        assert [note["round"] for note in done.history] == [0, 1, 2, 3]
        assert ("clients" in done.history[0]) == (not isinstance(how.get("privacy"), Central))
        with pytest.raises(InvalidValue, match="another model, clients, strategy"):
            train(watched, ledger=ledger, checkpoint=place, **{**how, "rounds": 5})


def test_nothing_runs_beyond_the_budget(clients: Clients, tmp_path: Path) -> None:
    def never(number: int) -> Any:
        raise AssertionError("a row was read")

    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("people", unit=client(), epsilon=0.5, delta=1e-6)
        with pytest.raises(BudgetExceeded):
            train(Clients(never, 10), ledger=ledger, privacy=central())
        with pytest.raises(InvalidValue, match="this claim is about one hospital"):
            train(Clients(never, 10), ledger=ledger, privacy=central(unit=client("hospital")))


def test_what_the_claims_say() -> None:
    """The note's comparison: noise 1, 10 of 1000 clients, 100 rounds."""
    scheme = central(rate=0.01, divisor=10.0, delta=1e-5)
    (claim,) = scheme.claims(100, 25_000)
    assert claim.event == events.Repeat(events.Poisson(0.01, events.Gaussian(1.0)), 100)
    assert 0.70 < curve(claim.event).epsilon(1e-5) < 0.72
    assert central(rate=0.1, bands=10).event(1.0, 25, 8) == events.Repeat(events.Gaussian(1.0), 3)
    swapped = central(unit=client(relation="replace"), rate=0.01).event(1.0, 10, 8)
    assert swapped == events.Repeat(events.PoissonReplace(0.01, events.Gaussian(1.0)), 10)
    least = central(noise_multiplier=None, epsilon=2.0, delta=1e-6, rate=0.1)
    assert 1.99 < curve(least.claims(50, 8)[0].event).epsilon(1e-6) <= 2.0
    summed = Distributed(unit=BLANK, clip_norm=1.0, noise_multiplier=1.0, clients=100, honest=80, bits=24)
    event = summed.event(1.0, 10, 1000)
    assert isinstance(event, events.Repeat)
    assert isinstance(event.event, events.Concentrated)
    assert 0.49 < event.event.rho < 0.5  # as a Gaussian of the same noise, but for steps of the noise that are rounded up


def test_noise_that_is_taken_back_has_the_scale_it_is_given() -> None:
    """What is released is C (sums) + noise in whole numbers, no column of C being longer than it should be."""
    scheme = central(rate=0.25, bands=4)
    server = Trusted(scheme, 1.0, 12, 5, bytes(32))
    for start in range(12):
        column = [int(server.matrix[step, step - start]) for step in range(start, min(start + 4, 12))]
        assert 0.999 * FINE**2 < sum(entry**2 for entry in column) <= FINE**2
    assert server.sigma >= FINE * server.grid.radius
    groups = [set(server.draw(number, 40).tolist()) for number in range(12)]
    assert [groups[number] for number in range(4)] == [groups[number + 4] for number in range(4)]
    assert sorted(one for group in groups[:4] for one in group) == list(range(40))


def test_taking_noise_back_gives_better_sums(clients: Clients) -> None:
    """The noise in the weights after many rounds, with as much noise in every round that is released."""

    def error(bands: int) -> float:
        still = Clients(lambda client: (torch.zeros(0, 3), torch.zeros(0).long()), 10)
        scheme = central(rate=1 / 8, bands=bands, divisor=1.0)
        training = Training(model(), LOSS, strategy=SGD, rounds=32, privacy=scheme)
        with seeded_for_tests(b"bands"):
            return float(np.mean([np.square(training.run(still).sum(0)) for _ in range(20)]))

    assert error(8) < 0.6 * error(1)


def test_empty_rounds_have_noise_and_drop_outs_leave_the_divisor(clients: Clients) -> None:
    seen: list[Exchange] = []
    train(clients, privacy=central(rate=1e-9), rounds=2, watch=seen.append)
    assert all(len(exchange.clients) == 0 and float(exchange.aggregate.abs().min()) > 0 for exchange in seen)

    def gone(exchange: Exchange) -> Tensor:
        return torch.where(torch.arange(len(exchange.clients))[:, None] == 0, exchange.updates, torch.nan)

    quiet = central(rate=1.0, noise_multiplier=1e-4, clip_norm=1e-3, divisor=10.0)
    train(clients, privacy=quiet, rounds=1, alter=gone, watch=seen.append)
    assert float(seen[-1].aggregate.norm()) == pytest.approx(1e-4, rel=1e-2)  # one client of the ten, all of it clipped


def test_a_sum_of_too_few_is_not_opened(clients: Clients) -> None:
    def gone(exchange: Exchange) -> Tensor:
        return torch.where(torch.arange(len(exchange.clients))[:, None] < 4, exchange.updates, torch.nan)

    how = SCHEMES["distributed"]
    done = train(clients, rounds=3, alter=gone, **how)
    assert torch.equal(flat(done.model), flat(model()))
    assert [note["answered"] for note in done.history] == [4, 4, 4]


def test_a_modular_sum_is_the_sum(clients: Clients) -> None:
    seen: list[Exchange] = []
    train(clients, rounds=2, watch=seen.append, **SCHEMES["distributed"])
    for exchange in seen:
        torch.testing.assert_close(exchange.aggregate, exchange.updates.mean(0), rtol=1e-4, atol=1e-6)


def test_clients_answer_as_often_as_they_said(clients: Clients) -> None:
    scheme = Local(unit=BLANK, clip_norm=1.0, noise_multiplier=2.0, times=2)
    done = train(clients, privacy=scheme, rounds=5)
    assert [note["clients"] for note in done.history] == [10, 10, 0, 0, 0]


def test_local_noise_has_its_scale(clients: Clients) -> None:
    scheme = Local(unit=BLANK, clip_norm=0.5, noise_multiplier=4.0)
    with seeded_for_tests(b"local"):
        noise = Training(model(), LOSS, strategy=SGD, rounds=20, privacy=scheme).run(clients)
    assert float(noise.std()) == pytest.approx(2.0, rel=0.1)
    assert len(np.unique(noise)) > 0.99 * noise.size


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"privacy": central(), "per_round": 3}, "per_round cannot be given"),
        ({"privacy": central(), "rule": lambda exchange: exchange.updates.median(0).values}, "another rule is not known"),
        ({"privacy": central(), "source": None}, "name it by source="),
        (
            {"privacy": central(), "strategy": FedAvg(learning_rate=1, weighting="rows")},
            "How many rows a client has is private",
        ),
        ({"source": "people"}, "Without privacy nothing is claimed"),
        ({"privacy": "central"}, "privacy must be Central"),
        ({"strategy": "FedAvg"}, "strategy must be FedAvg"),
        ({"privacy": SCHEMES["distributed"]["privacy"], "per_round": 11}, "per_round must be at most 10"),
        ({**SCHEMES["private SGD"], "privacy": central()}, "a run makes one claim"),
        ({"privacy": central(bands=2), "rounds": 1}, "bands must be at most the number of rounds"),
    ],
)
def test_what_cannot_be_claimed_is_refused(clients: Clients, how: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        train(clients, **how)


def test_schemes_that_cannot_be_meant_are_refused() -> None:
    for build, said in (
        (lambda: central(rate=0.5, bands=3), "rate x bands at most 1"),
        (lambda: central(epsilon=1.0), "Say either epsilon"),
        (lambda: central(noise_multiplier=None, epsilon=1.0), "delta"),
        (lambda: Local(unit=client(), clip_norm=1.0, noise_multiplier=1.0), "relation must be zero_out or replace"),
        (lambda: central(unit="client"), "unit must be a Unit"),
        (
            lambda: PrivateSGD(
                unit=BLANK, learning_rate=1, steps=1, rate=1, divisor=1, clip_norm=1, noise_multiplier=1.0
            ),
            "its unit must be one row",
        ),
        (
            lambda: Distributed(unit=BLANK, clip_norm=1.0, noise_multiplier=1.0, clients=99, honest=90, bits=9).event(1, 1, 1),
            "Use more bits",
        ),
    ):  # fmt: skip
        with pytest.raises(InvalidValue, match=said):
            build()  # type: ignore[no-untyped-call]


def test_a_release_is_a_document(clients: Clients, tmp_path: Path) -> None:
    done = train(clients, privacy=central(delta=1e-6), rounds=4)
    kept = Release.load(done.release.save(tmp_path / "release.json"))
    assert kept.claims == done.release.claims
    assert kept.facts["federated"]["rounds"] == 4
    assert "clients" not in kept.facts["federated"]
    assert np.isfinite(flat(done.model).numpy()).all()


def test_noisy_whole_numbers_go_through_the_secure_sum(clients: Clients) -> None:
    """What clients of Distributed send are whole numbers, which the protocol adds exactly, also where one drops out."""
    scheme = Distributed(unit=BLANK, clip_norm=1.0, noise_multiplier=1.0, clients=4, honest=3, bits=24)
    parties = SummedClients(scheme, 1.0, rounds=1, size=8, key=bytes(32))
    updates = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    parties.sent(Exchange(0, np.arange(4), updates[0], updates[0], updates, torch.ones(4)))
    plan = SecureSum(size=8, clients=4, clip=1.0, threshold=2, bits=24)
    total, stayed = plan.total(parties.whole, dropped={2})
    assert stayed == [0, 1, 3]
    assert total.tolist() == sum(parties.whole[client] for client in stayed).tolist()
