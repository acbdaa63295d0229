"""What goes wrong in the middle of a run on a GPU must not spoil the next one."""

from __future__ import annotations

import torch
from tests.gpu.networks import PLAIN, made
from tests.gpu.test_models import trained
from tests.gpu.test_runs import run_of
from tests.gpu.tools import DEVICE, LOSS
from torch import Tensor, nn

import discreet
from discreet.learn.sgd.checks import processors


class Waits(nn.Module):
    """Reads a number back from the GPU in its forward, so that a step cannot be recorded as a CUDA graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(20, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        scale = float(self.first.weight.abs().max())
        return self.last(torch.dropout(torch.tanh(self.first(x) / (1 + scale)), 0.1, True))


def test_a_step_that_cannot_be_recorded_runs_as_it_is() -> None:
    _, x, y = made(PLAIN["mlp"])
    trained(Waits(), x, y)
    torch.randn(3, device=DEVICE)
    trained(*made(PLAIN["mlp"]))


def test_an_interrupted_run_leaves_the_gpu_usable() -> None:
    model, x, y = made(PLAIN["vit"])
    for step in run_of(model, x, y):
        if step.number == 7:
            break
    trained(*made(PLAIN["vit"]))


def test_out_of_memory_is_said_and_survived() -> None:
    wide = nn.Sequential(nn.Linear(20, 200_000), nn.ReLU(), nn.Linear(200_000, 4)).to(DEVICE)
    y = torch.randint(4, (4096,)).to(DEVICE)
    free, _ = torch.cuda.mem_get_info()
    held = torch.empty(max(free - 3 * 2**30, 0), dtype=torch.uint8, device=DEVICE)
    try:
        run = discreet.learn.train(
            wide, torch.optim.SGD(wide.parameters(), 0.1), (torch.randn(4096, 20).to(DEVICE), y), LOSS, unit=discreet.record(),
            noise_multiplier=1.0, delta=1e-5, rate=1.0, steps=2, clip_norm=1.0,
        )  # fmt: skip
        for _ in run:
            pass
    except torch.cuda.OutOfMemoryError:
        failed = True
    else:
        failed = False
    del held
    assert failed
    torch.cuda.empty_cache()
    trained(*made(PLAIN["mlp"]))


def test_a_row_that_is_not_finite_changes_one_contribution() -> None:
    model, x, y = made(PLAIN["mlp"])
    x[3] = float("nan")
    trained(model, x, y)
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())


def test_the_whole_gpu_is_seen() -> None:
    """What CUDA lets a process use is what the driver says there is; under a share of MPS it would be refused."""
    if DEVICE == "cuda":
        seen, there = processors(torch.device(DEVICE))
        assert seen == there == torch.cuda.get_device_properties(0).multi_processor_count
