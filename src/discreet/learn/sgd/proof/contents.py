"""The content of slots, cells, arrays and generators: reading it, comparing it, writing it."""

from __future__ import annotations

import hashlib
import random
import struct
import types
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from discreet.learn.sgd.proof.objects import BY_TEXT, plain

LARGE = 1 << 20  # numbers of an array of which a digest is kept rather than a copy, unless it must be put back
DRAWING = (torch.Generator, random.Random, np.random.Generator, np.random.RandomState)
ABSENT = object()
WRITEABLE = 0x400  # flag of an array of numpy


def inside(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT


def slot_of(it: Any, slot: Any) -> Any:
    try:
        return slot.__get__(it, type(it))
    except AttributeError:
        return ABSENT


def same(one: Any, other: Any) -> bool:
    """Whether they are one, or constants of which no code can tell the difference: 0.0 is not -0.0, nor Decimal("0") 0.0.

    >>> same(0.0, -0.0), same(1, True), same(float("nan"), float("nan"))
    (False, False, True)
    """
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    if kind in (int, str, bytes, bool):
        return bool(one == other)
    return constant(one) is not None and constant(one) == constant(other)


def constant(it: Any) -> Any:
    """What tells numbers and the like from all others of their type; None where only the thing itself does."""
    kind = type(it)
    if kind in (int, str, bytes, bool):
        return it
    if kind is float:
        return struct.pack("d", it)
    if kind is complex:
        return struct.pack("dd", it.real, it.imag)
    if kind in BY_TEXT:
        return repr(it)
    return (it.dtype.str, it.tobytes()) if isinstance(it, np.generic) and plain(it) else None


def other(mapping: Any, before: dict[Any, Any]) -> Iterator[Any]:
    for name in [*mapping, *before]:
        if name not in mapping or name not in before or not same(mapping[name], before[name]):
            yield name


def in_order(now: Iterable[Any], before: Iterable[Any]) -> bool:
    """Whether names are the same in the same order."""
    now, before = list(now), list(before)
    return len(now) == len(before) and all(map(same, now, before))


def about_function(function: types.FunctionType) -> tuple[Any, ...]:
    """What can be set on a function."""
    return (
        function.__code__, function.__defaults__, function.__kwdefaults__, function.__name__, function.__qualname__,
        function.__doc__, function.__module__, function.__annotations__,
    )  # fmt: skip


def registered(kind: type) -> set[type]:
    """The classes that were registered with an abstract one."""
    import _abc  # type: ignore[import-not-found]

    return {it for ref in _abc._get_dump(kind)[0] if (it := ref()) is not None}


# ---- arrays --------------------------------------------------------------------------------------------------------------


def bytes_of(it: Any) -> bytes:
    if isinstance(it, Tensor):
        whole = _memory(it).detach().cpu().contiguous().view(-1)
        return whole.view(torch.uint8).numpy().tobytes() if whole.numel() else b""
    return bytes(it) if isinstance(it, bytearray) else it.tobytes()


def _memory(it: Tensor) -> Tensor:
    """All of the memory that a tensor is a view of: what lies beside its entries can be reached from it."""
    stored = it.untyped_storage()
    if stored.nbytes() == it.numel() * it.element_size():
        return it.detach()
    return torch.empty(0, dtype=torch.uint8, device=it.device).set_(stored)


def form(it: Any) -> Any:
    """How an array lies in memory, which code can ask for like its numbers."""
    if isinstance(it, Tensor):
        return it.data_ptr(), tuple(it.shape), it.stride(), it.dtype, it.device, it.requires_grad, it._is_view()
    if isinstance(it, np.ndarray):
        return it.ctypes.data, it.shape, it.strides, it.dtype, it.flags.num, id(it.base)
    return len(it)


def described(it: Any) -> Any:
    """The part of its form that does not depend on the place in memory."""
    whole = form(it)
    return whole[1:5] if isinstance(it, np.ndarray) else whole[1:] if isinstance(it, Tensor) else whole


class Content:
    """What an array holds: a copy, or a digest of what is large, and how it lies in memory."""

    def __init__(self, it: Any, copies: bool) -> None:
        size = len(it) if isinstance(it, bytearray) else it.numel() if isinstance(it, Tensor) else it.size
        self.form, self.digest = form(it), ""
        self.copy: Any = None
        self.data: Any = None
        if isinstance(it, Tensor):
            self.data = it.data
        if size > LARGE and not copies:
            self.digest = digest(bytes_of(it))
        elif isinstance(it, Tensor):
            self.copy = _memory(it).clone()
        else:
            self.copy = bytes(it) if isinstance(it, bytearray) else it.copy()

    def equal(self, it: Any) -> bool:
        if form(it) != self.form:
            return False
        if self.digest:
            return digest(bytes_of(it)) == self.digest
        if isinstance(it, bytearray):
            return bool(it == self.copy)
        if not isinstance(it, Tensor):
            return bool(it.tobytes() == self.copy.tobytes())
        now = _memory(it)
        if it.device.type != "cpu" and not it.is_complex() and torch.equal(now, self.copy):
            return True
        return bytes_of(now) == bytes_of(self.copy)

    def write(self, it: Any) -> None:
        """Put it back, as far as that can be done: what cannot is seen by comparing again."""
        if self.digest:
            return
        if isinstance(it, bytearray):
            it[:] = self.copy
        elif isinstance(it, Tensor):
            if form(it)[:5] != self.form[:5]:
                it.data = self.data
            it.requires_grad_(self.form[5]) if it.is_leaf else None
            _memory(it).copy_(self.copy)
        else:
            it.flags.writeable = True
            if it.shape != self.copy.shape:
                it.resize(self.copy.shape, refcheck=False)
            np.copyto(it, self.copy)
            it.flags.writeable = bool(self.form[4] & WRITEABLE)


def digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def reseed(generator: Any, seed: int) -> None:
    """By the method of the built-in type, whatever a subclass says."""
    if isinstance(generator, torch.Generator):
        torch.Generator.manual_seed(generator, seed)
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = type(generator.bit_generator)(seed).state
    elif isinstance(generator, random.Random):
        random.Random.seed(generator, seed)
    else:
        np.random.RandomState.seed(generator, seed)
