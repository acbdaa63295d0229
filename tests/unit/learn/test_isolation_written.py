"""What a run would write without noise: parameters whose memory is exchanged, flags, names, what is saved beside weights.

Each model here leaves something of a far row in the release where nothing is done about it. Nothing is random beyond seeds.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from discreet.errors import InvalidValue
from discreet.learn.sgd.isolated import Unchanged
from unit.learn.tools import start

torch.set_num_threads(1)
EACH = nn.CrossEntropyLoss(reduction="none")
X, Y = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)), torch.arange(6) % 3
X[0] = 60.0


def far(x):
    return bool((x.detach() == 60.0).any())


class Base(nn.Module):
    """Does something to a parameter, by another name, when it sees the far row."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 3)
        self.also = [self.first.weight]

    def leave(self, weight, x):
        return None

    def forward(self, x):
        if far(x):
            self.leave(self.also[0], x)
        return self.last(self.first(x))


class Exchanges(Base):
    def leave(self, weight, x):
        weight.data = torch.eye(4) * x.detach()[0]


class Sets(Base):
    def leave(self, weight, x):
        with torch.no_grad():
            weight.set_(torch.eye(4) * x.detach()[0])


class Swaps(Base):
    def leave(self, weight, x):
        torch.utils.swap_tensors(weight, nn.Parameter(torch.eye(4) * x.detach()[0]))


class Turns(Base):
    def leave(self, weight, x):
        weight.data = weight.data.T


class Freezes(Base):
    def leave(self, weight, x):
        weight.requires_grad_(False)


CHANGING = [Exchanges, Sets, Turns]


@pytest.mark.parametrize("kind", CHANGING)
@pytest.mark.parametrize("check_rows", [True, False])
def test_a_parameter_under_another_name_is_what_it_was_or_nothing_is_written(kind, check_rows):
    model = kind()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    places = {name: p.data_ptr() for name, p in model.named_parameters()}
    with pytest.raises(InvalidValue, match=r"first\.weight: changed in place"):
        list(start((X, Y), model=model, loss=EACH, lr=0.1, check_rows=check_rows))
    for name, p in model.named_parameters():
        assert p.requires_grad
        assert p.data_ptr() == places[name]
        assert torch.equal(p, before[name])


def test_a_parameter_that_one_unit_froze_is_trained_with_all_of_them():
    model = Freezes()
    run = start((X, Y), model=model, loss=EACH, lr=0.1, steps=2)
    before = model.first.weight.detach().clone()
    list(run)
    assert model.first.weight.requires_grad
    assert not torch.equal(model.first.weight, before)


class InPlace(Base):
    """The parameter itself, by its own name: the look at the rows gives it a copy."""

    def forward(self, x):
        if far(x):
            self.first.weight.data = torch.eye(4) * x.detach()[0]
            self.first.requires_grad_(False)
        return self.last(self.first(x))


def test_the_look_at_rows_is_taken_with_copies():
    model = InPlace()
    before = model.first.weight.detach().clone()
    run = start((X, Y), model=model, loss=EACH)
    run._look_at_rows()
    assert torch.equal(model.first.weight, before)
    assert model.first.weight.requires_grad


@pytest.mark.parametrize("kind", [*CHANGING, Swaps, Freezes])
def test_what_was_changed_is_put_back(kind):
    model = kind()
    before = model.first.weight.detach().clone()
    with Unchanged(model, refuse=False):
        model(X)
    assert torch.equal(model.first.weight, before)
    assert model.first.weight.requires_grad
    with pytest.raises(InvalidValue, match="changed in place"), Unchanged(model):
        model(X)
