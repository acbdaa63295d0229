"""The content of slots, cells, arrays and generators: reading it, comparing it, writing it."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from discreet.learn.sgd.proof.objects import plain

LARGE = 1 << 20  # numbers of an array of which a digest is kept rather than a copy, unless it must be put back
DRAWING = (torch.Generator, random.Random, np.random.Generator, np.random.RandomState)
ABSENT = object()


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
    return one is other or (plain(one) and type(one) is type(other) and (one == other or (one != one and other != other)))


def other(mapping: Any, before: dict[Any, Any]) -> Iterator[Any]:
    for name in [*mapping, *before]:
        if name not in mapping or name not in before or not same(mapping[name], before[name]):
            yield name


def bytes_of(it: Any) -> bytes:
    if isinstance(it, Tensor):
        return it.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes() if it.numel() else b""
    return bytes(it) if isinstance(it, bytearray) else it.tobytes()


def content(it: Any, copies: bool) -> Any:
    """A copy, or a digest of what is large."""
    size = len(it) if isinstance(it, bytearray) else it.numel() if isinstance(it, Tensor) else it.size
    if size > LARGE and not copies:
        return hashlib.blake2b(bytes_of(it), digest_size=16).hexdigest()
    return bytes(it) if isinstance(it, bytearray) else it.detach().clone() if isinstance(it, Tensor) else it.copy()


def equal(it: Any, kept: Any) -> bool:
    if isinstance(kept, str):
        return hashlib.blake2b(bytes_of(it), digest_size=16).hexdigest() == kept
    if isinstance(it, bytearray):
        return it == kept
    if it.shape != kept.shape or it.dtype != kept.dtype:
        return False
    if not isinstance(it, Tensor):
        return bool(it.tobytes() == kept.tobytes())
    if it.device.type != "cpu" and it.device == kept.device and not it.is_complex():
        return bool(torch.equal(it.detach(), kept)) or bytes_of(it) == bytes_of(kept)
    return bytes_of(it) == bytes_of(kept)


def write(it: Any, kept: Any) -> None:
    if isinstance(it, bytearray):
        it[:] = kept
    elif isinstance(it, Tensor):
        it.detach().set_(kept.clone()) if it.shape != kept.shape else it.detach().copy_(kept)
    else:
        np.copyto(it, kept)


def reseed(generator: Any, seed: int) -> None:
    if isinstance(generator, torch.Generator):
        generator.manual_seed(seed)
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = type(generator.bit_generator)(seed).state
    else:
        generator.seed(seed)
