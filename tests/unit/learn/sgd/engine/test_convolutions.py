"""Every way to the gradients of a kernel is the obvious one, for any shape; and the choice between them is remembered."""

from __future__ import annotations

from contextlib import contextmanager
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from discreet.learn.sgd.clipping import Flat
from discreet.learn.sgd.engine import Engine, tune
from discreet.learn.sgd.engine.layers import kernels, patches
from discreet.learn.sgd.engine.layers.conv import WRITTEN
from discreet.learn.sgd.engine.tune import FEW

WAYS = [*WRITTEN, "gram", *(["compiled"] if kernels.compiled() else [])]


@contextmanager
def forced(way):
    """This way wherever it can be gone at all, dear or not."""
    with tune.only(way), mock.patch.object(patches, "positions", return_value=0):
        yield


def losses(model, x):
    y = model(x).flatten(1)
    return (torch.sin(y) * torch.linspace(0.5, 1.5, y.shape[1])).sum(1)


def one_by_one(engine, clipping, x):
    total = engine.buffer()
    for unit in x.split(engine.rows):
        gradients = torch.autograd.grad(losses(engine.model, unit).sum(), engine.parameters)
        flat = torch.cat([g.flatten() for g in gradients])
        total += flat * clipping.factors(flat.square().sum())
    return total


def summed(engine, clipping, x):
    found = engine.buffer()
    with engine.recording(len(x)):
        engine.add(losses(engine.model, x), clipping, found)
    return found


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=25, deadline=None)
@given(
    channels=st.sampled_from([(1, 3), (3, 2), (4, 4)]), size=st.tuples(st.integers(5, 9), st.integers(5, 9)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)), stride=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)), dilation=st.integers(1, 1), rows=st.integers(1, 2),
    bias=st.booleans(), groups=st.booleans(), holes=st.booleans(), large=st.booleans(),
)  # fmt: skip
def test_a_way_gives_what_the_units_give_one_by_one(
    way, channels, size, kernel, stride, padding, dilation, rows, bias, groups, holes, large
):
    c, p = channels
    if groups and c == p == 4:
        groups = 2
    dilation = 2 if holes and max(kernel) <= 2 else dilation
    torch.manual_seed(0)
    conv = nn.Conv2d(c, p, kernel, stride, padding, dilation, 2 if groups == 2 else 1, bias)
    engine = Engine(nn.Sequential(nn.Conv2d(c, c, 1), nn.Tanh(), conv), rows)
    x = torch.randn(3 * rows, c, *size)
    clipping = Flat(100.0 if large else 0.5)
    wanted = one_by_one(engine, clipping, x)
    with forced(way):
        found = summed(engine, clipping, x)
    assert torch.allclose(found, wanted, rtol=0.0, atol=1e-5 * float(wanted.norm()))


@pytest.mark.parametrize("way", WAYS)
def test_gradients_too_large_to_keep_are_summed_without_being_kept(way, monkeypatch):
    monkeypatch.setattr("discreet.learn.sgd.engine.layers.conv.KEPT", 0)
    torch.manual_seed(0)
    engine = Engine(nn.Conv2d(3, 4, 3, padding=1))
    x = torch.randn(4, 3, 6, 6)
    with forced(way):
        assert torch.allclose(summed(engine, Flat(0.5), x), one_by_one(engine, Flat(0.5), x), atol=1e-6)


@pytest.mark.parametrize("way", WAYS)
def test_a_unit_that_is_not_a_number_adds_nothing(way):
    torch.manual_seed(0)
    engine = Engine(nn.Conv2d(3, 4, 3, padding=1))
    x = torch.randn(4, 3, 6, 6)
    spoiled = x.clone()
    spoiled[1] = float("nan")
    with forced(way):
        found, wanted = summed(engine, Flat(0.5), spoiled), summed(engine, Flat(0.5), x[[0, 2, 3]])
    assert torch.allclose(found, wanted, atol=1e-6)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_that_is_forced_is_gone(way):
    spies = {name: mock.Mock(wraps=run) for name, run in WRITTEN.items()}
    gram, compiled = mock.Mock(wraps=patches.patch_gram), mock.Mock(wraps=kernels.gradients)
    with (
        forced(way), mock.patch.dict(WRITTEN, spies), mock.patch.object(patches, "patch_gram", gram),
        mock.patch.object(kernels, "gradients", compiled),
    ):  # fmt: skip
        summed(Engine(nn.Conv2d(3, 4, 3, padding=1)), Flat(0.5), torch.randn(4, 3, 6, 6))
    assert [name for name, spy in {**spies, "gram": gram, "compiled": compiled}.items() if spy.called] == [way]


def test_a_shape_is_measured_once(monkeypatch):
    asked = []
    real = tune._measured
    monkeypatch.setattr(tune, "_known", {})
    monkeypatch.setattr(tune, "_measured", lambda ways, run, device: asked.append(ways) or real(ways, run, device))
    torch.manual_seed(0)
    engine = Engine(nn.Conv2d(2, 3, 3))
    for units in (FEW - 1, FEW, FEW + 1, FEW):
        x = torch.randn(units, 2, 7, 7)
        assert torch.allclose(summed(engine, Flat(0.5), x), one_by_one(engine, Flat(0.5), x), atol=1e-5)
    assert len(asked) == 1


def test_the_fastest_way_is_taken(monkeypatch):
    monkeypatch.setattr(tune, "_known", {})
    monkeypatch.setattr(tune, "_seconds", lambda run, name, device: {"slow": 3.0, "fast": 1.0, "middling": 1.2}[name])
    cpu = torch.device("cpu")
    assert tune.known(["slow", "fast"], "shape", cpu) is None
    assert tune.fastest(["slow", "middling", "fast"], lambda name: None, "shape", cpu) == "fast"
    assert tune.known(["slow", "fast"], "shape", cpu) == "fast"
    assert tune.known(["slow"], "another shape", cpu) == "slow"
    with tune.only("slow"):
        assert tune.known(["slow", "fast"], "shape", cpu) == "slow"


def test_the_likeliest_way_is_taken_where_another_is_hardly_faster(monkeypatch):
    """Or which one is taken would be a matter of noise."""
    monkeypatch.setattr(tune, "_known", {})
    monkeypatch.setattr(tune, "_seconds", lambda run, name, device: {"likely": 1.05, "faster": 1.0, "fast": 0.9}[name])
    cpu = torch.device("cpu")
    assert tune.fastest(["likely", "faster"], lambda name: None, "shape", cpu) == "likely"
    assert tune.fastest(["likely", "fast"], lambda name: None, "another", cpu) == "fast"


def test_one_slow_moment_does_not_decide(monkeypatch):
    """The good way is interrupted the first time that it is timed."""
    monkeypatch.setattr(tune, "_known", {})
    left = {"good": [9.0, 1.0], "bad": [2.0, 2.0]}
    monkeypatch.setattr(tune, "_seconds", lambda run, name, device: left[name].pop(0))
    assert tune.fastest(["bad", "good"], lambda name: None, "shape", torch.device("cpu")) == "good"


def test_a_way_that_cannot_be_gone_here_is_passed_over(monkeypatch):
    monkeypatch.setattr(tune, "_known", {})

    def run(name):
        if name != "possible":
            raise RuntimeError(f"{name}: no room")

    cpu = torch.device("cpu")
    assert tune.fastest(["first", "possible", "last"], run, "shape", cpu) == "possible"
    with pytest.raises(RuntimeError, match="last: no room"):
        tune.fastest(["first", "last"], run, "another", cpu)
