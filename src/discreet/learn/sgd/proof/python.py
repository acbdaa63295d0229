"""The Python state of model and loss: attributes, hooks, closures, defaults, and the globals they name.

A trace holds for the code that was traced. Code that behaves differently later must have kept state from one call to the next.
That state is watched here: it must not change while a step is computed, and a change between steps requires another proof.
An opaque object could keep anything, so there is no proof where one is reached.
"""

from __future__ import annotations

import functools
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import is_
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from discreet.learn.sgd.proof.contents import ABSENT, about_function, in_order, inside, other, registered, reseed, same, slot_of
from discreet.learn.sgd.proof.look import MOST, UNWATCHED, Look, derived
from discreet.learn.sgd.proof.objects import machinery
from discreet.learn.sgd.proof.process import as_it_was, modes

FLAT = {"_flat_weights", "_flat_weight_refs"}  # torch's lists of a recurrent layer's weights, which it makes anew
SETTABLE = (
    "__code__", "__defaults__", "__kwdefaults__", "__name__", "__qualname__", "__doc__", "__module__", "__annotations__",
)  # fmt: skip
USUAL = {"fake_device", "fake_mode", "constant", "pytype", "dispatch_keys", "real_tensor", "item_memo", "nonzero_memo"}


class Watch(Look):
    """The state that the code can reach, to be compared with later states, and to be restored."""

    def __init__(self, model: nn.Module, code: Iterable[Any], copies: bool = True) -> None:
        super().__init__(model, code, copies)
        own = {id(p) for p in model.parameters()}
        uses_grad = "grad" in self.named  # what an earlier step left there is not in a trace
        self._compared = [(tensor, gradient) for tensor, gradient in self._gradients if uses_grad or id(tensor) not in own]
        if any(gradient is not None for _, gradient in self._compared):
            self.unproven = "gradients that an earlier step left"
        self.large = bool(self._todo)  # more things than are watched
        self.whole = not (self.large or self.hidden or self.unproven)

    # ---- comparing ---------------------------------------------------------------------------------------------------

    def changed(self) -> str | None:
        """The name of something that changed; None if nothing did."""
        if any(self._empty):
            return next(str(name) for mapping in self._empty for name in mapping)
        for mapping, before, base in self._dicts:
            if not _alike(mapping, before, base):
                name = next((name for name in other(mapping, before) if not self._expected(name, mapping, before)), None)
                if name is not None:
                    return str(name)
                if not in_order(base.keys(mapping), before):
                    return "the order of a dictionary"
        for sequence, elements, base in self._lists:
            if base.__len__(sequence) != len(elements) or not all(map(is_, base.__iter__(sequence), elements)):
                return "an element of a list or set"
        return self._class_changed() or self._code_changed() or self._content_changed() or self._tensor_changed()

    def _class_changed(self) -> str | None:
        if not all(map(is_, map(type, self._objects[0]), self._objects[1])):
            return "the class of an object"
        for kind, own, about in self._classes:
            now = vars(kind)
            if len(now) != len(own) or not all(map(is_, map(now.get, own), own.values())):
                name = next((name for name in other(watched(kind), own)), None)
                if name is not None:
                    return str(name)
            if (kind.__name__, kind.__qualname__, kind.__bases__) != about:
                return "the name or the bases of a class"
        for kind, before in self._derived:
            if derived(kind) - before:
                return "the classes that are derived from another"
        if not self._threads.issuperset(threading.enumerate()):
            return "the threads that are running"
        for kind, known in self._registered:
            if registered(kind) != known:
                return "the classes that are registered with another"
        return None

    def _code_changed(self) -> str | None:
        for space, name, before in self._names:
            if not same(space.get(name, ABSENT), before):
                return name
        for space, names in self._absent.values():
            if any(map(space.__contains__, names)):
                return next(name for name in names if name in space)
        for function, about in self._functions:
            if not all(map(same, about_function(function), about)):
                return f"the code or the defaults of {function.__name__}"
        for cell, before in self._cells:
            if not same(inside(cell), before):
                return "a variable that a function keeps"
        return None

    def _content_changed(self) -> str | None:
        for obj, slot, before in self._slots:
            if not same(slot_of(obj, slot), before):
                return str(slot.__name__)
        for obj, text in self._told:
            if repr(obj) != text:
                return text
        return next((f"a {type(obj).__name__}" for obj, before in self._arrays if not before.equal(obj)), None)

    def _tensor_changed(self) -> str | None:
        if any(leaf.grad is not gradient for leaf, gradient in self._compared):
            return "the gradient of a parameter"
        for tensor, (grad, dtype, shape), hooks in self._tensors:
            if tensor.requires_grad is not grad or tensor.dtype is not dtype or tensor.shape != shape:
                return "whether a tensor is trained, or its type or shape"
            if (hooks_of(tensor) if tensor._backward_hooks or hooks[0] or hooks[1] else ({}, {})) != hooks:
                return "the hooks of a tensor"
        return None

    def _expected(self, name: Any, mapping: dict[Any, Any], before: dict[Any, Any]) -> bool:
        if name in FLAT and FLAT | {"_flat_weights_names", "_parameters"} <= mapping.keys():
            _flat_again(mapping)
            return True
        return (id(mapping), name) in self.computed and _computed(mapping.get(name), before.get(name), trained=True)

    def replaced(self, harmless: Callable[[Tensor], bool]) -> frozenset[tuple[int, str]]:
        """Attributes (mapping and name) that hold another tensor, of which `harmless` says that it tells nothing."""
        return frozenset(
            (id(mapping), name) for mapping, before, _ in self._dicts for name in other(mapping, before)
            if isinstance(name, str) and _computed(mapping.get(name), before.get(name)) and harmless(mapping[name])
        )  # fmt: skip

    def places(self, computed: Iterable[tuple[int, str]]) -> frozenset[tuple[int, str]]:
        """The same attributes by the place of their mapping in the key, which two models with one key have in common."""
        return frozenset((self._places[mapping], name) for mapping, name in computed)

    def at(self, places: Iterable[tuple[int, str]]) -> frozenset[tuple[int, str]]:
        where = {place: mapping for mapping, place in self._places.items()}
        return frozenset((where[place], name) for place, name in places)

    # ---- putting back ------------------------------------------------------------------------------------------------

    def restore(self, fresh: bool = False) -> None:
        """Restore everything that a call changed; the code's own generators are reseeded where `fresh`."""
        for obj, kind in zip(*self._objects, strict=True):
            if type(obj) is not kind:
                object.__setattr__(obj, "__class__", kind)
        for mapping in self._empty:
            mapping.clear()
        for mapping, before, base in self._dicts:
            if base is types.MappingProxyType or _alike(mapping, before, base):
                continue
            if not _sharded(mapping) and not _sharded(before):
                base.clear(mapping)
                base.update(mapping, before)
        for sequence, elements, base in self._lists:
            if base.__len__(sequence) != len(elements) or not all(map(is_, base.__iter__(sequence), elements)):
                base.clear(sequence)
                (base.update if base is set else base.extend)(sequence, elements)
        self._restore_classes()
        self._restore_code()
        self._restore_contents()
        for cache in self._caches:
            functools._lru_cache_wrapper.cache_clear(cache)
        for generator in self._draws if fresh else ():
            reseed(generator, int(torch.randint(2**31, ())))

    def _restore_classes(self) -> None:
        for kind, own, (name, qualname, bases) in self._classes:
            for attribute in list(other(watched(kind), own)):
                setattr(kind, attribute, own[attribute]) if attribute in own else delattr(kind, attribute)
            if (kind.__name__, kind.__qualname__) != (name, qualname):
                kind.__name__, kind.__qualname__ = name, qualname
            if kind.__bases__ != bases:
                kind.__bases__ = bases
        for kind, known in self._registered:
            if registered(kind) != known:
                import _abc  # type: ignore[import-not-found]

                _abc._reset_registry(kind)
                _abc._reset_caches(kind)
                for subclass in known:
                    _abc._abc_register(kind, subclass)

    def _restore_code(self) -> None:
        for space, name, value in self._names:
            if space.get(name, ABSENT) is not value:
                space[name] = value
        for space, names in self._absent.values():
            for name in names & space.keys():
                del space[name]
        for function, about in self._functions:
            for name, now, before in zip(SETTABLE, about_function(function), about, strict=True):
                if now is not before:
                    setattr(function, name, before)
        for cell, value in self._cells:
            if inside(cell) is not value:
                cell.cell_contents = value
                if value is ABSENT:
                    del cell.cell_contents

    def _restore_contents(self) -> None:
        for obj, slot, value in self._slots:
            if slot_of(obj, slot) is not value:
                slot.__delete__(obj) if value is ABSENT else slot.__set__(obj, value)
        with torch.no_grad():
            for obj, content in self._arrays:
                if not content.equal(obj):
                    content.write(obj)
        for obj, gradient in self._gradients:
            if obj.grad is not gradient:
                obj.grad = gradient
        for tensor, (grad, _, _), (hooks, more) in self._tensors:
            if tensor.requires_grad is not grad and tensor.is_leaf:
                tensor.requires_grad_(grad)
            for held, before in ((tensor._backward_hooks, hooks), (getattr(tensor, "_post_accumulate_grad_hooks", None), more)):
                if held is not None and dict(held) != before:
                    held.clear()
                    held.update(before)

    @property
    def lost(self) -> str:
        """State through which one unit could reach the next: it is opaque, or too large to watch."""
        return self.hidden or (f"more than {MOST} things" if self.large else "")


