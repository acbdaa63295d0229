"""What a module computes when the engine runs its own forward: what was recorded of it in a trace, if there is a record.

A recorded program (proof/program.py) runs in the place of the model's code. Where a layer of the engine calls the forward of a
module, it must get the recorded operations of that module as well, and not its code.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

Forward = Callable[..., Any]
_recorded: dict[nn.Module, Forward] = {}


def forward_of(module: nn.Module) -> Forward:
    """The recorded operations of the call under way, or the module's own forward."""
    return _recorded.get(module) or functools.partial(type(module).forward, module)


def is_recorded(forward: Forward) -> bool:
    return any(forward is it for it in _recorded.values())


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
