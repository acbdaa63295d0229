"""Checks that torch and the engine are as installed: the code of every function is that of the file it names.

On the fast path functions of torch and layers of the engine receive the rows of all examples. So would a foreign function that
was put into one of their modules or classes, so there is no proof then. A recorded program may call torch's own functions only;
which they are is decided here too.
"""

from __future__ import annotations

import _imp
import functools
import operator
import re
import sys
import types
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from discreet.learn.sgd.proof.code import inner
from discreet.learn.sgd.proof.contents import inside
from discreet.learn.sgd.proof.objects import foreign, foreign_class, of_place

CHECKED = (
    "torch",
    "discreet.learn.sgd.engine",
    "discreet.learn.sgd.proof",
    "discreet.learn.layers",
)  # compared with their files
HOMES = (f"{Path(torch.__file__).parent}/", f"{Path(__file__).parents[3]}/")
COMPILED = re.compile(r"__(compiled_fn|resume_at)_\d")  # put into modules by torch.compile; no file of torch has such names
COMPILER = ("torch._inductor",)  # its functions are generated from text, and run in no step
BESIDE = {*sys.stdlib_module_names, "numpy"}  # checked only for functions of the user's
GENERATED = {
    "__init__", "__new__", "__repr__", "__eq__", "__hash__", "__lt__", "__le__", "__gt__", "__ge__", "__setattr__",
    "__delattr__",
}  # fmt: skip
BOOTSTRAP = {"importlib._bootstrap": "_frozen_importlib", "importlib._bootstrap_external": "_frozen_importlib_external"}


