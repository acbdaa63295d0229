"""Rows of one client of federated averaging, from how its weights changed.

The client took many steps, over epochs and batches whose order nobody else knows. The steps are simulated on free rows and
differentiated through, so that the simulated change meets the one that was sent (Dimitrov et al. 2022). Each epoch has its own
copy of the rows in an order of its own. An order-invariant prior holds the copies together: whatever the order, the mean row
is the same in every epoch, so the squared distance of these means between all pairs of epochs is added. In the end the copies
are matched row by row and averaged.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.func import functional_call

from discreet.attack.gradients.labels import as_labels, rounded
from discreet.attack.gradients.matching import total_variation
from discreet.attack.gradients.network import Network, last_linear
from discreet.attack.gradients.update import Update
from discreet.core import check

PRIOR, VARIATION = 10.0, 1e-2  # what the order-invariant prior and total variation weigh
SPEED = 0.05


@dataclass(frozen=True, slots=True)
class Local:
    """What the client did: epochs of descent over its rows, by batches."""

    epochs: int
    learning_rate: float
    batch_size: int

    def __post_init__(self) -> None:
        check.whole("epochs", self.epochs)
        check.positive("learning_rate", self.learning_rate)
        check.whole("batch_size", self.batch_size)

    def steps(self, rows: int) -> int:
        return self.epochs * -(-rows // self.batch_size)


def change(network: Network, rows: Tensor, labels: Tensor, local: Local, *, differentiable: bool = True) -> list[Tensor]:
    """How the weights change over rows [epochs, rows, …], taken in their order and batch by batch."""
    first: dict[str, Tensor] = dict(zip(network.names, network.parameters))
    weights = dict(first)
    for epoch in rows:
        for place in torch.split(torch.arange(len(labels)), local.batch_size):
            value = network.loss(functional_call(network.model, weights, (epoch[place],)), labels[place])
            gradients = torch.autograd.grad(value.mean(), list(weights.values()), create_graph=differentiable)
            weights = {
                name: (weight if differentiable else weight.detach().requires_grad_()) - local.learning_rate * part
                for (name, weight), part in zip(weights.items(), gradients)
            }
    return [weights[name] - first[name] for name in network.names]


def label_counts(network: Network, update: Update, batch: int, prior: Tensor, local: Local) -> Tensor | None:
    """How many rows of each class: as for one gradient, with predictions halfway between the first and the last weights."""
    last = last_linear(network.model)
    if last is None or not isinstance(network.loss, torch.nn.CrossEntropyLoss):
        return None
    moved = update.values[f"{last[0]}.bias" if last[0] else "bias"] / (-local.learning_rate * local.steps(batch))
    weights: dict[str, Tensor] = dict(zip(network.names, network.parameters))
    with torch.no_grad():
        ends = [
            torch.softmax(functional_call(network.model, chosen, (prior.to(network.dtype),)), 1).mean(0)
            for chosen in (weights, {name: weights[name] + update.values[name].to(network.dtype) for name in weights})
        ]
    return rounded((ends[0] + ends[1]).double() / 2 * batch - moved * batch, batch)


def rows_of(
    network: Network, update: Update, labels: Tensor, shape: Sequence[int], local: Local, *, steps: int, seconds: float,
    seed: int, low: float = 0.0, high: float = 1.0, prior: float = PRIOR, variation: float = VARIATION,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The client's rows, and how far its copies in the epochs agree on each (0 to 1)."""
    sent = [value.to(network.dtype) for value in update.list()]
    generator = torch.Generator().manual_seed(seed)
    start = (low + high) / 2 + 0.1 * (high - low) * torch.randn(len(labels), *shape, generator=generator)
    rows = start.to(network.dtype).repeat(local.epochs, *[1] * (len(shape) + 1)).requires_grad_()
    optimizer = torch.optim.Adam([rows], lr=SPEED * (high - low))
    begin, best, chosen = time.process_time(), math.inf, rows.detach().clone()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = SPEED * (high - low) * 0.5 * (1 + math.cos(math.pi * step / steps))
        distance = _distance(change(network, rows, labels, local), sent)
        if float(distance.detach()) < best:
            best, chosen = float(distance.detach()), rows.detach().clone()
        value = distance + prior * epochs_apart(rows) / (high - low) ** 2
        if len(shape) == 3:
            value = value + variation * total_variation(rows)
        (rows.grad,) = torch.autograd.grad(value, [rows])
        optimizer.step()
        with torch.no_grad():
            rows.clamp_(low, high)
        if progress is not None:
            progress(step + 1, steps)
        if time.process_time() - begin > seconds:
            break
    return pooled(chosen, labels, high - low)


def _distance(made: Sequence[Tensor], sent: Sequence[Tensor]) -> Tensor:
    """One minus the cosine of the angle between the changes."""
    product = torch.stack([(a * b).sum() for a, b in zip(made, sent)]).sum()
    sizes = [torch.stack([(part**2).sum() for part in parts]).sum().sqrt() for parts in (made, sent)]
    return 1.0 - product / (sizes[0] * sizes[1])


def epochs_apart(rows: Tensor) -> Tensor:
    """The order-invariant prior: the mean squared distance of the mean row between all pairs of epochs, per cell."""
    means = rows.flatten(2).mean(1)
    return 2 * ((means**2).mean(0) - means.mean(0) ** 2).mean()


def pooled(rows: Tensor, labels: Tensor, span: float) -> tuple[Tensor, Tensor]:
    """Each epoch's rows matched to the first one's, within labels, and averaged; and how far they agree."""
    first, aligned = rows[0].flatten(1), [rows[0]]
    for epoch in rows[1:]:
        cost = torch.cdist(first, epoch.flatten(1)) ** 2 + 1e6 * (labels[:, None] != labels[None, :])
        aligned.append(epoch[torch.as_tensor(linear_sum_assignment(cost.numpy())[1])])
    together = torch.stack(aligned)
    apart = together.var(0, unbiased=False).flatten(1).mean(1).sqrt() / span
    return together.mean(0).double(), (1 - 2 * apart.double()).clamp(0, 1)


def labels_of(network: Network, update: Update, batch: int, prior: Tensor, local: Local) -> Tensor | None:
    """The labels by their counts, mixed: batches of a single class would move the weights in quite another way."""
    counts = label_counts(network, update, batch, prior, local)
    if counts is None:
        return None
    return as_labels(counts)[torch.randperm(batch, generator=torch.Generator().manual_seed(0))]
