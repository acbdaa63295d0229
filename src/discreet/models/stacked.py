"""The training loop of a stack of models: own rows, own order, own initial weights, one product for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from discreet.models.chain import Chain, Written
from discreet.models.layers import Layers, Mapped
from discreet.models.recipe import Recipe
from discreet.native.collector import gc_paused

Array = NDArray[Any]
QUERY = 2048  # rows asked at once
Loss = Callable[[Tensor, Tensor], Tensor]  # scores [models, batch, outputs] and targets [models, batch] to a loss for each


def train_stack(
    recipe: Recipe, X: Array, y: Array, inside: NDArray[np.bool_], seeds: Sequence[int], query: Array, device: str
) -> NDArray[np.float32]:
    """Train all models at once and predict; scores [models, rows of query, classes]."""
    place = torch.device(device)
    stack = build_stack(recipe, seeds, place)
    rows, labels = torch.as_tensor(X, dtype=torch.float32).to(place), torch.as_tensor(y, dtype=torch.long).to(place)
    members = torch.stack([torch.from_numpy(np.flatnonzero(chosen)) for chosen in inside]).to(place)
    descend(recipe, stack, rows, labels, members, seeds)
    with recipe.mixed(place.type):
        return predict_stack(stack, torch.as_tensor(query, dtype=torch.float32), place)


def train_chain(recipe: Recipe, rows: Tensor, labels: Tensor, seed: int) -> nn.Module | None:
    """One module, trained as a stack of one; None where the recipe builds no plain chain."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = recipe.build()
    if not Layers.fits(model):
        return None
    stack = Layers([model], rows.device)
    descend(recipe, stack, rows, labels, torch.arange(len(rows), device=rows.device)[None], [seed])
    model = model.to(rows.device)
    stack.copy_to(model, 0)
    return model


def descend(
    recipe: Recipe, stack: Layers | Mapped, rows: Tensor, labels: Tensor, members: Tensor, seeds: Sequence[int]
) -> None:
    """Train a stack in place: each model on its own `members` [models, rows], in an order of its own."""
    device = rows.device
    orders = [torch.Generator(device=device).manual_seed(seed) for seed in (seeds if device.type == "cpu" else seeds[:1])]
    train_epoch = _epoch(recipe, stack, rows, labels)
    for epoch in range(recipe.epochs):
        order = shuffled(orders, len(members), members.shape[1], device)
        train_epoch(members.gather(1, order), recipe.rate(epoch))


def _epoch(recipe: Recipe, stack: Layers | Mapped, rows: Tensor, labels: Tensor) -> Callable[[Tensor, float], None]:
    """A function that trains every model once on its own rows, in the order [models, rows] given."""
    if isinstance(stack, Layers) and Chain.fits(recipe, stack, rows, labels):
        return Chain(recipe, stack, rows, labels)
    step = Step(recipe, stack, rows, labels)

    def epoch(order: Tensor, rate: float) -> None:
        step.set_rate(rate)
        for batch in order.split(recipe.batch_size, 1):
            step(batch)

    return epoch


def build_stack(recipe: Recipe, seeds: Sequence[int], device: torch.device) -> Layers | Mapped:
    """Fresh models, each from its own seed, stacked."""
    models: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        for seed in seeds:
            torch.default_generator.manual_seed(seed)  # torch.manual_seed also writes a stack trace for every other device
            models.append(recipe.build())
    return (Layers if Layers.fits(models[0]) else Mapped)(models, device)


def shuffled(orders: Sequence[torch.Generator], models: int, count: int, device: torch.device) -> Tensor:
    """An order of its own for each model: from its own seed, or on a GPU, where launches are dear, all from the first's."""
    if len(orders) == models:
        return torch.stack([torch.randperm(count, generator=order, device=device) for order in orders])
    return torch.rand(models, count, generator=orders[0], device=device).argsort(1)


