"""Neighbouring federations: what one client changes in the exact sums of a private run, and in what is released beside them.

Models keep what they have seen, rows make them raise, and a client that leaves gives all others new numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from discreet import Ledger, record
from discreet.errors import InvalidValue
from discreet.federate import (
    Central,
    Clients,
    Distributed,
    Exchange,
    FedAvg,
    FedSGD,
    Local,
    PrivateSGD,
    client,
    noisy,
    simulate,
)

LOSS = nn.CrossEntropyLoss(reduction="none")
DIVISOR = 5.0
BLANK = client(relation="zero_out")
WHOLE = Central(unit=client(), clip_norm=1.0, noise_multiplier=1.0, rate=1.0, divisor=DIVISOR)


@pytest.fixture
def clients() -> Clients:
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(60, 3, generator=draw)
    return Clients.evenly(inputs, (inputs[:, 0] > 0).long(), clients=6, seed=0)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums without their noise: what an adversary who knew it would see."""
    monkeypatch.setattr(noisy, "gaussian", lambda key, sigma, size, **place: np.zeros(size, np.int64))


def linear() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Linear(3, 2)


def run(clients: Clients, model: nn.Module | None = None, **how: Any) -> tuple[Any, list[Exchange]]:
    seen: list[Exchange] = []
    given = {"strategy": FedSGD(learning_rate=0.5), "rounds": 1, "source": "people", "privacy": WHOLE, "loss": LOSS, **how}
    done = simulate(model or linear(), clients, given.pop("loss"), watch=seen.append, **given)
    return done, seen


def total(exchange: Exchange) -> Tensor:
    assert exchange.aggregate is not None
    return exchange.aggregate.double() * DIVISOR


class Remembers(nn.Module):
    """Its attributes hold the last rows, and what follows is shifted by them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = linear(), torch.zeros(3)
        self.register_buffer("shift", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        if bool((x > 50).any()):
            self.last, self.shift[:], self.layer.extra = x.mean(0), x[0], [x]
        return self.layer(x + self.last + self.shift)  # type: ignore[no-any-return]


class Drifts(nn.Module):
    """A frozen parameter that moves only for rows that nobody would make up."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.frozen = linear(), nn.Parameter(torch.zeros(3), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        if bool((x > 50).any()):
            self.frozen.data.add_(x[0])
        return self.layer(x + self.frozen)  # type: ignore[no-any-return]


class LossThatRemembers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.most = torch.zeros(())

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        self.most = torch.maximum(self.most, output.detach().abs().max())
        return LOSS(output, target) * (1 + self.most)  # type: ignore[no-any-return]


@pytest.mark.parametrize("build", [Remembers, Drifts])
@pytest.mark.usefixtures("silent")
def test_what_a_model_keeps_of_one_client_reaches_no_other_and_no_release(build: Any, clients: Clients) -> None:
    loud = clients.replaced({0: (torch.full((4, 3), 100.0), torch.zeros(4).long())})
    ours, theirs = run(clients, build())[1][0], run(loud, build())[1][0]
    torch.testing.assert_close(ours.updates[1:], theirs.updates[1:])
    assert float((total(ours) - total(theirs)).norm()) <= 2.0  # one client that is replaced: twice the clip norm
    model = run(loud, build())[0].release.value
    left = [value for part in model.modules() for value in vars(part).values() if isinstance(value, Tensor)]
    kept = [*left, *model.buffers(), *(p for p in model.parameters() if not p.requires_grad)]
    assert all(not bool(value.any()) for value in kept)
    assert "extra" not in vars(model.layer)


@pytest.mark.usefixtures("silent")
def test_what_a_loss_keeps_of_one_client_reaches_no_other(clients: Clients) -> None:
    loud = clients.replaced({0: (torch.full((4, 3), 100.0), torch.zeros(4).long())})
    ours, theirs = (run(each, loss=LossThatRemembers())[1][0] for each in (clients, loud))
    torch.testing.assert_close(ours.updates[1:], theirs.updates[1:])


@pytest.mark.usefixtures("silent")
def test_what_a_model_keeps_of_one_row_reaches_no_other_row() -> None:
    sgd = PrivateSGD(
        unit=record(), learning_rate=1.0, steps=1, rate=1.0, divisor=1.0, clip_norm=0.1, noise_multiplier=1.0
    )  # fmt: skip
    rows = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(8).long()
    loud = rows[0].clone()
    loud[0] = 100.0
    moved = []
    for inputs in (rows[0], loud):
        pair = Clients([(inputs, rows[1]), (inputs[:0], rows[1][:0])].__getitem__, 2)
        moved.append(run(pair, Remembers(), strategy=sgd, privacy=None)[1][0].updates[0])
    assert float((moved[0] - moved[1]).norm()) <= 0.2 + 1e-6


@pytest.mark.parametrize("batch", [2, None])
def test_what_is_drawn_by_a_clients_number_is_secret(batch: int | None, clients: Clients) -> None:
    """Numbers move when a client leaves: known orders of batches would tell of it by all the others' updates."""
    strategy = FedAvg(learning_rate=0.5, epochs=2, batch_size=batch)
    dropout = nn.Sequential(nn.Dropout(0.5), linear())
    for model in (linear(), dropout):
        random = batch is not None or model is dropout
        private = [run(clients, model, strategy=strategy)[1][0].updates for _ in range(2)]
        assert torch.equal(*private) is not random
        plain = [run(clients, model, strategy=strategy, privacy=None, source=None)[1][0].updates for _ in range(2)]
        assert torch.equal(*plain)


