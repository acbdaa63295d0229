"""Train models one after another: networks with convolutions use the whole processor alone, so stacking gains nothing.

On a GPU a step (drawing the batch, augmentation, forward, backward, optimizer) is captured once as a CUDA graph and replayed
for every step of every model; each new model's initial weights are copied into the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from discreet.models.recipe import Recipe
from discreet.native.collector import gc_paused

Array = NDArray[Any]
Forward = Callable[[Any], Any]  # rows -> scores, as in training: augmented, in the recipe's precision
Loss = Callable[[Forward, Any, Any, int], Any]  # forward, rows, labels, epoch -> what is minimised
AfterEpoch = Callable[[Any, int], bool]  # model, epoch -> whether to stop
QUERY = 4096  # rows asked at once
WARM = 3  # steps before a graph is recorded, as graphs want


def fills_alone(model: nn.Module) -> bool:
    """Whether the module has convolutions of images: under vmap they become grouped ones, which are slow everywhere."""
    layers = [layer for layer in model.modules() if hasattr(layer, "kernel_size")]
    return any(p.ndim > 3 for layer in layers for p in layer.parameters(recurse=False))


def train_singly(
    recipe: Recipe, X: Array, y: Array, inside: NDArray[np.bool_], seeds: Sequence[int], query: Array, device: str
) -> NDArray[np.float32]:
    """Train and query one model after another; scores [models, rows of query, classes]."""
    place = torch.device(device)
    rows, labels = torch.as_tensor(X, dtype=torch.float32).to(place), torch.as_tensor(y, dtype=torch.long).to(place)
    queries = torch.as_tensor(query, dtype=torch.float32)
    loop = Loop(recipe, rows, labels)
    scores = []
    with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
        for chosen, seed in zip(inside, seeds):
            torch.manual_seed(seed)
            loop.train(torch.from_numpy(np.flatnonzero(chosen)).to(place), seed)
            scores.append(loop.predict(queries))
    return np.stack(scores)


class Loop:
    """A module in one place, trained again and again from fresh weights; by a loss of the caller's own, if there is one.

    A caller's loss is given batches of nearly equal size, so that none is a single row; its steps are not recorded as a graph.
    """

    def __init__(self, recipe: Recipe, rows: Tensor, labels: Tensor, loss: Loss | None = None) -> None:
        self.recipe, self.rows, self.labels, self.place, self.loss = recipe, rows, labels, rows.device, loss
        self.images = rows.ndim == 4 and rows.is_cuda
        self.model = recipe.build().to(self.place)
        if self.images:
            self.model = self.model.to(memory_format=torch.channels_last)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.descent = (Momentum if recipe.optimizer == "sgd" else Moments)(recipe, self.parameters)
        self._batch = torch.arange(recipe.batch_size, device=self.place) % len(rows)
        self._replay: Callable[[], None] | None = self._recorded() if rows.is_cuda and loss is None else None

    def train(self, members: Tensor, seed: int, after_epoch: AfterEpoch | None = None) -> None:
        """A fresh model on these rows; the order, like the first weights, follows from the seed."""
        self._renew()
        order = torch.Generator(device=self.place).manual_seed(seed)
        for epoch in range(self.recipe.epochs):
            self.model.train()
            self.descent.set_rate(self.recipe.rate(epoch))
            mixed = members[torch.randperm(len(members), generator=order, device=self.place)]
            for batch in self._batches(mixed):
                if self._replay is None or len(batch) != self.recipe.batch_size:
                    self._step(batch, epoch)
                else:
                    self._batch.copy_(batch)
                    self._replay()
            if after_epoch is not None and after_epoch(self.model, epoch):
                break

    def _batches(self, order: Tensor) -> Sequence[Tensor]:
        if self.loss is None:
            return order.split(self.recipe.batch_size)
        return order.tensor_split(max(1, round(len(order) / self.recipe.batch_size)))

    @torch.no_grad()
    def predict(self, queries: Tensor) -> NDArray[np.float32]:
        self.model.eval()
        with self.recipe.mixed(self.place.type):
            parts = [self.model(self._laid(rows.to(self.place))).float() for rows in queries.split(QUERY)]
        return torch.cat(parts).cpu().numpy()

    @torch.no_grad()
    def _renew(self) -> None:
        fresh = self.recipe.build()
        for own, new in zip(chain(self.model.parameters(), self.model.buffers()), chain(fresh.parameters(), fresh.buffers())):
            own.copy_(new)
        self.descent.forget()

    def _laid(self, x: Tensor) -> Tensor:
        return x.contiguous(memory_format=torch.channels_last) if self.images else x

    def forward(self, x: Tensor) -> Tensor:
        """Scores of rows as in training: augmented, in the recipe's precision."""
        x = self._laid(x if self.recipe.augment is None else self.recipe.augment(x))
        with self.recipe.mixed(self.place.type):
            scores: Tensor = self.model(x).float()
        return scores

    def _step(self, batch: Tensor, epoch: int = 0) -> None:
        x, y = self.rows.index_select(0, batch), self.labels[batch]
        if self.loss is None:
            loss = F.cross_entropy(self.forward(x), y, label_smoothing=self.recipe.label_smoothing)
            self.descent(torch.autograd.grad(loss, self.parameters))
        else:
            loss = self.loss(self.forward, x, y, epoch)
            self.descent(torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True))

    def _recorded(self) -> Callable[[], None] | None:
        """A step as a graph; or none, where something in it cannot be recorded."""
        self.model.train()
        self.descent.set_rate(self.recipe.rate(0))
        before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(side):
                for _ in range(WARM):
                    self._step(self._batch)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with gc_paused(), torch.cuda.graph(graph):
                self._step(self._batch)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # an augmentation or a layer that waits for the processor: step by step then
            return None
        finally:
            torch.backends.cudnn.benchmark = before
        return graph.replay


class Momentum:
    """SGD over all parameters at once, with a rate that lies where the parameters do, so that a graph can be given another."""

    def __init__(self, recipe: Recipe, parameters: Sequence[Tensor]) -> None:
        self.recipe, self.parameters = recipe, list(parameters)
        self.velocity = [torch.zeros_like(p) for p in parameters]
        self.rate = torch.zeros((), device=parameters[0].device)

    def set_rate(self, rate: float) -> None:
        self.rate.fill_(rate)

    def forget(self) -> None:
        torch._foreach_zero_(self.velocity)

    @torch.no_grad()
    def __call__(self, gradients: tuple[Tensor, ...]) -> None:
        if self.recipe.weight_decay:
            gradients = torch._foreach_add(gradients, self.parameters, alpha=self.recipe.weight_decay)
        torch._foreach_mul_(self.velocity, self.recipe.momentum)
        torch._foreach_add_(self.velocity, gradients)
        torch._foreach_sub_(self.parameters, torch._foreach_mul(self.velocity, self.rate))


class Moments:
    """Adam, whose memory is wiped for each model."""

    def __init__(self, recipe: Recipe, parameters: Sequence[Tensor]) -> None:
        from discreet.models.stacked import optimizer_of  # here, since stacked models need torch.func

        self.parameters, self.optimizer = list(parameters), optimizer_of(recipe, list(parameters))

    def set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = group["lr"].fill_(rate) if isinstance(group["lr"], Tensor) else rate

    def forget(self) -> None:
        for state in self.optimizer.state.values():
            for value in state.values():
                value.zero_()

    def __call__(self, gradients: tuple[Tensor, ...]) -> None:
        for p, gradient in zip(self.parameters, gradients):
            p.grad = gradient
        self.optimizer.step()
