"""Whole runs on a GPU: they end, the weights move and stay finite, and the process can go on using the GPU."""

from __future__ import annotations

import torch
from tests.gpu.networks import DRAWING, PLAIN, made
from tests.gpu.tools import DEVICE, LOSS, cases
from torch import nn

import discreet
from discreet.learn import BallsInBins, Performance

EVERY = {**PLAIN, **DRAWING}


def trained(model: nn.Module, x: torch.Tensor, y: torch.Tensor, *, steps: int = 40, **options: object) -> discreet.Release:
    model = model.to(DEVICE)
    many = [leaf.repeat(8, *(1,) * (leaf.ndim - 1)).to(DEVICE) for leaf in (x, y)]
    given = {"unit": discreet.record(), "rate": 0.25, "clip_norm": 1.0, **options}
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    run = discreet.learn.train(model, optimizer, tuple(many), LOSS, noise_multiplier=1.0, delta=1e-5, steps=steps, **given)
    for _ in run:
        pass
    return run.release()


@cases(EVERY)
def test_a_run_ends_and_the_generator_still_works(case: str) -> None:
    model, x, y = made(EVERY[case])
    before = [p.detach().clone() for p in model.parameters()]
    trained(model, x, y)
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())
    assert any(not torch.equal(p.cpu(), old) for p, old in zip(model.parameters(), before, strict=True))
    torch.nn.functional.dropout(torch.randn(5, device=DEVICE), 0.5)


@cases(["mlp", "vit with dropout", "lstm", "residual images"])
def test_three_runs_in_one_process(case: str) -> None:
    for _ in range(3):
        trained(*made(EVERY[case]), steps=12)


@cases(["mlp", "vit with dropout", "residual images"])
def test_balls_in_bins_and_microbatches(case: str) -> None:
    trained(*made(EVERY[case]), steps=8, rate=None, sampling=BallsInBins(4))
    trained(*made(EVERY[case]), steps=8, performance=Performance(microbatch=16))
