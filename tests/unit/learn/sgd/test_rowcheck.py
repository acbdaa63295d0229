"""Nothing is charged for a run that cannot succeed; what fails afterwards says that it was charged."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import discreet
from discreet.errors import InvalidValue
from discreet.learn import train
from discreet.learn.sgd import rowcheck

torch.set_num_threads(1)

BAD = 17  # the row at fault
EACH = nn.CrossEntropyLoss(reduction="none")


class People(Dataset):
    """40 rows, one of which may be spoiled."""

    def __init__(self, kind: str = "fine") -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 40

    def __getitem__(self, row: int) -> tuple[torch.Tensor, object]:
        if row == BAD and self.kind == "unreadable":
            raise OSError("no such picture: alice.png")
        if row == BAD and self.kind == "longer":
            return torch.zeros(5), 0
        if row == BAD and self.kind == "of another type":
            return torch.zeros(4, dtype=torch.float64), 0
        if row == BAD and self.kind == "without a target":
            return (torch.zeros(4),)
        return torch.full((4,), row / 40), row % 3 if row != BAD or self.kind != "of another class" else 3


@pytest.fixture
def ledger(tmp_path):
    made = discreet.Ledger(tmp_path / "ledger.db")
    made.open("people", unit=discreet.record(), epsilon=100.0, delta=1e-2)
    return made


def begin(ledger, data, model=None, loss=EACH, **options):
    model = model or nn.Linear(4, 3)
    return train(
        model, torch.optim.SGD(model.parameters(), 0.1), data, loss, unit=discreet.record(), noise_multiplier=1.0, delta=1e-5,
        rate=0.9, steps=4, clip_norm=1.0, divisor=36.0, ledger=ledger, source="people", **options,
    )  # fmt: skip


def refused(ledger, caplog, data, match, **options):
    """The run does not begin, costs nothing, and only the log knows the row."""
    run = begin(ledger, data, **options)
    caplog.clear()
    with caplog.at_level(logging.ERROR, "discreet.learn"), pytest.raises(InvalidValue, match=match) as caught:
        run.fit()
    assert ledger.spent("people") == 0
    assert [entry.kind for entry in ledger.history("people")] == ["open"]
    said = str(caught.value)
    assert "Nothing was charged" in said
    assert str(BAD) not in said
    assert "alice" not in said
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert [record.getMessage() for record in caplog.records if f"row {BAD} " in record.getMessage()]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("kind", "match"),
    [
        ("unreadable", "cannot be read"), ("longer", "differ in shape"), ("of another type", "differ in shape"),
        ("without a target", "differ in shape"), ("of another class", r"fail on a row of data \(IndexError\)"),
    ],
)  # fmt: skip
def test_a_data_set_with_one_bad_row(ledger, caplog, kind, match, workers):
    refused(ledger, caplog, DataLoader(People(kind), num_workers=workers) if workers else People(kind), match)


def labels(value):
    y = torch.arange(40) % 3
    y[BAD] = value
    return torch.randn(40, 4, generator=torch.Generator().manual_seed(0)), y


@pytest.mark.parametrize("value", [3, -1, -100 + 3, 10**6])
def test_a_label_that_is_no_class(ledger, caplog, value):
    refused(ledger, caplog, labels(value), "label is none of the classes")


def test_a_label_that_is_ignored_is_fine(ledger):
    begin(ledger, labels(-100)).fit()
    assert ledger.spent("people") > 0


def cast(output, target):
    """Two classes, and a mistake that made-up rows do not show: what is missing, or larger than any of them, is no class."""
    target = target.flatten()
    return EACH(output, torch.where(target.abs() < 1e5, (target > 0).float(), target).long())


@pytest.mark.parametrize("value", [1e6, -1e6, float("nan"), float("inf")])
@pytest.mark.parametrize("shape", [(40,), (40, 1)])
def test_a_float_that_the_loss_casts_to_a_class(ledger, caplog, value, shape):
    x, y = labels(1)
    y = y.float()
    y[BAD] = value
    refused(ledger, caplog, (x, y.view(shape)), "Model and loss fail on a row", loss=cast)
    y[BAD] = 1.5  # a fraction is no label by itself
    begin(ledger, (x, y.view(shape)), loss=cast).fit()
    assert ledger.spent("people") > 0


def test_hinges_and_other_losses_are_asked_themselves(ledger, caplog):
    """A loss of one's own that looks its target up in a table."""
    table = torch.eye(3)

    def squares(output, target):
        return (output - table[target]).square().mean(1)

    refused(ledger, caplog, labels(5), r"\(IndexError\)", loss=squares)
    begin(ledger, labels(1), loss=squares).fit()


