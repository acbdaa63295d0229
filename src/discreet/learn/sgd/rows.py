"""The rows of a run: which belong to one unit, and how a batch of units is assembled."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import Dataset

from discreet.core import Unit, check
from discreet.errors import InvalidValue
from discreet.learn.sgd import loading as loader
from discreet.learn.sgd.engine.probe import probe_augment

Change = Callable[[Any], Any]  # of the inputs of a batch, at random, example by example


class Rows:
    """Rows of a torch Dataset or of tensors, by unit. Units with fewer rows are padded with rows of weight 0."""

    def __init__(self, data: Any, unit: Unit, owners: Any = None, augment: Change | None = None, copies: int = 1) -> None:
        self.data, self.loading = loader.of(data)
        data = self.data
        self.augment, self.copies = augment, check.whole("copies", copies)
        self.apart: Change | None = None  # the same, by which no unit reaches another (see path.py)
        self.tensors, self._shape = _tensors(data)
        self._mark: str | None = None
        self.count = self._length()
        if self.count == 0:
            raise InvalidValue("data has no row; there is nothing to learn from.")
        if unit.rows is None:
            raise InvalidValue(
                f"The unit ({unit.name}) may own any number of rows, so nothing bounds what one {unit.name} adds. "
                "Say how many count at most: discreet.user('key', rows=8)."
            )
        self.rows = unit.rows * self.copies
        if owners is not None and unit.key is None:
            raise InvalidValue(
                f"owners says whose row each row is, but the unit is one {unit.name}: of an owner's rows all but one would be "
                "left out. Protect owners, discreet.user('key', rows=8), or leave owners out and protect each row."
            )
        if owners is None and (unit.rows != 1 or unit.key is not None):
            raise InvalidValue(
                f"The unit is one {unit.name} with up to {unit.rows} rows, but owners does not say whose row is whose. "
                f"Give it: owners=the {unit.key or 'key'} of every row, in the order of data."
            )
        self._members = None if owners is None else _grouped(owners, self.count, unit.rows)

    @property
    def units(self) -> int:
        return self.count if self._members is None else len(self._members)

    def mark(self, read: bool = False) -> str | None:
        """A fingerprint of the rows, for checkpoints (as secret as the rows); None for a Dataset unless it may be read."""
        if self._mark is None and (self.tensors is not None or read):
            digest = hashlib.blake2b(digest_size=16)
            for tensor in self.tensors if self.tensors is not None else self._leaves():
                digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
                digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
            if self._members is not None:
                digest.update(self._members.data)
            self._mark = digest.hexdigest()
        return self._mark

    def _leaves(self) -> Iterator[Tensor]:
        for row in range(self.count):
            for leaf in pytree.tree_leaves(self._rows(np.array([row]))):
                yield torch.as_tensor(leaf)

    def _length(self) -> int:
        if self.tensors is not None:
            return self.tensors[0].shape[0]
        try:
            return len(self.data)
        except TypeError:
            raise InvalidValue(
                f"{type(self.data).__name__} has no length: units are drawn from all of the data by number, so data must be a "
                "Dataset with __len__ and __getitem__, or a pair of tensors. A stream of rows cannot be sampled."
            ) from None

    def take(self, chosen: np.ndarray[Any, Any], device: torch.device, own: bool = True) -> tuple[Any, Tensor | None]:
        """The rows of these units, those of one unit side by side, and their weights (None: all 1).

        A caller that changes nothing in them need not `own` them: all rows at once are then the data itself, not a copy.
        """
        if self._length() != self.count:
            raise InvalidValue(
                "data has another number of rows than when the run began. A run learns from one data set: copy it first, then "
                "train on the copy."
            )
        members, weight = self.members(chosen)
        batch = self._rows(members.ravel(), own)
        if self.tensors is None or any(leaf.device != device for leaf in self.tensors):
            batch = _placed(batch, device)
        return self._changed(batch, None if weight is None else weight.flatten().to(device))

    def members(self, chosen: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], Tensor | None]:
        """The rows of these units, [units, rows], and which of them count; None: all."""
        if self._members is None:
            return chosen[:, None], None
        members = self._members[chosen]
        return np.where(members < 0, members[:, :1], members), torch.as_tensor(members >= 0, dtype=torch.float32)

    @property
    def loaded(self) -> bool:
        """Whether rows come by `feed`, from other processes or by a collate function."""
        return self.tensors is None and (self.loading.ahead or self.loading.collate is not None)

    def feed(self, pieces: Iterator[tuple[int, np.ndarray[Any, Any]]]) -> loader.Feed:
        """A feed of pieces (a seed, and units) in the order in which `fed` will read them."""
        return loader.Feed(self.data, self.loading, ((seed, self.members(chosen)[0]) for seed, chosen in pieces))

    def fed(self, feed: loader.Feed, chosen: np.ndarray[Any, Any], device: torch.device) -> Iterator[tuple[Any, Tensor | None]]:
        """The next piece of the feed, which is of these units: its batches and weights, as `take` gives them."""
        weight = self.members(chosen)[1]
        for places, batch in feed.next():
            own = None if weight is None else weight[torch.from_numpy(places)].flatten().to(device)
            yield self._changed(_placed(batch, device), own)

    def some(self, numbers: np.ndarray[Any, Any], device: torch.device) -> Iterator[Any]:
        """These rows, each by itself, in batches of one shape; augmented, as in training."""
        if self.loading.collate is None:
            yield self._changed(_placed(self._rows(numbers), device), None)[0]
        else:
            for _, batch in loader.Reader(self.data, self.loading.collate)[0, numbers[:, None]]:
                yield self._changed(_placed(batch, device), None)[0]

    def _changed(self, batch: Any, weight: Tensor | None) -> tuple[Any, Tensor | None]:
        """Every row as often as there are copies, which together count as one row, each augmented independently."""
        batch = loader.plain(batch)
        if self.augment is None:
            return batch, weight
        batch = pytree.tree_map(lambda leaf: leaf.repeat_interleave(self.copies, 0), batch)
        inputs, target = split(batch)
        inputs = loader.plain((self.apart or self.augment)(inputs))
        like = pytree.tree_leaves(target)[0]
        every = torch.ones(like.shape[0] // self.copies, device=like.device) if weight is None else weight
        again = (inputs, target) if len(batch) == 2 else (*inputs, target)
        return again, every.repeat_interleave(self.copies, 0) / self.copies

    def probe_augment(self, device: torch.device, generator: torch.Generator) -> None:
        """Try on made-up rows whether augment changes every unit by itself."""
        if self.augment is not None:
            examples = self.like(3 * self.rows, device, generator)
            probe_augment(self.augment, split(examples)[0], self.rows)

    def _rows(self, chosen: np.ndarray[Any, Any], own: bool = True) -> Any:
        if self.tensors is None:
            collate = self.loading.collate
            if collate is None:
                return loader.stacked(self.data, chosen)
            return loader.Forgetful(collate)(loader.rows(self.data, chosen))
        if not own and self._members is None and len(chosen) == self.count:  # units are drawn at most once, ascending
            return pytree.tree_unflatten(self.tensors, self._shape)
        index = torch.from_numpy(np.ascontiguousarray(chosen)).to(self.tensors[0].device)
        return pytree.tree_unflatten([t.index_select(0, index.to(t.device)) for t in self.tensors], self._shape)

    def blank(self, device: torch.device) -> tuple[Any, Tensor]:
        """Made-up rows of one unit with weight 0, for a process that must call the model together with others."""
        return self.like(self.rows, device, torch.Generator().manual_seed(0)), torch.zeros(self.rows, device=device)

    def like(self, examples: int, device: torch.device, generator: torch.Generator) -> Any:
        """Rows of made-up values with the shape and type of real ones: nothing private is in them."""
        return made_up(self.first(), examples, device, generator)

    def first(self) -> Any:
        """The first row, for its shapes and types."""
        try:
            batch = loader.plain(self._rows(np.zeros(1, np.int64)))
            if self.loading.collate is not None:
                loader.signature(batch, 1)
            return batch
        except TypeError as error:
            if "default_collate" not in str(error):
                raise
            raise InvalidValue(
                "Rows of data must be numbers and tensors, or lists, tuples and dictionaries of them; a part of them is "
                f"{str(error).rpartition('found ')[2].strip('<>').removeprefix('class ')}. Make tensors of it first."
            ) from None


def made_up(first: Any, examples: int, device: torch.device, generator: torch.Generator) -> Any:
    """So many rows of made-up values that are like those of a batch."""

    def made(leaf: Any) -> Tensor:
        if not isinstance(leaf, Tensor):
            raise InvalidValue(f"Rows of data must be numbers and tensors; a part of them is {type(leaf).__name__}.")
        shape = (examples, *leaf.shape[1:])
        if leaf.is_floating_point() or leaf.is_complex():
            return torch.randn(shape, generator=generator, dtype=leaf.dtype).to(device)
        return torch.randint(0, 2, shape, generator=generator).to(leaf.dtype).to(device)

    return pytree.tree_map(made, first)


def shapes(batch: Any) -> Any:
    """The signature of rows that may be computed together: structure, types, and shapes without the number of rows."""
    leaves, structure = pytree.tree_flatten(batch)
    return str(structure), tuple((leaf.dtype, tuple(leaf.shape[1:])) for leaf in leaves if isinstance(leaf, Tensor))


def _placed(batch: Any, device: torch.device) -> Any:
    return pytree.tree_map(lambda leaf: leaf.to(device, non_blocking=True), batch)


def _tensors(data: Any) -> tuple[tuple[Tensor, ...] | None, Any]:
    """The tensors of a pair and how they are nested in it, or None where data is a Dataset."""
    if isinstance(data, (tuple, list)) and _columns(data):
        leaves, shape = pytree.tree_flatten(_plain(data))
        columns = tuple(loader.strided(torch.as_tensor(item)).detach() for item in leaves)
        lengths = {item.shape[0] if item.ndim else None for item in columns}
        if len(data) < 2 or len(lengths) != 1 or None in lengths:
            problem = f"{len(data)} of different lengths, or one that is a single number" if len(data) > 1 else "no targets"
            raise InvalidValue(f"data as tensors must be (inputs, targets) with as many rows each; got {problem}.")
        return columns, shape
    if isinstance(data, (Tensor, np.ndarray)):
        raise InvalidValue("data must be a pair of tensors (inputs, targets); got one, which does not say what is the target.")
    if _named(type(data), "DataFrame"):
        raise InvalidValue(
            "data must be a torch Dataset or a pair of tensors (inputs, targets); got a DataFrame. Make tensors of it: "
            "(torch.tensor(table[columns].to_numpy(), dtype=torch.float32), torch.tensor(table[target].to_numpy()))."
        )
    if isinstance(data, Dataset) or (
        hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, (str, dict))
    ):
        return None, None
    raise InvalidValue(
        f"data must be a torch Dataset with a length or a pair of tensors (inputs, targets); got {type(data).__name__}."
    )


def _columns(data: Sequence[Any]) -> bool:
    """Whether data holds columns and not rows: tensors or arrays or, in a tuple, dictionaries and tuples of them."""
    kinds = (Tensor, np.ndarray, Mapping) if isinstance(data, tuple) else (Tensor, np.ndarray)
    held = pytree.tree_leaves(_plain(data)) if isinstance(data, tuple) else data
    return any(isinstance(item, kinds) for item in data) and all(isinstance(leaf, (Tensor, np.ndarray)) for leaf in held)


def _plain(data: Sequence[Any]) -> tuple[Any, ...]:
    """The data with mappings, such as a tokenizer's output, as dictionaries."""
    return tuple(dict(item) if isinstance(item, Mapping) else item for item in data)


