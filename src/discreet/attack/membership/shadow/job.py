"""The training loop of a stack of models: own rows, own order, own first weights, one product for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from discreet.attack.membership.recipe import Recipe
from discreet.attack.membership.shadow.chain import Chain
from discreet.attack.membership.shadow.kernels import Written
from discreet.attack.membership.shadow.stacks import Layers, Mapped
from discreet.native.collector import gc_paused

Array = NDArray[Any]
QUERY = 2048  # rows asked at once


def train_stack(
    recipe: Recipe, X: Array, y: Array, inside: NDArray[np.bool_], seeds: Sequence[int], asked: Array, device: str
) -> NDArray[np.float32]:
    """Train and ask; scores [models, rows asked, classes]."""
    place = torch.device(device)
    stack = stacked(recipe, seeds, place)
    rows, labels = torch.as_tensor(X, dtype=torch.float32).to(place), torch.as_tensor(y, dtype=torch.long).to(place)
    members = torch.stack([torch.from_numpy(np.flatnonzero(chosen)) for chosen in inside]).to(place)
    orders = [torch.Generator(device=place).manual_seed(seed) for seed in (seeds if device == "cpu" else seeds[:1])]
    see = _see(recipe, stack, rows, labels)
    for epoch in range(recipe.epochs):
        see(members.gather(1, shuffled(orders, len(members), members.shape[1], place)), recipe.rate(epoch))
    with recipe.mixed(place.type):
        return ask(stack, torch.as_tensor(asked, dtype=torch.float32), place)


def _see(recipe: Recipe, stack: Layers | Mapped, rows: Tensor, labels: Tensor) -> Callable[[Tensor, float], None]:
    """How all models see rows once, each its own in the order given [models, rows]."""
    if isinstance(stack, Layers) and Chain.fits(recipe, stack, rows, labels):
        return Chain(recipe, stack, rows, labels)
    step = _Step(recipe, stack, optimizer_of(recipe, stack.parameters), rows, labels)

    def see(order: Tensor, rate: float) -> None:
        step.at(rate)
        for batch in order.split(recipe.batch_size, 1):
            step(batch)

    return see


def stacked(recipe: Recipe, seeds: Sequence[int], device: torch.device) -> Layers | Mapped:
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
    """Optimizers that work number by number treat stacked models as they would each alone."""
    rate: Any = recipe.learning_rate
    cuda = parameters[0].is_cuda
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(parameters, rate, recipe.momentum, weight_decay=recipe.weight_decay)
    if cuda:
        rate = torch.tensor(rate, device=parameters[0].device)
    kind = torch.optim.Adam if recipe.optimizer == "adam" else torch.optim.AdamW
    how: dict[str, Any] = {"capturable": True} if cuda else {"fused": True}
    return kind(parameters, rate, weight_decay=recipe.weight_decay, **how)


class _Step:
    """One step of all models. On a GPU a step of a full batch is recorded once as a graph and replayed."""

    def __init__(
        self, recipe: Recipe, stack: Layers | Mapped, optimizer: torch.optim.Optimizer, rows: Tensor, labels: Tensor
    ) -> None:
        self.recipe, self.stack, self.optimizer, self.rows, self.labels = recipe, stack, optimizer, rows, labels
        self._written = None
        if isinstance(stack, Layers) and Written.fits(recipe, stack):
            self._written = Written(recipe, stack, optimizer)
        self._graph: Any = None
        self._batch: Tensor | None = None
        self._seen = 0
        self._rate: float | Tensor = torch.zeros((), device=rows.device) if rows.is_cuda else 0.0
        plain = self._written is not None or recipe.optimizer != "sgd"  # torch's SGD waits for a rate that lies on the GPU
        self._recorded = rows.is_cuda and plain and recipe.augment is None and isinstance(stack, Layers)

    def at(self, rate: float) -> None:
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
        """The first steps run as they are, on a stream of their own as graphs want; then one is recorded."""
        self._seen += 1
        if self._seen <= 3:
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
        loss = F.cross_entropy(
            scores.flatten(0, 1).float(), y.flatten(), reduction="sum", label_smoothing=self.recipe.label_smoothing
        ) / batch.shape[1]  # fmt: skip
        loss.backward()
        self.optimizer.step()


@torch.no_grad()
def ask(stack: Layers | Mapped, asked: Tensor, device: torch.device) -> NDArray[np.float32]:
    """The scores of every model for every row, [models, rows, classes]."""
    models = stack.parameters[0].shape[0]
    parts = []
    for rows in asked.split(QUERY):
        rows = rows.to(device)
        given = rows.flatten(1) if isinstance(stack, Layers) else rows.expand(models, *rows.shape)
        parts.append(stack(given, training=False).float().cpu())
    return torch.cat(parts, 1).numpy().astype(np.float32)
