"""Outputs masked as MemGuard does (Jia et al. 2019): noise that makes a classifier of memberships unsure, and keeps the label.

The defender trains a classifier on sorted probabilities of rows inside and rows set aside, then moves each output, as little as
a budget allows, to where that classifier says one half. Only scores are defended: labels and weights stay as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import check
from discreet.heuristic.defences.defended import Defended, fitted_by, of_torch, set_aside, train
from discreet.models import Recipe, predict

Array = NDArray[Any]
STEPS, RATE = 150, 0.1


def masked_outputs(recipe: Recipe, *, share: float = 0.3, budget: float = 1.0, device: str = "cpu") -> Defended:
    """The recipe whose models answer through a `Mask`; `share` of the rows given is kept out of training to make it with."""
    check.open_fraction("share", share)
    known = of_torch(recipe)

    def fit(X: Any, y: Any) -> Any:
        ours, aside = set_aside(len(X), share)
        model = train(known, X[ours], y[ours], device=device)
        mask = Mask(predict.scores(model, X[ours]), predict.scores(model, X[aside]), budget=budget)
        return lambda inputs: mask(predict.scores(model, inputs))

    return Defended("masked outputs", fitted_by(known, fit), view=frozenset({"scores"}))


class Mask:
    """Takes scores and gives log-probabilities with the same largest class that look like neither members nor others.

    `inside` and `outside` are the scores of rows trained on and of rows that were not. `budget` is the largest distance, as a
    sum over classes of probabilities, that an output may move; 2 is no limit.
    """

    def __init__(self, inside: Array, outside: Array, *, budget: float = 1.0) -> None:
        self.budget = check.positive("budget", budget)
        self._judge = _judge(inside, outside)

    def __call__(self, scores: Array) -> Array:
        import torch

        logs = torch.as_tensor(np.asarray(scores, np.float64)).log_softmax(1)
        with torch.random.fork_rng(devices=[]):
            moved = self._moved(logs)
        same_label = moved.argmax(1) == logs.argmax(1)
        near = (moved.exp() - logs.exp()).abs().sum(1) <= self.budget
        return np.asarray(torch.where((same_label & near)[:, None], moved, logs).numpy(), np.float64)

    def _moved(self, logs: Any) -> Any:
        """The nearest outputs found that the classifier cannot decide, with the same label by a small margin."""
        import torch

        best, how_sure = logs.clone(), self._judge(logs).detach().abs()
        extra = torch.zeros_like(logs, requires_grad=True)
        optimizer: Any = torch.optim.Adam([extra], RATE)
        top = logs.argmax(1, keepdim=True)
        for _ in range(STEPS):
            optimizer.zero_grad()
            now = (logs + extra).log_softmax(1)
            lead = now.gather(1, top)[:, 0] - now.scatter(1, top, -torch.inf).max(1).values
            far = ((now.exp() - logs.exp()).abs().sum(1) - self.budget).clamp(min=0)
            sure = self._judge(now).abs()
            total: Any = (sure + 5.0 * (0.05 - lead).clamp(min=0) + 5.0 * far).sum()
            total.backward()
            optimizer.step()
            better = (sure < how_sure) & (lead > 0) & (far <= 0)
            best[better], how_sure = now.detach()[better], torch.where(better, sure, how_sure).detach()
        return best


def _judge(inside: Array, outside: Array) -> Any:
    """The defender's own attack: log-odds of membership from sorted log-probabilities."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    sides = [torch.as_tensor(np.asarray(scores, np.float64)).log_softmax(1) for scores in (inside, outside)]
    features = torch.cat([_judge_features(side) for side in sides])
    truth = torch.cat([torch.ones(len(sides[0])), torch.zeros(len(sides[1]))]).double()
    weight = torch.where(truth > 0, len(truth) / (2.0 * len(sides[0])), len(truth) / (2.0 * len(sides[1])))
    middle, spread = features.mean(0), features.std(0).clamp(min=1e-3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(features.shape[1], 32), nn.Tanh(), nn.Linear(32, 1)).double()
        optimizer: Any = torch.optim.Adam(net.parameters(), 1e-2)
        for _ in range(300):
            optimizer.zero_grad()
            loss: Any = F.binary_cross_entropy_with_logits(net((features - middle) / spread)[:, 0], truth, weight=weight)
            loss.backward()
            optimizer.step()
    return lambda logs: net((_judge_features(logs) - middle) / spread)[:, 0]


def _judge_features(logs: Any) -> Any:
    return logs.sort(1, descending=True).values.clamp(min=-12.0)
