"""Tables of a class of their own: what they read is recorded, and rows of padding get no gradient."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import discreet
from discreet.learn import train
from discreet.learn.sgd.clipping import Flat
from discreet.learn.sgd.engine import Engine
from discreet.learn.sgd.engine.layers import find
from discreet.learn.sgd.engine.layers.embedding import inherited

torch.set_num_threads(1)

ENTRIES, WIDTH, LENGTH = 9, 4, 6


class Scaled(nn.Embedding):
    def forward(self, x):
        return super().forward(x) * 2.5


class Named(nn.Embedding):
    """Calls the function itself, with names, and looks at its own weight."""

    def forward(self, x):
        return F.embedding(input=x, weight=self.weight, padding_idx=self.padding_idx) * self.weight.shape[0]


class Places(nn.Embedding):
    """Positions, made of what it is given; all examples share them."""

    def forward(self, x):
        return super().forward(torch.arange(x.shape[1]))


class Stranger(nn.Module):
    """Runs example by example under vmap, table and all, since it has a parameter of its own."""

    def __init__(self, padding):
        super().__init__()
        self.table = nn.Parameter(torch.randn(ENTRIES, WIDTH))
        self.padding = padding

    def forward(self, x):
        return F.embedding(x, self.table, self.padding) ** 3


class Twice(nn.Embedding):
    """Uses its weight otherwise too, which no recorded read covers."""

    def forward(self, x):
        return super().forward(x) + self.weight.mean()


class Net(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.table, self.last = table, nn.Linear(WIDTH, 3)

    def forward(self, x):
        return (
            self.last(self.table(x).mean(1))
            if not isinstance(self.table, Places)
            else self.last(self.table(x).mean(0) + 0 * x[:, :1])
        )


class Tied(nn.Module):
    """The table is the head's weight as well: there the row of padding has a gradient."""

    def __init__(self, table):
        super().__init__()
        self.table, self.last = table, nn.Linear(WIDTH, ENTRIES, bias=False)
        self.last.weight = self.table.weight

    def forward(self, x):
        return self.last(self.table(x).mean(1))


def losses(model, x):
    return model(x).pow(2).sum(1)


def agrees(model, x, norm=0.5):
    """The engine's sum against a loop of autograd; the largest difference relative to the sum."""
    run = train(
        model, torch.optim.SGD(model.parameters(), 0.1), (x, torch.zeros(len(x))), lambda out, y: out.pow(2).sum(1),
        unit=discreet.record(), noise_multiplier=1.0, delta=1e-5, rate=0.5, steps=2, clip_norm=1.0,
    )  # fmt: skip
    engine, clipping = run._sum.engine, Flat(norm)
    assert isinstance(engine, Engine)
    found = engine.buffer()
    with engine.recording(len(x)):
        engine.add(losses(model, x), clipping, found)
    wanted = torch.zeros_like(found)
    for row in x:
        flat = engine.gradient(losses(model, row[None]).sum())
        wanted += flat * float(clipping.factors(flat.square().sum()[None, None]).squeeze())
    return float((found - wanted).abs().max() / wanted.abs().max())


def tokens(padding):
    x = torch.randint(ENTRIES, (12, LENGTH), generator=torch.Generator().manual_seed(0))
    x[:, -2:] = padding
    return x


@pytest.mark.parametrize("padding", [0, 1, 5, ENTRIES - 1])
@pytest.mark.parametrize("kind", [nn.Embedding, Scaled, Named, Stranger])
def test_rows_of_padding_get_no_gradient(kind, padding):
    torch.manual_seed(0)
    table = Stranger(padding) if kind is Stranger else kind(ENTRIES, WIDTH, padding_idx=padding)
    if kind is not Stranger:
        nn.init.normal_(table.weight)
    assert agrees(Net(table), tokens(padding)) < 1e-5


@pytest.mark.parametrize("kind", [nn.Embedding, Scaled])
def test_a_tied_head_moves_the_row_of_padding(kind):
    torch.manual_seed(0)
    assert agrees(Tied(kind(ENTRIES, WIDTH, padding_idx=1)), tokens(1)) < 1e-5


def test_a_subclass_is_recorded_and_not_copied_for_every_example():
    """A copy of a large vocabulary for each example would not fit any memory."""
    assert find(Scaled(ENTRIES, WIDTH))[0] is inherited
    assert find(Stranger(0))[0] is None


def test_positions_that_all_examples_share():
    torch.manual_seed(0)
    assert agrees(Net(Places(LENGTH, WIDTH)), tokens(1)) < 1e-5


def test_a_table_that_is_used_otherwise_is_run_by_what_is_around_it():
    """The recorded read alone would miss a part of the gradient, which is seen on made-up rows."""
    torch.manual_seed(0)
    assert agrees(Net(Twice(ENTRIES, WIDTH)), tokens(1)) < 1e-5
