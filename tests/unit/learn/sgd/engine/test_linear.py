"""Linear layers: both ways to a norm over positions, and nothing of a step outlives it."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from discreet.learn.sgd.clipping import Flat
from discreet.learn.sgd.engine import Engine, tune
from discreet.learn.sgd.engine.layers import linear
from gradients import agree


class Heads(nn.Module):
    """Layers that read the same tensor, one of them twice."""

    def __init__(self, width, out, bias):
        super().__init__()
        self.one, self.other, self.last = nn.Linear(width, out, bias), nn.Linear(width, 3), nn.Linear(out, width, bias)

    def forward(self, x):
        x = torch.tanh(x)
        y = torch.tanh(self.one(x))
        return torch.cat([self.other(x), self.last(y), self.last(y * y)], -1)


@pytest.mark.parametrize("way", ["grams", "written"])
@settings(max_examples=20, deadline=None)
@given(st.integers(2, 9), st.integers(2, 9), st.integers(2, 7), st.booleans(), st.integers(1, 2), st.integers(2, 10))
def test_both_ways_give_what_the_units_give_one_by_one(way, width, out, positions, bias, rows, units):
    torch.manual_seed(0)
    kept = linear.KEPT
    linear.KEPT = 100  # so that nothing is too large to be written out
    try:
        with tune.only(way):
            agree(Heads(width, out, bias), lambda n: torch.randn(n, positions, width), rows, units)
    finally:
        linear.KEPT = kept


def test_the_way_is_measured_once_a_shape(monkeypatch):
    asked = []
    monkeypatch.setattr(tune, "_known", {})
    monkeypatch.setattr(tune, "_measured", lambda ways, run, device: asked.append([run(way) for way in ways]) or ways[0])
    monkeypatch.setattr(linear, "KEPT", 100)
    torch.manual_seed(0)
    for _ in range(2):
        agree(nn.Linear(5, 4), lambda n: torch.randn(n, 6, 5), units=tune.FEW)
    assert len(asked) == 1


def test_nothing_of_a_step_is_kept_by_whoever_keeps_its_losses():
    torch.manual_seed(0)
    engine = Engine(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)))
    x = torch.randn(6, 4)
    with engine.recording(6):
        losses = engine.model(x).square().sum(1)
        records = list(engine.tape.records)
        engine.add(losses, Flat(1.0), engine.buffer())
    inputs = weakref.ref(x)
    del x
    gc.collect()
    assert all(not record.__dict__ for record in records)
    assert inputs() is None
    assert losses.grad_fn is not None
