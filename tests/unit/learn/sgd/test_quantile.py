"""Adaptive clipping: what sum and count cost together, against the definition; and where the norm goes."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from discreet.accounting import curve  # noqa: E402
from discreet.core import event as events  # noqa: E402
from discreet.errors import InvalidValue  # noqa: E402
from discreet.learn.sgd.quantile import Adaptive, Quantile, joint, split  # noqa: E402
from unit.learn.tools import start  # noqa: E402


def released(gradients: np.ndarray, clip: float, sums: float, counts: float) -> np.ndarray:
    """Everything a step releases before noise, each number over the standard deviation of its noise."""
    lengths = np.linalg.norm(gradients, axis=1)
    clipped = gradients * np.minimum(1, clip / np.maximum(lengths, 1e-300))[:, None]
    count = np.sum((lengths <= clip) - 0.5)
    return np.append(clipped.sum(0) / (sums * clip), count / counts)


@pytest.mark.parametrize(("sums", "counts"), [(1.0, 0.5), (0.3, 10.0), (2.0, 1.0), (5.0, 0.7)])
def test_one_unit_moves_the_whole_release_by_no_more_than_the_event_says(sums, counts):
    rng = np.random.default_rng(0)
    most = 1 / joint(sums, counts).noise_multiplier
    seen = 0.0
    for _ in range(500):
        clip = rng.exponential()
        gradients = rng.standard_normal((5, 3)) * rng.exponential(size=(5, 1)) * rng.choice([0.0, 1.0, 10.0])
        moved = released(gradients, clip, sums, counts) - released(gradients[1:], clip, sums, counts)
        seen = max(seen, float(np.linalg.norm(moved)))
    assert 0.99 * most < seen <= most * (1 + 1e-9)  # and some unit does move it so far


def test_a_count_of_ones_would_cost_more():
    """Counting b in {0, 1} moves by 1, not 1/2: with the same noise that is a worse event."""
    naive = 1 / math.hypot(1 / 1.0, 1 / 2.0)
    assert curve(events.Gaussian(naive)).epsilon(1e-6) > curve(joint(1.0, 2.0)).epsilon(1e-6)


@pytest.mark.parametrize("whole", [0.3, 1.0, 7.0])
@pytest.mark.parametrize("ratio", [0.51, 1.0, 100.0])
def test_split_undoes_joint(whole, ratio):
    sums = split(whole, ratio * whole)
    assert sums > whole
    assert joint(sums, ratio * whole).noise_multiplier >= whole  # never less noise than was paid for
    assert joint(sums, ratio * whole).noise_multiplier == pytest.approx(whole, rel=1e-9)


def test_a_count_that_costs_everything_is_refused():
    with pytest.raises(InvalidValue, match=r"count_noise must be above 0\.5"):
        split(1.0, 0.5)
    for bad in ({"norm": 0.0}, {"quantile": 1.0}, {"speed": 0.0}):
        with pytest.raises(InvalidValue):
            Quantile(**{"norm": 1.0, **bad})
    with pytest.raises(InvalidValue):
        Quantile(1.0).update(0.0, batch=0.0, counted=0.0)


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
def test_the_norm_finds_the_quantile(quantile):
    rng = np.random.default_rng(1)
    clipping = Quantile(10.0, quantile=quantile)
    for _ in range(300):
        length = torch.from_numpy(rng.exponential(size=200))
        clipping.factors((length**2)[None, :])
        clipping.update(10 * rng.standard_normal(), batch=200, counted=clipping.counted())
    truth = -math.log1p(-quantile)
    assert abs(clipping.norm / truth - 1) < 0.25


def test_every_unit_counts_for_one_half_at_most_whatever_its_gradient():
    clipping = Quantile(1.0)
    for squared, count in ((0.0, 0.0), (1e-30, 0.5), (0.9, 0.5), (1.1, -0.5), (math.inf, -0.5), (math.nan, -0.5)):
        clipping._count = 0.0
        factor = clipping.factors(torch.tensor([[squared]]))
        assert clipping.counted() == count
        if math.isfinite(squared) and squared:
            assert float(factor) * math.sqrt(squared) <= 1.0
    clipping._count = 0.0
    clipping.factors(torch.tensor([[0.5, 9.0]]))
    clipping.factors(torch.tensor([[0.5, 0.3]]))  # pieces of one batch add up
    assert clipping.counted() == 1.0


def test_empty_steps_and_wild_noise_leave_a_usable_norm():
    clipping = Quantile(1.0)
    clipping.update(0.0, batch=10, counted=clipping.counted())
    assert clipping.norm == 1.0  # nobody there and no noise: half of nobody is clipped
    clipping.update(1e12, batch=10, counted=0.0)
    assert clipping.norm == pytest.approx(0.2)
    clipping.update(-1e12, batch=10, counted=0.0)
    assert clipping.norm == pytest.approx(1.0)


@pytest.mark.parametrize("model", [torch.nn.Linear(3, 2, bias=False), torch.nn.Linear(3, 2)])
def test_rows_that_fill_up_a_batch_count_for_nothing(model):
    """One unit is computed beside a copy of weight 0, whose norm is not exactly 0: the count moves by one half, not by one."""
    data = torch.ones(1, 3), torch.ones(1)
    run = start(data, model=model, loss=lambda y, t: y.sum(1) * t, clip_norm=None, clipping=Adaptive(1.0), divisor=100.0)
    batch = tuple(torch.ones(1, *part.shape[1:]) for part in data)
    run._sum.add(batch, None, 1.0)
    assert run.path == "fast"
    assert abs(run._sum.clipping.counted()) == 0.5
    run._sum.add(batch, torch.zeros(1), 1.0)
    assert abs(run._sum.clipping.counted()) == 0.5
