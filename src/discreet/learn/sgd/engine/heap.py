"""Memory that a step frees and the next one needs again.

glibc takes large blocks from the system and gives them back when they are freed, and so it does with the end of its heap; the
next step asks for all of it anew, page by page: a fifth of the time of a small network's step, or nothing, by chance. As large
counts what is larger than the largest block ever freed, and twice that is left at the end. So one block, never written to and
freed, lets it keep what steps need. Other systems have other habits, and lose nothing by it.

Only for convolutions, whose activations come and go by the megabyte: elsewhere it saves no time, and what is kept may lie in
pieces that no longer fit. What trying the model and the first steps leave behind lies in such pieces too, and is given back.
"""

from __future__ import annotations

import ctypes
import sys

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

LARGE = 8 << 20  # bytes; with more, steps take half as much memory again


def keep_what_is_freed(model: nn.Module) -> None:
    if any(isinstance(module, _ConvNd) for module in model.modules()):
        torch.empty(LARGE, dtype=torch.uint8)


def give_back() -> None:
    """What was freed goes back to the system, as far as this system's C library can do that."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
