"""What the code of model and loss keeps in Python: attributes, hooks, closures, defaults, globals that it names.

A trace holds for the code that was traced. Code that goes another way later must have kept something from one call to the
next; what it can keep is watched here: nothing there may change while a step is computed, and what is changed between steps
asks for another proof. What cannot be looked into might keep anything, so that where it is reached there is no proof.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import logging
import sys
import types
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import is_
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from discreet.learn.sgd.proof.contents import (
    ABSENT,
    DRAWING,
    bytes_of,
    content,
    equal,
    inside,
    other,
    reseed,
    same,
    slot_of,
    write,
)
from discreet.learn.sgd.proof.objects import (
    MAPPINGS,
    SEQUENCES,
    base_of,
    foreign,
    machinery,
    of_package,
    plain,
    slots_of,
    transparent,
)

MOST = 50_000  # things that are watched
EMPTY = {dict, OrderedDict, defaultdict, Counter}  # of which it is known what their truth value is
LOGGER = frozenset(vars(logging.Logger("")))
FLAT = {"_flat_weights", "_flat_weight_refs"}  # torch's lists of a recurrent layer's weights, which it makes anew


class Watch:
    """The state at one moment. It holds what it saw, so that nothing new can take the address of something old."""

    def __init__(self, model: nn.Module, code: Iterable[Any], copies: bool = True) -> None:
        self._seen: set[int] = set()
        self._empty: list[dict[Any, Any]] = []
        self._dicts: list[tuple[dict[Any, Any], dict[Any, Any], Any]] = []
        self._lists: list[tuple[Any, list[Any], Any]] = []
        self._kinds: set[type] = set()
        self._classes: list[tuple[type, dict[str, Any]]] = []
        self._names: list[tuple[dict[str, Any], str, Any]] = []
        self._absent: dict[int, tuple[dict[str, Any], set[str]]] = {}
        self._slots: list[tuple[Any, Any, Any]] = []
        self._functions: list[tuple[types.FunctionType, Any, Any, Any]] = []
        self._cells: list[tuple[Any, Any]] = []
        self._arrays: list[tuple[Any, Any]] = []
        self._told: list[tuple[Any, str]] = []
        self._caches: list[Any] = []
        self._draws: list[Any] = []
        self._modules: list[types.ModuleType] = []
        self._copies = copies
        self.computed: frozenset[tuple[int, str]] = frozenset()  # attributes that every call computes anew from parameters
        self.named: set[str] = set()  # all names that the code uses
        self.key: list[Any] = []  # the same for two models whose code does the same with rows of the same shape
        self.held: list[Any] = []  # what is in the key by its address
        self.hidden = ""  # something that cannot be looked into and might keep anything
        self.unproven = ""  # something that can be put back but not compared
        self._places: dict[int, int] = {}
        self._todo: deque[Any] = deque(code)
        self._look(model)
        asked = "grad" in self.named  # what an earlier step left there is not in a trace
        self._gradients = [(p, p.grad) for p in model.parameters()] if asked else []
        if any(gradient is not None for _, gradient in self._gradients):
            self.unproven = "gradients that an earlier step left"
        self.whole = not (self._todo or self.hidden or self.unproven)

    # ---- looking around ----------------------------------------------------------------------------------------------

    def _look(self, model: nn.Module) -> None:
        state = (*model.parameters(), *model.buffers())
        self._seen |= {id(t) for t in state}
        for tensor in state:
            if not machinery(type(tensor).__module__):  # shards have their parts as attributes
                self._attributes(tensor)
        for module in model.modules():
            self._visit(module)
        self._todo.extend(_everywhere())
        while len(self._seen) < MOST:
            while self._todo and len(self._seen) < MOST:
                self._visit(self._todo.popleft())
            if self._todo or not self._in_modules():
                break

    def _token(self, it: Any) -> Any:
        """What the key says of one thing."""
        if plain(it):
            return type(it), it
        if isinstance(it, Tensor):
            return type(it), tuple(it.shape), it.dtype, it.device, it.requires_grad, it.layout, self._place(it)
        if isinstance(it, types.FunctionType):
            return "code", it.__code__, self._place(it)
        if isinstance(it, (*MAPPINGS, *SEQUENCES, nn.Module, types.MethodType, functools.partial, np.ndarray)):
            return type(it), self._place(it)
        self.held.append(it)
        return "at", id(it)

    def _place(self, it: Any) -> int:
        return self._places.setdefault(id(it), len(self._places))

    def _visit(self, it: Any) -> None:
        if type(it) in weakref.ProxyTypes:  # what it stands for is looked at instead
            try:
                it = it.__dir__.__self__
            except ReferenceError:
                return
            if foreign(type(it).__module__):  # a trainer that drives the model: state of installed packages is an assumption
                return
        if plain(it) or id(it) in self._seen:
            return
        self._seen.add(id(it))
        if isinstance(it, types.ModuleType):
            if not foreign(it.__name__):
                self._modules.append(it)
        elif isinstance(it, type):
            self._class(it)
        elif isinstance(it, types.FunctionType):
            self._function(it)
        elif not (machinery(type(it).__module__) or self._callable(it) or self._special(it)):
            self._object(it)

    def _object(self, it: Any) -> None:
        """Anything by its parts: what its base holds, its slots, its attributes, its class."""
        kind = type(it)
        base = base_of(kind)
        if not transparent(kind):  # type: ignore[arg-type]
            self.hidden = self.hidden or ("" if of_package(it) else kind.__name__)
            return
        if isinstance(it, dict):
            self._mapping(it)
            self._todo.append(getattr(it, "default_factory", None))
        elif base in SEQUENCES:
            self._sequence(it, base)
        elif base in (bytearray, np.ndarray, torch._C.TensorBase):
            self._array(it)
        elif base is not object:
            self.key.append((kind, base(it)))
        for slot in slots_of(kind):  # type: ignore[arg-type]
            held = slot_of(it, slot)
            self._slots.append((it, slot, held))
            self.key.append(("slot", slot.__name__, self._token(held)))
            self._todo.append(held)
        self._attributes(it)
        self._class(kind)

    def _attributes(self, it: Any) -> None:
        own = getattr(it, "__dict__", None)
        if type(own) is dict and id(own) not in self._seen:
            self.key.append(("of", self._token(it)))
            self._mapping(own, LOGGER if isinstance(it, logging.Logger) else frozenset())

    def _class(self, kind: type) -> None:
        for part in kind.__mro__:
            if part not in self._kinds and not foreign(part.__module__):
                self._kinds.add(part)
                own = dict(vars(part))
                self._classes.append((part, own))
                self.key.append(("class", *((name, self._token(it)) for name, it in own.items())))
                self._todo.extend(it for name, it in own.items() if name != "_abc_impl")
                self._todo.append(type(part))

    def _mapping(self, mapping: dict[Any, Any], known: frozenset[str] = frozenset()) -> None:
        """A dictionary; of what is `known` to be there only whether it is exchanged."""
        self._seen.add(id(mapping))
        base = OrderedDict if isinstance(mapping, OrderedDict) else dict
        kept = dict(base.items(mapping))
        if not kept and type(mapping) in EMPTY:
            self._empty.append(mapping)
        else:
            self._dicts.append((mapping, kept, base))
        self.key.append(("dict", self._token(mapping), *((self._token(name), self._token(it)) for name, it in kept.items())))
        self._todo.extend(it for pair in kept.items() if pair[0] not in known for it in pair if not plain(it))

    def _sequence(self, it: Any, base: Any) -> None:
        parts = list(base.__iter__(it))
        if base in (list, set, deque):
            self._lists.append((it, parts, base))
        self.key.append((self._token(it), *map(self._token, parts)))
        self._todo.extend(part for part in parts if not plain(part))

    def _array(self, it: Any) -> None:
        if isinstance(it, Tensor) and (
            type(it) not in (Tensor, nn.Parameter) or it.layout is not torch.strided or it.is_quantized
        ):
            self.hidden = self.hidden or type(it).__name__
        elif isinstance(it, np.ndarray) and it.dtype.hasobject:
            self._todo.extend(it.ravel().tolist())
            self.unproven = "an array of objects"
        elif not (isinstance(it, Tensor) and it.device.type == "meta"):
            kept = content(it, self._copies)
            self._arrays.append((it, kept))
            self.key.append(("array", self._token(it), hashlib.blake2b(bytes_of(it), digest_size=16).digest()))

    def _callable(self, it: Any) -> bool:
        """Things that call others."""
        if isinstance(it, (staticmethod, classmethod, types.MethodType)):
            self.key.append(("method", self._token(it.__func__), self._token(getattr(it, "__self__", None))))
            self._todo.extend((it.__func__, getattr(it, "__self__", None)))
        elif isinstance(it, property):
            self._todo.extend((it.fget, it.fset, it.fdel))
        elif type(it) is functools.partial:
            self.key.append(("partial", *map(self._token, (it.func, *it.args, *it.keywords))))
            self._todo.extend((it.func, *it.args, it.keywords, vars(it)))
        elif isinstance(it, (types.BuiltinMethodType, types.MethodWrapperType)):
            self.key.append(("method", it.__name__, self._token(it.__self__)))
            self._todo.append(it.__self__)
        elif isinstance(it, functools._lru_cache_wrapper):
            if not of_package(it):
                self._caches.append(it)
                self.unproven = "what functools.lru_cache keeps"
                self._todo.extend((it.__wrapped__, vars(it)))
        else:
            return False
        return True

    def _special(self, it: Any) -> bool:
        """Types of C that are known."""
        if isinstance(it, itertools.count):
            self.key.append(repr(it))
            self._told.append((it, repr(it)))
        elif isinstance(it, DRAWING):
            self._draws.append(it)
            self.unproven = "a generator of random numbers of its own"
            self._attributes(it)
        elif type(it) is slice:
            self._todo.extend((it.start, it.stop, it.step))
        elif isinstance(it, types.MappingProxyType):
            self._dicts.append((it, dict(it), types.MappingProxyType))  # type: ignore[arg-type]
            self.key.append(("view", *((self._token(name), self._token(part)) for name, part in it.items())))
            self._todo.extend(part for part in it.values() if not plain(part))
        elif isinstance(it, weakref.ref):
            self._todo.append(it())
        elif isinstance(it, types.CellType):
            self._cell(it)
        else:
            return type(it) is object
        return True

    def _function(self, function: types.FunctionType) -> None:
        if machinery(function.__module__):
            return
        for cell in function.__closure__ or ():
            self._cell(cell)
        if foreign(function.__module__ or ""):
            return
        self._mapping(function.__dict__)
        defaults, named = function.__defaults__, function.__kwdefaults__
        self._functions.append((function, function.__code__, defaults, named))
        self.key.append(("function", function.__code__, *map(self._token, defaults or ()), self._token(named)))
        self._todo.extend((*(defaults or ()), named))
        space = function.__globals__
        names = _globals(function.__code__)
        self.named |= names
        self._absent.setdefault(id(space), (space, set()))[1].update(name for name in names if name not in space)
        self._named(space, names)

    def _cell(self, cell: Any) -> None:
        try:
            kept = cell.cell_contents
        except ValueError:  # not filled yet
            kept = ABSENT
        self._cells.append((cell, kept))
        self.key.append(("cell", self._token(kept)))
        self._todo.append(kept)

    def _named(self, space: dict[str, Any], names: Iterable[str]) -> None:
        for name in sorted(names):
            if name in space:
                self._names.append((space, name, space[name]))
                self.key.append(("name", name, self._token(space[name])))
                self._todo.append(space[name])

    def _in_modules(self) -> bool:
        """Follow what the code names in modules that are no installed package's, as far as there is something new."""
        for name in sorted(self.named):
            if isinstance(sys.modules.get(name), types.ModuleType):
                self._visit(sys.modules[name])
        known = {(id(space), name) for space, name, _ in self._names}
        for module in self._modules:
            self._named(vars(module), [name for name in self.named if (id(vars(module)), name) not in known])
        return bool(self._todo)

    # ---- comparing ---------------------------------------------------------------------------------------------------

    def changed(self) -> str | None:
        """The name of something that is not what it was."""
        if any(self._empty):
            return next(str(name) for mapping in self._empty for name in mapping)
        for mapping, before, base in self._dicts:
            if (
                len(before) != base.__len__(mapping)
                or not all(map(is_, base.values(mapping), before.values()))
                or base.keys(mapping) != before.keys()
            ):
                name = next((name for name in other(mapping, before) if not self._expected(name, mapping, before)), None)
                if name is not None:
                    return str(name)
        for sequence, kept, base in self._lists:
            if base.__len__(sequence) != len(kept) or not all(map(is_, base.__iter__(sequence), kept)):
                return "an element of a list or set"
        for kind, own in self._classes:
            now = vars(kind)
            if len(now) != len(own) or not all(map(is_, now.values(), own.values())):
                name = next((name for name in other(now, own)), None)
                if name is not None:
                    return str(name)
        return self._code_changed() or self._content_changed()

    def _code_changed(self) -> str | None:
        for space, name, kept in self._names:
            if not same(space.get(name, ABSENT), kept):
                return name
        for space, names in self._absent.values():
            if any(map(space.__contains__, names)):
                return next(name for name in names if name in space)
        for function, code, defaults, named in self._functions:
            if function.__code__ is not code or function.__defaults__ is not defaults or function.__kwdefaults__ is not named:
                return f"the code or the defaults of {function.__name__}"
        for cell, kept in self._cells:
            if not same(inside(cell), kept):
                return "a variable that a function keeps"
        return None

    def _content_changed(self) -> str | None:
        for it, slot, kept in self._slots:
            if not same(slot_of(it, slot), kept):
                return str(slot.__name__)
        for it, said in self._told:
            if repr(it) != said:
                return said
        if any(p.grad is not gradient for p, gradient in self._gradients):
            return "the gradient of a parameter"
        return next((f"a {type(it).__name__}" for it, kept in self._arrays if not equal(it, kept)), None)

    def _expected(self, name: Any, mapping: dict[Any, Any], before: dict[Any, Any]) -> bool:
        if name in FLAT and FLAT | {"_flat_weights_names", "_parameters"} <= mapping.keys():
            _flat_again(mapping)
            return True
        known = (id(mapping), name) in self.computed
        return known and isinstance(mapping.get(name), Tensor) and isinstance(before.get(name), Tensor)

    def replaced(self, harmless: Callable[[Tensor], bool]) -> frozenset[tuple[int, str]]:
        """Attributes (mapping and name) that hold another tensor, of which `harmless` says that it tells nothing."""
        return frozenset(
            (id(mapping), name) for mapping, before, _ in self._dicts for name in other(mapping, before)
            if isinstance(name, str) and isinstance(before.get(name), Tensor) and isinstance(mapping.get(name), Tensor)
            and harmless(mapping[name])
        )  # fmt: skip

    def places(self, computed: Iterable[tuple[int, str]]) -> frozenset[tuple[int, str]]:
        """The same attributes by the place of their mapping in the key, which two models with one key have in common."""
        return frozenset((self._places[mapping], name) for mapping, name in computed)

    def at(self, places: Iterable[tuple[int, str]]) -> frozenset[tuple[int, str]]:
        where = {place: mapping for mapping, place in self._places.items()}
        return frozenset((where[place], name) for place, name in places)

    # ---- putting back ------------------------------------------------------------------------------------------------

    def restore(self, fresh: bool = False) -> None:
        """Put everything back, whatever a call left there; generators of its own draw anew where `fresh`."""
        for mapping in self._empty:
            mapping.clear()
        for mapping, before, base in self._dicts:
            alike = base.keys(mapping) == before.keys() and all(map(is_, base.values(mapping), before.values()))
            if not alike and base is not types.MappingProxyType and not _sharded(mapping) and not _sharded(before):
                base.clear(mapping)
                base.update(mapping, before)
        for sequence, kept, base in self._lists:
            if base.__len__(sequence) != len(kept) or not all(map(is_, base.__iter__(sequence), kept)):
                base.clear(sequence)
                (base.update if base is set else base.extend)(sequence, kept)
        for kind, own in self._classes:
            for name in list(other(vars(kind), own)):
                setattr(kind, name, own[name]) if name in own else delattr(kind, name)
        self._restore_code()
        for it, slot, kept in self._slots:
            if slot_of(it, slot) is not kept:
                slot.__delete__(it) if kept is ABSENT else slot.__set__(it, kept)
        with torch.no_grad():
            for it, kept in self._arrays:
                if not isinstance(kept, str) and not equal(it, kept):
                    write(it, kept)
        for cache in self._caches:
            cache.cache_clear()
        for generator in self._draws if fresh else ():
            reseed(generator, int(torch.randint(2**31, ())))

    def _restore_code(self) -> None:
        for space, name, kept in self._names:
            if space.get(name, ABSENT) is not kept:
                space[name] = kept
        for space, names in self._absent.values():
            for name in names & space.keys():
                del space[name]
        for function, code, defaults, named in self._functions:
            function.__code__, function.__defaults__, function.__kwdefaults__ = code, defaults, named
        for cell, kept in self._cells:
            if inside(cell) is not kept:
                cell.cell_contents = kept
                if kept is ABSENT:
                    del cell.cell_contents

    @property
    def lost(self) -> str:
        """Something that cannot be put back: it is hidden, or was counted on."""
        return self.hidden or next((said for it, said in self._told if repr(it) != said), "")


