"""What an attack reads from the model: its chain of layers, its gradients, and how well rows explain an update."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from discreet.attack.gradients.update import Update
from discreet.errors import InvalidValue

Loss = Callable[[Tensor, Tensor], Tensor]
DROPPING = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)
_KEEPS = (nn.Identity, nn.Flatten, nn.Unflatten)


class Network:
    """A copy of the model in float64 that computes the gradients a client would have sent for given rows."""

    def __init__(self, model: nn.Module, loss: Loss, *, dtype: torch.dtype = torch.float64, device: str = "cpu") -> None:
        self.model = copy.deepcopy(model).to(device=device, dtype=dtype)
        self.loss, self.dtype, self.device = loss, dtype, device
        self.names = [name for name, parameter in self.model.named_parameters() if parameter.requires_grad]
        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        drawing = [type(module).__name__ for module in self.model.modules() if isinstance(module, DROPPING)]
        if drawing and self.model.training:
            raise InvalidValue(
                f"The model is in training mode with {drawing[0]}, so its gradient depends on random numbers of the client. "
                "Call model.eval() to attack it as if nothing had been dropped."
            )

    def outputs(self, rows: Tensor) -> Tensor:
        return self.model(rows)  # type: ignore[no-any-return]

    def gradient(self, rows: Tensor, labels: Tensor, *, differentiable: bool = False) -> list[Tensor]:
        """The gradient of the mean loss over these rows, for every trained parameter."""
        value = self.loss(self.outputs(rows), labels)
        if value.dim():
            value = value.mean()
        return list(torch.autograd.grad(value, self.parameters, create_graph=differentiable))

    def residual(self, rows: Tensor, labels: Tensor, update: Update) -> float:
        """How far the gradient of these rows is from the update, relative to it and per parameter: 0 explains it all."""
        return self.apart(self.gradient(rows.to(self.device, self.dtype), labels.to(self.device)), update)

    def apart(self, made: Sequence[Tensor], update: Update) -> float:
        """How far these values are from the update, relative to it and per parameter."""
        sent = [value.to(self.device, self.dtype) for value in update.list()]
        shares = [
            ((a.detach() - b) ** 2).sum() / (b**2).sum()
            for a, b in zip((part.to(self.dtype) for part in made), sent)
            if bool(b.any())
        ]
        return float(torch.sqrt(sum(shares) / len(shares)))  # type: ignore[arg-type]


def certified(residual: float, update: Update) -> bool:
    """Do the rows reproduce the update up to the rounding it was sent with, which is coarse in half precision?"""
    return residual <= min(20.0 * update.rounding, max(update.rounding, 2e-5))


def chain(model: nn.Module) -> list[tuple[str, nn.Module]] | None:
    """The layers of a model that is one chain of them, with their names; None where it is anything else."""
    if not isinstance(model, nn.Sequential):
        return None
    layers: list[tuple[str, nn.Module]] = []
    for name, child in model.named_children():
        if isinstance(child, nn.Sequential):
            inner = chain(child) or []
            layers += [(f"{name}.{deeper}", layer) for deeper, layer in inner]
        elif isinstance(child, nn.Dropout) and not child.training:
            continue
        elif isinstance(child, _KEEPS) or not list(child.children()):
            layers.append((name, child))
        else:
            return None
    return layers


def first_linear(model: nn.Module, shape: Sequence[int]) -> tuple[str, nn.Linear] | None:
    """The linear layer whose input is the row itself, flattened or not: found by passing a row of known values."""
    parameter = next(model.parameters())
    size = 1
    for length in shape:
        size *= length
    probe = (torch.arange(1, size + 1, dtype=torch.float64) / size).reshape(1, *shape).to(parameter)
    seen: list[tuple[str, nn.Linear]] = []

    def look(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            if inputs[0].dim() == 2 and inputs[0].numel() == size and torch.equal(inputs[0].reshape(-1), probe.reshape(-1)):
                seen.append((name, module))  # type: ignore[arg-type]

        return hook

    linear = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    hooks = [module.register_forward_pre_hook(look(name)) for name, module in linear]
    try:
        with torch.no_grad():
            model(probe)
    finally:
        for hook in hooks:
            hook.remove()
    for name, layer in seen:
        if layer.bias is not None and layer.weight.requires_grad and layer.bias.requires_grad:
            return name, layer
    return None


def last_linear(model: nn.Module) -> tuple[str, nn.Linear] | None:
    """The linear layer that is called last; its bias gradient tells which labels were there."""
    layers = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return layers[-1] if layers and layers[-1][1].bias is not None and layers[-1][1].bias.requires_grad else None