class Reader(nn.Module):
    def __init__(self, entries: int = 10, positions: int = 6) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(entries, 4), nn.Embedding(positions, 4)
        self.last = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last((self.words(x) + self.places(torch.arange(x.shape[1]))).mean(1))


@pytest.mark.parametrize("token", [10, -1, 2**40])
def test_a_token_that_is_not_in_the_vocabulary(ledger, caplog, token):
    x = torch.randint(10, (40, 6), generator=torch.Generator().manual_seed(0))
    x[BAD, 3] = token
    refused(ledger, caplog, (x, torch.arange(40) % 3), "not in the vocabulary", model=Reader())
    x[BAD, 3] = 9
    begin(ledger, (x, torch.arange(40) % 3), model=Reader()).fit()


def test_a_row_too_long_for_the_model(ledger, caplog):
    """Rows of unequal length are fine with a collate function, but not one with more positions than the model has."""

    class Texts(Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, row):
            return torch.full((7 if row == BAD else 2 + row % 4,), row % 10), row % 3

    def stack(rows):
        return torch.stack([x for x, _ in rows]), torch.tensor([y for _, y in rows])

    data = DataLoader(Texts(), collate_fn=stack)
    begin(ledger, data, model=Reader(positions=7)).fit()
    spent = ledger.spent("people")
    with pytest.raises(InvalidValue, match="Nothing was charged"):
        begin(ledger, data, model=Reader(positions=6)).fit()
    assert ledger.spent("people") == spent


def test_the_look_leaves_model_and_random_numbers_alone(ledger):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 3))

        def forward(self, x):
            return self.inner(x)

    model = Counting()
    run = begin(ledger, labels(1), model=model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    rowcheck.check(run._sum, split=False)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_values_that_are_many_are_looked_at_by_their_ends():
    holders: dict[int, int] = {}
    rowcheck._note(holders, np.arange(3 * rowcheck.MANY).reshape(-1, 1), np.arange(3 * rowcheck.MANY))
    assert holders == {0: 0, 3 * rowcheck.MANY - 1: 3 * rowcheck.MANY - 1}
    rowcheck._note(holders, np.array([[-5, 7]]), np.array([1]))
    assert holders == {0: 0, 3 * rowcheck.MANY - 1: 3 * rowcheck.MANY - 1, -5: 1, 7: 1}


def test_what_fails_after_the_charge_says_so(ledger):
    calls = []

    def loss(output, target):
        calls.append(1)
        if len(calls) > limit[0]:
            raise RuntimeError("of the user's own")
        return EACH(output, target)

    limit = [10**9]
    run = begin(ledger, labels(1), loss=loss)
    steps = iter(run)
    next(steps)
    limit[0] = 0
    with pytest.raises(RuntimeError, match=r"RuntimeError at test_rowcheck\.py") as caught:
        next(steps)
    [entry] = [it for it in ledger.history("people") if it.kind == "reserve"]
    assert run._state.entries[0] == entry.id
    assert f"Entry {entry.id} of people was charged" in caught.value.__notes__[-1]
    assert "stays spent" in caught.value.__notes__[-1]
    limit[0] = 10**9
    run.fit()
    assert run.number == 4
