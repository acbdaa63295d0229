"""Small networks with one hidden layer, one per group of rows (a class, a fold), all trained at once and stopped in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from discreet.models.layers import Layers
from discreet.models.recipe import Recipe
from discreet.models.stacked import Loss, Step
from discreet.models.trainer import one_thread

Array = NDArray[Any]

HELD = 5  # one row of so many is held out, to stop in time
LOOK = 20  # steps between two evaluations on the rows held out


def member(out: Tensor, wanted: Tensor) -> Tensor:
    """The log-odds that a row was inside."""
    return F.binary_cross_entropy_with_logits(out[..., 0], wanted, reduction="none")


def normal(out: Tensor, wanted: Tensor) -> Tensor:
    """A mean and the logarithm of a standard deviation."""
    scale = out[..., 1].clamp(-6.0, 6.0)
    return 0.5 * ((wanted - out[..., 0]) * torch.exp(-scale)) ** 2 + scale


def pinball(level: float) -> Loss:
    """The quantile at a level."""

    def loss(out: Tensor, wanted: Tensor) -> Tensor:
        gap = wanted - out[..., 0]
        return torch.maximum(level * gap, (level - 1.0) * gap)

    return loss


@dataclass(frozen=True)
class Nets:
    """One hidden layer each. Features are standardised as those they learned from. `missed` is the loss of each on rows held
    out from it."""

    stack: Layers
    centre: Array
    scale: Array
    missed: Array

    def __call__(self, features: Array, group: int) -> Array:
        """The outputs [rows, outputs] of one network."""
        with torch.no_grad():
            return self.stack.only(group)(_ready(features, self.centre, self.scale)[None], training=False)[0].numpy()

    def each(self, features: Array, group: Array) -> Array:
        """The outputs for every row by the network of its group, [rows, outputs]."""
        outputs = np.zeros((len(features), self.stack.parameters[2].shape[2]), np.float32)
        for index in np.unique(group):
            outputs[group == index] = self(features[group == index], int(index))
        return outputs


def fit(
    features: Array, wanted: Array, groups: Sequence[Array], loss: Loss, *, outputs: int = 1, hidden: int = 32,
    steps: int = 400, batch: int = 128, rate: float = 1e-2, decay: float = 1e-3, watch: int = 256, seed: int = 0,
) -> Nets:  # fmt: skip
    """Train a network on each group of rows (arrays of row numbers). Each keeps the weights that did best on rows held out, of
    which it looks at no more than `watch`."""
    features = np.asarray(features, np.float32)
    every = np.unique(np.concatenate([np.asarray(group) for group in groups]))
    centre, scale = features[every].mean(0), features[every].std(0) + 1e-6
    rng = np.random.default_rng(seed)
    rows, targets = _ready(features, centre, scale), torch.as_tensor(np.asarray(wanted, np.float32))
    mixed = [rng.permutation(np.asarray(group)) for group in groups]
    learn = [part[len(part) // HELD :] for part in mixed]
    held = [part[: len(part) // HELD] if len(part) >= 10 * HELD else part for part in mixed]
    watched = torch.as_tensor(np.stack([rng.choice(part, watch) for part in held]))
    recipe = Recipe(
        lambda: nn.Sequential(nn.Linear(rows.shape[1], hidden), nn.SiLU(), nn.Linear(hidden, outputs)),
        batch_size=batch, optimizer="adamw", learning_rate=rate, weight_decay=decay,
    )  # fmt: skip
    stack = Layers([recipe.build()] * len(groups), torch.device("cpu"))
    for p, weights in zip(stack.parameters, _initial(len(groups), rows.shape[1], hidden, outputs, rng)):
        p.data.copy_(weights)
    with one_thread("cpu"):
        missed = _train(recipe, stack, rows, targets, learn, watched, loss, steps, rng)
    return Nets(stack, centre, scale, missed.numpy())


def _train(
    recipe: Recipe, stack: Layers, rows: Tensor, targets: Tensor, learn: Sequence[Array], watched: Tensor, loss: Loss,
    steps: int, rng: np.random.Generator,
) -> Tensor:  # fmt: skip
    """Train the stack in place, each network left at its best weights; the loss of each on its rows held out."""
    step = Step(recipe, stack, rows, targets, loss)
    best = [p.detach().clone() for p in stack.parameters]
    least = torch.full((len(learn),), torch.inf)
    for number in range(steps):
        step.set_rate(recipe.learning_rate * 0.5 * (1.0 + np.cos(np.pi * number / steps)))
        step(torch.as_tensor(np.stack([part[rng.integers(0, len(part), recipe.batch_size)] for part in learn])))
        if number % LOOK == LOOK - 1 or number == steps - 1:
            with torch.no_grad():
                now = loss(stack(rows[watched], training=False), targets[watched]).mean(1)
                better = now < least
                least = torch.where(better, now, least)
                for saved, p in zip(best, stack.parameters):
                    saved[better] = p[better]
    for saved, p in zip(best, stack.parameters):
        p.data.copy_(saved)
    return least


def _initial(groups: int, width: int, hidden: int, outputs: int, rng: np.random.Generator) -> list[Tensor]:
    first = rng.normal(size=(groups, width, hidden)) / np.sqrt(width)
    last = 0.1 * rng.normal(size=(groups, hidden, outputs)) / np.sqrt(hidden)
    parts = [first, np.zeros((groups, 1, hidden)), last, np.zeros((groups, 1, outputs))]
    return [torch.as_tensor(part, dtype=torch.float32) for part in parts]


def _ready(features: Array, centre: Array, scale: Array) -> Tensor:
    """Standardise the features and clip outliers."""
    return torch.as_tensor(np.clip((np.asarray(features, np.float32) - centre) / scale, -8.0, 8.0))
