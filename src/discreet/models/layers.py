"""Stacked networks: the same layers for many models, one batched product instead of many small ones.

`Layers` writes plain chains of linear layers and activations as batched products; `Mapped` runs any other module under
torch.func.vmap. Both compute what the modules would one by one, up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

ACTIVATIONS: dict[type[nn.Module], Any] = {
    nn.Tanh: torch.tanh, nn.ReLU: torch.relu, nn.Sigmoid: torch.sigmoid, nn.GELU: F.gelu, nn.SiLU: F.silu, nn.ELU: F.elu,
    nn.Identity: lambda x: x,
}  # fmt: skip


class Layers:
    """Chains of nn.Linear, activations and dropout: weights [models, in, out], activations [models, batch, width]."""

    def __init__(self, models: Sequence[nn.Module], device: torch.device) -> None:
        chains = [_chain(model) for model in models]
        self.steps: list[Any] = []
        self.parameters: list[Tensor] = []
        for layers in zip(*(chain or () for chain in chains)):
            first = layers[0]
            if isinstance(first, nn.Linear):
                weight = torch.stack([layer.weight.detach().mT for layer in layers]).to(device).contiguous().requires_grad_()
                self.parameters.append(weight)
                bias = None
                if first.bias is not None:
                    bias = torch.stack([layer.bias.detach()[None] for layer in layers]).to(device).requires_grad_()
                    self.parameters.append(bias)
                self.steps.append((weight, bias))
            else:
                self.steps.append(first)

    @staticmethod
    def fits(model: nn.Module) -> bool:
        """A chain whose layers all learn, each with parameters of its own, and without hooks."""
        chain = _chain(model)
        if chain is None or any(layer._forward_pre_hooks or layer._forward_hooks for layer in model.modules()):
            return False
        parameters = [p for layer in chain for p in layer.parameters()]
        return all(p.requires_grad for p in parameters) and len({id(p) for p in parameters}) == len(parameters)

    def __call__(self, x: Tensor, *, training: bool) -> Tensor:
        """Scores [models, batch, classes] of [models, batch, ...], or of [batch, ...] that all models share."""
        x = x.flatten(2) if x.ndim > 3 else x
        for step in self.steps:
            if isinstance(step, tuple):
                weight, bias = step
                x = _product(x, weight, bias)
            elif isinstance(step, nn.Dropout):
                x = F.dropout(x, step.p, training)
            elif isinstance(step, nn.Flatten):
                x = x.flatten(2) if x.ndim > 3 else x
            else:
                x = ACTIVATIONS[type(step)](x)
        return x

    def only(self, place: int) -> Layers:
        """A stack of one of its models, which shares its weights."""
        single = object.__new__(Layers)
        picked = [p if p is None else p[place : place + 1] for step in self.steps if isinstance(step, tuple) for p in step]
        pairs = iter(zip(picked[::2], picked[1::2]))
        single.steps = [next(pairs) if isinstance(step, tuple) else step for step in self.steps]
        single.parameters = [p for p in picked if p is not None]
        return single

    @torch.no_grad()
    def copy_to(self, model: nn.Module, place: int) -> None:
        """Write the weights of one model of the stack into a module of the same layers."""
        linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
        for layer, (weight, bias) in zip(linear, (step for step in self.steps if isinstance(step, tuple))):
            layer.weight.copy_(weight[place].mT)
            if bias is not None:
                layer.bias.copy_(bias[place, 0])


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if x.ndim == 2:  # the same rows for every model
        product = torch.matmul(x, weight)
        return product if bias is None else product + bias
    return torch.bmm(x, weight) if bias is None else torch.baddbmm(bias, x, weight)


def _chain(model: nn.Module) -> tuple[nn.Module, ...] | None:
    """The layers of a plain chain, or None."""
    known = (nn.Linear, nn.Dropout, nn.Flatten, *ACTIVATIONS)
    if isinstance(model, nn.Linear):
        return (model,)
    if not isinstance(model, nn.Sequential):
        return None
    layers: list[nn.Module] = []
    for layer in model:
        nested = _chain(layer) if isinstance(layer, nn.Sequential) else (layer,)
        if nested is None or not all(type(member) in known for member in nested):
            return None
        layers += nested
    flat = all(not isinstance(member, nn.Flatten) or (member.start_dim, member.end_dim) == (1, -1) for member in layers)
    return tuple(layers) if flat and any(isinstance(member, nn.Linear) for member in layers) else None


class Mapped:
    """Any module, stacked by torch.func: parameters and buffers [models, ...]."""

    def __init__(self, models: Sequence[nn.Module], device: torch.device) -> None:
        params, buffers = stack_module_state(list(models))
        self._params = {name: p.detach().to(device).requires_grad_(p.requires_grad) for name, p in params.items()}
        self._buffers = {name: b.detach().to(device) for name, b in buffers.items()}
        self.parameters = list(self._params.values())
        self._skeleton = models[0].to("meta")

    def __call__(self, x: Tensor, *, training: bool) -> Tensor:
        self._skeleton.train(training)

        def one(params: Any, buffers: Any, rows: Tensor) -> Tensor:
            return functional_call(self._skeleton, (params, buffers), (rows,))

        return vmap(one, randomness="different")(self._params, self._buffers, x)
