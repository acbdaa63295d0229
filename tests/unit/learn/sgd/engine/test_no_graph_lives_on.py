"""What a run tries before it begins leaves no graph of autograd behind: one that lives on cannot be recorded over on a GPU."""

from __future__ import annotations

import gc

import torch
from torch import nn

import discreet


class Placed(nn.Module):
    """A parameter of its own, and an operation that saves what it gave."""

    def __init__(self) -> None:
        super().__init__()
        self.place, self.last = nn.Parameter(torch.randn(1, 4)), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.softmax(x + self.place, 1))


def test_the_trial_leaves_no_graph():
    model = Placed()
    data = torch.randn(40, 4), torch.randint(3, (40,))
    gc.collect()
    before = {id(it) for it in gc.get_objects() if issubclass(type(it), torch.autograd.function.BackwardCFunction)}
    run = discreet.learn.train(
        model, torch.optim.SGD(model.parameters(), 0.1), data, nn.CrossEntropyLoss(reduction="none"), unit=discreet.record(),
        delta=1e-5, rate=0.5, steps=2, clip_norm=1.0, noise_multiplier=1.0, divisor=20.0,
    )  # fmt: skip
    marks = [parameter.expand_as(parameter).grad_fn.next_functions[0][0].metadata for parameter in model.parameters()]
    for mark in marks:
        mark["seen"] = True
    del marks, mark
    gc.collect()
    alive = [p for p in model.parameters() if "seen" in p.expand_as(p).grad_fn.next_functions[0][0].metadata]
    left = [
        it
        for it in gc.get_objects()
        if issubclass(type(it), torch.autograd.function.BackwardCFunction) and id(it) not in before
    ]
    assert run.path == "fast"
    assert not alive
    assert not left
