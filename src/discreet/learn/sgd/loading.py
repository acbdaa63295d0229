"""Rows by a DataLoader's workers and collate function, in the order that the run draws.

A run takes from a `torch.utils.data.DataLoader` how rows are read: the data set, collate_fn, workers, prefetching and pinned
memory. Which rows form a batch (batch size, shuffling, dropping the last batch) is decided by the run, which samples units as
its claim states. The draws of later steps are known beforehand, so workers read ahead.

A collate function gets the rows of one unit at a time, so its result, padding included, is a function of that unit alone; units
whose tensors have equal shapes are computed together.
"""

from __future__ import annotations

import hashlib
import hmac
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
    get_worker_info,
)

from discreet.errors import InvalidValue
from discreet.learn.sgd.proof.process import as_it_was
from discreet.learn.sgd.proof.python import Watch

Ints = NDArray[np.int64]
Part = tuple[Ints, Any]  # places of units in a piece, and their rows as one batch
OPTIONS = ("num_workers", "prefetch_factor", "pin_memory", "worker_init_fn", "multiprocessing_context", "timeout")


@dataclass(frozen=True)
class Loading:
    """How rows are read."""

    collate: Callable[[list[Any]], Any] | None = None  # None: rows are stacked
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def ahead(self) -> bool:
        """Whether other processes read."""
        return bool(self.options.get("num_workers"))


def of(data: Any) -> tuple[Any, Loading]:
    """The data set inside a DataLoader and how it is read; other data unchanged."""
    if not isinstance(data, DataLoader):
        return data, Loading()
    if isinstance(data.dataset, IterableDataset):
        raise InvalidValue(
            f"{type(data.dataset).__name__} is a stream: units are drawn from all of the data by number, so a data set needs "
            "__len__ and __getitem__."
        )
    plain = type(data.sampler) in (SequentialSampler, RandomSampler) and not getattr(data.sampler, "replacement", False)
    if not plain or type(data.batch_sampler) not in (BatchSampler, type(None)):
        own = data.sampler if type(data.batch_sampler) in (BatchSampler, type(None)) else data.batch_sampler
        raise InvalidValue(
            f"The DataLoader has a sampler of its own ({type(own).__name__}). A private run draws its batches itself, as its "
            "claim has it, so no other order of rows can be kept. Leave sampler and batch_sampler out."
        )
    whole = data.batch_size is None or data.collate_fn is default_collate
    return data.dataset, Loading(None if whole else data.collate_fn, {name: getattr(data, name) for name in OPTIONS})


