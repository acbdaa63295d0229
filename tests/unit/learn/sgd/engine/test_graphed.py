"""A step replayed from a CUDA graph is the step itself. Runs where there is a GPU; `python test_graphed.py` needs no pytest."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import discreet
from discreet.noise.source import seeded_for_tests

try:
    import pytest

    pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
except ImportError:  # a GPU machine may have nothing but torch
    pass


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.place = nn.Embedding(50, 32), nn.Embedding(12, 32)
        self.norm, self.inner, self.head = nn.LayerNorm(32), nn.Linear(32, 32), nn.Linear(32, 3)

    def forward(self, x):
        h = self.table(x) + self.place(torch.arange(x.shape[1], device=x.device))
        return self.head(F.gelu(self.inner(self.norm(h)))).mean(1)


def images():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1), nn.GroupNorm(4, 16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 3),
    )  # fmt: skip


CASES = {
    "table": (lambda: nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 3)), lambda: torch.randn(900, 20)),
    "images": (images, lambda: torch.randn(900, 3, 16, 16)),
    "text": (Text, lambda: torch.randint(50, (900, 12))),
}


def ended(case, *, graphed, spoiled=False, narrow=False):
    torch.manual_seed(0)
    model, x = CASES[case][0]().cuda(), CASES[case][1]().cuda()
    y = torch.randint(3, (900,)).cuda()
    if spoiled:
        x[5] = float("nan")
    with seeded_for_tests(b"graph"), torch.autocast("cuda", torch.bfloat16, enabled=narrow):
        run = discreet.learn.train(
            model, torch.optim.SGD(model.parameters(), 0.1, 0.9), (x, y), nn.CrossEntropyLoss(reduction="none"),
            unit=discreet.record(), noise_multiplier=1.0, delta=1e-5, rate=0.2, steps=60, clip_norm=1.0, divisor=180,
        )  # fmt: skip
        if not graphed:
            run._sum.graphed = None
        for _ in run:
            pass
    slots = len(run._sum.graphed._slots) if graphed else 0
    return torch.cat([p.detach().flatten() for p in model.parameters()]), slots


def close(case, **more):
    plain, _ = ended(case, graphed=False, **more)
    replayed, slots = ended(case, graphed=True, **more)
    return slots, float((plain - replayed).norm() / plain.norm())


def test_a_replayed_run_is_the_run():
    for case in CASES:
        slots, apart = close(case)
        assert slots >= 1, case
        assert apart < 2e-3, (case, apart)


def test_graphs_of_an_earlier_run_are_not_freed_during_a_recording():
    """Python frees what lies in circles when it likes; freed while another is recorded, a graph takes that one with it."""
    import gc

    before = gc.get_threshold()
    gc.set_threshold(100000)
    _, first = ended("images", graphed=True)
    gc.set_threshold(50, 1, 1)
    try:
        _, second = ended("images", graphed=True)
    finally:
        gc.set_threshold(*before)
    assert first >= 1
    assert second >= 1


def test_a_unit_that_is_not_a_number_is_left_out_when_replayed():
    slots, apart = close("table", spoiled=True)
    assert slots >= 1
    assert apart < 2e-3


if __name__ == "__main__":
    for case in CASES:
        for narrow in (False, True):
            print(case, "narrow" if narrow else "", close(case, narrow=narrow), flush=True)
    test_graphs_of_an_earlier_run_are_not_freed_during_a_recording()
    print("spoiled", close("table", spoiled=True), close("images", spoiled=True))
