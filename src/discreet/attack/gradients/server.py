"""What a server reads that chooses the weights which it sends: rows out of large batches, and through secure sums.

`imprint` puts two linear layers before the model (Fowl et al. 2022): every neuron of the first measures the same number of a
row, such as its brightness, and the thresholds cut its public distribution into bins. The gradients of neighbouring neurons
differ by the rows of one bin. `single_out` sets the first linear layer of the model so that each neuron is on for about one row
of the batch (Boenisch et al. 2023). Neither needs one client's update by itself: in a sum the rows of all clients are read.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from discreet.attack.gradients.network import first_linear
from discreet.attack.gradients.update import checked
from discreet.core import check
from discreet.errors import InvalidValue

ALIKE = 1e-3  # relative distance under which two readings are one row
FEEBLE = 1e-5  # of the largest bias gradient: a smaller one is rounding


def imprint(model: nn.Module, shape: Sequence[int], public: Any, *, bins: int, seed: int = 0) -> nn.Sequential:
    """The model behind an imprint layer of so many bins; `public` are rows of the same kind as the clients'.

    >>> _ = torch.manual_seed(0)
    >>> changed = imprint(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), (4,), torch.rand(100, 4), bins=8)
    >>> changed(torch.rand(3, 4)).shape
    torch.Size([3, 2])
    """
    rows = _public(public, shape)
    check.whole("bins", bins, least=2)
    size = rows.shape[1]
    generator = torch.Generator().manual_seed(seed)
    direction = torch.rand(size, generator=generator).double() / size
    ends = torch.quantile(rows @ direction, torch.linspace(0, 1, bins + 1, dtype=torch.float64))[:-1]
    first, back = nn.Linear(size, bins), nn.Linear(bins, size)
    with torch.no_grad():
        first.weight.copy_(direction.expand(bins, -1))
        first.bias.copy_(-ends)
        back.weight.copy_((torch.randn(size, 1, generator=generator) / (bins * size) ** 0.5).expand(-1, bins))
        back.bias.zero_()
    layers = [nn.Flatten(), first, nn.ReLU(), back, nn.Unflatten(1, tuple(shape)), copy.deepcopy(model)]
    return nn.Sequential(*layers).to(next(model.parameters()).dtype)


def single_out(model: nn.Module, shape: Sequence[int], public: Any, *, rows: int, seed: int = 0) -> nn.Module:
    """A copy whose first linear layer is on for about one in `rows` rows, a different one for each neuron.

    `rows` is how many the batch has, or all batches of a secure sum together.
    """
    seen = _public(public, shape)
    check.whole("rows", rows)
    changed = copy.deepcopy(model)
    first = first_linear(changed, shape)
    if first is None:
        raise InvalidValue("No linear layer with a bias sees the row itself, so its weights cannot single a row out.")
    layer, generator = first[1], torch.Generator().manual_seed(seed)
    spread = seen.std(0) + 1e-3 * float(seen.std(0).max())
    direction = torch.randn(layer.out_features, seen.shape[1], generator=generator).double() / spread / math.sqrt(seen.shape[1])
    ends = torch.quantile(seen @ direction.T, 1.0 - 1.0 / max(rows, 2), dim=0)
    with torch.no_grad():
        layer.weight.copy_(direction)
        layer.bias.copy_(-ends)
    return changed


def read(
    model: nn.Module, update: Mapping[str, Any], shape: Sequence[int], *, low: float = 0.0, high: float = 1.0
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Rows that the first linear layer gives away, within [low, high], and which of them two neurons agree on.

    What a neuron alone shows may be a mixture of rows; two neurons weigh a mixture differently, so what both show is a row.
    """
    first = first_linear(model, shape)
    if first is None:
        raise InvalidValue("No linear layer with a bias sees the row itself, so nothing is imprinted on its gradient.")
    values = checked(model, update).values
    prefix = f"{first[0]}." if first[0] else ""
    weight, bias = values[f"{prefix}weight"], values[f"{prefix}bias"]
    if bool((first[1].weight == first[1].weight[0]).all()):  # an imprint layer: the bins are differences
        weight = torch.cat([weight[:-1] - weight[1:], weight[-1:]])
        bias = torch.cat([bias[:-1] - bias[1:], bias[-1:]])
    on = bias.abs() > FEEBLE * float(bias.abs().max())
    rows = weight[on] / bias[on, None]
    span = high - low
    rows = rows[((rows > low - 0.01 * span) & (rows < high + 0.01 * span)).all(1)]
    kept: list[Tensor] = []
    twice: list[bool] = []
    for row in rows:
        known = [index for index, other in enumerate(kept) if float((row - other).norm()) < ALIKE * float(row.norm())]
        if known:
            twice[known[0]] = True
        else:
            kept.append(row)
            twice.append(False)
    stacked = torch.stack(kept) if kept else torch.zeros(0, weight.shape[1], dtype=torch.float64)
    return stacked.reshape(-1, *shape), torch.tensor(twice, dtype=torch.bool)


def _public(public: Any, shape: Sequence[int]) -> Tensor:
    rows = torch.as_tensor(public).double()
    if rows.shape[1:] != torch.Size(shape) or len(rows) < 2:
        raise InvalidValue(f"public must hold at least two rows of the shape {tuple(shape)}; got {tuple(rows.shape)}.")
    return rows.flatten(1)
