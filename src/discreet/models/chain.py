"""`chain.c` of `discreet.native`, where it was built: whole passes of plain chains on a CPU, in one call for all models of a
stack.

Before its first use in a process it is compared with torch. Elsewhere there are the steps of kernels.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from discreet import native
from discreet.models.kernels import Written
from discreet.models.layers import Layers
from discreet.models.recipe import OPTIMIZERS, Recipe

Pass = Callable[..., int]
AFTER = {nn.Tanh: 1, nn.ReLU: 2, nn.Sigmoid: 3}  # numbers of chain.c
LINE = 16  # numbers in a cache line, and in the widest register
LARGE = 1 << 21  # weights of a layer after the first, above which turning them around costs more than all else saves
ADAM = (0.9, 0.999, 1e-8)  # torch's own
NEAR = 3e-5  # of the largest number: what rounding explains after a few steps


class Chain:
    """Passes over the rows; the weights of the stack move into the layout of chain.c, and the stack looks at them there."""

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
        """Chains that kernels.py would take, of float32 on a CPU, where all sizes agree: C looks at none again."""
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
    """By layer: numbers in and out, from one line to the next (an odd number of cache lines), bias, what comes after it."""
    shapes = []
    for i, step in enumerate(stack.steps):
        if isinstance(step, tuple):
            size, out = step[0].shape[1:]
            after = AFTER[type(stack.steps[i + 1])] if i + 1 < len(stack.steps) and type(stack.steps[i + 1]) in AFTER else 0
            shapes.append((size, out, (-(-out // LINE) | 1) * LINE, int(step[1] is not None), after))
    return shapes


@lru_cache(maxsize=1)
def compiled() -> Pass | None:
    """What was compiled here, if it computes what torch does."""
    library = native.library("chain")
    if library is None:
        return None
    run, pointer, whole = library.discreet_chain, ctypes.c_void_p, ctypes.c_long
    run.argtypes = [pointer] * 3 + [whole] * 3 + [pointer, whole, pointer, whole, *[pointer] * 3, whole]
    run.restype = ctypes.c_int
    return run if _agrees(run) else None


def _agrees(run: Pass) -> bool:
    """Three layers with and without bias, columns that fill registers and some that do not, a last batch that is short."""
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
