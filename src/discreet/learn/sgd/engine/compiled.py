"""Which forward runs inside the engine: the code and not torch.compile's graph, recorded operations, autocast's type.

A compiled graph bypasses the layers' forwards, so per-example gradients cannot be recorded there. While a step is recorded, and
while a model is probed, compiled modules therefore run eagerly, whatever their backend or fullgraph: the results are the same,
at the speed of the uncompiled model. Elsewhere (evaluation, inference) the model stays compiled.

A recorded program (proof/program.py) runs instead of the model's code. Where a layer of the engine calls a module's forward, it
must get the recorded operations of that module too, and not its code.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def eagerly() -> Iterator[None]:
    """A context in which compiled modules run eagerly."""
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
    """The model inside torch.compile's wrapper, whose weights have their original names."""
    return getattr(model, "_orig_mod", model)


def plain_name(name: str) -> str:
    """The name of a weight as it was before a module around it was compiled.

    >>> plain_name("_orig_mod.layers.0._orig_mod.weight")
    'layers.0.weight'
    """
    return name.replace("_orig_mod.", "")


def casted(*tensors: Tensor | None) -> Any:
    """The tensors in autocast's type where it is on, as torch does it for its own layers; else as they are."""
    first = tensors[0]
    assert first is not None
    kind = first.device.type
    if not torch.is_autocast_enabled(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    return tuple(None if t is None else t.to(dtype) if t.is_floating_point() else t for t in tensors)


Forward = Callable[..., Any]
_recorded: dict[nn.Module, Forward] = {}


def forward_of(module: nn.Module) -> Forward:
    """The recorded operations of the call under way, or the module's own forward."""
    return _recorded.get(module) or functools.partial(type(module).forward, module)


def is_recorded(forward: Forward) -> bool:
    return any(forward is active for active in _recorded.values())


@contextmanager
def recorded(module: nn.Module, forward: Forward) -> Iterator[None]:
    """While this is open, these operations are the forward of the module."""
    before = _recorded.get(module)
    _recorded[module] = forward
    try:
        yield
    finally:
        if before is None:
            del _recorded[module]
        else:
            _recorded[module] = before
