"""One training step of a stack of plain chains, written out: no graph, no new memory, gradients straight into momentum.

Small networks spend their time between products, not in them. Here a step is two or three batched products a layer and a few
passes over activations; with SGD the product that makes a weight's gradient adds it to the momentum in the same pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from discreet.models.layers import Layers
from discreet.models.recipe import Recipe


def _tanh(x: Tensor) -> Tensor:
    """In place. On a CPU through the sigmoid, which torch computes four times as fast."""
    if x.is_cuda:
        return x.tanh_()
    x.mul_(2.0).sigmoid_()
    return torch.add(-torch.ones_like(x[:1, :1, :1]), x, alpha=2.0, out=x)


# The activation in place, and the gradient in place from what came out of it.
WRITTEN: dict[type[nn.Module], tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    nn.Tanh: (_tanh, lambda g, y: torch.ops.aten.tanh_backward.grad_input(g, y, grad_input=g)),
    nn.ReLU: (torch.relu_, lambda g, y: torch.ops.aten.threshold_backward.grad_input(g, y, 0, grad_input=g)),
    nn.Sigmoid: (torch.sigmoid_, lambda g, y: torch.ops.aten.sigmoid_backward.grad_input(g, y, grad_input=g)),
}


class Space:
    """Memory of a step on so many rows, used again and again: fresh memory costs more than what is computed in it."""

    def __init__(self, layers: Sequence[Any], rows: Tensor, models: int, batch: int) -> None:
        weights = [step[0] for step in layers if isinstance(step, tuple)]
        self.x = rows.new_empty(models * batch, rows[0].numel())
        self.out = [rows.new_empty(models, batch, weight.shape[2]) for weight in weights]
        self.back = [rows.new_empty(models, batch, weight.shape[1]) for weight in weights[1:]]
        self.slopes = rows.new_empty(self.out[-1].shape)
        self.starts = torch.arange(models * batch, device=rows.device) * self.slopes.shape[2]
        self.minus = rows.new_full((models * batch,), -1.0)

    def slope(self, scores: Tensor, labels: Tensor) -> Tensor:
        """The gradient of the cross-entropy by the scores, [models, batch, classes]; labels lie flat."""
        slopes, (models, batch, classes) = self.slopes, scores.shape
        if classes == 2:
            torch.sub(scores[..., 1], scores[..., 0], out=slopes[..., 1])
            slopes[..., 1].sigmoid_().sub_(labels.view(models, batch)).div_(batch)
            torch.neg(slopes[..., 1], out=slopes[..., 0])
            return slopes
        torch.softmax(scores, 2, out=slopes)
        slopes.view(-1).index_add_(0, self.starts + labels, self.minus)
        return slopes.div_(batch)


class Adam:
    """torch's own fused step, without what its optimizer asks and copies around it at every step."""

    def __init__(self, recipe: Recipe, parameters: Sequence[Tensor]) -> None:
        self._parameters, self._decay = list(parameters), recipe.weight_decay
        self._moments = [[torch.zeros_like(p) for p in parameters] for _ in range(2)]
        self._steps = [torch.zeros(()) for _ in parameters]
        self._step: Any = torch._fused_adam_ if recipe.optimizer == "adam" else torch._fused_adamw_

    def __call__(self, rate: float) -> None:
        torch._foreach_add_(self._steps, 1)
        self._step(
            self._parameters, [p.grad for p in self._parameters], *self._moments, [], self._steps, amsgrad=False, lr=rate,
            beta1=0.9, beta2=0.999, weight_decay=self._decay, eps=1e-8, maximize=False,
        )  # fmt: skip


