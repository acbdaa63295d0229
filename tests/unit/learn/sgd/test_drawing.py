"""Models that draw random numbers in their own forward are trained as they are, and refused for what is wrong with others."""

from __future__ import annotations

import traceback
import types

import numpy as np
import pytest
import torch
from torch import nn

import discreet
from discreet.errors import InvalidValue
from discreet.learn import Augment
from discreet.learn.sgd.clipping import Flat
from discreet.learn.sgd.engine import Engine
from discreet.learn.sgd.engine.probe import probe
from discreet.learn.sgd.proof.process import seed_torch

torch.set_num_threads(1)


class Variational(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.middle, self.spread = nn.Linear(6, 16), nn.Linear(16, 3), nn.Linear(16, 3)
        self.back = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 6))

    def forward(self, x):
        h = torch.relu(self.inner(x))
        middle, spread = self.middle(h), self.spread(h)
        return self.back(middle + torch.randn_like(middle) * (spread / 2).exp()) - x


class Denoising(nn.Module):
    """Learns what noise was added, at a time that is drawn too."""

    def __init__(self):
        super().__init__()
        self.time, self.net = nn.Embedding(20, 4), nn.Sequential(nn.Linear(10, 32), nn.SiLU(), nn.Linear(32, 6))

    def forward(self, x):
        time, noise = torch.randint(20, (len(x),)), torch.randn_like(x)
        part = time[:, None] / 20
        return self.net(torch.cat([(1 - part) * x + part * noise, self.time(time)], 1)) - noise


class Parameters(nn.Module):
    """A parameter of its own, so that it is run example by example."""

    def __init__(self):
        super().__init__()
        self.weight, self.head = nn.Parameter(torch.full((6,), 0.3)), nn.Linear(6, 6)

    def forward(self, x):
        return self.head(x * self.weight + 0.1 * torch.randn_like(x))


class Dropping(nn.Module):
    """Drops in evaluation as well."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(6, 6)

    def forward(self, x):
        return self.net(nn.functional.dropout(x, 0.5)) - x


class Divided(Denoising):
    def forward(self, x):
        return super().forward(x) / len(x) ** 0.5


class Coupled(Denoising):
    def forward(self, x):
        return super().forward(x + x.mean(0))


class Leaning(Denoising):
    """Only what is learned of an example depends on others."""

    def forward(self, x):
        found = super().forward(x)
        return found + found.mean(0) - found.mean(0).detach()


class Elsewhere(Denoising):
    def forward(self, x):
        return super().forward(x + torch.from_numpy(np.random.default_rng().normal(size=x.shape)).float())


def losses(found, x):
    return found.square().mean(1)


def trained(model, **more):
    torch.manual_seed(0)
    x = torch.randn(120, 6)
    how = {"unit": discreet.record(), "noise_multiplier": 1.0, "delta": 1e-5, "rate": 0.2, "steps": 3, "clip_norm": 1.0}
    run = discreet.learn.train(model, torch.optim.SGD(model.parameters(), 0.1), (x, x), losses, **how | more)
    return [step.number for step in run]


DRAWING = (Variational, Denoising, Parameters, Dropping)


@pytest.mark.parametrize("kind", DRAWING)
def test_a_model_that_draws_is_trained(kind):
    torch.manual_seed(1)
    model = kind()
    before = [p.clone() for p in model.parameters()]
    assert len(trained(model)) == 3
    assert all(not torch.equal(old, new) for old, new in zip(before, model.parameters()))


def test_a_model_that_draws_is_trained_with_copies():
    assert len(trained(Denoising(), augment=Augment(lambda x: x + 0.01 * torch.randn_like(x), copies=2))) == 3


@pytest.mark.parametrize("kind", DRAWING)
def test_clipped_sums_are_those_of_the_units_with_the_same_draws(kind):
    torch.manual_seed(2)
    model, x = kind(), torch.randn(7, 6)
    engine, clip = Engine(model), Flat(0.05)
    probe(engine, lambda rows: losses(model(rows), rows), lambda n: torch.randn(n, 6))
    found = engine.buffer()
    torch.manual_seed(3)
    with engine.recording(7):
        engine.add(losses(model(x), x), clip, found)
    for unit in range(7):
        torch.manual_seed(3)
        one = engine.gradient(losses(model(x), x)[unit])
        found -= one * clip.factors(one.norm().square())
    assert float(found.norm()) < 1e-5


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (Divided, "divides by its size"), (Coupled, "changes when another example"), (Leaning, "which part of a gradient"),
 (Elsewhere, "draw all their randomness from torch"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_model_that_draws_is_told(kind, told):
    torch.manual_seed(1)
    with pytest.raises(InvalidValue, match=told):
        trained(kind())


def test_what_the_user_draws_does_not_depend_on_the_trial():
    torch.manual_seed(5)
    model = Denoising()
    after = torch.random.get_rng_state()
    probe(Engine(model), lambda rows: losses(model(rows), rows), lambda n: torch.randn(n, 6))
    assert torch.equal(after, torch.random.get_rng_state())


def test_a_step_is_seeded_as_torch_does_without_its_stack_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(11)
        expected = torch.rand(3)
        if not torch.accelerator.is_available():
            monkeypatch.setattr(traceback, "format_stack", lambda: pytest.fail("A stack trace was formatted."))
        seed_torch(11)
        assert torch.initial_seed() == 11
        assert torch.equal(torch.rand(3), expected)


def test_devices_of_an_extension_are_seeded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    module = types.SimpleNamespace(_is_in_bad_fork=lambda: False, manual_seed_all=seeds.append)
    monkeypatch.setattr(torch, torch._C._get_privateuse1_backend_name(), module, raising=False)
    with torch.random.fork_rng(devices=[]):
        seed_torch(12)
    assert seeds == [12]
