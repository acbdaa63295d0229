"""Adversarial regularisation: privacy as a learning objective (Nasr, Shokri and Houmansadr 2018).

A second model learns to tell training rows from reference rows by what the first says of them; the first learns its task and
to give the second nothing to go by: min over f, max over h of loss(f) + strength (E_train log h + E_reference log(1 - h)).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from discreet.core import check
from discreet.heuristic.defences.defended import Defended, R, fitted_by, of_torch
from discreet.heuristic.defences.loop import asked, set_aside, train


def adversarial_regularisation(
    recipe: R, *, strength: float, reference: tuple[Any, Any] | None = None, share: float = 0.3, steps: int = 1,
    width: int = 64, device: str = "cpu",
) -> Defended[R]:  # fmt: skip
    """The recipe with an adversary beside it: `strength` is the paper's lambda, `steps` the adversary's to each of the model's.

    `reference` is a pair (inputs, labels) that is never trained on; without one, `share` of the rows given is kept for it. What
    is proven is nothing: the adversary in training is one of many, and attacks with shadow models were not tried against it.
    """
    check.positive("strength", strength)
    check.open_fraction("share", share)
    check.whole("steps", steps)
    known = of_torch(recipe)

    def fit(X: Any, y: Any) -> Any:
        X, y = np.asarray(X), np.asarray(y)
        if reference is None:
            ours, aside = set_aside(len(X), share)
            X, y, other = X[ours], y[ours], (X[aside], y[aside])
        else:
            other = (np.asarray(reference[0]), np.asarray(reference[1]))
        game = _Game(strength, steps, width, *other, device)
        return Played(train(known, X, y, loss=game.loss, each=game.watch, device=device), game)

    return Defended("adversarial regularisation", fitted_by(known, fit))


class Played:
    """The model, to be asked; and the log-odds that the adversary of its training gives rows by their scores and labels."""

    def __init__(self, model: Any, game: _Game) -> None:
        self.model, self._game = model, game

    def __call__(self, inputs: Any) -> Any:
        return asked(self.model, inputs)

    def judged(self, scores: Any, labels: Any) -> Any:
        import torch

        place = self._game.device
        given = torch.as_tensor(scores, dtype=torch.float32).to(place), torch.as_tensor(labels, dtype=torch.long).to(place)
        with torch.no_grad():
            return self._game.judged(*given).cpu().numpy()


class _Game:
    """The adversary, and what it costs the model to be told apart."""

    def __init__(self, strength: float, steps: int, width: int, X: Any, y: Any, device: str) -> None:
        import torch

        self.device = device

        self.strength, self.steps, self.width = strength, steps, width
        self.rows, self.labels = (
            torch.as_tensor(X, dtype=torch.float32).to(device),
            torch.as_tensor(y, dtype=torch.long).to(device),
        )
        self.adversary: Any = None
        self.optimizer: Any = None
        self.model: Any = None  # from the second epoch on: the adversary joins once there is something to see

    def watch(self, model: Any, epoch: int) -> bool:
        self.model = model
        return False

    def loss(self, scores: Any, labels: Any, epoch: int) -> Any:
        """The loss of the task and, from the second epoch on, the gain of the adversary."""
        import torch
        import torch.nn.functional as F

        task = F.cross_entropy(scores, labels)
        if self.model is None:
            return task
        if self.adversary is None:
            self._begin(scores.shape[1])
        for _ in range(self.steps):
            chosen = torch.randint(len(self.rows), (len(labels),)).to(self.device)
            with torch.no_grad():
                said = self.model(self.rows[chosen])
            found = [self.judged(scores.detach(), labels), self.judged(said, self.labels[chosen])]
            self.optimizer.zero_grad()
            told: Any = F.softplus(-found[0]).mean() + F.softplus(found[1]).mean()
            told.backward()
            self.optimizer.step()
        return task - self.strength * F.softplus(-self.judged(scores, labels)).mean()

    def _begin(self, classes: int) -> None:
        import torch
        from torch import nn

        self.adversary = nn.Sequential(
            nn.Linear(2 * classes, self.width),
            nn.ReLU(),
            nn.Linear(self.width, self.width),
            nn.ReLU(),
            nn.Linear(self.width, 1),
        ).to(self.device)
        self.optimizer = torch.optim.Adam(self.adversary.parameters(), 1e-3)

    def judged(self, scores: Any, labels: Any) -> Any:
        """The log-odds of having been trained on, by probabilities and label."""
        import torch
        import torch.nn.functional as F

        return self.adversary(torch.cat([scores.softmax(1), F.one_hot(labels, scores.shape[1]).float()], 1))[:, 0]
