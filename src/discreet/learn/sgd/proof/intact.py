"""Whether torch and discreet are as they were installed: the code of every function is that of the file it names.

On the fast path functions of torch and layers of the engine are given the rows of all examples. A function that somebody put
into one of their modules or classes would be given them too, so with one of these there is no proof.
"""

from __future__ import annotations

import _imp
import functools
import operator
import sys
import types
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import torch

import discreet
from discreet.learn.sgd.proof.code import inner
from discreet.learn.sgd.proof.objects import foreign, of_place

CHECKED = {"torch", "discreet"}  # whose code is compared with its files; of others only where it comes from
HOMES = (f"{Path(torch.__file__).parent}/", f"{Path(discreet.__file__).parent}/")
COMPILER = "torch._inductor"  # whose functions are made from text, and run in no step
BESIDE = {*sys.stdlib_module_names, "numpy"}
GENERATED = {"__init__", "__new__", "__repr__", "__eq__", "__hash__", "__lt__", "__le__", "__gt__", "__ge__", "__setattr__", "__delattr__"}


class Scan:
    """A look at all functions of these packages, and what was there, to see quickly that it still is."""

    def __init__(self) -> None:
        self._spaces: list[tuple[Any, list[Any]]] = []
        self._functions: list[types.FunctionType] = []
        self._codes: list[types.CodeType] = []
        self._seen: set[tuple[int, bool]] = set()
        self.strange = self._modules()

    def holds(self) -> bool:
        """Whether nothing was replaced or added since."""
        return all(map(operator.is_, map(_CODE, self._functions), self._codes)) and all(
            len(space) == len(kept) and all(map(operator.is_, space.values(), kept)) for space, kept in self._spaces
        )

    def _modules(self) -> str | None:
        for name, module in list(sys.modules.items()):
            top = name.partition(".")[0]
            if not isinstance(module, types.ModuleType) or name.startswith(COMPILER):
                continue
            if (top in CHECKED or top in BESIDE) and foreign(name):
                strange = self._space(vars(module), top in CHECKED and not _rewritten(module), False)
                if strange is not None:
                    return f"{name}.{strange}"
        return None

    def _space(self, space: Any, exact: bool, generated: bool) -> str | None:
        """The name of something in a module or class that is not of these packages."""
        if exact:
            self._spaces.append((space, list(space.values())))
        for name, it in list(space.items()):
            if issubclass(type(it), type):
                if (id(it), exact) not in self._seen:
                    self._seen.add((id(it), exact))
                    made = "__dataclass_fields__" in vars(it) or "_fields" in vars(it)  # functions are generated from text
                    inside = self._space(vars(it), exact, made)
                    if inside is not None:
                        return f"{name}.{inside}"
                continue
            for function in _functions(it):
                code = function.__code__
                if not (generated and name in GENERATED and code.co_filename == "<string>") and not _own(code, exact):
                    return str(name)
                if exact:
                    self._functions.append(function)
                    self._codes.append(code)
        return None


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
    return _last[0].strange


def _functions(it: Any) -> Iterator[types.FunctionType]:
    """A function, what is wrapped in a method, a property or a partial, or how an object is called."""
    kind = type(it)
    if kind is types.FunctionType:
        yield it
    elif kind in (staticmethod, classmethod, types.MethodType):
        yield from _functions(it.__func__)
    elif kind is property:
        for part in (it.fget, it.fset, it.fdel):
            yield from _functions(part)
    elif kind is functools.partial:
        yield from _functions(it.func)
    elif type(call := getattr(kind, "__call__", None)) is types.FunctionType:
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
    name = {"importlib._bootstrap": "_frozen_importlib", "importlib._bootstrap_external": "_frozen_importlib_external"}.get(name, name)
    return frozenset(inner(_imp.get_frozen_object(name))) if _imp.is_frozen(name) else frozenset()
