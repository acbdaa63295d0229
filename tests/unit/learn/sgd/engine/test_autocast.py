"""Narrow types: norms and sums are right within their rounding, and no rounding lets a unit add more than the clip norm."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import nn

from discreet.errors import InvalidValue
from discreet.learn.layers import RectifiedGroupNorm, StandardizedConv2d
from discreet.learn.sgd.clipping import NARROW, SLACK, Flat, slack
from discreet.learn.sgd.engine import Engine
from discreet.learn.sgd.engine.gradient_check import one_after_another, tolerance
from discreet.learn.sgd.engine.layers import linear
from discreet.learn.sgd.engine.layers.conv import ConvRecord
from discreet.learn.sgd.engine.probe import learn, probe
from gradients import Seen, fused, losses, one_by_one

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")
SHARE = 4 * NARROW[torch.bfloat16]  # a forward, a backward and a norm in bfloat16 against another order of the same


class Text(nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.table, self.norm, self.head = nn.Embedding(11, 16), nn.LayerNorm(16), nn.Linear(16, 11)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        if tied:
            self.head.weight = self.table.weight

    def forward(self, x):
        return self.head(self.norm(self.layer(self.table(x))))


class Reads(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(6, 16, batch_first=True), nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.lstm(x)[0])


def images():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.Tanh(), nn.Conv2d(8, 8, 4, padding="same"), nn.Flatten(1),
        nn.Linear(8 * 36, 5),
    )  # fmt: skip


def standardised():
    return nn.Sequential(
        StandardizedConv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), StandardizedConv2d(8, 8, 3), nn.Flatten(1)
    )


def rectified():
    return nn.Sequential(
        StandardizedConv2d(3, 8, 3, padding=1), RectifiedGroupNorm(2, 8), StandardizedConv2d(8, 8, 3), nn.Flatten(1)
    )


CASES = {
    "table": (lambda: nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 5)), lambda n: torch.randn(n, 6)),
    "text": (lambda: Text(False), lambda n: torch.randint(11, (n, 7))),
    "tied": (lambda: Text(True), lambda n: torch.randint(11, (n, 7))),
    "images": (images, lambda n: torch.randn(n, 3, 6, 6)),
    "signals": (lambda: nn.Sequential(nn.Conv1d(3, 64, 5), nn.Tanh(), nn.Conv1d(64, 64, 4)), lambda n: torch.randn(n, 3, 8)),
    "standardised": (standardised, lambda n: torch.randn(n, 3, 6, 6) + 0.3),
    "fused": (rectified, lambda n: torch.randn(n, 3, 6, 6) + 0.3),
    "sequence": (Reads, lambda n: torch.randn(n, 5, 6)),
    "upwards": (
        lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.Tanh(), nn.ConvTranspose1d(4, 2, 3)),
        lambda n: torch.randn(n, 3, 6),
    ),
}


@pytest.fixture(autouse=True)
def as_on_a_gpu(request):
    """The case "fused" runs convolutions as a GPU does."""
    with fused() if "fused" in request.node.name else nullcontext():
        yield


def made(case, examples):
    torch.manual_seed(0)
    model, make = CASES[case][0](), CASES[case][1]
    engine = Engine(model)
    with narrow():
        learn(engine, lambda x: losses(model, x), make)
    return engine, make(examples)


def narrow():
    return torch.autocast("cpu", torch.bfloat16)


def summed(engine, x, clipping, weight=None):
    found = engine.buffer()
    with engine.recording(len(x)):
        with narrow():
            each = losses(engine.model, x)
        engine.add(each if weight is None else each * weight, clipping, found)
    return found


@pytest.mark.parametrize("case", CASES)
def test_norms_and_sums_are_those_of_the_units_one_by_one(case):
    engine, x = made(case, 6)
    with narrow():
        norms, _ = one_by_one(engine, x, Flat(1.0))
        clip = float(norms.median().sqrt())
        _, wanted = one_by_one(engine, x, Flat(clip))
    seen = Seen(clip)
    found = summed(engine, x, seen)
    assert torch.allclose(seen.squared, norms, rtol=2 * SHARE)
    assert float((found - wanted).norm()) <= SHARE * float(wanted.norm())


@pytest.mark.parametrize("case", CASES)
def test_one_of_many_equal_units_moves_the_sum_by_no_more_than_the_clip_norm(case):
    """All pull the same way, so the sum is as long as it can be; rounding it would move it by more than one of them may."""
    engine, x = made(case, 300)
    same = x[:1].expand(300, *x.shape[1:]).contiguous()
    without = torch.ones(300)
    without[7] = 0.0
    clip = 0.01
    found = summed(engine, same, Flat(clip)) - summed(engine, same, Flat(clip), without)
    assert 0.95 * clip <= float(found.double().norm()) <= clip * (1 + SLACK)


def test_a_sum_rounded_to_bfloat16_would_move_by_more(monkeypatch):
    """The twin that adds up in the narrow type, as torch's own product does."""
    monkeypatch.setattr(linear, "_add_product", lambda into, g, x: into.add_(g.mT @ x))
    engine, x = made("table", 2000)
    same = x[:1].expand(2000, *x.shape[1:]).contiguous()
    moves = []
    for i in range(20):
        without = torch.ones(2000)
        without[: i + 1] = 0.0
        more = without.clone()
        more[i] = 1.0
        moves.append(summed(engine, same, Flat(0.01), more) - summed(engine, same, Flat(0.01), without))
    assert max(float(move.norm()) for move in moves) > 0.015


