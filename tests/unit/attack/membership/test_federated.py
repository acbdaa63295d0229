"""Membership in federated learning: who sees more finds more, and nobody finds anything where nothing was trained."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from discreet.attack.membership.federated import Ascent, RoundSignals, learned, passive_client, passive_server
from discreet.audit import verdict
from discreet.core import Claim, Pure
from discreet.errors import InvalidValue
from discreet.federate import Clients, FedAvg, simulate

LOSS = nn.CrossEntropyLoss(reduction="none")
EACH, CLIENTS, ROUNDS = 60, 6, 12


@pytest.fixture(scope="module")
def world() -> tuple[Clients, Tensor, Tensor, np.ndarray, np.ndarray]:
    """Random labels, so that what is known of a row was learned from it; rows in question are dealt by fair coins."""
    draw = torch.Generator().manual_seed(0)
    count = EACH * (CLIENTS - 1) + 2 * EACH
    X, y = torch.randn(count, 60, generator=draw), torch.randint(0, 4, (count,), generator=draw)
    inside = np.random.default_rng(0).random(2 * EACH) < 0.5
    owner = np.concatenate([np.repeat(np.arange(1, CLIENTS), EACH), np.zeros(2 * EACH, int)])
    kept = np.concatenate([np.ones(EACH * (CLIENTS - 1), bool), inside])
    anywhere = np.concatenate([np.ones(2 * EACH, bool), np.zeros(2 * EACH, bool)])
    clients = Clients.by_column(X[kept], y[kept], owner[kept])
    return clients, X[-2 * EACH :], y[-2 * EACH :], inside, anywhere


def net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(60, 64), nn.ReLU(), nn.Linear(64, 4))


def run(world, rate: float = 0.3, send=None, rounds=None) -> RoundSignals:  # type: ignore[no-untyped-def]
    clients, X, y, *_ = world
    found = RoundSignals(net(), X, y, rounds=rounds)
    how = FedAvg(learning_rate=rate, epochs=3, batch_size=20)
    simulate(net(), clients, LOSS, strategy=how, rounds=ROUNDS, watch=found, send=send)
    return found


@pytest.fixture(scope="module")
def passive(world) -> RoundSignals:  # type: ignore[no-untyped-def]
    return run(world)


def test_a_curious_server_finds_members_and_a_client_fewer(world, passive: RoundSignals) -> None:  # type: ignore[no-untyped-def]
    inside = world[3]
    server, client = passive_server(passive, inside, client=0, design="canary"), passive_client(passive, inside)
    assert server.auc() > 0.9
    assert 0.55 < client.auc() < server.auc()
    assert learned(passive, inside, client=0).auc() > 0.85
    assert learned(passive, inside).auc() > 0.55


def test_it_refutes_a_claim_that_is_false(world, passive: RoundSignals) -> None:  # type: ignore[no-untyped-def]
    evidence = passive_server(passive, world[3], client=0, design="canary")
    claim = Claim(game=evidence.game, event=Pure(0.3), assumptions=())
    assert verdict(claim, evidence, confidence=0.95).outcome == "refuted"


def test_more_rounds_tell_more(world, passive: RoundSignals) -> None:  # type: ignore[no-untyped-def]
    few = run(world, rounds={0})
    assert few.rounds == [0]
    assert passive_server(few, world[3], client=0).auc() < passive_server(passive, world[3], client=0).auc()


def test_where_nothing_is_learned_nothing_is_found(world) -> None:  # type: ignore[no-untyped-def]
    silent = run(world, rate=1e-9)
    for evidence in (passive_client(silent, world[3]), learned(silent, world[3])):
        assert 0.35 < evidence.auc() < 0.65
    strangers = passive_server(run(world), np.random.default_rng(5).random(2 * EACH) < 0.5, client=0)
    assert 0.35 < strangers.auc() < 0.65  # truths that have nothing to do with the rows


def test_gradient_ascent_makes_a_client_pull_its_rows_back(world) -> None:  # type: ignore[no-untyped-def]
    clients, X, y, inside, _ = world
    asked = slice(0, 20)
    late = set(range(6, ROUNDS))
    how = FedAvg(learning_rate=0.05, epochs=1, batch_size=20)
    drops = []
    for send in (None, Ascent(net(), X[asked], y[asked], rate=2.0, rounds=late)):
        found = RoundSignals(net(), X[asked], y[asked], rounds=late)
        simulate(net(), clients, LOSS, strategy=how, rounds=ROUNDS, watch=found, send=send)
        mine = np.mean([own["drop"][0] for own in found.own], 0)
        drops.append(mine[inside[asked]].mean() - mine[~inside[asked]].mean())
    assert drops[1] > 2 * drops[0]


def test_ascent_sends_what_was_asked() -> None:
    model, X, y = nn.Linear(3, 2), torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 1])

    class Seen:
        number, before = 4, torch.cat([p.detach().reshape(-1) for p in model.parameters()])

    hand = torch.autograd.grad(LOSS(model(X), y).mean(), list(model.parameters()))
    sent = Ascent(model, X, y, rate=0.5, rounds={4})(Seen())
    torch.testing.assert_close(sent, Seen.before + 0.5 * torch.cat([g.reshape(-1) for g in hand]))
    assert torch.equal(Ascent(model, X, y, rate=0.5, rounds={3})(Seen()), Seen.before)


def test_signals_are_what_they_say(world, passive: RoundSignals) -> None:  # type: ignore[no-untyped-def]
    clients, X, y, *_ = world
    kept = []
    simulate(net(), clients, LOSS, strategy=FedAvg(learning_rate=0.3, epochs=3, batch_size=20), rounds=1, watch=kept.append)
    one = kept[0]
    after = net()
    torch.nn.utils.vector_to_parameters(one.before + one.updates[2], after.parameters())
    before = net()
    drop = (LOSS(before(X), y) - LOSS(after(X), y)).detach().numpy()
    np.testing.assert_allclose(passive.own[0]["drop"][2], drop, atol=1e-5)
    row = torch.autograd.grad(LOSS(before(X[:1]), y[:1]).sum(), list(before.parameters()))
    flat = torch.cat([g.reshape(-1) for g in row])
    slope = float(-flat @ one.updates[2] / one.updates[2].norm())
    assert passive.own[0]["slope"][2][0] == pytest.approx(slope, rel=1e-4)


def test_bad_input(world, passive: RoundSignals) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidValue, match="120 rows whether it was trained on"):
        passive_server(passive, [True], client=0)
    with pytest.raises(InvalidValue, match="Client 17 took part in no observed round"):
        passive_server(passive, world[3], client=17)
    with pytest.raises(InvalidValue, match="rows that were not"):
        learned(passive, np.ones(120, bool), client=0)
    with pytest.raises(InvalidValue, match="as many inputs as labels"):
        RoundSignals(net(), world[1], world[2][:5])
    with pytest.raises(InvalidValue, match="No round was observed"):
        passive_client(RoundSignals(net(), world[1], world[2]), world[3])
