"""Attention: the projections are linear layers, what is between them has no parameters.

`nn.MultiheadAttention` keeps the projections of queries, keys and values in one parameter. Where they read different tensors
its rows are used as three. What torch's own forward does with masks is done here too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from discreet.errors import InvalidValue
from discreet.learn.sgd.engine.fallback import spread
from discreet.learn.sgd.engine.layers import linear
from discreet.learn.sgd.engine.tape import Forward, Tape


def attention(module: nn.Module, tape: Tape) -> Callable[..., tuple[Tensor, Tensor | None]]:
    assert isinstance(module, nn.MultiheadAttention)

    def forward(
        query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None, need_weights: bool = True,
        attn_mask: Tensor | None = None, average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        if query.ndim != 3:
            raise InvalidValue(
                f"nn.MultiheadAttention was given one sequence of shape {tuple(query.shape)} without an axis for examples. "
                "Give it [examples, positions, width] (batch_first=True) or [positions, examples, width]."
            )
        q, k, v = _projected(module, tape, query, key, value)
        q, k, v = (_heads(module, t) for t in (q, *_more(module, tape, k, v)))
        causal = is_causal and key_padding_mask is None and not need_weights
        mask = None if causal else _mask(module, query, key, key_padding_mask, attn_mask, k.shape[2])
        dropout = module.dropout if module.training else 0.0
        if need_weights:
            scores = (q * q.shape[-1] ** -0.5) @ k.mT
            weights = F.softmax(scores if mask is None else scores + mask, dim=-1)
            y = (F.dropout(weights, dropout) if dropout else weights) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal=causal)
        y = linear.use(tape, y.transpose(1, 2).flatten(2), module.out_proj.weight, module.out_proj.bias)
        y = y if module.batch_first else y.transpose(0, 1)
        if not need_weights:
            return y, None
        return y, weights.mean(1) if average_attn_weights else weights

    return forward


def _projected(module: nn.MultiheadAttention, tape: Tape, *tensors: Tensor) -> list[Tensor]:
    """Queries, keys and values [examples, positions, width]; tensors that are one are read once."""
    first = {id(t): t if module.batch_first else t.transpose(0, 1) for t in tensors}
    query, key, value = (first[id(t)] for t in tensors)
    bias, width = module.in_proj_bias, module.embed_dim
    if module.in_proj_weight is None:
        weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
        biases = [None if bias is None else tape.part(bias, i * width, (i + 1) * width) for i in range(3)]
        return [linear.use(tape, x, w, b) for x, w, b in zip((query, key, value), weights, biases)]
    if query is key and key is value:
        return list(linear.use(tape, query, module.in_proj_weight, bias).chunk(3, -1))

    def rows(x: Tensor, start: int, stop: int) -> Tensor:
        its = None if bias is None else tape.part(bias, start * width, stop * width)
        return linear.use(tape, x, tape.part(module.in_proj_weight, start * width, stop * width), its)

    if key is value:
        return [rows(query, 0, 1), *rows(key, 1, 3).chunk(2, -1)]
    return [rows(query, 0, 1), rows(key, 1, 2), rows(value, 2, 3)]


def _more(module: nn.MultiheadAttention, tape: Tape, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values with a learned one and a zero one after them, where the module asks for those."""
    if module.bias_k is not None and module.bias_v is not None:
        k = torch.cat((k, spread(tape, module.bias_k).to(k.dtype)), 1)
        v = torch.cat((v, spread(tape, module.bias_v).to(v.dtype)), 1)
    if module.add_zero_attn:
        k, v = (F.pad(t, (0, 0, 0, 1)) for t in (k, v))
    return k, v


def _heads(module: nn.MultiheadAttention, t: Tensor) -> Tensor:
    return t.unflatten(-1, (module.num_heads, -1)).transpose(1, 2)


def _mask(
    module: nn.MultiheadAttention,
    query: Tensor,
    key: Tensor,
    padding: Tensor | None,
    attention_mask: Tensor | None,
    length: int,
) -> Tensor | None:
    """What is added to the scores, one for both masks; learned and zero keys at the end are always seen."""
    examples = query.shape[0 if module.batch_first else 1]
    total: Tensor | None = None
    if attention_mask is not None:
        mask = _added(attention_mask, query.dtype)
        total = mask if mask.ndim == 2 else mask.unflatten(0, (examples, module.num_heads))
    if padding is not None:
        mask = _added(padding, query.dtype)[:, None, None, :]
        total = mask if total is None else total + mask
    if total is None:
        return None
    return F.pad(total, (0, length - key.shape[1 if module.batch_first else 0]))


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, float("-inf"))


LAYERS: dict[Any, Forward] = {nn.MultiheadAttention.forward: attention}
