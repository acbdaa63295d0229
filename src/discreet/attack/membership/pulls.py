"""The gradient of every row's loss by one forward and one backward pass, for networks of well-known layers.

A layer's gradient for one row is a product of what went in and of the gradient of what came out; both are caught on the way.
torch.func gives the same for every module, but its convolutions are grouped ones, which take a hundred times as long.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


def known(model: nn.Module) -> bool:
    """Whether all parameters that learn belong to layers whose gradients are written here."""
    return all(_known(layer) for layer in _learning(model))


def _learning(model: nn.Module) -> list[nn.Module]:
    return [layer for layer in model.modules() if any(p.requires_grad for p in layer.parameters(recurse=False))]


def _known(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Conv2d):
        return layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return isinstance(layer, nn.Linear) or (isinstance(layer, NORMS) and layer.running_mean is not None)


def pulls(model: nn.Module, x: Tensor, y: Tensor, lines: dict[str, Tensor]) -> tuple[Tensor, Tensor] | None:
    """Norms [rows, parameters] and projections on `lines` (name: [directions, size]); or None, where a layer was used twice.

    The model must be in its evaluation mode, where no row sees another.
    """
    caught: dict[nn.Module, list[tuple[Tensor, Tensor]]] = {}

    def catch(layer: nn.Module, given: Any, out: Tensor) -> Tensor:
        caught.setdefault(layer, []).append((given[0].detach(), out))
        return out.clone()  # what follows may change its input in place

    hooks = [layer.register_forward_hook(catch) for layer in _learning(model)]
    try:
        with torch.enable_grad():
            loss = F.cross_entropy(model(x), y, reduction="sum")
            if any(len(uses) != 1 for uses in caught.values()):
                return None
            pulled = torch.autograd.grad(loss, [uses[0][1] for uses in caught.values()])
    finally:
        for hook in hooks:
            hook.remove()
    made = {layer: (uses[0][0], g) for (layer, uses), g in zip(caught.items(), pulled)}
    norms, projected = [], []
    for path, layer in model.named_modules():
        for name, p in layer.named_parameters(recurse=False):
            if p.requires_grad:
                each = _gradient(layer, name, *made[layer]) if layer in made else p.new_zeros(len(x), p.numel())
                norms.append(each.norm(dim=1))
                projected.append(each @ lines[f"{path}.{name}" if path else name].mT)
    return torch.stack(norms, 1), torch.cat(projected, 1)


def _gradient(layer: nn.Module, name: str, a: Tensor, g: Tensor) -> Tensor:
    """The gradient of one parameter for every row, [rows, size]."""
    rows = len(g)
    if isinstance(layer, nn.Linear):
        a, g = a.reshape(rows, -1, a.shape[-1]), g.reshape(rows, -1, g.shape[-1])
        return torch.bmm(g.mT, a).flatten(1) if name == "weight" else g.sum(1)
    g = g.reshape(rows, g.shape[1], -1)
    if name == "bias":
        return g.sum(2)
    if isinstance(layer, nn.Conv2d):
        columns = F.unfold(a, layer.kernel_size, layer.dilation, layer.padding, layer.stride)  # type: ignore[arg-type]
        return torch.bmm(g, columns.mT).flatten(1)
    mean, scale = (torch.as_tensor(getattr(layer, of)).view(-1, 1) for of in ("running_mean", "running_var"))
    eps: float = layer.eps  # type: ignore[assignment]
    return (g * (a.reshape(g.shape) - mean) / torch.sqrt(scale + eps)).sum(2)
