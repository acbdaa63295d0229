"""Adversarial regularisation: privacy as a learning objective (Nasr, Shokri and Houmansadr 2018).

An adversary h learns to tell training rows from reference rows by the model's scores; the model f learns its task and to defeat
the adversary: min over f, max over h of loss(f) + strength (E_train log h + E_reference log(1 - h)).

As published, the game costs as much accuracy as it gains privacy: unlearning a training row also unlearns similar rows, so
accuracy falls equally on training and reference rows, and the gap stays. Here most of the reference is therefore held: on
points between its rows the model must answer as an undefended model does (distillation, without labels), so that only the
training row itself is unlearned. The adversary compares with the rest of the reference, because held rows are fitted too.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np

from discreet.core import check
from discreet.errors import InvalidValue
from discreet.heuristic.defences.defended import Defended, fitted_by, of_torch, seed_of, set_aside, train
from discreet.models import Recipe, Trainer, predict

COMPARED = 0.3  # of the reference rows, for the adversary, where the others are held
MIXED = 4  # points between reference rows at which the model is held, for each training row
TOP = 10  # largest log-probabilities that the adversary sees
FAR = 12.0  # beyond which it sees no difference
REMEMBERED = 8  # batches of what it saw
LONGER = 4  # times the epochs of the recipe, for a game with rows held


def adversarial_regularisation(
    recipe: Recipe, *, strength: float, reference: tuple[Any, Any] | None = None, share: float = 0.3, steps: int = 1,
    width: int = 64, hold: float = 1.0, epochs: int | None = None, device: str = "cpu",
) -> Defended:  # fmt: skip
    """The recipe with an adversary beside it: `strength` is the paper's lambda, `steps` the adversary's to each of the model's.

    `reference` is a pair (inputs, labels) that is never trained on; without one, `share` of the rows given is kept for it.
    `hold` is how much, against the adversary, answers between reference rows are held at those of an undefended model; 0 is the
    game as published. Training takes `epochs`: by default four times the recipe's, or as many as the recipe's where nothing is
    held. Nothing is proven: the adversary in training is one of many, and one with shadow models sees more.
    """
    check.positive("strength", strength)
    check.open_fraction("share", share)
    check.whole("steps", steps)
    check.whole("width", width)
    check.nonnegative("hold", hold)
    known = of_torch(recipe)
    long = check.whole("epochs", known.epochs * (LONGER if hold else 1) if epochs is None else epochs)
    if reference is not None and (len(reference) != 2 or not len(reference[0]) or len(reference[0]) != len(reference[1])):
        raise InvalidValue("reference must be a pair (inputs, labels), as many of one as of the other, and at least one row.")

    def fit(X: Any, y: Any) -> Any:
        X, y = np.asarray(X), np.asarray(y)
        if reference is None:
            ours, aside = set_aside(len(X), share)
            X, y, other = X[ours], y[ours], (X[aside], y[aside])
        else:
            other = (np.asarray(reference[0]), np.asarray(reference[1]))
            if other[0].shape[1:] != X.shape[1:]:
                raise InvalidValue(f"reference has inputs of shape {other[0].shape[1:]}; rows to train on, {X.shape[1:]}.")
        undefended = Trainer(known, device).one(X, y, seed=seed_of(X, y)) if hold else None
        game = _Game(strength, steps, width, *other, hold, undefended, known.label_smoothing, device)
        return Trained(train(replace(known, epochs=long), X, y, loss=game.loss, device=device), game)

    return Defended("adversarial regularisation", fitted_by(known, fit))


class Trained:
    """The trained model, and the log-odds of membership that its training adversary gives rows by their scores and labels."""

    def __init__(self, model: Any, game: _Game) -> None:
        self.model, self._game = model, game

    def __call__(self, inputs: Any) -> Any:
        return predict.scores(self.model, inputs)

    def judged(self, scores: Any, labels: Any) -> Any:
        import torch

        place = self._game.device
        inputs = torch.as_tensor(scores, dtype=torch.float32).to(place), torch.as_tensor(labels, dtype=torch.long).to(place)
        with torch.no_grad():
            return self._game.judged(*inputs).cpu().numpy()


class _Game:
    """The adversary, and the penalty that the model pays for its success."""

    def __init__(
        self, strength: float, steps: int, width: int, X: Any, y: Any, hold: float, undefended: Any, smooth: float, device: str
    ) -> None:
        import torch

        self.strength, self.steps, self.width, self.hold, self.undefended = strength, steps, width, hold, undefended
        self.smooth, self.device = smooth, device
        compared = len(X) if undefended is None else max(1, int(COMPARED * len(X)))
        rows = torch.as_tensor(X, dtype=torch.float32).to(device)
        self.rows, self.labels = rows[:compared], torch.as_tensor(y, dtype=torch.long).to(device)[:compared]
        self.held = rows[compared:]
        self.adversary: Any = None
        self.optimizer: Any = None
        self._recent: deque[tuple[Any, Any]] = deque(maxlen=REMEMBERED)

    def loss(self, forward: Any, rows: Any, labels: Any, epoch: int) -> Any:
        """The task loss, the adversary's success, and the distance of the model from the undefended one.

        Success is -log(1 - h) and not log h, which is flat where the adversary is sure and unbounded where it is wrong.
        The sum is divided by 1 + strength, so that steps are as long as they are without the game.
        """
        import torch
        import torch.nn.functional as F

        count = len(rows)
        chosen = torch.randint(len(self.rows), (count,), device=self.device)
        between = self._between(MIXED * count)
        scores = forward(torch.cat([rows, self.rows[chosen], between]))
        looks = adversary_features(scores[: 2 * count], torch.cat([labels, self.labels[chosen]]))
        self._learn(looks.detach(), count)
        cost = F.softplus(self.adversary(looks[:count])).mean()
        if self.undefended is not None:
            with torch.no_grad():
                wanted = self.undefended(between).softmax(1)
            cost = cost + self.hold * F.cross_entropy(scores[2 * count :], wanted)
        task = F.cross_entropy(scores[:count], labels, label_smoothing=self.smooth)
        return (task + self.strength * cost) / (1.0 + self.strength)

    def _between(self, count: int) -> Any:
        """Random points between held rows; none where no row is held."""
        import torch

        if self.undefended is None or not len(self.held):
            return self.rows[:0]
        first, second = torch.randint(len(self.held), (2, count), device=self.device)
        weight = torch.rand([count] + [1] * (self.held.ndim - 1), device=self.device)
        return torch.lerp(self.held[first], self.held[second], weight)

    def _learn(self, current: Any, inside: int) -> None:
        """Train the adversary: one step on the current batch, further steps on recent ones."""
        import torch
        import torch.nn.functional as F

        if self.adversary is None:
            self._begin(current.shape[1])
        truth = (torch.arange(len(current), device=current.device) < inside).float()
        self._recent.append((current, truth))
        for back in range(self.steps):
            features, wanted = self._recent[-1 - back % len(self._recent)]
            self.optimizer.zero_grad(set_to_none=True)
            loss: Any = F.binary_cross_entropy_with_logits(self.adversary(features)[:, 0], wanted)
            loss.backward()
            self.optimizer.step()

    def _begin(self, numbers: int) -> None:
        import torch
        from torch import nn

        self.adversary = nn.Sequential(
            nn.Linear(numbers, self.width),
            nn.ReLU(),
            nn.Linear(self.width, self.width),
            nn.ReLU(),
            nn.Linear(self.width, 1),
        ).to(self.device)
        self.optimizer = torch.optim.Adam(self.adversary.parameters(), 1e-3, fused=True)

    def judged(self, scores: Any, labels: Any) -> Any:
        """The log-odds of membership, by scores and label."""
        return self.adversary(adversary_features(scores, labels))[:, 0]


def adversary_features(scores: Any, labels: Any) -> Any:
    """The adversary's input for a row: the label's log-probability and log-odds, the entropy, the largest log-probabilities.

    Not the label itself: with a few rows in each class an adversary that knows the class memorises the reference.
    """
    import torch

    logs = scores.log_softmax(1)
    own = logs.gather(1, labels[:, None])
    odds = own - logs.scatter(1, labels[:, None], -torch.inf).logsumexp(1, keepdim=True)
    top = logs.topk(min(TOP, logs.shape[1]), 1).values
    unsure = -(logs.exp() * logs).sum(1, keepdim=True)
    return torch.cat([own, odds, unsure, top], 1).clamp(-FAR, FAR) / 3.0
