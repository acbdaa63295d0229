"""A rule for whole recurrent layers, which torch would otherwise take apart into operations for every position.

One layer reads the positions of each example in order; examples meet nowhere, and the weights are used by all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from discreet.learn.sgd.proof.values import PUBLIC, ROWS, Layout, NotProven, known, mark, merged, rows, summed

LAYERS = {"lstm": 2, "gru": 1, "rnn_tanh": 1, "rnn_relu": 1}  # with so many states


def recurrent(name: str, args: Sequence[Any]) -> tuple[Tensor, ...]:
    """What torch._VF gives for a layer that is not given packed sequences, as tensors without values."""
    if len(args) != 9 or isinstance(args[1], Tensor) != (LAYERS[name] == 1) or not isinstance(args[2], (list, tuple)):
        raise NotProven(f"packed sequences hold the examples in an order of their own ({name})")
    x, states, weights, _, _, _, _, both, first = args
    states = [states] if isinstance(states, Tensor) else list(states)
    if x.ndim != 3 or any(known(w).kind != PUBLIC for w in weights):
        raise NotProven(f"weights that differ between examples ({name})")
    made: tuple[Tensor, ...] = _Layer.apply(0 if first else 1, 2 if both else 1, x, len(states), *states, *weights)
    return made


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, axis: int, ways: int, x: Tensor, count: int, *rest: Tensor) -> Any:
        states, weights = rest[:count], rest[count:]
        layout = _same([x], axis)
        merged([layout.at(1), _same(states, 1)])
        ctx.axis, ctx.layout, ctx.count = axis, layout, count
        ctx.save_for_backward(x, *rest)
        proj = states[0].shape[2]
        out = x.new_empty((x.shape[0], x.shape[1], proj * ways))
        mark(out, rows(layout))
        last = [torch.empty_like(state) for state in states]
        for state in last:
            mark(state, rows(layout.at(1)))
        return (out, *last) if weights else out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        x, *rest = ctx.saved_tensors
        for place, gradient in enumerate(gradients):
            if gradient is not None:
                merged([ctx.layout.at(1 if place else ctx.axis), _same([gradient], 1 if place else ctx.axis)])
        made = [torch.empty_like(it) for it in (x, *rest)]
        for place, it in enumerate(made):
            mark(it, rows(ctx.layout) if not place else rows(ctx.layout.at(1)) if place <= ctx.count else summed())
        return None, None, made[0], None, *made[1:]


def _same(tensors: Sequence[Tensor], axis: int) -> Layout:
    values = [known(t) for t in tensors]
    if any(it.kind != ROWS or it.layout is None or it.layout.dim != axis or it.cell.blank for it in values):
        raise NotProven("a recurrent layer is given its examples along another axis, or not examples alone")
    return merged([it.layout for it in values if it.layout is not None])
