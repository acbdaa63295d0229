"""Walks all objects reachable from a model and its loss: everything in which their code can keep state."""

from __future__ import annotations

import datetime
import functools
import itertools
import logging
import sys
import threading
import types
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._library.custom_ops import CustomOpDef

from discreet.learn.sgd.proof import code as bytecode
from discreet.learn.sgd.proof import operations
from discreet.learn.sgd.proof.contents import (
    ABSENT,
    DRAWING,
    Content,
    about_function,
    bytes_of,
    constant,
    described,
    digest,
    registered,
    slot_of,
)
from discreet.learn.sgd.proof.objects import (
    MAPPINGS,
    SEQUENCES,
    base_of,
    foreign,
    foreign_class,
    foreign_function,
    machinery,
    machinery_function,
    of_package,
    plain,
    slots_of,
    transparent,
)
from discreet.learn.sgd.proof.process import everywhere, of_user, own_file, runs

MOST = 50_000  # things that are watched
EMPTY = {dict, OrderedDict, defaultdict, Counter}  # of which it is known what their truth value is
LOGGER = frozenset(vars(logging.Logger("")))
HANDLER = frozenset(vars(logging.StreamHandler()))
UNWATCHED = {"_abc_impl", "__dict__", "__weakref__", "__annotations_cache__"}  # of a class


