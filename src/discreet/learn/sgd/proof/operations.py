"""Operations with kernels written in Python, and functions that unwrap vmap's tensors.

A trace runs no kernel, and vmap calls the kernel of an operation without a batching rule once for every unit, one after
another, so state that such a kernel keeps reaches the next unit.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS, CustomOpDef

from discreet.learn.sgd.proof.objects import foreign_function, of_place

OWN = (
    "aten", "prims", "prim", "torchvision", "rngprims", "quantized", "_c10d_functional", "c10d", "inductor", "fsdp", "flex_lib",
    "mkldnn", "onednn", "mkl", "export", "debug_mode_ops", "_native", "profiler", "c10d_functional", "symm_mem",
)  # fmt: skip
BEHIND = (
    "get_unwrapped", "_unwrap_batched", "_remove_batch_dim", "unwrap_if_dead", "_unwrap_for_grad",
    "_unwrap_functional_tensor",
)  # fmt: skip
UNCHECKED = {
    *(f"{kind}max_pool{axes}d{name}_backward" for kind, name in (("", "_with_indices"), ("adaptive_", "")) for axes in (2, 3)),
    *(f"fractional_max_pool{axes}d_backward" for axes in (2, 3)),
}  # fmt: skip


def vmap_rules() -> list[str]:
    """Operations that are not torch's and register their own vmap rule, which sees all units."""
    named = torch._C._dispatch_get_registrations_for_dispatch_key("FuncTorchBatched")
    return sorted(name for name in named if name.partition("::")[0] not in OWN)


def reached(named: set[str]) -> tuple[list[Any], str]:
    """The definitions of operations with kernels of the user's that code with these names can call, and one that is unknown."""
    definitions, unseen = [], ""
    for space, name in sorted(_of_users(len(_registered()))):
        if space in OWN or (space in named and name.partition(".")[0] in named):
            definition = _definitions().get(f"{space}::{name.partition('.')[0]}")
            if definition is None:
                unseen = f"the kernel of {space}::{name}"
            else:
                definitions.append(definition)
    return definitions, unseen


def kernels(definition: CustomOpDef) -> list[Any]:
    """The functions that a custom operation calls."""
    own = vars(definition)
    names = ("_init_fn", "_backend_fns", "_abstract_fn", "_setup_context_fn", "_backward_fn", "_torch_dispatch_fns", "_vmap_fn")
    return [own.get(name) for name in names]


def _registered() -> set[str]:
    registered: set[str] = getattr(torch.library, "_impls", set())
    return registered


def _definitions() -> Any:
    return OPDEFS


@functools.lru_cache(maxsize=4)
def _of_users(count: int) -> frozenset[tuple[str, str]]:
    """Namespaces and names of operations that were given a kernel by a file that is no installed package's."""
    theirs = set()
    for space, name, key in (entry.split("/", 2) for entry in _registered() if entry.count("/") == 2):
        if space in OWN and (key == "Meta" or f"{space}::{name}" in _definitions()):
            continue
        definition = _definitions().get(f"{space}::{name.partition('.')[0]}")
        if definition is not None and space not in OWN:
            own = not foreign_function(definition._init_fn) if isinstance(definition._init_fn, types.FunctionType) else True
        else:
            own = _by_user(f"{space}::{name}", key)
        if own:
            theirs.add((space, name))
    return frozenset(theirs)


def _by_user(name: str, key: str) -> bool:
    try:
        lines = torch._C._dispatch_dump(name).splitlines()
    except RuntimeError:  # it was taken away again
        return False
    places = [line.partition("registered at ")[2].partition(" :: ")[0] for line in lines if line.startswith(key)]
    files = [place.rpartition(":")[0] for place in places]
    return any(file.endswith(".py") and not of_place(file) for file in files)


# ---- behind vmap ---------------------------------------------------------------------------------------------------------


def _unwrapping() -> list[tuple[Any, str]]:
    from torch._C import _functorch
    from torch._functorch import eager_transforms

    places: list[tuple[Any, str]] = [(_functorch, name) for name in BEHIND if hasattr(_functorch, name)]
    return places + [(place, "debug_unwrap") for place in (torch.func, eager_transforms) if hasattr(place, "debug_unwrap")]


_plain = {id(getattr(place, name)): getattr(place, name) for place, name in _unwrapping()}


def looks_behind(function: Any) -> bool:
    """Whether a function unwraps one unit's tensor to that of all units."""
    return _plain.get(id(function)) is function


class Behind(Exception):
    """Code tried to read what vmap hides."""


@contextmanager
def hidden() -> Iterator[list[str]]:
    """A context that records and refuses attempts to unwrap vmap's tensors, or to print a tensor."""
    peeked: list[str] = []
    torchs = str(torch.__file__).rpartition("/")[0] + "/"
    before = [(place, name, getattr(place, name)) for place, name in _unwrapping()]
    text = torch._tensor_str._str

    def refused(name: str, plain: Any) -> Any:
        def ask(*args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1).f_code.co_filename
            if name == "debug_unwrap" or not caller.startswith(torchs):
                peeked.append(name)
                raise Behind(name)
            return plain(*args, **kwargs)

        return ask

    def written(*args: Any, **kwargs: Any) -> str:
        peeked.append("the text of a tensor")
        raise Behind("the text of a tensor")

    try:
        for place, name, plain in before:
            setattr(place, name, refused(name, plain))
        torch._tensor_str._str = written
        yield peeked
    finally:
        torch._tensor_str._str = text
        for place, name, plain in before:
            setattr(place, name, plain)
