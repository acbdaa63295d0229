"""What the code of model and loss keeps in Python: attributes, hooks, closures, defaults, globals that it names.

A trace holds for the code that was traced. Code that goes another way later must have kept something from one call to the
next; what it can keep in the usual places is watched here: nothing there may change while a step is computed, and what is
changed between steps asks for another proof.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import is_
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
FOREIGN = ("torch", "discreet", "builtins")
MAPPINGS = (dict, OrderedDict, defaultdict, Counter)  # no others: what looking at them does is not known
SEQUENCES = (list, set, deque, tuple, frozenset)
MOST = 50_000  # things that are watched
LARGE = (
    1 << 20
)  # numbers of a tensor or an array of which a copy is kept; of larger tensors it is known whether torch wrote them


class Watch:
    """The state at one moment. It holds what it saw, so that nothing new can take the address of something old."""

    def __init__(self, model: nn.Module, code: Iterable[Any]) -> None:
        self._seen: set[int] = set()
        self._dicts: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
        self._lists: list[tuple[Any, list[Any]]] = []
        self._names: list[tuple[dict[str, Any], str, Any]] = []
        self._cells: list[tuple[Any, Any]] = []
        self._arrays: list[tuple[Any, Any]] = []
        self._told: list[tuple[Any, str]] = []
        self.computed: frozenset[str] = frozenset()  # attributes that every call computes anew from parameters
        self.named: set[str] = set()  # all names that the code uses
        self.key: list[Any] = []  # the same for two models whose code does the same with rows of the same shape
        self.opaque: list[Any] = []  # what is in the key by its address
        self._places: dict[int, int] = {}
        self._seen |= {id(t) for t in (*model.parameters(), *model.buffers())}
        self._todo: deque[Any] = deque(code)
        for module in model.modules():
            self._module(module)
        self._todo.extend(_everywhere())
        while self._todo and len(self._seen) < MOST:
            self._visit(self._todo.popleft())
        self.whole = not self._todo

    # ---- looking around ----------------------------------------------------------------------------------------------

    def _token(self, it: Any) -> Any:
        """What the key says of one thing."""
        if isinstance(it, PLAIN):
            return type(it), it
        if isinstance(it, Tensor):
            return "tensor", tuple(it.shape), it.dtype, it.device, it.requires_grad, it.is_contiguous()
        if isinstance(it, types.FunctionType):
            return "code", it.__code__
        if isinstance(it, (*MAPPINGS, *SEQUENCES, nn.Module, types.MethodType, functools.partial, np.ndarray)):
            return type(it), self._places.setdefault(id(it), len(self._places))
        self.opaque.append(it)
        return "at", id(it)

    def _module(self, module: nn.Module) -> None:
        self._seen.add(id(module))
        self.key.append((type(module), self._token(module)))
        self._mapping(vars(module))
        for kind in type(module).__mro__:
            self._class(kind)

    def _class(self, kind: type) -> None:
        if id(kind) in self._seen or _foreign(kind.__module__):
            return
        self._seen.add(id(kind))
        for name, it in vars(kind).items():
            if isinstance(it, (types.FunctionType, staticmethod, classmethod, property, functools.cached_property)):
                self._names.append((_Class(kind), name, it))  # type: ignore[arg-type]
                self._todo.append(it)
            elif not name.startswith("__") and not isinstance(it, type) and not inspect.isroutine(it):
                self._names.append((_Class(kind), name, it))  # type: ignore[arg-type]
                self.key.append(("name", name, self._token(it)))
                self._todo.append(it)

    def _mapping(self, mapping: dict[Any, Any]) -> None:
        self._seen.add(id(mapping))
        self._dicts.append((mapping, dict(mapping.items())))
        self.key.append(("dict", self._token(mapping), *((self._token(name), self._token(it)) for name, it in mapping.items())))
        self._todo.extend(it for it in mapping.values() if not isinstance(it, PLAIN))

    def _visit(self, it: Any) -> None:
        if isinstance(it, PLAIN) or id(it) in self._seen or isinstance(it, types.ModuleType):
            return
        self._seen.add(id(it))
        if isinstance(it, nn.Module):
            self._module(it)
        elif type(it) in MAPPINGS:
            self._mapping(it)
        elif type(it) in SEQUENCES or (isinstance(it, tuple) and type(it).__iter__ is tuple.__iter__):
            self._sequence(it)
        elif isinstance(it, Tensor):
            if type(it) in (Tensor, nn.Parameter) and it.device.type != "meta":
                self._arrays.append((it, it.detach().clone() if it.numel() <= LARGE else it._version))
        elif isinstance(it, np.ndarray):
            self._arrays.append((it, it.copy() if it.size <= LARGE else None))
        elif isinstance(it, type):
            self._class(it)
        else:
            self._callable_or_object(it)

    def _sequence(self, it: Any) -> None:
        if isinstance(it, (list, set, deque)):
            self._lists.append((it, list(it)))
        self.key.append((self._token(it), *map(self._token, it)))
        self._todo.extend(part for part in it if not isinstance(part, PLAIN))

    def _callable_or_object(self, it: Any) -> None:
        if isinstance(it, (staticmethod, classmethod, types.MethodType)):
            self.key.append(("method", self._token(it.__func__), self._token(getattr(it, "__self__", None))))
            self._todo.append(it.__func__)
            self._todo.append(getattr(it, "__self__", None))
        elif isinstance(it, property):
            self._todo.extend((it.fget, it.fset))
        elif isinstance(it, functools.partial):
            self.key.append(
                ("partial", self._token(it.func), *map(self._token, it.args), *map(self._token, it.keywords.values()))
            )
            self._todo.extend((it.func, *it.args, *it.keywords.values()))
        elif isinstance(it, types.FunctionType):
            self._function(it)
        elif isinstance(it, itertools.count):
            self.key.append(repr(it))
            self._told.append((it, repr(it)))
        elif not _foreign(type(it).__module__) and hasattr(it, "__dict__"):
            self._mapping(vars(it))
            self._class(type(it))

    def _function(self, function: types.FunctionType) -> None:
        if _foreign(function.__module__ or ""):
            return
        self._mapping(function.__dict__)
        defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        self.key.append(("function", function.__code__, *map(self._token, defaults)))
        self._todo.extend(function.__defaults__ or ())
        self._todo.extend((function.__kwdefaults__ or {}).values())
        for cell in function.__closure__ or ():
            try:
                kept = cell.cell_contents
            except ValueError:  # not filled yet
                continue
            self._cells.append((cell, kept))
            self.key.append(("cell", self._token(kept)))
            self._todo.append(kept)
        names = _globals(function.__code__)
        self.named |= names
        for name in names:
            if name in function.__globals__ and not isinstance(function.__globals__[name], types.ModuleType):
                self._names.append((function.__globals__, name, function.__globals__[name]))
                self.key.append(("name", name, self._token(function.__globals__[name])))
                self._todo.append(function.__globals__[name])

    # ---- comparing ---------------------------------------------------------------------------------------------------

    def changed(self, deep: bool = True) -> str | None:
        """The name of something that is not what it was; tensors and arrays are compared where `deep`."""
        for mapping, before in self._dicts:
            if (
                len(mapping) != len(before)
                or not all(map(is_, mapping.values(), before.values()))
                or mapping.keys() != before.keys()
            ):
                name = next((name for name in _other(mapping, before) if not self._expected(name, mapping, before)), None)
                if name is not None:
                    return str(name)
        for sequence, kept in self._lists:
            if len(sequence) != len(kept) or not all(map(is_, sequence, kept)):
                return "an element of a list or set"
        for space, name, kept in self._names:
            if not _same(space.get(name), kept):
                return name
        for cell, kept in self._cells:
            if not _same(cell.cell_contents, kept):
                return "a variable that a function keeps"
        for it, said in self._told:
            if repr(it) != said:
                return said
        return next((_named(it) for it, kept in self._arrays if not _equal(it, kept)), None) if deep else None

    def _expected(self, name: Any, mapping: dict[Any, Any], before: dict[Any, Any]) -> bool:
        return name in self.computed and isinstance(mapping.get(name), Tensor) and isinstance(before.get(name), Tensor)

    def replaced(self, harmless: Callable[[Tensor], bool]) -> frozenset[str]:
        """Attributes that hold another tensor than before, of which `harmless` says that it tells nothing."""
        return frozenset(
            name for mapping, before in self._dicts for name in _other(mapping, before)
            if isinstance(name, str) and isinstance(before.get(name), Tensor) and isinstance(mapping.get(name), Tensor)
            and harmless(mapping[name])
        )  # fmt: skip

    def restore(self) -> None:
        """Put everything back, whatever a call left there."""
        for mapping, before in self._dicts:
            if mapping.keys() != before.keys() or not all(map(is_, mapping.values(), before.values())):
                mapping.clear()
                mapping.update(before)
        for sequence, kept in self._lists:
            if len(sequence) != len(kept) or not all(map(is_, sequence, kept)):
                sequence.clear()
                (sequence.update if isinstance(sequence, set) else sequence.extend)(kept)
        for space, name, kept in self._names:
            if space.get(name) is not kept:
                space[name] = kept
        for cell, kept in self._cells:
            if cell.cell_contents is not kept:
                cell.cell_contents = kept
        with torch.no_grad():
            for it, kept in self._arrays:
                if not _equal(it, kept) and not isinstance(kept, int):
                    it.copy_(kept) if isinstance(it, Tensor) else np.copyto(it, kept)


class _Class:
    """The attributes of a class, which are set through the class."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def get(self, name: str) -> Any:
        return vars(self._kind).get(name)

    def __setitem__(self, name: str, it: Any) -> None:
        setattr(self._kind, name, it)