def optimizer_of(recipe: Recipe, parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
    """An elementwise optimizer, which treats stacked models as it would treat each alone."""
    rate: Any = recipe.learning_rate
    cuda = parameters[0].is_cuda
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(parameters, rate, recipe.momentum, weight_decay=recipe.weight_decay)
    if cuda:
        rate = torch.tensor(rate, device=parameters[0].device)
    kind = torch.optim.Adam if recipe.optimizer == "adam" else torch.optim.AdamW
    how: dict[str, Any] = {"capturable": True} if cuda else {"fused": True}
    return kind(parameters, rate, weight_decay=recipe.weight_decay, **how)


class Step:
    """One step of all models. On a GPU a step of a full batch is recorded once as a graph and replayed."""

    def __init__(self, recipe: Recipe, stack: Layers | Mapped, rows: Tensor, labels: Tensor, loss: Loss | None = None) -> None:
        self.recipe, self.stack, self.rows, self.labels = recipe, stack, rows, labels
        self.optimizer = optimizer_of(recipe, stack.parameters)
        self._loss = loss
        self._written = None
        if loss is None and isinstance(stack, Layers) and Written.fits(recipe, stack):
            self._written = Written(recipe, stack, self.optimizer)
        self._graph: Any = None
        self._batch: Tensor | None = None
        self._steps = 0
        self._rate: float | Tensor = torch.zeros((), device=rows.device) if rows.is_cuda else 0.0
        plain = self._written is not None or recipe.optimizer != "sgd"  # torch's SGD waits for a rate that lies on the GPU
        self._recorded = rows.is_cuda and plain and recipe.augment is None and isinstance(stack, Layers)

    def set_rate(self, rate: float) -> None:
        """The learning rate of the steps that follow."""
        if isinstance(self._rate, Tensor):
            self._rate.fill_(rate)
        else:
            self._rate = rate
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def __call__(self, batch: Tensor) -> None:
        if not self._recorded or batch.shape[1] != self.recipe.batch_size:
            self._eager(batch)
            return
        if self._graph is None:
            self._record(batch)
            return
        assert self._batch is not None
        self._batch.copy_(batch)
        self._graph.replay()

    def _record(self, batch: Tensor) -> None:
        """Run the first steps eagerly on a side stream, as CUDA graphs require, then capture one."""
        self._steps += 1
        if self._steps <= 3:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self._eager(batch)
            torch.cuda.current_stream().wait_stream(stream)
            return
        self._batch = batch.clone()
        graph = torch.cuda.CUDAGraph()
        if self._written is None:
            self.optimizer.zero_grad(set_to_none=True)
        with gc_paused(), torch.cuda.graph(graph):
            self._eager(self._batch)
        self._graph = graph
        graph.replay()

    def _eager(self, batch: Tensor) -> None:
        if self._written is not None:
            self._written(self.rows, self.labels, batch, self._rate)
            return
        x, y = self.rows[batch], self.labels[batch]
        if self.recipe.augment is not None:
            x = self.recipe.augment(x.flatten(0, 1)).view(x.shape)
        self.optimizer.zero_grad(set_to_none=True)
        with self.recipe.mixed(x.device.type):
            scores = self.stack(x, training=True)
        self._total(scores.float(), y).backward()
        self.optimizer.step()

    def _total(self, scores: Tensor, targets: Tensor) -> Tensor:
        """The sum over models of each one's mean loss: its gradient is every model's own."""
        if self._loss is not None:
            return self._loss(scores, targets).mean(1).sum()
        smoothing = self.recipe.label_smoothing
        summed = F.cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="sum", label_smoothing=smoothing)
        return summed / targets.shape[1]


@torch.no_grad()
def predict_stack(stack: Layers | Mapped, query: Tensor, device: torch.device) -> NDArray[np.float32]:
    """The scores of every model for every row, [models, rows, classes]."""
    models = stack.parameters[0].shape[0]
    parts = []
    for rows in query.split(QUERY):
        rows = rows.to(device)
        inputs = rows.flatten(1) if isinstance(stack, Layers) else rows.expand(models, *rows.shape)
        parts.append(stack(inputs, training=False).float().cpu())
    return torch.cat(parts, 1).numpy().astype(np.float32)