@contextmanager
def put_back(model: nn.Module, code: Iterable[Any], fresh: bool = False) -> Iterator[Watch]:
    """Whatever is done inside leaves Python's side of the model as it was, and its modes and gradients with it."""
    watch = Watch(model, code)
    gradients = [(p, p.grad) for p in model.parameters()]
    try:
        yield watch
    finally:
        watch.restore(fresh)
        for p, gradient in gradients:
            p.grad = gradient


def _sharded(mapping: dict[Any, Any]) -> bool:
    """Parameters that fully_shard exchanges for their shards and back, and must find as it left them."""
    return any(isinstance(it, Tensor) and machinery(type(it).__module__) for it in mapping.values())


def modes() -> list[Any]:
    """What torch asks about every operation: contexts that somebody entered."""
    return [*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack()]


def _everywhere() -> list[Any]:
    """Hooks that torch calls for all modules, and active modes."""
    from torch.nn.modules import module

    return [*modes(), *(it for name, it in vars(module).items() if name.startswith("_global_") and isinstance(it, dict))]


def _globals(code: types.CodeType) -> set[str]:
    """Names of variables and attributes, and strings that may be such names."""
    inner = [_globals(it) for it in code.co_consts if isinstance(it, types.CodeType)]
    strings = [it for it in code.co_consts if isinstance(it, str) and it.isidentifier()]
    return {*code.co_names, *strings}.union(*inner)


def _flat_again(mapping: dict[Any, Any]) -> None:
    """The lists of a recurrent layer's weights as torch makes them, so that nothing else can be kept there."""
    weights = [mapping["_parameters"].get(name) for name in mapping["_flat_weights_names"]]
    mapping["_flat_weights"] = weights
    mapping["_flat_weight_refs"] = [None if weight is None else weakref.ref(weight) for weight in weights]
