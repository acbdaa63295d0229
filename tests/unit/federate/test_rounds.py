"""Rounds equal what anyone computes by hand, and hooks see and change what they say."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from discreet.errors import InvalidValue
from discreet.federate import Adam, Clients, Exchange, FedAvg, FedSGD, Momentum, simulate

LOSS = nn.CrossEntropyLoss(reduction="none")


@pytest.fixture(scope="module")
def rows() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(60, 3, generator=draw)
    return inputs, (inputs[:, 0] > 0).long()


@pytest.fixture(scope="module")
def clients(rows: tuple[Tensor, Tensor]) -> Clients:
    return Clients.by_column(*rows, np.repeat([2, 0, 1], [10, 20, 30]))


def model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Linear(3, 2)


def flat(net: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])


def test_fedsgd_is_a_step_on_all_rows(rows: tuple[Tensor, Tensor], clients: Clients) -> None:
    done = simulate(model(), clients, LOSS, strategy=FedSGD(learning_rate=0.3), rounds=2)
    hand = model()
    for _ in range(2):
        gradients = torch.autograd.grad(LOSS(hand(rows[0]), rows[1]).mean(), list(hand.parameters()))
        with torch.no_grad():
            for p, g in zip(hand.parameters(), gradients):
                p -= 0.3 * g
    torch.testing.assert_close(flat(done.model), flat(hand))


def test_fedavg_is_the_weighted_mean_of_what_clients_train(clients: Clients) -> None:
    done = simulate(model(), clients, LOSS, strategy=FedAvg(learning_rate=0.1, epochs=3, batch_size=None), rounds=1)
    total = torch.zeros(8)
    for inputs, targets in clients:
        own = model()
        descent = torch.optim.SGD(own.parameters(), 0.1)
        for _ in range(3):
            descent.zero_grad()
            LOSS(own(inputs), targets).mean().backward()
            descent.step()
        total += flat(own) * len(inputs) / 60
    torch.testing.assert_close(flat(done.model), total)


def test_a_proximal_client_stays_closer(clients: Clients) -> None:
    far, near = (
        simulate(model(), clients, LOSS, strategy=FedAvg(learning_rate=0.1, epochs=20, proximal=mu), rounds=1)
        for mu in (0.0, 5.0)
    )
    assert (flat(near.model) - flat(model())).norm() < 0.5 * (flat(far.model) - flat(model())).norm()


def test_servers_step_as_their_papers_say() -> None:
    start, update = torch.zeros(2), torch.tensor([1.0, -2.0])
    momentum = Momentum(momentum=0.5)
    memory = momentum.memory(start)
    weights = momentum.step(momentum.step(start, update, memory), update, memory)
    torch.testing.assert_close(weights, update * 2.5)
    adam = Adam(learning_rate=0.1, first=0.9, second=0.99, floor=1e-3)
    found = adam.step(start, update, adam.memory(start))
    torch.testing.assert_close(found, 0.1 * (0.1 * update) / ((0.01 * update**2).sqrt() + 1e-3))


def test_the_transcript_holds_what_the_parties_saw(clients: Clients) -> None:
    seen: list[Exchange] = []
    done = simulate(model(), clients, LOSS, strategy=FedSGD(learning_rate=0.3), rounds=3, per_round=2, watch=seen.append)
    assert [len(exchange.clients) for exchange in seen] == [2, 2, 2]
    for exchange, later in pairwise(seen):
        assert exchange.after is not None
        torch.testing.assert_close(exchange.after, later.sent)
        torch.testing.assert_close(exchange.after, exchange.before + exchange.aggregate)
    assert torch.equal(flat(done.model), seen[-1].after)
    assert done.history == [{"round": number, "clients": 2, "answered": 2} for number in range(3)]


def test_hooks_stand_in_for_malicious_parties(clients: Clients) -> None:
    def scaled(exchange: Exchange) -> Tensor:
        return torch.where(torch.from_numpy(exchange.clients == 1)[:, None], 100.0, exchange.updates)

    def median(exchange: Exchange) -> Tensor:
        return exchange.updates.median(0).values

    seen: list[Exchange] = []
    simulate(model(), clients, LOSS, strategy=FedSGD(learning_rate=0.3), rounds=1, alter=scaled, rule=median, watch=seen.append)
    assert bool((seen[0].updates[1] == 100.0).all())
    assert float(seen[0].aggregate.abs().max()) < 1
    apart = torch.stack([torch.zeros(8), torch.ones(8), torch.zeros(8)])
    told: list[Exchange] = []
    simulate(
        model(), clients, LOSS, strategy=FedSGD(learning_rate=0.3), rounds=1, send=lambda exchange: apart, watch=told.append
    )
    assert not torch.allclose(told[0].updates[0], told[0].updates[1])
    with pytest.raises(InvalidValue, match=r"rule must give a tensor of shape \(8,\)"):
        simulate(model(), clients, LOSS, strategy=FedSGD(learning_rate=0.3), rounds=1, rule=lambda exchange: exchange.updates)


def test_an_answer_that_is_not_finite_counts_as_none(clients: Clients) -> None:
    def broken(exchange: Exchange) -> Tensor:
        updates = exchange.updates.clone()
        updates[0, 3] = torch.nan
        return updates

    seen: list[Exchange] = []
    strategy = FedSGD(learning_rate=0.3, weighting="equal")
    done = simulate(model(), clients, LOSS, strategy=strategy, rounds=1, alter=broken, watch=seen.append)
    assert done.history[0]["answered"] == 2
    torch.testing.assert_close(seen[0].aggregate, seen[0].updates[1:].mean(0))


def test_clients_without_rows_and_those_with_all_of_them(rows: tuple[Tensor, Tensor]) -> None:
    lopsided = Clients(lambda client: (rows[0], rows[1]) if client == 1 else (rows[0][:0], rows[1][:0]), 3)
    done = simulate(model(), lopsided, LOSS, strategy=FedSGD(learning_rate=0.3), rounds=1)
    alone = simulate(model(), Clients.evenly(*rows, clients=2, seed=0), LOSS, strategy=FedSGD(learning_rate=0.3), rounds=1)
    torch.testing.assert_close(flat(done.model), flat(alone.model))
    empty = Clients(lambda client: (rows[0][:0], rows[1][:0]), 3)
    done = simulate(model(), empty, LOSS, strategy=FedAvg(learning_rate=0.3), rounds=2)
    assert torch.equal(flat(done.model), flat(model()))


def test_every_row_has_one_client(rows: tuple[Tensor, Tensor]) -> None:
    for clients in (
        Clients.evenly(*rows, clients=7, seed=3),
        Clients.dirichlet(*rows, clients=7, alpha=0.2, seed=3),
        Clients.by_column(*rows, np.arange(60) % 7),
    ):
        assert torch.equal(torch.cat([inputs for inputs, _ in clients]).sort(0).values, rows[0].sort(0).values)
    skewed, even = (Clients.dirichlet(*rows, clients=4, alpha=alpha, seed=0) for alpha in (0.05, 1000.0))
    assert max(len(targets) for _, targets in skewed) > max(len(targets) for _, targets in even)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"per_round": 4}, "per_round must be at most 3"),
        ({"clients": [1, 2]}, "clients must be Clients"),
        ({"loss": nn.CrossEntropyLoss()}, "one number for each of 5 rows"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(clients: Clients, change: dict[str, object], said: str) -> None:
    given = {"clients": clients, "loss": LOSS, "rounds": 1, "strategy": FedSGD(learning_rate=0.1), **change}
    with pytest.raises(InvalidValue, match=said):
        simulate(model(), **given)  # type: ignore[arg-type]


def test_bad_partitions_are_refused(rows: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(InvalidValue, match="belong to 1 client"):
        Clients.by_column(*rows, np.zeros(60))
    with pytest.raises(InvalidValue, match="one client for each of 60 rows; got 59"):
        Clients.by_column(*rows, np.arange(59))
    with pytest.raises(InvalidValue, match="as many inputs as targets"):
        Clients(lambda client: (rows[0], rows[1][:3]), 2)[0]
    with pytest.raises(InvalidValue, match="must be numbers"):
        Clients.by_column(np.array([["a"], ["b"]]), [0, 1], [0, 1])
