"""What a recipe trains when it is asked for one model, or for many."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from discreet.attack.membership import splits, train_shadows
from discreet.models import Recipe, Trainer

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(90, 6)).astype(np.float32)
Y = X[:, :3].argmax(1)
RECIPE = Recipe(lambda: nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)), epochs=30, learning_rate=1e-2)


def test_one_learns_from_laws_as_from_labels() -> None:
    state = torch.get_rng_state()
    by_label, by_law = Trainer(RECIPE).one(X, Y, seed=4), Trainer(RECIPE).one(X, np.eye(3)[Y], seed=4)
    assert torch.equal(state, torch.get_rng_state())
    for one, other in zip(by_label.parameters(), by_law.parameters()):
        assert torch.allclose(one, other, atol=1e-5)
        assert one.grad is None  # nothing is left of the training but the model
    assert not by_label.training
    even = Trainer(RECIPE).one(X, np.full((90, 3), 1 / 3), seed=4)(torch.as_tensor(X)).softmax(1).detach()
    assert float((even - 1 / 3).abs().mean()) < 0.05  # a law that says nothing is learned, too
    assert float((by_label(torch.as_tensor(X)).argmax(1).numpy() == Y).mean()) > 0.8


def test_one_is_the_model_of_its_seed() -> None:
    first, again, other = (Trainer(RECIPE).one(X, Y, seed=seed)[0].weight for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_many_are_shadows() -> None:
    inside = splits(90, 4, 0)
    assert np.array_equal(Trainer(RECIPE).many(X, Y, inside, seed=3).scores, train_shadows(RECIPE, X, Y, inside, seed=3).scores)
