"""The layers with a fast way of their own, by the forward they run."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from discreet.learn.sgd.engine.fallback import computed
from discreet.learn.sgd.engine.layers import (
    attention,
    conv,
    conv_nd,
    embedding,
    linear,
    named,
    norm,
    recurrent,
    standardised,
    transposed,
)  # fmt: skip
from discreet.learn.sgd.engine.tape import Forward, any_number, any_order

# By `type(module).forward`, not by class: a subclass with a forward of its own is another layer.
KNOWN: dict[Any, Forward] = {
    **linear.LAYERS, **embedding.LAYERS, **norm.LAYERS, **conv.LAYERS, **conv_nd.LAYERS, **recurrent.LAYERS,
    **standardised.LAYERS, **transposed.LAYERS,
}  # fmt: skip
for _forward in (nn.Linear.forward, nn.Embedding.forward, nn.LayerNorm.forward, nn.RMSNorm.forward):
    KNOWN[_forward] = any_order(KNOWN[_forward])
for _forward in (*conv.LAYERS, *conv_nd.LAYERS, *standardised.LAYERS, *transposed.LAYERS, *norm.LAYERS):
    if _forward not in (nn.LayerNorm.forward, nn.RMSNorm.forward):
        KNOWN[_forward] = any_number(KNOWN[_forward])
WHOLE = attention.LAYERS  # these use the parameters of modules inside them, and never call those


def find(module: nn.Module) -> tuple[Forward | None, bool]:
    """The forward to run instead of a module's (None: unknown), and whether it covers all modules inside it as well."""
    forward = type(module).forward
    if is_parametrized(module) or computed(module):  # its weight is computed from others, by modules inside it or by hooks
        return None, True
    if forward in WHOLE:
        return WHOLE[forward], True
    known = KNOWN.get(forward) or named.LAYERS.get((forward.__module__, forward.__qualname__))
    if known is None and isinstance(module, nn.Embedding) and [name for name, _ in module.named_parameters()] == ["weight"]:
        known = embedding.inherited
    return known, False


def computes(module: nn.Module) -> bool:
    """Whether the replacement computes the module by itself and never calls the module's own forward."""
    known, _ = find(module)
    return known is not None and known is not embedding.inherited
