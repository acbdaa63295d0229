"""Training steps of a stack of plain chains (linear layers and activations), written out by hand.

Written   a step as batched products in torch: no graph, no new memory; with SGD the product that makes a weight's gradient
          adds it to the momentum in the same pass
Chain     whole passes on a CPU in one call of `chain.c` (`discreet.native`), where it was built; it is compared with torch
          before its first use in a process
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from discreet import native
from discreet.models.layers import Layers
from discreet.models.recipe import OPTIMIZERS, Recipe


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
    """Buffers of a step, reused because allocating them costs more than the computation."""

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
    """torch's fused Adam step without the overhead of its optimizer class."""

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
        plain = all(is_linear or type(step) in WRITTEN for is_linear, step in zip(linear, steps))
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


Pass = Callable[..., int]
AFTER = {nn.Tanh: 1, nn.ReLU: 2, nn.Sigmoid: 3}  # numbers of chain.c
LINE = 16  # numbers in a cache line, and in the widest register
LARGE = 1 << 21  # weights of a layer after the first, above which transposing them costs more than chain.c saves
ADAM = (0.9, 0.999, 1e-8)  # torch's own
NEAR = 3e-5  # of the largest number: what rounding explains after a few steps


class Chain:
    """Passes over the rows; the stack's weights become views of memory in the layout of chain.c."""

    def __init__(self, recipe: Recipe, stack: Layers, rows: Tensor, labels: Tensor, run: Pass | None = None) -> None:
        self._run = run or compiled()
        self._recipe, self._rows, self._labels, self._taken = recipe, rows.flatten(1).contiguous(), labels.contiguous(), 0
        shapes = _shapes(stack)
        self._shapes = np.array(shapes, "l")
        models, size = len(stack.parameters[0]), sum((width + 1) * line for width, _, line, _, _ in shapes)
        self._weights = torch.zeros(models, size)
        self._moments = [torch.zeros_like(self._weights) for _ in range(1 if recipe.optimizer == "sgd" else 2)]
        at, blocks = 0, []
        for width, out, line, biased, _ in shapes:
            whole = self._weights[:, at : at + (width + 1) * line].unflatten(1, (width + 1, line))[..., :out]
            blocks += [whole[:, :width], whole[:, width:]][: 1 + biased]
            at += (width + 1) * line
        for p, place in zip(stack.parameters, blocks):
            p.data = place.copy_(p.detach())

    @staticmethod
    def fits(recipe: Recipe, stack: Layers, rows: Tensor, labels: Tensor) -> bool:
        """Chains that `Written` accepts, in float32 on a CPU, with consistent sizes: chain.c checks nothing again."""
        plain = labels.dtype == torch.long and labels.ndim == 1 and all(p.dtype == torch.float32 for p in stack.parameters)
        if rows.is_cuda or not len(rows) or not plain or not Written.fits(recipe, stack):
            return False
        shapes = _shapes(stack)
        wide = [rows[0].numel(), *(shape[1] for shape in shapes)]
        sizes = all(shape[0] == before for shape, before in zip(shapes, wide))
        sizes = sizes and all(shape[0] * shape[1] <= LARGE for shape in shapes[1:])
        return sizes and int(labels.min()) >= 0 and int(labels.max()) < wide[-1] and compiled() is not None

    def __call__(self, order: Tensor, rate: float) -> None:
        """Every model sees its own rows once, in the order [models, rows] given, in batches."""
        recipe, order = self._recipe, order.contiguous()
        assert self._run is not None
        kind = OPTIMIZERS.index(recipe.optimizer)
        numbers = np.array([kind, rate, recipe.momentum, recipe.weight_decay, *ADAM])
        done = self._run(
            self._rows.data_ptr(), self._labels.data_ptr(), order.data_ptr(), *order.shape, recipe.batch_size,
            self._shapes.ctypes.data, len(self._shapes), numbers.ctypes.data, self._taken,
            *(t.data_ptr() for t in (self._weights, self._moments[0], self._moments[-1])), self._weights.shape[1],
        )  # fmt: skip
        if not done:
            raise MemoryError("There is no memory for the activations of one batch.")
        self._taken += -(-order.shape[1] // recipe.batch_size)


def _shapes(stack: Layers) -> list[tuple[int, int, int, int, int]]:
    """By layer: inputs, outputs, row stride (an odd number of cache lines), bias, and the activation's number."""
    shapes = []
    for i, step in enumerate(stack.steps):
        if isinstance(step, tuple):
            size, out = step[0].shape[1:]
            after = AFTER[type(stack.steps[i + 1])] if i + 1 < len(stack.steps) and type(stack.steps[i + 1]) in AFTER else 0
            shapes.append((size, out, (-(-out // LINE) | 1) * LINE, int(step[1] is not None), after))
    return shapes


@lru_cache(maxsize=1)
def compiled() -> Pass | None:
    """The compiled library, if its results agree with torch's."""
    library = native.library("chain")
    if library is None:
        return None
    run, pointer, whole = library.discreet_chain, ctypes.c_void_p, ctypes.c_long
    run.argtypes = [pointer] * 3 + [whole] * 3 + [pointer, whole, pointer, whole, *[pointer] * 3, whole]
    run.restype = ctypes.c_int
    return run if _agrees(run) else None


def _agrees(run: Pass) -> bool:
    """Compare with torch on three layers with and without bias, full and partial registers, and a short last batch."""
    draw = torch.Generator().manual_seed(0)
    rows, labels = torch.randn(11, 7, generator=draw), torch.randint(3, (11,), generator=draw)
    order = torch.stack([torch.randperm(11, generator=draw) for _ in range(2)])
    for optimizer, activation in zip(OPTIMIZERS, (nn.Tanh(), nn.ReLU(), nn.Sigmoid())):
        recipe = Recipe(nn.Identity, optimizer=optimizer, batch_size=4, learning_rate=0.03, momentum=0.9, weight_decay=0.1)
        stacks = [_tried(activation) for _ in range(2)]
        chain, written = Chain(recipe, stacks[0], rows, labels, run), Written(recipe, stacks[1], None)
        for _ in range(2):
            chain(order, recipe.learning_rate)
            for batch in order.split(recipe.batch_size, 1):
                written(rows, labels, batch, recipe.learning_rate)
        for ours, theirs in zip(*(stack.parameters for stack in stacks)):
            if not bool((ours - theirs).abs().max() <= NEAR * theirs.abs().max()):
                return False
    return True


def _tried(activation: nn.Module) -> Layers:
    """The same two small chains each time."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(1)
        models = [
            nn.Sequential(nn.Linear(7, 300), activation, nn.Linear(300, 16, bias=False), activation, nn.Linear(16, 3))
            for _ in range(2)
        ]
    return Layers(models, torch.device("cpu"))
