"""The mean of features: near the truth, one step of one Gaussian, and no row counts for more than its length."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import discreet
from discreet.accounting import Gaussian, curve
from discreet.errors import InvalidValue
from discreet.learn import Performance
from discreet.learn.features import Centre, private_mean
from discreet.noise.source import seeded_for_tests

PEOPLE = {"unit": discreet.record(), "delta": 1e-5, "divisor": 1000}


def bought(rows, clip_norm=2.0, noise=0.5, **settings):
    with seeded_for_tests(b"mean"):
        return private_mean(rows, clip_norm=clip_norm, noise_multiplier=noise, **PEOPLE, **settings)


def test_it_is_the_mean_and_its_noise():
    rows = torch.rand(1000, 50, generator=torch.Generator().manual_seed(0)) / 8
    exact, _ = bought(rows, noise=1e-6)
    assert torch.allclose(exact, rows.mean(0), atol=1e-5)
    noisy, _ = bought(rows, noise=100.0)
    spread = float((noisy - rows.mean(0)).std())
    assert 0.6 < spread / (100.0 * 2.0 / 1000) < 1.4


def test_its_price_is_that_of_one_gaussian():
    _, run = bought(torch.zeros(10, 3), noise=20.0)
    found = curve(run.plan.event()).epsilon(1e-5)
    assert found == pytest.approx(curve(Gaussian(20.0)).epsilon(1e-5), rel=1e-3)
    assert run.spent() == found


def test_no_row_is_longer_than_said_and_none_spoils_the_rest():
    rows = torch.zeros(1000, 4)
    rows[0] = torch.tensor([300.0, 400.0, 0.0, 0.0])
    rows[1] = float("nan")
    found, _ = bought(rows, noise=1e-6)
    assert torch.allclose(found * 1000, torch.tensor([1.2, 1.6, 0.0, 0.0]), atol=1e-2)


def test_pieces_change_nothing():
    rows = torch.randn(300, 5, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(bought(rows)[0], bought(rows, performance=Performance(microbatch=64))[0], atol=1e-6)


def test_a_centred_model_takes_rows_as_they_are():
    mean = torch.tensor([1.0, 2.0])
    model = nn.Sequential(Centre(mean), nn.Linear(2, 1))
    assert torch.allclose(model(mean[None]), model[1].bias)
    assert [name for name, _ in model.named_parameters()] == ["1.weight", "1.bias"]
    assert "0.mean" in model.state_dict()


def test_rows_that_are_not_flat_are_refused():
    with pytest.raises(InvalidValue, match=r"got \(4, 3, 2\). Flatten"):
        bought(torch.zeros(4, 3, 2))