class Written:
    """Steps of SGD, or the gradients for another optimizer, over chains of linear layers and written activations."""

    def __init__(self, recipe: Recipe, stack: Layers, optimizer: torch.optim.Optimizer | None) -> None:
        self._recipe, self._optimizer = recipe, optimizer
        self._layers = stack.steps
        self._sgd = recipe.optimizer == "sgd"
        self._moved = [torch.zeros_like(p) for p in stack.parameters] if self._sgd else []
        self._places = {id(p): i for i, p in enumerate(stack.parameters)}
        self._spaces: dict[int, Space] = {}
        if not self._sgd:
            for p in stack.parameters:
                p.grad = torch.zeros_like(p)
        self._adam = None if self._sgd or stack.parameters[0].is_cuda else Adam(recipe, stack.parameters)

    @staticmethod
    def fits(recipe: Recipe, stack: Layers) -> bool:
        """Linear layers with at most one written activation after each; no dropout, no smoothing, no other shapes."""
        if recipe.label_smoothing or recipe.augment is not None or recipe.precision != "float32":
            return False
        steps = [step for step in stack.steps if not isinstance(step, (nn.Flatten, nn.Identity))]
        stack.steps = steps
        linear = [isinstance(step, tuple) for step in steps]
        plain = all(one or type(step) in WRITTEN for one, step in zip(linear, steps))
        apart = all(a or b for a, b in pairwise(linear))
        return plain and apart and linear[0] and linear[-1]

    @torch.no_grad()
    def __call__(self, rows: Tensor, labels: Tensor, batch: Tensor, rate: float | Tensor) -> None:
        """One step of every model on its own rows, [models, batch]."""
        space = self._spaces.get(batch.shape[1])
        if space is None:
            space = self._spaces[batch.shape[1]] = Space(self._layers, rows, *batch.shape)
        chosen = batch.flatten()
        x = torch.index_select(rows.flatten(1), 0, chosen, out=space.x).view(*batch.shape, -1)
        inputs, outputs, out = [], [], iter(space.out)
        for step in self._layers:
            if isinstance(step, tuple):
                inputs.append(x)
                into = next(out)
                x = torch.bmm(x, step[0], out=into) if step[1] is None else torch.baddbmm(step[1], x, step[0], out=into)
            else:
                x = WRITTEN[type(step)][0](x)
                outputs.append(x)
        g, back = space.slope(x, labels.index_select(0, chosen)), list(space.back)
        for step in reversed(self._layers):
            if isinstance(step, tuple):
                g = self._back(step, inputs.pop(), g, rate, back.pop() if back else None)
            else:
                g = WRITTEN[type(step)][1](g, outputs.pop())
        if self._adam is not None:
            self._adam(float(rate))
        elif not self._sgd:
            assert self._optimizer is not None
            self._optimizer.step()

    def _back(
        self, step: tuple[Tensor, Tensor | None], x: Tensor, g: Tensor, rate: float | Tensor, into: Tensor | None
    ) -> Tensor:
        """The gradients of a layer, and of what went into it unless that was the data."""
        weight, bias = step
        before = g if into is None else torch.bmm(g, weight.mT, out=into)
        if self._sgd:
            self._move(weight, rate, lambda into, beta: torch.baddbmm(into, x.mT, g, beta=beta, out=into))
            if bias is not None:
                self._move(bias, rate, lambda into, beta: into.mul_(beta).add_(g.sum(1, keepdim=True)))
        else:
            assert weight.grad is not None
            torch.bmm(x.mT, g, out=weight.grad)
            if bias is not None:
                assert bias.grad is not None
                torch.sum(g, 1, keepdim=True, out=bias.grad)
        return before

    def _move(self, p: Tensor, rate: float | Tensor, add: Callable[[Tensor, float], Tensor]) -> None:
        """SGD with momentum, the gradient added to the momentum where it is made."""
        moved = self._moved[self._places[id(p)]]
        add(moved, self._recipe.momentum)
        if self._recipe.weight_decay:
            moved.add_(p, alpha=self._recipe.weight_decay)
        if isinstance(rate, Tensor):  # on a GPU, so that a recorded step can be given another rate
            torch.addcmul(p, moved, rate, value=-1.0, out=p)
        else:
            p.sub_(moved, alpha=rate)