class Forgetful:
    """Wraps a collate function: its state is restored after each unit, and every unit draws from its own seed."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self._collate, self._watch = collate, Watch(nn.Module(), [collate])

    def __call__(self, unit: list[Any], seed: int = 0) -> Any:
        with as_it_was(seed):
            try:
                return self._collate(unit)
            finally:
                self._watch.restore()


def _own_seed(seed: int, place: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed} {place}".encode(), digest_size=8).digest(), "big") >> 1


class Reader(Dataset[list[Part]]):
    """Reads pieces, in whichever process: the rows of some units, by the seed of what the data set draws at random."""

    def __init__(self, data: Any, collate: Callable[[list[Any]], Any] | None) -> None:
        self.data, self.collate = data, collate

    def __getitem__(self, piece: tuple[int, Ints]) -> list[Part]:
        """The rows [units, rows of a unit] in as few batches as their shapes allow."""
        seed, members = piece
        if get_worker_info() is not None:  # whichever worker reads it, and after a restart too
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)
        if self.collate is None:
            return [(np.arange(len(members)), stacked(self.data, members.ravel()))]
        alike: dict[Any, list[tuple[int, Any]]] = {}
        collate = Forgetful(self.collate)
        for place, own in enumerate(members):
            batch = plain(collate(rows(self.data, own), _own_seed(seed, place)))
            alike.setdefault(signature(batch, len(own)), []).append((place, batch))
        return [_joined(group) for group in alike.values()]


def rows(data: Any, chosen: Iterable[Any]) -> list[Any]:
    """These rows, read one at a time: a data set that reads several at once would see which others are in the batch."""
    many = getattr(data, "__getitems__", None)
    return [data[int(row)] if many is None else next(iter(many([int(row)]))) for row in chosen]


def stacked(data: Any, chosen: Iterable[Any]) -> Any:
    """These rows as one batch."""
    return default_collate([plain(row) for row in rows(data, chosen)])


def plain(batch: Any) -> Any:
    """The batch with plain tensors: the code of a tensor subclass would see the rows of all units once they are joined.

    They also lose what a trace of made-up rows does not show: attributes, gradients, names, another memory format.
    """
    return pytree.tree_map(lambda leaf: _plain_tensor(leaf) if isinstance(leaf, Tensor) else leaf, batch)


def _plain_tensor(leaf: Tensor) -> Tensor:
    leaf = strided(leaf)
    if leaf.is_inference():
        with torch.inference_mode(mode=False):
            leaf = leaf.clone()
    if leaf.requires_grad or vars(leaf) or leaf._base is not None:
        leaf = leaf.detach()
    leaf = leaf.resolve_conj().resolve_neg().contiguous()
    return leaf.clone() if leaf.storage_offset() or leaf._base is not None else leaf


def strided(leaf: Tensor) -> Tensor:
    """The tensor without its subclass; refused where it is not a strided tensor in memory."""
    with torch._C.DisableTorchFunctionSubclass():
        if leaf.layout is not torch.strided or leaf.is_nested or is_traceable_wrapper_subclass(leaf) or not _has_memory(leaf):
            raise InvalidValue(
                f"A part of a row is a {type(leaf).__name__} of layout {leaf.layout}, not numbers side by side in memory. Make "
                "a dense torch.Tensor of it: tensor.to_dense(), say."
            )
        return leaf if type(leaf) is Tensor else Tensor.as_subclass(leaf, Tensor)


def _has_memory(leaf: Tensor) -> bool:
    try:
        return Tensor.data_ptr(leaf) != 0 or leaf.numel() == 0
    except RuntimeError:
        return False


def signature(batch: Any, count: int) -> Any:
    """The structure, types and shapes of a unit's rows, which must be those of `count` rows."""
    leaves, structure = pytree.tree_flatten(batch)
    wrong = [leaf for leaf in leaves if not isinstance(leaf, Tensor) or leaf.ndim == 0 or leaf.shape[0] != count]
    if wrong or not leaves:
        raise InvalidValue(
            "collate_fn is given the rows of one unit and must give tensors whose first axis has one entry for each of them; "
            f"got {'nothing' if not leaves else type(wrong[0]).__name__ if not isinstance(wrong[0], Tensor) else 'others'}."
        )
    return str(structure), tuple((leaf.dtype, tuple(leaf.shape)) for leaf in leaves)


def _joined(group: list[tuple[int, Any]]) -> Part:
    """Concatenate units with equal signatures."""
    structure = pytree.tree_structure(group[0][1])
    columns = zip(*(pytree.tree_leaves(batch) for _, batch in group), strict=True)
    return np.array([place for place, _ in group]), pytree.tree_unflatten([torch.cat(leaves) for leaves in columns], structure)


class Feed:
    """The pieces of a run in order, from a given step on, read ahead by worker processes if there are any."""

    def __init__(self, data: Any, loading: Loading, pieces: Iterator[tuple[int, Ints]]) -> None:
        reader = Reader(data, loading.collate)
        if loading.ahead:  # a generator of its own: torch's is the model's, and is in checkpoints
            options = {name: value for name, value in loading.options.items() if value is not None}
            generator = torch.Generator().manual_seed(0)
            self._parts: Iterator[Any] = iter(
                DataLoader(reader, sampler=_Once(pieces), batch_size=None, collate_fn=_as_is, generator=generator, **options)
            )
        else:
            self._parts = (reader[piece] for piece in pieces)

    def next(self) -> list[Part]:
        parts: list[Part] = next(self._parts)
        return parts


class _Once:
    """An iterator where torch expects a sampler."""

    def __init__(self, pieces: Iterator[tuple[int, Ints]]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[tuple[int, Ints]]:
        return self._pieces


def _as_is(parts: Any) -> Any:
    return parts


def seed(key: bytes, step: int, number: int) -> int:
    """The seed with which a data set reads piece `number` of a step: the same when the step is repeated."""
    return int.from_bytes(hmac.digest(key, b"discreet: rows %d %d" % (step, number), "sha256")[:7], "big")