BAD = {
    "a label that there is not": (torch.zeros(2, 3), torch.tensor([1717, 0])),
    "not numbers": (torch.full((2, 3), torch.nan), torch.tensor([0, 1])),
    "of another shape": (torch.zeros(2, 4), torch.tensor([0, 1])),
    "of another type": (torch.zeros(2, 3), torch.tensor([0.5, 1.0])),
}
SCHEMES = {
    "central": {"privacy": WHOLE},
    "local": {"privacy": Local(unit=BLANK, clip_norm=1.0, noise_multiplier=1.0)},
    "distributed": {"privacy": Distributed(unit=BLANK, clip_norm=1.0, noise_multiplier=1.0, clients=6, honest=5)},
    "rows": {
        "privacy": None,
        "strategy": PrivateSGD(
            unit=record(), learning_rate=0.1, steps=1, rate=1.0, divisor=1.0, clip_norm=1.0, noise_multiplier=1.0
        ),
    },
}


@pytest.mark.filterwarnings("ignore:Some rows could not be trained on")
@pytest.mark.parametrize("model", [linear, Remembers], ids=["together", "one by one"])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.usefixtures("silent")
def test_rows_that_make_a_model_raise_change_their_client_alone(bad: str, scheme: str, model: Any, clients: Clients) -> None:
    how = SCHEMES[scheme]
    _, (seen,) = run(clients, model(), **how)
    _, (with_bad,) = run(clients.replaced({3: BAD[bad]}), model(), **how)
    others = [0, 1, 2, 4, 5]
    torch.testing.assert_close(with_bad.updates[others], seen.updates[others])
    assert scheme == "rows" or not bool(with_bad.updates[3].any())  # one of its two rows may be sound


def test_rows_that_make_a_model_raise_are_warned_of_without_a_value(clients: Clients) -> None:
    with pytest.warns(UserWarning, match="Some rows could not be trained on") as said:
        run(clients.replaced({3: BAD["a label that there is not"]}))
    assert not any("1717" in str(each.message) for each in said)
    with pytest.raises(Exception, match="1717"):  # where nothing is claimed, the mistake is shown
        run(clients.replaced({3: BAD["a label that there is not"]}), privacy=None, source=None)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"privacy": Distributed(unit=BLANK, clip_norm=1.0, noise_multiplier=1.0, clients=5, honest=3)}, "6 are asked"),
        ({"privacy": Distributed(unit=BLANK, clip_norm=1.0, noise_multiplier=1.0, clients=9, honest=7)}, "6 are asked"),
        ({"privacy": SCHEMES["distributed"]["privacy"], "per_round": 4}, "4 are asked"),
        ({"privacy": SCHEMES["distributed"]["privacy"], "canaries": 9}, "canaries must be"),
        ({"privacy": SCHEMES["local"]["privacy"], "per_round": 7}, "per_round must be"),
        ({"privacy": Local(unit=BLANK, clip_norm=1.0, noise_multiplier=1e30)}, "does not fit whole numbers"),
        ({"privacy": WHOLE, "canaries": 1000}, "at most 8 canaries"),
    ],
)
def test_what_cannot_work_is_refused_before_it_is_charged(
    how: dict[str, Any], said: str, clients: Clients, tmp_path: Any
) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("people", unit=how["privacy"].unit, epsilon=500.0, delta=1e-6)
        with pytest.raises(InvalidValue, match=said):
            run(clients, ledger=ledger, **how)
        assert ledger.spent("people") == 0


def test_a_model_that_rows_do_not_fit_is_named_without_a_row(clients: Clients) -> None:
    with pytest.raises(InvalidValue, match=r"made-up rows with inputs \(5, 3\)"):
        run(clients, nn.Linear(4, 2))


@pytest.mark.parametrize("bands", [1, 2, 4])
@pytest.mark.usefixtures("silent")
def test_one_client_moves_the_noisy_sums_by_at_most_the_clip_norm_in_each_block(bands: int) -> None:
    """Noisy sums C x, recomputed from what is released: one client moves them by at most its column, in whole numbers."""
    rounds, size = 8, 8
    scheme = Central(unit=client(), clip_norm=1.0, noise_multiplier=1.0, rate=1 / bands, bands=bands, divisor=DIVISOR)
    matrix = np.eye(rounds)
    if bands > 1:
        column = noisy.Trusted(scheme, 1.0, rounds, size, bytes(32)).matrix / noisy.FINE
        matrix = np.array([[column[t, t - s] if 0 <= t - s < bands else 0.0 for s in range(rounds)] for t in range(rounds)])
    for place in range(rounds):
        moved = np.zeros((rounds, size))
        for there in (False, True):
            trusted = noisy.Trusted(scheme, 1.0, rounds, size, bytes(32))
            means = []
            for number in range(rounds):
                update = torch.full((1, size), 1e6) if there and number == place else torch.zeros(1, size)
                start = torch.zeros(size, dtype=torch.float64)
                exchange = Exchange(number, np.arange(1), start, start, update, torch.ones(1))
                means.append(trusted.aggregate(exchange, lambda each: each.before).numpy() * DIVISOR)
            moved += (1 if there else -1) * (matrix @ np.array(means))
        assert 0.99 <= np.linalg.norm(moved) <= 1 + 1e-9
