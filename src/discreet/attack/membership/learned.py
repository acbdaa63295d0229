"""Small networks that learn to attack: one per group of rows (a class, a fold), all trained at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from discreet.attack.membership.shadow.train import one_thread

Array = NDArray[Any]
Loss = Callable[[Tensor, Tensor], Tensor]  # outputs [..., outputs] and what was wanted [...], to a loss for each

HELD = 5  # one row of so many is held out, to stop in time
LOOK = 20  # steps between two looks at the rows held out


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
    """One hidden layer each; weights [groups, in, out]. Features are standardised as those they learned from. `missed` is the
    loss of each on the rows it was held from."""

    weights: tuple[Tensor, ...]
    centre: Array
    scale: Array
    missed: Array

    def __call__(self, features: Array, group: int) -> Array:
        """The outputs [rows, outputs] of one network."""
        with torch.no_grad():
            return _forward([w[group : group + 1] for w in self.weights], _ready(features, self.centre, self.scale)[None])[
                0
            ].numpy()

    def each(self, features: Array, group: Array) -> Array:
        """Every row by the network of its own group, [rows, outputs]."""
        found = np.zeros((len(features), self.weights[2].shape[2]), np.float32)
        for one in np.unique(group):
            found[group == one] = self(features[group == one], int(one))
        return found


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
    rows, goal = _ready(features, centre, scale), torch.as_tensor(np.asarray(wanted, np.float32))
    mixed = [rng.permutation(np.asarray(group)) for group in groups]
    learn = [part[len(part) // HELD :] for part in mixed]
    held = [part[: len(part) // HELD] if len(part) >= 10 * HELD else part for part in mixed]
    watched = torch.as_tensor(np.stack([rng.choice(part, watch) for part in held]))
    with one_thread("cpu"):
        weights, missed = _train(rows, goal, learn, watched, loss, outputs, hidden, steps, batch, rate, decay, rng)
    return Nets(weights, centre, scale, missed.numpy())


def _train(
    rows: Tensor, goal: Tensor, learn: Sequence[Array], watched: Tensor, loss: Loss, outputs: int, hidden: int, steps: int,
    batch: int, rate: float, decay: float, rng: np.random.Generator,
) -> tuple[tuple[Tensor, ...], Tensor]:  # fmt: skip
    weights = _fresh(len(learn), rows.shape[1], hidden, outputs, rng)
    optimizer = torch.optim.AdamW(weights, rate, weight_decay=decay)
    best = [w.detach().clone() for w in weights]
    least = torch.full((len(learn),), torch.inf)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * 0.5 * (1.0 + np.cos(np.pi * step / steps))
        chosen = torch.as_tensor(np.stack([part[rng.integers(0, len(part), batch)] for part in learn]))
        optimizer.zero_grad()
        loss(_forward(weights, rows[chosen]), goal[chosen]).mean(1).sum().backward()
        optimizer.step()
        if step % LOOK == LOOK - 1 or step == steps - 1:
            with torch.no_grad():
                now = loss(_forward(weights, rows[watched]), goal[watched]).mean(1)
                better = now < least
                least = torch.where(better, now, least)
                for kept, w in zip(best, weights):
                    kept[better] = w[better]
    return tuple(best), least


def _fresh(groups: int, width: int, hidden: int, outputs: int, rng: np.random.Generator) -> list[Tensor]:
    first = rng.normal(size=(groups, width, hidden)) / np.sqrt(width)
    last = 0.1 * rng.normal(size=(groups, hidden, outputs)) / np.sqrt(hidden)
    parts = [first, np.zeros((groups, 1, hidden)), last, np.zeros((groups, 1, outputs))]
    return [torch.as_tensor(part, dtype=torch.float32).requires_grad_() for part in parts]


def _forward(weights: Sequence[Tensor], x: Tensor) -> Tensor:
    return torch.baddbmm(weights[3], F.silu(torch.baddbmm(weights[1], x, weights[0])), weights[2])


def _ready(features: Array, centre: Array, scale: Array) -> Tensor:
    """Standardised; what lies far outside is brought in."""
    return torch.as_tensor(np.clip((np.asarray(features, np.float32) - centre) / scale, -8.0, 8.0))
