"""A run that goes on on a GPU: a repeated step is the same bit for bit, or has fresh noise and is paid for."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from tests.gpu.networks import PLAIN, made
from tests.gpu.tools import DEVICE, LOSS, cases
from torch import Tensor

import discreet
from discreet.errors import InvalidDocument
from discreet.learn import Checkpoint

STEPS, EVERY, STOP = 12, 5, 8  # three steps are lost


def run_on(device: str, case: str, path: Path, resume: str = "exact") -> tuple[discreet.learn.Run, list[Tensor]]:
    model, x, y = made(PLAIN[case])
    model = model.to(device)
    run = discreet.learn.train(
        model, torch.optim.SGD(model.parameters(), 0.1), (x.to(device), y.to(device)), LOSS, unit=discreet.record(),
        noise_multiplier=1.0, delta=1e-5, rate=0.5, steps=STEPS, clip_norm=1.0, divisor=24.0,
        checkpoint=Checkpoint(path, every=EVERY, resume=resume),
    )  # fmt: skip
    seen: list[Tensor] = []
    run.optimizer.register_step_pre_hook(
        lambda *_: seen.append(torch.cat([p.grad.flatten().float() for p in model.parameters()]).cpu())
    )
    return run, seen


def continued(case: str, first: str, second: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        run, before = run_on(first, case, path)
        run.fit(lambda step: step.number < STOP)
        run, after = run_on(second, case, path)
        try:
            run.fit()
        except InvalidDocument:  # the step comes out otherwise, in its last bits or by another device's noise
            run, after = run_on(second, case, path, resume="pay")
            run.fit()
    repeated = list(zip(before[EVERY:], after, strict=False))
    assert len(repeated) == STOP - EVERY
    fresh = [not torch.equal(one, other) for one, other in repeated]
    assert run._state.extra == sum(fresh)  # what was not the same was paid for
    for (one, other), is_fresh in zip(repeated, fresh, strict=True):
        if is_fresh:  # two independent noises: their difference is longer than either
            assert float((one - other).std()) > run._noise.scale()


@cases(["mlp", "residual images", "vit"])
def test_steps_repeated_on_the_same_device(case: str) -> None:
    continued(case, DEVICE, DEVICE)


def test_steps_repeated_on_another_device() -> None:
    continued("mlp", "cpu", DEVICE)
    continued("mlp", DEVICE, "cpu")
