"""Images of random processes, and what a network learns from them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from discreet.errors import InvalidValue
from discreet.learn.features import learn_prior, random_images
from discreet.learn.features.prior import apart, view

torch.set_num_threads(1)


def test_images_are_whole_numbers_all_different_and_follow_the_seed():
    torch.manual_seed(0)
    found = random_images(40, side=24)
    assert found.dtype == torch.uint8
    assert found.shape == (40, 3, 24, 24)
    assert len(found.flatten(1).unique(dim=0)) == 40
    torch.manual_seed(0)
    assert torch.equal(random_images(40, side=24), found)
    torch.manual_seed(1)
    assert not torch.equal(random_images(40, side=24), found)


def test_neighbouring_pixels_are_alike_as_in_photographs():
    torch.manual_seed(0)
    x = random_images(200, side=32).float()
    x = x - x.mean((2, 3), keepdim=True)
    near, far = (float((x[..., :-gap] * x[..., gap:]).mean() / x.square().mean()) for gap in (1, 12))
    assert near > 0.7
    assert far < 0.5 * near


def test_two_views_of_an_image_are_other_views_of_it():
    torch.manual_seed(0)
    pool = random_images(16, side=32)
    one, other = view(pool, 16), view(pool, 16)
    assert one.shape == (16, 3, 16, 16)
    assert float(one.abs().max()) <= 2.0
    assert not torch.equal(one, other)


def test_a_network_learns_which_views_belong_together():
    torch.manual_seed(0)
    first, second = nn.Conv2d(3, 16, 5, stride=2), nn.Conv2d(16, 16, 3, stride=2)
    model = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    told = [loss for _, loss in learn_prior(model, steps=201, size=16, batch=64, pool=256, rate=0.1)]
    assert len(told) == 201
    assert told[-1] < told[0] - 0.15


def test_chance_is_the_logarithm_of_how_many_there_are():
    torch.manual_seed(0)
    alike = torch.ones(64, 8)
    assert float(apart(alike)) == pytest.approx(torch.tensor(63.0).log().item(), rel=1e-5)
    z = torch.eye(32)
    assert float(apart(torch.cat([z, z]), heat=0.05)) < 1e-3


@pytest.mark.parametrize(
    ("settings", "told"),
    [({"steps": 0}, "steps"), ({"steps": 1, "batch": 1}, "batch"), ({"steps": 1, "batch": 8, "pool": 4}, "pool"),
     ({"steps": 1, "rate": -1.0}, "rate"), ({"steps": 1, "size": 2}, "size")],
)  # fmt: skip
def test_bad_settings_are_named(settings, told):
    with pytest.raises(InvalidValue, match=told):
        list(learn_prior(nn.Sequential(nn.Flatten(), nn.Linear(3, 2)), **settings))


def test_no_image_is_refused():
    with pytest.raises(InvalidValue, match="count"):
        random_images(0)
