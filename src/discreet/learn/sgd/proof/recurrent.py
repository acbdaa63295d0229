"""Rules for whole layers that torch would decompose into operations for every position, or that index along the batch.

A recurrent layer reads the positions of each example in order; examples never interact, and all of them use the weights. A bag
of words is summed example by example, although torch receives the offsets of the examples in one long list.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from discreet.learn.sgd.proof.values import PUBLIC, ROWS, Layout, NotProven, known, mark, merged, rows, summed, symbolic

LAYERS = {"lstm": 2, "gru": 1, "rnn_tanh": 1, "rnn_relu": 1}  # with so many states


def recurrent(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Tensor, ...]:
    """What torch._VF gives for a layer that is not given packed sequences, as tensors without values."""
    if len(args) != 9 or kwargs or isinstance(args[1], Tensor) != (LAYERS[name] == 1) or not isinstance(args[2], (list, tuple)):
        raise NotProven(f"packed sequences hold the examples in an order of their own ({name})")
    x, states, weights, _, _, _, _, both, first = args
    states = [states] if isinstance(states, Tensor) else list(states)
    if any(symbolic(argument) for argument in args):
        raise NotProven(f"the size of the batch is used as a number ({name})")
    if x.ndim != 3 or any(known(w).kind != PUBLIC for w in weights):
        raise NotProven(f"weights that differ between examples ({name})")
    result: tuple[Tensor, ...] = _Layer.apply(0 if first else 1, 2 if both else 1, x, len(states), *states, *weights)
    return result


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
        outputs = [torch.empty_like(output) for output in (x, *rest)]
        for place, output in enumerate(outputs):
            mark(output, rows(ctx.layout) if not place else rows(ctx.layout.at(1)) if place <= ctx.count else summed())
        return None, None, outputs[0], None, *outputs[1:]


def bag(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor | None:
    """F.embedding_bag of [examples, words]; None: some other use, which is left to the rules of its operations."""
    arguments = inspect.signature(torch.nn.functional.embedding_bag).bind(*args, **kwargs)
    arguments.apply_defaults()
    x, table, weights = (arguments.arguments[name] for name in ("input", "weight", "per_sample_weights"))
    odd = [arguments.arguments[name] for name in ("offsets", "max_norm", "include_last_offset")]
    if x.ndim != 2 or any(value not in (None, False) for value in odd) or arguments.arguments["scale_grad_by_freq"]:
        return None
    if known(table).kind != PUBLIC:
        raise NotProven("a table that differs between examples (embedding_bag)")
    result: Tensor = _Bag.apply(x, table, weights)
    return result


class _Bag(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, table: Tensor, weights: Tensor | None) -> Tensor:
        ctx.layout = merged([_same([tensor], 0) for tensor in (x, weights) if tensor is not None])
        ctx.save_for_backward(table, weights)
        out = table.new_empty((x.shape[0], table.shape[1]))
        mark(out, rows(ctx.layout))
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        table, weights = ctx.saved_tensors
        merged([ctx.layout, _same([gradient], 0)])
        of_table, of_weights = torch.empty_like(table), None
        mark(of_table, summed())
        if weights is not None:
            of_weights = torch.empty_like(weights)
            mark(of_weights, rows(ctx.layout))
        return None, of_table, of_weights


def _same(tensors: Sequence[Tensor], axis: int) -> Layout:
    values = [known(t) for t in tensors]
    if any(value.kind != ROWS or value.layout is None or value.layout.dim != axis or value.cell.blank for value in values):
        raise NotProven("a recurrent layer is given its examples along another axis, or not examples alone")
    return merged([value.layout for value in values if value.layout is not None])


def is_torchs(name: str, func: Any) -> bool:
    """Whether a function of this name is torch's own."""
    own = torch.nn.functional.embedding_bag if name == "embedding_bag" else getattr(torch._VF, name)
    return type(func) is type(own) and bool(func == own)


WHOLE: dict[str, Callable[..., Any]] = {**dict.fromkeys(LAYERS, recurrent), "embedding_bag": bag}
