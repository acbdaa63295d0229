"""Compiled models (torch.compile, module.compile()).

A compiled graph computes what the plain layers do: it has no place where an example's share of a gradient could be kept. So
while a step is recorded, and while a model is probed, compiled modules run uncompiled, whatever backend or fullgraph they
were given: the results are the same, the speed is that of the uncompiled model. Outside of that (evaluation, inference) the
model is as compiled as it was.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext

import torch


def eagerly() -> AbstractContextManager[object]:
    """While this is open, compiled modules run as they were written."""
    if "torch._dynamo" not in sys.modules:  # nothing was ever compiled; loading it takes seconds
        return nullcontext()
    return torch.compiler.set_stance("force_eager")
