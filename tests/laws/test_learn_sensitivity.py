"""Whatever the model, the clipping, the units and the record: one unit moves no update by more than clip norm / divisor.

Replayed with frozen batches and noise, so nothing here is a matter of chance.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import discreet
from discreet.learn import Automatic, BallsInBins, BandMF, Flat, Performance, PerLayer, replay_run, train

torch.set_num_threads(1)

INF, NAN = float("inf"), float("nan")


class Sentence(nn.Module):
    """A table tied to the head, positions as a parameter of its own, and something in the middle."""

    def __init__(self, middle):
        super().__init__()
        self.table, self.place = nn.Embedding(9, 8), nn.Parameter(0.1 * torch.randn(6, 8))
        self.middle, self.norm, self.head = middle, nn.LayerNorm(8), nn.Linear(8, 9, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x):
        h = self.table(x) + self.place
        h = self.middle(h, h, h, need_weights=False) if isinstance(self.middle, nn.MultiheadAttention) else self.middle(h)
        return self.head(self.norm(h[0] if isinstance(h, tuple) else h)).mean(1)


def images():
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1), nn.GroupNorm(2, 6), nn.ReLU(), nn.Conv2d(6, 6, 3, stride=2, groups=3), nn.Flatten(),
        nn.Linear(54, 9),
    )  # fmt: skip


def table():
    return nn.Sequential(nn.Linear(5, 16), nn.SiLU(), nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 9))


MODELS = {
    "table": (table, (5,)),
    "images": (images, (2, 8, 8)),
    "positions": (lambda: Sentence(nn.Linear(8, 8)), None),
    "attention": (lambda: Sentence(nn.MultiheadAttention(8, 2, batch_first=True)), None),
    "recurrent": (lambda: Sentence(nn.LSTM(8, 8, batch_first=True)), None),
}
SAMPLINGS = ({"rate": 1.0}, {"rate": 0.6}, {"sampling": BallsInBins(2)}, {"sampling": BandMF(0.25, bands=2), "steps": 4})


def made(kind, count, spoiled, seed):
    """Rows, the last of which is spoiled."""
    torch.manual_seed(seed)
    shape = MODELS[kind][1]
    x = torch.randint(9, (count, 6)) if shape is None else torch.randn(count, *shape)
    x[-1] = 3 if shape is None else torch.full(shape, spoiled)
    return x, torch.randint(9, (count,))


@pytest.mark.parametrize("kind", MODELS)
@settings(max_examples=8)
@given(
    clipping=st.sampled_from([Flat, PerLayer, Automatic]), microbatch=st.sampled_from([None, 1, 3]),
    sampling=st.sampled_from(SAMPLINGS), narrow=st.booleans(), people=st.booleans(), count=st.integers(3, 8),
    spoiled=st.sampled_from([0.0, 1e4, 1e20, INF, NAN]), weight=st.sampled_from([1.0, 1e3, 1e12, 1e30]),
    clip=st.sampled_from([0.01, 5.0]), seed=st.integers(0, 99),
)  # fmt: skip
def test_one_unit_moves_no_update_too_far(
    kind, clipping, microbatch, sampling, narrow, people, count, spoiled, weight, clip, seed
):
    x, y = made(kind, count, spoiled, seed)
    owners = [i // 2 for i in range(count)]
    others = [i for i in range(count) if (owners[i] != owners[-1] if people else i < count - 1)]

    def make(data):
        torch.manual_seed(seed)
        model = MODELS[kind][0]()
        units = (
            {"unit": discreet.user("who", rows=2), "owners": owners[: len(data[0])]} if people else {"unit": discreet.record()}
        )
        return train(
            model, torch.optim.SGD(model.parameters(), 0.3), data,
            lambda output, target: weight * F.cross_entropy(output, target, reduction="none"), delta=1e-5, divisor=2.0,
            noise_multiplier=1.0, clipping=clipping(clip), performance=Performance(microbatch=microbatch),
            **{"steps": 3, **sampling}, **units,
        )  # fmt: skip

    with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
        questions = replay_run(make, (x, y), (x[others], y[others]))
    assert all(question.holds for question in questions)
    assert len(questions) == sampling.get("steps", 3)
