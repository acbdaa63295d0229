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


def slot_of(obj: Any, slot: Any) -> Any:
    try:
        return slot.__get__(obj, type(obj))
    except AttributeError:
        return ABSENT


def same(value: Any, other: Any) -> bool:
    """Whether they are identical, or constants that no code can distinguish: 0.0 is not -0.0, nor Decimal("0") 0.0.

    >>> same(0.0, -0.0), same(1, True), same(float("nan"), float("nan"))
    (False, False, True)
    """
    if value is other:
        return True
    kind = type(value)
    if kind is not type(other):
        return False
    if kind in (int, str, bytes, bool):
        return bool(value == other)
    return constant(value) is not None and constant(value) == constant(other)


def constant(value: Any) -> Any:
    """A key that identifies a constant among those of its type; None where only identity does."""
    kind = type(value)
    if kind in (int, str, bytes, bool):
        return value
    if kind is float:
        return struct.pack("d", value)
    if kind is complex:
        return struct.pack("dd", value.real, value.imag)
    if kind in BY_TEXT:
        return repr(value)
    return (value.dtype.str, value.tobytes()) if isinstance(value, np.generic) and plain(value) else None


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

    return {subclass for ref in _abc._get_dump(kind)[0] if (subclass := ref()) is not None}


# ---- arrays --------------------------------------------------------------------------------------------------------------


def bytes_of(array: Any) -> bytes:
    if isinstance(array, Tensor):
        whole = _memory(array).detach().cpu().contiguous().view(-1)
        return whole.view(torch.uint8).numpy().tobytes() if whole.numel() else b""
    return bytes(array) if isinstance(array, bytearray) else array.tobytes()


def _memory(tensor: Tensor) -> Tensor:
    """The whole storage of a tensor, since code can reach the memory beside its entries."""
    stored = tensor.untyped_storage()
    if stored.nbytes() == tensor.numel() * tensor.element_size():
        return tensor.detach()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(stored)


def form(array: Any) -> Any:
    """The memory layout of an array, which code can read like its numbers."""
    if isinstance(array, Tensor):
        return (
            array.data_ptr(),
            tuple(array.shape),
            array.stride(),
            array.dtype,
            array.device,
            array.requires_grad,
            array._is_view(),
        )
    if isinstance(array, np.ndarray):
        return array.ctypes.data, array.shape, array.strides, array.dtype, array.flags.num, id(array.base)
    return len(array)


def described(array: Any) -> Any:
    """The part of its form that does not depend on the address."""
    whole = form(array)
    return whole[1:5] if isinstance(array, np.ndarray) else whole[1:] if isinstance(array, Tensor) else whole


class Content:
    """The content of an array: a copy, or a digest if it is large, with its memory layout."""

    def __init__(self, array: Any, copies: bool) -> None:
        size = len(array) if isinstance(array, bytearray) else array.numel() if isinstance(array, Tensor) else array.size
        self.form, self.digest = form(array), ""
        self.copy: Any = None
        self.data: Any = None
        if isinstance(array, Tensor):
            self.data = array.data
        if size > LARGE and not copies:
            self.digest = digest(bytes_of(array))
        elif isinstance(array, Tensor):
            self.copy = _memory(array).clone()
        else:
            self.copy = bytes(array) if isinstance(array, bytearray) else array.copy()

    def equal(self, array: Any) -> bool:
        if form(array) != self.form:
            return False
        if self.digest:
            return digest(bytes_of(array)) == self.digest
        if isinstance(array, bytearray):
            return bool(array == self.copy)
        if not isinstance(array, Tensor):
            return bool(array.tobytes() == self.copy.tobytes())
        now = _memory(array)
        if array.device.type != "cpu" and not array.is_complex() and torch.equal(now, self.copy):
            return True
        return bytes_of(now) == bytes_of(self.copy)

    def write(self, array: Any) -> None:
        """Restore the content as far as possible; comparing again shows what could not be restored."""
        if self.digest:
            return
        if isinstance(array, bytearray):
            array[:] = self.copy
        elif isinstance(array, Tensor):
            if form(array)[:5] != self.form[:5]:
                array.data = self.data
            array.requires_grad_(self.form[5]) if array.is_leaf else None
            _memory(array).copy_(self.copy)
        else:
            array.flags.writeable = True
            if array.shape != self.copy.shape:
                array.resize(self.copy.shape, refcheck=False)
            np.copyto(array, self.copy)
            array.flags.writeable = bool(self.form[4] & WRITEABLE)


def digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def reseed(generator: Any, seed: int) -> None:
    """Seed a generator by the method of its built-in type, not of a subclass."""
    if isinstance(generator, torch.Generator):
        torch.Generator.manual_seed(generator, seed)
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = type(generator.bit_generator)(seed).state
    elif isinstance(generator, random.Random):
        random.Random.seed(generator, seed)
    else:
        np.random.RandomState.seed(generator, seed)
