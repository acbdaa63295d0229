"""One training step of a stack of plain chains, written out: no graph, no new memory, gradients straight into momentum.

Small networks spend their time between products, not in them. Here a step is two or three batched products a layer and a few
passes over activations; with SGD the product that makes a weight's gradient adds it to the momentum in the same pass.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from discreet.attack.membership.recipe import Recipe
from discreet.attack.membership.shadow.stacks import Layers

# The activation in place, and the gradient in place from what came out of it.
WRITTEN: dict[type[nn.Module], tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    nn.Tanh: (torch.tanh_, lambda g, y: torch.ops.aten.tanh_backward.grad_input(g, y, grad_input=g)),
    nn.ReLU: (torch.relu_, lambda g, y: torch.ops.aten.threshold_backward.grad_input(g, y, 0, grad_input=g)),
    nn.Sigmoid: (torch.sigmoid_, lambda g, y: torch.ops.aten.sigmoid_backward.grad_input(g, y, grad_input=g)),
}


class Written:
    """Steps of SGD, or the gradients for another optimizer, over chains of linear layers and written activations."""

    def __init__(self, recipe: Recipe, stack: Layers, optimizer: torch.optim.Optimizer) -> None:
        self._recipe, self._optimizer = recipe, optimizer
        self._layers = stack.steps
        self._sgd = recipe.optimizer == "sgd"
        self._moved = [torch.zeros_like(p) for p in stack.parameters] if self._sgd else []
        self._places = {id(p): i for i, p in enumerate(stack.parameters)}
        if not self._sgd:
            for p in stack.parameters:
                p.grad = torch.zeros_like(p)

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
    def __call__(self, x: Tensor, y: Tensor, rate: float | Tensor) -> None:
        """One step of every model on [models, batch, width]."""
        inputs, outputs = [], []
        for step in self._layers:
            if isinstance(step, tuple):
                inputs.append(x)
                x = torch.baddbmm(step[1], x, step[0]) if step[1] is not None else torch.bmm(x, step[0])
            else:
                x = WRITTEN[type(step)][0](x)
                outputs.append(x)
        g = torch.softmax(x, 2)
        g.scatter_add_(2, y[..., None], torch.full_like(g[..., :1], -1.0))
        g.div_(y.shape[1])
        for step in reversed(self._layers):
            if isinstance(step, tuple):
                g = self._back(step, inputs.pop(), g, rate, last=not inputs)
            else:
                g = WRITTEN[type(step)][1](g, outputs.pop())
        if not self._sgd:
            self._optimizer.step()

    def _back(self, step: tuple[Tensor, Tensor | None], x: Tensor, g: Tensor, rate: float | Tensor, *, last: bool) -> Tensor:
        """The gradients of a layer, and of what went into it unless that was the data."""
        weight, bias = step
        before = g if last else torch.bmm(g, weight.mT)
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
