"""Clients trained together equal clients trained one by one; what cannot be stacked is trained one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from discreet.errors import InvalidValue
from discreet.federate import Clients, FedAvg, FedSGD, Selective, simulate
from discreet.federate import rounds as running
from discreet.federate.looped import Looped
from discreet.federate.together import Together, engine

LOSS = nn.CrossEntropyLoss(reduction="none")


def seeded(build: type[nn.Module] | object) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build()  # type: ignore[operator]


class Scaled(nn.Module):
    """With a parameter of no dimension, and layers that are no chain."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.temperature = nn.Linear(6, 5), nn.Linear(6, 5), nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.temperature * self.left(x).tanh() * self.right(x)


def by_the_row(scores: Tensor, targets: Tensor) -> Tensor:
    return torch.stack([row.sum() * (0.1 if row[0].item() > 0 else 0.2) for row in scores])


CHAIN = [
    lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5)),
    lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 8, bias=False), nn.Tanh(), nn.Linear(8, 5)),
]
MAPPED = [
    Scaled,
    lambda: nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 5)),
    lambda: nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 5)),
]
STRATEGIES = [
    FedAvg(learning_rate=0.2, epochs=2, batch_size=4),
    FedAvg(learning_rate=0.2, epochs=2, batch_size=4, momentum=0.5, proximal=0.3),
    FedAvg(learning_rate=0.2, batch_size=None),
    FedSGD(learning_rate=0.2),
    Selective(learning_rate=0.2, upload=0.3, download=0.5, batch_size=4),
]


def clients(sizes: tuple[int, ...] = (7, 0, 23, 1, 12)) -> Clients:
    draw = torch.Generator().manual_seed(3)
    rows = [(torch.randn(n, 6, generator=draw), torch.randint(0, 5, (n,), generator=draw)) for n in sizes]
    return Clients(lambda client: rows[client], len(rows))


def flat(net: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda each: f"{type(each).__name__}-{each.local().batch_size}")
@pytest.mark.parametrize("build", [*CHAIN, *MAPPED])
def test_together_is_one_by_one(build: object, strategy: FedAvg, monkeypatch: pytest.MonkeyPatch) -> None:
    model = seeded(build)
    kinds = []

    def noted(*given: object, **more: object) -> Looped:
        found = engine(*given, **more)  # type: ignore[arg-type]
        kinds.append(type(found))
        return found

    monkeypatch.setattr(running, "engine", noted)
    fast = simulate(model, clients(), LOSS, strategy=strategy, rounds=3)
    monkeypatch.setattr(running, "engine", lambda model, loss, device, *rest, **more: Looped(model, loss, device))
    slow = simulate(model, clients(), LOSS, strategy=strategy, rounds=3)
    assert kinds == [Together]
    torch.testing.assert_close(flat(fast.model), flat(slow.model), rtol=1e-3, atol=1e-5)


def test_groups_that_fit_memory_are_the_same_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model, how = seeded(CHAIN[0]), STRATEGIES[1].local()
    rows = list(clients())
    orders = [how.order(b"key", 0, client, len(inputs)) for client, (inputs, _) in enumerate(rows)]
    stack = Together(model, LOSS, torch.device("cpu"))
    start = torch.stack([stack.weights() + 0.1 * client for client in range(len(rows))])
    whole = stack.train(how, start, rows, orders, [0] * 5)
    stack.group = 2
    torch.testing.assert_close(stack.train(how, start, rows, orders, [0] * 5), whole)


@pytest.mark.parametrize(
    ("build", "loss"),
    [
        (lambda: nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5)), LOSS),
        (CHAIN[0], by_the_row),
    ],
)
def test_what_cannot_be_stacked_is_looped(build: object, loss: object) -> None:
    sample, how = clients()[0], STRATEGIES[0].local()
    if isinstance(loss, nn.Module):
        assert type(engine(seeded(build), LOSS, torch.device("cpu"), sample, how)) is Looped
    first, second = (
        simulate(seeded(build), clients(), loss, strategy=STRATEGIES[0], rounds=1)  # type: ignore[arg-type]
        for _ in range(2)
    )
    assert torch.equal(flat(first.model), flat(second.model))


def test_a_client_does_not_change_what_others_answer() -> None:
    """Not even one whose rows are not numbers."""
    strategy, seen = STRATEGIES[0], []
    rows = clients()
    bad = rows.replaced({2: (torch.full((9, 6), torch.nan), torch.zeros(9, dtype=torch.long))})
    for each in (rows, bad):
        simulate(seeded(CHAIN[0]), each, LOSS, strategy=strategy, rounds=1, watch=seen.append)
    kept = [0, 1, 3, 4]
    torch.testing.assert_close(seen[0].updates[kept], seen[1].updates[kept])
    assert seen[1].weights.tolist() == [7, 0, 0, 1, 12]


def test_running_statistics_are_refused() -> None:
    with pytest.raises(InvalidValue, match=r"buffer 1\.running_mean"):
        simulate(
            nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5)),
            clients((8, 8)),
            LOSS,
            strategy=FedAvg(learning_rate=0.1),
            rounds=1,
        )


def test_selective_sharing_uploads_the_largest_changes_and_keeps_models_apart() -> None:
    seen = []
    strategy = Selective(learning_rate=0.2, upload=0.1, batch_size=4)
    simulate(seeded(CHAIN[0]), clients((7, 9)), LOSS, strategy=strategy, rounds=2, watch=seen.append)
    size = seen[0].updates.shape[1]
    assert [int((update != 0).sum()) for update in seen[1].updates] == [int(np.ceil(0.1 * size))] * 2
    whole = []
    all_of_it = Selective(learning_rate=0.2, upload=1.0, batch_size=4)
    simulate(seeded(CHAIN[0]), clients((7, 9)), LOSS, strategy=all_of_it, rounds=1, watch=whole.append)
    for part, every in zip(seen[0].updates, whole[0].updates):
        torch.testing.assert_close(part[part != 0], every[part != 0])
        assert every[part == 0].abs().max() <= part[part != 0].abs().min()
    above = Selective(learning_rate=0.2, upload=1.0, threshold=0.01, batch_size=4)
    simulate(seeded(CHAIN[0]), clients((7, 9)), LOSS, strategy=above, rounds=1, watch=seen.append)
    assert float(seen[-1].updates[seen[-1].updates != 0].abs().min()) >= 0.01
    with pytest.raises(InvalidValue, match="upload must be above 0"):
        Selective(learning_rate=1, upload=0)
