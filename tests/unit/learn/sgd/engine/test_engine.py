"""Every fast path against the obvious one: the gradients of the units taken one by one."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from discreet.errors import InvalidValue
from discreet.learn.sgd.clipping import CLIPPINGS, SLACK, Flat
from discreet.learn.sgd.engine import Engine
from discreet.learn.sgd.engine.probe import learn


class Gate(nn.Module):
    """A parameter of its own around a layer: goes through torch.func."""

    def __init__(self, width):
        super().__init__()
        self.gate = nn.Parameter(torch.randn(width))
        self.inner = nn.Linear(width, width)

    def forward(self, x):
        return self.inner(x) * self.gate


class Text(nn.Module):
    """Tied table and head, positions without a batch axis, a layer called twice, an activation in place."""

    def __init__(self, entries=11, width=8, positions=5):
        super().__init__()
        self.table, self.place = nn.Embedding(entries, width), nn.Embedding(positions, width)
        self.norm, self.again, self.gate, self.last = (
            nn.LayerNorm(width),
            nn.Linear(width, width),
            Gate(width),
            nn.RMSNorm(width),
        )
        self.head = nn.Linear(width, entries, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x):
        h = self.table(x) + self.place(torch.arange(x.shape[1]))
        h = F.relu(self.again(self.norm(h)), inplace=True)
        return self.head(self.last(self.gate(h + self.again(h)))).mean(1)


def images():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.ReLU(inplace=True), nn.Conv2d(8, 4, 3, padding="same", groups=2),
        nn.Flatten(), nn.Linear(64, 11),
    )  # fmt: skip


CASES = {
    "table": (lambda: nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 11)), lambda n: torch.randn(n, 6)),
    "sequence": (lambda: nn.Sequential(nn.Linear(6, 9), nn.Linear(9, 4, bias=False), nn.Flatten(), nn.Linear(28, 11)),
                 lambda n: torch.randn(n, 7, 6)),
    "text": (Text, lambda n: torch.randint(11, (n, 5))),
    "images": (images, lambda n: torch.randn(n, 3, 8, 8)),
}  # fmt: skip


def losses(model, x, y):
    return F.cross_entropy(model(x), y, reduction="none")


def one_by_one(engine, clipping, x, y):
    """Each unit's gradient by itself, clipped as one vector."""
    total = engine.buffer()
    for start in range(0, len(x), engine.rows):
        its = slice(start, start + engine.rows)
        gradients = torch.autograd.grad(losses(engine.model, x[its], y[its]).sum(), engine.parameters)
        flat = torch.cat([g.flatten() for g in gradients])
        total += flat * clipping.factors(flat.square().sum())
    return total


def made(case, examples, rows=1, seed=0):
    torch.manual_seed(seed)
    model, make = CASES[case][0](), CASES[case][1]
    engine = Engine(model, rows)
    learn(engine, lambda x: losses(model, x, torch.zeros(len(x), dtype=torch.long)), make)
    return engine, make(examples), torch.randint(11, (examples,))


def summed(engine, clipping, x, y, scale=1.0):
    found = engine.buffer()
    with engine.recording(len(x)):
        engine.add(losses(engine.model, x, y), clipping, found, scale)
    return found


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("clipping", [Flat(0.5), CLIPPINGS["automatic"](0.5)])
def test_the_clipped_sum_is_that_of_the_units_one_by_one(case, rows, clipping):
    engine, x, y = made(case, 6, rows)
    wanted = one_by_one(engine, clipping, x, y)
    assert torch.allclose(summed(engine, clipping, x, y), wanted, atol=1e-5 * float(wanted.norm()))


@pytest.mark.parametrize("case", CASES)
def test_one_unit_never_moves_the_sum_by_more_than_the_clip_norm(case):
    engine, x, y = made(case, 5)
    for name in CLIPPINGS:
        clipping = CLIPPINGS[name](0.01)
        with_it, without = summed(engine, clipping, x, y), summed(engine, clipping, x[1:], y[1:])
        assert float((with_it - without).norm()) <= 0.01 * (1 + SLACK)


@pytest.mark.parametrize("case", ["table", "sequence", "images"])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_unit_that_is_not_a_number_adds_nothing_and_changes_nobody(case, value):
    engine, x, y = made(case, 5)
    spoiled = x.clone()
    spoiled[2] = value
    others = [0, 1, 3, 4]
    found, wanted = summed(engine, Flat(0.5), spoiled, y), summed(engine, Flat(0.5), x[others], y[others])
    assert torch.allclose(found, wanted, atol=1e-6)


def test_frozen_parameters_are_left_alone_and_the_model_is_as_it_was():
    engine, x, y = made("images", 4)
    engine.model[0].requires_grad_(False)
    engine.model[3].bias.requires_grad_(False)
    engine = Engine(engine.model)
    wanted = one_by_one(engine, Flat(0.5), x, y)
    assert torch.allclose(summed(engine, Flat(0.5), x, y), wanted, atol=1e-6)
    assert all("forward" not in module.__dict__ for module in engine.model.modules())
    assert all(p.grad is None for p in engine.model.parameters())


def test_the_model_is_as_it_was_after_an_error_inside_it():
    engine, x, _ = made("table", 4)
    with pytest.raises(RuntimeError), engine.recording(4):
        engine.model(x[:, :3])
    assert all("forward" not in module.__dict__ for module in engine.model.modules())


class Outside(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 8)

    def forward(self, x):
        return F.linear(self.table(x).mean(1), self.table.weight)


def test_a_parameter_used_outside_its_module_is_refused():
    torch.manual_seed(0)
    engine = Engine(Outside())
    with pytest.raises(InvalidValue, match=r"table\.weight: used outside the module"):
        summed(engine, Flat(1.0), torch.randint(11, (3, 5)), torch.zeros(3, dtype=torch.long))
    assert all(p.grad is None for p in engine.parameters)


def test_a_model_without_trainable_parameters_is_refused():
    with pytest.raises(InvalidValue, match="no trainable parameter"):
        Engine(nn.Linear(2, 2).requires_grad_(False))