def _named(kind: type, name: str) -> bool:
    return any(base.__name__ == name for base in kind.__mro__)


def _grouped(owners: Any, count: int, most: int) -> np.ndarray[Any, Any]:
    """The rows of every unit, [units, most], -1 where it has fewer. Of those who have more, the first ones count."""
    keys = np.asarray(owners.cpu() if isinstance(owners, Tensor) else owners)
    if keys.shape != (count,):
        problem = f"{keys.ndim} axes" if keys.ndim != 1 else "more of them" if len(keys) > count else "fewer of them"
        raise InvalidValue(f"owners must hold one key for each row, along one axis; got {problem}.")
    if any(map(_missing, keys.tolist())) if keys.dtype.kind in "fcO" else False:
        raise InvalidValue("owners has rows without a key (None or NaN): it must say of every row whose it is. Leave them out.")
    if keys.dtype.kind == "O":
        keys = keys.astype(str)  # keys of several types have no order
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    first = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    unit = np.cumsum(first) - 1
    place = np.arange(count) - np.flatnonzero(first)[unit]
    members = np.full((unit[-1] + 1, most), -1, np.int64)
    counting = place < most
    members[unit[counting], place[counting]] = order[counting]
    return members


def _missing(key: Any) -> bool:
    return key is None or type(key).__name__ in ("NAType", "NaTType") or bool(key != key)


def call(model: torch.nn.Module, inputs: Any) -> Any:
    """The model on a batch: a tensor, several as positions, or named ones."""
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs)


def split(batch: Sequence[Any]) -> tuple[Any, Any]:
    """Inputs and target of a batch: the last part is the target."""
    if not isinstance(batch, (tuple, list)) or len(batch) < 2:
        raise InvalidValue(
            f"Every row of data must be (input, target), or (inputs…, target); got a {type(batch).__name__}. Where rows are "
            "dictionaries, give a Dataset whose rows are (a dictionary of what the model is called with, the target)."
        )
    return (batch[0] if len(batch) == 2 else tuple(batch[:-1])), batch[-1]


class OfBatch:
    """A loss of a whole batch, for models that are not simply called with the inputs: `losses(batch)`, one for each row.

    >>> OfBatch(lambda batch: batch["x"].sum(1)).losses({"x": torch.ones(2, 3)})
    tensor([3., 3.])
    """

    def __init__(self, losses: Callable[[Any], Tensor]) -> None:
        self.losses = losses

    def __call__(self, output: Any, target: Any) -> Tensor:
        raise InvalidValue("This loss is computed from a whole batch, not from an output and a target.")