@contextmanager
def put_back(model: nn.Module, code: Iterable[Any]) -> Iterator[Watch]:
    """Whatever is done inside leaves Python's side of the model as it was, and its modes and gradients with it."""
    watch = Watch(model, code)
    gradients = [(p, p.grad) for p in model.parameters()]
    try:
        yield watch
    finally:
        watch.restore()
        for p, gradient in gradients:
            p.grad = gradient


def _everywhere() -> list[Any]:
    """Hooks that torch calls for all modules."""
    from torch.nn.modules import module

    return [it for name, it in vars(module).items() if name.startswith("_global_") and isinstance(it, dict)]


def _globals(code: types.CodeType) -> set[str]:
    inner = [_globals(it) for it in code.co_consts if isinstance(it, types.CodeType)]
    return set(code.co_names).union(*inner)


@functools.lru_cache(maxsize=10_000)
def _foreign(module: str | None) -> bool:
    """Code of installed packages: what they keep for themselves is not looked at."""
    name = (module or "").partition(".")[0]
    if name in FOREIGN or name in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def _same(one: Any, other: Any) -> bool:
    return one is other or (
        isinstance(one, PLAIN) and type(one) is type(other) and (one == other or (one != one and other != other))
    )


def _other(mapping: dict[Any, Any], before: dict[Any, Any]) -> Iterator[Any]:
    for name in [*mapping, *before]:
        if name not in mapping or name not in before or not _same(mapping[name], before[name]):
            yield name


def _equal(it: Any, kept: Any) -> bool:
    if kept is None or isinstance(kept, int):
        return kept is None or kept == it._version
    if isinstance(it, Tensor):
        same = it.shape == kept.shape and it.dtype == kept.dtype
        return same and bool(
            torch.equal(it.detach().contiguous().view(-1).view(torch.uint8), kept.contiguous().view(-1).view(torch.uint8))
        )
    return it.shape == kept.shape and it.tobytes() == kept.tobytes()


def _named(it: Any) -> str:
    return f"a {type(it).__name__} of shape {tuple(it.shape)}"
