"""Clients one after another, each by an ordinary backward: for any module and any loss, and what faster ways must equal.

Each client trains in a module of its own (`Looped.fresh`), so that nothing that a module keeps of one client's rows, in a
buffer, a frozen parameter or an attribute, reaches another client or the released model.
"""

from __future__ import annotations

import copy
import warnings
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
    """Trains a module from given weights; `train` returns each client's update.

    `total` is for private runs: a client whose rows make the model or the loss raise counts as no change.
    """

    def __init__(self, model: nn.Module, loss: Loss, device: torch.device, *, total: bool = False) -> None:
        self.model, self.loss, self.device, self.total = model, loss, device, total
        self.parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
        self.size = sum(p.numel() for p in self.parameters)
        model.train()
        self._shared = {id(p): p for p in self.parameters}
        self._keeps = tuple(isinstance(part, nn.Module) and not _keeps_nothing(part) for part in (model, loss))

    def fresh(self) -> tuple[nn.Module, Loss]:
        """Module and loss with the same trainable parameters, and everything else for one client alone."""
        model = copy.deepcopy(self.model, dict(self._shared)) if self._keeps[0] else self.model
        return model, copy.deepcopy(self.loss) if self._keeps[1] else self.loss

    def refuse_changing(self, inputs: Tensor, targets: Tensor) -> None:
        """Refuse a model of which training on these rows, which are nobody's, changes more than the trainable parameters."""
        model, loss_of = self.fresh()
        try:
            with seeded(0, self.device):
                losses = loss_of(model(inputs.to(self.device)), targets.to(self.device))
        except Exception as error:
            shapes = f"inputs {tuple(inputs.shape)} {inputs.dtype} and targets {tuple(targets.shape)} {targets.dtype}"
            raise InvalidValue(f"Model and loss do not work on made-up rows with {shapes}: {error}") from error
        per_row(losses, len(inputs))
        for kind in ("buffer", "parameter"):
            before, after = (dict(getattr(each, f"named_{kind}s")()) for each in (self.model, model))
            for name in before:
                if name not in after or not torch.equal(before[name], after[name]):
                    raise InvalidValue(
                        f"Training changes the {kind} {name} of the model by itself, as batch normalisation does. Clients send "
                        "how their trainable parameters changed and nothing else: use a layer without running statistics, such "
                        "as nn.GroupNorm."
                    )

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
        for place, ((inputs, targets), order) in enumerate(zip(rows, orders)):
            start = starts if starts.ndim == 1 else starts[place]
            if len(inputs):
                with seeded(seeds[place], self.device), absorbed(self.total):
                    self._one(how, start, inputs.to(self.device), targets.to(self.device), order)
                    torch.sub(self.weights(), start, out=updates[place])
        return updates

    def _one(self, how: LocalSGD, start: Tensor, inputs: Tensor, targets: Tensor, order: Ints) -> None:
        self.put(start)
        model, loss_of = self.fresh()
        before = [p.detach() * how.proximal for p in self.parameters] if how.proximal else []
        moved = [torch.zeros_like(p) for p in self.parameters] if how.momentum else []
        for batch in how.batches(order):
            batch = batch.to(self.device)
            loss = per_row(loss_of(model(inputs[batch]), targets[batch]), len(batch)).mean()
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


def _keeps_nothing(module: nn.Module) -> bool:
    """Only layers of torch itself, without buffers or hooks: those keep nothing of what they have seen."""
    return not any(True for _ in module.buffers()) and all(
        getattr(nn, type(part).__name__, None) is type(part)
        and "forward" not in vars(part)
        and not (part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks)
        for part in module.modules()
    )


def made_up(sample: Rows, count: int) -> Rows:
    """Rows of the same shape and type as a sample, and nothing else of it."""
    inputs, targets = (torch.zeros_like(part[:1]).expand(count, *part.shape[1:]) for part in sample)
    if inputs.is_floating_point():
        inputs = torch.rand(inputs.shape, generator=torch.Generator().manual_seed(0))
    return inputs, targets


@contextmanager
def absorbed(total: bool) -> Any:
    """Whether rows make a model raise is a fact about rows: in a private run such rows change nothing, and the run goes on."""
    try:
        yield
    except Exception as error:
        if not total:
            raise
        warnings.warn(
            f"Some rows could not be trained on ({type(error).__name__}); they count as no change. That this was said depends "
            "on private rows.",
            stacklevel=2,
        )


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
