"""The traps that engines for private training fell into, each set for ours."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import ranks
from discreet.learn.sgd.clipping import CLIPPINGS, SLACK, Flat
from discreet.learn.sgd.engine import Engine

torch.set_num_threads(1)  # small nets on shared cores: more threads only wait for each other


def summed(model, x, losses, clipping=None, rows=1):
    """The clipped sum of a batch, as the engine makes it."""
    engine = Engine(model, rows)
    found = engine.buffer()
    with engine.recording(len(x)):
        engine.add(losses(model(x)), clipping or Flat(1.0), found)
    return found


# Norms from Grams: the difference of large numbers that cancel


@pytest.mark.parametrize("positions", [2, 8])
@pytest.mark.parametrize("clipping", CLIPPINGS)
@pytest.mark.parametrize("kind", ["linear", "embedding"])
def test_positions_that_cancel_hide_no_norm(kind, clipping, positions):
    """One record whose positions almost cancel: its norm is all rounding, yet it adds no more than the clip norm.

    Without a margin for rounding a third of such records made every weight NaN and the worst added 20,000 clip norms.
    """
    signs = torch.tensor([1.0, -1.0]).repeat(positions // 2)[None, :, None]
    for seed in range(20):
        torch.manual_seed(seed)
        near, pull = 1 + 1e-4 * torch.randn(1, positions, 1), 1e3 * torch.randn(64)
        if kind == "linear":
            model, x = nn.Linear(64, 64), 1e3 * torch.randn(1, 1, 64) * near
        else:
            model, x, pull = nn.Embedding(5, 64), torch.zeros(1, positions, dtype=torch.long), pull * near
        found = summed(model, x, lambda y, pull=pull: (y * signs * pull).sum((1, 2)), CLIPPINGS[clipping](1.0))
        assert float(found.norm()) <= 1 + SLACK, seed


def test_a_norm_is_rounded_alike_whatever_others_read():
    """A record whose positions repeat a row takes another path; the others must not be rounded differently for it."""
    torch.manual_seed(1)
    model, pull = nn.Embedding(9, 8), torch.randn(4, 3, 8)
    alone, beside = torch.tensor([[0, 1, 2]] * 3), torch.tensor([[0, 1, 2]] * 3 + [[4, 4, 4]])
    one = summed(model, alone, lambda y: (y * pull[:3]).sum((1, 2)), Flat(0.1)).view(9, 8)
    both = summed(model, beside, lambda y: (y * pull).sum((1, 2)), Flat(0.1)).view(9, 8)
    assert torch.equal(one[:3], both[:3])


# Several processes


@pytest.fixture(scope="module")
def run_on(tmp_path_factory):
    if not torch.distributed.is_gloo_available():
        pytest.skip("torch was built without gloo")
    processes = ranks.Ranks(2, tmp_path_factory.mktemp("ranks"))
    yield processes
    processes.close()


@pytest.mark.parametrize("wrap", ["plain", "split"])
def test_a_clip_norm_that_follows_a_quantile_counts_each_unit_once(run_on, wrap):
    """Over all stripes, and not the made-up unit of a process that has nobody: weights are those of one process."""
    asked = {"clipping": "quantile", "divisor": 3.0, "rate": 0.06, "steps": 12, "clip_norm": 0.2}
    wanted = ranks.trained(**asked)
    for found in run_on(2, ranks.trained, wrap=wrap, **asked):
        for name, weight in wanted.items():
            assert torch.allclose(torch.from_numpy(found[name]), torch.from_numpy(weight), rtol=2e-5, atol=2e-6), name
