"""Membership: a model that memorised its rows, one trained privately, the same attack on both, and the risk by class.

python examples/who_was_inside.py
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import discreet
from discreet.attack.membership import Recipe, groups_of, membership
from discreet.models import Trainer

torch.set_num_threads(1)
draw = np.random.default_rng(0)
y = draw.integers(0, 4, 2_000)
X = (draw.normal(size=(4, 16))[y] + 1.5 * draw.normal(size=(2_000, 16))).astype("float32")
members, others = (X[:1_000], y[:1_000]), (X[1_000:], y[1_000:])


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 4))


def private(X, y):
    """The way both the target and the attacker's models are trained."""
    model = network()
    run = discreet.learn.train(
        model, torch.optim.SGD(model.parameters(), lr=0.5), (torch.as_tensor(X), torch.as_tensor(y)),
        nn.CrossEntropyLoss(reduction="none"), unit=discreet.record(), epsilon=2.0, delta=1e-6, rate=0.1, steps=60,
        clip_norm=1.0, divisor=100,
    )  # fmt: skip
    for _ in run:
        pass
    return run


overfit = Recipe(network, epochs=80, learning_rate=5e-3)
leaky = membership(Trainer(overfit).one(*members), overfit, members, others, attacks=["bayes_lira"], shadows=8)["bayes_lira"]
run = private(*members)
quiet = membership(run.model, Recipe(private, kind="fit"), members, others, attacks=["bayes_lira"], shadows=8)["bayes_lira"]

for name, found in (("memorised", leaky), ("trained privately", quiet)):
    low, high = discreet.audit.tpr_interval(found, 0.01)
    print(
        f"{name}: finds {found.tpr(0.01):.1%} ({low:.1%} to {high:.1%}) of its rows at 1% false alarms, area {found.auc():.2f}"
    )
print("by class:", *groups_of(leaky, y), sep="\n  ")
print(discreet.verdict(run.release().claims[0], quiet, confidence=0.95))