class Look:
    """The state at one moment. It holds references to what it saw, so that no address is reused."""

    def __init__(self, model: nn.Module, code: Iterable[Any], copies: bool = True) -> None:
        self._seen: set[int] = set()
        self._empty: list[dict[Any, Any]] = []
        self._dicts: list[tuple[dict[Any, Any], dict[Any, Any], Any]] = []
        self._lists: list[tuple[Any, list[Any], Any]] = []
        self._kinds: set[type] = set()
        self._classes: list[tuple[type, dict[str, Any], tuple[Any, ...]]] = []
        self._registered: list[tuple[type, set[type]]] = []
        self._derived: list[tuple[type, set[int]]] = []
        self._threads = frozenset(threading.enumerate())
        self._objects: tuple[list[Any], list[type]] = ([], [])
        self._names: list[tuple[dict[str, Any], str, Any]] = []
        self._absent: dict[int, tuple[dict[str, Any], set[str]]] = {}
        self._slots: list[tuple[Any, Any, Any]] = []
        self._functions: list[tuple[types.FunctionType, tuple[Any, ...]]] = []
        self._cells: list[tuple[Any, Any]] = []
        self._arrays: list[tuple[Any, Content]] = []
        self._tensors: list[tuple[Tensor, Any, Any]] = []  # parameters and leaves: their form, and the hooks they have
        self._gradients: list[tuple[Tensor, Any]] = []
        self._told: list[tuple[Any, str]] = []
        self._caches: list[Any] = []
        self._draws: list[Any] = []
        self._modules: list[types.ModuleType] = []
        self._imports: set[str] = set()
        self._copies = copies
        self.computed: frozenset[tuple[int, str]] = frozenset()  # attributes that every call computes anew from parameters
        self.named: set[str] = set()  # all names that the code uses
        self.key: list[Any] = []  # the same for two models whose code does the same with rows of the same shape
        self.held: list[Any] = []  # what is in the key by its address
        self.hidden = ""  # something that cannot be looked into and might keep anything
        self.unproven = ""  # something that can be put back but not compared
        self.serial = ""  # why several units may not be computed in one call, under vmap either
        self._by_text = False  # whether code is made from text, or modules are reached by one
        self._places: dict[int, int] = {}
        self._todo: deque[Any] = deque(code)
        self._look(model)

    def _look(self, model: nn.Module) -> None:
        state = (*model.parameters(), *model.buffers())
        self._seen |= {id(t) for t in state}
        for tensor in state:
            if not machinery(type(tensor)):  # shards have their parts as attributes
                self._of_state(tensor)
        for module in model.modules():
            self._visit(module)
        self._todo.extend(everywhere())
        while len(self._seen) < MOST:
            while self._todo and len(self._seen) < MOST:
                self._visit(self._todo.popleft())
            if self._todo or not self._in_modules():
                break
        kernels, unseen = operations.reached(self.named)
        self.hidden = self.hidden or unseen
        if kernels or unseen:
            self.serial = self.serial or "an operation with a kernel of its own"
        if unchecked := sorted(self.named & operations.UNCHECKED):
            self.hidden = self.hidden or f"{unchecked[0]}, which does not look at its indices"
        if beneath := sorted(self.named & bytecode.BENEATH):
            self.hidden = self.hidden or f"{beneath[0]}, by which the run can be found"

    def _of_state(self, tensor: Tensor) -> None:
        """A parameter or a buffer: its numbers are compared elsewhere, since training changes them."""
        if type(tensor) not in (Tensor, nn.Parameter):
            self.serial = self.unproven = f"a parameter or buffer with code of its own ({type(tensor).__name__})"
            self._class(type(tensor))
        self._attributes(tensor)
        self._leaf(tensor)

    def _leaf(self, tensor: Tensor) -> None:
        hooks = tensor._backward_hooks
        more = getattr(tensor, "_post_accumulate_grad_hooks", None)
        self._tensors.append((tensor, _flags(tensor), (dict(hooks or {}), dict(more or {}))))
        self.key.append(("hooks", tensor.requires_grad, *map(self._token, [*(hooks or {}).values(), *(more or {}).values()])))
        self._todo.extend((*(hooks or {}).values(), *(more or {}).values()))
        if tensor.is_leaf:
            self._gradients.append((tensor, tensor.grad))
            self._todo.append(tensor.grad)

    def _token(self, obj: Any) -> Any:
        """The part of the key for one object."""
        if plain(obj):
            text = constant(obj)
            return type(obj), obj if text is None else text
        if isinstance(obj, (Tensor, np.ndarray)):
            return type(obj), getattr(obj, "layout", None), described(obj), self._place(obj)
        if isinstance(obj, types.FunctionType):
            return "code", obj.__code__, self._place(obj)
        if isinstance(obj, (*MAPPINGS, *SEQUENCES, nn.Module, types.MethodType, functools.partial)):
            return type(obj), self._place(obj)
        self.held.append(obj)
        return "at", id(obj)

    def _place(self, obj: Any) -> int:
        return self._places.setdefault(id(obj), len(self._places))

    # ---- one thing ---------------------------------------------------------------------------------------------------

    def _visit(self, obj: Any) -> None:
        if type(obj) in weakref.ProxyTypes:  # what it stands for is looked at instead
            try:
                obj = obj.__dir__.__self__
            except ReferenceError:
                return
            if foreign_class(type(obj)):  # a trainer that drives the model: state of installed packages is an assumption
                return
        if plain(obj) or id(obj) in self._seen:
            return
        self._seen.add(id(obj))
        if isinstance(obj, types.ModuleType):
            if vars(obj) is vars(obj) and not foreign(obj.__name__):
                self._modules.append(obj)
        elif isinstance(obj, type):
            self._class(obj)
        elif isinstance(obj, types.FunctionType):
            self._function(obj)
        elif machinery(type(obj)):
            if isinstance(obj, runs()):
                self.hidden = self.hidden or "the run itself"
        elif not (self._callable(obj) or self._special(obj)):
            self._object(obj)

    def _object(self, obj: Any) -> None:
        """Visit an object's parts: the content of its base type, its slots, its attributes, its class."""
        kind = type(obj)
        base = base_of(kind)
        if not transparent(kind):  # type: ignore[arg-type]
            self.hidden = self.hidden or ("" if of_package(obj) else kind.__name__)
            return
        self._objects[0].append(obj)
        self._objects[1].append(kind)
        if isinstance(obj, dict):
            self._mapping(obj)
            self._todo.append(getattr(obj, "default_factory", None))
        elif base in SEQUENCES:
            self._sequence(obj, base)
        elif base in (bytearray, np.ndarray, torch._C.TensorBase):
            self._array(obj)
        elif base is not object:
            self.key.append((kind, constant(base(obj))))
        self._slotted(obj)
        self._attributes(obj)
        self._class(kind)

    def _slotted(self, obj: Any) -> None:
        for slot in slots_of(type(obj)):  # type: ignore[arg-type]
            held = slot_of(obj, slot)
            self._slots.append((obj, slot, held))
            self.key.append(("slot", slot.__name__, self._token(held)))
            self._todo.append(held)

    def _attributes(self, obj: Any) -> None:
        own = getattr(obj, "__dict__", None)
        if type(own) is dict and id(own) not in self._seen:
            self.key.append(("of", self._token(obj)))
            self._mapping(own, LOGGER if isinstance(obj, logging.Logger) else frozenset())
            if isinstance(obj, logging.Logger):
                self._handlers(obj)

    def _handlers(self, obj: logging.Logger) -> None:
        """Visit a logger's handlers and filters, and the attributes of the user's own handlers."""
        for handler in (*obj.handlers, *obj.filters):
            own = getattr(handler, "__dict__", None)
            if type(own) is dict and id(own) not in self._seen:
                theirs = foreign_class(type(handler))
                self._mapping(own, frozenset(own) if theirs else HANDLER)
                self._class(type(handler))

    def _class(self, kind: type) -> None:
        for part in kind.__mro__:
            if part not in self._kinds and not foreign_class(part):
                self._kinds.add(part)
                own = {name: obj for name, obj in vars(part).items() if name not in UNWATCHED}
                about = part.__name__, part.__qualname__, part.__bases__
                self._classes.append((part, own, about))
                self.key.append(("class", *about[:2], *((name, self._token(obj)) for name, obj in own.items())))
                self._todo.extend((*own.values(), *part.__bases__, type(part)))
                self._derived.append((part, derived(part)))
                if "_abc_impl" in vars(part):
                    self._registered.append((part, registered(part)))
                if how := bytecode.swallows(part):
                    self._swallows(f"{part.__name__}.{how}")

    def _swallows(self, place: str) -> None:
        self.serial = self.unproven = f"an error of an operation may be caught, which tells a value ({place})"

    def _mapping(self, mapping: dict[Any, Any], known: frozenset[str] = frozenset()) -> None:
        """Visit a dictionary; for `known` names, only watch whether they are replaced."""
        self._seen.add(id(mapping))
        base = OrderedDict if isinstance(mapping, OrderedDict) else dict
        contents = dict(base.items(mapping))
        if not contents and type(mapping) in EMPTY:
            self._empty.append(mapping)
        else:
            self._dicts.append((mapping, contents, base))
        self.key.append(
            ("dict", self._token(mapping), *((self._token(name), self._token(obj)) for name, obj in contents.items()))
        )
        self._todo.extend(obj for pair in contents.items() if pair[0] not in known for obj in pair if not plain(obj))

    def _sequence(self, obj: Any, base: Any) -> None:
        parts = list(base.__iter__(obj))
        if base in (list, set, deque):
            self._lists.append((obj, parts, base))
        self.key.append((self._token(obj), *map(self._token, parts)))
        self._todo.extend(part for part in parts if not plain(part))

    def _array(self, obj: Any) -> None:
        if isinstance(obj, Tensor) and (
            type(obj) not in (Tensor, nn.Parameter) or obj.layout is not torch.strided or obj.is_quantized
        ):
            self.hidden = self.hidden or type(obj).__name__
        elif isinstance(obj, np.ndarray) and obj.dtype.hasobject:
            self.hidden = self.hidden or "an array of objects"
        elif not (isinstance(obj, Tensor) and obj.device.type == "meta"):
            self._arrays.append((obj, Content(obj, self._copies)))
            self.key.append(("array", self._token(obj), digest(bytes_of(obj))))
            if isinstance(obj, Tensor):
                self._leaf(obj)
            elif isinstance(obj, np.ndarray):
                self._todo.extend((obj.base, obj.dtype))

    # ---- types of their own ------------------------------------------------------------------------------------------

    def _callable(self, obj: Any) -> bool:
        """Visit objects that call others."""
        if isinstance(obj, (staticmethod, classmethod, types.MethodType)):
            self.key.append(("method", self._token(obj.__func__), self._token(getattr(obj, "__self__", None))))
            self._todo.extend((obj.__func__, getattr(obj, "__self__", None)))
        elif isinstance(obj, property):
            self._todo.extend((obj.fget, obj.fset, obj.fdel))
        elif type(obj) is functools.partial:
            self.key.append(("partial", *map(self._token, (obj.func, *obj.args, *obj.keywords))))
            self._todo.extend((obj.func, *obj.args, obj.keywords, vars(obj)))
        elif isinstance(obj, (types.BuiltinMethodType, types.MethodWrapperType)):
            self.key.append(("method", obj.__name__, self._token(obj.__self__)))
            self._todo.append(obj.__self__)
            if operations.looks_behind(obj):
                self.serial = f"its code looks behind vmap ({obj.__name__})"
        elif isinstance(obj, CustomOpDef):
            self.serial = "an operation with a kernel of its own"
            self._todo.extend(operations.kernels(obj))
        elif isinstance(obj, functools._lru_cache_wrapper):
            if not of_package(obj):
                self._caches.append(obj)
                self.unproven = "what functools.lru_cache keeps"
                self._todo.extend((obj.__wrapped__, vars(obj)))
        else:
            return False
        return True

    def _special(self, obj: Any) -> bool:
        """Visit objects of known C types."""
        if isinstance(obj, itertools.count):
            self.key.append(repr(obj))
            self._told.append((obj, repr(obj)))
        elif isinstance(obj, DRAWING):
            self._draws.append(obj)
            self.unproven = "a generator of random numbers of its own"
            self._attributes(obj)
            self._class(type(obj))
        elif type(obj) is slice:
            self._todo.extend((obj.start, obj.stop, obj.step))
        elif isinstance(obj, types.MappingProxyType):
            self._dicts.append((obj, dict(obj), types.MappingProxyType))  # type: ignore[arg-type]
            self.key.append(("view", *((self._token(name), self._token(part)) for name, part in obj.items())))
            self._todo.extend(part for part in obj.values() if not plain(part))
        elif isinstance(obj, weakref.ref):
            self._todo.extend((obj(), obj.__callback__))
            self._slotted(obj)
            self._attributes(obj)
            self._class(type(obj))
        elif isinstance(obj, (types.GenericAlias, types.UnionType)):
            self._todo.extend((*obj.__args__, getattr(obj, "__origin__", None)))
        elif isinstance(obj, (datetime.datetime, datetime.time)) and type(obj).__module__ == "datetime":
            self.key.append(repr(obj))
            self._todo.append(obj.tzinfo)
        elif isinstance(obj, np.dtype):
            fields = [part for field in (obj.fields or {}).values() for part in field]
            self._todo.extend((obj.metadata, *fields, *(obj.subdtype or ())))
        elif isinstance(obj, types.CellType):
            self._cell(obj)
        else:
            return type(obj) is object
        return True

    # ---- code --------------------------------------------------------------------------------------------------------

    def _function(self, function: types.FunctionType) -> None:
        if operations.looks_behind(function):
            self.serial = f"its code looks behind vmap ({function.__name__})"
        if machinery_function(function):
            return
        for cell in function.__closure__ or ():
            self._cell(cell)
        if foreign_function(function):
            return
        self._mapping(function.__dict__)
        about = about_function(function)
        self._functions.append((function, about))
        defaults, named = function.__defaults__, function.__kwdefaults__
        self.key.append(("function", *map(self._token, (*about[:1], *about[3:], *(defaults or ()), named))))
        self._todo.extend((*(defaults or ()), named, function.__annotations__))
        self._code(function)

    def _code(self, function: types.FunctionType) -> None:
        """Record the names and imports that a function's code uses, and whether it catches errors."""
        space, code = function.__globals__, function.__code__
        names = bytecode.names_of(code)
        self.named |= names
        self._absent.setdefault(id(space), (space, set()))[1].update(name for name in names if name not in space)
        self._named(space, names)
        self._imports |= {bytecode.absolute(name, level, space) for name, level in bytecode.imports_of(code)}
        self._by_text = self._by_text or bytecode.made_of_text(code)
        hiding = sorted(names & bytecode.SWALLOWING)
        if hiding or bytecode.catches(function):
            self._swallows(f"{function.__qualname__}{', ' + hiding[0] if hiding else ''}")

    def _cell(self, cell: Any) -> None:
        try:
            contents = cell.cell_contents
        except ValueError:  # not filled yet
            contents = ABSENT
        self._cells.append((cell, contents))
        self.key.append(("cell", self._token(contents)))
        self._todo.append(contents)

    def _named(self, space: dict[str, Any], names: Iterable[str]) -> None:
        for name in sorted(names):
            if name in space:
                self._names.append((space, name, space[name]))
                self.key.append(("name", name, self._token(space[name])))
                self._todo.append(space[name])

    def _in_modules(self) -> bool:
        """Follow names that the code uses in modules outside installed packages; returns whether there was anything new."""
        for name in sorted(self.named | self._imports):
            if isinstance(sys.modules.get(name), types.ModuleType):
                self._visit(sys.modules[name])
            elif name in self._imports and own_file(name):
                self.unproven = f"a module that is imported where the code runs ({name})"
        if self._by_text:  # any variable of any module of the user's
            own = [obj for obj in list(sys.modules.values()) if of_user(obj)]
            self._modules = list({id(obj): obj for obj in (*self._modules, *own)}.values())
        known = {(id(space), name) for space, name, _ in self._names}
        for module in self._modules:
            names = list(vars(module)) if self._by_text else self.named
            self._named(vars(module), [name for name in names if (id(vars(module)), name) not in known])
        self._todo.extend(obj for obj in operations.reached(self.named)[0] if id(obj) not in self._seen)
        return bool(self._todo)


def derived(kind: type) -> set[int]:
    """The classes that are derived from one."""
    return set(map(id, type.__subclasses__(kind)))


def _flags(tensor: Tensor) -> Any:
    return tensor.requires_grad, tensor.dtype, tuple(tensor.shape)


__all__ = ["Look", "derived"]
