"""Autocast inside our own layers, as torch does it for its own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def casted(*tensors: Tensor | None) -> Any:
    """The tensors in autocast's type where it is on, else as they are."""
    first = tensors[0]
    assert first is not None
    kind = first.device.type
    if not torch.is_autocast_enabled(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    return tuple(None if t is None else t.to(dtype) if t.is_floating_point() else t for t in tensors)
