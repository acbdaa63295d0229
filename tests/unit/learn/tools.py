"""Small runs whose gradients are known: a unit pulls one number of the model, as hard as its row says."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import discreet
from discreet.core import Evidence, Game
from discreet.learn import train
from discreet.learn.sgd.canary import watch

RECORD = discreet.record()


def pulls(model_output, pull):
    """The loss of a row: its gradient is `pull` at the number that the row names, and 0 elsewhere."""
    return model_output[:, 0] * pull


def rows(*pairs):
    """Rows (number, pull) as data."""
    return torch.tensor([int(n) for n, _ in pairs]), torch.tensor([float(p) for _, p in pairs])


def start(data, *, numbers=4, model=None, loss=pulls, lr=0.0, **options):
    """A run over a model of so many numbers, which stay where they are at learning rate 0: every step is a fresh trial."""
    torch.manual_seed(0)
    model = model or nn.Embedding(numbers, 1)
    given = {"unit": RECORD, "delta": 1e-2, "rate": 1.0, "steps": 1, "clip_norm": 1.0, "divisor": 1.0, **options}
    if "epsilon" not in given:
        given.setdefault("noise_multiplier", 1.0)
    return train(model, torch.optim.SGD(model.parameters(), lr), data, loss, **given)


def updates(run):
    """What the optimizer was given at every step, [steps, numbers]."""
    seen = []
    watch(run, lambda number, update: seen.append(update.numpy().copy()))
    for _ in run:
        pass
    return np.stack(seen)


def trials(with_unit, without, score, *, seed=0, unit=RECORD):
    """Steps of two runs as independent trials: a fair coin each says from which of them the next step is taken."""
    most = min(len(with_unit), len(without))
    count = 2 * most - int(12 * most**0.5)  # so that neither runs out, but once in 10^15
    inside = np.random.default_rng(seed).random(count) < 0.5
    place = np.where(inside, np.cumsum(inside), np.cumsum(~inside)) - 1
    taken = np.where(inside[:, None], with_unit[place * inside], without[place * ~inside])
    return seen_by(np.array([score(update) for update in taken]), inside, unit)


def seen_by(score, inside, unit=RECORD):
    """Evidence of independent trials by someone who sees every update."""
    view = {"transcript"}
    return Evidence(
        game=Game(unit, view), attack="gradient canary", score=score, inside=inside, run=np.arange(len(score)), design="paired"
    )
