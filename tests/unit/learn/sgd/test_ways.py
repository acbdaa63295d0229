"""The ways a run may sample, add noise and clip, each under the claim that is its own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import discreet
from discreet.accounting import Gaussian, Poisson, RandomAllocation, Repeat
from discreet.errors import InvalidValue
from discreet.learn import Adaptive, BallsInBins, BandMF, Checkpoint, PerLayer
from discreet.noise.source import seeded_for_tests

EACH = nn.CrossEntropyLoss(reduction="none")


def made(seed=0, **more):
    torch.manual_seed(seed)
    model = nn.Linear(4, 3)
    data = torch.randn(400, 4), torch.randint(3, (400,))
    optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=0.5)
    plan = {
        "unit": discreet.record(), "noise_multiplier": 1.0, "delta": 1e-5, "rate": 0.1, "steps": 20, "clip_norm": 1.0,
        "divisor": 40,
    }  # fmt: skip
    return model, discreet.learn.train(model, optimizer, data, EACH, **{**plan, **more})


def ended(**more):
    with seeded_for_tests(b"ways"):
        model, run = made(**more)
        for _ in run:
            pass
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_the_claim_is_that_of_the_sampling_that_ran():
    assert made()[1].plan.event() == Repeat(Poisson(0.1, Gaussian(1.0)), 20)
    assert made(rate=None, sampling=BallsInBins(10))[1].plan.event() == Repeat(RandomAllocation(Gaussian(1.0), 10), 2)
    assert made(rate=None, sampling=BandMF(0.1, bands=5))[1].plan.event() == Repeat(Poisson(0.5, Gaussian(1.0)), 4)
    assert made(clip_norm=None, clipping=Adaptive(1.0))[1].plan.event() == Repeat(Poisson(0.1, Gaussian(1.0)), 20)


def test_in_a_pass_of_balls_in_bins_every_unit_is_seen_once():
    seen = []
    with seeded_for_tests(b"pass"):
        _, run = made(rate=None, sampling=BallsInBins(10), steps=10)
        for x, y in run.batches():
            seen += [tuple(row.tolist()) for row in x]
            run.step(EACH(run.model(x), y))
    assert len(seen) == 400
    assert len(set(seen)) == 400


def test_one_band_is_plain_noise_and_more_bands_are_not():
    assert torch.equal(ended(), ended(rate=None, sampling=BandMF(0.1, bands=1)))
    assert not torch.allclose(ended(), ended(rate=None, sampling=BandMF(0.1, bands=5)))


@pytest.mark.parametrize(
    "more", [{}, {"rate": None, "sampling": BallsInBins(10)}, {"rate": None, "sampling": BandMF(0.1, bands=4)},
             {"clip_norm": None, "clipping": Adaptive(1.0)}, {"clip_norm": None, "clipping": PerLayer(1.0)}],
)  # fmt: skip
def test_a_killed_run_ends_where_it_would_have(more, tmp_path):
    """Stopped after 7 of 20 steps and continued by another run from the checkpoint: bit for bit the same weights."""
    whole = ended(**more)
    with seeded_for_tests(b"ways"):
        _, run = made(checkpoint=Checkpoint(tmp_path / "run", every=7), **more)
        for step in run:
            if step.number == 9:
                break
    with seeded_for_tests(b"another key"):
        model, run = made(checkpoint=Checkpoint(tmp_path / "run", every=7), **more)
        assert run.number == 7
        for _ in run:
            pass
    assert torch.equal(whole, torch.cat([p.detach().flatten() for p in model.parameters()]))


def test_a_clip_norm_that_follows_the_median_comes_near_it():
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    for p in model.parameters():
        nn.init.zeros_(p)
    data = torch.randn(2000, 4), torch.randint(3, (2000,))
    run = discreet.learn.train(
        model, torch.optim.SGD(model.parameters(), 1e-6), data, EACH, unit=discreet.record(), noise_multiplier=1.0, delta=1e-5,
        rate=0.1, steps=60, clipping=Adaptive(50.0), divisor=200,
    )  # fmt: skip
    for _ in run:
        pass
    lengths = []
    for x, y in zip(*data):
        gradients = torch.autograd.grad(EACH(model(x[None]), y[None]).sum(), list(model.parameters()))
        lengths.append(sum(float(g.square().sum()) for g in gradients) ** 0.5)
    median = float(torch.tensor(lengths).median())
    assert 0.6 * median < run._sum.clipping.norm < 1.6 * median


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"rate": None, "sampling": "shuffled"}, "sampling"),
        ({"sampling": BallsInBins(3)}, "either rate or sampling.*both"),
        ({"rate": None}, "either rate or sampling.*neither"),
        ({"rate": None, "sampling": BandMF(0.1, bands=0)}, "bands"),
        ({"rate": None, "sampling": BandMF(0.1, bands=11)}, "rate x bands"),
        ({"clip_norm": None, "clipping": "none"}, "clipping"),
        ({"clipping": Adaptive(1.0)}, "either clip_norm or clipping.*both"),
        ({"clip_norm": None}, "either clip_norm or clipping.*neither"),
    ],
)
def test_ways_that_are_not_covered_are_refused(more, told):
    with pytest.raises(InvalidValue, match=told):
        made(**more)
