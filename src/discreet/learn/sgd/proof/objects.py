"""What an object consists of: its attributes, slots, elements; or that it holds something that cannot be looked into.

An object of Python is the memory of a built-in type that it is derived from, its slots and its __dict__. Where its size is
that of these parts and the built-in type is one whose content can be read, all of it can be. Everything else (generators,
locks, files, types of extension modules) is opaque, whatever its name.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import functools
import re
import sys
import types
import typing
from collections import OrderedDict, defaultdict, deque
from typing import Any

import numpy as np
import torch

IMMUTABLE = {
    int, float, complex, bool, str, bytes, type(None), type(Ellipsis), type(NotImplemented), range, re.Pattern, torch.dtype,
    torch.device, torch.Size, torch.layout, torch.memory_format, torch.finfo, torch.iinfo, np.dtype, np.ufunc, decimal.Decimal,
    fractions.Fraction, datetime.date, datetime.datetime, datetime.timedelta, types.CodeType, types.GenericAlias,
    types.UnionType, typing.TypeVar, types.GetSetDescriptorType, types.MemberDescriptorType, types.MethodDescriptorType,
    types.WrapperDescriptorType, types.ClassMethodDescriptorType,
}  # fmt: skip
MAPPINGS = (OrderedDict, dict)
SEQUENCES = (list, set, deque, tuple, frozenset)
READABLE = {
    object, int, float, complex, str, bytes, bytearray, dict, OrderedDict, defaultdict, *SEQUENCES, np.ndarray,
    torch._C.TensorBase, torch.Size,
}  # fmt: skip
FOREIGN = ("torch", "discreet", "builtins")
MACHINERY = (
    "lightning",
    "pytorch_lightning",
    "lightning_fabric",
    "torch._ops",
    "torch.distributed",
    "torch._dynamo",
    "torch._inductor",
    "torch._functorch",
    "discreet",
)
WORD = 8
MANAGED_DICT = 1 << 4  # flags of a type whose __dict__ lies in front of the object


def plain(it: Any) -> bool:
    """Whether it can never change."""
    kind = type(it)
    return kind in IMMUTABLE or (issubclass(kind, (np.generic, np.dtype)) and not issubclass(kind, np.void))


@functools.lru_cache(maxsize=10_000)
def foreign(module: str | None) -> bool:
    """Code of installed packages: what they keep for themselves is not looked at."""
    name = (module or "").partition(".")[0]
    if name in FOREIGN or name in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def machinery(module: str | None) -> bool:
    """Packages whose objects hang on models (hooks, shards, compiled code) and change as they please."""
    return any(module == name or (module or "").startswith(f"{name}.") for name in MACHINERY)


def of_package(it: Any) -> bool:
    """Whether it is a variable of an installed package under its own name, such as a compiled function."""
    module, name = getattr(it, "__module__", None), getattr(it, "__qualname__", None) or getattr(it, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str) or not foreign(module):
        return False
    return vars(sys.modules.get(module, types)).get(name) is it


def base_of(kind: type) -> type:
    """The built-in type whose memory an object begins with."""
    return next(base for base in kind.__mro__ if base in READABLE)


@functools.lru_cache(maxsize=10_000)
def slots_of(kind: type) -> tuple[Any, ...]:
    """The descriptors of all slots of classes written in Python."""
    own = [part for part in kind.__mro__[: kind.__mro__.index(base_of(kind))] if "__slots__" in vars(part)]
    return tuple(it for part in own for it in vars(part).values() if isinstance(it, types.MemberDescriptorType))


@functools.lru_cache(maxsize=10_000)
def transparent(kind: type) -> bool:
    """Whether an object of this type is its base, its slots and its __dict__, and nothing else.

    >>> transparent(types.SimpleNamespace), transparent(torch.Generator)
    (True, False)
    """
    base = base_of(kind)
    parts = len(slots_of(kind))
    parts += kind.__dictoffset__ != 0 and base.__dictoffset__ == 0 and not kind.__flags__ & MANAGED_DICT
    parts += kind.__weakrefoffset__ > 0 and base.__weakrefoffset__ == 0
    return kind.__basicsize__ == base.__basicsize__ + WORD * parts and kind.__itemsize__ == base.__itemsize__
