"""Robust rules are what their papers define, attacks do what they say, and rules withstand what the mean does not."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from discreet.errors import InvalidValue
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

LOSS = nn.CrossEntropyLoss(reduction="none")
HOW = FedAvg(learning_rate=0.3, epochs=2, batch_size=None)


def exchange(updates: Tensor, weights: Tensor | None = None) -> Exchange:
    zeros = torch.zeros(updates.shape[1])
    return Exchange(0, np.arange(len(updates)), zeros, zeros, updates, torch.ones(len(updates)) if weights is None else weights)


@pytest.fixture(scope="module")
def updates() -> Tensor:
    return torch.randn(11, 6, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def rows() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(1200, 8, generator=draw)
    return inputs, (inputs[:, :3] + 0.3 * torch.randn(1200, 3, generator=draw)).argmax(1)


@pytest.fixture(scope="module")
def clients(rows: tuple[Tensor, Tensor]) -> Clients:
    return Clients.evenly(rows[0][:800], rows[1][:800], clients=10, seed=0)


def model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Linear(8, 3)


def accuracy(net: nn.Module, rows: tuple[Tensor, Tensor]) -> float:
    return float((net(rows[0][800:]).argmax(1) == rows[1][800:]).float().mean())


# ---- rules -------------------------------------------------------------------------------------------------------------------


def test_median_and_trimmed_mean_are_numpys(updates: Tensor) -> None:
    for count in (10, 11):
        some = updates[:count]
        np.testing.assert_allclose(Median()(exchange(some)), np.median(some.numpy(), 0), rtol=1e-6)
        from scipy.stats import trim_mean

        np.testing.assert_allclose(TrimmedMean(2)(exchange(some)), trim_mean(some.numpy(), 2 / count + 1e-9), rtol=1e-5)


def test_krum_is_its_definition(updates: Tensor) -> None:
    bad = 3
    scores = []
    for i in range(len(updates)):
        near = sorted(float((updates[i] - updates[j]).double().square().sum()) for j in range(len(updates)) if j != i)
        scores.append(sum(near[: len(updates) - bad - 2]))
    order = np.argsort(scores)
    torch.testing.assert_close(Krum(bad)(exchange(updates)), updates[int(order[0])])
    torch.testing.assert_close(Krum(bad, kept=4)(exchange(updates)), updates[order[:4].tolist()].mean(0))


def test_bounded_norms_bound_what_one_client_moves(updates: Tensor) -> None:
    rule = NormBound(0.7)
    everything = rule(exchange(updates))
    for client in range(len(updates)):
        other = updates.clone()
        other[client] = 0
        assert float((rule(exchange(other)) - everything).norm()) <= rule.sensitivity(len(updates)) + 1e-6
    other[3] = 1e20
    assert float(rule(exchange(other)).norm()) <= 0.7 + 1e-5
    torch.testing.assert_close(NormBound(100.0)(exchange(updates)), mean(exchange(updates)))


def test_no_rule_without_a_proof_names_a_sensitivity(rows: tuple[Tensor, Tensor]) -> None:
    rules = [Median(), TrimmedMean(1), Krum(1), FLTrust(model(), LOSS, (rows[0][:20], rows[1][:20]), HOW)]
    assert [rule.sensitivity(10) for rule in rules] == [None] * 4


def test_one_client_can_move_krum_by_more_than_its_share() -> None:
    """Why Krum has no sensitivity of clip / clients: with updates of length 1, one client moves what is picked by 2."""
    sides = torch.tensor([[1.0, 0.0]] * 4 + [[-1.0, 0.0]] * 4)
    first, second = (torch.cat([sides, torch.tensor([[side, 0.0]])]) for side in (1.0, -1.0))
    moved = (Krum(3)(exchange(first)) - Krum(3)(exchange(second))).norm()
    assert float(moved) == pytest.approx(2.0)
    assert float((mean(exchange(first)) - mean(exchange(second))).norm()) == pytest.approx(2 / 9)


def test_fltrust_ignores_what_points_elsewhere(rows: tuple[Tensor, Tensor]) -> None:
    rule = FLTrust(model(), LOSS, (rows[0][:50], rows[1][:50]), HOW)
    here = exchange(torch.zeros(1, 27))
    own = rule.trained(here)
    assert float(own.norm()) > 0
    found = rule(exchange(torch.stack([own * 100, -own * 5, own * 0.01])))
    torch.testing.assert_close(found, own)
    assert float(rule(exchange(torch.stack([-own, -2 * own]))).norm()) == 0.0


def test_rejected_updates_do_not_count(updates: Tensor) -> None:
    weights = torch.ones(11)
    weights[4] = 0
    others = updates[[i for i in range(11) if i != 4]]
    broken = updates.clone()
    broken[4] = 0.0
    for rule in (Median(), TrimmedMean(2), Krum(2), Krum(2, kept=3)):
        torch.testing.assert_close(rule(exchange(broken, weights)), rule(exchange(others)))
    nobody = torch.zeros(11)
    assert float(Median()(exchange(updates, nobody)).norm()) == 0.0
    assert float(NormBound(1.0)(exchange(updates, nobody)).norm()) == 0.0


def test_too_few_updates_are_refused(updates: Tensor) -> None:
    with pytest.raises(InvalidValue, match="needs at least 13 updates in a round; 11 counted"):
        Krum(5)(exchange(updates))
    with pytest.raises(InvalidValue, match="trimmed=6 needs at least 13"):
        TrimmedMean(6)(exchange(updates))
    for wrong in (lambda: Krum(-1), lambda: Krum(1, kept=0), lambda: TrimmedMean(-1), lambda: NormBound(0.0)):
        with pytest.raises(InvalidValue):
            wrong()
    with pytest.raises(InvalidValue, match="own rows are none"):
        FLTrust(model(), LOSS, (torch.zeros(0, 8), torch.zeros(0)), HOW)


# ---- attacks -----------------------------------------------------------------------------------------------------------------


def test_attacks_change_malicious_clients_alone(updates: Tensor) -> None:
    bad = {2, 5}
    honest = [i for i in range(11) if i not in bad]
    for attack in (Scaled(bad, -3.0), InnerProduct(bad, 0.5), FreeRiders(bad, 0.1)):
        found = attack(exchange(updates))
        assert torch.equal(found[honest], updates[honest])
        assert not torch.equal(found[2], updates[2])
    torch.testing.assert_close(Scaled(bad, -3.0)(exchange(updates))[2], -3 * updates[2])
    torch.testing.assert_close(InnerProduct(bad, 0.5)(exchange(updates))[5], -0.5 * updates[honest].mean(0))
    assert float(FreeRiders(bad, 0.0)(exchange(updates))[2].norm()) == 0.0
    assert torch.equal(FreeRiders(bad, 0.1)(exchange(updates)), FreeRiders(bad, 0.1)(exchange(updates)))


def test_poisoned_rows(clients: Clients) -> None:
    flipped = flip_labels(clients, {3}, classes=3)
    assert torch.equal(flipped[3][1], 2 - clients[3][1])
    assert torch.equal(flipped[4][1], clients[4][1])
    stamped = backdoor(clients, {3}, Patch((7,), 5.0), target=1, share=0.5)
    count = len(clients[3][0]) // 2
    assert (stamped[3][0][:count, 7] == 5).all()
    assert (stamped[3][1][:count] == 1).all()
    assert torch.equal(stamped[3][0][count:], clients[3][0][count:])
    assert torch.equal(stamped[0][0], clients[0][0])
    assert not (clients[3][0][:, 7] == 5).any()
    assert pick_malicious(10, 0.3, seed=1) == pick_malicious(10, 0.3, seed=1)
    assert len(pick_malicious(10, 0.0, seed=1)) == 0
    with pytest.raises(InvalidValue, match="other classes"):
        backdoor_success(model(), torch.zeros(2, 8), torch.ones(2), Patch((0,), 1.0), target=1)


def test_every_rule_withstands_scaling_that_ruins_the_mean(rows: tuple[Tensor, Tensor], clients: Clients) -> None:
    bad = pick_malicious(10, 0.3, seed=0)
    own = (rows[0][:40], rows[1][:40])

    def final(rule, alter=None):  # type: ignore[no-untyped-def]
        return accuracy(simulate(model(), clients, LOSS, strategy=HOW, rounds=8, rule=rule, alter=alter).model, rows)

    clean = final(mean)
    assert clean > 0.8
    assert final(mean, Scaled(bad, -20.0)) < 0.45
    for rule in (Median(), TrimmedMean(3), Krum(3), Krum(3, kept=5), FLTrust(model(), LOSS, own, HOW)):
        assert final(rule, Scaled(bad, -20.0)) > clean - 0.15
        assert final(rule) > clean - 0.15
    assert final(NormBound(0.3), Scaled(bad, -20.0)) > 0.6


def test_a_backdoor_gets_in_and_multi_krum_keeps_it_out(rows: tuple[Tensor, Tensor], clients: Clients) -> None:
    bad, trigger = pick_malicious(10, 0.2, seed=0), Patch((6, 7), 4.0)
    poisoned = backdoor(clients, bad, trigger, target=2, share=0.7)

    def success(rule) -> float:  # type: ignore[no-untyped-def]
        done = simulate(model(), poisoned, LOSS, strategy=HOW, rounds=8, rule=rule, alter=Scaled(bad, 5.0))
        return backdoor_success(done.model, rows[0][800:], rows[1][800:], trigger, target=2)

    assert success(mean) > 0.8
    assert success(Krum(2, kept=4)) < 0.5


def test_combinations_that_rules_are_made_for(updates: Tensor) -> None:
    """Whichever two of eleven lie far away, median, trimmed mean and Krum stay among the others."""
    for pair in combinations(range(11), 2):
        far = updates.clone()
        far[list(pair)] = 1e6
        for rule in (Median(), TrimmedMean(2), Krum(2), Krum(2, kept=4)):
            assert float(rule(exchange(far)).abs().max()) < 4