class Scan:
    """A scan of all functions of these packages, remembered so that the next scan takes some milliseconds."""

    def __init__(self) -> None:
        self._spaces: dict[int, tuple[str, Any, bool, list[Any]]] = {}  # modules and classes, with what is in them
        self.functions: dict[int, types.FunctionType] = {}
        self._codes: list[types.CodeType] = []
        self._cells: list[types.CellType] = []
        self._kept: list[Any] = []  # in these cells
        self._seen: set[tuple[int, bool]] = set()
        self._modules: dict[int, Any] = {}
        self._under_way: set[int] = set()

    def strange(self) -> str | None:
        """The name of something foreign among what was not scanned before; None if there is nothing."""
        for name, space, generated, before in list(self._spaces.values()):
            same = len(space) == len(before) and all(map(operator.is_, space.values(), before))
            if not same and (other := self._space(name, space, True, generated)) is not None:
                return other
        for name, module in list(sys.modules.items()):
            own = _within(name, CHECKED)
            if not (own or name.partition(".")[0] in BESIDE) or id(module) in self._modules or _within(name, COMPILER):
                continue
            if isinstance(module, types.ModuleType) and foreign(name):
                exact = own and not _rewritten(module)
                if (other := self._space(name, vars(module), exact, False)) is not None:
                    return other
            self._modules[id(module)] = module
        return None

    def holds(self) -> bool:
        """Whether all scanned functions still have the same code and variables."""
        codes = map(operator.is_, map(_CODE, self.functions.values()), self._codes)
        return all(codes) and all(map(operator.is_, map(inside, self._cells), self._kept))

    def _space(self, place: str, space: Any, exact: bool, generated: bool) -> str | None:
        """The name of something in a module or class that is not of these packages."""
        contents = list(space.values())
        for name, obj in list(space.items()):
            if COMPILED.match(name):
                continue
            if not issubclass(type(obj), type):
                if not all(self._function(function, exact, generated and name in GENERATED) for function in _functions(obj)):
                    return f"{place}.{name}"
            elif (id(obj), exact) not in self._seen:
                self._seen.add((id(obj), exact))
                has_generated = "__dataclass_fields__" in vars(obj) or "_fields" in vars(
                    obj
                )  # functions are generated from text
                if (other := self._space(f"{place}.{name}", vars(obj), exact, has_generated)) is not None:
                    self._seen.discard((id(obj), exact))
                    return other
        if exact:
            self._spaces[id(space)] = (place, space, generated, contents)
        return None

    def _function(self, function: types.FunctionType, exact: bool, generated: bool) -> bool:
        """Whether a function, and those in its closure and defaults, belong to these packages."""
        if id(function) in self.functions or id(function) in self._under_way:
            return True
        code = function.__code__
        if not (generated and code.co_filename == "<string>") and not _own(code, exact):
            return False
        if not exact:
            return True
        cells = function.__closure__ or ()
        captured = (*map(inside, cells), *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        self._under_way.add(id(function))
        good = all(self._function(nested, exact, generated) for obj in captured for nested in _functions(obj))
        self._under_way.discard(id(function))
        if good:
            self.functions[id(function)] = function
            self._codes.append(code)
            self._cells.extend(cells)
            self._kept.extend(map(inside, cells))
        return good


def _within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _rewritten(module: types.ModuleType) -> bool:
    """Whether pytest has compiled a module with assertions of its own, as it does for its plugins: ours is one."""
    hook = getattr(sys.modules.get("_pytest.assertion.rewrite"), "AssertionRewritingHook", None)
    return hook is not None and type(getattr(module.__spec__, "loader", None)) is hook


_CODE = operator.attrgetter("__code__")
_last: list[Scan] = []


def replaced() -> str | None:
    """The name of a function in torch, discreet, numpy or the standard library that is not theirs; None where there is none.

    >>> replaced() is None
    True
    """
    if not (_last and _last[0].holds()):
        _last[:] = [Scan()]
    return _last[0].strange()


def found(function: types.FunctionType) -> bool:
    """Whether a function is a variable of torch or discreet, or of one of their classes, as it was installed."""
    if not _last:
        replaced()
    return _last[0].functions.get(id(function)) is function


def _functions(obj: Any) -> Iterator[types.FunctionType]:
    """The Python functions of an object: itself, or those in a method, a property or a partial, or its __call__."""
    kind = type(obj)
    if kind is types.FunctionType:
        yield obj
    elif kind in (staticmethod, classmethod, types.MethodType):
        yield from _functions(obj.__func__)
    elif kind is property:
        for part in (obj.fget, obj.fset, obj.fdel):
            yield from _functions(part)
    elif kind is functools.partial:
        yield from _functions(obj.func)
    elif type(call := getattr(kind, "__call__", None)) is types.FunctionType:  # noqa: B004
        yield call


def _own(code: types.CodeType, exact: bool) -> bool:
    file = code.co_filename
    if file.startswith("<frozen "):
        return not exact or code in _frozen(file[8:-1])
    if exact and file.startswith(("<", *HOMES)):
        return code in _file(file)
    return _place(file)


@functools.lru_cache(maxsize=100_000)
def _place(file: str) -> bool:
    return file.startswith("<") or of_place(file.replace("\\", "/"))


@functools.lru_cache(maxsize=10_000)
def _file(file: str) -> frozenset[types.CodeType]:
    """All code of a file, as an import of it would give."""
    try:
        code = SourceFileLoader("", file).get_code("")
    except (OSError, ImportError, ValueError, SyntaxError):
        return frozenset()
    return frozenset(inner(code)) if isinstance(code, types.CodeType) else frozenset()


@functools.lru_cache(maxsize=100)
def _frozen(name: str) -> frozenset[types.CodeType]:
    name = BOOTSTRAP.get(name, name)
    return frozenset(inner(_imp.get_frozen_object(name))) if _imp.is_frozen(name) else frozenset()


OURS = (str(Path(torch.__file__).parent), str(Path(__file__).parents[3]))


def line() -> str:
    """The running line of code that is neither torch's nor ours, for the message if an operation fails."""
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
    """The name of an attribute by which a user's class intercepts the engine's access to a module's contents.

    >>> class Kept(nn.Linear):
    ...     weight = property(lambda self: torch.zeros(1))
    >>> answering(nn.Linear(1, 1)), answering(Kept.__new__(Kept))
    (None, 'weight')
    """
    known = {name for kind in type(module).__mro__ if foreign_class(kind) for name in vars(kind)} - OWN
    for kind in type(module).__mro__:
        if not foreign_class(kind):
            for name, attribute in vars(kind).items():
                if name in known or name == "__getattribute__" or isinstance(attribute, property):
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
