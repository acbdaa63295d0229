"""What each row sent into the last linear layer, and the gradient that came back, from one update of a whole batch.

For z = W a + b the weight's gradient is the sum of dL/dz aᵀ over the rows: of rank B, for B rows fewer than classes. Behind a
ReLU the inputs a are not negative and many are 0, so that among all vectors of that row space the rows' own are those with the
most zeros: B - 1 coordinates drawn where row i is 0 give its direction. The bias gradient, the sum of all dL/dz, fixes the
scales.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

DRAWS, LEAST, ROUNDS = 512, 4, 40
ZERO = 1e-4  # of a vector's largest entry, at float32
APART = 100.0
FEWEST = 0.02  # of the coordinates must be 0 beyond those drawn


@dataclass(frozen=True, slots=True)
class Split:
    """Row by row: what the layer saw, and the gradient at its output (the batch's mean included)."""

    inputs: Tensor
    deltas: Tensor


def rows_of(weight: Tensor, bias: Tensor, batch: int) -> Split | None:
    """The rows' parts of the gradients of a linear layer behind a ReLU; None where they cannot be told apart."""
    if not bool(bias.any()):
        return None
    if batch == 1:
        return Split(((bias @ weight) / (bias @ bias))[None], bias[None])
    if batch >= len(bias):
        return None
    _, singular, right = torch.linalg.svd(weight, full_matrices=False)
    if singular[batch - 1] < APART * singular[batch]:  # fewer directions than rows
        return None
    inputs = _sparse(right[:batch], batch)
    if inputs is None:
        return None
    deltas = torch.linalg.lstsq(inputs.T, weight.T).solution
    scale = torch.linalg.lstsq(deltas.T, bias[:, None]).solution[:, 0]
    if float(scale.min()) <= 0 or float((deltas.T @ scale - bias).norm()) > 1e-2 * float(bias.norm()):
        return None
    return Split(inputs / scale[:, None], deltas * scale[:, None])


def _sparse(space: Tensor, batch: int) -> Tensor | None:
    """As many vectors of the space, not negative and with the most zeros, as there are rows."""
    generator = torch.Generator().manual_seed(0)
    live = space.norm(dim=0) > 1e-6 * float(space.norm(dim=0).max())
    columns = space[:, live].T
    kept: list[tuple[int, Tensor]] = []
    for turn in range(ROUNDS):
        chosen = torch.rand(DRAWS, len(columns), generator=generator).argsort(1)[:, : batch - 1]
        direction = torch.linalg.svd(columns[chosen], full_matrices=True)[2][:, -1]
        values = direction @ columns.T
        values = values * values.sum(1, keepdim=True).sign() / values.abs().amax(1, keepdim=True)
        zeros = (values.abs() < ZERO).sum(1)
        fits = (zeros >= batch - 1 + max(3, FEWEST * len(columns))) & (values.amin(1) > -10 * ZERO)
        for found, count in zip(values[fits], zeros[fits].tolist()):
            refined = torch.linalg.svd(columns[found.abs() < ZERO], full_matrices=True)[2][-1] @ space
            refined = refined * refined.sum().sign() / refined.abs().max()
            if all(float((refined - other).abs().max()) > 10 * ZERO for _, other in kept):
                kept.append((count, refined))
        if len(kept) >= batch and turn >= LEAST:
            break
    return _independent([row for _, row in sorted(kept, key=lambda each: -each[0])], batch)


def _independent(rows: list[Tensor], batch: int) -> Tensor | None:
    """The first rows of which none is a mixture of those before it."""
    chosen: list[Tensor] = []
    for row in rows:
        together = torch.stack([*chosen, row])
        if int(torch.linalg.matrix_rank(together / together.norm(dim=1, keepdim=True), rtol=1e-4)) == len(together):
            chosen.append(row)
        if len(chosen) == batch:
            return torch.stack(chosen)
    return None
