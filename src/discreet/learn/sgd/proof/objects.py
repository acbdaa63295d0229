"""The parts of an object (attributes, slots, elements), or the fact that it is opaque.

A Python object is the memory of the built-in type that it derives from, its slots and its __dict__. Where its size equals that
of these parts and the built-in type's content can be read, the whole object can be. Everything else (generators, locks, files,
types of extension modules) is opaque.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import re
import sys
import sysconfig
import types
from collections import OrderedDict, defaultdict, deque
from pathlib import Path
from typing import Any

import numpy as np
import torch

IMMUTABLE = {
    int, float, complex, bool, str, bytes, type(None), type(Ellipsis), type(NotImplemented), range, re.Pattern, torch.dtype,
    torch.device, torch.Size, torch.layout, torch.memory_format, torch.finfo, torch.iinfo, np.ufunc, decimal.Decimal,
    datetime.date, datetime.timedelta, datetime.timezone, types.CodeType, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
}  # fmt: skip
BY_TEXT = {decimal.Decimal, range, datetime.date, datetime.datetime, datetime.timedelta, torch.device, torch.Size}
MAPPINGS = (OrderedDict, dict)
SEQUENCES = (list, set, deque, tuple, frozenset)
READABLE = {
    object, int, float, complex, str, bytes, bytearray, dict, OrderedDict, defaultdict, *SEQUENCES, np.ndarray,
    torch._C.TensorBase, torch.Size,
}  # fmt: skip
PLACES = tuple(
    f"{place}/" for place in {
        sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), str(Path(torch.__file__).parent),
        str(Path(__file__).parents[3]),
    }
)  # fmt: skip
MACHINERY = ("torch._ops", "torch.distributed", "torch._dynamo", "torch._inductor", "torch._functorch", "discreet")
DRIVERS = (("lightning.pytorch", "Trainer"), ("pytorch_lightning", "Trainer"), ("lightning.fabric", "Fabric"))
IMMUTABLE_TYPE = 1 << 8
WORD = 8
MANAGED_DICT = 1 << 4  # flags of a type whose __dict__ lies in front of the object


def plain(obj: Any) -> bool:
    """Whether it can never change."""
    kind = type(obj)
    if kind in IMMUTABLE:
        return True
    if isinstance(obj, np.dtype):
        return obj.metadata is None and obj.fields is None and obj.subdtype is None
    if kind is datetime.datetime or kind is datetime.time:
        return obj.tzinfo is None or type(obj.tzinfo) is datetime.timezone
    return issubclass(kind, np.generic) and not issubclass(kind, (np.void, np.object_)) and kind.__module__ == "numpy"


def of_place(file: str) -> bool:
    """Whether a file is torch's, ours, the standard library's or an installed package's."""
    return file.startswith(PLACES) or "/site-packages/" in file or "/dist-packages/" in file or file.startswith("<frozen")


_homes: dict[tuple[str, int], bool] = {}


def foreign(module: str | None) -> bool:
    """Whether a module belongs to an installed package, by its file; the state of such packages is not examined."""
    name = module if isinstance(module, str) else ""
    own = sys.modules.get(name)
    key = (name, id(own))
    if key not in _homes:
        if len(_homes) > 20_000:
            _homes.clear()
        _homes[key] = _foreign(name, own)
    return _homes[key]


def _foreign(name: str, own: Any) -> bool:
    if own is torch.ops or own is torch.classes:  # whose file is no path
        return True
    file = getattr(own, "__file__", None) or getattr(getattr(own, "__spec__", None), "origin", None)
    if isinstance(file, str):
        return of_place(file.replace("\\", "/")) or file in ("built-in", "frozen")
    paths = list(getattr(own, "__path__", None) or ())
    if paths:
        return all(of_place(f"{path}/") for path in paths)
    top = name.partition(".")[0]
    return top != name and foreign(top)  # parts of extensions have no file of their own


def foreign_function(function: types.FunctionType) -> bool:
    """Whether a function belongs to an installed package, by its globals and code, since anybody can set __module__."""
    space, file = function.__globals__, function.__code__.co_filename.replace("\\", "/")
    name = space.get("__name__")
    home = sys.modules.get(name) if isinstance(name, str) else None
    return home is not None and vars(home) is space and foreign(name) and (file.startswith("<") or of_place(file))


def foreign_class(kind: Any) -> bool:
    """Whether a class belongs to an installed package: it is found there, or all its functions come from there."""
    return _foreign_class(kind)


@functools.lru_cache(maxsize=10_000)
def _foreign_class(kind: type) -> bool:
    if kind.__flags__ & IMMUTABLE_TYPE or type(kind).__module__ == "pybind11_builtins":
        return True
    module = vars(kind).get("__module__")
    if not isinstance(module, str) or not foreign(module):
        return False
    at: Any = sys.modules.get(module)
    for part in kind.__qualname__.split("."):
        at = getattr(at, part, None)
    functions = [member for member in vars(kind).values() if isinstance(member, types.FunctionType)]
    return at is kind or (bool(functions) and all(map(foreign_function, functions)))


def machinery(kind: type) -> bool:
    """Types whose objects hang on models (hooks, shards, compiled code, a trainer) and change as they please."""
    name = kind.__module__ if isinstance(kind.__module__, str) else ""
    if any(name == own or name.startswith(f"{own}.") for own in MACHINERY) and foreign_class(kind):
        return not issubclass(kind, (dict, list, set))
    drivers = [getattr(sys.modules.get(module), driver, None) for module, driver in DRIVERS]
    return kind in [driver for driver in drivers if driver is not None]


def machinery_function(function: types.FunctionType) -> bool:
    name = str(function.__globals__.get("__name__", ""))
    return any(name == own or name.startswith(f"{own}.") for own in MACHINERY) and foreign_function(function)


def of_package(obj: Any) -> bool:
    """Whether it is a variable of an installed package under its own name, such as a compiled function."""
    module, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str) or not foreign(module):
        return False
    return vars(sys.modules.get(module, types)).get(name) is obj


def base_of(kind: type) -> type:
    """The built-in type whose memory an object begins with."""
    return next(base for base in kind.__mro__ if base in READABLE)


@functools.lru_cache(maxsize=10_000)
def slots_of(kind: Any) -> tuple[Any, ...]:
    """The descriptors of all slots of classes written in Python."""
    own = [part for part in kind.__mro__[: kind.__mro__.index(base_of(kind))] if "__slots__" in vars(part)]
    return tuple(member for part in own for member in vars(part).values() if isinstance(member, types.MemberDescriptorType))


@functools.lru_cache(maxsize=10_000)
def transparent(kind: Any) -> bool:
    """Whether an object of this type is its base, its slots and its __dict__, and nothing else.

    >>> transparent(types.SimpleNamespace), transparent(torch.Generator)
    (True, False)
    """
    base = base_of(kind)
    parts = len(slots_of(kind))
    parts += kind.__dictoffset__ != 0 and base.__dictoffset__ == 0 and not kind.__flags__ & MANAGED_DICT
    parts += kind.__weakrefoffset__ > 0 and base.__weakrefoffset__ == 0
    return kind.__basicsize__ == base.__basicsize__ + WORD * parts and kind.__itemsize__ == base.__itemsize__
