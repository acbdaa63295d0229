"""The gradient of every example's loss: its norm by parameter, and random projections of it.

For networks of known layers one forward and one backward pass suffice: a layer's gradient for one example is a product of its
input and its output gradient, both recorded by hooks. torch.func gives the same for every module, but its grouped convolutions
are a hundred times slower.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from discreet.core import check
from discreet.errors import InvalidValue
from discreet.models.trainer import one_thread

Array = NDArray[Any]
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
AT_ONCE = {"cpu": 1 << 25, "cuda": 1 << 29}  # numbers of gradients held at a time
ROWS_AT_ONCE = 256  # a deep network's activations for a row are much larger than its gradient


def gradient_norms(model: nn.Module, X: Array, y: Array, *, project: int = 0, seed: int = 0) -> tuple[Array, Array]:
    """For every row the norm of the gradient of its loss [rows, parameters of the model], and `project` random directions of
    each [rows, parameters times project].

    >>> import numpy as np
    >>> model = nn.Linear(3, 2)
    >>> norms, _ = gradient_norms(model, np.ones((4, 3)), np.zeros(4, int))
    >>> norms.shape
    (4, 2)
    """
    learnable = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    fixed = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad} | dict(model.named_buffers())
    if not learnable:
        raise InvalidValue("The model has no parameters that can be learned, so no gradient to look at.")
    place = next(iter(learnable.values())).device
    draw = torch.Generator().manual_seed(seed)
    lines = {n: _directions(p, check.whole("project", project, least=0), draw).to(place) for n, p in learnable.items()}

    def loss(parameters: dict[str, Tensor], x: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(model, (parameters, fixed), (x[None],)), label[None])

    def mapped(x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        gradients = {name: g.flatten() for name, g in grad(loss)(learnable, x, label).items()}
        norms = torch.stack([g.norm() for g in gradients.values()])
        return norms, torch.cat([lines[name] @ g for name, g in gradients.items()])

    batch = min(ROWS_AT_ONCE, max(1, AT_ONCE.get(place.type, 1 << 25) // sum(p.numel() for p in learnable.values())))
    before = model.training
    model.eval()
    rows, labels = torch.as_tensor(X, dtype=torch.float32).split(batch), torch.as_tensor(y, dtype=torch.long).split(batch)
    direct = known(model)

    def of(x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        written = per_example_gradients(model, x, label, lines) if direct else None
        return written or vmap(mapped)(x, label)

    with one_thread(place.type):
        parts = [of(x.to(place), label.to(place)) for x, label in zip(rows, labels)]
    model.train(before)
    norms, projected = (torch.cat(part).cpu().numpy() for part in zip(*parts))
    return norms, projected


def _directions(p: Tensor, count: int, draw: torch.Generator) -> Tensor:
    """Random signs, so that a direction's length is that of the gradient on average."""
    return torch.randint(0, 2, (count, p.numel()), generator=draw).float().mul_(2).sub_(1).div_(max(p.numel(), 1) ** 0.5)


def known(model: nn.Module) -> bool:
    """Whether all parameters that learn belong to layers whose gradients are written here."""
    return all(_known(layer) for layer in _learning(model))


def _learning(model: nn.Module) -> list[nn.Module]:
    return [layer for layer in model.modules() if any(p.requires_grad for p in layer.parameters(recurse=False))]


def _known(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Conv2d):
        return layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return isinstance(layer, nn.Linear) or (isinstance(layer, NORMS) and layer.running_mean is not None)


def per_example_gradients(model: nn.Module, x: Tensor, y: Tensor, lines: dict[str, Tensor]) -> tuple[Tensor, Tensor] | None:
    """Norms [rows, parameters] and projections on `lines` (name: [directions, size]); or None, where a layer was used twice.

    The model must be in its evaluation mode, where no row sees another.
    """
    caught: dict[nn.Module, list[tuple[Tensor, Tensor]]] = {}

    def catch(layer: nn.Module, inputs: Any, out: Tensor) -> Tensor:
        caught.setdefault(layer, []).append((inputs[0].detach(), out))
        return out.clone()  # what follows may change its input in place

    hooks = [layer.register_forward_hook(catch) for layer in _learning(model)]
    try:
        with torch.enable_grad():
            loss = F.cross_entropy(model(x), y, reduction="sum")
            if any(len(uses) != 1 for uses in caught.values()):
                return None
            slopes = torch.autograd.grad(loss, [uses[0][1] for uses in caught.values()])
    finally:
        for hook in hooks:
            hook.remove()
    recorded = {layer: (uses[0][0], g) for (layer, uses), g in zip(caught.items(), slopes)}
    norms, projected = [], []
    for path, layer in model.named_modules():
        for name, p in layer.named_parameters(recurse=False):
            if p.requires_grad:
                gradients = _gradient(layer, name, *recorded[layer]) if layer in recorded else p.new_zeros(len(x), p.numel())
                norms.append(gradients.norm(dim=1))
                projected.append(gradients @ lines[f"{path}.{name}" if path else name].mT)
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