@contextmanager
def put_back(model: nn.Module, code: Iterable[Any], fresh: bool = False) -> Iterator[Watch]:
    """Restore the model's Python state, its gradients and the settings of the process afterwards."""
    watch = Watch(model, code)
    gradients = [(p, p.grad) for p in model.parameters()]
    with as_it_was():
        try:
            yield watch
        finally:
            watch.restore(fresh)
            for p, gradient in gradients:
                p.grad = gradient


def _sharded(mapping: dict[Any, Any]) -> bool:
    """Parameters that fully_shard exchanges for their shards and back, and must find as it left them."""
    return any(isinstance(value, Tensor) and machinery(type(value)) for value in mapping.values())


def watched(kind: type) -> dict[str, Any]:
    return {name: value for name, value in vars(kind).items() if name not in UNWATCHED}


def hooks_of(tensor: Tensor) -> tuple[dict[int, Any], dict[int, Any]]:
    return dict(tensor._backward_hooks or {}), dict(getattr(tensor, "_post_accumulate_grad_hooks", None) or {})


def _alike(mapping: dict[Any, Any], before: dict[Any, Any], base: Any) -> bool:
    return (
        len(before) == base.__len__(mapping)
        and all(map(is_, base.values(mapping), before.values()))
        and all(map(is_, base.keys(mapping), before))
    )


