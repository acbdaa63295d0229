"""Clients one after another, each by an ordinary backward: for any module and any loss, and what faster ways must equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from discreet.errors import InvalidValue
from discreet.federate.clients import Rows
from discreet.federate.local import Ints, LocalSGD

Loss = Callable[[Any, Tensor], Tensor]  # model output and targets to one number for each row


class Looped:
    """Trains a module in place from given weights; `train` returns each client's update."""

    def __init__(self, model: nn.Module, loss: Loss, device: torch.device) -> None:
        self.model, self.loss, self.device = model, loss, device
        self.parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
        self.size = sum(p.numel() for p in self.parameters)
        self.buffers = [(name, buffer, buffer.clone()) for name, buffer in model.named_buffers()]

    def weights(self) -> Tensor:
        """The weights of the module, as one vector."""
        return torch.cat([p.detach().reshape(-1) for p in self.parameters])

    @torch.no_grad()
    def put(self, weights: Tensor) -> None:
        """Put such a vector into the module."""
        at = 0
        for p in self.parameters:
            p.copy_(weights[at : at + p.numel()].view_as(p))
            at += p.numel()

    def train(
        self, how: LocalSGD, starts: Tensor, rows: Sequence[Rows], orders: Sequence[Ints], seeds: Sequence[int]
    ) -> Tensor:
        """The change of the weights of each client [clients, size]; `starts` is one vector for all, or one for each."""
        updates = starts.new_zeros(len(rows), self.size)
        self.model.train()
        for place, ((inputs, targets), order) in enumerate(zip(rows, orders)):
            start = starts if starts.ndim == 1 else starts[place]
            if len(inputs):
                with seeded(seeds[place], self.device):
                    self._one(how, start, inputs.to(self.device), targets.to(self.device), order)
                torch.sub(self.weights(), start, out=updates[place])
                self.same_buffers()
        return updates

    def same_buffers(self) -> None:
        """Buffers are what they were: an update has the trainable parameters alone, and nothing else leaves a client."""
        for name, buffer, before in self.buffers:
            if not torch.equal(buffer, before):
                buffer.copy_(before)
                raise InvalidValue(
                    f"Training changes the buffer {name} of the model, as batch normalisation does. Clients send how their "
                    "parameters changed and nothing else: use a layer without running statistics, such as nn.GroupNorm."
                )

    def _one(self, how: LocalSGD, start: Tensor, inputs: Tensor, targets: Tensor, order: Ints) -> None:
        self.put(start)
        before = [p.detach() * how.proximal for p in self.parameters] if how.proximal else []
        moved = [torch.zeros_like(p) for p in self.parameters] if how.momentum else []
        for batch in how.batches(order):
            batch = batch.to(self.device)
            loss = per_row(self.loss(self.model(inputs[batch]), targets[batch]), len(batch)).mean()
            slopes = list(torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True))
            with torch.no_grad():
                if before:
                    torch._foreach_add_(slopes, self.parameters, alpha=how.proximal)
                    torch._foreach_sub_(slopes, before)
                if moved:
                    torch._foreach_mul_(moved, how.momentum)
                    torch._foreach_add_(moved, slopes)
                    slopes = moved
                torch._foreach_add_(self.parameters, slopes, alpha=-how.learning_rate)


def per_row(losses: Tensor, rows: int) -> Tensor:
    """The loss of each row; a loss that is a mean already is refused, since rows cannot be told apart in it."""
    if not isinstance(losses, Tensor) or losses.shape[:1] != (rows,):
        shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise InvalidValue(
            f"loss(model(inputs), targets) must give one number for each of {rows} rows, as nn.CrossEntropyLoss(reduction="
            f'"none") does; got {shape}.'
        )
    return losses.flatten(1).mean(1) if losses.ndim > 1 else losses


@contextmanager
def seeded(seed: int, device: torch.device) -> Any:
    """While this is open, torch's generators (dropout draws from them) follow from a seed; then they are restored."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        yield
