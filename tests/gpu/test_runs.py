"""Users, resuming, several processes, number types: what a run does around its steps, on a GPU."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from tests.gpu.networks import PLAIN, made
from tests.gpu.tools import CLIP, DEVICE, LOSS, apart, cases, exact_products, sums
from torch import nn

import discreet
from discreet.learn import Checkpoint, FixedPoint
from discreet.noise.source import seeded_for_tests


def test_users_own_several_rows() -> None:
    exact_products()
    model, x, y = made(PLAIN["mlp"])
    owners = [i // 3 for i in range(len(y))]
    seen, _ = sums(model, x, y, unit=discreet.user("who", rows=3), owners=owners)
    wide, total = model.double().cpu(), 0
    for who in range(len(y) // 3):
        rows = slice(3 * who, 3 * who + 3)
        parts = torch.autograd.grad(LOSS(wide(x[rows].double()), y[rows]).sum(), list(wide.parameters()))
        flat = torch.cat([part.flatten() for part in parts])
        total = total + flat * min(1.0, CLIP / float(flat.norm()))
    assert all(apart(each, total) < 2e-4 for each in seen)


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten().float().cpu() for p in model.parameters()])


def run_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor, **options: object) -> discreet.learn.Run:
    model = model.to(DEVICE)
    return discreet.learn.train(
        model, torch.optim.SGD(model.parameters(), 0.1), (x.to(DEVICE), y.to(DEVICE)), LOSS, unit=discreet.record(),
        noise_multiplier=1.0, delta=1e-5, rate=0.5, steps=20, clip_norm=1.0, divisor=24.0, **options,
    )  # fmt: skip


@cases(["mlp", "residual images"])
def test_resuming_gives_what_one_run_gives(case: str) -> None:
    torch.backends.cudnn.deterministic = True
    with tempfile.TemporaryDirectory() as folder, seeded_for_tests(b"gpu"):
        whole = made(PLAIN[case])
        for _ in run_of(*whole):
            pass
    with tempfile.TemporaryDirectory() as folder, seeded_for_tests(b"gpu"):
        path = Path(folder) / "run.pt"
        first = made(PLAIN[case])
        for step in run_of(*first, checkpoint=Checkpoint(path, every=5)):
            if step.number == 10:
                break
        again = made(PLAIN[case])
        run = run_of(*again, checkpoint=Checkpoint(path, every=5))
        assert run.number == 10
        for _ in run:
            pass
    assert apart(weights(again[0]), weights(whole[0]).double()) < 1e-4


def test_one_process_of_a_group() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        dist.init_process_group("nccl", init_method=f"file://{folder}/meet", rank=0, world_size=1)
        try:
            model, x, y = made(PLAIN["mlp"])
            wrapped = nn.parallel.DistributedDataParallel(model.to(DEVICE))
            run = discreet.learn.train(
                wrapped, torch.optim.SGD(wrapped.parameters(), 0.1), (x.to(DEVICE), y.to(DEVICE)), LOSS, unit=discreet.record(),
                noise_multiplier=1.0, delta=1e-5, rate=0.5, steps=10, clip_norm=1.0,
            )  # fmt: skip
            for _ in run:
                pass
        finally:
            dist.destroy_process_group()
    assert bool(torch.isfinite(weights(model)).all())


@cases([torch.float32, torch.bfloat16])
def test_parameters_of_narrow_types(case: torch.dtype) -> None:
    model, x, y = made(PLAIN["mlp"])
    for _ in run_of(model.to(case), x.to(case), y):
        pass
    assert all(p.dtype == case and bool(torch.isfinite(p).all()) for p in model.parameters())


def test_fixed_point_sums() -> None:
    model, x, y = made(PLAIN["linear"])
    run = discreet.learn.train(
        model.to(DEVICE), torch.optim.SGD(model.parameters(), 0.1), (x.to(DEVICE), y.to(DEVICE)), LOSS, unit=discreet.record(),
        noise_multiplier=1.0, delta=1e-5, rate=0.5, steps=3, clipping=FixedPoint(1.0),
    )  # fmt: skip
    for _ in run:
        pass
    assert bool(torch.isfinite(weights(model)).all())
