"""Checks before anything is charged: that the rows can be read, and that model and loss accept their values.

A run that fails on row 70,000 has spent its budget, so the rows are checked first. The check runs on the owner's machine and
releases nothing; its only outcome is whether the run begins. The row at fault is named in the owner's log
(`logging.getLogger("discreet.learn")`) and in no message.

Every row is read once, and must have the structure, shapes and types of the first. Model and loss themselves are run on a few
rows that together hold every whole number that occurs (labels, tokens, categories), to see that these are in range. This covers
whole floats too, where a part of a row is a single number: a loss may cast such a target.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, Dataset

from discreet.errors import DiscreetError, InvalidValue
from discreet.learn.sgd.engine.compiled import eagerly
from discreet.learn.sgd.loading import Forgetful, Loading, plain, rows, signature, stacked

if TYPE_CHECKING:
    from discreet.learn.sgd.clipped_sum import ClippedSum

log = logging.getLogger("discreet.learn")

MANY = 1 << 16  # values of one part of a row that are all looked at; of more, the least and the greatest
CHUNK, BATCH = 256, 32  # rows read, and rows computed, at a time
Values = dict[int, dict[int, int]]  # by part of a row: value to a row that holds it


def check(clipped: ClippedSum, split: bool) -> None:
    """Refuse data on which the run could not end. `split`: whether the weights lie on several processes."""
    occurring: Values = {}
    rows = clipped.rows
    if rows.tensors is not None:
        _columns(rows.tensors, occurring)
    else:
        for number in _read(rows.data, rows.loading, occurring):
            _shape(clipped, number)
    chosen = sorted({row for holders in occurring.values() for row in holders.values()})
    if chosen:
        _compute(clipped, chosen, split)


def _shape(clipped: ClippedSum, number: int) -> None:
    """Try the model on made-up rows of this row's shape."""
    try:
        for batch in clipped.rows.some(np.array([number]), clipped.device):
            clipped.try_shape(batch)
        return
    except (DiscreetError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    _fail("Model and loss fail on made-up rows of the shape that a row of data has", number, why)


def _columns(tensors: Sequence[Tensor], occurring: Values) -> None:
    for part, tensor in enumerate(tensors):
        if _whole(tensor) or _single(tensor, len(tensor)):
            for start in range(0, len(tensor), MANY):
                block = tensor[start : start + MANY]
                _note(occurring.setdefault(part, {}), _values(block, len(block)), np.arange(start, start + len(block)))


def _whole(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and not leaf.is_floating_point() and not leaf.is_complex() and leaf.dtype != torch.bool


def _single(leaf: Any, count: int) -> bool:
    """A float for each of so many rows: perhaps a label."""
    return isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.numel() == count


def _values(leaf: Tensor, count: int) -> NDArray[Any]:
    """The numbers of these rows; of floats those that are whole, 0 for fractions and the least for what is no number."""
    if not leaf.is_floating_point():
        return leaf.cpu().numpy().reshape(count, -1)
    numbers = leaf.detach().double().cpu().numpy().reshape(count, 1)
    whole = np.isfinite(numbers) & (numbers == np.floor(numbers)) & (np.abs(numbers) < 2.0**62)
    return np.where(whole, np.where(whole, numbers, 0), np.where(np.isfinite(numbers), 0, -(2.0**62))).astype(np.int64)


def _note(holders: dict[int, int], values: NDArray[Any], numbers: NDArray[np.int64]) -> None:
    """Remember a row for every value; beyond MANY of them for the least and the greatest."""
    if not values.size:
        return
    distinct, first = np.unique(values.ravel(), return_index=True)
    holding = numbers[first // values.shape[1]]
    if len(holders) + len(distinct) > MANY:
        pairs = {**dict(zip(distinct.tolist(), holding.tolist())), **holders}
        ends = (min(pairs), max(pairs))
        holders.clear()
        holders.update({value: pairs[value] for value in ends})
        return
    for value, row in zip(distinct.tolist(), holding.tolist()):
        holders.setdefault(value, row)


# ---- reading -------------------------------------------------------------------------------------------------------------


class _Look(Dataset[Any]):
    """The facts about some rows that the check needs, computed in the process that reads them."""

    def __init__(self, data: Any, collate: Callable[[list[Any]], Any] | None) -> None:
        self._data, self._collate = data, collate

    def __getitem__(self, numbers: NDArray[np.int64]) -> tuple[list[Any], Values, tuple[str, int, str] | None]:
        """Signatures, each with the first row that has it; whole numbers; and the first row that cannot be read."""
        kinds: dict[Any, int] = {}
        occurring: Values = {}
        own = None if self._collate is None else Forgetful(self._collate)
        for number in numbers.tolist():
            try:
                batch = stacked(self._data, [number]) if own is None else plain(own(rows(self._data, [number])))
                kinds.setdefault(signature(batch, 1), number)
            except Exception as error:
                ours = f": {error}".rstrip(".") if isinstance(error, DiscreetError) else ""  # ours show no private value
                return (
                    list(kinds.items()),
                    occurring,
                    (f"A row of data cannot be read{ours}", number, f"{type(error).__name__}: {error}"),
                )
            for part, leaf in enumerate(pytree.tree_leaves(batch)):
                if _whole(leaf) or _single(leaf, 1):
                    _note(occurring.setdefault(part, {}), _values(leaf, 1), np.array([number]))
        return list(kinds.items()), occurring, None


def _read(data: Any, loading: Loading, occurring: Values) -> list[int]:
    """Every row once. Returns one row of each kind."""
    kinds: dict[Any, int] = {}
    for signatures, values, broken in _looks(data, loading):
        for kind, number in signatures:
            kinds.setdefault(kind, number)
        if broken is not None:
            _fail(*broken)
        for part, holders in values.items():
            known = occurring.setdefault(part, {})
            for value, number in holders.items():
                known.setdefault(value, number)
            _note(known, np.empty((0, 1)), np.empty(0, np.int64))
        if loading.collate is None and len(kinds) > 1:
            _fail(
                "Rows of data differ in shape, type or structure; give rows of one length, or a DataLoader with a collate_fn, "
                "which is given the rows of one unit at a time",
                list(kinds.values())[1], "unlike the first row",
            )  # fmt: skip
    return list(kinds.values())


def _looks(data: Any, loading: Loading) -> Iterator[Any]:
    look = _Look(data, loading.collate)
    chunks = [np.arange(start, min(start + CHUNK, len(data))) for start in range(0, len(data), CHUNK)]
    if not loading.ahead:
        return (look[chunk] for chunk in chunks)
    options = {name: value for name, value in loading.options.items() if value is not None and name != "pin_memory"}
    alone = torch.Generator().manual_seed(0)
    return iter(DataLoader(look, sampler=chunks, batch_size=None, collate_fn=_as_is, generator=alone, **options))


def _as_is(rows: Any) -> Any:
    return rows


def _fail(problem: str, number: int | None, why: str) -> NoReturn:
    if number is not None:
        log.error("row %d of the data: %s", number, why)
    where = "Its number is in the log of discreet.learn. " if number is not None else ""
    raise InvalidValue(f"{problem}. {where}Nothing was charged: mend or leave out the row, and begin again.") from None


# ---- computing -----------------------------------------------------------------------------------------------------------


def _compute(clipped: ClippedSum, chosen: list[int], split: bool) -> None:
    """Run model and loss on these rows, without gradients, on copies of parameters and buffers."""
    devices = [clipped.device] if clipped.device.type == "cuda" else []
    copies = nullcontext() if split else clipped.isolated.on_copies()  # shards are gathered from the parameters
    with torch.random.fork_rng(devices=devices), torch.no_grad(), eagerly(), copies, _InRange():
        for start in range(0, len(chosen), BATCH):
            _try(clipped, chosen[start : start + BATCH])


def _try(clipped: ClippedSum, numbers: list[int]) -> None:
    try:
        for batch in clipped.rows.some(np.array(numbers), clipped.device):
            clipped.proven_losses(batch)
        return
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        kind, why = type(error).__name__, str(error)
    if len(numbers) > 1:
        for number in numbers:
            _try(clipped, [number])
    _fail(
        f"Model and loss fail on a row of data ({kind}), as they do where a label is none of the classes or a token is not in "
        "the vocabulary",
        numbers[0] if len(numbers) == 1 else None, f"{kind}: {why}",
    )  # fmt: skip


def _between(index: Tensor, size: int, least: int = 0, ignored: int | None = None) -> None:
    outside = (index < least) | (index >= size)
    if ignored is not None:
        outside &= index != ignored
    if bool(outside.any()):
        raise IndexError(f"an index is outside {least} to {size - 1}")


def _nll(output: Tensor, target: Tensor, weight: Any, reduction: int, ignored: int) -> None:
    _between(target, output.shape[1 if output.ndim > 1 else 0], ignored=ignored)


def _table(weight: Tensor, index: Tensor, *rest: Any, **named: Any) -> None:
    _between(index, weight.shape[0])


def _along(tensor: Tensor, axis: int, index: Tensor, *rest: Any, **named: Any) -> None:
    if tensor.ndim:
        _between(index, tensor.shape[axis])


aten = torch.ops.aten
INDEXED: dict[Any, Callable[..., None]] = {
    aten.embedding: _table, aten._embedding_bag: _table, aten._embedding_bag_forward_only: _table,
    aten.nll_loss_forward: _nll, aten.nll_loss2d_forward: _nll,
    aten.gather: _along, aten.index_select: _along, aten.scatter: _along, aten.scatter_: _along,
}  # fmt: skip


class _InRange(TorchDispatchMode):
    """Checks indices before they are used: on a GPU an index out of range makes the device unusable."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (look := INDEXED.get(func.overloadpacket)) is not None:
            look(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))
