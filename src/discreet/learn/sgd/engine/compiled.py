"""Compiled models (torch.compile, module.compile()).

A compiled graph computes what the plain layers do: it has no place where an example's share of a gradient could be kept. So
while a step is recorded, and while a model is probed, compiled modules run uncompiled, whatever backend or fullgraph they
were given: the results are the same, the speed is that of the uncompiled model. Outside of that (evaluation, inference) the
model is as compiled as it was.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def eagerly() -> Iterator[None]:
    """While this is open, compiled modules run as they were written."""
    if "torch._dynamo" not in sys.modules:  # nothing was ever compiled; loading it takes seconds
        yield
        return
    stance = torch.compiler.set_stance("force_eager")
    try:
        yield
    finally:
        if not sys.is_finalizing():  # a loop that was left open ends with the interpreter
            stance.__exit__(None, None, None)


def as_written(model: nn.Module) -> nn.Module:
    """The model inside what torch.compile gave, whose weights have the names that everybody knows."""
    return getattr(model, "_orig_mod", model)


def plain_name(name: str) -> str:
    """The name of a weight as it was before a module around it was compiled.

    >>> plain_name("_orig_mod.layers.0._orig_mod.weight")
    'layers.0.weight'
    """
    return name.replace("_orig_mod.", "")
