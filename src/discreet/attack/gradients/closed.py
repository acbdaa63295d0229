"""One row from the gradient of the first linear layer, in closed form.

For z = W x + b and one row, dL/dW = (dL/db) xᵀ, so x = (dL/dW)ᵀ (dL/db) / |dL/db|²: exact, whatever comes after the layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from discreet.attack.gradients.network import first_linear
from discreet.attack.gradients.update import Update


def one_row(model: nn.Module, update: Update, shape: Sequence[int]) -> Tensor | None:
    """The row, or None where no linear layer with a bias sees the row itself, or it learned nothing."""
    first = first_linear(model, shape)
    if first is None:
        return None
    prefix = f"{first[0]}." if first[0] else ""
    weight, bias = update.values[f"{prefix}weight"], update.values[f"{prefix}bias"]
    size = float((bias**2).sum())
    if size == 0.0:
        return None
    return torch.as_tensor((bias @ weight) / size).reshape(1, *shape)
