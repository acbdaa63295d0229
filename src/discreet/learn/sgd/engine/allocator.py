"""Settings of the C library's allocator: memory that a step frees is kept for the next one.

By default glibc returns large freed blocks, and the end of its heap, to the system, and the next step gets them again page by
page. That can cost a fifth of the time of a small network's step. glibc raises its threshold for "large" to the largest block
that was ever freed, and keeps twice that at the end of the heap. So allocating and freeing one large block, without writing to
it, makes it keep what steps need. Other C libraries are not affected.

This is done for convolutions only, whose activations take megabytes: elsewhere it saves no time, and fragments that no longer
fit would be kept. Fragments from the probe and from the first steps are returned once (`malloc_trim`).
"""

from __future__ import annotations

import ctypes
import sys

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

LARGE = 8 << 20  # bytes; larger ones raise the memory of a run by half


def keep_freed_memory(model: nn.Module) -> None:
    if any(isinstance(module, _ConvNd) for module in model.modules()):
        torch.empty(LARGE, dtype=torch.uint8)


def trim_memory() -> None:
    """Return freed memory to the system, where the C library can do that."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
