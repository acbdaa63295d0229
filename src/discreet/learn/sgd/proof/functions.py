"""Which functions a recorded program may call: torch's own, and nobody else's. And which line of code called them."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from discreet.learn.sgd.proof.intact import found

OURS = (str(Path(torch.__file__).parent), str(Path(__file__).parents[3]))


def line() -> str:
    """The line of code that runs, that is neither torch's nor ours; it can be told if an operation fails."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(OURS):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}"


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