def _computed(now: Any, before: Any, trained: bool = False) -> bool:
    """Whether a tensor replaced another with the same shape and type, and without hooks or attributes."""
    if not isinstance(now, Tensor) or not isinstance(before, Tensor) or type(before) not in (Tensor, nn.Parameter):
        return False
    real = trained and not isinstance(now, FakeTensor)
    if real and (type(now) is not type(before) or now.requires_grad is not before.requires_grad):
        return False
    bare = not any(not name.startswith("_discreet") for tensor in (now, before) for name in _attributes(tensor))
    return bare and now.shape == before.shape and now.dtype == before.dtype and not now._backward_hooks


def _attributes(tensor: Tensor) -> list[str]:
    """Attributes that somebody gave to a tensor."""
    traced = ("_fake", "_nonzero", "_item", "_unique", "_nested", "unique_") if isinstance(tensor, FakeTensor) else ()
    known = USUAL if isinstance(tensor, FakeTensor) else set()
    return [name for name in vars(tensor) if name not in known and not name.startswith(traced)]


def _flat_again(mapping: dict[Any, Any]) -> None:
    """The lists of a recurrent layer's weights as torch makes them, so that nothing else can be kept there."""
    weights = [mapping["_parameters"].get(name) for name in mapping["_flat_weights_names"]]
    mapping["_flat_weights"] = weights
    mapping["_flat_weight_refs"] = [None if weight is None else weakref.ref(weight) for weight in weights]


__all__ = ["Watch", "modes", "put_back"]
