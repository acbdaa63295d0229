"""Compiled models: the same sums as uncompiled ones, and compiled as before afterwards."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import discreet
from discreet.learn import read, train
from gradients import agree, copies

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # by the compiler itself


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.table, self.norm, self.head = nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 5)

    def forward(self, x):
        h = torch.cat((self.token.expand(len(x), -1, -1), self.table(x)), 1)
        return self.head(torch.relu(self.norm(h)) * 2)


def whole(model):
    return torch.compile(model, backend="aot_eager")


def in_one_graph(model):
    return torch.compile(model, backend="aot_eager", fullgraph=True)


def a_part(model):
    model.norm = torch.compile(model.norm, backend="aot_eager")
    return model


def in_place(model):
    model.compile(backend="aot_eager")
    model.head.compile(backend="aot_eager")
    return model


@pytest.mark.parametrize("compiled", [whole, in_one_graph, a_part, in_place])
def test_a_compiled_model_gives_the_sums_of_the_units_one_by_one(compiled):
    """What they are held against runs compiled: outside of a step the model is what it was."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = compiled(Small())
    assert copies(agree(model, lambda n: torch.randint(11, (n, 4)))) == []
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0


def test_a_compiled_model_is_trained_and_read_into_one_that_is_not(tmp_path):
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = torch.compile(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), backend="aot_eager")
    run = train(
        model, torch.optim.SGD(model.parameters(), 0.1), (torch.randn(30, 3), torch.randint(2, (30,))),
        nn.CrossEntropyLoss(reduction="none"), unit=discreet.record(), delta=1e-5, rate=0.5, steps=3, clip_norm=1.0,
        noise_multiplier=1.0, divisor=15,
    )  # fmt: skip
    assert [step.number for step in run] == [1, 2, 3]
    run.release(tmp_path / "model")
    plain = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    read(tmp_path / "model", plain)
    x = torch.randn(5, 3)
    assert torch.allclose(plain(x), model(x), atol=1e-6)