@pytest.mark.parametrize("case", CASES)
def test_no_unit_is_longer_than_the_clip_norm_on_its_own(case):
    engine, x = made(case, 40)
    for i in range(0, 40, 8):
        alone = torch.zeros(40)
        alone[i] = 1.0
        assert float(summed(engine, x, Flat(0.01), alone).norm()) <= 0.01 * (1 + SLACK)


def test_there_is_more_room_the_narrower_the_type():
    assert slack(torch.zeros(1)) == 0.0
    assert slack(torch.zeros(1, dtype=torch.float64)) == 0.0
    assert slack(torch.zeros(1, dtype=torch.float16)) < slack(torch.zeros(1, dtype=torch.bfloat16))


class Inside(nn.Module):
    """A network that turns autocast on in its own forward."""

    def __init__(self, depth=0):
        super().__init__()
        more = [nn.Sequential(StandardizedConv2d(8, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.ReLU()) for _ in range(depth)]
        first, *last = standardised()
        self.body = nn.Sequential(first, *more, *last)

    def forward(self, x):
        with narrow():
            return self.body(x).float()


def test_a_model_with_autocast_inside_is_tried_with_the_rounding_of_its_type():
    torch.manual_seed(0)
    model = Inside()
    engine = Engine(model)
    probe(engine, lambda x: losses(model, x), CASES["standardised"][1])
    assert (engine.tape.narrow, tolerance(engine)) == (True, 0.15)
    plain = Engine(nn.Linear(3, 2))
    probe(plain, lambda x: losses(plain.model, x), lambda n: torch.randn(n, 3))
    assert (plain.tape.narrow, tolerance(plain)) == (False, 0.02)


def test_what_rounding_explains_is_no_disagreement_but_a_wrong_unit_is(monkeypatch):
    """Deep networks of narrow types differ by a quarter between two orders of the same products."""
    torch.manual_seed(0)
    model = Inside(12)
    monkeypatch.setattr("discreet.learn.sgd.engine.gradient_check.tolerance", lambda engine: 0.05)
    monkeypatch.setattr("discreet.learn.sgd.engine.gradient_check._of_any_size", lambda *given: None)
    probe(Engine(model), lambda x: losses(model, x), CASES["standardised"][1])
    monkeypatch.setattr("discreet.learn.sgd.engine.gradient_check._rounding", lambda *given: 0.0)
    with pytest.raises(InvalidValue, match="which part of a gradient"):
        probe(Engine(model), lambda x: losses(model, x), CASES["standardised"][1])
    monkeypatch.undo()
    right = ConvRecord.add
    monkeypatch.setattr(ConvRecord, "add", lambda self, factors, into: right(self, factors.flip(0), into))
    with pytest.raises(InvalidValue, match="which part of a gradient"):
        probe(Engine(model), lambda x: losses(model, x), CASES["standardised"][1])


class Leaning(Inside):
    """What an example says does not depend on the others, but what it learns does."""

    def forward(self, x):
        with narrow():
            mean = (h := self.body[0](x)).mean(0)
            return self.body[1:](h + mean - mean.detach()).float()


@pytest.mark.parametrize("wrong", ["nothing", "factors", "norms", "gradients of others"])
def test_one_unit_after_another_shows_a_wrong_unit_in_a_narrow_type(wrong, monkeypatch):
    """Where rounding explains a fifth of a sum: what is no mistake stays within a hundredth, a mistake does not."""
    torch.manual_seed(0)
    model, make = (Leaning if wrong == "gradients of others" else Inside)(12), CASES["standardised"][1]
    engine, batch = Engine(model), make(3)
    learn(engine, lambda x: losses(model, x), make)
    tiny, found = 1e-3, engine.buffer()
    add, norms = ConvRecord.add, ConvRecord.squared_norms
    if wrong == "factors":
        monkeypatch.setattr(ConvRecord, "add", lambda self, factors, into: add(self, factors.flip(0), into))
    if wrong == "norms":
        monkeypatch.setattr(ConvRecord, "squared_norms", lambda self: norms(self).roll(1))
    with engine.recording(3):
        engine.add(losses(model, batch), Flat(tiny), found)
    far = one_after_another(engine, lambda x: losses(model, x), batch, found, [1.0] * 3) / float(found.norm())
    assert far < 0.01 if wrong == "nothing" else far > 0.15, far
