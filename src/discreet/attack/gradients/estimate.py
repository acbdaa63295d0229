"""What an update and a model show of the case itself: how many rows there were, whether a device and statistics are there."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from discreet.attack.gradients.network import first_linear
from discreet.attack.gradients.update import Update
from discreet.errors import InvalidValue

COARSE = 1e-4
NORMALISED = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def rows(model: nn.Module, update: Update, shape: Sequence[int]) -> int | None:
    """The rank of the gradient of the layer that sees the rows: as many as there were, unless it is full or rows depend.

    In half precision rows that are much alike count as one, so nothing is said.
    """
    first = first_linear(model, shape)
    if first is None or update.rounding > COARSE:
        return None
    gradient = update.values[f"{first[0]}.weight" if first[0] else "weight"]
    singular = torch.linalg.svdvals(gradient)
    rank = int((singular > max(20.0 * update.rounding, 1e-12) * singular[0]).sum())
    return rank if rank < min(gradient.shape) // 2 else None


def device(name: str) -> None:
    """Is this device there?"""
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise InvalidValue(f'device={name!r} was asked, but PyTorch sees no CUDA device here; use device="cpu".')


def normalised(model: nn.Module) -> tuple[str, ...]:
    """A warning where batch normalisation has no statistics of its own."""
    for name, module in model.named_modules():
        if isinstance(module, NORMALISED) and not module.training and int(module.num_batches_tracked or 0) == 0:
            return (
                f"{name} has seen no batch, so its statistics are those of a fresh layer. If the client trained in training "
                "mode, call model.train(); otherwise load the buffers too.",
            )
    return ()
