"""Norms from the squares of two factors: tiny activations that meet huge gradients, or the other way round, are clipped too."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from discreet.learn.sgd.clipping import Automatic, Flat, PerLayer
from discreet.learn.sgd.engine import Engine
from discreet.learn.sgd.engine.layers import linear
from discreet.learn.sgd.engine.probe import learn


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x):
        scale, chosen = x[:, :1, None], (x.detach() * 0).long()
        return self.head(self.table(chosen) * scale)


KINDS = {
    "linear": (lambda: nn.Linear(4, 3, bias=False), (4,)),
    "linear with bias": (lambda: nn.Linear(4, 3), (4,)),
    "sequence": (lambda: nn.Linear(4, 3, bias=False), (3, 4)),
    "wide sequence": (lambda: nn.Linear(64, 64, bias=False), (3, 64)),
    "convolution": (lambda: nn.Conv2d(2, 64, 3, bias=False), (2, 4, 4)),
    "convolution over time": (lambda: nn.Conv1d(2, 3, 3, bias=False), (2, 5)),
    "tied": (Tied, (3,)),
}
size = st.floats(-30, 18)


def clipped(kind, clipping, activation, output, way=None):
    """The length of one unit's share of the sum."""
    make, shape = KINDS[kind]
    torch.manual_seed(0)
    model = make()
    engine = Engine(model)

    def losses(batch):
        x, y = batch
        return (model(x).flatten(1) * y[:, None]).sum(1)

    learn(engine, losses, lambda n: (torch.ones(n, *shape), torch.ones(n)))
    into = engine.buffer()
    x, y = torch.ones(2, *shape), torch.zeros(2)  # the other unit brings nothing, so that there is a batch
    x[0], y[0] = activation, output
    with engine.recording(2):
        engine.add(losses((x, y)), clipping, into)
    return float(into.double().norm())


@settings(max_examples=60, deadline=None)
@example(kind="linear", how=Flat, norm=1e-6, activation=-22.9, output=18)
@example(kind="wide sequence", how=Flat, norm=1e-6, activation=-22.9, output=17)
@example(kind="convolution", how=Flat, norm=1e-6, activation=-22.9, output=17)
@example(kind="linear", how=Flat, norm=1e-6, activation=15, output=-22)
@given(
    kind=st.sampled_from(sorted(KINDS)), how=st.sampled_from([Flat, PerLayer, Automatic]),
    norm=st.sampled_from([1e-12, 1e-6, 1e-3, 1.0]), activation=size, output=size,
)  # fmt: skip
def test_a_unit_never_brings_more_than_the_clip_norm(kind, how, norm, activation, output):
    assert clipped(kind, how(norm), 10**activation, 10**output) <= norm * (1 + 1e-5)


@pytest.mark.parametrize("kind", ["linear", "sequence"])
def test_without_the_room_they_would_not_be(kind, monkeypatch):
    """The broken twin: the squares alone."""
    from discreet.learn.sgd.engine import tape

    monkeypatch.setattr(linear, "VANISHED", 0.0)
    monkeypatch.setattr(tape, "ROOM", 0.0)
    monkeypatch.setattr(linear.LinearRecord, "_way", lambda self, x, g: "grams")
    assert clipped(kind, Flat(1e-6), 1.2e-23, 9e17) > 10 * 1e-6


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_ordinary_gradients_are_not_shortened(kind):
    exact = clipped(kind, Flat(1e9), 1e-3, 1e-3)
    assert clipped(kind, Flat(exact * 1.001), 1e-3, 1e-3) == pytest.approx(exact, rel=1e-5)
