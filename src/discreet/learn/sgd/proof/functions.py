"""Which functions a recorded program may call: torch's own, and nobody else's. And which line of code called them."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from discreet.learn.sgd.proof.intact import found
from discreet.learn.sgd.proof.objects import foreign_class

OURS = (str(Path(torch.__file__).parent), str(Path(__file__).parents[3]))


def line() -> str:
    """The line of code that runs, that is neither torch's nor ours; it can be told if an operation fails."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(OURS):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}"


OWN = {
    "__init__", "forward", "extra_repr", "__repr__", "train", "eval", "__module__", "__doc__", "__dict__", "__weakref__",
    "__annotations__", "state_dict", "load_state_dict", "_load_from_state_dict", "_save_to_state_dict", "get_extra_state",
    "set_extra_state", "reset_parameters", "__setstate__", "__getstate__", "__init_subclass__",
}  # fmt: skip


def answering(module: nn.Module) -> str | None:
    """The name of something that a class of the user's puts between the engine and what a module holds.

    >>> class Kept(nn.Linear):
    ...     weight = property(lambda self: torch.zeros(1))
    >>> answering(nn.Linear(1, 1)), answering(Kept.__new__(Kept))
    (None, 'weight')
    """
    known = {name for kind in type(module).__mro__ if foreign_class(kind) for name in vars(kind)} - OWN
    for kind in type(module).__mro__:
        if not foreign_class(kind):
            for name, it in vars(kind).items():
                if name in known or name == "__getattribute__" or isinstance(it, property):
                    return name
    return None


def of_torch(func: Any) -> bool:
    """Whether a function is torch's own: one in C that torch's modules or tensors have, or one in Python from its files."""
    if type(func) is torch._ops.OpOverload:
        return isinstance(func._op, types.BuiltinFunctionType)
    if isinstance(func, types.BuiltinFunctionType):
        if isinstance(func.__self__, types.ModuleType):
            return func.__self__.__name__.startswith("torch._C")
        return getattr(torch._C._VariableFunctions, func.__name__, None) is func
    if isinstance(func, types.MethodWrapperType):  # the getter or the setter of an attribute
        return getattr(func.__self__, "__objclass__", None) in (torch._C.TensorBase, Tensor)
    if isinstance(func, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return func.__objclass__ in (torch._C.TensorBase, Tensor)
    if isinstance(func, types.FunctionType):
        return str(func.__globals__.get("__name__", "")).partition(".")[0] == "torch" and found(func)
    return False
