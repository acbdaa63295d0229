"""Parameters that a look at the rows writes, other names of parameters, noise added twice, and seeds that tell a place."""

from __future__ import annotations

import os

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import discreet
from discreet.errors import InvalidValue
from discreet.learn import Performance

EACH = nn.CrossEntropyLoss(reduction="none")


class Keep(torch.optim.SGD):
    """Leaves the weights alone and keeps the gradients of every step."""

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.0)
        self.seen, self.fail = [], False

    def step(self, closure=None):
        self.seen.append(torch.cat([p.grad.flatten().clone() for p in self.param_groups[0]["params"]]))
        if self.fail:
            self.fail = False
            raise RuntimeError("once")


def start(model, data, *, noise=1e-7, steps=1, loss=EACH, **more):
    optimizer = Keep(model.parameters())
    run = discreet.learn.train(
        model, optimizer, data, loss, unit=discreet.record(), rate=1.0, steps=steps, clip_norm=1.0, noise_multiplier=noise,
        delta=1e-5, divisor=1.0, **more,
    )  # fmt: skip
    return run, optimizer


class Renormed(nn.Module):
    """A table whose rows are shortened, in place, when they are read."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Parameter(5 * torch.randn(12, 4)), nn.Linear(4, 3)

    def forward(self, tokens):
        return self.head(F.embedding(tokens, self.table, max_norm=1.0).mean(1))


@pytest.mark.parametrize("path", [None, "isolated"])
def test_a_look_at_the_rows_writes_nothing_into_the_weights(path):
    torch.manual_seed(0)
    model = Renormed()
    before = model.table.detach().clone()
    run, _ = start(model, (torch.randint(6, (30, 5)), torch.randint(3, (30,))), performance=Performance(path=path))
    with pytest.raises(InvalidValue, match="table"):
        run.fit()
    assert torch.equal(model.table.detach(), before)


class Alias(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.also = [self.layer.weight]

    def forward(self, x):
        if 59 < float(x.detach().abs().max()) < 61:
            self.also[0].data[0].copy_(x[0])
        return self.layer(x)


def test_another_name_of_a_parameter_is_watched():
    torch.manual_seed(0)
    x = torch.randn(20, 4)
    x[7, 0] = 60.0
    model = Alias()
    before = model.layer.weight.detach().clone()
    run, optimizer = start(model, (x, torch.rand(20)), loss=lambda out, y: out.sum(1) * y)
    with pytest.raises(InvalidValue, match=r"layer\.weight"):
        run.fit()
    assert optimizer.seen == []
    assert torch.equal(model.layer.weight.detach(), before)


def test_a_step_that_failed_late_is_not_taken_again_with_its_noise():
    torch.manual_seed(0)
    x, y = torch.randn(20, 4), torch.randint(3, (20,))
    run, optimizer = start(nn.Linear(4, 3), (x, y), noise=5.0, steps=2)
    optimizer.fail = True
    with pytest.raises(RuntimeError, match="once"):
        run.fit()
    with pytest.raises(InvalidValue, match="same noise"):
        run.fit()
    run._state.number = 0
    with pytest.raises(InvalidValue, match="same noise"):
        run.fit()
    assert len(optimizer.seen) == 1


def test_a_forked_process_does_not_go_on():
    torch.manual_seed(0)
    run, _ = start(nn.Linear(4, 3), (torch.randn(20, 4), torch.randint(3, (20,))), noise=5.0, steps=3)
    next(iter(run))
    child = os.fork()
    if not child:
        try:
            run.fit()
        except InvalidValue:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize("path", ["fast", "isolated"])
def test_a_seed_of_the_user_does_not_decide_what_a_model_draws(path):
    """With a known seed the draws of a unit would tell its place; two runs from one seed draw otherwise."""
    x, y = torch.randn(24, 6, generator=torch.Generator().manual_seed(1)), torch.arange(24) % 3
    sums = []
    for _ in range(2):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))
        run, optimizer = start(model, (x, y), performance=Performance(path=path))
        state = torch.get_rng_state()
        run.fit()
        assert torch.equal(torch.get_rng_state(), state)
        sums.append(optimizer.seen[0])
    assert float((sums[0] - sums[1]).norm()) > 0.1


class Reads(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer, self.head = layer(4, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_networks_are_proven(layer):
    """torch makes its lists of a recurrent layer's weights anew when those are replaced: that is nothing that a model keeps."""
    torch.manual_seed(0)
    run, _ = start(
        Reads(layer), (torch.randn(20, 5, 4), torch.randint(3, (20,))), steps=2, performance=Performance(path="fast")
    )
    assert run.fit().path == "fast"
